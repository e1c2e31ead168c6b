#include "format/segment_pipe.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "format/digest.h"
#include "format/frame.h"
#include "format/segment.h"
#include "format/segment_enc.h"

#define THREADS_MAX 64
#define CANCEL_POLL_NS 50000000 /* how soon a wait for compressors sees that it was cancelled */
#define PATIENCE_POLLS 100      /* how long one frame is waited for before they are lifted: 5 s */

enum slot_state { SLOT_FREE, SLOT_QUEUED, SLOT_BUSY, SLOT_DONE };

/* A frame on its way. The feeding thread owns it while FREE or DONE, a compressor while BUSY. */
struct slot {
	unsigned char *raw; /* VARVE_FRAME_BYTES, made when first needed */
	unsigned char *comp;
	size_t raw_len;
	size_t comp_len;
	uint64_t hash;
	uint32_t check;
	int error;
	enum slot_state state; /* protected by lock */
};

struct varve_pipe {
	/* -- immutable after new -- */
	int level;
	const volatile int *cancel;
	varve_pipe_emit *emit;
	void *emit_ctx;
	unsigned max_threads, n_slots;
	struct slot *slots; /* frame k is in slot k mod n_slots */

	/* -- feeding thread only -- */
	pthread_t *threads;
	unsigned n_threads;
	bool started;                  /* threads were asked for, even if none came */
	bool lifted;                   /* they were given ordinary priority */
	struct varve_frame_cctx *cctx; /* for frames that are compressed here */
	uint64_t filling;              /* number of the frame being filled */
	uint64_t out;                  /* number of the next frame to come out */
	int error;                     /* the first, which stays */

	/* -- protected by lock -- */
	pthread_mutex_t lock;
	pthread_cond_t work; /* something was queued, or stop */
	pthread_cond_t done; /* a frame is compressed */
	uint64_t queued;     /* frames below this number were queued */
	uint64_t taken;      /* frames below this number were taken by a compressor */
	bool stop;
};

void varve_segment_idle_thread(void)
{
	struct sched_param sp = {0};

	/* Both are a courtesy to others; a kernel or sandbox that refuses is no reason to stop. */
	(void)sched_setscheduler(0, SCHED_IDLE, &sp);
	(void)syscall(SYS_ioprio_set, 1 /* IOPRIO_WHO_PROCESS: this thread */, 0,
		      3 << 13 /* IOPRIO_CLASS_IDLE */);
}

static void compress_slot(struct varve_pipe *p, struct slot *s, struct varve_frame_cctx **cctx)
{
	if (!*cctx)
		*cctx = varve_frame_cctx_new(p->level);
	if (!*cctx) {
		s->error = -ENOMEM;
		return;
	}
	s->hash = varve_hash64(s->raw, s->raw_len);
	s->error =
		varve_frame_encode(*cctx, s->raw, s->raw_len, s->comp,
				   varve_frame_bound(VARVE_FRAME_BYTES), &s->comp_len, &s->check);
}

/* The next queued frame's slot, or NULL when it is time to stop. Called with the lock held. */
static struct slot *take_locked(struct varve_pipe *p)
{
	struct slot *s;

	while (!p->stop && p->taken == p->queued)
		pthread_cond_wait(&p->work, &p->lock);
	if (p->stop)
		return NULL;
	s = &p->slots[p->taken++ % p->n_slots];
	s->state = SLOT_BUSY;
	return s;
}

static void *compressor(void *arg)
{
	struct varve_frame_cctx *cctx = NULL;
	struct varve_pipe *p = arg;
	struct slot *s;

	pthread_mutex_lock(&p->lock);
	/* On a busy machine it may begin only after it was lifted: it would never be again. */
	if (!p->lifted)
		varve_segment_idle_thread();
	while ((s = take_locked(p))) {
		pthread_mutex_unlock(&p->lock);
		compress_slot(p, s, &cctx);
		pthread_mutex_lock(&p->lock);
		s->state = SLOT_DONE;
		pthread_cond_signal(&p->done);
	}
	pthread_mutex_unlock(&p->lock);
	varve_frame_cctx_free(cctx);
	return NULL;
}

static bool cancelled(const struct varve_pipe *p)
{
	return p->cancel && __atomic_load_n(p->cancel, __ATOMIC_RELAXED);
}

static int fail(struct varve_pipe *p, int error)
{
	if (p->error == 0)
		p->error = error;
	return p->error;
}

/* Ends idle priority, also of those that begin later; the lock held. Without privilege the kernel refuses, and
 * the threads go on as they are. */
static void lift(struct varve_pipe *p)
{
	struct sched_param sp = {0};

	for (unsigned i = 0; i < p->n_threads && !p->lifted; i++)
		(void)pthread_setschedparam(p->threads[i], SCHED_BATCH, &sp);
	p->lifted = true;
}

/* Waits until the next frame to come out is compressed. 0 or -ECANCELED. */
static int wait_done(struct varve_pipe *p)
{
	struct slot *s = &p->slots[p->out % p->n_slots];
	struct timespec until;
	int r = 0, polls = 0;

	pthread_mutex_lock(&p->lock);
	while (s->state != SLOT_DONE && r == 0) {
		(void)clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += CANCEL_POLL_NS;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		(void)pthread_cond_timedwait(&p->done, &p->lock, &until);
		if (cancelled(p))
			r = -ECANCELED;
		if (++polls == PATIENCE_POLLS)
			lift(p);
	}
	pthread_mutex_unlock(&p->lock);
	return r;
}

