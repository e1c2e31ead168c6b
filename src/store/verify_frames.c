#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/sync.h"
#include "base/sys.h"
#include "format/frame.h"
#include "store/verify_private.h"

#define THREADS_MAX 16
#define RING_BYTES_MAX (UINT32_C(256) << 20)

struct slot {
	unsigned char *raw; /* max_raw bytes; the thread that loads it and then the reader's */
	int error;
	bool ready; /* protected by lock */
};

struct varve_frame_reader {
	/* -- immutable after new -- */
	int fd;
	const struct varve_index *ix;
	uint32_t n_frames, max_raw, max_comp;
	uint32_t n_slots; /* frame k goes into slot k % n_slots */
	struct slot *slots;

	pthread_mutex_t lock; /* all below */
	uint32_t claimed;     /* frames that threads have taken up */
	uint32_t read;        /* frames that the reader has done with */
	bool stop;
	pthread_cond_t freed, loaded;

	/* -- the reader's thread only -- */
	uint32_t next;
	unsigned n_threads;
	pthread_t threads[THREADS_MAX];
};

/* What one thread works with. */
struct bench {
	struct varve_frame_dctx *dctx;
	unsigned char *comp;
};

static int load(const struct varve_frame_reader *r, const struct bench *b, uint32_t k,
		unsigned char *raw)
{
	struct varve_frame_info f;
	int e;

	varve_index_frame(r->ix, k, &f);
	/* No encoder makes a frame larger than this. */
	if (f.comp_size > varve_frame_bound(f.raw_size))
		return -EBADMSG;
	if (!b->dctx || !b->comp || !raw)
		return -ENOMEM;
	e = varve_pread_full(r->fd, b->comp, f.comp_size, f.comp_offset);
	return e < 0 ? e : varve_frame_decode(b->dctx, &f, b->comp, raw);
}

static void *load_frames(void *arg)
{
	struct varve_frame_reader *r = arg;
	struct bench b = {.dctx = varve_frame_dctx_new(), .comp = malloc(r->max_comp)};

	(void)pthread_setname_np(pthread_self(), "varve-verify");
	(void)pthread_mutex_lock(&r->lock);
	while (!r->stop && r->claimed < r->n_frames) {
		uint32_t k = r->claimed;
		struct slot *s = &r->slots[k % r->n_slots];
		int e;

		if (k - r->read >= r->n_slots) {
			(void)pthread_cond_wait(&r->freed, &r->lock);
			continue;
		}
		r->claimed++;
		(void)pthread_mutex_unlock(&r->lock);
		if (!s->raw)
			s->raw = malloc(r->max_raw);
		e = load(r, &b, k, s->raw);
		(void)pthread_mutex_lock(&r->lock);
		s->error = e;
		s->ready = true;
		(void)pthread_cond_signal(&r->loaded);
	}
	(void)pthread_mutex_unlock(&r->lock);
	varve_frame_dctx_free(b.dctx);
	free(b.comp);
	return NULL;
}

static void measure(struct varve_frame_reader *r)
{
	r->n_frames = varve_index_frames(r->ix);
	for (uint32_t k = 0; k < r->n_frames; k++) {
		struct varve_frame_info f;

		varve_index_frame(r->ix, k, &f);
		if (f.raw_size > r->max_raw)
			r->max_raw = f.raw_size;
		if (f.comp_size > r->max_comp && f.comp_size <= varve_frame_bound(f.raw_size))
			r->max_comp = f.comp_size;
	}
}

/* Signals are for the caller's thread. */
static int start_threads(struct varve_frame_reader *r, unsigned n)
{
	sigset_t all, before;
	int e = 0;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	while (r->n_threads < n && e == 0) {
		e = pthread_create(&r->threads[r->n_threads], NULL, load_frames, r);
		if (e == 0)
			r->n_threads++;
	}
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r->n_threads > 0 ? 0 : -e; /* fewer than asked for will do */
}

int varve_frame_reader_new(int fd, const struct varve_index *ix, unsigned threads,
			   struct varve_frame_reader **ret)
{
	struct varve_frame_reader *r = calloc(1, sizeof(*r));
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned n = threads > 0 ? threads : cores > 0 ? (unsigned)cores : 1;
	int e = -ENOMEM;

	if (!r)
		return -ENOMEM;
	r->fd = fd;
	r->ix = ix;
	(void)pthread_mutex_init(&r->lock, NULL);
	(void)pthread_cond_init(&r->freed, NULL);
	(void)pthread_cond_init(&r->loaded, NULL);
	measure(r);
	if (n > THREADS_MAX)
		n = THREADS_MAX;
	if (n > r->n_frames)
		n = r->n_frames;
	r->n_slots = 2 * n;
	if (r->n_slots > RING_BYTES_MAX / r->max_raw)
		r->n_slots = RING_BYTES_MAX / r->max_raw;
	r->slots = calloc(r->n_slots, sizeof(*r->slots));
	if (r->slots)
		e = start_threads(r, n);
	if (e < 0) {
		varve_frame_reader_free(r);
		return e;
	}
	*ret = r;
	return 0;
}

void varve_frame_reader_free(struct varve_frame_reader *r)
{
	if (!r)
		return;
	(void)pthread_mutex_lock(&r->lock);
	r->stop = true;
	(void)pthread_cond_broadcast(&r->freed);
	(void)pthread_mutex_unlock(&r->lock);
	for (unsigned i = 0; i < r->n_threads; i++)
		(void)pthread_join(r->threads[i], NULL);
	for (uint32_t i = 0; r->slots && i < r->n_slots; i++)
		free(r->slots[i].raw);
	free(r->slots);
	(void)pthread_cond_destroy(&r->loaded);
	(void)pthread_cond_destroy(&r->freed);
	(void)pthread_mutex_destroy(&r->lock);
	free(r);
}

int varve_frame_reader_next(struct varve_frame_reader *r, const unsigned char **ret)
{
	struct slot *s = &r->slots[r->next % r->n_slots];

	guard(&r->lock);
	if (r->next > 0) {
		r->slots[(r->next - 1) % r->n_slots].ready = false;
		r->read = r->next;
		(void)pthread_cond_broadcast(&r->freed);
	}
	while (!s->ready)
		(void)pthread_cond_wait(&r->loaded, &r->lock);
	r->next++;
	*ret = s->raw;
	return s->error;
}
