/*
 * Content through the facade: what an append is, truncation, reading over sealing and dropping,
 * full disks. What happens at a boundary: test_store_boundary.c.
 */
#include "store_io_util.h"

#include <linux/falloc.h>

/* -- what an append is -- */

START_TEST(test_append_anywhere)
{
	struct tfile f = t_file_open(t, "current/x", APPEND);

	/* The kernel's idea of the size may be old, or ahead. */
	ck_assert_int_eq(write_at(&f, "one\n", 0, f.flags), 4);
	ck_assert_int_eq(write_at(&f, "two\n", 0, f.flags), 4);
	ck_assert_int_eq(write_at(&f, "three\n", 1 << 20, f.flags), 6);
	t_file_close(t, &f);
	t_expect(t, "current/x", "one\ntwo\nthree\n");
}
END_TEST

/* Who reads a file does not have the disk note when: each boundary looks into thousands. */
START_TEST(test_reading_changes_no_part)
{
	const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
	struct stat st;

	t_append(t, "current/x", "one\n");
	ck_assert_int_eq(utimensat(AT_FDCWD, t_at(t, "open/" A "/default/0/x"), times, 0), 0);
	t_expect(t, "current/x", "one\n");
	ck_assert_int_eq(stat(t_at(t, "open/" A "/default/0/x"), &st), 0);
	ck_assert_int_eq(st.st_atim.tv_sec, 1000);
	reopen();
	t_expect(t, "current/x", "one\n");
	ck_assert_int_eq(stat(t_at(t, "open/" A "/default/0/x"), &st), 0);
	ck_assert_int_eq(st.st_atim.tv_sec, 1000);
}
END_TEST

START_TEST(test_only_appends)
{
	static const uint64_t bad[] = {0, 1, 3, 5, 7, 9, 4096, UINT64_C(1) << 40, UINT64_MAX / 2};
	struct tfile f;

	t_put(t, "current/x", "one\ntwo\n");
	f = t_file_open(t, "current/x", O_RDWR);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ck_assert_int_eq(write_at(&f, "bad", bad[i], f.flags), -EPERM);
	t_expect(t, "current/x", "one\ntwo\n");
	ck_assert_int_eq(write_at(&f, "three\n", 8, f.flags), 6);
	ck_assert_int_eq(write_at(&f, "again\n", 8, f.flags), -EPERM);
	ck_assert_int_eq(write_at(&f, "four\n", 14, f.flags), 5);
	/* By F_SETFL: the flag is what counts at each write. */
	ck_assert_int_eq(write_at(&f, "five\n", 0, f.flags | O_APPEND), 5);
	t_file_close(t, &f);
	t_expect(t, "current/x", "one\ntwo\nthree\nfour\nfive\n");
}
END_TEST

START_TEST(test_flag_is_taken_off)
{
	struct tfile f = t_file_open(t, "current/x", APPEND);

	t_puts(t, &f, "one\n");
	ck_assert_int_eq(write_at(&f, "X", 0, O_WRONLY), -EPERM);
	ck_assert_int_eq(write_at(&f, "two\n", 4, O_WRONLY), 4);
	t_file_close(t, &f);
	t_expect(t, "current/x", "one\ntwo\n");
}
END_TEST

START_TEST(test_two_that_began_anew)
{
	struct tfile a = t_file_open(t, "current/x", CREATE),
		     b = t_file_open(t, "current/x", CREATE);

	/* (cmd1 & cmd2) > x and > x: each goes on where it was. */
	t_puts(t, &a, "a1\n");
	t_puts(t, &b, "b1\n");
	t_puts(t, &b, "b2\n");
	t_puts(t, &a, "a2 is longer\n");
	t_puts(t, &b, "b3\n");
	t_file_close(t, &a);
	t_file_close(t, &b);
	t_expect(t, "current/x", "a1\nb1\nb2\na2 is longer\nb3\n");
}
END_TEST

