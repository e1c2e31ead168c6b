/*
 * Content through the facade: what an append is, what happens to writers, lines and objects at a
 * boundary, late data, truncation, full disks, reading over sealing and dropping, numbers.
 */
#include "../lib/storetest.h"

#include <linux/falloc.h>

#define A "2026-12-01T10Z"
#define B "2026-12-01T11Z"
#define C "2026-12-01T12Z"

#define APPEND (O_WRONLY | O_APPEND | O_CREAT)
#define CREATE (O_WRONLY | O_TRUNC | O_CREAT)

static struct tstore *t;

static void set_up(void)
{
	t = t_new(A);
	t_open(t);
}

static void tear_down(void)
{
	t_free(t);
}

static void reopen(void)
{
	t_close(t);
	t_open(t);
}

/* As many bytes of 'x'. */
static char *xs(size_t n)
{
	char *p = malloc(n + 1);

	ck_assert_ptr_nonnull(p);
	memset(p, 'x', n);
	p[n] = '\0';
	return p;
}

static ssize_t write_at(struct tfile *f, const char *text, uint64_t off, int flags)
{
	return varve_store_write(t->s, f->fh, text, strlen(text), off, flags);
}

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
	struct tfile a = t_file_open(t, "current/x", CREATE), b = t_file_open(t, "current/x", CREATE);

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

/* -- the boundary: lines -- */

/* What is in the file when the boundary comes, what is written afterwards by the same handle, and what
 * of it is where. */
static const struct line_case {
	const char *before, *after[4];
	const char *in_a, *in_b;
} line_cases[] = {
	{"one\n", {"two\n"}, "one\n", "two\n"},
	{"o", {"ne\ntwo\n"}, "one\n", "two\n"},
	{"o", {"n", "e", "\n", "two\n"}, "one\n", "two\n"},
	{"o", {"ne\n", "two\n"}, "one\n", "two\n"},
	{"o", {"ne\nt", "wo\n"}, "one\n", "two\n"},
	{"o", {"\n"}, "o\n", ""},
	{"o", {"\n\n"}, "o\n", "\n"},
	{"o", {"ne"}, "one", ""},
	{"", {"one\n"}, "", "one\n"},
	{"\n", {"one\n"}, "\n", "one\n"},
	{"one\n\n", {"\n"}, "one\n\n", "\n"},
};

START_TEST(test_line_over_the_boundary)
{
	const struct line_case *c = &line_cases[_i];
	struct tfile f = t_file_open(t, "current/x", APPEND);

	if (*c->before)
		t_puts(t, &f, c->before);
	t_boundary(t);
	for (int i = 0; i < 4 && c->after[i]; i++)
		t_puts(t, &f, c->after[i]);
	t_expect(t, A "/x", c->in_a);
	t_expect(t, "current/x", c->in_b);
	t_seal(t);
	t_expect(t, A "/x", c->in_a);
	/* The line that was not finished when the grace ended goes on in B. */
	t_puts(t, &f, "last\n");
	t_expect(t, A "/x", c->in_a);
	t_file_close(t, &f);
	t_boundary(t);
	t_seal(t);
	t_expect(t, A "/x", c->in_a);
	{
		char want[64];

		(void)snprintf(want, sizeof(want), "%slast\n", c->in_b);
		t_expect(t, B "/x", want);
	}
}
END_TEST

static const size_t line_lengths[] = {65535, 65536, 65537, 200000};

START_TEST(test_line_without_end)
{
	size_t len = line_lengths[_i / 2], chunk = _i % 2 ? 1000 : len, in_a = len < 65536 ? len : 65536;
	struct tfile f = t_file_open(t, "current/x", APPEND);
	char *text = xs(len);

	t_puts(t, &f, "begin");
	t_boundary(t);
	for (size_t at = 0; at < len; at += chunk) {
		size_t n = len - at < chunk ? len - at : chunk;

		ck_assert_int_eq(t_write(t, &f, text + at, n), (ssize_t)n);
	}
	ck_assert_int_eq(t_attr(t, A "/x").st_size, (off_t)(5 + in_a));
	ck_assert_int_eq(t_attr(t, "current/x").st_size, (off_t)(len - in_a));
	t_puts(t, &f, "\nnext\n");
	/* 65535 and the newline are just within the measure. */
	ck_assert_int_eq(t_attr(t, A "/x").st_size, (off_t)(5 + in_a + (len == 65535)));
	ck_assert_int_eq(t_attr(t, "current/x").st_size, (off_t)(len - in_a + 6 - (len == 65535)));
	t_file_close(t, &f);
	free(text);
}
END_TEST

START_TEST(test_line_of_several_writers)
{
	struct tfile f = t_file_open(t, "current/x", APPEND), g = t_file_open(t, "current/x", APPEND),
		     h;

	t_puts(t, &f, "begin ");
	t_boundary(t);
	/* Who finishes the line does not matter: there is one file. */
	t_puts(t, &g, "by another\nfirst of B\n");
	t_puts(t, &f, "second of B\n");
	h = t_file_open(t, "current/x", APPEND);
	t_puts(t, &h, "third of B\n");
	t_expect(t, A "/x", "begin by another\n");
	t_expect(t, "current/x", "first of B\nsecond of B\nthird of B\n");
	t_file_close(t, &f);
	t_file_close(t, &g);
	t_file_close(t, &h);
}
END_TEST

