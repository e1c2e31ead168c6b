/*
 * Carried parts: what the kernel writes to by itself goes on over a boundary. Which opens let it; which
 * bytes are whose; names, truncation, late data, fsync. Sealing, drops: test_carry_seal.c; remounts and
 * crashes: test_carry_recover.c.
 */
#include "carry_util.h"

/* -- which opens get a number -- */

START_TEST(test_first_open_decides)
{
	/* Whichever opens first, all that have it open at a time share the number. */
	static const int orders[][4] = {
		{APPEND, O_RDONLY, O_RDWR, APPEND},
		{O_RDONLY, APPEND, O_WRONLY, O_RDWR},
		{O_RDWR, O_WRONLY, APPEND, O_RDONLY},
		{O_WRONLY, O_RDWR | O_APPEND, O_RDONLY, APPEND},
	};
	struct tfile f[4];

	t_append(t, "current/x", "one\n");
	for (int i = 0; i < 4; i++) {
		int flags = orders[_i][i];
		bool pure = (flags & O_ACCMODE) == O_WRONLY && flags & O_APPEND;

		f[i] = t_file_open(t, "current/x", flags);
		/* The append that made it had one of its own. */
		ck_assert_int_eq(f[i].how.backing, 2);
		ck_assert_int_eq(f[i].how.direct_io, !pure);
		ck_assert_int_eq(kernel.live, 1);
	}
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(kernel.live, 1);
		t_file_close(t, &f[i]);
	}
	ck_assert_int_eq(kernel.live, 0);
	f[0] = t_file_open(t, "current/x", APPEND);
	ck_assert_int_eq(f[0].how.backing, 3);
	t_file_close(t, &f[0]);
}
END_TEST

/* Where no number could be had the kernel must have seen the answer without one before it gets one with a number of the
 * same inode. */
START_TEST(test_answers_arrive_in_order)
{
	struct timespec begin, end;
	struct tfile r, w;

	t_append(t, "current/x", "one\n");
	t_boundary(t);
	kernel.refuse = -EMFILE;
	r = t_file_open(t, "current/x", O_RDONLY);
	ck_assert_int_eq(r.how.backing, 0);
	(void)clock_gettime(CLOCK_MONOTONIC, &begin);
	w = t_file_open(t, "current/x", APPEND);
	(void)clock_gettime(CLOCK_MONOTONIC, &end);
	ck_assert_int_gt(w.how.backing, 0);
	ck_assert_int_ge((end.tv_sec - begin.tv_sec) * 1000000000L + end.tv_nsec - begin.tv_nsec, 5000000);
	t_file_close(t, &w);
	t_file_close(t, &r);
}
END_TEST

/* A stream without a part gets one for an appender, so that the kernel has something to write to. */
START_TEST(test_empty_stream)
{
	struct kfile k;

	t_append(t, "current/x", "one\n");
	t_boundary(t);
	t_seal(t);
	ck_assert(!has_part(B, "x"));
	k = k_native("current/x");
	k_puts(&k, "two\n");
	t_expect(t, "current/x", "two\n");
	k_close(&k);
	t_expect(t, A "/x", "one\n");
}
END_TEST

START_TEST(test_not_these)
{
	struct tfile f;

	t_append(t, "current/x", "one\n");
	kernel.n = 10;
	f = t_file_open(t, ".staging/s", APPEND);
	ck_assert_int_eq(f.how.backing, 0);
	t_file_close(t, &f);
	/* The dated path is an inode of its own. */
	t_boundary(t);
	f = t_file_open(t, A "/x", O_WRONLY | O_APPEND);
	ck_assert_int_eq(f.how.backing, 0);
	ck_assert(f.how.direct_io);
	t_file_close(t, &f);
	ck_assert_int_eq(kernel.n, 10);
	/* A sealed one. */
	t_seal(t);
	f = t_file_open(t, A "/x", O_RDONLY);
	ck_assert_int_eq(f.how.backing, 0);
	t_file_close(t, &f);
	ck_assert_int_eq(kernel.n, 10);
}
END_TEST

