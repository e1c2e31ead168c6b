/* Opening a store, see test_recover.c: making one, file numbers, the clock, names of windows. */
#include "recover_util.h"

/* -- making -- */

START_TEST(test_made_where_nothing_is)
{
	t_open(t);
	t_expect_list(t, "", ".staging " HOUR_10 " current");
	t_expect_list(t, "current", "");
	t_close(t);
	t_expect_dir(t->path, "audit.jsonl lock meta open sealed staging trash tree varve.conf");
}
END_TEST

START_TEST(test_made_in_an_empty_folder)
{
	struct stat st;

	t_mkdir(t->path);
	t_mkdir(t_at(t, "lost+found"));
	ck_assert_int_eq(chmod(t->path, 0755), 0);
	t_open(t);
	ck_assert_int_eq(stat(t->path, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0700);
	fill();
}
END_TEST

START_TEST(test_making_was_cut_short)
{
	/* Each prefix of the folders that are made, no varve.conf. */
	static const char *const made[] = {"meta", "meta/tombs", "meta/holds", "tree",
					   "open", "sealed",     "staging",    "trash"};

	for (int i = 0; i <= _i; i++) {
		if (i == 0)
			t_mkdir(t->path);
		t_mkdir(t_at(t, "%s", made[i]));
	}
	t_file(t_at(t, "lock"), "1\n", 2);
	t_file(t_at(t, ".varve.conf.tmp"), "buck", 4);
	t_open(t);
	fill();
	t_close(t);
	ck_assert(t_exists(t_at(t, "varve.conf")));
	ck_assert(!t_exists(t_at(t, ".varve.conf.tmp")));
	t_open(t);
	expect_filled("current");
}
END_TEST

START_TEST(test_refused_where_other_files_are)
{
	struct varve_err err;

	t_mkdir(t->path);
	t_file(t_at(t, "photo.jpg"), "x", 1);
	ck_assert_int_eq(t_try_open(t, &err), -ENOTEMPTY);
	ck_assert_msg(strstr(err.msg, "photo.jpg"), "%s", err.msg);
	t_expect_dir(t->path, "photo.jpg");
}
END_TEST

static void try_inside(const char *inner, const char *outer)
{
	char own[sizeof(t->path)];
	struct varve_err err;

	(void)strcpy(own, t->path);
	(void)snprintf(t->path, sizeof(t->path), "%s", inner);
	ck_assert_int_eq(t_try_open(t, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, outer) && strstr(err.msg, "inside the store"), "%s", err.msg);
	(void)strcpy(t->path, own);
}

/* At any depth, new or there already, by its own name or by a link's. */
START_TEST(test_refused_inside_another_store)
{
	static const char *const places[] = {"inner", "staging/inner", "sealed/2026-11-30/a/b"};
	char outer[sizeof(t->path)], inner[sizeof(t->path) + 32], link[sizeof(t->path) + 8];

	t_open(t);
	t_close(t);
	(void)strcpy(outer, t->path);
	t_mkdir(t_at(t, "sealed/2026-11-30"));
	t_mkdir(t_at(t, "sealed/2026-11-30/a"));
	for (int i = 0; i < 3; i++) {
		(void)snprintf(inner, sizeof(inner), "%s/%s", outer, places[i]);
		try_inside(inner, outer);
		ck_assert(!t_exists(inner));
		t_mkdir(inner);
		try_inside(inner, outer);
		t_expect_dir(inner, "");
	}
	(void)snprintf(link, sizeof(link), "%s-link", outer);
	ck_assert_int_eq(symlink(inner, link), 0);
	try_inside(link, outer);
	ck_assert_int_eq(unlink(link), 0);
	t_open(t);
}
END_TEST

START_TEST(test_configuration_is_lost)
{
	struct numbers n;

	t_open(t);
	fill();
	n = numbers_at("current");
	t_close(t);
	ck_assert_int_eq(unlink(t_at(t, "varve.conf")), 0);
	t_open(t);
	expect_filled("current");
	expect_numbers("current", &n);
	t_close(t);
	ck_assert(t_exists(t_at(t, "varve.conf")));
}
END_TEST

START_TEST(test_configuration_is_damaged)
{
	struct varve_err err;

	t_open(t);
	t_close(t);
	t_file(t_at(t, "varve.conf"), "bucket = soon\n", 14);
	ck_assert_int_eq(t_try_open(t, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, "bucket"), "%s", err.msg);
}
END_TEST

START_TEST(test_in_use)
{
	struct tstore other = *t;
	struct varve_err err;

	t_open(t);
	other.s = NULL;
	ck_assert_int_eq(t_try_open(&other, &err), -EBUSY);
	ck_assert_msg(strstr(err.msg, "in use"), "%s", err.msg);
	fill();
}
END_TEST

/* -- numbers -- */

static const char *const ino_files[] = {"missing", "damaged", "cut", "empty"};

static void spoil(const char *path, const char *how)
{
	struct stat st;

	ck_assert_int_eq(stat(path, &st), 0);
	if (!strcmp(how, "missing"))
		ck_assert_int_eq(unlink(path), 0);
	else if (!strcmp(how, "damaged"))
		t_damage(path, 0, (size_t)st.st_size);
	else
		ck_assert_int_eq(truncate(path, strcmp(how, "cut") ? 0 : st.st_size / 2 + 7), 0);
}

START_TEST(test_counter_is_lost)
{
	struct numbers n;
	char *log;

	t_open(t);
	fill();
	n = numbers_at("current");
	t_boundary(t);
	t_seal(t);
	t_close(t);
	spoil(t_at(t, "meta/ino"), ino_files[_i]);
	log = t_open_logged(t);
	/* A file that is only cut may have its newer record still. */
	if (strcmp(ino_files[_i], "cut") != 0) {
		ck_assert_msg(strstr(log, "meta/ino"), "%s", log);
		ck_assert_uint_ge(t->s->next_ino, n.o + (UINT64_C(1) << 32));
	}
	free(log);
	expect_filled(HOUR_10);
	expect_files_numbers(HOUR_10, &n);
	t_put(t, "current/new", "x\n");
	ck_assert_uint_gt(t_ino(t, "current/new"), n.o);
}
END_TEST

/* Nothing is sealed yet: the numbers are on the parts. */
START_TEST(test_counter_is_lost_before_a_seal)
{
	uint64_t ino, inos[64];
	char path[64];

	t_open(t);
	fill();
	ck_assert_int_eq(t_try_mkdir(t, ".staging/x", 0755), 0);
	for (int i = 0; i < 32; i++) {
		(void)snprintf(path, sizeof(path), i % 2 ? "current/f%d" : ".staging/x/f%d", i);
		t_put(t, path, "x\n");
		inos[i] = t_ino(t, path);
	}
	t_close(t);
	ck_assert_int_eq(unlink(t_at(t, "meta/ino")), 0);
	t_open(t);
	for (int i = 0; i < 32; i++) {
		(void)snprintf(path, sizeof(path), i % 2 ? "current/f%d" : ".staging/x/f%d", i);
		ck_assert_uint_eq(t_ino(t, path), inos[i]);
	}
	for (int i = 32; i < 64; i++) {
		(void)snprintf(path, sizeof(path), "current/f%d", i);
		t_put(t, path, "x\n");
		ino = t_ino(t, path);
		for (int k = 0; k < i; k++)
			ck_assert_uint_ne(ino, inos[k]);
		inos[i] = ino;
	}
}
END_TEST

/* Lost a second time, what was given out since the first is passed over as well. */
START_TEST(test_counter_is_lost_twice)
{
	uint64_t first, second;

	t_open(t);
	fill();
	t_boundary(t);
	t_seal(t);
	t_close(t);
	ck_assert_int_eq(unlink(t_at(t, "meta/ino")), 0);
	t_open(t);
	t_put(t, "current/first", "x\n");
	first = t_ino(t, "current/first");
	t_close(t);
	ck_assert_int_eq(unlink(t_at(t, "meta/ino")), 0);
	t_open(t);
	ck_assert_uint_eq(t_ino(t, "current/first"), first);
	t_put(t, "current/second", "x\n");
	second = t_ino(t, "current/second");
	ck_assert_uint_gt(second, first);
}
END_TEST

START_TEST(test_part_without_number)
{
	uint64_t ino;

	t_open(t);
	fill();
	t_close(t);
	t_file(t_at(t, "open/%s/default/0/by-hand", HOUR_10), "put here\n", 9);
	t_mkdir(t_at(t, "open/%s/default/0/dir", HOUR_10));
	t_file(t_at(t, "open/%s/default/0/dir/f", HOUR_10), "too\n", 4);
	ck_assert_int_eq(removexattr(t_at(t, "open/%s/default/0/s.log", HOUR_10), VARVE_XATTR_INO),
			 0);
	t_open(t);
	t_expect(t, "current/by-hand", "put here\n");
	t_expect(t, "current/dir/f", "too\n");
	t_expect(t, "current/s.log", "one\ntwo\n");
	t_expect_list(t, "current", "by-hand d dir o.txt s.log");
	ino = t_ino(t, "current/by-hand");
	/* The number is noted: it is the same ever after. */
	t_close(t);
	t_open(t);
	ck_assert_uint_eq(t_ino(t, "current/by-hand"), ino);
	t_boundary(t);
	t_seal(t);
	ck_assert_uint_eq(t_ino(t, HOUR_10 "/by-hand"), ino);
	t_expect(t, HOUR_10 "/dir/f", "too\n");
}
END_TEST

static const char *const bad_numbers[] = {"0",
					  "12",
					  "-5",
					  "9007199254740992",
					  "x",
					  "",
					  "7 ",
					  "18446744073709551616",
					  "99999999999999999999999999999999"};

START_TEST(test_part_with_a_bad_number)
{
	const char *bad = bad_numbers[_i];
	uint64_t ino;

	t_open(t);
	fill();
	t_close(t);
	ck_assert_int_eq(setxattr(t_at(t, "open/%s/default/0/s.log", HOUR_10), VARVE_XATTR_INO, bad,
				  strlen(bad), 0),
			 0);
	t_open(t);
	ino = t_ino(t, "current/s.log");
	ck_assert_uint_ge(ino, VARVE_FIRST_INO);
	ck_assert_uint_lt(ino, VARVE_INO_LIMIT);
	t_expect(t, "current/s.log", "one\ntwo\n");
	ck_assert_uint_ne(ino, t_ino(t, "current/o.txt"));
}
END_TEST

/* cp -a of a part, of a bucket: one of the two has the number. */
START_TEST(test_number_is_there_twice)
{
	uint64_t ino;

	t_open(t);
	fill();
	ino = t_ino(t, "current/s.log");
	t_close(t);
	t_copy(t_at(t, "open/%s/default/0/s.log", HOUR_10),
	       t_at(t, "open/%s/default/0/copy", HOUR_10));
	t_copy(t_at(t, "open/%s", HOUR_10), t_at(t, "open/%s", "2026-12-01T08Z"));
	t_open(t);
	ck_assert_uint_ne(t_ino(t, "current/copy"), t_ino(t, "current/s.log"));
	ck_assert(t_ino(t, "current/copy") == ino || t_ino(t, "current/s.log") == ino ||
		  t_ino(t, "2026-12-01T08Z/s.log") == ino ||
		  t_ino(t, "2026-12-01T08Z/copy") == ino);
	t_expect(t, "current/copy", "one\ntwo\n");
	t_expect(t, "2026-12-01T08Z/s.log", "one\ntwo\n");
	ck_assert_uint_ne(t_ino(t, "2026-12-01T08Z"), t_find(t, HOUR_10)->ino);
	t_seal(t);
	t_expect(t, "2026-12-01T08Z/copy", "one\ntwo\n");
}
END_TEST

/* -- the clock -- */

START_TEST(test_clock_record_is_lost)
{
	struct numbers n;

	t_open(t);
	fill();
	n = numbers_at("current");
	t_close(t);
	spoil(t_at(t, "meta/clock"), ino_files[_i]);
	/* Two years: there is no mark that would speak against it. */
	t_pass(t, 730 * T_DAY);
	t_open(t);
	ck_assert_int_eq(t->s->time.state,
			 strcmp(ino_files[_i], "cut") ? VARVE_TIME_GOOD : t->s->time.state);
	ck_assert_int_eq(t->s->time.believed_ns,
			 t->s->time.state == VARVE_TIME_GOOD ? t_now(t) : t->s->time.believed_ns);
	if (t->s->time.state == VARVE_TIME_GOOD) {
		t_seal(t);
		expect_filled(HOUR_10);
	}
	expect_files_numbers(t->s->time.state == VARVE_TIME_GOOD ? HOUR_10 : "current", &n);
}
END_TEST

START_TEST(test_off_for_three_windows)
{
	struct numbers n;

	t_open(t);
	fill();
	n = numbers_at("current");
	t_close(t);
	t_pass(t, 3 * T_HOUR + 20 * T_MINUTE);
	t_open(t);
	/* What was open is closing under its own name; no bucket is invented in between. */
	t_expect_list(t, "", ".staging " HOUR_10 " 2026-12-01T13Z current");
	ck_assert_int_eq(t_find(t, HOUR_10)->state, VARVE_BUCKET_CLOSING);
	ck_assert_int_le(t_find(t, HOUR_10)->grace_end_ns, t_now(t));
	expect_filled(HOUR_10);
	t_seal(t);
	expect_filled(HOUR_10);
	expect_files_numbers(HOUR_10, &n);
	ck_assert_uint_eq(t_audited(t, "seal", HOUR_10), 1);
	t_expect_list(t, "current", "d s.log");
	t_expect(t, "current/s.log", "");
	t_close(t);
	t_expect_dir(t_at(t, "sealed"), HOUR_10);
	t_expect_dir(t_at(t, "open"), "");
}
END_TEST

START_TEST(test_off_for_longer_than_the_retention)
{
	t_option(t, "keep", "2h");
	t_open(t);
	fill();
	t_boundary(t);
	t_append(t, "current/s.log", "eleven\n");
	t_seal(t);
	t_close(t);
	t_pass(t, 9 * T_HOUR);
	t_open(t);
	t_seal(t);
	ck_assert_int_eq(varve_retention_step(t->s), 0);
	t_expect_list(t, "", ".staging 2026-12-01T20Z current");
	ck_assert_uint_eq(t_audited(t, "expire", HOUR_10), 1);
	ck_assert_uint_eq(t_audited(t, "expire", HOUR_11), 1);
}
END_TEST

START_TEST(test_clock_is_behind_at_a_mount)
{
	t_open(t);
	fill();
	t_boundary(t);
	t_append(t, "current/s.log", "eleven\n");
	t_close(t);
	t_set_wall(t, t_start_of(HOUR_10) + T_MINUTE);
	t_open(t);
	ck_assert_int_eq(t->s->time.state, VARVE_TIME_BEHIND);
	ck_assert_str_eq(t_bucket(t), HOUR_11);
	t_append(t, "current/s.log", "and on\n");
	t_expect(t, "current/s.log", "eleven\nand on\n");
	ck_assert(!t_tick(t));
	/* Caught up. */
	t_set_wall(t, t_start_of(HOUR_12) + T_MINUTE);
	ck_assert(t_tick(t));
	ck_assert_str_eq(t_bucket(t), HOUR_12);
	t_seal(t);
	t_expect(t, HOUR_11 "/s.log", "eleven\nand on\n");
	expect_filled(HOUR_10);
}
END_TEST

/* Case 11: the clock jumps eight months ahead, lines are written, it jumps back. */
START_TEST(test_clock_jumps_and_comes_back)
{
	int64_t good;

	t_option(t, "keep", "30d");
	t_open(t);
	fill();
	good = t_now(t);
	t_set_wall(t, good + 240 * T_DAY);
	ck_assert(!t_tick(t));
	ck_assert_int_eq(t->s->time.state, VARVE_TIME_UNTRUSTED);
	t_append(t, "current/s.log", "from the future\n");
	/* A remount does not make it better. */
	if (_i) {
		t_close(t);
		t_open(t);
		ck_assert_int_eq(t->s->time.state, VARVE_TIME_UNTRUSTED);
		ck_assert_str_eq(t_bucket(t), HOUR_10);
	}
	ck_assert_int_eq(varve_retention_step(t->s), 0);
	t_set_wall(t, good);
	t_pass(t, T_SECOND);
	ck_assert(!t_tick(t));
	ck_assert_int_eq(t->s->time.state, VARVE_TIME_GOOD);
	t_append(t, "current/s.log", "and back\n");
	t_boundary(t);
	t_seal(t);
	t_expect(t, HOUR_10 "/s.log", "one\ntwo\nfrom the future\nand back\n");
	t_expect_list(t, "", ".staging " HOUR_10 " " HOUR_11 " current");
	ck_assert_uint_eq(t_audited(t, "expire", HOUR_10), 0);
}
END_TEST

/* The jump is accepted, then found to have been wrong: the clock catches up, and no name comes
 * twice. */
START_TEST(test_jump_is_accepted)
{
	struct varve_err err;
	int64_t good;

	t_open(t);
	fill();
	good = t_now(t);
	t_set_wall(t, good + 240 * T_DAY);
	ck_assert(!t_tick(t));
	ck_assert_int_eq(varve_store_clock_accept(t->s, &t_root, &err), 0);
	ck_assert(t_tick(t));
	ck_assert_str_eq(t_bucket(t), "2027-07-29T10Z");
	t_append(t, "current/s.log", "july\n");
	t_set_wall(t, good);
	ck_assert(!t_tick(t));
	t_append(t, "current/s.log", "december\n");
	t_seal(t);
	t_close(t);
	t_open(t);
	ck_assert_str_eq(t_bucket(t), "2027-07-29T10Z");
	t_expect(t, "current/s.log", "july\ndecember\n");
	expect_filled(HOUR_10);
}
END_TEST

/* -- names of windows -- */

/* The mark is lost and the clock is set back into a window that was sealed. */
START_TEST(test_name_is_taken)
{
	t_open(t);
	fill();
	t_boundary(t);
	t_append(t, "current/s.log", "eleven\n");
	t_boundary(t);
	t_seal(t);
	t_close(t);
	for (int i = 0; i < 3; i++) {
		char path[64], text[64];

		ck_assert_int_eq(unlink(t_at(t, "meta/clock")), 0);
		t_set_wall(t, t_start_of(HOUR_10) + T_MINUTE);
		t_open(t);
		(void)snprintf(text, sizeof(text), "again %d\n", i);
		/* Each time the bucket before is dropped out of its window, as a hand would do it.
		 */
		t_append(t, "current/s.log", text);
		ck_assert_str_ne(t_bucket(t), HOUR_10);
		(void)snprintf(path, sizeof(path), "%s/s.log", t_bucket(t));
		if (i == 0)
			ck_assert_str_eq(t_bucket(t), "2026-12-01T100100Z");
		t_expect(t, "current/s.log", text);
		t_pass(t, 2 * T_HOUR);
		ck_assert(t_tick(t));
		t_seal(t);
		t_expect(t, path, text);
		expect_filled(HOUR_10);
		t_close(t);
	}
	t_open(t);
	t_expect(t, HOUR_11 "/s.log", "eleven\n");
	t_expect(t, "2026-12-01T100100Z/s.log", "again 0\n");
}
END_TEST

/* cp without extended attributes: a bucket of 6 h says of itself only what its name says. */
START_TEST(test_window_is_not_known)
{
	t_option(t, "bucket", "6h");
	t_set_wall(t, t_start_of("2026-12-01T09Z"));
	t_open(t);
	ck_assert_str_eq(t_bucket(t), "2026-12-01T06Z");
	fill();
	t_close(t);
	ck_assert_int_eq(removexattr(t_at(t, "open/2026-12-01T06Z"), VARVE_XATTR_BUCKET), 0);
	t_open(t);
	ck_assert_str_eq(t_bucket(t), "2026-12-01T090000Z");
	ck_assert_int_eq(t->s->current->end_ns, t_start_of(HOUR_12));
	t_append(t, "current/s.log", "later\n");
	t_seal(t);
	expect_filled("2026-12-01T06Z");
	t_close(t);
	t_open(t);
	ck_assert_str_eq(t_bucket(t), "2026-12-01T090000Z");
	t_expect(t, "current/s.log", "later\n");
}
END_TEST

static const char *const bad_facts[] = {
	"",
	"1 2 3",
	"5000 0 1",
	"x",
	"5000 1796119200000000000 1796119200000000000",
	"5000 1796119200000000000 9223372036854775807",
	"99999999999999999999 1 2",
	"5000",
};

START_TEST(test_facts_of_a_bucket_are_bad)
{
	t_open(t);
	fill();
	t_boundary(t);
	t_append(t, "current/s.log", "eleven\n");
	t_seal(t);
	t_close(t);
	ck_assert_int_eq(setxattr(t_at(t, "open/" HOUR_11), VARVE_XATTR_BUCKET, bad_facts[_i],
				  strlen(bad_facts[_i]), 0),
			 0);
	ck_assert_int_eq(setxattr(t_at(t, "sealed/" HOUR_10), VARVE_XATTR_BUCKET, bad_facts[_i],
				  strlen(bad_facts[_i]), 0),
			 0);
	t_open(t);
	ck_assert_str_eq(t_bucket(t), HOUR_11);
	t_expect(t, "current/s.log", "eleven\n");
	expect_filled(HOUR_10);
	ck_assert_uint_ne(t_ino(t, HOUR_10), t->s->current->ino);
}
END_TEST

/* Buckets of different lengths in one store; a new length begins at the next boundary. */
START_TEST(test_length_is_changed)
{
	static const char *const lengths[] = {"1d", "1h", "15m", "1s", "6h", "1w", "1mo", "1d"};
	char line[32], *names[8];
	int64_t ends[8];
	unsigned n = 0;

	for (unsigned i = 0; i < 8; i++) {
		t_option(t, "bucket", lengths[i]);
		t_open(t);
		if (i) {
			/* Still the one that was open. */
			ck_assert_str_eq(t_bucket(t), names[n - 1]);
			ck_assert_int_eq(t->s->current->end_ns, ends[n - 1]);
			(void)snprintf(line, sizeof(line), "line %u\n", n - 1);
			t_expect(t, "current/s.log", line);
			t_boundary(t);
			if (i % 2)
				t_seal(t);
		}
		ck_assert_int_le(t->s->current->start_ns, t_now(t));
		ck_assert_int_gt(t->s->current->end_ns, t_now(t));
		names[n] = strdup(t_bucket(t));
		ends[n] = t->s->current->end_ns;
		(void)snprintf(line, sizeof(line), "line %u\n", n++);
		t_append(t, "current/s.log", line);
		t_close(t);
	}
	t_open(t);
	t_boundary(t);
	t_seal(t);
	for (unsigned i = 0; i < n; i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), "%s/s.log", names[i]);
		(void)snprintf(line, sizeof(line), "line %u\n", i);
		t_expect(t, path, line);
		ck_assert_int_eq(t_find(t, names[i])->end_ns, ends[i]);
		for (unsigned k = 0; k < i; k++)
			ck_assert_str_ne(names[i], names[k]);
	}
	for (unsigned i = 0; i < n; i++)
		free(names[i]);
}
END_TEST

