/*
 * Writers over a boundary: lines, objects, files that are removed and renamed while they are held,
 * fsync of what was left behind, late data; and many at once.
 */
#include "store_io_util.h"

/* -- the boundary: lines -- */

/* What is in the file when the boundary comes, what is written afterwards by the same handle, and
 * what of it is where. */
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
	size_t len = line_lengths[_i / 2], chunk = _i % 2 ? 1000 : len,
	       in_a = len < 65536 ? len : 65536;
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
	struct tfile f = t_file_open(t, "current/x", APPEND),
		     g = t_file_open(t, "current/x", APPEND), h;

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
			size_t len = (size_t)snprintf(
				       line, sizeof(line), "%u %.*s\n", n, (int)(n % 40),
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

		(void)snprintf(path, sizeof(path), "%s/x",
			       i == 30 ? "current" : st.buckets[i].name);
		r = t_file_open(t, path, O_RDONLY);
		text = t_get_fh(t, r.fh, &len);
		t_file_close(t, &r);
		ck_assert_int_gt(len, 0);
		ck_assert_int_eq(text[len - 1], '\n');
		for (char *l = text; *l; l = strchr(l, '\n') + 1, want++) {
			ck_assert_uint_eq(strtoul(l, NULL, 10), want);
			ck_assert_uint_eq((size_t)(strchr(l, '\n') - strchr(l, ' ')),
					  want % 40 + 1);
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
		static const char *const dirs[] = {"",         "current",    "current/d",
						   ".staging", ".staging/d", A};

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
		varve_bucket_shut(t->s, t_find(t, A));
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
	Suite *s = suite_create("store_boundary");
	TCase *c = tcase_create("store_boundary"), *busy = tcase_create("busy");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_set_timeout(c, 60);
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
	suite_add_tcase(s, c);
	tcase_add_checked_fixture(busy, set_up, tear_down);
	tcase_set_timeout(busy, 100);
	tcase_add_test(busy, test_all_at_once);
	suite_add_tcase(s, busy);
	return s;
}

int main(void)
{
	return t_main(make_suite());
}