START_TEST(test_policy)
{
	struct tfile f;
	char mode[128];

	varve_store_mode(t->s, mode, sizeof(mode));
	ck_assert_str_eq(mode, "passthrough");
	t_close(t);
	if (_i)
		t_option(t, "worm", NULL);
	else
		t_option(t, "passthrough", "no");
	open_store(t);
	varve_store_mode(t->s, mode, sizeof(mode));
	ck_assert_ptr_nonnull(strstr(mode, _i ? "worm" : "passthrough=no"));
	f = t_file_open(t, "current/x", APPEND);
	ck_assert_int_eq(f.how.backing, 0);
	ck_assert(f.how.direct_io);
	t_file_close(t, &f);
	ck_assert_int_eq(kernel.n, 0);
}
END_TEST

START_TEST(test_refused)
{
	struct tfile f;
	char mode[128];

	/* For want of something: the next one may get it. */
	kernel.refuse = -EMFILE;
	f = t_file_open(t, "current/x", APPEND);
	ck_assert_int_eq(f.how.backing, 0);
	ck_assert(f.how.direct_io);
	t_puts(t, &f, "one\n");
	t_expect(t, "current/x", "one\n");
	t_file_close(t, &f);
	f = t_file_open(t, "current/x", APPEND);
	ck_assert_int_gt(f.how.backing, 0);
	t_file_close(t, &f);
	/* For good. */
	kernel.refuse = -EOPNOTSUPP;
	f = t_file_open(t, "current/x", APPEND);
	ck_assert_int_eq(f.how.backing, 0);
	t_puts(t, &f, "two\n");
	t_file_close(t, &f);
	varve_store_mode(t->s, mode, sizeof(mode));
	ck_assert_ptr_nonnull(strstr(mode, "served by the daemon"));
	f = t_file_open(t, "current/y", APPEND);
	ck_assert_int_eq(f.how.backing, 0);
	t_file_close(t, &f);
	t_boundary(t);
	t_expect(t, A "/x", "one\ntwo\n");
}
END_TEST

/* Where the head is not 0 it is served, until its holders are gone and a bucket has passed. */
START_TEST(test_head_not_0)
{
	struct kfile k = k_native("current/x"), more;

	k_puts(&k, "one\n");
	t_boundary(t);
	more = k_open("current/x");
	ck_assert_int_lt(more.fd, 0);
	ck_assert_int_eq(more.f.how.backing, 0);
	k_puts(&more, "two\n");
	k_puts(&k, "three\n");
	k_puts(&more, "four\n");
	t_expect(t, "current/x", "two\nthree\nfour\n");
	k_close(&k);
	k_puts(&more, "five\n");
	t_expect(t, "current/x", "two\nthree\nfour\nfive\n");
	k_close(&more);
	/* Still a head. */
	more = k_open("current/x");
	ck_assert_int_lt(more.fd, 0);
	k_close(&more);
	t_boundary(t);
	more = k_native("current/x");
	k_puts(&more, "six\n");
	t_expect(t, "current/x", "six\n");
	k_close(&more);
	t_expect(t, B "/x", "two\nthree\nfour\nfive\n");
	t_expect(t, A "/x", "one\n");
}
END_TEST

/* -- a boundary -- */

static const struct carry_case {
	const char *before, *after[3];
	const char *in_a, *in_b;
	const char *cut_byte; /* how much of it is A's with cut=byte */
} cases[] = {
	{"one\n", {"two\n"}, "one\n", "two\n", "one\n"},
	{"one\n", {"two\n", "three\n"}, "one\n", "two\nthree\n", "one\n"},
	{"o", {"ne\ntwo\n"}, "one\n", "two\n", "o"},
	{"o", {"n", "e\n", "two\n"}, "one\n", "two\n", "o"},
	{"o", {"ne\nt", "wo\n"}, "one\n", "two\n", "o"},
	{"one\nt", {"\n\n"}, "one\nt\n", "\n", "one\nt"},
	{"o", {"ne"}, "one", "", "o"},
	{"o", {NULL}, "o", "", "o"},
	{"one\n", {NULL}, "one\n", "", "one\n"},
	{"", {"one\n"}, "", "one\n", ""},
	{"", {NULL}, "", "", ""},
	{"\n", {"one\n"}, "\n", "one\n", "\n"},
};