START_TEST(test_truncated_below_a_writer)
{
	struct tfile f = t_file_open(t, "current/x", CREATE);

	t_puts(t, &f, "before\n");
	ck_assert_int_eq(t_truncate(t, "current/x", 0), 0);
	/* Its offset is 7: no hole, no NULs. */
	t_puts(t, &f, "after\n");
	t_expect(t, "current/x", "after\n");
	t_put(t, "current/x", "other\n");
	t_puts(t, &f, "more\n");
	t_expect(t, "current/x", "other\nmore\n");
	t_file_close(t, &f);
}
END_TEST

START_TEST(test_wrong_handles)
{
	struct tfile r, w = t_file_open(t, "current/x", APPEND);
	uint64_t dh, old;
	char buf[8];

	t_puts(t, &w, "one\n");
	r = t_file_open(t, "current/x", O_RDONLY);
	ck_assert_int_eq(write_at(&r, "x", 4, O_RDONLY), -EBADF);
	ck_assert_int_eq(varve_store_read(t->s, w.fh, buf, sizeof(buf), 0, false), -EBADF);
	ck_assert_int_eq(varve_store_fallocate(t->s, r.fh, FALLOC_FL_KEEP_SIZE, 0, 1), -EBADF);
	ck_assert_int_eq(varve_store_opendir(t->s, VARVE_ID_CURRENT, &dh), 0);
	ck_assert_int_eq(varve_store_write(t->s, dh, "x", 1, 0, O_WRONLY), -EBADF);
	ck_assert_int_eq(varve_store_read(t->s, dh, buf, sizeof(buf), 0, false), -EISDIR);
	ck_assert_int_eq(varve_store_readdir(t->s, r.fh, 0, false, t_list_one, NULL), -EBADF);
	varve_store_releasedir(t->s, dh);
	ck_assert_int_eq(varve_store_readdir(t->s, dh, 0, false, t_list_one, NULL), -EBADF);
	old = r.fh;
	t_file_close(t, &r);
	/* The number of a handle that is gone stays wrong, though its place is taken again. */
	r = t_file_open(t, "current/x", O_RDONLY);
	ck_assert_uint_ne(r.fh, old);
	ck_assert_int_eq(varve_store_read(t->s, old, buf, sizeof(buf), 0, false), -EBADF);
	ck_assert_int_eq(varve_store_write(t->s, old, "x", 1, 0, 0), -EBADF);
	ck_assert_int_eq(varve_store_fsync(t->s, old), -EBADF);
	ck_assert_int_eq(varve_store_fallocate(t->s, old, 0, 0, 1), -EBADF);
	varve_store_release(t->s, old);
	ck_assert_int_eq(varve_store_read(t->s, UINT64_MAX, buf, 1, 0, false), -EBADF);
	ck_assert_int_eq(varve_store_read(t->s, 0, buf, 1, 0, false), -EBADF);
	ck_assert_int_eq(varve_store_open_file(t->s, 999999, O_RDONLY, &r.how), -ESTALE);
	ck_assert_int_eq(varve_store_open_file(t->s, VARVE_ID_CURRENT, O_RDONLY, &r.how), -EISDIR);
	ck_assert_int_eq(varve_store_opendir(t->s, w.id, &dh), -ENOTDIR);
	ck_assert_int_eq(varve_store_write(t->s, w.fh, "", 0, 4, O_APPEND), 0);
	t_file_close(t, &r);
	t_file_close(t, &w);
	t_expect(t, "current/x", "one\n");
}
END_TEST

START_TEST(test_large_writes)
{
	struct tfile f = t_file_open(t, "current/x", APPEND);
	char *text = xs(3 << 20);
	struct stat st;

	for (int i = 0; i < 4; i++)
		t_puts(t, &f, text);
	st = t_attr(t, "current/x");
	ck_assert_int_eq(st.st_size, 12 << 20);
	ck_assert_int_ge(st.st_blocks * 512, 12 << 20);
	t_file_close(t, &f);
	free(text);
	t_boundary(t);
	t_seal(t);
	ck_assert_int_eq(t_attr(t, A "/x").st_size, 12 << 20);
	ck_assert_int_lt(t_attr(t, A "/x").st_blocks * 512, 1 << 20);
}
END_TEST