/* A handle that is opened after the boundary is in B from the first byte. */
START_TEST(test_new_writer_does_not_finish_a_line)
{
	struct tfile f = t_file_open(t, "current/x", APPEND);

	t_puts(t, &f, "begin ");
	t_boundary(t);
	t_append(t, "current/x", "new line\n");
	t_puts(t, &f, "end\nand on\n");
	t_file_close(t, &f);
	t_expect(t, A "/x", "begin end\n");
	t_expect(t, "current/x", "new line\nand on\n");
}
END_TEST

/* The same over two boundaries with nothing in between. */
START_TEST(test_writer_that_sleeps)
{
	struct tfile f = t_file_open(t, "current/x", APPEND);

	t_puts(t, &f, "one\n");
	for (int i = 0; i < 5; i++) {
		t_boundary(t);
		if (_i)
			t_seal(t);
	}
	t_puts(t, &f, "two\n");
	t_expect(t, "current/x", "two\n");
	t_expect(t, A "/x", "one\n");
	t_expect_r(t, B "/x", -ENOENT);
	t_seal(t);
	t_boundary(t);
	t_puts(t, &f, "three\n");
	t_expect(t, "current/x", "three\n");
	ck_assert_int_eq(varve_store_fsync(t->s, f.fh), 0);
	t_file_close(t, &f);
	t_seal(t);
	t_expect(t, A "/x", "one\n");
	t_expect_r(t, B, -ENOENT);
}
END_TEST

/* Case 1, small: one descriptor, many lines, many boundaries and seals. */
START_TEST(test_one_descriptor_for_ever)
{
	struct tfile f = t_file_open(t, "current/x", APPEND);
	unsigned n = 0, want = 0;
	struct varve_status st;

	for (int b = 0; b < 30; b++) {
		for (int i = 0; i < 2000; i++) {
			char line[64];
			size_t len = (size_t)snprintf(line, sizeof(line), "%u %.*s\n", n, (int)(n % 40),
						      "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqr"),
			       half = n % len;

			/* Lines come in pieces, too. */
			if (n % 3 == 0 && half)
				ck_assert_int_eq(t_write(t, &f, line, half), (ssize_t)half);
			else
				half = 0;
			if (i == 1000)
				t_boundary(t);
			ck_assert_int_eq(t_write(t, &f, line + half, len - half),
					 (ssize_t)(len - half));
			n++;
		}
		if (b % 3 == 0)
			t_seal(t);
	}
	ck_assert_int_eq(varve_store_fsync(t->s, f.fh), 0);
	t_file_close(t, &f);
	t_seal(t);
	ck_assert_int_eq(varve_store_status(t->s, &st), 0);
	ck_assert_uint_eq(st.n_buckets, 31);
	for (unsigned i = 0; i < st.n_buckets; i++) {
		char path[64], *text;
		struct tfile r;
		ssize_t len;

		(void)snprintf(path, sizeof(path), "%s/x", i == 30 ? "current" : st.buckets[i].name);
		r = t_file_open(t, path, O_RDONLY);
		text = t_get_fh(t, r.fh, &len);
		t_file_close(t, &r);
		ck_assert_int_gt(len, 0);
		ck_assert_int_eq(text[len - 1], '\n');
		for (char *l = text; *l; l = strchr(l, '\n') + 1, want++) {
			ck_assert_uint_eq(strtoul(l, NULL, 10), want);
			ck_assert_uint_eq((size_t)(strchr(l, '\n') - strchr(l, ' ')), want % 40 + 1);
		}
		free(text);
	}
	varve_status_done(&st);
	ck_assert_uint_eq(want, n);
}
END_TEST

/* -- the boundary: objects -- */

START_TEST(test_object_stays_whole)
{
	struct tfile f = t_file_open(t, "current/o", CREATE);

	t_puts(t, &f, "first half ");
	t_boundary(t);
	t_puts(t, &f, "second half");
	t_file_close(t, &f);
	t_expect(t, A "/o", "first half second half");
	t_expect_r(t, "current/o", -ENOENT);
	t_seal(t);
	t_expect(t, A "/o", "first half second half");
	t_expect_list(t, "current", "");
}
END_TEST

START_TEST(test_object_longer_than_the_grace)
{
	struct tfile f = t_file_open(t, "current/o", CREATE);

	t_puts(t, &f, "one\n");
	ck_assert_int_eq(t_chmod(t, "current/o", 0640), 0);
	t_boundary(t);
	t_puts(t, &f, "two\n");
	t_seal(t);
	/* A hole in front would be what others had. */
	t_puts(t, &f, "three\n");
	t_expect(t, A "/o", "one\ntwo\n");
	t_expect(t, "current/o", "three\n");
	ck_assert_int_eq(t_attr(t, "current/o").st_mode & 0777, 0640);
	/* As a stream it comes again. */
	t_boundary(t);
	t_puts(t, &f, "four\n");
	t_expect(t, B "/o", "three\n");
	t_expect(t, "current/o", "four\n");
	t_file_close(t, &f);
	t_boundary(t);
	t_expect(t, "current/o", "");
}
END_TEST

/* The name in B is somebody else's by then. */
START_TEST(test_object_meets_another)
{
	struct tfile f = t_file_open(t, "current/o", CREATE);

	t_puts(t, &f, "one\n");
	t_boundary(t);
	if (_i)
		t_put(t, "current/o", "new\n");
	else
		ck_assert_int_eq(t_try_mkdir(t, "current/o", 0755), 0);
	t_seal(t);
	if (_i) {
		t_puts(t, &f, "two\n");
		t_expect(t, "current/o", "new\ntwo\n");
	} else {
		/* There is no place for it. */
		ck_assert_int_eq(t_write(t, &f, "two\n", 4), -ESTALE);
		t_expect_list(t, "current/o", "");
	}
	t_expect(t, A "/o", "one\n");
	t_file_close(t, &f);
}
END_TEST

