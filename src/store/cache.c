#include "store/cache.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/sync.h"
#include "base/sys.h"
#include "format/frame.h"
#include "store/cache_private.h"

#define QUEUE_MAX 64
#define THREADS_MAX 16
#define LINGER_MS 10000
#define WORK_OVERHEAD (128 * 1024) /* about what a decompression context takes */

enum frame_state { FRAME_LOADING, FRAME_READY, FRAME_FAILED };

struct varve_frame {
	/* -- immutable once ready -- */
	struct varve_frame_source *src;
	uint32_t number;
	uint32_t size;
	unsigned char *raw;

	/* -- protected by the cache's lock -- */
	enum frame_state state;
	int error;     /* when failed */
	bool ahead;    /* came by read-ahead and nobody has asked for it yet */
	uint32_t refs; /* readers, and who loads it */
	struct varve_frame *older, *newer; /* in the list of unused frames; refs is 0 */
	pthread_cond_t loaded;
};

/* What decompressing takes besides the frame; used by one thread at a time, then again. */
struct work {
	struct work *next;
	struct varve_frame_dctx *dctx;
	void *comp;
	size_t size; /* of comp, and charged to the cache */
};

struct request {
	struct varve_frame_source *src;
	uint32_t number;
};

enum thread_state { THREAD_NONE, THREAD_RUNNING, THREAD_ENDED };

struct varve_cache {
	/* -- immutable after new -- */
	size_t max;
	unsigned threads;
	unsigned linger_ms;

	pthread_mutex_t lock; /* "cache": all below */
	struct varve_cache_stats stats; /* bytes: frames, and work buffers, idle or not */
	struct varve_frame *oldest, *newest; /* ready and unused, in the order of their last use */
	struct work *idle_work;
	unsigned n_idle_work;
	uint32_t busy;	    /* frames in use or in work */
	uint32_t waiting;   /* for room */
	size_t ahead_bytes; /* frames that read-ahead brought or brings and nobody asked for yet */
	pthread_cond_t room;

	struct request queue[QUEUE_MAX];
	unsigned n_queue;
	struct varve_frame_source *ending; /* to be told that they are gone */
	pthread_cond_t work;
	unsigned idle_threads, running;
	bool stop;
	struct {
		pthread_t id;
		enum thread_state state;
	} pool[THREADS_MAX];
};

/* -- room -- */

static size_t frame_cost(uint32_t raw_size)
{
	return raw_size + sizeof(struct varve_frame);
}

static void unlist(struct varve_cache *c, struct varve_frame *f)
{
	*(f->older ? &f->older->newer : &c->oldest) = f->newer;
	*(f->newer ? &f->newer->older : &c->newest) = f->older;
	f->older = f->newer = NULL;
}

static void enlist(struct varve_cache *c, struct varve_frame *f)
{
	f->older = c->newest;
	f->newer = NULL;
	*(c->newest ? &c->newest->newer : &c->oldest) = f;
	c->newest = f;
}

static void not_ahead_any_more(struct varve_cache *c, struct varve_frame *f)
{
	if (f->ahead)
		c->ahead_bytes -= f->size;
	f->ahead = false;
}

static void charge(struct varve_cache *c, size_t bytes)
{
	c->stats.bytes += bytes;
	if (c->stats.bytes > c->stats.peak)
		c->stats.peak = c->stats.bytes;
}

/* Takes an unused frame out of the cache and puts it on the victims' list (linked by `older`),
 * whose owner frees them without the lock. */
static void evict(struct varve_cache *c, struct varve_frame *f, struct varve_frame **victims)
{
	unlist(c, f);
	not_ahead_any_more(c, f);
	f->src->slots[f->number] = NULL;
	c->stats.bytes -= frame_cost(f->size);
	f->older = *victims;
	*victims = f;
}

static void free_frame(struct varve_frame *f)
{
	(void)pthread_cond_destroy(&f->loaded);
	free(f->raw);
	free(f);
}

static void free_victims(struct varve_frame *f)
{
	while (f) {
		struct varve_frame *next = f->older;

		free_frame(f);
		f = next;
	}
}

static void free_work(struct work *w)
{
	if (!w)
		return;
	varve_frame_dctx_free(w->dctx);
	free(w->comp);
	free(w);
}

static struct work *pop_work(struct varve_cache *c)
{
	struct work *w = c->idle_work;