/* -- truncation -- */

START_TEST(test_truncation)
{
	struct tfile f;

	t_append(t, "current/x", "one\n");
	ck_assert_int_eq(t_truncate(t, "current/x", 4), 0);
	ck_assert_int_eq(t_truncate(t, "current/x", 3), -EPERM);
	ck_assert_int_eq(t_truncate(t, "current/x", 5), -EPERM);
	ck_assert_int_eq(t_truncate(t, "current/x", INT64_C(1) << 50), -EPERM);
	t_expect(t, "current/x", "one\n");
	ck_assert_int_eq(t_truncate(t, "current/x", 0), 0);
	t_expect(t, "current/x", "");
	t_append(t, "current/x", "two\n");
	/* echo x > file over a longer one. */
	t_put(t, "current/x", "3\n");
	t_expect(t, "current/x", "3\n");
	f = t_file_open(t, "current/x", O_RDONLY | O_TRUNC);
	t_file_close(t, &f);
	t_expect(t, "current/x", "");
	/* A stream without a part. */
	t_boundary(t);
	ck_assert_int_eq(t_truncate(t, "current/x", 0), 0);
	ck_assert_int_eq(t_truncate(t, "current/x", 1), -EPERM);
	t_put(t, "current/x", "four\n");
	t_boundary(t);
	t_seal(t);
	t_expect(t, B "/x", "four\n");
	t_append(t, "current/x", "five\n");
	t_boundary(t);
	/* Closing: nothing is given back. */
	ck_assert_int_eq(t_truncate(t, C "/x", 0), -EPERM);
	ck_assert_int_eq(t_truncate(t, C "/x", 5), 0);
	ck_assert_int_eq(t_truncate(t, C "/x", 9), -EPERM);
	ck_assert_int_eq(t_try_file(t, C "/x", O_WRONLY | O_TRUNC, 0, &f), -EPERM);
	t_expect(t, C "/x", "five\n");
	ck_assert_int_eq(t_truncate(t, B "/x", 0), -EROFS);
	ck_assert_int_eq(t_truncate(t, B "/x", 5), -EROFS);
	ck_assert_int_eq(t_truncate(t, "current", 0), -EISDIR);
}
END_TEST

/* ftruncate through a handle that has moved on concerns the file that it writes to. */
START_TEST(test_truncation_by_handle)
{
	struct tfile f = t_file_open(t, "current/x", APPEND);
	struct stat st, want = {.st_size = 0};
	int64_t valid;

	t_puts(t, &f, "one\n");
	t_boundary(t);
	t_puts(t, &f, "two\n");
	ck_assert_int_eq(varve_store_setattr(t->s, f.id, f.fh, &want, VARVE_SET_SIZE, &st, &valid),
			 0);
	ck_assert_int_eq(st.st_size, 0);
	t_expect(t, A "/x", "one\n");
	t_expect(t, "current/x", "");
	t_puts(t, &f, "three\n");
	t_expect(t, "current/x", "three\n");
	t_file_close(t, &f);
}
END_TEST