/* Its directory was removed meanwhile. */
START_TEST(test_directory_of_a_writer_is_removed)
{
	struct tfile f, g;

	ck_assert_int_eq(t_try_mkdir(t, "current/d", 0755), 0);
	ck_assert_int_eq(t_try_mkdir(t, "current/d/e", 0750), 0);
	f = t_file_open(t, "current/d/e/o", CREATE);
	t_puts(t, &f, "one\n");
	g = t_file_open(t, "current/d/e/s", APPEND);
	t_puts(t, &g, "uno\n");
	t_boundary(t);
	/* The stream is there in B; it is removed, and so are its directories. */
	ck_assert_int_eq(t_unlink(t, "current/d/e/s"), 0);
	ck_assert_int_eq(t_rmdir(t, "current/d/e"), 0);
	ck_assert_int_eq(t_rmdir(t, "current/d"), 0);
	t_seal(t);
	t_puts(t, &f, "two\n");
	t_expect(t, "current/d/e/o", "two\n");
	ck_assert_int_eq(t_attr(t, "current/d/e").st_mode & 07777, 0750);
	t_expect(t, A "/d/e/o", "one\n");
	/* Removed while held: it goes on nameless. */
	t_puts(t, &g, "due\n");
	t_expect_r(t, "current/d/e/s", -ENOENT);
	t_file_close(t, &f);
	t_file_close(t, &g);
	t_expect(t, A "/d/e/s", "uno\n");
}
END_TEST

START_TEST(test_removed_while_held)
{
	struct tfile f = t_file_open(t, "current/x", O_RDWR | O_APPEND | O_CREAT);
	struct stat st;
	int64_t valid;

	t_puts(t, &f, "one\n");
	ck_assert_int_eq(t_unlink(t, "current/x"), 0);
	t_expect_r(t, "current/x", -ENOENT);
	t_puts(t, &f, "two\n");
	t_expect_fh(t, f.fh, "one\ntwo\n");
	ck_assert_int_eq(varve_store_getattr(t->s, f.id, f.fh, &st, &valid), 0);
	ck_assert_uint_eq(st.st_nlink, 0);
	ck_assert_int_eq(st.st_size, 8);
	/* Another of the same name is another file. */
	t_append(t, "current/x", "new\n");
	ck_assert_uint_ne(t_ino(t, "current/x"), st.st_ino);
	t_boundary(t);
	t_puts(t, &f, "three\n");
	t_seal(t);
	t_puts(t, &f, "four\n");
	t_expect_fh(t, f.fh, "one\ntwo\nthree\nfour\n");
	ck_assert_int_eq(varve_store_fsync(t->s, f.fh), 0);
	t_expect(t, A "/x", "new\n");
	t_expect(t, "current/x", "");
	t_file_close(t, &f);
}
END_TEST

/* A stream that nothing was written to has no part yet. */
START_TEST(test_removed_before_the_first_byte)
{
	struct tfile f;

	t_append(t, "current/x", "one\n");
	t_boundary(t);
	f = t_file_open(t, "current/x", O_RDWR | O_APPEND);
	ck_assert_int_eq(t_unlink(t, "current/x"), 0);
	t_puts(t, &f, "two\n");
	t_expect_fh(t, f.fh, "two\n");
	ck_assert_int_eq(varve_store_fsync(t->s, f.fh), 0);
	t_expect_r(t, "current/x", -ENOENT);
	t_boundary(t);
	t_seal(t);
	t_puts(t, &f, "three\n");
	t_expect_fh(t, f.fh, "two\nthree\n");
	t_file_close(t, &f);
	t_expect_r(t, B, -ENOENT);
}
END_TEST

START_TEST(test_renamed_while_held)
{
	struct tfile f = t_file_open(t, "current/x.log", APPEND);
	uint64_t ino;

	t_puts(t, &f, "one\n");
	ino = t_ino(t, "current/x.log");
	ck_assert_int_eq(t_move(t, "current/x.log", "current/x.log.1", 0), 0);
	t_puts(t, &f, "two\n");
	t_append(t, "current/x.log", "new\n");
	t_expect(t, "current/x.log.1", "one\ntwo\n");
	ck_assert_uint_eq(t_ino(t, "current/x.log.1"), ino);
	t_boundary(t);
	/* What is appended to goes on, under its new name; who holds it is asked, no marker. */
	t_puts(t, &f, "three\n");
	t_expect(t, A "/x.log.1", "one\ntwo\n");
	t_expect(t, A "/x.log", "new\n");
	t_expect(t, "current/x.log.1", "three\n");
	t_file_close(t, &f);
	t_boundary(t);
	/* The new name was never opened to append. */
	t_expect_list(t, "current", "x.log");
}
END_TEST

/* -- fsync -- */

START_TEST(test_fsync_of_older_files)
{
	struct tfile f = t_file_open(t, "current/x", APPEND);
	struct varve_handle *h;

	t_puts(t, &f, "one\n");
	t_boundary(t);
	t_puts(t, &f, "two\n");
	t_boundary(t);
	t_puts(t, &f, "three\n");
	h = varve_handle_get(t->s, f.fh);
	ck_assert_uint_eq(h->n_unsynced, 2);
	ck_assert(h->dirty);
	if (_i == 1)
		t_seal(t);
	if (_i == 2)
		ck_assert_int_eq(t_drop(t, A), 0);
	ck_assert_int_eq(varve_store_fsync(t->s, f.fh), 0);
	ck_assert_uint_eq(h->n_unsynced, 0);
	ck_assert(!h->dirty);
	/* Nothing was written since: nothing to remember. */
	t_boundary(t);
	t_puts(t, &f, "four\n");
	ck_assert_uint_eq(h->n_unsynced, 0);
	varve_handle_put(t->s, h);
	ck_assert_int_eq(varve_store_fsync(t->s, f.fh), 0);
	t_file_close(t, &f);
}
END_TEST