	if (w) {
		c->idle_work = w->next;
		c->n_idle_work--;
	}
	return w;
}

static void drop_idle_work(struct varve_cache *c)
{
	struct work *w = pop_work(c);

	c->stats.bytes -= w->size + WORK_OVERHEAD;
	free_work(w);
}

/* The compressed size; 0 when it is more than any encoder makes of that many bytes: a number that
 * means nothing gets no memory. */
static size_t comp_room(const struct varve_frame_info *info)
{
	return info->comp_size <= varve_frame_bound(info->raw_size) ? info->comp_size : 0;
}

/* What loading it adds to the bytes, given the work buffer that would be taken. */
static size_t load_cost(const struct varve_cache *c, const struct varve_frame_info *info)
{
	const struct work *w = c->idle_work;
	size_t cost = frame_cost(info->raw_size), room = comp_room(info);

	if (!w)
		return cost + room + WORK_OVERHEAD;
	return cost + (room > w->size ? room - w->size : 0);
}

/* Makes room for loading a frame. False when there is none until somebody gives a frame back. */
static bool make_room(struct varve_cache *c, const struct varve_frame_info *info,
		      struct varve_frame **victims)
{
	while (c->stats.bytes + load_cost(c, info) > c->max) {
		if (c->oldest)
			evict(c, c->oldest, victims);
		else if (c->idle_work)
			drop_idle_work(c);
		else
			return c->busy == 0;
	}
	return true;
}

static void wake_for_room(struct varve_cache *c)
{
	if (c->waiting > 0)
		(void)pthread_cond_broadcast(&c->room);
}

/* -- loading -- */

/* A frame in work, with one reference, room for it charged; NULL: no memory. */
static struct varve_frame *begin_load(struct varve_cache *c, struct varve_frame_source *src,
				      uint32_t k, const struct varve_frame_info *info, bool ahead,
				      struct work **ret_work)
{
	struct varve_frame *f = calloc(1, sizeof(*f));
	struct work *w = c->idle_work ? c->idle_work : calloc(1, sizeof(*w));

	if (!f || !w) {
		free(f);
		if (w != c->idle_work)
			free(w);
		return NULL;
	}
	*f = (struct varve_frame){
		.src = src, .number = k, .size = info->raw_size, .refs = 1, .ahead = ahead};
	(void)pthread_cond_init(&f->loaded, NULL);
	charge(c, load_cost(c, info));
	if (w == c->idle_work)
		(void)pop_work(c);
	c->busy++;
	if (ahead)
		c->ahead_bytes += f->size;
	src->slots[k] = f;
	*ret_work = w;
	return f;
}

/* Reads and decompresses; no lock. The work's buffer has grown to what was charged, whatever
 * comes out. */
static int load(const struct varve_frame_source *src, const struct varve_frame_info *info,
		struct work *w, unsigned char *raw)
{
	size_t room = comp_room(info);
	int r;

	if (room == 0)
		return -EBADMSG;
	if (!w->dctx)
		w->dctx = varve_frame_dctx_new();
	if (w->size < room) {
		free(w->comp);
		w->size = room;
		w->comp = NULL;
	}
	if (!w->comp)
		w->comp = malloc(w->size);
	if (!w->dctx || !w->comp || !raw)
		return -ENOMEM;
	r = varve_pread_full(src->fd, w->comp, info->comp_size, info->comp_offset);
	return r < 0 ? r : varve_frame_decode(w->dctx, info, w->comp, raw);
}

static void end_work(struct varve_cache *c, struct work *w)
{
	w->next = c->idle_work;
	c->idle_work = w;
	/* A buffer that could not be had is no buffer to keep. */
	if (++c->n_idle_work > c->threads || !w->comp || !w->dctx)
		drop_idle_work(c);
}

/* True when it is the first failure of that frame, not for want of memory. */
static bool note_failure(struct varve_cache *c, struct varve_frame_source *src, uint32_t k, int error)
{
	unsigned char bit = (unsigned char)(1U << k % 8);

	if (error == -ENOMEM || (src->failed_bits[k / 8] & bit) != 0)
		return false;
	src->failed_bits[k / 8] |= bit;
	src->faults++;
	c->stats.bad++;
	return true;
}

