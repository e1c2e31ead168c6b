/*
 * Opening a store: a case for each row of the table in docs/architecture.md, "Recovery". The state is
 * made by the running store, then the folder is changed as a crash, a power loss or a hand would
 * change it. What a crash at a given point leaves: test_recover_crash.c.
 */
#include "../lib/storetest.h"

#include <sys/resource.h>

#define HOUR_10 "2026-12-01T10Z"
#define HOUR_11 "2026-12-01T11Z"
#define HOUR_12 "2026-12-01T12Z"
#define HOUR_14 "2026-12-01T14Z"

static struct tstore *t;

static void set_up(void)
{
	t = t_new(HOUR_10);
}

static void tear_down(void)
{
	t_free(t);
}

/* What nearly every case begins with: a bucket of a stream, an object and a directory. */
static void fill(void)
{
	ck_assert_int_eq(t_try_mkdir(t, "current/d", 0755), 0);
	t_append(t, "current/s.log", "one\ntwo\n");
	t_append(t, "current/d/t.log", "deep\n");
	t_put(t, "current/o.txt", "object\n");
}

static void expect_filled(const char *bucket)
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

static struct numbers numbers_at(const char *bucket)
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

static void expect_numbers(const char *bucket, const struct numbers *want)
{
	struct numbers n = numbers_at(bucket);

	ck_assert_uint_eq(n.s, want->s);
	ck_assert_uint_eq(n.d, want->d);
	ck_assert_uint_eq(n.t, want->t);
	ck_assert_uint_eq(n.o, want->o);
}

static void expect_files_numbers(const char *bucket, const struct numbers *want)
{
	struct numbers n = numbers_at(bucket);

	ck_assert_uint_eq(n.s, want->s);
	ck_assert_uint_eq(n.t, want->t);
	ck_assert_uint_eq(n.o, want->o);
}

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
	ck_assert_int_eq(removexattr(t_at(t, "open/%s/default/0/s.log", HOUR_10), VARVE_XATTR_INO), 0);
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

static const char *const bad_numbers[] = {"0", "12", "-5", "9007199254740992", "x", "", "7 ",
					  "18446744073709551616", "99999999999999999999999999999999"};

START_TEST(test_part_with_a_bad_number)
{
	const char *bad = bad_numbers[_i];
	uint64_t ino;

	t_open(t);
	fill();
	t_close(t);
	ck_assert_int_eq(setxattr(t_at(t, "open/%s/default/0/s.log", HOUR_10), VARVE_XATTR_INO, bad,
				  strlen(bad), 0), 0);
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
	t_copy(t_at(t, "open/%s/default/0/s.log", HOUR_10), t_at(t, "open/%s/default/0/copy", HOUR_10));
	t_copy(t_at(t, "open/%s", HOUR_10), t_at(t, "open/%s", "2026-12-01T08Z"));
	t_open(t);
	ck_assert_uint_ne(t_ino(t, "current/copy"), t_ino(t, "current/s.log"));
	ck_assert(t_ino(t, "current/copy") == ino || t_ino(t, "current/s.log") == ino ||
		  t_ino(t, "2026-12-01T08Z/s.log") == ino || t_ino(t, "2026-12-01T08Z/copy") == ino);
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
	ck_assert_int_eq(t->s->time.state, strcmp(ino_files[_i], "cut") ? VARVE_TIME_GOOD
									: t->s->time.state);
	ck_assert_int_eq(t->s->time.believed_ns, t->s->time.state == VARVE_TIME_GOOD
							 ? t_now(t) : t->s->time.believed_ns);
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

/* The jump is accepted, then found to have been wrong: the clock catches up, and no name comes twice. */
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
		/* Each time the bucket before is dropped out of its window, as a hand would do it. */
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
	"", "1 2 3", "5000 0 1", "x", "5000 1796119200000000000 1796119200000000000",
	"5000 1796119200000000000 9223372036854775807", "99999999999999999999 1 2", "5000",
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
				  strlen(bad_facts[_i]), 0), 0);
	ck_assert_int_eq(setxattr(t_at(t, "sealed/" HOUR_10), VARVE_XATTR_BUCKET, bad_facts[_i],
				  strlen(bad_facts[_i]), 0), 0);
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