START_TEST(test_fsync_of_nothing)
{
	struct tfile f;
	struct varve_entry e;

	t_append(t, "current/x", "");
	t_boundary(t);
	f = t_file_open(t, "current/x", APPEND);
	ck_assert_int_eq(varve_store_fsync(t->s, f.fh), 0);
	t_file_close(t, &f);
	f = t_file_open(t, "current/x", O_RDONLY);
	ck_assert_int_eq(varve_store_fsync(t->s, f.fh), 0);
	t_file_close(t, &f);
	ck_assert_int_eq(t_try_mkdir(t, "current/d", 0755), 0);
	ck_assert_int_eq(t_try_mkdir(t, ".staging/d", 0755), 0);
	t_put(t, "current/d/f", "x");
	for (int i = 0; i < 6; i++) {
		static const char *const dirs[] = {"", "current", "current/d", ".staging", ".staging/d",
						   A};

		if (t_walk(t, dirs[i], &e) < 0)
			continue;
		ck_assert_int_eq(varve_store_fsyncdir(t->s, e.id), 0);
		t_forget_dir(t, &e);
	}
	t_boundary(t);
	t_seal(t);
	ck_assert_int_eq(t_walk(t, B, &e), 0);
	ck_assert_int_eq(varve_store_fsyncdir(t->s, e.id), 0);
	t_forget(t, &e);
	ck_assert_int_eq(varve_store_fsyncdir(t->s, 424242), -ESTALE);
}
END_TEST

/* -- late data -- */

START_TEST(test_late_data)
{
	struct tfile f, g;

	t_append(t, "current/x", "one\n");
	t_boundary(t);
	f = t_file_open(t, A "/x", O_RDWR | O_APPEND);
	t_puts(t, &f, "late\n");
	t_expect_fh(t, f.fh, "one\nlate\n");
	/* A new file of the closing bucket, a new directory. */
	g = t_file_open(t, A "/y", CREATE);
	t_puts(t, &g, "new\n");
	ck_assert_int_eq(t_try_mkdir(t, A "/d", 0755), 0);
	t_append(t, A "/d/z", "deep\n");
	t_append(t, "current/x", "two\n");
	t_expect(t, A "/x", "one\nlate\n");
	t_expect(t, "current/x", "two\n");
	/* The dated path makes no stream, and nothing of it is in B. */
	t_expect_list(t, "current", "x");
	ck_assert_int_eq(write_at(&f, "bad", 1, O_RDWR), -EPERM);
	t_boundary(t);
	t_expect_list(t, "current", "x");
	t_puts(t, &f, "later\n");
	t_seal(t);
	/* Sealed: read-only for them. */
	ck_assert_int_eq(t_write(t, &f, "no\n", 3), -EROFS);
	ck_assert_int_eq(t_write(t, &g, "no\n", 3), -EROFS);
	t_expect_fh(t, f.fh, "one\nlate\nlater\n");
	ck_assert_int_eq(varve_store_fsync(t->s, f.fh), 0);
	t_file_close(t, &f);
	t_file_close(t, &g);
	t_expect(t, A "/x", "one\nlate\nlater\n");
	t_expect(t, A "/y", "new\n");
	t_expect(t, A "/d/z", "deep\n");
	ck_assert_int_eq(t_try_file(t, A "/x", O_WRONLY, 0, &f), -EROFS);
	ck_assert_int_eq(t_try_file(t, A "/x", O_RDWR | O_APPEND, 0, &f), -EROFS);
	ck_assert_int_eq(t_try_file(t, A "/x", O_RDONLY | O_TRUNC, 0, &f), -EROFS);
	ck_assert_int_eq(t_try_file(t, A "/new", CREATE, 0644, &f), -EROFS);
}
END_TEST

/* Between the end of the grace and the commit of the seal. */
START_TEST(test_no_late_data_once_shut)
{
	struct tfile f, g;

	t_append(t, "current/x", "one\n");
	t_boundary(t);
	f = t_file_open(t, A "/x", O_WRONLY | O_APPEND);
	{
		guard(&t->s->mutate);
		ck_assert_int_eq(varve_bucket_shut(t->s, t_find(t, A)), 0);
	}
	ck_assert_int_eq(t_write(t, &f, "no\n", 3), -EROFS);
	ck_assert_int_eq(t_try_file(t, A "/x", O_WRONLY | O_APPEND, 0, &g), -EROFS);
	ck_assert_int_eq(t_try_file(t, A "/x", O_RDONLY | O_TRUNC, 0, &g), -EROFS);
	ck_assert_int_eq(t_try_file(t, A "/y", CREATE, 0644, &g), -EROFS);
	ck_assert_int_eq(t_truncate(t, A "/x", 4), -EROFS);
	ck_assert_int_eq(t_chmod(t, A "/x", 0600), -EROFS);
	ck_assert_int_eq(t_setxattr(t, A "/x", "user.a", "b"), -EROFS);
	t_expect(t, A "/x", "one\n");
	t_file_close(t, &f);
}
END_TEST

