/*
 * Opening a store: a case for each row of the table in docs/architecture.md, "Recovery". The state
 * is made by the running store, then the folder is changed as a crash, a power loss or a hand would
 * change it. Here: buckets, the trash, what is sealed. Making, numbers and clock:
 * test_recover_meta.c; tree/ and staging/: test_recover_tree.c; what a crash at a given point
 * leaves: test_recover_crash.c.
 */
#include "recover_util.h"

/* -- open/ and sealed/ -- */

START_TEST(test_current_goes_on)
{
	struct numbers n;

	t_open(t);
	fill();
	ck_assert_int_eq(t_chmod(t, "current/s.log", 0600), 0);
	n = numbers_at("current");
	t_crash(t);
	t_pass(t, T_MINUTE);
	t_open(t);
	ck_assert_str_eq(t_bucket(t), HOUR_10);
	expect_filled("current");
	expect_numbers("current", &n);
	t_append(t, "current/s.log", "three\n");
	t_expect(t, "current/s.log", "one\ntwo\nthree\n");
	ck_assert_int_eq(t_attr(t, "current/s.log").st_mode & 07777, 0600);
	t_expect_list(t, "", ".staging " HOUR_10 " current");
}
END_TEST

START_TEST(test_closing_is_sealed)
{
	struct numbers n;

	t_open(t);
	fill();
	n = numbers_at("current");
	t_boundary(t);
	t_append(t, "current/s.log", "eleven\n");
	t_crash(t);
	t_open(t);
	ck_assert_int_eq(t_find(t, HOUR_10)->state, VARVE_BUCKET_CLOSING);
	expect_filled(HOUR_10);
	expect_files_numbers(HOUR_10, &n);
	/* Its grace is over. */
	ck_assert_int_le(t_find(t, HOUR_10)->grace_end_ns, t_now(t));
	t_seal(t);
	expect_filled(HOUR_10);
	expect_files_numbers(HOUR_10, &n);
	t_expect(t, "current/s.log", "eleven\n");
	t_close(t);
	t_expect_dir(t_at(t, "open"), HOUR_11);
}
END_TEST

/* The same with the store's threads: nobody has to ask. */
START_TEST(test_closing_is_sealed_by_itself)
{
	t_open(t);
	fill();
	t_boundary(t);
	t_append(t, "current/s.log", "eleven\n");
	t_crash(t);
	t_open(t);
	t_start(t);
	for (int i = 0; i < 2000 && t_exists(t_at(t, "open/" HOUR_10)); i++)
		(void)usleep(10000);
	ck_assert(!t_exists(t_at(t, "open/" HOUR_10)));
	expect_filled(HOUR_10);
}
END_TEST

START_TEST(test_closing_that_holds_nothing)
{
	t_open(t);
	t_append(t, "current/s.log", "ten\n");
	ck_assert_int_eq(t_unlink(t, "current/s.log"), 0);
	t_close(t);
	t_expect_dir(t_at(t, "open"), HOUR_10);
	t_pass(t, 2 * T_HOUR);
	t_open(t);
	t_seal(t);
	t_expect_list(t, "", ".staging " HOUR_12 " current");
	t_close(t);
	t_expect_dir(t_at(t, "open"), "");
	t_expect_dir(t_at(t, "sealed"), "");
}
END_TEST

static void put_half_a_seal(const char *name)
{
	t_mkdir(t_at(t, "sealed/%s", name));
	t_mkdir(t_at(t, "sealed/%s/default", name));
	t_file(t_at(t, "sealed/%s/default/0.tar.zst", name), "half", 4);
}

START_TEST(test_seal_was_not_committed)
{
	t_open(t);
	fill();
	t_boundary(t);
	t_crash(t);
	put_half_a_seal("." HOUR_10 ".tmp");
	/* Of a bucket that was dropped meanwhile. */
	put_half_a_seal(".2026-12-01T09Z.tmp");
	t_open(t);
	t_expect_dir(t_at(t, "sealed"), "");
	expect_filled(HOUR_10);
	t_seal(t);
	expect_filled(HOUR_10);
	t_close(t);
	t_expect_dir(t_at(t, "sealed"), HOUR_10);
	t_expect_dir(t_at(t, "open"), "");
}
END_TEST

