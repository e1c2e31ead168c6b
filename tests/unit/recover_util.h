/* What the tests of recovery begin with: a store whose first bucket holds a little of everything.
 */
#pragma once

#include "../lib/storetest.h"

#define HOUR_10 "2026-12-01T10Z"
#define HOUR_11 "2026-12-01T11Z"
#define HOUR_12 "2026-12-01T12Z"
#define HOUR_14 "2026-12-01T14Z"

static struct tstore *t;

T_FN void set_up(void)
{
	t = t_new(HOUR_10);
}

T_FN void tear_down(void)
{
	t_free(t);
}

/* What nearly every case begins with: a bucket of a stream, an object and a directory. */
T_FN void fill(void)
{
	ck_assert_int_eq(t_try_mkdir(t, "current/d", 0755), 0);
	t_append(t, "current/s.log", "one\ntwo\n");
	t_append(t, "current/d/t.log", "deep\n");
	t_put(t, "current/o.txt", "object\n");
}

T_FN void expect_filled(const char *bucket)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/s.log", bucket);
	t_expect(t, path, "one\ntwo\n");
	(void)snprintf(path, sizeof(path), "%s/d/t.log", bucket);
	t_expect(t, path, "deep\n");
	(void)snprintf(path, sizeof(path), "%s/o.txt", bucket);
	t_expect(t, path, "object\n");
	t_expect_list(t, bucket, "d o.txt s.log");
}

/* The numbers of what fill() made, by the path of the bucket. */
struct numbers {
	uint64_t s, d, t, o;
};

T_FN struct numbers numbers_at(const char *bucket)
{
	struct numbers n;
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/s.log", bucket);
	n.s = t_ino(t, path);
	(void)snprintf(path, sizeof(path), "%s/d", bucket);
	n.d = t_ino(t, path);
	(void)snprintf(path, sizeof(path), "%s/d/t.log", bucket);
	n.t = t_ino(t, path);
	(void)snprintf(path, sizeof(path), "%s/o.txt", bucket);
	n.o = t_ino(t, path);
	return n;
}

T_FN void expect_numbers(const char *bucket, const struct numbers *want)
{
	struct numbers n = numbers_at(bucket);

	ck_assert_uint_eq(n.s, want->s);
	ck_assert_uint_eq(n.d, want->d);
	ck_assert_uint_eq(n.t, want->t);
	ck_assert_uint_eq(n.o, want->o);
}

T_FN void expect_files_numbers(const char *bucket, const struct numbers *want)
{
	struct numbers n = numbers_at(bucket);

	ck_assert_uint_eq(n.s, want->s);
	ck_assert_uint_eq(n.t, want->t);
	ck_assert_uint_eq(n.o, want->o);
}
