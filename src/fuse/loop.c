#include "fuse/loop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "base/sync.h"

/* So many ticks without all threads being busy, and the watch goes back to sleep. */
#define CALM_TICKS 30
#define KICK_MS 10

enum slot_state { SLOT_NONE, SLOT_RUNNING, SLOT_ENDED };

struct slot {
	struct varve_loop *loop;
	pthread_t id;
	enum slot_state state;
};

struct varve_loop {
	/* -- immutable -- */
	struct fuse_session *se;
	unsigned base;

	/* -- atomic: what each request touches -- */
	_Alignas(64) atomic_uint busy;    /* threads with a request in hand */
	atomic_uint begun;                /* requests taken, wrapping */
	_Alignas(64) atomic_uint threads; /* changed under the lock */
	atomic_bool watching;             /* changed under the lock */

	pthread_mutex_t lock; /* a leaf: all below */
	pthread_cond_t changed;
	struct slot slots[VARVE_LOOP_MAX];
	unsigned running;
	bool stop;
	bool full_said;
	int error;
};

static struct timespec ms_from_now(unsigned ms)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += (long)ms * 1000000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

/* Under the lock. */
static void set_stop(struct varve_loop *loop, int error)
{
	if (!loop->stop)
		loop->error = error;
	loop->stop = true;
	fuse_session_exit(loop->se);
	(void)pthread_cond_broadcast(&loop->changed);
}

/* -- the threads -- */

/* With every thread at work, nobody would see the next request if they all got stuck: from now on
 * that is watched. */
static void watch(struct varve_loop *loop)
{
	guard(&loop->lock);
	atomic_store(&loop->watching, true);
	(void)pthread_cond_broadcast(&loop->changed);
}

/* Whether this thread, which has nothing in hand, is one more than it takes. Under the lock. */
static bool is_spare(const struct varve_loop *loop)
{
	return loop->running - atomic_load(&loop->busy) > loop->base;
}

static void serve(struct varve_loop *loop)
{
	struct fuse_buf buf = {0};
	int r = 0;

	while (!fuse_session_exited(loop->se)) {
		r = fuse_session_receive_buf(loop->se, &buf);
		if (r == -EINTR || r == -EAGAIN)
			continue;
		if (r <= 0)
			break;
		(void)atomic_fetch_add_explicit(&loop->begun, 1, memory_order_relaxed);
		if (atomic_fetch_add(&loop->busy, 1) + 1 >= atomic_load(&loop->threads) &&
		    !atomic_load_explicit(&loop->watching, memory_order_relaxed))
			watch(loop);
		fuse_session_process_buf(loop->se, &buf);
		(void)atomic_fetch_sub(&loop->busy, 1);
		if (atomic_load(&loop->threads) > loop->base) {
			guard(&loop->lock);
			if (is_spare(loop)) {
				/* Here, so that no two take each other for the one that stays. */
				atomic_store(&loop->threads, --loop->running);
				free(buf.mem);
				return;
			}
		}
	}
	free(buf.mem);
	guard(&loop->lock);
	set_stop(loop, r < 0 && r != -EINTR && r != -EAGAIN ? r : 0);
	atomic_store(&loop->threads, --loop->running);
}

static void *loop_thread(void *arg)
{
	struct slot *slot = arg;

	(void)pthread_setname_np(pthread_self(), "varve-loop");
	serve(slot->loop);
	guard(&slot->loop->lock);
	slot->state = SLOT_ENDED;
	(void)pthread_cond_broadcast(&slot->loop->changed);
	return NULL;
}

/* One thread more; under the lock. -EAGAIN: none can be had. */
static int add_thread(struct varve_loop *loop)
{
	for (unsigned i = 0; i < VARVE_LOOP_MAX; i++) {
		struct slot *slot = &loop->slots[i];

		if (slot->state == SLOT_RUNNING)
			continue;
		/* It waits for nothing any more but this lock's release. */
		if (slot->state == SLOT_ENDED)
			(void)pthread_join(slot->id, NULL);
		slot->state = SLOT_NONE;
		slot->loop = loop;
		if (pthread_create(&slot->id, NULL, loop_thread, slot) != 0)
			return -EAGAIN;
		slot->state = SLOT_RUNNING;
		atomic_store(&loop->threads, ++loop->running);
		return 0;
	}
	return -EAGAIN;
}