/* The last reference to a frame goes. */
static void unuse(struct varve_cache *c, struct varve_frame *f, struct varve_frame **victims)
{
	c->busy--;
	if (f->state == FRAME_FAILED) {
		f->older = *victims;
		*victims = f;
	} else {
		enlist(c, f);
		/* Only after a frame that is larger than the whole bound. */
		while (c->stats.bytes > c->max && c->oldest)
			evict(c, c->oldest, victims);
	}
	wake_for_room(c);
}

/* Of the frames that made room, one of the same size lends its buffer. */
static unsigned char *raw_buffer(struct varve_frame *victims, uint32_t size)
{
	for (struct varve_frame *v = victims; v; v = v->older)
		if (v->raw && v->size == size)
			return steal_ptr(&v->raw);
	return malloc(size);
}

/* Loads frame k, for which there is room, and gives it to all who wait for it. Called and left with
 * the lock held, which is given up meanwhile; consumes victims. The caller gets a reference. */
static int load_locked(struct varve_cache *c, struct varve_frame_source *src, uint32_t k,
		       const struct varve_frame_info *info, bool ahead, struct varve_frame *victims,
		       struct varve_frame **ret)
{
	struct work *w = NULL;
	struct varve_frame *f = begin_load(c, src, k, info, ahead, &w);
	bool first = false;
	int r = f ? 0 : -ENOMEM;

	(void)pthread_mutex_unlock(&c->lock);
	if (f) {
		f->raw = raw_buffer(victims, f->size);
		r = load(src, info, w, f->raw);
	}
	free_victims(victims);
	(void)pthread_mutex_lock(&c->lock);
	if (!f)
		return r;
	end_work(c, w);
	f->state = r < 0 ? FRAME_FAILED : FRAME_READY;
	f->error = r;
	if (r < 0) {
		not_ahead_any_more(c, f);
		src->slots[k] = NULL;
		c->stats.bytes -= frame_cost(f->size);
		first = note_failure(c, src, k, r);
	}
	(void)pthread_cond_broadcast(&f->loaded);
	wake_for_room(c);
	if (first) {
		(void)pthread_mutex_unlock(&c->lock);
		src->failed(src, k, r);
		(void)pthread_mutex_lock(&c->lock);
	}
	*ret = f;
	return r;
}

static void put_locked(struct varve_cache *c, struct varve_frame *f, struct varve_frame **victims)
{
	if (--f->refs == 0)
		unuse(c, f, victims);
}

/* A reference to a frame that is there or in work by another, once it is ready. */
static int share_locked(struct varve_cache *c, struct varve_frame *f)
{
	if (f->refs++ == 0) {
		unlist(c, f);
		c->busy++;
	}
	not_ahead_any_more(c, f);
	while (f->state == FRAME_LOADING)
		(void)pthread_cond_wait(&f->loaded, &c->lock);
	if (f->state == FRAME_READY)
		c->stats.hits++;
	return f->error;
}

int varve_cache_get(struct varve_frame_source *src, uint32_t k, struct varve_frame **ret)
{
	struct varve_cache *c = src->cache;
	struct varve_frame *f = NULL, *victims = NULL;
	struct varve_frame_info info;
	int r;

	varve_index_frame(src->index, k, &info);
	(void)pthread_mutex_lock(&c->lock);
	while (!src->slots[k] && !make_room(c, &info, &victims)) {
		free_victims(steal_ptr(&victims));
		c->waiting++;
		(void)pthread_cond_wait(&c->room, &c->lock);
		c->waiting--;
	}
	f = src->slots[k];
	if (f) {
		r = share_locked(c, f);
	} else {
		c->stats.misses++;
		r = load_locked(c, src, k, &info, false, steal_ptr(&victims), &f);
	}
	if (r < 0 && f)
		put_locked(c, f, &victims);
	(void)pthread_mutex_unlock(&c->lock);
	free_victims(victims);
	if (r < 0)
		return r;
	*ret = f;
	return 0;
}

void varve_cache_put(struct varve_frame *f)
{
	struct varve_cache *c = f->src->cache;
	struct varve_frame *victims = NULL;

	{
		guard(&c->lock);
		put_locked(c, f, &victims);
	}
	free_victims(victims);
}

const unsigned char *varve_frame_bytes(const struct varve_frame *f)
{
	return f->raw;
}

/* -- the pool -- */

