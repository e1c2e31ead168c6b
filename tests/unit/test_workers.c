#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "../lib/unit.h"
#include "fuse/workers.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))
#define DEADLINE_MS 20000

static const unsigned bounds[VARVE_WORK_CLASSES] = {3, 2, 1, 1};

/* Work that waits at a gate. */
struct piece {
	struct varve_work work;
	struct gate *gate;
	unsigned number;
};

struct gate {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool open;
	unsigned inside, most, done, dropped;
	unsigned order[64]; /* the numbers of those done, as they came in */
};

static void gate_init(struct gate *g)
{
	*g = (struct gate){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
}

static void pass(struct varve_work *work)
{
	struct piece *p = (struct piece *)work;
	struct gate *g = p->gate;

	(void)pthread_mutex_lock(&g->lock);
	if (++g->inside > g->most)
		g->most = g->inside;
	(void)pthread_cond_broadcast(&g->changed);
	while (!g->open)
		(void)pthread_cond_wait(&g->changed, &g->lock);
	g->inside--;
	g->order[g->done++ % N(g->order)] = p->number;
	(void)pthread_cond_broadcast(&g->changed);
	(void)pthread_mutex_unlock(&g->lock);
	free(p);
}

static void drop(struct varve_work *work)
{
	struct piece *p = (struct piece *)work;
	struct gate *g = p->gate;

	(void)pthread_mutex_lock(&g->lock);
	g->dropped++;
	(void)pthread_mutex_unlock(&g->lock);
	free(p);
}

static bool submit(struct varve_workers *w, enum varve_work_class class_, struct gate *g,
		   unsigned number)
{
	struct piece *p = malloc(sizeof(*p));
	bool taken;

	*p = (struct piece){.work = {.run = pass, .drop = drop}, .gate = g, .number = number};
	taken = varve_workers_submit(w, class_, &p->work);
	if (!taken)
		free(p);
	return taken;
}

static void open_gate(struct gate *g)
{
	(void)pthread_mutex_lock(&g->lock);
	g->open = true;
	(void)pthread_cond_broadcast(&g->changed);
	(void)pthread_mutex_unlock(&g->lock);
}

static void await(struct gate *g, const unsigned *count, unsigned want)
{
	struct timespec until;

	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += DEADLINE_MS / 1000;
	(void)pthread_mutex_lock(&g->lock);
	while (*count < want)
		ck_assert_int_eq(pthread_cond_timedwait(&g->changed, &g->lock, &until), 0);
	(void)pthread_mutex_unlock(&g->lock);
}

static void await_running(struct varve_workers *w, enum varve_work_class class_, unsigned want)
{
	const struct timespec step = {.tv_nsec = 2000000};

	for (int i = 0; varve_workers_running(w, class_) != want; i++) {
		ck_assert_int_lt(i, DEADLINE_MS / 2);
		(void)nanosleep(&step, NULL);
	}
}

static struct varve_workers *new_workers(void)
{
	struct varve_workers *w;

	ck_assert_int_eq(varve_workers_new(bounds, &w), 0);
	return w;
}

START_TEST(workers_grow_to_the_bound)
{
	struct varve_workers *w = new_workers();
	struct gate g;

	gate_init(&g);
	ck_assert_uint_eq(varve_workers_running(w, VARVE_WORK_SYNC), 0);
	for (unsigned i = 0; i < 10; i++) {
		ck_assert(submit(w, VARVE_WORK_SYNC, &g, i));
		ck_assert_uint_eq(varve_workers_running(w, VARVE_WORK_SYNC), i < 3 ? i + 1 : 3);
	}
	await(&g, &g.inside, 3);
	open_gate(&g);
	await(&g, &g.done, 10);
	ck_assert_uint_eq(g.most, 3);
	varve_workers_stop(w);
	ck_assert_uint_eq(varve_workers_running(w, VARVE_WORK_SYNC), 0);
	varve_workers_free(w);
}
END_TEST

START_TEST(workers_are_used_again)
{
	struct varve_workers *w = new_workers();
	struct gate g;

	gate_init(&g);
	open_gate(&g);
	for (unsigned i = 1; i <= 200; i++) {
		ck_assert(submit(w, VARVE_WORK_SYNC, &g, i));
		await(&g, &g.done, i);
	}
	/* One after the other: a second is begun only when the first is not back in time. */
	ck_assert_uint_le(varve_workers_running(w, VARVE_WORK_SYNC), 3);
	varve_workers_stop(w);
	varve_workers_free(w);
}
END_TEST

START_TEST(workers_keep_the_order)
{
	struct varve_workers *w = new_workers();
	struct gate g;

	gate_init(&g);
	for (unsigned i = 0; i < 20; i++)
		ck_assert(submit(w, VARVE_WORK_CHANGE, &g, i));
	open_gate(&g);
	await(&g, &g.done, 20);
	for (unsigned i = 0; i < 20; i++)
		ck_assert_uint_eq(g.order[i], i);
	varve_workers_stop(w);
	varve_workers_free(w);
}
END_TEST

START_TEST(workers_classes_do_not_wait_for_each_other)
{
	struct varve_workers *w = new_workers();
	struct gate stuck, free_;

	gate_init(&stuck);
	gate_init(&free_);
	open_gate(&free_);
	for (unsigned i = 0; i < 30; i++)
		ck_assert(submit(w, VARVE_WORK_READ, &stuck, i));
	await(&stuck, &stuck.inside, 2);
	ck_assert(submit(w, VARVE_WORK_SYNC, &free_, 0));
	ck_assert(submit(w, VARVE_WORK_CHANGE, &free_, 1));
	await(&free_, &free_.done, 2);
	ck_assert_uint_eq(stuck.done, 0);
	open_gate(&stuck);
	await(&stuck, &stuck.done, 30);
	varve_workers_stop(w);
	varve_workers_free(w);
}
END_TEST

START_TEST(workers_end_when_idle)
{
	struct varve_workers *w = new_workers();
	struct gate g;

	gate_init(&g);
	varve_workers_set_linger(w, 20);
	for (unsigned round = 0; round < 3; round++) {
		g.open = false;
		for (unsigned i = 0; i < 3; i++)
			ck_assert(submit(w, VARVE_WORK_SYNC, &g, i));
		await(&g, &g.inside, 3);
		open_gate(&g);
		await(&g, &g.done, 3 * (round + 1));
		await_running(w, VARVE_WORK_SYNC, 0);
	}
	varve_workers_stop(w);
	varve_workers_free(w);
}
END_TEST

static void *stop_it(void *arg)
{
	varve_workers_stop(arg);
	return NULL;
}

START_TEST(workers_stop_drops_what_is_queued)
{
	struct varve_workers *w = new_workers();
	pthread_t stopper;
	struct gate g;

	gate_init(&g);
	for (unsigned i = 0; i < 8; i++)
		ck_assert(submit(w, VARVE_WORK_READ, &g, i));
	for (unsigned i = 0; i < 3; i++)
		ck_assert(submit(w, VARVE_WORK_CHANGE, &g, i));
	await(&g, &g.inside, 3);
	ck_assert_int_eq(pthread_create(&stopper, NULL, stop_it, w), 0);
	await_running(w, VARVE_WORK_READ, 2);
	for (int i = 0;; i++) {
		const struct timespec step = {.tv_nsec = 2000000};
		bool all;

		(void)pthread_mutex_lock(&g.lock);
		all = g.dropped == 8;
		(void)pthread_mutex_unlock(&g.lock);
		if (all)
			break;
		ck_assert_int_lt(i, DEADLINE_MS / 2);
		(void)nanosleep(&step, NULL);
	}
	/* What is being done is waited for. */
	ck_assert(!submit(w, VARVE_WORK_SYNC, &g, 0));
	open_gate(&g);
	(void)pthread_join(stopper, NULL);
	ck_assert_uint_eq(g.done, 3);
	ck_assert_uint_eq(g.dropped, 8);
	varve_workers_stop(w);
	varve_workers_free(w);
}
END_TEST

static void *submit_many(void *arg)
{
	struct {
		struct varve_workers *w;
		struct gate *g;
	} *p = arg;

	for (unsigned i = 0; i < 5000; i++)
		ck_assert(submit(p->w, i % 2 ? VARVE_WORK_SYNC : VARVE_WORK_READ, p->g, i));
	return NULL;
}

START_TEST(workers_from_many_threads)
{
	struct varve_workers *w = new_workers();
	struct gate g;
	struct {
		struct varve_workers *w;
		struct gate *g;
	} p = {w, &g};
	pthread_t threads[4];

	gate_init(&g);
	open_gate(&g);
	varve_workers_set_linger(w, 0);
	for (unsigned i = 0; i < N(threads); i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, submit_many, &p), 0);
	for (unsigned i = 0; i < N(threads); i++)
		(void)pthread_join(threads[i], NULL);
	await(&g, &g.done, 20000);
	ck_assert_uint_le(g.most, 5);
	varve_workers_stop(w);
	varve_workers_free(w);
}
END_TEST

T_MAIN("workers", 60)
{
	tcase_add_test(tc, workers_grow_to_the_bound);
	tcase_add_test(tc, workers_are_used_again);
	tcase_add_test(tc, workers_keep_the_order);
	tcase_add_test(tc, workers_classes_do_not_wait_for_each_other);
	tcase_add_test(tc, workers_end_when_idle);
	tcase_add_test(tc, workers_stop_drops_what_is_queued);
	tcase_add_test(tc, workers_from_many_threads);
}