/* By the path of current/, an old node: where the writers went. */
START_TEST(test_node_of_the_older_bucket)
{
	struct varve_entry old;
	struct varve_opened how;
	struct stat st;
	int64_t valid;

	t_append(t, "current/x", "one\n");
	ck_assert_int_eq(t_walk(t, "current/x", &old), 0);
	t_boundary(t);
	t_append(t, "current/x", "two\n");
	/* Reading: what was looked up. */
	ck_assert_int_eq(varve_store_open_file(t->s, old.id, O_RDONLY, &how), 0);
	t_expect_fh(t, how.fh, "one\n");
	varve_store_release(t->s, how.fh);
	ck_assert_int_eq(varve_store_getattr(t->s, old.id, 0, &st, &valid), 0);
	ck_assert_uint_eq(st.st_ino, old.attr.st_ino);
	t_seal(t);
	ck_assert_int_eq(varve_store_open_file(t->s, old.id, O_RDONLY, &how), 0);
	t_expect_fh(t, how.fh, "one\n");
	varve_store_release(t->s, how.fh);
	/* Writing: the name is to be looked up again. */
	ck_assert_int_eq(varve_store_open_file(t->s, old.id, O_WRONLY | O_APPEND, &how), -ESTALE);
	t_forget(t, &old);
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
	ck_assert_int_eq(varve_store_setattr(t->s, f.id, f.fh, &want, VARVE_SET_SIZE, &st, &valid), 0);
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
	ck_assert_int_eq(varve_store_fallocate(t->s, f.fh, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					       0, 4096), 0);
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
	static const int modes[] = {FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
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
		ck_assert_int_eq(varve_store_read(t->s, s.fh, buf, 16, UINT64_C(1) << 60, false), 0);
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

/* -- numbers, modes, references -- */

START_TEST(test_numbers_for_life)
{
	struct tfile f = t_file_open(t, "current/s", APPEND);
	uint64_t s, o, d, unwritten;
	struct stat st;
	int64_t valid;

	ck_assert_int_eq(t_try_mkdir(t, "current/d", 0755), 0);
	t_puts(t, &f, "one\n");
	t_put(t, "current/d/o", "x");
	s = t_ino(t, "current/s");
	o = t_ino(t, "current/d/o");
	d = t_ino(t, "current/d");
	t_boundary(t);
	ck_assert_uint_eq(t_ino(t, A "/s"), s);
	ck_assert_uint_eq(t_ino(t, A "/d/o"), o);
	/* The skeleton's directory is the same for ever; the bucket's is its own. */
	ck_assert_uint_eq(t_ino(t, "current/d"), d);
	ck_assert_uint_ne(t_ino(t, A "/d"), d);
	/* Nothing was written to it in B yet: the number is there already. */
	unwritten = t_ino(t, "current/s");
	ck_assert_uint_ne(unwritten, s);
	t_expect_list(t, "current", "d s");
	reopen();
	ck_assert_uint_eq(t_ino(t, "current/s"), unwritten);
	f = t_file_open(t, "current/s", APPEND);
	t_puts(t, &f, "two\n");
	ck_assert_uint_eq(t_ino(t, "current/s"), unwritten);
	t_boundary(t);
	/* Through the handle it is the number that was opened, though it writes elsewhere. */
	t_puts(t, &f, "three\n");
	ck_assert_int_eq(varve_store_getattr(t->s, f.id, f.fh, &st, &valid), 0);
	ck_assert_uint_eq(st.st_ino, unwritten);
	ck_assert_int_eq(st.st_size, 6);
	t_file_close(t, &f);
	t_seal(t);
	ck_assert_uint_eq(t_ino(t, A "/s"), s);
	ck_assert_uint_eq(t_ino(t, B "/s"), unwritten);
	t_expect_list(t, A "/d", "o");
	reopen();
	ck_assert_uint_eq(t_ino(t, A "/s"), s);
	ck_assert_uint_eq(t_ino(t, A "/d/o"), o);
	ck_assert_uint_eq(t_ino(t, B "/s"), unwritten);
	ck_assert_uint_eq(t_ino(t, "current/d"), d);
}
END_TEST

/* Case 12, small: no number is used twice, none changes by sealing or remounting. */
START_TEST(test_numbers_over_many_boundaries)
{
	static uint64_t seen[4096];
	size_t n = 0;

	for (int b = 0; b < 60; b++) {
		char path[64], bucket[VARVE_BUCKET_NAME_MAX];
		uint64_t inos[8];

		for (int i = 0; i < 8; i++) {
			(void)snprintf(path, sizeof(path), i < 4 ? "current/s%d" : "current/o%d", i);
			if ((b + i) % 3 == 0)
				t_append(t, path, "x\n");
			else if (i >= 4)
				t_put(t, path, "y\n");
			else if (b == 0)
				t_append(t, path, "");
			inos[i] = t_ino(t, path);
			for (size_t k = 0; k < n; k++)
				ck_assert_uint_ne(seen[k], inos[i]);
			seen[n++] = inos[i];
		}
		(void)strcpy(bucket, t_bucket(t));
		t_boundary(t);
		if (b % 2)
			t_seal(t);
		if (b % 5 == 0)
			reopen();
		for (int i = 0; i < 8; i++) {
			struct stat st;

			(void)snprintf(path, sizeof(path), "%s/%c%d", bucket, i < 4 ? 's' : 'o', i);
			/* Streams that nothing was written to left nothing. */
			if (t_stat(t, path, &st) == 0)
				ck_assert_uint_eq(st.st_ino, inos[i]);
			else
				ck_assert_int_lt(i, 4);
		}
		if (b % 7 == 6)
			ck_assert_int_eq(t_drop(t, bucket), 0);
	}
}
END_TEST

START_TEST(test_modes_survive_boundaries)
{
	struct stat st, want = {.st_mode = 0640, .st_uid = 33, .st_gid = 4};

	t_append(t, "current/x.log", "one\n");
	ck_assert_int_eq(t_setattr(t, "current/x.log", &want,
				   VARVE_SET_MODE | VARVE_SET_UID | VARVE_SET_GID), 0);
	ck_assert_int_eq(t_setxattr(t, "current/x.log", "user.note", "kept"), 0);
	for (int i = 0; i < 4; i++) {
		t_boundary(t);
		if (i == 1)
			reopen();
		st = t_attr(t, "current/x.log");
		ck_assert_int_eq(st.st_mode, S_IFREG | 0640);
		ck_assert_int_eq(st.st_uid, 33);
		ck_assert_int_eq(st.st_gid, 4);
		ck_assert_int_eq(st.st_size, 0);
		t_expect_xattr(t, "current/x.log", "user.note", "kept");
		if (i == 2)
			t_append(t, "current/x.log", "two\n");
		st = t_attr(t, "current/x.log");
		ck_assert_int_eq(st.st_mode, S_IFREG | 0640);
		ck_assert_int_eq(st.st_uid, 33);
		t_expect_xattr(t, "current/x.log", "user.note", "kept");
	}
	/* Without a part, too. */
	want.st_mode = 0600;
	ck_assert_int_eq(t_setattr(t, "current/x.log", &want, VARVE_SET_MODE), 0);
	ck_assert_int_eq(t_attr(t, "current/x.log").st_mode, S_IFREG | 0600);
	t_append(t, "current/x.log", "three\n");
	ck_assert_int_eq(t_attr(t, "current/x.log").st_mode, S_IFREG | 0600);
	t_seal(t);
	st = t_attr(t, A "/x.log");
	ck_assert_int_eq(st.st_mode, S_IFREG | 0640);
	ck_assert_int_eq(st.st_uid, 33);
	t_expect_xattr(t, A "/x.log", "user.note", "kept");
	t_expect_xattr(t, A "/x.log", "user.varve.state", "sealed");
	t_expect_xattr(t, "current/x.log", "user.varve.state", "open");
	ck_assert_int_eq(t_setattr(t, A "/x.log", &want, VARVE_SET_MODE), -EROFS);
	ck_assert_int_eq(t_setxattr(t, A "/x.log", "user.note", NULL), -EROFS);
}
END_TEST

START_TEST(test_times)
{
	struct stat st, want = {.st_mtim = {.tv_sec = -100, .tv_nsec = 5}};

	/* Before 1970, and after 2038. */
	for (int i = 0; i < 2; i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), "current/x%d", i);
		t_put(t, path, "x");
		if (i)
			want.st_mtim.tv_sec = INT64_C(5000000000);
		ck_assert_int_eq(t_setattr(t, path, &want, VARVE_SET_MTIME), 0);
	}
	t_boundary(t);
	t_seal(t);
	st = t_attr(t, A "/x0");
	ck_assert_int_eq(st.st_mtim.tv_sec, -100);
	ck_assert_int_eq(st.st_mtim.tv_nsec, 5);
	ck_assert_int_eq(t_attr(t, A "/x1").st_mtim.tv_sec, INT64_C(5000000000));
}
END_TEST