/* A hidden thing in sealed/ that no seal can have left is somebody's. */
START_TEST(test_other_hidden_things_stay)
{
	t_open(t);
	t_close(t);
	put_half_a_seal(".snapshots");
	put_half_a_seal("." HOUR_10 ".bak");
	put_half_a_seal(".tmp");
	t_open(t);
	t_expect_dir(t_at(t, "sealed"), "." HOUR_10 ".bak .snapshots .tmp");
	t_expect_list(t, "", ".staging " HOUR_10 " current");
}
END_TEST

/* What the seal's rename and the removal of the parts have between them. */
static void seal_with_parts_left(void)
{
	char parts[96];

	(void)snprintf(parts, sizeof(parts), "%s/parts", t->dir);
	t_boundary(t);
	t_copy(t_at(t, "open/" HOUR_10), parts);
	t_seal(t);
	t_close(t);
	t_rename(parts, t_at(t, "open/" HOUR_10));
}

static void cut_audit(void)
{
	ck_assert_int_eq(truncate(t_at(t, "audit.jsonl"), 0), 0);
}

START_TEST(test_seal_was_committed)
{
	struct numbers n;

	t_open(t);
	fill();
	n = numbers_at("current");
	seal_with_parts_left();
	if (_i)
		cut_audit();
	t_open(t);
	expect_filled(HOUR_10);
	expect_files_numbers(HOUR_10, &n);
	ck_assert_int_eq(t_find(t, HOUR_10)->state, VARVE_BUCKET_SEALED);
	ck_assert_uint_eq(t_audited(t, "seal", HOUR_10), 1);
	t_close(t);
	t_expect_dir(t_at(t, "open"), "");
	t_open(t);
	ck_assert_uint_eq(t_audited(t, "seal", HOUR_10), 1);
}
END_TEST

/* The removal was cut short. */
START_TEST(test_some_parts_were_removed)
{
	t_open(t);
	fill();
	seal_with_parts_left();
	t_remove(t_at(t, "open/%s/default/0/d", HOUR_10));
	t_open(t);
	expect_filled(HOUR_10);
	t_close(t);
	t_expect_dir(t_at(t, "open"), "");
}
END_TEST

static void grow_part(void)
{
	int fd = open(t_at(t, "open/%s/default/0/s.log", HOUR_10), O_WRONLY | O_APPEND);

	ck_assert_int_eq(write(fd, "more\n", 5), 5);
	(void)close(fd);
}

static void shrink_part(void)
{
	ck_assert_int_eq(truncate(t_at(t, "open/%s/default/0/s.log", HOUR_10), 3), 0);
}

static void add_part(void)
{
	t_file(t_at(t, "open/%s/default/0/d/other", HOUR_10), "x", 1);
}

static void spoil_segment(void)
{
	t_damage(t_at(t, "sealed/%s/default/0.tar.zst", HOUR_10), -64, 64);
}

static void lose_segment(void)
{
	ck_assert_int_eq(unlink(t_at(t, "sealed/%s/default/0.tar.zst", HOUR_10)), 0);
}

static void (*const differ[])(void) = {shrink_part, add_part, spoil_segment,
				       lose_segment};

START_TEST(test_parts_differ_from_the_segment)
{
	char *log;

	t_open(t);
	fill();
	seal_with_parts_left();
	differ[_i]();
	for (int i = 0; i < 2; i++) {
		log = t_open_logged(t);
		ck_assert_msg(strstr(log, "open/" HOUR_10) && strstr(log, "kept"), "%s", log);
		free(log);
		ck_assert(t_exists(t_at(t, "open/%s/default/0/s.log", HOUR_10)));
		ck_assert(t_exists(t_at(t, "open/%s/default/0/o.txt", HOUR_10)));
		/* What is sealed is what is seen, if it can be read. */
		if (differ[_i] != spoil_segment && differ[_i] != lose_segment)
			expect_filled(HOUR_10);
		t_close(t);
	}
}
END_TEST

/* What came behind what was sealed, from a descriptor that outlived the daemon, is not lost: it goes on in the
 * current bucket, under the name. */
