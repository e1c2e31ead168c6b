/*
 * Carried parts and a daemon that ends, is killed, or finds another disk than it left: at each stage of a
 * part's life, with a program that goes on writing to it and without; a record that is not there, or wrong;
 * and each crash point on the way.
 */
#include "carry_util.h"

#ifndef VARVE_TEST_HOOKS
#error "without test_hooks nothing would crash"
#endif

/* -- what is written, and where it has to be -- */

static struct {
	char name[VARVE_BUCKET_NAME_MAX];
	char want[128];
} buckets[8];
static unsigned n_buckets;
static int fd; /* the program's */

static void enter_bucket(void)
{
	if (n_buckets && !strcmp(buckets[n_buckets - 1].name, t_bucket(t)))
		return;
	ck_assert_uint_lt(n_buckets, 8);
	(void)snprintf(buckets[n_buckets].name, sizeof(buckets[n_buckets].name), "%s", t_bucket(t));
	buckets[n_buckets++].want[0] = '\0';
}

static void begin(void)
{
	n_buckets = 0;
	enter_bucket();
}

static void say(const char *text)
{
	put_fd(fd, text);
	(void)strcat(buckets[n_buckets - 1].want, text);
}

static void next_bucket(void)
{
	t_boundary(t);
	enter_bucket();
}

static void expect_all(void)
{
	for (unsigned i = 0; i < n_buckets; i++) {
		char path[64];
		bool last = i == n_buckets - 1;

		(void)snprintf(path, sizeof(path), "%s/x", last ? "current" : buckets[i].name);
		if (buckets[i].want[0] || last)
			t_expect(t, path, buckets[i].want);
		else
			t_expect_r(t, path, -ENOENT);
	}
}

static void seal_all(void)
{
	t_seal(t);
	t_reap(t);
	expect_all();
}

/* -- remounts -- */

START_TEST(test_remount)
{
	int stage = _i & 3;
	bool orphan = _i & 4, crash = _i & 8, time_passes = _i & 16;
	struct kfile k = k_native("current/x");
	char part[T_PATH];

	fd = k.fd;
	begin();
	say("1\n");
	if (stage >= 1) {
		next_bucket();
		say("2\n");
	}
	if (stage >= 2) {
		seal_all();
		say("3\n");
	}
	if (stage >= 3) {
		next_bucket();
		say("4\n");
	}
	expect_all();
	(void)strcpy(part, t_at(t, "open/%s/default/0/x", t_bucket(t)));
	t_file_close(t, &k.f);
	if (crash) {
		(void)close(fd);
		t_crash(t);
		fd = open(part, O_WRONLY | O_APPEND | O_CLOEXEC);
		ck_assert_int_ge(fd, 0);
	} else {
		t_close(t);
	}
	say("while it was away\n");
	if (!orphan)
		(void)close(fd);
	if (time_passes)
		t_pass(t, 2 * T_HOUR);
	open_store(t);
	enter_bucket();
	expect_all();
	if (orphan)
		say("5\n");
	expect_all();
	next_bucket();
	if (orphan)
		say("6\n");
	expect_all();
	seal_all();
	if (orphan)
		say("7\n");
	next_bucket();
	if (orphan)
		say("8\n");
	if (orphan)
		(void)close(fd);
	reopen();
	expect_all();
	seal_all();
	next_bucket();
	seal_all();
}
END_TEST

/* In the middle of a line. */
START_TEST(test_remount_in_a_line)
{
	struct kfile k = k_native("current/x");

	fd = k.fd;
	begin();
	say("beg");
	t_boundary(t);
	if (_i == 1)
		say("in\n");
	t_file_close(t, &k.f);
	t_close(t);
	if (_i == 2)
		say("in\n");
	open_store(t);
	if (_i == 0)
		say("in\n");
	enter_bucket();
	expect_all();
	say("next\n");
	expect_all();
	(void)close(fd);
	seal_all();
	reopen();
	expect_all();
}
END_TEST

/* -- a record that is not right -- */

static void two_buckets(void)
{
	struct kfile k = k_native("current/x");

	k_puts(&k, "of A\n");
	t_boundary(t);
	k_puts(&k, "of B\n");
	k_close(&k);
	t_expect(t, A "/x", "of A\n");
	t_expect(t, "current/x", "of B\n");
}