static void expect_if(const char *path, const char *want)
{
	if (*want)
		t_expect(t, path, want);
}

START_TEST(test_boundary)
{
	const struct carry_case *c = &cases[_i / 2];
	char all[64] = "", seen[64];
	struct kfile k;
	struct tfile r;
	const char *in_a = c->in_a, *in_b = c->in_b;

	if (_i % 2) {
		t_close(t);
		t_option(t, "cut", "byte");
		open_store(t);
	}
	k = k_native("current/x");
	k_puts(&k, c->before);
	(void)strcat(all, c->before);
	r = t_file_open(t, "current/x", O_RDONLY);
	t_expect_fh(t, r.fh, c->before);
	t_boundary(t);
	for (int i = 0; i < 3 && c->after[i]; i++) {
		k_puts(&k, c->after[i]);
		(void)strcat(all, c->after[i]);
	}
	if (_i % 2) {
		in_a = c->cut_byte;
		in_b = strcpy(seen, all + strlen(in_a));
	}
	/* One who had it open before the boundary sees A's, and no more. */
	t_expect_fh(t, r.fh, in_a);
	t_file_close(t, &r);
	expect_if(A "/x", in_a);
	t_expect(t, "current/x", in_b);
	t_seal(t);
	expect_if(A "/x", in_a);
	/* A line that was not finished when the grace ended goes on in B. */
	k_puts(&k, "last\n");
	expect_if(A "/x", in_a);
	k_close(&k);
	{
		char want[80];

		(void)snprintf(want, sizeof(want), "%slast\n", in_b);
		t_expect(t, "current/x", want);
		t_boundary(t);
		t_expect(t, B "/x", want);
		t_seal(t);
		t_expect(t, B "/x", want);
	}
	expect_if(A "/x", in_a);
	t_expect(t, "current/x", "");
	t_close(t);
	t_expect_dir(t_at(t, "open"), "");
	open_store(t);
	expect_if(A "/x", in_a);
}
END_TEST

/* A long line: 64 KiB of it go into A. */
START_TEST(test_line_without_end)
{
	struct kfile k = k_native("current/x");
	char *text = malloc(100001);

	memset(text, 'x', 100000);
	text[100000] = '\0';
	k_puts(&k, "begin");
	t_boundary(t);
	k_puts(&k, text);
	ck_assert_int_eq(t_attr(t, A "/x").st_size, 5 + 65536);
	ck_assert_int_eq(t_attr(t, "current/x").st_size, 100000 - 65536);
	k_close(&k);
	t_seal(t);
	ck_assert_int_eq(t_attr(t, A "/x").st_size, 5 + 65536);
	ck_assert_int_eq(t_attr(t, "current/x").st_size, 100000 - 65536);
	free(text);
}
END_TEST

/* Attributes are those of the boundary. */
START_TEST(test_attributes)
{
	struct kfile k = k_native("current/x");
	uint64_t ino_a = t_ino(t, "current/x"), ino_b;
	struct stat st;

	k_puts(&k, "one\n");
	ck_assert_int_eq(t_chmod(t, "current/x", 0604), 0);
	ck_assert_int_eq(t_setxattr(t, "current/x", "user.note", "a"), 0);
	ck_assert_int_eq(t_setattr(t, "current/x", &(struct stat){.st_uid = 3, .st_gid = 4},
				   VARVE_SET_UID | VARVE_SET_GID), 0);
	t_boundary(t);
	ino_b = t_ino(t, "current/x");
	ck_assert_uint_ne(ino_a, ino_b);
	k_puts(&k, "two\n");
	ck_assert_int_eq(t_chmod(t, "current/x", 0600), 0);
	ck_assert_int_eq(t_setxattr(t, "current/x", "user.note", "b"), 0);
	ck_assert_int_eq(t_setattr(t, "current/x", &(struct stat){.st_uid = 5, .st_gid = 6},
				   VARVE_SET_UID | VARVE_SET_GID), 0);
	for (int i = 0; i < 3; i++) {
		st = t_attr(t, A "/x");
		ck_assert_uint_eq(st.st_ino, ino_a);
		ck_assert_int_eq(st.st_mode & 07777, 0604);
		ck_assert_int_eq(st.st_uid, 3);
		ck_assert_int_eq(st.st_gid, 4);
		t_expect_xattr(t, A "/x", "user.note", "a");
		st = t_attr(t, "current/x");
		ck_assert_uint_eq(st.st_ino, ino_b);
		ck_assert_int_eq(st.st_mode & 07777, 0600);
		ck_assert_int_eq(st.st_uid, 5);
		t_expect_xattr(t, "current/x", "user.note", "b");
		if (i == 0) {
			k_close(&k);
			reopen();
		} else if (i == 1) {
			t_seal(t);
		}
	}
}
END_TEST