START_TEST(test_part_that_grew_goes_on)
{
	char *log;

	t_open(t);
	fill();
	seal_with_parts_left();
	grow_part();
	log = t_open_logged(t);
	ck_assert_msg(strstr(log, HOUR_10) && strstr(log, "goes on in bucket"), "%s", log);
	free(log);
	expect_filled(HOUR_10);
	ck_assert(!t_exists(t_at(t, "open/%s", HOUR_10)));
	t_expect(t, "current/s.log", "more\n");
	/* Nobody writes to it, so that the next bucket has no file of it. */
	t_expect_writers(t, "current/s.log", 0);
	t_close(t);
	t_open(t);
	expect_filled(HOUR_10);
	t_expect(t, "current/s.log", "more\n");
	t_close(t);
}
END_TEST

START_TEST(test_junk_is_ignored)
{
	char *log;

	t_open(t);
	fill();
	t_boundary(t);
	t_seal(t);
	t_append(t, "current/s.log", "eleven\n");
	t_close(t);
	t_mkdir(t_at(t, "open/junk"));
	t_file(t_at(t, "open/2026-12-01T07Z"), "a file", 6);
	t_mkdir(t_at(t, "sealed/2026-13-01"));
	t_file(t_at(t, "sealed/2026-12-01T06Z"), "a file", 6);
	t_file(t_at(t, "sealed/%s/notes", HOUR_10), "x", 1);
	t_mkdir(t_at(t, "trash/junk"));
	t_file(t_at(t, "trash/also"), "x", 1);
	t_file(t_at(t, "open/%s/notes", HOUR_11), "x", 1);
	t_file(t_at(t, "open/%s/default/notes", HOUR_11), "x", 1);
	log = t_open_logged(t);
	ck_assert_msg(strstr(log, "open/junk") && strstr(log, "sealed/2026-13-01"), "%s", log);
	free(log);
	t_expect_list(t, "", ".staging " HOUR_10 " " HOUR_11 " current");
	expect_filled(HOUR_10);
	t_expect(t, "current/s.log", "eleven\n");
	t_reap(t);
	varve_store_close(t->s);
	t->s = NULL;
	t_expect_dir(t_at(t, "trash"), "also junk");
	t_expect_dir(t_at(t, "open"), "2026-12-01T07Z " HOUR_11 " junk");
	ck_assert(t_exists(t_at(t, "sealed/%s/notes", HOUR_10)));
}
END_TEST

START_TEST(test_no_file_of_ours_below_open)
{
	char *log;

	t_open(t);
	fill();
	t_close(t);
	ck_assert_int_eq(mkfifo(t_at(t, "open/%s/default/0/fifo", HOUR_10), 0600), 0);
	ck_assert_int_eq(symlink("/etc/passwd", t_at(t, "open/%s/default/0/link", HOUR_10)), 0);
	ck_assert_int_eq(symlink("/etc", t_at(t, "open/%s/default/0/d/dir", HOUR_10)), 0);
	log = t_open_logged(t);
	ck_assert_msg(strstr(log, "fifo") && strstr(log, "link"), "%s", log);
	free(log);
	expect_filled("current");
	ck_assert_int_eq(unlink(t_at(t, "open/%s/default/0/fifo", HOUR_10)), 0);
	ck_assert_int_eq(unlink(t_at(t, "open/%s/default/0/link", HOUR_10)), 0);
	ck_assert_int_eq(unlink(t_at(t, "open/%s/default/0/d/dir", HOUR_10)), 0);
}
END_TEST

START_TEST(test_symbolic_links)
{
	char target[64];
	struct varve_entry e;

	t_open(t);
	ck_assert_int_eq(t_symlink(t, "../else/where", "current/link"), 0);
	t_crash(t);
	t_open(t);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(t_walk(t, i ? HOUR_10 "/link" : "current/link", &e), 0);
		ck_assert(S_ISLNK(e.attr.st_mode));
		ck_assert_int_eq(varve_store_readlink(t->s, e.id, target, sizeof(target)), 0);
		ck_assert_str_eq(target, "../else/where");
		t_forget(t, &e);
		if (!i)
			t_boundary(t);
		t_seal(t);
	}
}
END_TEST

