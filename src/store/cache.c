#include "store/cache.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "store/cache_impl.h"

#define LINGER_MS 10000

/* -- the pool -- */

static bool ahead_fits(const struct varve_cache *c, const struct varve_frame_info *info)
{
	return c->ahead_bytes + info->raw_size <= c->max / 2;
}

/* `gone` for one whose last use has ended; the lock is given up meanwhile. */
static void end_source(struct varve_cache *c, struct varve_frame_source *src)
{
	(void)pthread_mutex_unlock(&c->lock);
	varve_frames_free(src->victims);
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
	if (src->slots[q->number] || !ahead_fits(c, &info) ||
	    !varve_frames_make_room(c, &info, &victims)) {
		varve_frames_free(victims);
		return;
	}
	src->in_work++;
	c->stats.ahead++;
	(void)varve_frames_load(c, src, q->number, &info, true, steal_ptr(&victims), &f);
	src->in_work--;
	if (f)
		varve_frames_put(c, f, &victims);
	if (src->detached && f && f->state == FRAME_READY && src->slots[q->number])
		varve_frames_evict(c, f, &victims);
	varve_frames_free(victims);
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
	varve_thread_in_background();
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
	for (uint32_t k = first; k <= last && c->n_queue < CACHE_QUEUE_MAX; k++) {
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
	for (uint32_t k = 0; k < n; k++) {
		struct varve_frame_info f;

		varve_index_frame(src->index, k, &f);
		if (f.raw_size > src->largest)
			src->largest = f.raw_size;
	}
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
			varve_frames_evict(c, src->slots[k], &victims);
	varve_frames_wake(c);
	if (src->in_work == 0) {
		if (later && call_thread(c)) {
			src->victims = steal_ptr(&victims);
			src->next = c->ending;
			c->ending = src;
		} else {
			end_source(c, src);
		}
	}
	(void)pthread_mutex_unlock(&c->lock);
	varve_frames_free(victims);
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
	if (c->threads > CACHE_THREADS_MAX)
		c->threads = CACHE_THREADS_MAX;
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
	pthread_t ids[CACHE_THREADS_MAX];
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
		varve_frames_drop_work(c);
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