static void (*const differ[])(void) = {grow_part, shrink_part, add_part, spoil_segment, lose_segment};

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

/* -- the skeleton -- */

START_TEST(test_skeleton_lacks_a_directory)
{
	struct stat st;

	t_open(t);
	ck_assert_int_eq(t_try_mkdir(t, "current/d", 0777), 0);
	ck_assert_int_eq(t_try_mkdir(t, "current/d/e", 0750), 0);
	ck_assert_int_eq(t_chmod(t, "current/d", 01777), 0);
	ck_assert_int_eq(t_setattr(t, "current/d", &(struct stat){.st_uid = 7, .st_gid = 8},
				   VARVE_SET_UID | VARVE_SET_GID), 0);
	ck_assert_int_eq(t_setxattr(t, "current/d", "user.note", "kept"), 0);
	t_put(t, "current/d/e/f", "x\n");
	t_close(t);
	t_remove(t_at(t, "tree/d"));
	/* Whatever the umask of who starts the daemon is. */
	(void)umask(027);
	t_open(t);
	t_expect(t, "current/d/e/f", "x\n");
	st = t_attr(t, "current/d");
	ck_assert_int_eq(st.st_mode & 07777, 01777);
	ck_assert_int_eq(st.st_uid, 7);
	ck_assert_int_eq(st.st_gid, 8);
	t_expect_xattr(t, "current/d", "user.note", "kept");
	t_close(t);
	t_open(t);
	st = t_attr(t, "current/d");
	ck_assert_int_eq(st.st_mode & 07777, 01777);
	ck_assert_int_eq(t_attr(t, "current/d/e").st_mode & 07777, 0750);
	/* It outlives the bucket. */
	t_boundary(t);
	t_expect_list(t, "current/d", "e");
}
END_TEST

START_TEST(test_skeleton_is_lost)
{
	t_open(t);
	fill();
	t_close(t);
	t_remove(t_at(t, "tree"));
	t_open(t);
	expect_filled("current");
	ck_assert_int_eq(t_chmod(t, "current", 0755), 0);
	t_append(t, "current/s.log", "three\n");
	t_boundary(t);
	/* A stream again, since it was appended to. */
	t_expect_list(t, "current", "d s.log");
}
END_TEST

START_TEST(test_marker_without_serial)
{
	uint64_t ino;

	t_open(t);
	fill();
	t_close(t);
	ck_assert_int_eq(removexattr(t_at(t, "tree/s.log"), VARVE_XATTR_SERIAL), 0);
	t_file(t_at(t, "tree/by-hand.log"), "", 0);
	t_open(t);
	t_expect_list(t, "current", "by-hand.log d o.txt s.log");
	t_boundary(t);
	ino = t_ino(t, "current/by-hand.log");
	ck_assert_uint_ne(ino, t_ino(t, "current/s.log"));
	ck_assert_uint_ne(ino, t_ino(t, "current/d/t.log"));
	t_close(t);
	t_open(t);
	ck_assert_uint_eq(t_ino(t, "current/by-hand.log"), ino);
	t_append(t, "current/by-hand.log", "x\n");
	ck_assert_uint_eq(t_ino(t, "current/by-hand.log"), ino);
}
END_TEST

static const char *const bad_serials[] = {"", "x", "-1", "18446744073709551615", "9007199254740992",
					  "99999999999999999999999999999999999999"};

START_TEST(test_marker_with_a_bad_serial)
{
	t_open(t);
	fill();
	t_close(t);
	ck_assert_int_eq(setxattr(t_at(t, "tree/s.log"), VARVE_XATTR_SERIAL, bad_serials[_i],
				  strlen(bad_serials[_i]), 0), 0);
	t_open(t);
	t_boundary(t);
	t_expect_list(t, "current", "d s.log");
	ck_assert_uint_lt(t_ino(t, "current/s.log"), VARVE_INO_LIMIT);
	t_append(t, "current/s.log", "x\n");
	t_close(t);
	t_open(t);
	t_expect(t, "current/s.log", "x\n");
}
END_TEST