START_TEST(test_staging_is_ordinary)
{
	struct tfile f = t_file_open(t, ".staging/x", O_RDWR | O_CREAT);

	ck_assert_int_eq(write_at(&f, "hello", 0, O_RDWR), 5);
	ck_assert_int_eq(write_at(&f, "J", 0, O_RDWR), 1);
	ck_assert_int_eq(write_at(&f, "!", 7, O_RDWR), 1);
	ck_assert_int_eq(write_at(&f, "?", 0, O_RDWR | O_APPEND), 1);
	ck_assert_int_eq(t_attr(t, ".staging/x").st_size, 9);
	ck_assert_int_eq(t_truncate(t, ".staging/x", 5), 0);
	t_expect(t, ".staging/x", "Jello");
	ck_assert_int_eq(t_truncate(t, ".staging/x", 4096), 0);
	ck_assert_int_eq(varve_store_fallocate(t->s, f.fh, 0, 0, 8192), 0);
	ck_assert_int_eq(t_attr(t, ".staging/x").st_size, 8192);
	ck_assert_int_eq(varve_store_fallocate(t->s, f.fh,
					       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096),
			 0);
	ck_assert_int_eq(t_truncate(t, ".staging/x", 3), 0);
	ck_assert_int_eq(varve_store_fsync(t->s, f.fh), 0);
	/* Published while held: it may only append from now on. */
	ck_assert_int_eq(t_move(t, ".staging/x", "current/x", 0), 0);
	ck_assert_int_eq(write_at(&f, "bad", 0, O_RDWR), -EPERM);
	ck_assert_int_eq(write_at(&f, "more", 3, O_RDWR), 4);
	t_file_close(t, &f);
	ck_assert_int_eq(t_attr(t, "current/x").st_size, 7);
}
END_TEST

START_TEST(test_fallocate)
{
	static const int modes[] = {FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_ZERO_RANGE,
				    FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE};
	struct tfile f = t_file_open(t, "current/x", APPEND);

	t_puts(t, &f, "one\n");
	ck_assert_int_eq(varve_store_fallocate(t->s, f.fh, FALLOC_FL_KEEP_SIZE, 0, 1 << 20), 0);
	t_expect(t, "current/x", "one\n");
	ck_assert_int_eq(varve_store_fallocate(t->s, f.fh, 0, 0, 4), 0);
	ck_assert_int_eq(varve_store_fallocate(t->s, f.fh, 0, 0, 5), -EPERM);
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++)
		ck_assert_int_eq(varve_store_fallocate(t->s, f.fh, modes[i], 0, 4), -EPERM);
	t_puts(t, &f, "two\n");
	t_expect(t, "current/x", "one\ntwo\n");
	/* Over a boundary: no part yet. */
	t_boundary(t);
	ck_assert_int_eq(varve_store_fallocate(t->s, f.fh, FALLOC_FL_KEEP_SIZE, 0, 1 << 20), 0);
	t_seal(t);
	ck_assert_int_eq(varve_store_fallocate(t->s, f.fh, FALLOC_FL_KEEP_SIZE, 0, 1 << 20), 0);
	ck_assert_int_eq(varve_store_fallocate(t->s, f.fh, 0, 0, 1 << 20), -EPERM);
	t_expect(t, A "/x", "one\ntwo\n");
	t_file_close(t, &f);
}
END_TEST

START_TEST(test_worm)
{
	struct tfile f;

	t_close(t);
	t_option(t, "worm", NULL);
	t_open(t);
	t_append(t, "current/x", "one\n");
	ck_assert_int_eq(t_truncate(t, "current/x", 0), -EPERM);
	ck_assert_int_eq(t_truncate(t, "current/x", 4), 0);
	ck_assert_int_eq(t_try_file(t, "current/x", O_WRONLY | O_TRUNC, 0, &f), -EPERM);
	ck_assert_int_eq(t_unlink(t, "current/x"), -EPERM);
	t_append(t, "current/y", "two\n");
	ck_assert_int_eq(t_move(t, "current/y", "current/x", 0), -EPERM);
	t_put(t, ".staging/z", "staged\n");
	ck_assert_int_eq(t_move(t, ".staging/z", "current/x", 0), -EPERM);
	ck_assert_int_eq(t_move(t, ".staging/z", "current/z", 0), 0);
	t_expect(t, "current/x", "one\n");
	t_expect(t, "current/y", "two\n");
	/* A new file by `>`, and appends. */
	t_put(t, "current/new", "three\n");
	t_append(t, "current/new", "four\n");
	t_expect(t, "current/new", "three\nfour\n");
	/* .staging/ is not what worm is about, as long as it is not in current/. */
	t_put(t, ".staging/a", "b\n");
	ck_assert_int_eq(t_truncate(t, ".staging/a", 0), 0);
	ck_assert_int_eq(t_unlink(t, ".staging/a"), 0);
}
END_TEST