/* Gives the oldest frame to the sink and its slot back to the ring. */
static int emit_next(struct varve_pipe *p)
{
	struct slot *s = &p->slots[p->out % p->n_slots];
	int r = wait_done(p);

	if (r == 0)
		r = s->error;
	if (r == 0) {
		struct varve_pipe_frame f = {.comp = s->comp,
					     .comp_size = (uint32_t)s->comp_len,
					     .raw_size = (uint32_t)s->raw_len,
					     .check = s->check,
					     .hash = s->hash};
		r = p->emit(p->emit_ctx, &f);
	}
	if (r < 0)
		return fail(p, r);
	/* Queued frames are others' slots: this one is the feeding thread's alone since DONE. */
	s->state = SLOT_FREE;
	s->raw_len = 0;
	p->out++;
	return 0;
}

static int slot_buffers(struct slot *s)
{
	if (!s->raw)
		s->raw = malloc(VARVE_FRAME_BYTES);
	if (!s->comp)
		s->comp = malloc(varve_frame_bound(VARVE_FRAME_BYTES));
	return s->raw && s->comp ? 0 : -ENOMEM;
}

int varve_pipe_space(struct varve_pipe *p, unsigned char **ret, size_t *ret_len)
{
	struct slot *s = &p->slots[p->filling % p->n_slots];
	int r;

	if (p->error < 0)
		return p->error;
	if (cancelled(p))
		return fail(p, -ECANCELED);
	if (p->filling - p->out == p->n_slots) {
		r = emit_next(p);
		if (r < 0)
			return r;
	}
	r = slot_buffers(s);
	if (r < 0)
		return fail(p, r);
	*ret = s->raw + s->raw_len;
	*ret_len = VARVE_FRAME_BYTES - s->raw_len;
	return 0;
}

/* Fewer than asked for, even none, do as well. */
static void start_threads(struct varve_pipe *p)
{
	sigset_t all, before;

	p->started = true;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	while (p->n_threads < p->max_threads &&
	       pthread_create(&p->threads[p->n_threads], NULL, compressor, p) == 0) {
		(void)pthread_setname_np(p->threads[p->n_threads], "varve-compress");
		p->n_threads++;
	}
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Ends the frame being filled. */
static void submit(struct varve_pipe *p)
{
	struct slot *s = &p->slots[p->filling % p->n_slots];

	if (!p->started && s->raw_len == VARVE_FRAME_BYTES)
		start_threads(p);
	p->filling++;
	if (p->n_threads == 0) {
		compress_slot(p, s, &p->cctx);
		s->state = SLOT_DONE;
		return;
	}
	pthread_mutex_lock(&p->lock);
	s->state = SLOT_QUEUED;
	p->queued = p->filling;
	pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
}

void varve_pipe_filled(struct varve_pipe *p, size_t n)
{
	struct slot *s = &p->slots[p->filling % p->n_slots];

	s->raw_len += n;
	if (s->raw_len == VARVE_FRAME_BYTES)
		submit(p);
}

int varve_pipe_flush(struct varve_pipe *p)
{
	if (p->error < 0)
		return p->error;
	if (p->filling - p->out < p->n_slots && p->slots[p->filling % p->n_slots].raw_len > 0)
		submit(p);
	while (p->out < p->filling) {
		int r = emit_next(p);

		if (r < 0)
			return r;
	}
	return 0;
}

static void init_locks(struct varve_pipe *p)
{
	pthread_condattr_t attr;

	(void)pthread_mutex_init(&p->lock, NULL);
	(void)pthread_cond_init(&p->work, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&p->done, &attr);
	(void)pthread_condattr_destroy(&attr);
}

int varve_pipe_new(int level, unsigned threads, const volatile int *cancel, varve_pipe_emit *emit,
		   void *emit_ctx, struct varve_pipe **ret)
{
	struct varve_pipe *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	if (threads == 0)
		threads =
			(unsigned)(sysconf(_SC_NPROCESSORS_ONLN) > 0 ? sysconf(_SC_NPROCESSORS_ONLN)
								     : 1);
	if (threads > THREADS_MAX)
		threads = THREADS_MAX;
	*p = (struct varve_pipe){.level = level,
				 .cancel = cancel,
				 .emit = emit,
				 .emit_ctx = emit_ctx,
				 .max_threads = threads,
				 .n_slots = threads + 2};
	p->slots = calloc(p->n_slots, sizeof(*p->slots));
	p->threads = calloc(threads, sizeof(*p->threads));
	init_locks(p);
	if (!p->slots || !p->threads) {
		varve_pipe_free(p);
		return -ENOMEM;
	}
	*ret = p;
	return 0;
}

static void stop_threads(struct varve_pipe *p)
{
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->work);
	/* On a busy machine an idle thread could take minutes to end its last frame. */
	lift(p);
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < p->n_threads; i++)
		(void)pthread_join(p->threads[i], NULL);
}

void varve_pipe_free(struct varve_pipe *p)
{
	if (!p)
		return;
	stop_threads(p);
	varve_frame_cctx_free(p->cctx);
	for (unsigned i = 0; p->slots && i < p->n_slots; i++) {
		free(p->slots[i].raw);
		free(p->slots[i].comp);
	}
	(void)pthread_cond_destroy(&p->done);
	(void)pthread_cond_destroy(&p->work);
	(void)pthread_mutex_destroy(&p->lock);
	free(p->slots);
	free(p->threads);
	free(p);
}