/* A hand, or cp -a inside tree/, gave two markers one serial. */
START_TEST(test_serial_is_there_twice)
{
	t_open(t);
	fill();
	t_close(t);
	t_copy(t_at(t, "tree/s.log"), t_at(t, "tree/u.log"));
	t_open(t);
	t_boundary(t);
	ck_assert_uint_ne(t_ino(t, "current/s.log"), t_ino(t, "current/u.log"));
	t_expect_list(t, "current", "d s.log u.log");
}
END_TEST

START_TEST(test_stream_and_directory_of_one_name)
{
	char *log;

	t_open(t);
	t_append(t, "current/x", "one\n");
	t_close(t);
	t_remove(t_at(t, "open/%s/default/0/x", HOUR_10));
	t_mkdir(t_at(t, "open/%s/default/0/x", HOUR_10));
	t_file(t_at(t, "open/%s/default/0/x/f", HOUR_10), "y\n", 2);
	log = t_open_logged(t);
	ck_assert_msg(strstr(log, "'current/x'"), "%s", log);
	free(log);
	t_expect(t, "current/x/f", "y\n");
	t_close(t);
	t_open(t);
	t_expect_list(t, "current/x", "f");
}
END_TEST

START_TEST(test_file_and_skeleton_directory_of_one_name)
{
	t_open(t);
	ck_assert_int_eq(t_try_mkdir(t, "current/x", 0755), 0);
	t_close(t);
	t_remove(t_at(t, "open/%s", HOUR_10));
	t_mkdir(t_at(t, "open/%s", HOUR_10));
	t_mkdir(t_at(t, "open/%s/default", HOUR_10));
	t_mkdir(t_at(t, "open/%s/default/0", HOUR_10));
	t_file(t_at(t, "open/%s/default/0/x", HOUR_10), "file\n", 5);
	t_open(t);
	/* The bytes are what counts; the directory is there again in the next bucket. */
	t_expect(t, "current/x", "file\n");
	t_expect_list(t, "current", "x");
	t_boundary(t);
	t_seal(t);
	t_expect(t, HOUR_10 "/x", "file\n");
}
END_TEST

START_TEST(test_staging_survives)
{
	uint64_t ino;

	t_open(t);
	ck_assert_int_eq(t_try_mkdir(t, ".staging/d", 0755), 0);
	t_put(t, ".staging/d/f", "draft\n");
	ino = t_ino(t, ".staging/d/f");
	t_crash(t);
	t_pass(t, 100 * T_DAY / 2);
	t_open(t);
	t_expect(t, ".staging/d/f", "draft\n");
	ck_assert_uint_eq(t_ino(t, ".staging/d/f"), ino);
	ck_assert_int_eq(t_move(t, ".staging/d", "current/d", 0), 0);
	t_expect(t, "current/d/f", "draft\n");
	ck_assert_uint_eq(t_ino(t, "current/d/f"), ino);
}
END_TEST

/* As many directories in one another as a path allows. */
START_TEST(test_deep_directories)
{
	/* Linux's own hard limit; the daemon raises the soft one to it. */
	const struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};
	struct varve_entry at, next;
	uint64_t ids[1900];
	int r = 0;

	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	t_open(t);
	ck_assert_int_eq(t_walk(t, "current", &at), 0);
	for (int i = 0; i < 1900; i++) {
		r = varve_store_mkdir(t->s, &t_root, at.id, "d", 0755, &next);
		ck_assert_msg(r == 0, "at depth %d: %d", i, r);
		at = next;
		ids[i] = at.id;
	}
	for (int i = 0; i < 1900; i++)
		varve_store_forget(t->s, ids[i], 1);
	varve_store_forget(t->s, VARVE_ID_CURRENT, 1);
	varve_store_close(t->s);
	t->s = NULL;
	t_open(t);
	t_pass(t, 2 * T_HOUR);
	ck_assert(t_tick(t));
	t_seal(t);
	ck_assert_int_eq(t_drop(t, HOUR_10), 0);
	varve_store_close(t->s);
	t->s = NULL;
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
	/* Cut in the middle of the seal's line: it is written anew, since the parts are there yet. */
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