START_TEST(test_hold_survives)
{
	struct varve_err err;

	t_option(t, "keep", "1h");
	t_open(t);
	fill();
	ck_assert_int_eq(varve_store_hold(t->s, &t_root, HOUR_10, true, &err), 0);
	t_boundary(t);
	t_append(t, "current/s.log", "eleven\n");
	if (_i)
		t_seal(t);
	t_crash(t);
	t_pass(t, 10 * T_HOUR);
	t_open(t);
	ck_assert(t_find(t, HOUR_10)->held);
	ck_assert(!t_find(t, HOUR_11)->held);
	ck_assert_int_eq(t_drop(t, HOUR_10), -EBUSY);
	t_seal(t);
	ck_assert_int_eq(varve_retention_step(t->s), 0);
	expect_filled(HOUR_10);
	t_expect_r(t, HOUR_11, -ENOENT);
	t_close(t);
	t_open(t);
	ck_assert(t_find(t, HOUR_10)->held);
}
END_TEST

START_TEST(test_hold_of_the_current)
{
	struct varve_err err;

	t_open(t);
	fill();
	ck_assert_int_eq(varve_store_hold(t->s, &t_root, HOUR_10, true, &err), 0);
	t_close(t);
	t_open(t);
	ck_assert(t_find(t, HOUR_10)->held);
	ck_assert_int_eq(varve_store_hold(t->s, &t_root, HOUR_10, false, &err), 0);
	t_close(t);
	t_open(t);
	ck_assert(!t_find(t, HOUR_10)->held);
	t_close(t);
	t_expect_dir(t_at(t, "meta/holds"), "");
}
END_TEST

/* -- the trash -- */

START_TEST(test_drop_without_audit_line)
{
	bool closing = _i & 1, hand = _i & 2;

	t_option(t, "keep", "30m");
	t_open(t);
	fill();
	t_boundary(t);
	t_append(t, "current/s.log", "eleven\n");
	if (!closing)
		t_seal(t);
	if (hand)
		ck_assert_int_eq(t_drop(t, HOUR_10), 0);
	else
		ck_assert_int_eq(t_expire(t, HOUR_10), 0);
	t_close(t);
	ck_assert_uint_eq(t_audited(t, hand ? "drop" : "expire", HOUR_10), 1);
	cut_audit();
	t_open(t);
	ck_assert_uint_eq(t_audited(t, hand ? "drop" : "expire", HOUR_10), 1);
	t_expect_r(t, HOUR_10, -ENOENT);
	t_close(t);
	t_open(t);
	ck_assert_uint_eq(t_audited(t, hand ? "drop" : "expire", HOUR_10), 1);
	/* What a hand dropped can come back still. */
	if (hand) {
		struct varve_err err = {.msg = ""};
		int r = varve_store_undrop(t->s, &t_root, HOUR_10, &err);

		ck_assert_msg(r == 0, "%d %s", r, err.msg);
		expect_filled(HOUR_10);
		t_seal(t);
		expect_filled(HOUR_10);
		ck_assert_uint_eq(t_audited(t, "undrop", HOUR_10), 1);
	} else {
		t_reap(t);
		t_close(t);
		t_expect_dir(t_at(t, "trash"), "");
	}
}
END_TEST

START_TEST(test_removal_had_begun)
{
	char trash[512], name[300];
	struct varve_err err;
	struct dirent *e;
	DIR *dir;

	t_open(t);
	fill();
	t_boundary(t);
	t_seal(t);
	ck_assert_int_eq(t_drop(t, HOUR_10), 0);
	t_close(t);
	dir = opendir(t_at(t, "trash"));
	while ((e = readdir(dir)) && e->d_name[0] == '.')
		;
	(void)snprintf(name, sizeof(name), "%s", e->d_name);
	(void)closedir(dir);
	(void)snprintf(trash, sizeof(trash), "trash/gone,%s", name);
	t_rename(t_at(t, "trash/%s", name), t_at(t, "%s", trash));
	ck_assert_int_eq(unlink(t_at(t, "%s/default/0.tar.zst", trash)), 0);
	t_open(t);
	ck_assert_int_eq(varve_store_undrop(t->s, &t_root, HOUR_10, &err), -ENOENT);
	t_expect_r(t, HOUR_10, -ENOENT);
	/* The line was there before the removal began. */
	ck_assert_uint_eq(t_audited(t, "drop", HOUR_10), 1);
	t_reap(t);
	t_close(t);
	t_expect_dir(t_at(t, "trash"), "");
}
END_TEST