/* Parts are then shown whole in each bucket: too much, never too little. */
START_TEST(test_no_record)
{
	struct stat st;
	char *log;

	two_buckets();
	t_close(t);
	if (_i == 0) {
		ck_assert_int_eq(unlink(t_at(t, "meta/ranges")), 0);
	} else {
		ck_assert_int_eq(stat(t_at(t, "meta/ranges"), &st), 0);
		t_damage(t_at(t, "meta/ranges"), 40, 4);
		t_damage(t_at(t, "meta/ranges"), st.st_size / 2 + 40, 4);
	}
	log = t_open_logged(t);
	ck_assert_int_eq(strstr(log, "damaged") != NULL, _i == 1);
	free(log);
	t_expect(t, A "/x", "of A\nof B\n");
	t_expect(t, "current/x", "of A\nof B\n");
	ck_assert_uint_ne(t_ino(t, A "/x"), t_ino(t, "current/x"));
	t_seal(t);
	t_reap(t);
	t_expect(t, A "/x", "of A\nof B\n");
	t_expect(t, "current/x", "of A\nof B\n");
	t_boundary(t);
	t_seal(t);
	t_expect(t, B "/x", "of A\nof B\n");
}
END_TEST

START_TEST(test_later_version)
{
	struct varve_slots *slots = NULL;
	struct varve_err err;
	int meta;

	two_buckets();
	t_close(t);
	t_copy(t_at(t, "meta/ranges"), t_at(t, "meta/kept"));
	meta = open(t_at(t, "meta"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(varve_slots_open(meta, "ranges", VARVE_RANGES_MAGIC, 100, &slots, &err), 0);
	ck_assert_int_eq(varve_slots_write(slots, "\2\0\0\0\0\0\0\0", 8), 0);
	varve_slots_close(slots);
	(void)close(meta);
	/* What a later version says of the parts is not guessed at. */
	ck_assert_int_eq(t_try_open(t, &err), -EPROTONOSUPPORT);
	ck_assert(err.msg[0]);
	t_rename(t_at(t, "meta/kept"), t_at(t, "meta/ranges"));
	open_store(t);
	t_expect(t, A "/x", "of A\n");
	t_expect(t, "current/x", "of B\n");
}
END_TEST

/* Power loss: the part is shorter than the record says. */
START_TEST(test_shorter_part)
{
	static const struct {
		off_t size;
		const char *in_a, *in_b;
	} cuts[] = {{10, "of A\n", "of B\n"}, {7, "of A\n", "of"}, {5, "of A\n", ""}, {3, "of ", ""}, {0, "", ""}};

	two_buckets();
	t_close(t);
	ck_assert_int_eq(truncate(t_at(t, "open/" A "/default/0/x"), cuts[_i].size), 0);
	open_store(t);
	t_expect(t, A "/x", cuts[_i].in_a);
	t_expect(t, "current/x", cuts[_i].in_b);
	t_append(t, "current/x", "more\n");
	t_expect(t, A "/x", cuts[_i].in_a);
	reopen();
	t_expect(t, A "/x", cuts[_i].in_a);
	t_seal(t);
	t_reap(t);
	t_expect(t, A "/x", cuts[_i].in_a);
	{
		char want[32];

		(void)snprintf(want, sizeof(want), "%smore\n", cuts[_i].in_b);
		t_expect(t, "current/x", want);
	}
}
END_TEST

/* A's name, or B's, was removed by hand: the other has its own all the same. */
START_TEST(test_name_removed_by_hand)
{
	two_buckets();
	t_close(t);
	ck_assert_int_eq(unlink(t_at(t, "open/%s/default/0/x", _i ? B : A)), 0);
	open_store(t);
	if (_i) {
		t_expect(t, A "/x", "of A\n");
		t_expect(t, "current/x", "");
	} else {
		t_expect_r(t, A "/x", -ENOENT);
		t_expect(t, "current/x", "of B\n");
	}
	t_append(t, "current/x", "more\n");
	t_seal(t);
	t_reap(t);
	if (_i)
		t_expect(t, A "/x", "of A\n");
	t_expect(t, "current/x", _i ? "more\n" : "of B\nmore\n");
	reopen();
	t_expect(t, "current/x", _i ? "more\n" : "of B\nmore\n");
}
END_TEST

/* -- a full disk -- */

/* The boundary and its record need no space. */
START_TEST(test_full_disk)
{
	struct kfile k;
	char *page = calloc(1, 65536);
	int other;

	t_close(t);
	t_mount(t->path, "size=16m");
	open_store(t);
	k = k_native("current/x");
	fd = k.fd;
	begin();
	say("1\n");
	other = open(t_at(t, "fills-it"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	while (write(other, page, 65536) > 0)
		;
	while (write(other, page, 512) > 0)
		;
	ck_assert_int_eq(errno, ENOSPC);
	next_bucket();
	ck_assert(is_recorded(A) && is_recorded(B));
	ck_assert(has_part(B, "x"));
	say("2\n");
	expect_all();
	k_close(&k);
	reopen();
	expect_all();
	ck_assert_int_eq(unlink(t_at(t, "fills-it")), 0);
	(void)close(other);
	free(page);
	seal_all();
	reopen();
	expect_all();
	t_close(t);
	ck_assert_int_eq(umount(t->path), 0);
}
END_TEST

/* -- crash points -- */

static void write_and_cut(struct tstore *of)
{
	struct kfile k;

	open_store(of);
	k = k_native("current/x");
	k_puts(&k, "1\n");
	t_pass(of, of->s->current->end_ns - t_now(of) + T_SECOND / 1000);
	{
		guard(&of->s->mutate);
		ck_assert_int_eq(varve_boundary_cut(of->s, t_now(of)), 0);
	}
	/* Somebody writes on before the record is there. */
	k_puts(&k, "2\n");
	{
		guard(&of->s->mutate);
		(void)varve_clock_keep(of->s);
		(void)varve_carry_finish(of->s, true);
	}
}

/* With a program that outlives it, and without; found in the same window, or in the next. */
START_TEST(test_crash_at_a_boundary)
{
	static const char *const points[] = {"boundary.done", "carry.saved:2", "carry.linked:2"};
	bool marked = _i % 3 > 0, orphan = _i / 3 & 1, later = _i / 6;

	t_close(t);
	t_die_at(t, points[_i % 3], write_and_cut);
	/* In the child's time the boundary has been. */
	t_pass(t, T_HOUR);
	fd = hold_part(A, "x");
	if (!orphan)
		(void)close(fd);
	else
		put_fd(fd, "3\n");
	if (later)
		t_pass(t, T_HOUR);
	open_store(t);
	n_buckets = 0;
	(void)strcpy(buckets[n_buckets].name, A);
	/* At boundary.done nothing has been written down: all there is is A's. */
	(void)strcpy(buckets[n_buckets++].want, marked ? "1\n" : orphan ? "1\n3\n" : "1\n");
	if (marked) {
		(void)strcpy(buckets[n_buckets].name, B);
		(void)strcpy(buckets[n_buckets++].want, orphan ? "2\n3\n" : "2\n");
	}
	enter_bucket();
	expect_all();
	if (orphan)
		say("4\n");
	expect_all();
	reopen();
	expect_all();
	if (orphan)
		say("5\n");
	next_bucket();
	if (orphan)
		say("6\n");
	seal_all();
	if (orphan) {
		say("7\n");
		(void)close(fd);
	}
	reopen();
	expect_all();
}
END_TEST

static void open_and_seal(struct tstore *of)
{
	open_store(of);
	t_seal(of);
}

static const char *const seal_points[] = {"seal.shut",	     "seal.written", "seal.renamed",
					  "seal.committed", "seal.audited", "seal.removed"};

START_TEST(test_crash_at_a_seal)
{
	bool orphan = _i / 6 & 1, twice = _i / 12;
	struct kfile k = k_native("current/x");

	fd = k.fd;
	begin();
	say("1\n");
	next_bucket();
	say("2\n");
	t_file_close(t, &k.f);
	t_close(t);
	if (!orphan)
		(void)close(fd);
	t_die_at(t, seal_points[_i % 6], open_and_seal);
	if (orphan)
		say("3\n");
	if (twice && _i % 6 < 2) {
		t_die_at(t, seal_points[_i % 6], open_and_seal);
		if (orphan)
			say("4\n");
	}
	open_store(t);
	expect_all();
	seal_all();
	ck_assert_int_eq(t_find(t, A)->state, VARVE_BUCKET_SEALED);
	if (orphan)
		say("5\n");
	next_bucket();
	if (orphan)
		say("6\n");
	seal_all();
	if (orphan)
		(void)close(fd);
	reopen();
	expect_all();
	t_close(t);
	ck_assert(!t_exists(t_at(t, "open/" A)));
	ck_assert(!t_exists(t_at(t, "open/" B)));
	open_store(t);
}
END_TEST

static void *seal_a(void *arg)
{
	*(int *)arg = t_seal_one(t, t_find(t, A));
	return NULL;
}

/* What a descriptor that the store does not know of writes to a part, once it was read for its segment, goes on in
 * the current bucket; there is no writer that could be counted. */
START_TEST(test_grew_while_it_was_sealed)
{
	char at[128], pause[160], there[160];
	pthread_t sealer;
	int held, r = -1;

	t_append(t, "current/x", "one\n");
	held = hold_part(A, "x");
	t_boundary(t);
	(void)snprintf(at, sizeof(at), "%s/pause", t->dir);
	(void)snprintf(there, sizeof(there), "%s.there", at);
	(void)snprintf(pause, sizeof(pause), "seal.committed:%s", at);
	t_file(at, "", 0);
	ck_assert_int_eq(setenv("VARVE_TEST_PAUSE", pause, 1), 0);
	ck_assert_int_eq(pthread_create(&sealer, NULL, seal_a, &r), 0);
	while (!t_exists(there))
		(void)usleep(1000);
	put_fd(held, "two\n");
	ck_assert_int_eq(unlink(at), 0);
	(void)pthread_join(sealer, NULL);
	ck_assert_int_eq(r, 0);
	t_expect(t, A "/x", "one\n");
	t_expect(t, "current/x", "two\n");
	t_expect_writers(t, "current/x", 0);
	(void)close(held);
	t_boundary(t);
	t_expect(t, B "/x", "two\n");
	t_expect_writers(t, B "/x", 0);
	reopen();
	t_expect(t, A "/x", "one\n");
	t_expect(t, B "/x", "two\n");
}
END_TEST

/* A line that is unfinished when the store is opened anew may still be finished, by who outlived the daemon, as long as a
 * grace lasts; where nobody can, its bucket is sealed at once. The boundary was before the end of the daemon, or
 * meanwhile. */
START_TEST(test_line_is_finished_later)
{
	bool before = _i & 1, orphan = _i & 2;
	struct kfile k = k_native("current/x");
	int held;

	k_puts(&k, "1\nbegun, ");
	if (before)
		t_boundary(t);
	held = hold_part(A, "x");
	k_close(&k);
	t_crash(t);
	/* The folder is a copy now. */
	(void)close(held);
	held = orphan ? hold_part(A, "x") : -1;
	if (!before)
		t_pass(t, T_HOUR);
	open_store(t);
	ck_assert_int_eq(t_find(t, A)->grace_end_ns > t_now(t), orphan);
	if (orphan) {
		t_expect(t, A "/x", "1\nbegun, ");
		put_fd(held, "ended\n2\n");
		t_expect(t, A "/x", "1\nbegun, ended\n");
		t_expect(t, "current/x", "2\n");
		(void)close(held);
	}
	t_seal(t);
	t_expect(t, A "/x", orphan ? "1\nbegun, ended\n" : "1\nbegun, ");
	t_expect(t, "current/x", orphan ? "2\n" : "");
}
END_TEST

static void finish_line_and_seal(struct tstore *of)
{
	struct kfile k;

	open_store(of);
	k = k_native("current/x");
	k_puts(&k, "1\nbegun, ");
	t_boundary(of);
	k_puts(&k, "ended\n2\n");
	/* Seen here, the line's end is known, and the record still says that it is not. */
	t_expect(of, A "/x", "1\nbegun, ended\n");
	t_seal(of);
}

/* The line was finished before the seal, the record of it was written before that, and the parts are left. */
START_TEST(test_line_was_finished_before_the_seal)
{
	static const char *const points[] = {"seal.renamed", "seal.committed", "seal.audited"};

	t_close(t);
	t_die_at(t, points[_i], finish_line_and_seal);
	t_pass(t, T_HOUR);
	open_store(t);
	ck_assert(!t_exists(t_at(t, "open/" A)));
	t_expect(t, A "/x", "1\nbegun, ended\n");
	t_expect(t, "current/x", "2\n");
	t_boundary(t);
	t_seal(t);
	t_expect(t, A "/x", "1\nbegun, ended\n");
	t_expect(t, B "/x", "2\n");
}
END_TEST

T_MAIN("carry_recover", 60)
{
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(tc, test_remount, 0, 32);
	tcase_add_loop_test(tc, test_remount_in_a_line, 0, 3);
	tcase_add_test(tc, test_grew_while_it_was_sealed);
	tcase_add_loop_test(tc, test_line_is_finished_later, 0, 4);
	tcase_add_loop_test(tc, test_line_was_finished_before_the_seal, 0, 3);
	tcase_add_loop_test(tc, test_no_record, 0, 2);
	tcase_add_test(tc, test_later_version);
	tcase_add_loop_test(tc, test_shorter_part, 0, 5);
	tcase_add_loop_test(tc, test_name_removed_by_hand, 0, 2);
	tcase_add_test(tc, test_full_disk);
	tcase_add_loop_test(tc, test_crash_at_a_boundary, 0, 12);
	tcase_add_loop_test(tc, test_crash_at_a_seal, 0, 24);
}