static Suite *make_suite(void)
{
	Suite *s = suite_create("recover");
	TCase *c = tcase_create("recover");
	const int n_spoils = (int)(sizeof(ino_files) / sizeof(*ino_files));

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_made_where_nothing_is);
	tcase_add_test(c, test_made_in_an_empty_folder);
	tcase_add_loop_test(c, test_making_was_cut_short, 0, 8);
	tcase_add_test(c, test_refused_where_other_files_are);
	tcase_add_test(c, test_configuration_is_lost);
	tcase_add_test(c, test_configuration_is_damaged);
	tcase_add_test(c, test_in_use);
	tcase_add_loop_test(c, test_counter_is_lost, 0, n_spoils);
	tcase_add_test(c, test_counter_is_lost_before_a_seal);
	tcase_add_test(c, test_counter_is_lost_twice);
	tcase_add_test(c, test_part_without_number);
	tcase_add_loop_test(c, test_part_with_a_bad_number, 0,
			    (int)(sizeof(bad_numbers) / sizeof(*bad_numbers)));
	tcase_add_test(c, test_number_is_there_twice);
	tcase_add_loop_test(c, test_clock_record_is_lost, 0, n_spoils);
	tcase_add_test(c, test_off_for_three_windows);
	tcase_add_test(c, test_off_for_longer_than_the_retention);
	tcase_add_test(c, test_clock_is_behind_at_a_mount);
	tcase_add_loop_test(c, test_clock_jumps_and_comes_back, 0, 2);
	tcase_add_test(c, test_jump_is_accepted);
	tcase_add_test(c, test_name_is_taken);
	tcase_add_test(c, test_window_is_not_known);
	tcase_add_loop_test(c, test_facts_of_a_bucket_are_bad, 0,
			    (int)(sizeof(bad_facts) / sizeof(*bad_facts)));
	tcase_add_test(c, test_length_is_changed);
	tcase_add_test(c, test_current_goes_on);
	tcase_add_test(c, test_closing_is_sealed);
	tcase_add_test(c, test_closing_is_sealed_by_itself);
	tcase_add_test(c, test_closing_that_holds_nothing);
	tcase_add_test(c, test_seal_was_not_committed);
	tcase_add_test(c, test_other_hidden_things_stay);
	tcase_add_loop_test(c, test_seal_was_committed, 0, 2);
	tcase_add_test(c, test_some_parts_were_removed);
	tcase_add_loop_test(c, test_parts_differ_from_the_segment, 0,
			    (int)(sizeof(differ) / sizeof(*differ)));
	tcase_add_test(c, test_junk_is_ignored);
	tcase_add_test(c, test_no_file_of_ours_below_open);
	tcase_add_test(c, test_symbolic_links);
	tcase_add_loop_test(c, test_hold_survives, 0, 2);
	tcase_add_test(c, test_hold_of_the_current);
	tcase_add_test(c, test_skeleton_lacks_a_directory);
	tcase_add_test(c, test_skeleton_is_lost);
	tcase_add_test(c, test_marker_without_serial);
	tcase_add_loop_test(c, test_marker_with_a_bad_serial, 0,
			    (int)(sizeof(bad_serials) / sizeof(*bad_serials)));
	tcase_add_test(c, test_serial_is_there_twice);
	tcase_add_test(c, test_stream_and_directory_of_one_name);
	tcase_add_test(c, test_file_and_skeleton_directory_of_one_name);
	tcase_add_test(c, test_staging_survives);
	tcase_add_test(c, test_deep_directories);
	tcase_add_loop_test(c, test_drop_without_audit_line, 0, 4);
	tcase_add_test(c, test_removal_had_begun);
	tcase_add_loop_test(c, test_torn_audit_line, 0, 5);
	tcase_add_loop_test(c, test_tombstones_survive, 0, 6);
	tcase_add_loop_test(c, test_segment_is_damaged, 0,
			    (int)(sizeof(damage_at) / sizeof(*damage_at)));
	tcase_add_test(c, test_content_is_damaged);
	tcase_add_test(c, test_sealed_bucket_is_empty);
	tcase_add_test(c, test_opening_again_changes_nothing);
	suite_add_tcase(s, c);
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