/* -- the watch -- */

/* One look at whether all are stuck; under the lock. Whether all threads were busy. */
static bool look(struct varve_loop *loop, unsigned *last_begun)
{
	unsigned begun = atomic_load(&loop->begun);
	bool all = atomic_load(&loop->busy) >= loop->running;

	if (all && begun == *last_begun && add_thread(loop) < 0 && !loop->full_said) {
		loop->full_said = true;
		varve_warning("%u requests have been waiting at once, probably for the disk: "
			      "others wait behind them",
			      loop->running);
	}
	*last_begun = begun;
	return all;
}

/* Waits for the end; meanwhile watches, when there is something to watch. Under the lock. */
static void watch_until_stop(struct varve_loop *loop)
{
	unsigned begun = 0;
	unsigned calm = 0;

	while (!loop->stop) {
		struct timespec until;

		if (!atomic_load(&loop->watching)) {
			calm = 0;
			begun = atomic_load(&loop->begun) - 1;
			(void)pthread_cond_wait(&loop->changed, &loop->lock);
			continue;
		}
		until = ms_from_now(VARVE_LOOP_STUCK_MS);
		while (!loop->stop &&
		       pthread_cond_timedwait(&loop->changed, &loop->lock, &until) != ETIMEDOUT)
			;
		if (loop->stop)
			break;
		calm = look(loop, &begun) ? 0 : calm + 1;
		if (calm >= CALM_TICKS)
			atomic_store(&loop->watching, false);
	}
}

bool varve_loop_spare(const struct varve_loop *loop)
{
	return atomic_load(&loop->busy) < atomic_load(&loop->threads);
}

/* -- the whole -- */

int varve_loop_new(struct fuse_session *se, unsigned base, struct varve_loop **ret)
{
	struct varve_loop *loop = aligned_alloc(64, sizeof(*loop));
	pthread_condattr_t monotonic;

	if (!loop)
		return -ENOMEM;
	*loop = (struct varve_loop){.se = se, .base = base};
	(void)pthread_mutex_init(&loop->lock, NULL);
	(void)pthread_condattr_init(&monotonic);
	(void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&loop->changed, &monotonic);
	(void)pthread_condattr_destroy(&monotonic);
	*ret = loop;
	return 0;
}

/* Interrupts the threads' reads until all have ended; under the lock. A signal that comes just
 * before the read is lost, so it is sent again. */
static void end_threads(struct varve_loop *loop)
{
	while (loop->running) {
		struct timespec until = ms_from_now(KICK_MS);

		for (unsigned i = 0; i < VARVE_LOOP_MAX; i++)
			if (loop->slots[i].state == SLOT_RUNNING)
				(void)pthread_kill(loop->slots[i].id, SIGUSR1);
		(void)pthread_cond_timedwait(&loop->changed, &loop->lock, &until);
	}
}

int varve_loop_run(struct varve_loop *loop)
{
	sigset_t mask, before;
	int error;

	/* The threads inherit it. */
	(void)sigfillset(&mask);
	(void)sigdelset(&mask, SIGUSR1);
	(void)pthread_sigmask(SIG_SETMASK, &mask, &before);
	(void)pthread_mutex_lock(&loop->lock);
	for (unsigned i = 0; i < loop->base && !loop->stop; i++)
		if (add_thread(loop) < 0 && loop->running == 0)
			set_stop(loop, -EAGAIN);
	watch_until_stop(loop);
	end_threads(loop);
	error = loop->error;
	(void)pthread_mutex_unlock(&loop->lock);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	for (unsigned i = 0; i < VARVE_LOOP_MAX; i++)
		if (loop->slots[i].state != SLOT_NONE)
			(void)pthread_join(loop->slots[i].id, NULL);
	return error;
}

void varve_loop_stop(struct varve_loop *loop)
{
	guard(&loop->lock);
	set_stop(loop, 0);
}

void varve_loop_free(struct varve_loop *loop)
{
	if (!loop)
		return;
	(void)pthread_cond_destroy(&loop->changed);
	(void)pthread_mutex_destroy(&loop->lock);
	free(loop);
}
