/*
 * A store of a test's own, driven by the facade without FUSE: a temporary folder, a clock that the
 * test moves, and paths instead of ids. No thread of the store runs unless the test starts them:
 * the steps of the keeper and of the sealer are taken by t_boundary, t_seal and so on, so that a
 * test knows at which instant the folder is looked at, copied or damaged.
 *
 * Every t_close() ends with t_check(): memory, disk and the counts agree.
 */
#pragma once

#include "storetest_base.h"
#include "storetest_check.h"
#include "storetest_ops.h"

/* -- ends -- */

T_FN void t_close(struct tstore *t)
{
	if (!t->s->threads_run)
		t_check(t);
	varve_store_close(t->s);
	t->s = NULL;
}

/* As kill -9 at this instant would leave the folder: what follows in this process never was. */
T_FN void t_crash(struct tstore *t)
{
	char copy[96];

	(void)snprintf(copy, sizeof(copy), "%s/copy", t->dir);
	t_copy(t->path, copy);
	varve_store_close(t->s);
	t->s = NULL;
	t_remove(t->path);
	t_rename(copy, t->path);
}

T_FN void t_free(struct tstore *t)
{
	if (t->s)
		t_close(t);
	t_remove(t->dir);
	(void)pthread_mutex_destroy(&t->lock);
	free(t);
}

/* -- the life cycle, step by step -- */

T_FN const char *t_bucket(struct tstore *t)
{
	return t->s->current->name;
}

T_FN struct varve_bucket *t_find(struct tstore *t, const char *name)
{
	struct varve_bucket *b = varve_bucket_find(t->s, name);

	ck_assert_msg(b != NULL, "there is no bucket '%s'", name);
	return b;
}

/* What the keeper does at each tick: the boundary, if it is time. Whether it was. */
T_FN bool t_tick(struct tstore *t)
{
	int64_t now;

	{
		guard(&t->s->ns);
		now = varve_believed_now(t->s);
	}
	if (now < t->s->current->end_ns)
		return false;
	guard(&t->s->mutate);
	ck_assert_int_eq(varve_boundary_step(t->s, now), 0);
	return true;
}

/* Time passes to the end of the current bucket, and the boundary comes. */
T_FN void t_boundary(struct tstore *t)
{
	t_pass(t, t->s->current->end_ns - t_now(t) + T_SECOND / 1000);
	ck_assert(t_tick(t));
}

T_FN int t_seal_one(struct tstore *t, struct varve_bucket *b)
{
	int r;

	{
		guard(&t->s->ns);
		(void)varve_bucket_ref(b);
	}
	r = varve_seal_bucket(t->s, b);
	guard(&t->s->ns);
	varve_bucket_unref(t->s, b);
	return r;
}

/* Seals every closing bucket, the graces being over. */
T_FN void t_seal(struct tstore *t)
{
	for (uint32_t i = 0; i < t->s->n_buckets;) {
		struct varve_bucket *b = t->s->buckets[i];
		uint32_t n = t->s->n_buckets;

		if (b->state == VARVE_BUCKET_CLOSING)
			ck_assert_int_eq(t_seal_one(t, b), 0);
		/* An empty one vanishes. */
		if (t->s->n_buckets == n)
			i++;
	}
}

T_FN int t_drop(struct tstore *t, const char *bucket)
{
	struct varve_err err;

	return varve_store_drop(t->s, &t_root, bucket, &err);
}

/* As retention does, once it has chosen. */
T_FN int t_expire(struct tstore *t, const char *bucket)
{
	struct varve_bucket *b = t_find(t, bucket);
	struct varve_err err = {.msg = ""};
	int r;

	{
		guard(&t->s->ns);
		(void)varve_bucket_ref(b);
	}
	r = varve_drop_bucket(t->s, b, VARVE_CAUSE_KEEP, NULL, 1, &err);
	guard(&t->s->ns);
	varve_bucket_unref(t->s, b);
	return r;
}

T_FN void t_reap(struct tstore *t)
{
	bool more = true;

	while (more)
		ck_assert_int_eq(varve_reaper_step(t->s, &more), 0);
}

/* Runs fn in a process of its own, which is to end at the crash point (NAME[:N]). Needs test_hooks.
 * The store must not be open. */
T_FN void t_die_at(struct tstore *t, const char *point, void (*fn)(struct tstore *t))
{
	int status;
	pid_t pid = fork();

	ck_assert_ptr_null(t->s);
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		(void)setenv("VARVE_TEST_CRASH", point, 1);
		fn(t);
		_exit(1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 86,
		      "'%s' was not reached: status %x", point, status);
}