START_TEST(test_torn_audit_line)
{
	char *before, *after;
	struct stat st;

	t_open(t);
	fill();
	seal_with_parts_left();
	before = t_text(t_at(t, "audit.jsonl"));
	ck_assert_int_eq(stat(t_at(t, "audit.jsonl"), &st), 0);
	/* Cut in the middle of the seal's line: it is written anew, since the parts are there yet.
	 */
	ck_assert_int_eq(truncate(t_at(t, "audit.jsonl"), st.st_size - 10 - _i), 0);
	t_open(t);
	ck_assert_uint_eq(t_audited(t, "seal", HOUR_10), 1);
	after = t_text(t_at(t, "audit.jsonl"));
	ck_assert_int_eq(after[strlen(after) - 1], '\n');
	/* Every line is whole. */
	for (char *l = after; *l; l = strchr(l, '\n') + 1) {
		ck_assert_int_eq(*l, '{');
		ck_assert_int_eq(strchr(l, '\n')[-1], '}');
	}
	free(before);
	free(after);
}
END_TEST

/* -- sealed buckets -- */

START_TEST(test_tombstones_survive)
{
	t_open(t);
	fill();
	t_put(t, "current/p.txt", "p\n");
	t_boundary(t);
	t_seal(t);
	ck_assert_int_eq(t_unlink(t, HOUR_10 "/o.txt"), 0);
	ck_assert_int_eq(t_unlink(t, HOUR_10 "/p.txt"), 0);
	t_crash(t);
	if (_i) {
		/* Torn: the last removal may come back, the other not. */
		struct stat st;

		ck_assert_int_eq(stat(t_at(t, "meta/tombs/" HOUR_10), &st), 0);
		ck_assert_int_eq(truncate(t_at(t, "meta/tombs/" HOUR_10), st.st_size - _i), 0);
	}
	t_open(t);
	t_expect_r(t, HOUR_10 "/o.txt", -ENOENT);
	t_expect_list(t, HOUR_10, _i ? "d p.txt s.log" : "d s.log");
	t_expect(t, HOUR_10 "/s.log", "one\ntwo\n");
	if (_i)
		ck_assert_int_eq(t_unlink(t, HOUR_10 "/p.txt"), 0);
	t_close(t);
	t_open(t);
	t_expect_list(t, HOUR_10, "d s.log");
}
END_TEST

static const off_t damage_at[] = {-8, -64, -300};

START_TEST(test_segment_is_damaged)
{
	struct varve_status st;

	t_open(t);
	fill();
	t_boundary(t);
	t_append(t, "current/s.log", "eleven\n");
	t_boundary(t);
	t_seal(t);
	t_close(t);
	t_damage(t_at(t, "sealed/%s/default/0.tar.zst", HOUR_10), damage_at[_i], 8);
	t_open(t);
	/* The mount is there, the bucket is listed, nothing else suffers. */
	t_expect_list(t, "", ".staging " HOUR_10 " " HOUR_11 " " HOUR_12 " current");
	t_expect(t, HOUR_11 "/s.log", "eleven\n");
	t_expect_r(t, HOUR_10 "/s.log", -EBADMSG);
	ck_assert_int_eq(varve_store_errno(-EBADMSG), -EIO);
	ck_assert(S_ISDIR(t_attr(t, HOUR_10).st_mode));
	ck_assert_int_eq(varve_store_status(t->s, &st), 0);
	ck_assert_str_eq(st.buckets[0].name, HOUR_10);
	ck_assert(st.buckets[0].damaged);
	ck_assert(!st.buckets[1].damaged);
	ck_assert_uint_ge(st.faults, 1);
	varve_status_done(&st);
	/* It can go. */
	ck_assert_int_eq(t_drop(t, HOUR_10), 0);
	t_expect_list(t, "", ".staging " HOUR_11 " " HOUR_12 " current");
}
END_TEST