START_TEST(test_many_boundaries)
{
	static const char *const bucket[] = {A, B, C, D};
	struct kfile k = k_native("current/x");
	char want[16];

	for (int i = 0; i < 4; i++) {
		(void)snprintf(want, sizeof(want), "line %d\n", i);
		/* In the second nothing is written. */
		if (i != 1)
			k_puts(&k, want);
		t_boundary(t);
		if (_i & 1)
			t_seal(t);
		if (_i & 2)
			t_reap(t);
	}
	k_puts(&k, "end\n");
	for (int i = 0; i < 4; i++) {
		char path[32];

		(void)snprintf(path, sizeof(path), "%s/x", bucket[i]);
		(void)snprintf(want, sizeof(want), "line %d\n", i);
		if (i == 1)
			t_expect_r(t, path, -ENOENT);
		else
			t_expect(t, path, want);
	}
	t_expect(t, "current/x", "end\n");
	k_close(&k);
	t_expect(t, "current/x", "end\n");
	t_seal(t);
	t_reap(t);
	for (int i = 0; i < 4; i++) {
		char path[32];

		(void)snprintf(path, sizeof(path), "%s/x", bucket[i]);
		(void)snprintf(want, sizeof(want), "line %d\n", i);
		if (i != 1)
			t_expect(t, path, want);
	}
	t_expect(t, "current/x", "end\n");
}
END_TEST

/* One that is not written to by the kernel stays where it is. */
START_TEST(test_others_are_not_carried)
{
	struct kfile k = k_native("current/gone"), held = k_native("current/d"), served;

	k_puts(&k, "one\n");
	k_puts(&held, "held\n");
	k_close(&k);
	served = k_native("current/removed");
	k_puts(&served, "removed\n");
	ck_assert_int_eq(t_unlink(t, "current/removed"), 0);
	t_boundary(t);
	k_puts(&served, "still\n");
	ck_assert(has_part(B, "d"));
	ck_assert(!has_part(B, "gone"));
	ck_assert(!has_part(B, "removed"));
	t_expect(t, A "/gone", "one\n");
	t_expect_r(t, A "/removed", -ENOENT);
	t_expect_r(t, "current/removed", -ENOENT);
	k_close(&served);
	k_close(&held);
}
END_TEST

/* -- truncation -- */

START_TEST(test_truncate_carried)
{
	struct kfile k = k_native("current/x");

	k_puts(&k, "of A\n");
	t_boundary(t);
	k_puts(&k, "of B\n");
	ck_assert_int_eq(t_truncate(t, "current/x", 3), -EPERM);
	ck_assert_int_eq(t_truncate(t, "current/x", 5), 0);
	ck_assert_int_eq(t_truncate(t, A "/x", 0), -EPERM);
	t_expect(t, "current/x", "of B\n");
	ck_assert_int_eq(t_truncate(t, "current/x", 0), 0);
	t_expect(t, "current/x", "");
	t_expect(t, A "/x", "of A\n");
	k_puts(&k, "anew\n");
	t_expect(t, "current/x", "anew\n");
	if (_i & 1) {
		k_close(&k);
		reopen();
	}
	t_expect(t, A "/x", "of A\n");
	t_expect(t, "current/x", "anew\n");
	if (_i & 2)
		t_boundary(t);
	t_seal(t);
	t_reap(t);
	t_expect(t, A "/x", "of A\n");
	t_expect(t, _i & 2 ? B "/x" : "current/x", "anew\n");
	if (!(_i & 1))
		k_close(&k);
}
END_TEST