/* An object becomes a stream by being opened with O_APPEND, not by being written to. */
START_TEST(test_what_makes_a_stream)
{
	struct tfile f;

	t_put(t, "current/a", "x\n");
	t_put(t, "current/b", "x\n");
	t_put(t, "current/c", "x\n");
	f = t_file_open(t, "current/a", O_WRONLY | O_APPEND);
	t_file_close(t, &f);
	f = t_file_open(t, "current/b", O_RDONLY | O_APPEND);
	t_file_close(t, &f);
	f = t_file_open(t, "current/c", O_WRONLY);
	f.pos = 2;
	t_puts(t, &f, "more\n");
	t_file_close(t, &f);
	t_boundary(t);
	t_expect_list(t, "current", "a");
}
END_TEST

/* What the kernel has looked up is given back in one go or one by one; nothing is left. */
START_TEST(test_references)
{
	struct varve_entry e, again;
	uint32_t before = t->s->n_ids;
	uint64_t ids[3][100];
	char path[64];

	for (int b = 0; b < 3; b++) {
		for (int i = 0; i < 100; i++) {
			(void)snprintf(path, sizeof(path), "current/f%d", i);
			t_append(t, path, "x\n");
			ck_assert_int_eq(t_walk(t, path, &e), 0);
			ids[b][i] = e.id;
			ck_assert_int_eq(t_walk(t, path, &again), 0);
			ck_assert_uint_eq(again.id, e.id);
			ck_assert_int_eq(t_walk(t, path, &again), 0);
		}
		t_boundary(t);
		if (b < 2)
			t_seal(t);
	}
	/* Dropped while the kernel knows it. */
	ck_assert_int_eq(t_drop(t, A), 0);
	for (int b = 0; b < 3; b++)
		for (int i = 0; i < 100; i++) {
			struct stat st;
			int64_t valid;

			ck_assert_int_eq(varve_store_getattr(t->s, ids[b][i], 0, &st, &valid), 0);
			varve_store_forget(t->s, ids[b][i], i % 2 ? 3 : 1);
			if (i % 2 == 0)
				varve_store_forget(t->s, ids[b][i], 2);
			/* More than it was given does no harm. */
			varve_store_forget(t->s, ids[b][i], 1);
		}
	t_seal(t);
	t_check(t);
	ck_assert_uint_eq(t->s->n_ids, before);
	varve_store_forget(t->s, 4711, 1);
	ck_assert_int_eq(varve_store_getattr(t->s, ids[0][0], 0, &e.attr, &e.attr_valid_ns), -ESTALE);
}
END_TEST