START_TEST(test_content_is_damaged)
{
	struct tfile f;
	char buf[64];

	t_open(t);
	fill();
	t_boundary(t);
	t_seal(t);
	t_close(t);
	t_damage(t_at(t, "sealed/%s/default/0.tar.zst", HOUR_10), 30, 8);
	t_open(t);
	/* The index is whole: names, sizes and times are there; content is never wrong. */
	t_expect_list(t, HOUR_10, "d o.txt s.log");
	ck_assert_int_eq(t_attr(t, HOUR_10 "/s.log").st_size, 8);
	f = t_file_open(t, HOUR_10 "/s.log", O_RDONLY);
	ck_assert_int_eq(varve_store_read(t->s, f.fh, buf, sizeof(buf), 0, false), -EBADMSG);
	t_file_close(t, &f);
}
END_TEST

START_TEST(test_sealed_bucket_is_empty)
{
	t_open(t);
	t_close(t);
	t_mkdir(t_at(t, "sealed/2026-12-01T03Z"));
	t_open(t);
	t_expect_list(t, "", ".staging 2026-12-01T03Z " HOUR_10 " current");
	t_expect_list(t, "2026-12-01T03Z", "");
	ck_assert_int_eq(t_drop(t, "2026-12-01T03Z"), 0);
}
END_TEST

/* Everything at once, again and again: nothing is done twice. */
START_TEST(test_opening_again_changes_nothing)
{
	char *before, *after;
	struct numbers n;

	t_open(t);
	fill();
	n = numbers_at("current");
	t_boundary(t);
	t_append(t, "current/s.log", "eleven\n");
	t_seal(t);
	t_boundary(t);
	t_close(t);
	before = t_text(t_at(t, "audit.jsonl"));
	for (int i = 0; i < 4; i++) {
		uint64_t s;

		t_open(t);
		expect_filled(HOUR_10);
		expect_files_numbers(HOUR_10, &n);
		t_expect(t, HOUR_11 "/s.log", "eleven\n");
		t_expect(t, "current/s.log", "");
		s = t_ino(t, "current/s.log");
		t_close(t);
		t_open(t);
		ck_assert_uint_eq(t_ino(t, "current/s.log"), s);
		t_crash(t);
	}
	after = t_text(t_at(t, "audit.jsonl"));
	ck_assert_str_eq(before, after);
	free(before);
	free(after);
}
END_TEST

T_MAIN("recover", 60)
{
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_current_goes_on);
	tcase_add_test(tc, test_closing_is_sealed);
	tcase_add_test(tc, test_closing_is_sealed_by_itself);
	tcase_add_test(tc, test_closing_that_holds_nothing);
	tcase_add_test(tc, test_seal_was_not_committed);
	tcase_add_test(tc, test_other_hidden_things_stay);
	tcase_add_loop_test(tc, test_seal_was_committed, 0, 2);
	tcase_add_test(tc, test_some_parts_were_removed);
	tcase_add_test(tc, test_part_that_grew_goes_on);
	tcase_add_loop_test(tc, test_parts_differ_from_the_segment, 0,
			    (int)(sizeof(differ) / sizeof(*differ)));
	tcase_add_test(tc, test_junk_is_ignored);
	tcase_add_test(tc, test_no_file_of_ours_below_open);
	tcase_add_test(tc, test_symbolic_links);
	tcase_add_loop_test(tc, test_hold_survives, 0, 2);
	tcase_add_test(tc, test_hold_of_the_current);
	tcase_add_loop_test(tc, test_drop_without_audit_line, 0, 4);
	tcase_add_test(tc, test_removal_had_begun);
	tcase_add_loop_test(tc, test_torn_audit_line, 0, 5);
	tcase_add_loop_test(tc, test_tombstones_survive, 0, 6);
	tcase_add_loop_test(tc, test_segment_is_damaged, 0,
			    (int)(sizeof(damage_at) / sizeof(*damage_at)));
	tcase_add_test(tc, test_content_is_damaged);
	tcase_add_test(tc, test_sealed_bucket_is_empty);
	tcase_add_test(tc, test_opening_again_changes_nothing);
}
