/*
 * Carried parts whose older bucket is sealed or dropped: what each segment holds, what of the part is given
 * back and when, what comes back; and what it all counts for.
 */
#include "carry_util.h"

#define MIB ((size_t)1 << 20)

static char *text_of(char c, size_t n)
{
	char *p = malloc(n + 1);

	ck_assert_ptr_nonnull(p);
	memset(p, c, n);
	p[n - 1] = '\n';
	p[n] = '\0';
	return p;
}

static void expect_many(const char *path, char c, size_t n)
{
	char *want = text_of(c, n);

	t_expect(t, path, want);
	free(want);
}

static void puts_many(struct kfile *k, char c, size_t n)
{
	char *text = text_of(c, n);

	k_puts(k, text);
	free(text);
}

/* Bytes of the part that are on disk. */
static uint64_t on_disk_of(const char *bucket)
{
	cleanup_close int fd = open(t_at(t, "open/%s/default/0/x", bucket), O_RDONLY | O_CLOEXEC);
	struct stat st;

	ck_assert_int_ge(fd, 0);
	/* What is allocated late counts, too. */
	ck_assert_int_eq(fsync(fd), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

START_TEST(test_given_back)
{
	struct kfile k = k_native("current/x");
	uint64_t before;

	puts_many(&k, 'a', 3 * MIB + 100);
	t_boundary(t);
	puts_many(&k, 'b', 2 * MIB + 300);
	before = on_disk_of(B);
	ck_assert_uint_ge(before, 5 * MIB);
	t_seal(t);
	ck_assert(!has_part(A, "x"));
	t_reap(t);
	/* All of A's but the block that B's begins in. */
	ck_assert_uint_le(on_disk_of(B), before - 3 * MIB + 4096);
	ck_assert_int_eq(part_stat(B, "x").st_nlink, 1);
	expect_many(A "/x", 'a', 3 * MIB + 100);
	expect_many("current/x", 'b', 2 * MIB + 300);
	t_boundary(t);
	puts_many(&k, 'c', MIB);
	t_seal(t);
	t_reap(t);
	ck_assert_uint_le(on_disk_of(C), MIB + 2 * 4096);
	expect_many(A "/x", 'a', 3 * MIB + 100);
	expect_many(B "/x", 'b', 2 * MIB + 300);
	expect_many("current/x", 'c', MIB);
	k_close(&k);
	reopen();
	expect_many("current/x", 'c', MIB);
}
END_TEST

/* Not while somebody may have it mapped: one who opened it for reading while it had a number. */
START_TEST(test_not_while_readable)
{
	struct kfile k = k_native("current/x");
	struct tfile r = t_file_open(t, "current/x", O_RDONLY);
	uint64_t before;

	ck_assert_int_gt(r.how.backing, 0);
	puts_many(&k, 'a', MIB);
	t_boundary(t);
	puts_many(&k, 'b', MIB);
	before = on_disk_of(B);
	t_seal(t);
	t_reap(t);
	ck_assert_uint_eq(on_disk_of(B), before);
	ck_assert(varve_carry_waits(t->s));
	/* What it reads comes from the segment. */
	{
		char *want = text_of('a', MIB);

		t_expect_fh(t, r.fh, want);
		free(want);
	}
	t_file_close(t, &r);
	t_reap(t);
	ck_assert_uint_le(on_disk_of(B), before - MIB + 4096);
	expect_many(A "/x", 'a', MIB);
	expect_many("current/x", 'b', MIB);
	k_close(&k);
}
END_TEST

/* A is sealed with B's name removed, or replaced, meanwhile: nobody has A's bytes any more but the segment. */
START_TEST(test_newer_is_removed)
{
	struct kfile k = k_native("current/x");

	puts_many(&k, 'a', MIB);
	t_boundary(t);
	puts_many(&k, 'b', MIB);
	ck_assert_int_eq(t_unlink(t, "current/x"), 0);
	t_seal(t);
	t_reap(t);
	expect_many(A "/x", 'a', MIB);
	puts_many(&k, 'c', 100);
	k_close(&k);
	t_reap(t);
	ck_assert(!varve_carry_waits(t->s));
	reopen();
	expect_many(A "/x", 'a', MIB);
	t_expect_r(t, "current/x", -ENOENT);
}
END_TEST

/* The newer bucket is sealed first, `varve seal` in whichever order. */
START_TEST(test_sealed_in_any_order)
{
	static const char *const orders[][3] = {{A, B, C}, {C, B, A}, {B, A, C}, {B, C, A}};
	struct kfile k = k_native("current/x");

	puts_many(&k, 'a', MIB);
	t_boundary(t);
	puts_many(&k, 'b', MIB);
	t_boundary(t);
	puts_many(&k, 'c', MIB);
	t_boundary(t);
	puts_many(&k, 'd', MIB);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(t_seal_one(t, t_find(t, orders[_i][i])), 0);
		t_reap(t);
		expect_many(A "/x", 'a', MIB);
		expect_many(B "/x", 'b', MIB);
		expect_many(C "/x", 'c', MIB);
		expect_many("current/x", 'd', MIB);
	}
	ck_assert_uint_le(on_disk_of(D), MIB + 4096);
	k_close(&k);
	reopen();
	expect_many(B "/x", 'b', MIB);
	expect_many("current/x", 'd', MIB);
}
END_TEST

/* -- dropping -- */

START_TEST(test_drop_closing)
{
	struct kfile k = k_native("current/x");
	uint64_t before;

	puts_many(&k, 'a', MIB);
	t_boundary(t);
	puts_many(&k, 'b', MIB);
	before = on_disk_of(B);
	ck_assert_int_eq(t_drop(t, A), 0);
	t_expect_r(t, A, -ENOENT);
	t_reap(t);
	/* It can come back. */
	ck_assert_uint_eq(on_disk_of(B), before);
	expect_many("current/x", 'b', MIB);
	k_puts(&k, "more\n");
	t_pass(t, T_HOUR / 4);
	t_reap(t);
	t_reap(t);
	ck_assert_uint_le(on_disk_of(B), before - MIB + 2 * 4096);
	ck_assert_int_eq(t_attr(t, "current/x").st_size, (off_t)MIB + 5);
	k_close(&k);
	reopen();
	ck_assert_int_eq(t_attr(t, "current/x").st_size, (off_t)MIB + 5);
	t_expect_r(t, A, -ENOENT);
}
END_TEST

/* Back from the trash, with remounts in between or without. */
START_TEST(test_undrop)
{
	struct kfile k = k_native("current/x");
	struct varve_err err;
	bool held = !(_i & 3);

	puts_many(&k, 'a', MIB);
	t_boundary(t);
	puts_many(&k, 'b', MIB);
	ck_assert_int_eq(t_drop(t, A), 0);
	if (!held)
		k_close(&k);
	if (_i & 1)
		reopen();
	t_reap(t);
	expect_many("current/x", 'b', MIB);
	ck_assert_int_eq(varve_store_undrop(t->s, &t_root, A, &err), 0);
	expect_many(A "/x", 'a', MIB);
	expect_many("current/x", 'b', MIB);
	t_reap(t);
	if (_i & 2) {
		reopen();
		expect_many(A "/x", 'a', MIB);
		expect_many("current/x", 'b', MIB);
	}
	if (_i & 4) {
		ck_assert_int_eq(t_drop(t, A), 0);
		if (!held)
			reopen();
		expect_many("current/x", 'b', MIB);
		ck_assert_int_eq(varve_store_undrop(t->s, &t_root, A, &err), 0);
		expect_many(A "/x", 'a', MIB);
	}
	if (held)
		puts_many(&k, 'c', 100);
	t_seal(t);
	t_reap(t);
	expect_many(A "/x", 'a', MIB);
	ck_assert_int_eq(t_attr(t, "current/x").st_size, (off_t)MIB + (held ? 100 : 0));
	ck_assert_uint_le(on_disk_of(B), MIB + 3 * 4096);
	if (held)
		k_close(&k);
	reopen();
	expect_many(A "/x", 'a', MIB);
	ck_assert_int_eq(t_attr(t, "current/x").st_size, (off_t)MIB + (held ? 100 : 0));
}
END_TEST

/* A dropped bucket in the trash, and the newer ones sealed meanwhile. */
START_TEST(test_undrop_after_newer_is_sealed)
{
	struct kfile k;
	struct varve_err err;

	t_close(t);
	t_option(t, "undrop", "1d");
	open_store(t);
	k = k_native("current/x");
	puts_many(&k, 'a', MIB);
	t_boundary(t);
	puts_many(&k, 'b', MIB);
	ck_assert_int_eq(t_drop(t, A), 0);
	t_boundary(t);
	puts_many(&k, 'c', MIB);
	t_seal(t);
	t_reap(t);
	if (_i) {
		k_close(&k);
		reopen();
		t_reap(t);
	}
	ck_assert_int_eq(varve_store_undrop(t->s, &t_root, A, &err), 0);
	expect_many(A "/x", 'a', MIB);
	expect_many(B "/x", 'b', MIB);
	expect_many("current/x", 'c', MIB);
	t_seal(t);
	t_reap(t);
	expect_many(A "/x", 'a', MIB);
	expect_many("current/x", 'c', MIB);
	if (!_i)
		k_close(&k);
}
END_TEST

/* -- what it counts for -- */

static uint64_t allocated(const char *bucket)
{
	guard(&t->s->ns);
	return varve_bucket_allocated(t_find(t, bucket));
}

static void count_now(void)
{
	varve_native_count(t->s);
}

START_TEST(test_budget)
{
	struct kfile k = k_native("current/x");

	puts_many(&k, 'a', 3 * MIB);
	count_now();
	ck_assert_uint_ge(allocated(A), 3 * MIB);
	ck_assert_uint_le(allocated(A), 3 * MIB + 64 * 1024);
	t_boundary(t);
	puts_many(&k, 'b', MIB);
	count_now();
	/* Each bucket its own range, wherever they are in the one part. */
	ck_assert_uint_ge(allocated(A) + allocated(B), 4 * MIB);
	ck_assert_uint_le(allocated(A) + allocated(B), 4 * MIB + 128 * 1024);
	ck_assert_uint_ge(allocated(A), 3 * MIB);
	k_close(&k);
	/* Never below nothing. */
	ck_assert_uint_lt(allocated(A), 64 * MIB);
	ck_assert_uint_lt(allocated(B), 64 * MIB);
	t_seal(t);
	t_reap(t);
	ck_assert_uint_lt(allocated(B), 64 * MIB);
	ck_assert_uint_ge(allocated(B), MIB);
	reopen();
	ck_assert_uint_ge(allocated(B), MIB);
	ck_assert_uint_le(allocated(B), MIB + 64 * 1024);
	t_boundary(t);
	t_seal(t);
	ck_assert_uint_lt(allocated(B), 64 * MIB);
}
END_TEST

T_MAIN("carry_seal", 60)
{
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_given_back);
	tcase_add_test(tc, test_not_while_readable);
	tcase_add_test(tc, test_newer_is_removed);
	tcase_add_loop_test(tc, test_sealed_in_any_order, 0, 4);
	tcase_add_test(tc, test_drop_closing);
	tcase_add_loop_test(tc, test_undrop, 0, 8);
	tcase_add_loop_test(tc, test_undrop_after_newer_is_sealed, 0, 2);
	tcase_add_test(tc, test_budget);
}