/* Files that come and go within a window leave nothing behind, not even until it is sealed. */
START_TEST(test_files_that_come_and_go)
{
	uint32_t before;

	t_append(t, "current/x", "x\n");
	before = t->s->n_ids;
	for (int i = 0; i < 1000; i++) {
		t_append(t, "current/tmp", "x\n");
		ck_assert_int_eq(t_unlink(t, "current/tmp"), 0);
	}
	ck_assert_uint_le(t->s->n_ids, before + 8);
}
END_TEST

/* What counts towards max-size is what has a name. */
START_TEST(test_accounts)
{
	const char *path = _i ? ".staging/tmp" : "current/tmp";
	struct tfile f = t_file_open(t, path, O_RDWR | O_CREAT);
	char *text = xs(100000);
	struct stat st, zero = {.st_size = 0};
	int64_t valid;

	t_puts(t, &f, text);
	t_check(t);
	ck_assert_int_eq(t_unlink(t, path), 0);
	t_check(t);
	ck_assert_int_eq(varve_store_setattr(t->s, f.id, f.fh, &zero, VARVE_SET_SIZE, &st, &valid), 0);
	t_check(t);
	f.pos = 0;
	t_puts(t, &f, text);
	t_check(t);
	t_file_close(t, &f);
	t_check(t);
	free(text);
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
	/* The boundary comes all the same; what is written then meets the full disk. */
	t_boundary(t);
	ck_assert_str_eq(t_bucket(t), B);
	ck_assert_int_eq(t_attr(t, A "/x").st_size, (off_t)total);
	a = t_find(t, A);
	ck_assert_int_eq(t_write(t, &f, "x\n", 2) < 0 ? 0 : 1, 0);
	/* xs() shrinks to nothing: there is room to seal it only by chance; either way nothing is lost. */
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
	/* A file that can't be marked is none, or no stream: whatever it is, memory and disk agree. */
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

/* -- all at once -- */

#define WRITERS 4
#define LINES 4000

struct writer {
	pthread_t thread;
	int i;
	bool done; /* joined */
};

static atomic_bool stop_all;

/* Lines "WRITER NUMBER": some by one descriptor, some by a new one each time. */
static void *write_lines(void *arg)
{
	struct writer *w = arg;
	struct tfile f = {.fh = 0};
	char path[64];

	(void)snprintf(path, sizeof(path), w->i % 2 ? "current/shared" : "current/d/own%d", w->i);
	for (int n = 0; n < LINES; n++) {
		char line[32];

		(void)snprintf(line, sizeof(line), "%d %d\n", w->i, n);
		if (!f.fh)
			f = t_file_open(t, path, APPEND);
		t_puts(t, &f, line);
		if (n % 500 == 0)
			ck_assert_int_eq(varve_store_fsync(t->s, f.fh), 0);
		if (w->i >= 2 && n % 7 == 0) {
			t_file_close(t, &f);
			f.fh = 0;
		}
	}
	if (f.fh)
		t_file_close(t, &f);
	return NULL;
}

static void *look_around(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop_all)) {
		struct varve_entry e;
		struct varve_status st;
		struct tlist l = {.most = 512};
		uint64_t dh;

		ck_assert_int_eq(varve_store_opendir(t->s, VARVE_ID_ROOT, &dh), 0);
		ck_assert_int_eq(varve_store_readdir(t->s, dh, 0, false, t_list_one, &l), 0);
		varve_store_releasedir(t->s, dh);
		for (size_t i = 0; i < l.n; i++) {
			char path[300];
			struct tfile f;
			ssize_t len;

			(void)snprintf(path, sizeof(path), "%s", l.names[i]);
			if (l.names[i][0] == '.' || t_walk(t, path, &e) < 0)
				continue;
			t_forget(t, &e);
			(void)snprintf(path, sizeof(path), "%s/shared", l.names[i]);
			if (t_walk(t, path, &e) < 0)
				continue;
			if (S_ISREG(e.attr.st_mode) &&
			    varve_store_open_file(t->s, e.id, O_RDONLY, &f.how) == 0) {
				free(t_get_fh(t, f.how.fh, &len));
				ck_assert_int_ge(len, 0);
				varve_store_release(t->s, f.how.fh);
			}
			t_forget(t, &e);
		}
		t_list_done(&l);
		ck_assert_int_eq(varve_store_status(t->s, &st), 0);
		varve_status_done(&st);
	}
	return NULL;
}

/* Reads one file's lines and holds each writer's against what is expected next. */
static void take_lines(const char *path, int next[WRITERS])
{
	struct tfile f;
	struct stat st;
	ssize_t len;
	char *text;

	if (t_stat(t, path, &st) < 0)
		return;
	f = t_file_open(t, path, O_RDONLY);
	text = t_get_fh(t, f.fh, &len);
	ck_assert_int_ge(len, 0);
	t_file_close(t, &f);
	for (char *l = text; *l; l = strchr(l, '\n') + 1) {
		int w, n;

		ck_assert_ptr_nonnull(strchr(l, '\n'));
		ck_assert_int_eq(sscanf(l, "%d %d\n", &w, &n), 2);
		ck_assert(w >= 0 && w < WRITERS);
		ck_assert_msg(n == next[w], "%s: %.20s, not %d", path, l, next[w]);
		next[w]++;
	}
	free(text);
}

