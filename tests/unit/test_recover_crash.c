/*
 * A daemon that dies: at each crash point (docs/architecture.md, "Crash points"), at two of them
 * one after the other, and at any instant. Needs test_hooks. The rows of the recovery table, each
 * by itself: test_recover.c.
 */
#include "../lib/storetest.h"

#ifndef VARVE_TEST_HOOKS
#error "without test_hooks nothing would crash"
#endif

#define HOUR_10 "2026-12-01T10Z"
#define HOUR_11 "2026-12-01T11Z"
#define HOUR_12 "2026-12-01T12Z"

static struct tstore *t;
static uint64_t ino_s, ino_f, ino_o;

/* A bucket with a stream, an object, a directory; closed. */
static void set_up(void)
{
	t = t_new(HOUR_10);
	t_option(t, "keep", "30m");
	t_open(t);
	ck_assert_int_eq(t_try_mkdir(t, "current/d", 0755), 0);
	t_append(t, "current/s.log", "one\ntwo\n");
	t_append(t, "current/d/f.log", "deep\n");
	t_put(t, "current/o.txt", "object\n");
	ino_s = t_ino(t, "current/s.log");
	ino_f = t_ino(t, "current/d/f.log");
	ino_o = t_ino(t, "current/o.txt");
	t_close(t);
}

static void tear_down(void)
{
	t_free(t);
}

static void expect_filled(void)
{
	t_expect(t, HOUR_10 "/s.log", "one\ntwo\n");
	t_expect(t, HOUR_10 "/d/f.log", "deep\n");
	t_expect(t, HOUR_10 "/o.txt", "object\n");
	t_expect_list(t, HOUR_10, "d o.txt s.log");
	ck_assert_uint_eq(t_ino(t, HOUR_10 "/s.log"), ino_s);
	ck_assert_uint_eq(t_ino(t, HOUR_10 "/d/f.log"), ino_f);
	ck_assert_uint_eq(t_ino(t, HOUR_10 "/o.txt"), ino_o);
}

/* -- one after the other -- */

static void open_and_seal(struct tstore *of)
{
	t_open(of);
	t_seal(of);
}

static const char *const seal_points[] = {"seal.shut",      "seal.written", "seal.renamed",
					  "seal.committed", "seal.audited", "seal.removed"};
#define N_SEAL 6