/* -- reading over a bucket's life -- */

START_TEST(test_reading_over_the_life)
{
	char *text = xs(5 << 20);
	struct tfile a, b, c, s;
	char buf[16];

	memcpy(text + (3 << 20), "in the middle", 13);
	t_append(t, "current/x", text);
	a = t_file_open(t, "current/x", O_RDONLY);
	ck_assert(a.how.direct_io);
	ck_assert(!a.how.keep_cache);
	/* The page cache is not told of appends: it is sent away. */
	ck_assert_int_eq(varve_store_read(t->s, a.fh, buf, 1, 0, true), -EINVAL);
	t_boundary(t);
	b = t_file_open(t, A "/x", O_RDONLY);
	ck_assert_int_eq(varve_store_read(t->s, b.fh, buf, 1, 0, true), -EINVAL);
	t_expect_fh(t, a.fh, text);
	t_seal(t);
	c = t_file_open(t, A "/x", O_RDONLY);
	ck_assert(!c.how.direct_io);
	ck_assert(c.how.keep_cache);
	for (int i = 0; i < 4; i++) {
		s = i == 0 ? a : i == 1 ? b : c;
		t_expect_fh(t, s.fh, text);
		ck_assert_int_eq(varve_store_read(t->s, s.fh, buf, 13, 3 << 20, false), 13);
		ck_assert_int_eq(memcmp(buf, "in the middle", 13), 0);
		ck_assert_int_eq(varve_store_read(t->s, s.fh, buf, 16, (5 << 20) - 3, false), 3);
		ck_assert_int_eq(varve_store_read(t->s, s.fh, buf, 16, 5 << 20, false), 0);
		ck_assert_int_eq(varve_store_read(t->s, s.fh, buf, 16, UINT64_C(1) << 60, false),
				 0);
	}
	ck_assert_int_eq(varve_store_read(t->s, c.fh, buf, 13, 3 << 20, true), 13);
	/* Dropped, then removed for good: who has it open goes on. */
	ck_assert_int_eq(t_drop(t, A), 0);
	t_expect_r(t, A, -ENOENT);
	t_expect_fh(t, a.fh, text);
	t_expect_fh(t, b.fh, text);
	t_expect_fh(t, c.fh, text);
	t_pass(t, T_HOUR / 2);
	t_reap(t);
	t_expect_dir(t_at(t, "trash"), "");
	t_expect_fh(t, a.fh, text);
	t_expect_fh(t, b.fh, text);
	t_expect_fh(t, c.fh, text);
	t_file_close(t, &a);
	t_file_close(t, &b);
	t_file_close(t, &c);
	free(text);
}
END_TEST

/* A closing bucket is dropped while it is read and written. */
START_TEST(test_closing_is_dropped)
{
	struct tfile r, late, w = t_file_open(t, "current/x", APPEND);

	t_puts(t, &w, "one\n");
	t_boundary(t);
	r = t_file_open(t, A "/x", O_RDONLY);
	late = t_file_open(t, A "/x", O_WRONLY | O_APPEND);
	ck_assert_int_eq(t_drop(t, A), 0);
	t_expect_r(t, A, -ENOENT);
	t_expect_fh(t, r.fh, "one\n");
	/* The writer by current/ does not notice. */
	t_puts(t, &w, "two\n");
	t_expect(t, "current/x", "two\n");
	/* Late data has no place to go any more. */
	ck_assert_int_eq(t_write(t, &late, "late\n", 5), -EROFS);
	t_expect_fh(t, r.fh, "one\n");
	ck_assert_int_eq(varve_store_fsync(t->s, late.fh), 0);
	ck_assert_int_eq(varve_store_fsync(t->s, w.fh), 0);
	t_pass(t, T_HOUR / 2);
	t_reap(t);
	t_expect_fh(t, r.fh, "one\n");
	t_file_close(t, &r);
	t_file_close(t, &late);
	t_file_close(t, &w);
}
END_TEST

/* -- full disks -- */