START_TEST(test_all_at_once)
{
	struct writer w[WRITERS];
	struct varve_status st;
	pthread_t looker;
	int next[WRITERS] = {0};
	bool busy = true;

	ck_assert_int_eq(t_try_mkdir(t, "current/d", 0755), 0);
	t_start(t);
	atomic_store(&stop_all, false);
	ck_assert_int_eq(pthread_create(&looker, NULL, look_around, NULL), 0);
	for (int i = 0; i < WRITERS; i++) {
		w[i] = (struct writer){.i = i};
		ck_assert_int_eq(pthread_create(&w[i].thread, NULL, write_lines, &w[i]), 0);
	}
	/* An hour every few milliseconds. */
	while (busy) {
		struct varve_err err = {.msg = ""};
		char was[VARVE_BUCKET_NAME_MAX];

		{
			guard(&t->s->ns);
			(void)strcpy(was, t->s->current->name);
		}
		(void)usleep(5000);
		t_pass(t, T_HOUR);
		{
			guard(&t->s->ns);
			(void)pthread_cond_signal(&t->s->wake_keeper);
		}
		for (int k = 0; k < 10000 && varve_store_seal(t->s, was, 0, &err) == -EBUSY; k++)
			(void)usleep(200);
		busy = false;
		for (int k = 0; k < WRITERS; k++) {
			w[k].done = w[k].done || pthread_tryjoin_np(w[k].thread, NULL) == 0;
			busy = busy || !w[k].done;
		}
	}
	atomic_store(&stop_all, true);
	ck_assert_int_eq(pthread_join(looker, NULL), 0);
	ck_assert_int_eq(varve_store_status(t->s, &st), 0);
	ck_assert_uint_gt(st.n_buckets, 3);
	for (unsigned i = 0; i < st.n_buckets; i++) {
		char path[64];
		const char *b = i == st.n_buckets - 1 ? "current" : st.buckets[i].name;

		(void)snprintf(path, sizeof(path), "%s/shared", b);
		take_lines(path, next);
		for (int k = 0; k < WRITERS; k += 2) {
			(void)snprintf(path, sizeof(path), "%s/d/own%d", b, k);
			take_lines(path, next);
		}
	}
	varve_status_done(&st);
	for (int i = 0; i < WRITERS; i++)
		ck_assert_int_eq(next[i], LINES);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *s = suite_create("store_io");
	TCase *c = tcase_create("store_io"), *full = tcase_create("full"), *busy = tcase_create("busy");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_append_anywhere);
	tcase_add_test(c, test_only_appends);
	tcase_add_test(c, test_flag_is_taken_off);
	tcase_add_test(c, test_two_that_began_anew);
	tcase_add_test(c, test_truncated_below_a_writer);
	tcase_add_test(c, test_wrong_handles);
	tcase_add_test(c, test_large_writes);
	tcase_add_loop_test(c, test_line_over_the_boundary, 0,
			    (int)(sizeof(line_cases) / sizeof(*line_cases)));
	tcase_add_loop_test(c, test_line_without_end, 0, 8);
	tcase_add_test(c, test_line_of_several_writers);
	tcase_add_test(c, test_new_writer_does_not_finish_a_line);
	tcase_add_loop_test(c, test_writer_that_sleeps, 0, 2);
	tcase_add_test(c, test_one_descriptor_for_ever);
	tcase_add_test(c, test_object_stays_whole);
	tcase_add_test(c, test_object_longer_than_the_grace);
	tcase_add_loop_test(c, test_object_meets_another, 0, 2);
	tcase_add_test(c, test_directory_of_a_writer_is_removed);
	tcase_add_test(c, test_removed_while_held);
	tcase_add_test(c, test_removed_before_the_first_byte);
	tcase_add_test(c, test_renamed_while_held);
	tcase_add_loop_test(c, test_fsync_of_older_files, 0, 3);
	tcase_add_test(c, test_fsync_of_nothing);
	tcase_add_test(c, test_late_data);
	tcase_add_test(c, test_no_late_data_once_shut);
	tcase_add_test(c, test_node_of_the_older_bucket);
	tcase_add_test(c, test_truncation);
	tcase_add_test(c, test_truncation_by_handle);
	tcase_add_test(c, test_staging_is_ordinary);
	tcase_add_test(c, test_fallocate);
	tcase_add_test(c, test_worm);
	tcase_add_test(c, test_reading_over_the_life);
	tcase_add_test(c, test_closing_is_dropped);
	tcase_add_test(c, test_numbers_for_life);
	tcase_add_test(c, test_numbers_over_many_boundaries);
	tcase_add_test(c, test_modes_survive_boundaries);
	tcase_add_test(c, test_times);
	tcase_add_test(c, test_what_makes_a_stream);
	tcase_add_test(c, test_references);
	tcase_add_test(c, test_files_that_come_and_go);
	tcase_add_loop_test(c, test_accounts, 0, 2);
	suite_add_tcase(s, c);
	tcase_add_checked_fixture(full, small_set_up, small_tear_down);
	tcase_set_timeout(full, 60);
	tcase_add_test(full, test_disk_full);
	tcase_add_loop_test(full, test_no_room_to_seal, 0, 2);
	tcase_add_test(full, test_no_inodes_left);
	suite_add_tcase(s, full);
	tcase_add_checked_fixture(busy, set_up, tear_down);
	tcase_set_timeout(busy, 100);
	tcase_add_test(busy, test_all_at_once);
	suite_add_tcase(s, busy);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(make_suite());
	int failed;

	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