T_MAIN("recover_meta", 60)
{
	const int n_spoils = (int)(sizeof(ino_files) / sizeof(*ino_files));

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_made_where_nothing_is);
	tcase_add_test(tc, test_made_in_an_empty_folder);
	tcase_add_loop_test(tc, test_making_was_cut_short, 0, 8);
	tcase_add_test(tc, test_refused_where_other_files_are);
	tcase_add_test(tc, test_refused_inside_another_store);
	tcase_add_test(tc, test_configuration_is_lost);
	tcase_add_test(tc, test_configuration_is_damaged);
	tcase_add_test(tc, test_in_use);
	tcase_add_loop_test(tc, test_counter_is_lost, 0, n_spoils);
	tcase_add_test(tc, test_counter_is_lost_before_a_seal);
	tcase_add_test(tc, test_counter_is_lost_twice);
	tcase_add_test(tc, test_part_without_number);
	tcase_add_loop_test(tc, test_part_with_a_bad_number, 0,
			    (int)(sizeof(bad_numbers) / sizeof(*bad_numbers)));
	tcase_add_test(tc, test_number_is_there_twice);
	tcase_add_loop_test(tc, test_clock_record_is_lost, 0, n_spoils);
	tcase_add_test(tc, test_off_for_three_windows);
	tcase_add_test(tc, test_off_for_longer_than_the_retention);
	tcase_add_test(tc, test_clock_is_behind_at_a_mount);
	tcase_add_loop_test(tc, test_clock_jumps_and_comes_back, 0, 2);
	tcase_add_test(tc, test_jump_is_accepted);
	tcase_add_test(tc, test_name_is_taken);
	tcase_add_test(tc, test_window_is_not_known);
	tcase_add_loop_test(tc, test_facts_of_a_bucket_are_bad, 0,
			    (int)(sizeof(bad_facts) / sizeof(*bad_facts)));
	tcase_add_test(tc, test_length_is_changed);
}