/* A store on a small filesystem of its own. */
static void small_set_up(void)
{
	t = t_new(A);
	t_mount(t->dir, "size=12m,nr_inodes=400,mode=700");
	t_open(t);
}

static void small_tear_down(void)
{
	if (t->s)
		t_close(t);
	ck_assert_int_eq(umount(t->dir), 0);
	t_free(t);
}

static size_t fill_up(struct tfile *f)
{
	char *chunk = xs(100000);
	size_t total = 0;
	bool was_short = false;

	chunk[99999] = '\n';
	for (;;) {
		ssize_t n = t_write(t, f, chunk, 100000);

		if (n < 0) {
			ck_assert_int_eq(n, -ENOSPC);
			break;
		}
		/* Short at most once: then the error. */
		ck_assert(!was_short);
		was_short = n < 100000;
		total += (size_t)n;
		ck_assert_uint_lt(total, 16 << 20);
	}
	free(chunk);
	return total;
}

START_TEST(test_disk_full)
{
	struct tfile f = t_file_open(t, "current/x", APPEND);
	struct varve_bucket *a;
	char *big = xs(3 << 20);
	struct timespec from, to;
	size_t total;

	t_put(t, "current/o", big);
	total = fill_up(&f);
	ck_assert_int_eq(t_attr(t, "current/x").st_size, (off_t)total);
	ck_assert_int_eq(t_write(t, &f, "x", 1), -ENOSPC);
	ck_assert_int_eq(t_attr(t, "current/x").st_size, (off_t)total);
	t_check(t);
	/* Room comes: it goes on where it was. */
	ck_assert_int_eq(t_unlink(t, "current/o"), 0);
	t_puts(t, &f, "more\n");
	ck_assert_int_eq(t_attr(t, "current/x").st_size, (off_t)total + 5);
	total += 5 + fill_up(&f);
	/* Nobody makes room while the store's threads do not run, and nobody is waited for. */
	(void)clock_gettime(CLOCK_MONOTONIC, &from);
	ck_assert(!varve_make_room(t->s));
	(void)clock_gettime(CLOCK_MONOTONIC, &to);
	ck_assert_int_lt(to.tv_sec - from.tv_sec, 3);
	/* The boundary comes all the same; what is written then meets the full disk. */
	t_boundary(t);
	ck_assert_str_eq(t_bucket(t), B);
	ck_assert_int_eq(t_attr(t, A "/x").st_size, (off_t)total);
	a = t_find(t, A);
	ck_assert_int_eq(t_write(t, &f, "x\n", 2) < 0 ? 0 : 1, 0);
	/* xs() shrinks to nothing: there is room to seal it only by chance; either way nothing is
	 * lost. */
	if (t_seal_one(t, a) < 0)
		ck_assert(t_exists(t_at(t, "open/" A)));
	ck_assert_int_eq(t_attr(t, A "/x").st_size, (off_t)total);
	t_file_close(t, &f);
	/* A drop works on a full disk. */
	ck_assert_int_eq(t_drop(t, A), 0);
	ck_assert_uint_eq(t_audited(t, "drop", A), 1);
	t_pass(t, T_HOUR / 2);
	t_reap(t);
	t_append(t, "current/x", "again\n");
	t_expect(t, "current/x", "again\n");
	free(big);
}
END_TEST