/* In the first bucket the part itself is cut, and the kernel's writers follow. */
START_TEST(test_truncate_native)
{
	struct kfile k = k_native("current/x");

	k_puts(&k, "one\n");
	ck_assert_int_eq(t_truncate(t, "current/x", 0), 0);
	t_expect(t, "current/x", "");
	k_puts(&k, "two\n");
	t_expect(t, "current/x", "two\n");
	t_boundary(t);
	k_puts(&k, "three\n");
	t_expect(t, A "/x", "two\n");
	t_expect(t, "current/x", "three\n");
	k_close(&k);
}
END_TEST

/* -- names in the newer bucket -- */

/* Before the links are made, and after. */
START_TEST(test_unlink_in_b)
{
	struct kfile k = k_native("current/x");

	k_puts(&k, "of A\n");
	cut();
	if (_i)
		finish();
	k_puts(&k, "of B\n");
	ck_assert_int_eq(t_unlink(t, "current/x"), 0);
	t_expect_r(t, "current/x", -ENOENT);
	k_puts(&k, "nobody's\n");
	t_expect(t, A "/x", "of A\n");
	t_append(t, "current/x", "new\n");
	t_expect(t, "current/x", "new\n");
	finish();
	t_expect(t, A "/x", "of A\n");
	t_seal(t);
	t_reap(t);
	t_expect(t, A "/x", "of A\n");
	t_expect(t, "current/x", "new\n");
	k_close(&k);
	reopen();
	t_expect(t, A "/x", "of A\n");
	t_expect(t, "current/x", "new\n");
}
END_TEST

START_TEST(test_rename_in_b)
{
	struct kfile k = k_native("current/x");

	k_puts(&k, "of A\n");
	ck_assert_int_eq(t_try_mkdir(t, "current/d", 0755), 0);
	cut();
	if (_i & 1)
		finish();
	k_puts(&k, "of B\n");
	ck_assert_int_eq(t_move(t, "current/x", "current/d/y", 0), 0);
	k_puts(&k, "more\n");
	t_expect_r(t, "current/x", -ENOENT);
	t_expect(t, "current/d/y", "of B\nmore\n");
	t_expect(t, A "/x", "of A\n");
	finish();
	if (_i & 2) {
		k_close(&k);
		reopen();
		t_expect(t, "current/d/y", "of B\nmore\n");
		t_expect(t, A "/x", "of A\n");
	}
	t_boundary(t);
	t_expect(t, B "/d/y", "of B\nmore\n");
	if (!(_i & 2)) {
		k_puts(&k, "of C\n");
		t_expect(t, "current/d/y", "of C\n");
	}
	t_seal(t);
	t_reap(t);
	t_expect(t, A "/x", "of A\n");
	t_expect(t, B "/d/y", "of B\nmore\n");
	if (!(_i & 2))
		k_close(&k);
}
END_TEST

START_TEST(test_rename_over_in_b)
{
	struct kfile k = k_native("current/x");

	k_puts(&k, "of A\n");
	cut();
	if (_i)
		finish();
	k_puts(&k, "of B\n");
	t_append(t, "current/y", "other\n");
	ck_assert_int_eq(t_move(t, "current/y", "current/x", 0), 0);
	t_expect(t, "current/x", "other\n");
	t_expect(t, A "/x", "of A\n");
	k_puts(&k, "nobody's\n");
	t_expect(t, "current/x", "other\n");
	finish();
	t_seal(t);
	t_reap(t);
	t_expect(t, A "/x", "of A\n");
	t_expect(t, "current/x", "other\n");
	k_close(&k);
	t_boundary(t);
	t_expect(t, B "/x", "other\n");
}
END_TEST

/* -- late data -- */