START_TEST(test_boundary)
{
	t_pass(t, T_HOUR);
	/* The boundary comes in the child; here it is found by the clock. */
	t_set_wall(t, t_start_of(HOUR_10) + T_MINUTE);
	{
		pid_t pid = fork();
		int status;

		ck_assert_int_ge(pid, 0);
		if (pid == 0) {
			(void)setenv("VARVE_TEST_CRASH", "boundary.done", 1);
			t_open(t);
			t_boundary(t);
			_exit(1);
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(WEXITSTATUS(status), 86);
	}
	/* At once: still in the window; later: closing. */
	if (_i)
		t_pass(t, T_HOUR);
	t_open(t);
	ck_assert_str_eq(t_bucket(t), _i ? HOUR_11 : HOUR_10);
	if (_i)
		t_seal(t);
	else
		t_boundary(t);
	expect_filled();
	t_expect_list(t, "current", "d s.log");
}
END_TEST

/* At each point of a seal, and then at each point of the seal that recovery begins. */
START_TEST(test_seal)
{
	const char *first = seal_points[_i / (N_SEAL + 1)];
	int second = _i % (N_SEAL + 1);

	t_pass(t, T_HOUR);
	t_die_at(t, first, open_and_seal);
	ck_assert_int_eq(t_exists(t_at(t, "sealed/" HOUR_10)), _i / (N_SEAL + 1) >= 2);
	/* Once committed there is no second seal to die in. */
	if (second < N_SEAL && _i / (N_SEAL + 1) < 2)
		t_die_at(t, seal_points[second], open_and_seal);
	t_open(t);
	expect_filled();
	t_seal(t);
	expect_filled();
	ck_assert_int_eq(t_find(t, HOUR_10)->state, VARVE_BUCKET_SEALED);
	t_close(t);
	t_expect_dir(t_at(t, "sealed"), HOUR_10);
	t_expect_dir(t_at(t, "open"), "");
	ck_assert_uint_eq(t_audited(t, "seal", HOUR_10), 1);
	t_open(t);
	expect_filled();
}
END_TEST

/* The second of two buckets. */
START_TEST(test_second_seal)
{
	char point[32];

	(void)snprintf(point, sizeof(point), "%s:2", seal_points[_i]);
	t_open(t);
	t_boundary(t);
	t_append(t, "current/s.log", "eleven\n");
	t_close(t);
	t_pass(t, T_HOUR);
	t_die_at(t, point, open_and_seal);
	t_open(t);
	ck_assert_int_eq(t_find(t, HOUR_10)->state, VARVE_BUCKET_SEALED);
	t_seal(t);
	expect_filled();
	t_expect(t, HOUR_11 "/s.log", "eleven\n");
	t_close(t);
	t_expect_dir(t_at(t, "sealed"), HOUR_10 " " HOUR_11);
	t_expect_dir(t_at(t, "open"), "");
	ck_assert_uint_eq(t_audited(t, "seal", HOUR_10), 1);
	ck_assert_uint_eq(t_audited(t, "seal", HOUR_11), 1);
}
END_TEST

static void open_and_drop(struct tstore *of)
{
	t_open(of);
	(void)t_drop(of, HOUR_10);
}

static void open_and_expire(struct tstore *of)
{
	t_open(of);
	(void)t_expire(of, HOUR_10);
}

static const char *const drop_points[] = {"drop.before", "drop.renamed", "drop.committed"};

START_TEST(test_drop)
{
	const char *point = drop_points[_i % 3];
	bool gone = _i % 3 != 0, sealed = _i / 3 & 1, hand = _i / 6;
	struct varve_err err;

	t_pass(t, T_HOUR);
	if (sealed) {
		t_open(t);
		t_seal(t);
		t_close(t);
	}
	t_die_at(t, point, hand ? open_and_drop : open_and_expire);
	t_open(t);
	ck_assert_uint_eq(t_audited(t, hand ? "drop" : "expire", HOUR_10), gone);
	if (!gone) {
		expect_filled();
		t_seal(t);
		expect_filled();
		ck_assert_int_eq(hand ? t_drop(t, HOUR_10) : t_expire(t, HOUR_10), 0);
	}
	t_expect_r(t, HOUR_10, -ENOENT);
	t_expect_list(t, "", ".staging " HOUR_11 " current");
	ck_assert_uint_eq(t_audited(t, hand ? "drop" : "expire", HOUR_10), 1);
	if (hand) {
		ck_assert_int_eq(varve_store_undrop(t->s, &t_root, HOUR_10, &err), 0);
		expect_filled();
		t_seal(t);
		expect_filled();
		ck_assert_int_eq(t_drop(t, HOUR_10), 0);
		t_pass(t, T_HOUR / 4);
	}
	t_reap(t);
	t_close(t);
	t_expect_dir(t_at(t, "trash"), "");
	t_expect_dir(t_at(t, "sealed"), "");
	t_expect_dir(t_at(t, "open"), "");
}
END_TEST

static void open_and_publish(struct tstore *of)
{
	t_open(of);
	(void)t_move(of, ".staging/x", "current/d/x", 0);
}

START_TEST(test_publish)
{
	uint64_t ino;
	struct stat st;

	t_open(t);
	ck_assert_int_eq(t_try_mkdir(t, ".staging/x", 0775), 0);
	ck_assert_int_eq(t_try_mkdir(t, ".staging/x/y", 0700), 0);
	ck_assert_int_eq(t_setattr(t, ".staging/x/y", &(struct stat){.st_uid = 3, .st_gid = 4},
				   VARVE_SET_UID | VARVE_SET_GID),
			 0);
	ck_assert_int_eq(t_setxattr(t, ".staging/x/y", "user.note", "kept"), 0);
	t_put(t, ".staging/x/y/f", "published\n");
	ino = t_ino(t, ".staging/x/y/f");
	t_close(t);
	t_die_at(t, "publish.renamed", open_and_publish);
	t_open(t);
	/* All of it or nothing: it is past the rename. */
	t_expect_r(t, ".staging/x", -ENOENT);
	t_expect(t, "current/d/x/y/f", "published\n");
	ck_assert_uint_eq(t_ino(t, "current/d/x/y/f"), ino);
	st = t_attr(t, "current/d/x/y");
	ck_assert_int_eq(st.st_mode & 07777, 0700);
	ck_assert_int_eq(st.st_uid, 3);
	ck_assert_int_eq(st.st_gid, 4);
	ck_assert_int_eq(t_attr(t, "current/d/x").st_mode & 07777, 0755);
	t_expect_xattr(t, "current/d/x/y", "user.note", "kept");
	t_boundary(t);
	t_seal(t);
	t_expect(t, HOUR_10 "/d/x/y/f", "published\n");
	ck_assert_uint_eq(t_ino(t, HOUR_10 "/d/x/y/f"), ino);
	t_expect_list(t, "current/d/x", "y");
}
END_TEST

/* -- at any instant -- */

/* Appends numbered lines, one handle after the other or the same for long, and lets the hours go by
 * with all that they bring; tells of each line that was taken. Until it is killed. */
static void work(int pipe_fd, unsigned first, int64_t *shared_now)
{
	unsigned n = first;

	t_set_wall(t, *shared_now);
	t_open(t);
	for (;;) {
		struct tfile f = t_file_open(t, "current/s.log", O_WRONLY | O_APPEND | O_CREAT);

		for (int i = 0; i < 20; i++) {
			char line[32];

			(void)snprintf(line, sizeof(line), "%u\n", n);
			t_puts(t, &f, line);
			if (write(pipe_fd, &n, sizeof(n)) != sizeof(n))
				_exit(1);
			n++;
			if (i == 10) {
				t_pass(t, t->s->current->end_ns - t_now(t));
				*shared_now = t_now(t);
				ck_assert(t_tick(t));
			}
		}
		t_file_close(t, &f);
		t_seal(t);
	}
}

/* Every line is there once, in order, over all buckets. How many there are. */
static unsigned count_lines(void)
{
	struct varve_status st;
	unsigned n = 0;

	ck_assert_int_eq(varve_store_status(t->s, &st), 0);
	for (unsigned i = 0; i < st.n_buckets; i++) {
		char path[64], *text, *at;
		struct tfile f;
		ssize_t len;

		(void)snprintf(path, sizeof(path), "%s/s.log",
			       i == st.n_buckets - 1 ? "current" : st.buckets[i].name);
		if (t_try_file(t, path, O_RDONLY, 0, &f) < 0)
			continue;
		text = t_get_fh(t, f.fh, &len);
		ck_assert_int_ge(len, 0);
		for (at = text; *at; at = strchr(at, '\n') + 1) {
			ck_assert_ptr_nonnull(strchr(at, '\n'));
			ck_assert_msg(strtoul(at, NULL, 10) == n, "%s: %.20s, not %u", path, at, n);
			n++;
		}
		free(text);
		t_file_close(t, &f);
	}
	varve_status_done(&st);
	return n;
}

START_TEST(test_killed_at_any_instant)
{
	int64_t *now =
		mmap(NULL, sizeof(*now), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t seed = 88172645463325252;
	unsigned have = 0;

	ck_assert_ptr_ne(now, MAP_FAILED);
	t_remove(t->path);
	t->n_options = 0;
	t_option(t, "bucket", "1h");
	t_option(t, "min-free", "0");
	t_option(t, "seal-level", "1");
	t_option(t, "seal-threads", "1");
	*now = t_now(t);
	for (int i = 0; i < 40; i++) {
		unsigned told = have, n;
		int fds[2], status;
		pid_t pid;

		ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
		pid = fork();
		ck_assert_int_ge(pid, 0);
		if (pid == 0) {
			(void)close(fds[0]);
			work(fds[1], have, now);
		}
		(void)close(fds[1]);
		/* Some lines, then a moment more. */
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		for (unsigned k = 0; k < seed % 100; k++) {
			ck_assert_int_eq(read(fds[0], &n, sizeof(n)), sizeof(n));
			told = n + 1;
		}
		(void)usleep((useconds_t)(seed >> 32) % 5000);
		(void)kill(pid, SIGKILL);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		while (read(fds[0], &n, sizeof(n)) == sizeof(n))
			told = n + 1;
		(void)close(fds[0]);
		t_set_wall(t, *now);
		t_open(t);
		have = count_lines();
		/* One more may have been taken than was told of. */
		ck_assert_msg(have == told || have == told + 1, "%u lines, told of %u", have, told);
		if (i % 3 == 0) {
			t_seal(t);
			ck_assert_uint_eq(count_lines(), have);
		}
		t_close(t);
		ck_assert(!t_exists(t_at(t, "sealed/.%s.tmp", HOUR_10)));
	}
	ck_assert_uint_gt(have, 500);
	(void)munmap(now, sizeof(*now));
}
END_TEST

T_MAIN("recover_crash", 100)
{
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(tc, test_boundary, 0, 2);
	tcase_add_loop_test(tc, test_seal, 0, N_SEAL * (N_SEAL + 1));
	tcase_add_loop_test(tc, test_second_seal, 0, N_SEAL);
	tcase_add_loop_test(tc, test_drop, 0, 12);
	tcase_add_test(tc, test_publish);
	tcase_add_test(tc, test_killed_at_any_instant);
}
