#include "fuse/workers.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "base/sync.h"
#include "base/thread.h"

#define THREADS_MAX 32

enum slot_state { SLOT_NONE, SLOT_RUNNING, SLOT_ENDED };

struct class
{
	/* -- immutable after new -- */
	struct varve_workers *all;
	enum varve_work_class which;
	unsigned bound;

	/* -- protected by the lock -- */
	pthread_cond_t wake;
	struct varve_work *first, **last;
	unsigned queued, idle, running;
	struct slot {
		struct class *class;
		pthread_t id;
		enum slot_state state;
		bool joined; /* or about to be, by stop */
	} slots[THREADS_MAX];
};

struct varve_workers {
	unsigned linger_ms; /* immutable */

	pthread_mutex_t lock; /* a leaf: all else */
	bool stop;
	struct class classes[VARVE_WORK_CLASSES];
};

static struct timespec ms_from_now(unsigned ms)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += ms % 1000 * 1000000L;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

/* The oldest in the queue; NULL: it is empty. Under the lock. */
static struct varve_work *take(struct class *c)
{
	struct varve_work *work = c->first;

	if (!work)
		return NULL;
	c->first = work->next;
	if (!c->first)
		c->last = &c->first;
	c->queued--;
	return work;
}

/* Waits for work; NULL: none came, or the end did. Under the lock. */
static struct varve_work *await(struct class *c)
{
	struct timespec until = ms_from_now(c->all->linger_ms);
	bool late = false;

	while (!c->all->stop) {
		struct varve_work *work = take(c);

		if (work || late)
			return work;
		c->idle++;
		late = pthread_cond_timedwait(&c->wake, &c->all->lock, &until) == ETIMEDOUT;
		c->idle--;
	}
	return NULL;
}

static void *work_thread(void *arg)
{
	static const char *const names[VARVE_WORK_CLASSES] = {
		[VARVE_WORK_SYNC] = "varve-sync",
		[VARVE_WORK_READ] = "varve-read",
		[VARVE_WORK_LOOK] = "varve-look",
		[VARVE_WORK_CHANGE] = "varve-change",
	};
	struct slot *slot = arg;
	struct class *c = slot->class;
	struct varve_work *work;

	(void)pthread_setname_np(pthread_self(), names[c->which]);
	if (c->which == VARVE_WORK_READ)
		varve_thread_in_background();
	guard(&c->all->lock);
	while ((work = await(c)) != NULL) {
		(void)pthread_mutex_unlock(&c->all->lock);
		work->run(work);
		(void)pthread_mutex_lock(&c->all->lock);
	}
	c->running--;
	slot->state = SLOT_ENDED;
	return NULL;
}

/* One thread more, if one may be; under the lock. Signals are for the threads that wait for them.
 */
static void add_thread(struct class *c)
{
	sigset_t all, before;

	if (c->running == c->bound)
		return;
	for (unsigned i = 0; i < c->bound; i++) {
		struct slot *slot = &c->slots[i];

		if (slot->state == SLOT_RUNNING)
			continue;
		/* It has given up the lock for good: there is nothing to wait for. */
		if (slot->state == SLOT_ENDED)
			(void)pthread_join(slot->id, NULL);
		slot->state = SLOT_NONE;
		slot->class = c;
		(void)sigfillset(&all);
		(void)pthread_sigmask(SIG_SETMASK, &all, &before);
		if (pthread_create(&slot->id, NULL, work_thread, slot) == 0) {
			slot->state = SLOT_RUNNING;
			c->running++;
		}
		(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
		return;
	}
}

bool varve_workers_submit(struct varve_workers *w, enum varve_work_class class_,
			  struct varve_work *work)
{
	struct class *c = &w->classes[class_];

	guard(&w->lock);
	if (w->stop)
		return false;
	/* Those that were woken and have not run yet still count as idle. */
	if (c->idle <= c->queued)
		add_thread(c);
	if (c->running == 0)
		return false;
	work->next = NULL;
	*c->last = work;
	c->last = &work->next;
	c->queued++;
	(void)pthread_cond_signal(&c->wake);
	return true;
}

unsigned varve_workers_running(struct varve_workers *w, enum varve_work_class class_)
{
	guard(&w->lock);
	return w->classes[class_].running;
}

int varve_workers_new(const unsigned bounds[VARVE_WORK_CLASSES], struct varve_workers **ret)
{
	struct varve_workers *w = calloc(1, sizeof(*w));
	pthread_condattr_t monotonic;

	if (!w)
		return -ENOMEM;
	w->linger_ms = VARVE_WORKERS_LINGER_MS;
	(void)pthread_mutex_init(&w->lock, NULL);
	(void)pthread_condattr_init(&monotonic);
	(void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	for (unsigned i = 0; i < VARVE_WORK_CLASSES; i++) {
		struct class *c = &w->classes[i];

		c->all = w;
		c->which = (enum varve_work_class)i;
		c->bound = bounds[i] < THREADS_MAX ? bounds[i] : THREADS_MAX;
		c->last = &c->first;
		(void)pthread_cond_init(&c->wake, &monotonic);
	}
	(void)pthread_condattr_destroy(&monotonic);
	*ret = w;
	return 0;
}

void varve_workers_set_linger(struct varve_workers *w, unsigned ms)
{
	w->linger_ms = ms;
}

void varve_workers_stop(struct varve_workers *w)
{
	pthread_t ids[VARVE_WORK_CLASSES * THREADS_MAX];
	struct varve_work *left = NULL, **end = &left;
	struct varve_work *next;
	unsigned n = 0;

	{
		guard(&w->lock);
		w->stop = true;
		for (unsigned i = 0; i < VARVE_WORK_CLASSES; i++) {
			struct class *c = &w->classes[i];

			*end = c->first;
			if (c->first)
				end = c->last;
			c->first = NULL;
			c->last = &c->first;
			c->queued = 0;
			for (unsigned k = 0; k < c->bound; k++) {
				if (!c->slots[k].joined && c->slots[k].state != SLOT_NONE)
					ids[n++] = c->slots[k].id;
				c->slots[k].joined = true;
			}
			(void)pthread_cond_broadcast(&c->wake);
		}
	}
	for (; left; left = next) {
		next = left->next;
		left->drop(left);
	}
	while (n > 0)
		(void)pthread_join(ids[--n], NULL);
}

void varve_workers_free(struct varve_workers *w)
{
	if (!w)
		return;
	for (unsigned i = 0; i < VARVE_WORK_CLASSES; i++)
		(void)pthread_cond_destroy(&w->classes[i].wake);
	(void)pthread_mutex_destroy(&w->lock);
	free(w);
}