static bool ahead_fits(const struct varve_cache *c, const struct varve_frame_info *info)
{
	return c->ahead_bytes + info->raw_size <= c->max / 2;
}

/* `gone` for one whose last use has ended; the lock is given up meanwhile. */
static void end_source(struct varve_cache *c, struct varve_frame_source *src)
{
	(void)pthread_mutex_unlock(&c->lock);
	free(src->slots);
	free(src->failed_bits);
	src->gone(src);
	(void)pthread_mutex_lock(&c->lock);
}

/* One frame ahead, when there is room without waiting. The lock is given up meanwhile. */
static void load_ahead(struct varve_cache *c, const struct request *q)
{
	struct varve_frame_source *src = q->src;
	struct varve_frame *f = NULL, *victims = NULL;
	struct varve_frame_info info;

	varve_index_frame(src->index, q->number, &info);
	if (src->slots[q->number] || !ahead_fits(c, &info) || !make_room(c, &info, &victims)) {
		free_victims(victims);
		return;
	}
	src->in_work++;
	c->stats.ahead++;
	(void)load_locked(c, src, q->number, &info, true, steal_ptr(&victims), &f);
	src->in_work--;
	if (f)
		put_locked(c, f, &victims);
	if (src->detached && f && f->state == FRAME_READY && src->slots[q->number])
		evict(c, f, &victims);
	free_victims(victims);
	if (src->detached && src->in_work == 0)
		end_source(c, src);
}

/* One piece of work; false when there is none. */
static bool serve(struct varve_cache *c)
{
	struct varve_frame_source *src = c->ending;

	if (src) {
		c->ending = src->next;
		end_source(c, src);
		return true;
	}
	if (c->n_queue > 0) {
		struct request q = c->queue[0];

		memmove(c->queue, c->queue + 1, --c->n_queue * sizeof(q));
		load_ahead(c, &q);
		return true;
	}
	return false;
}

static struct timespec linger_until(const struct varve_cache *c)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += c->linger_ms / 1000;
	t.tv_nsec += c->linger_ms % 1000 * 1000000L;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

static void *pool_thread(void *arg)
{
	struct varve_cache *c = arg;
	bool late = false;

	(void)pthread_setname_np(pthread_self(), "varve-frames");
	(void)pthread_mutex_lock(&c->lock);
	while (!c->stop) {
		struct timespec until;

		if (serve(c)) {
			late = false;
			continue;
		}
		if (late)
			break;
		until = linger_until(c);
		c->idle_threads++;
		late = pthread_cond_timedwait(&c->work, &c->lock, &until) == ETIMEDOUT;
		c->idle_threads--;
	}
	for (unsigned i = 0; i < c->threads; i++)
		if (c->pool[i].state == THREAD_RUNNING &&
		    pthread_equal(c->pool[i].id, pthread_self()))
			c->pool[i].state = THREAD_ENDED;
	c->running--;
	(void)pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* Signals are for the threads that wait for them. */
static int create_thread(struct varve_cache *c, pthread_t *ret)
{
	sigset_t all, before;
	int r;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(ret, NULL, pool_thread, c);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -r;
}

/* Sees to it that a thread takes up new work: false when there is none and none can be had. */
static bool call_thread(struct varve_cache *c)
{
	if (c->idle_threads > 0)
		(void)pthread_cond_signal(&c->work);
	if (c->idle_threads > 0 && c->idle_threads >= c->n_queue)
		return true;
	for (unsigned i = 0; i < c->threads && c->running < c->threads; i++) {
		if (c->pool[i].state == THREAD_RUNNING)
			continue;
		/* It has given up the lock for good: there is nothing to wait for. */
		if (c->pool[i].state == THREAD_ENDED)
			(void)pthread_join(c->pool[i].id, NULL);
		c->pool[i].state = THREAD_NONE;
		if (create_thread(c, &c->pool[i].id) < 0)
			break;
		c->pool[i].state = THREAD_RUNNING;
		c->running++;
		break;
	}
	return c->running > 0;
}

static bool is_queued(const struct varve_cache *c, const struct varve_frame_source *src, uint32_t k)
{
	for (unsigned i = 0; i < c->n_queue; i++)
		if (c->queue[i].src == src && c->queue[i].number == k)
			return true;
	return false;
}

void varve_cache_ahead(struct varve_frame_source *src, uint32_t first, uint32_t last)
{
	struct varve_cache *c = src->cache;

	guard(&c->lock);
	for (uint32_t k = first; k <= last && c->n_queue < QUEUE_MAX; k++) {
		struct varve_frame_info info;

		if (src->slots[k] || is_queued(c, src, k))
			continue;
		varve_index_frame(src->index, k, &info);
		if (!ahead_fits(c, &info))
			break;
		c->queue[c->n_queue++] = (struct request){.src = src, .number = k};
		if (!call_thread(c)) {
			c->n_queue--;
			break;
		}
	}
}

/* -- sources -- */

int varve_cache_attach(struct varve_frame_source *src)
{
	uint32_t n = varve_index_frames(src->index);

	src->slots = calloc(n, sizeof(struct varve_frame *));
	src->failed_bits = calloc(n / 8 + 1, 1);
	if (src->slots && src->failed_bits)
		return 0;
	free(src->slots);
	free(src->failed_bits);
	return -ENOMEM;
}

static void forget_requests(struct varve_cache *c, const struct varve_frame_source *src)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < c->n_queue; i++)
		if (c->queue[i].src != src)
			c->queue[kept++] = c->queue[i];
	c->n_queue = kept;
}

