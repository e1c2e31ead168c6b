/* What a file keeps for life: its number, mode, owner, attributes, times; and references to it. */
#include "store_io_util.h"

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
			(void)snprintf(path, sizeof(path), i < 4 ? "current/s%d" : "current/o%d",
				       i);
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
				   VARVE_SET_MODE | VARVE_SET_UID | VARVE_SET_GID),
			 0);
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
	ck_assert_int_eq(varve_store_getattr(t->s, ids[0][0], 0, &e.attr, &e.attr_valid_ns),
			 -ESTALE);
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
	ck_assert_int_eq(varve_store_setattr(t->s, f.id, f.fh, &zero, VARVE_SET_SIZE, &st, &valid),
			 0);
	t_check(t);
	f.pos = 0;
	t_puts(t, &f, text);
	t_check(t);
	t_file_close(t, &f);
	t_check(t);
	free(text);
}
END_TEST

T_MAIN("store_numbers", 60)
{
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_numbers_for_life);
	tcase_add_test(tc, test_numbers_over_many_boundaries);
	tcase_add_test(tc, test_modes_survive_boundaries);
	tcase_add_test(tc, test_times);
	tcase_add_test(tc, test_what_makes_a_stream);
	tcase_add_test(tc, test_references);
	tcase_add_test(tc, test_files_that_come_and_go);
	tcase_add_loop_test(tc, test_accounts, 0, 2);
}