START_TEST(test_late)
{
	struct kfile k = k_native("current/x");
	struct tfile late, r;

	k_puts(&k, _i & 1 ? "of A" : "of A\n");
	r = t_file_open(t, "current/x", O_RDONLY);
	t_boundary(t);
	k_puts(&k, _i & 1 ? "\nof B\n" : "of B\n");
	late = t_file_open(t, A "/x", O_WRONLY | O_APPEND);
	t_puts(t, &late, "late\n");
	t_puts(t, &late, "later\n");
	t_expect(t, A "/x", "of A\nlate\nlater\n");
	t_expect(t, "current/x", "of B\n");
	k_puts(&k, "more\n");
	t_expect(t, A "/x", "of A\nlate\nlater\n");
	t_expect(t, "current/x", "of B\nmore\n");
	ck_assert_int_eq(varve_store_fsync(t->s, late.fh), 0);
	t_file_close(t, &late);
	/* One who opened it when it was current. */
	t_expect_fh(t, r.fh, "of A\nlate\nlater\n");
	t_file_close(t, &r);
	if (_i & 2) {
		k_close(&k);
		reopen();
		t_expect(t, A "/x", "of A\nlate\nlater\n");
		t_expect(t, "current/x", "of B\nmore\n");
	}
	t_seal(t);
	t_reap(t);
	t_expect(t, A "/x", "of A\nlate\nlater\n");
	t_expect(t, "current/x", "of B\nmore\n");
	if (!(_i & 2))
		k_close(&k);
	t_close(t);
	ck_assert(!t_exists(t_at(t, "open/" A)));
	open_store(t);
}
END_TEST

/* Behind a line that is not finished nothing is seen of it until the line has its end. */
START_TEST(test_late_behind_an_open_line)
{
	struct kfile k = k_native("current/x");
	struct tfile late;

	k_puts(&k, "beg");
	t_boundary(t);
	late = t_file_open(t, A "/x", O_WRONLY | O_APPEND);
	t_puts(t, &late, "late\n");
	t_file_close(t, &late);
	t_expect(t, A "/x", "beg");
	k_puts(&k, "in\n");
	t_expect(t, A "/x", "begin\nlate\n");
	t_expect(t, "current/x", "");
	k_close(&k);
	t_seal(t);
	t_expect(t, A "/x", "begin\nlate\n");
}
END_TEST

/* -- fsync -- */

START_TEST(test_fsync)
{
	struct kfile k = k_native("current/x");

	k_puts(&k, "of A\n");
	cut();
	ck_assert(!is_recorded(B));
	ck_assert(!has_part(B, "x"));
	k_puts(&k, "of B\n");
	if (_i) {
		ck_assert_int_eq(varve_store_fsync(t->s, k.f.fh), 0);
	} else {
		struct tfile f = t_file_open(t, "current/x", O_WRONLY | O_APPEND);

		t_puts(t, &f, "served\n");
		ck_assert_int_eq(varve_store_fsync(t->s, f.fh), 0);
		t_file_close(t, &f);
	}
	ck_assert(is_recorded(A));
	ck_assert(is_recorded(B));
	ck_assert(has_part(B, "x"));
	ck_assert_int_eq(part_stat(A, "x").st_ino, part_stat(B, "x").st_ino);
	k_close(&k);
	finish();
	t_crash(t);
	open_store(t);
	t_expect(t, A "/x", "of A\n");
	t_expect(t, "current/x", _i ? "of B\n" : "of B\nserved\n");
}
END_TEST

T_MAIN("carry", 60)
{
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(tc, test_first_open_decides, 0, 4);
	tcase_add_test(tc, test_answers_arrive_in_order);
	tcase_add_test(tc, test_empty_stream);
	tcase_add_test(tc, test_not_these);
	tcase_add_loop_test(tc, test_policy, 0, 2);
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_head_not_0);
	tcase_add_loop_test(tc, test_boundary, 0, 2 * (int)(sizeof(cases) / sizeof(*cases)));
	tcase_add_test(tc, test_line_without_end);
	tcase_add_test(tc, test_attributes);
	tcase_add_loop_test(tc, test_many_boundaries, 0, 4);
	tcase_add_test(tc, test_others_are_not_carried);
	tcase_add_loop_test(tc, test_truncate_carried, 0, 4);
	tcase_add_test(tc, test_truncate_native);
	tcase_add_loop_test(tc, test_unlink_in_b, 0, 2);
	tcase_add_loop_test(tc, test_rename_in_b, 0, 4);
	tcase_add_loop_test(tc, test_rename_over_in_b, 0, 2);
	tcase_add_loop_test(tc, test_late, 0, 4);
	tcase_add_test(tc, test_late_behind_an_open_line);
	tcase_add_loop_test(tc, test_fsync, 0, 2);
}