void varve_cache_detach(struct varve_frame_source *src, bool later)
{
	struct varve_cache *c = src->cache;
	uint32_t n = varve_index_frames(src->index);
	struct varve_frame *victims = NULL;

	(void)pthread_mutex_lock(&c->lock);
	src->detached = true;
	forget_requests(c, src);
	for (uint32_t k = 0; k < n; k++)
		if (src->slots[k] && src->slots[k]->refs == 0)
			evict(c, src->slots[k], &victims);
	wake_for_room(c);
	if (src->in_work == 0) {
		if (later && call_thread(c)) {
			src->next = c->ending;
			c->ending = src;
		} else {
			end_source(c, src);
		}
	}
	(void)pthread_mutex_unlock(&c->lock);
	free_victims(victims);
}

uint64_t varve_cache_source_faults(struct varve_frame_source *src)
{
	guard(&src->cache->lock);
	return src->faults;
}

/* -- the whole -- */

int varve_cache_new(size_t max_bytes, unsigned threads, struct varve_cache **ret)
{
	struct varve_cache *c = calloc(1, sizeof(*c));
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_condattr_t monotonic;

	if (!c)
		return -ENOMEM;
	c->max = max_bytes;
	c->threads = threads > 0 ? threads : cores > 0 ? (unsigned)cores : 1;
	if (c->threads > THREADS_MAX)
		c->threads = THREADS_MAX;
	c->linger_ms = LINGER_MS;
	(void)pthread_mutex_init(&c->lock, NULL);
	(void)pthread_cond_init(&c->room, NULL);
	(void)pthread_condattr_init(&monotonic);
	(void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&c->work, &monotonic);
	(void)pthread_condattr_destroy(&monotonic);
	*ret = c;
	return 0;
}

void varve_cache_free(struct varve_cache *c)
{
	pthread_t ids[THREADS_MAX];
	unsigned n = 0;

	if (!c)
		return;
	(void)pthread_mutex_lock(&c->lock);
	c->stop = true;
	(void)pthread_cond_broadcast(&c->work);
	for (unsigned i = 0; i < c->threads; i++)
		if (c->pool[i].state != THREAD_NONE)
			ids[n++] = c->pool[i].id;
	(void)pthread_mutex_unlock(&c->lock);
	for (unsigned i = 0; i < n; i++)
		(void)pthread_join(ids[i], NULL);
	(void)pthread_mutex_lock(&c->lock);
	while (serve(c))
		;
	while (c->idle_work)
		drop_idle_work(c);
	(void)pthread_mutex_unlock(&c->lock);
	(void)pthread_cond_destroy(&c->work);
	(void)pthread_cond_destroy(&c->room);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
}

void varve_cache_stats(struct varve_cache *c, struct varve_cache_stats *ret)
{
	guard(&c->lock);
	*ret = c->stats;
}

unsigned varve_cache_threads(const struct varve_cache *c)
{
	return c->threads;
}

unsigned varve_cache_running(struct varve_cache *c)
{
	guard(&c->lock);
	return c->running;
}

void varve_cache_set_linger(struct varve_cache *c, unsigned ms)
{
	c->linger_ms = ms;
}