/* What does not shrink can't be sealed; its parts stay, and it is sealed once there is room. */
START_TEST(test_no_room_to_seal)
{
	struct tfile f = t_file_open(t, "current/x", APPEND);
	uint64_t seed = 88172645463325252;
	char *noise = malloc((7 << 20) + 1), *got;
	struct tfile r;
	ssize_t len;

	for (size_t i = 0; i < 7 << 20; i++) {
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		noise[i] = (char)(seed >> 24 | 1);
	}
	noise[7 << 20] = '\0';
	ck_assert_int_eq(t_write(t, &f, noise, 7 << 20), 7 << 20);
	t_put(t, ".staging/ballast", "");
	t_boundary(t);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(t_seal_one(t, t_find(t, A)), -ENOSPC);
		ck_assert_int_eq(t_find(t, A)->state, VARVE_BUCKET_CLOSING);
		t_expect_dir(t_at(t, "sealed"), "");
		ck_assert_uint_eq(t_audited(t, "seal", A), 0);
		/* Shut since: the writer goes on in B. */
		t_puts(t, &f, "on\n");
	}
	if (_i)
		reopen();
	r = t_file_open(t, A "/x", O_RDONLY);
	got = t_get_fh(t, r.fh, &len);
	ck_assert_int_eq(len, 7 << 20);
	ck_assert_int_eq(memcmp(got, noise, 7 << 20), 0);
	free(got);
	ck_assert_int_eq(mount("none", t->dir, "tmpfs", MS_REMOUNT, "size=40m"), 0);
	t_seal(t);
	got = t_get_fh(t, r.fh, &len);
	ck_assert_int_eq(len, 7 << 20);
	ck_assert_int_eq(memcmp(got, noise, 7 << 20), 0);
	free(got);
	t_file_close(t, &r);
	if (!_i)
		t_file_close(t, &f);
	free(noise);
	t_expect_dir(t_at(t, "sealed"), A);
	t_expect_dir(t_at(t, "open"), B);
}
END_TEST

/* No inode is left: nothing new can be made, what is there goes on. */
START_TEST(test_no_inodes_left)
{
	char path[64];
	struct tfile f, x = t_file_open(t, "current/x", APPEND);
	int i, r = 0;

	t_puts(t, &x, "one\n");
	for (i = 0; i < 1000 && r == 0; i++) {
		(void)snprintf(path, sizeof(path), "current/f%d", i);
		r = t_try_file(t, path, APPEND, 0644, &f);
		if (r == 0)
			t_file_close(t, &f);
	}
	ck_assert_int_eq(r, -ENOSPC);
	/* A file that can't be marked is none, or no stream: whatever it is, memory and disk agree.
	 */
	t_puts(t, &x, "two\n");
	t_check(t);
	ck_assert_int_eq(t_try_mkdir(t, "current/d", 0755), -ENOSPC);
	t_check(t);
	t_boundary(t);
	/* A's parts have the inodes yet. */
	r = (int)t_write(t, &x, "three\n", 6);
	ck_assert_int_eq(r, -ENOSPC);
	ck_assert_int_eq(t_drop(t, A), 0);
	t_pass(t, T_HOUR / 2);
	t_reap(t);
	t_puts(t, &x, "three\n");
	t_expect(t, "current/x", "three\n");
	t_file_close(t, &x);
}
END_TEST

struct writer {
	pthread_t thread;
	int i;
	bool done; /* joined */
};

static Suite *make_suite(void)
{
	Suite *s = suite_create("store_io");
	TCase *c = tcase_create("store_io"), *full = tcase_create("full");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_append_anywhere);
	tcase_add_test(c, test_reading_changes_no_part);
	tcase_add_test(c, test_only_appends);
	tcase_add_test(c, test_flag_is_taken_off);
	tcase_add_test(c, test_two_that_began_anew);
	tcase_add_test(c, test_truncated_below_a_writer);
	tcase_add_test(c, test_wrong_handles);
	tcase_add_test(c, test_large_writes);
	tcase_add_test(c, test_truncation);
	tcase_add_test(c, test_truncation_by_handle);
	tcase_add_test(c, test_staging_is_ordinary);
	tcase_add_test(c, test_fallocate);
	tcase_add_test(c, test_worm);
	tcase_add_test(c, test_reading_over_the_life);
	tcase_add_test(c, test_closing_is_dropped);
	suite_add_tcase(s, c);
	tcase_add_checked_fixture(full, small_set_up, small_tear_down);
	tcase_set_timeout(full, 60);
	tcase_add_test(full, test_disk_full);
	tcase_add_loop_test(full, test_no_room_to_seal, 0, 2);
	tcase_add_test(full, test_no_inodes_left);
	suite_add_tcase(s, full);
	return s;
}

int main(void)
{
	return t_main(make_suite());
}
