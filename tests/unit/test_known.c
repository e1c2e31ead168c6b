/* meta/sealed: the list itself, and what an open store believes of it. */
#include "../lib/storetest.h"

#include "store/known.h"

#define A "2026-12-01T10Z"
#define B "2026-12-01T11Z"

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

/* -- the list -- */

static struct varve_known_bucket sample(const char *name, uint64_t dir_ino)
{
	struct varve_known_bucket k = {.dir_ino = dir_ino, .ino = 4711 + dir_ino, .files = 3, .bytes = 99,
				       .allocated = 4096, .mode = S_IFDIR | 0750, .uid = 7, .gid = 8,
				       .mtime_sec = -5, .mtime_nsec = 999999999};

	(void)snprintf(k.name, sizeof(k.name), "%s", name);
	ck_assert_int_eq(varve_name_parse(name, &k.start_ns, &k.end_ns), 0);
	return k;
}

static bool is_there(const char *path)
{
	struct varve_entry e;
	int r = t_walk(t, path, &e);

	if (r == 0)
		t_forget_dir(t, &e);
	return r == 0;
}

static void undrop(const char *name)
{
	struct varve_err err = {.msg = ""};

	ck_assert_msg(varve_store_undrop(t->s, &t_root, name, &err) == 0, "%s", err.msg);
}

START_TEST(test_list)
{
	struct varve_known_bucket list[] = {sample(B, 12), sample("2026-11-30", 13), sample(A, 11)};
	struct varve_known_bucket *got = NULL;
	const struct varve_known_bucket *k;
	int fd = t->s->meta_fd;
	size_t n = 0;

	ck_assert_int_eq(varve_known_read(fd, &got, &n), -ENOENT);
	ck_assert_int_eq(varve_known_write(fd, list, 3), 0);
	ck_assert_int_eq(varve_known_read(fd, &got, &n), 0);
	ck_assert_uint_eq(n, 3);
	k = varve_known_find(got, n, B, 12);
	ck_assert_ptr_nonnull(k);
	ck_assert_uint_eq(k->ino, 4711 + 12);
	ck_assert_uint_eq(k->allocated, 4096);
	ck_assert_uint_eq(k->mode, S_IFDIR | 0750);
	ck_assert_int_eq(k->mtime_sec, -5);
	ck_assert_uint_eq(k->mtime_nsec, 999999999);
	ck_assert_ptr_nonnull(varve_known_find(got, n, A, 11));
	ck_assert_ptr_nonnull(varve_known_find(got, n, "2026-11-30", 13));
	/* Another directory of that name; a name that is not there; one that can't be. */
	ck_assert_ptr_null(varve_known_find(got, n, B, 11));
	ck_assert_ptr_null(varve_known_find(got, n, "2026-12-01T12Z", 12));
	ck_assert_ptr_null(varve_known_find(
		got, n, "2026-12-01T10Z-and-more-than-any-name-of-a-bucket-can-ever-be-long", 11));
	ck_assert_ptr_null(varve_known_find(NULL, 0, A, 11));
	free(got);
	ck_assert_int_eq(varve_known_write(fd, list, 0), 0);
	ck_assert_int_eq(varve_known_read(fd, &got, &n), 0);
	ck_assert_uint_eq(n, 0);
	free(got);
}
END_TEST

/* Nothing that is not exactly what was written is believed. */
START_TEST(test_list_is_damaged)
{
	struct varve_known_bucket list[] = {sample(A, 11), sample(B, 12)};
	struct varve_known_bucket *got = NULL;
	int fd = t->s->meta_fd, file;
	char *text;
	size_t len, n;

	ck_assert_int_eq(varve_known_write(fd, list, 2), 0);
	ck_assert_int_eq(varve_read_file(fd, "sealed", 1 << 20, &text, &len), 0);
	file = openat(fd, "sealed", O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(file, 0);
	for (size_t i = 0; i < len; i++) {
		char bad = (char)(text[i] ^ 0x41);

		ck_assert_int_eq(pwrite(file, &bad, 1, (off_t)i), 1);
		ck_assert_int_eq(varve_known_read(fd, &got, &n), -EBADMSG);
		ck_assert_int_eq(pwrite(file, &text[i], 1, (off_t)i), 1);
	}
	ck_assert_int_eq(varve_known_read(fd, &got, &n), 0);
	free(got);
	for (size_t i = len; i-- > 0;) {
		ck_assert_int_eq(ftruncate(file, (off_t)i), 0);
		ck_assert_int_eq(varve_known_read(fd, &got, &n), -EBADMSG);
	}
	(void)close(file);
	free(text);
}
END_TEST

/* -- what an open store believes of it -- */

static void seal_one(void)
{
	t_append(t, "current/s.log", "one\n");
	t_boundary(t);
	t_seal(t);
}

/* The next mount has it from the list: what is noted on the folder is not looked at. */
START_TEST(test_the_next_mount_does_not_look)
{
	uint64_t ino, file;

	seal_one();
	ino = t_ino(t, A);
	file = t_ino(t, A "/s.log");
	t_close(t);
	ck_assert_int_eq(removexattr(t_at(t, "sealed/%s", A), "user.varve.bucket"), 0);
	t_open(t);
	ck_assert_uint_eq(t_ino(t, A), ino);
	ck_assert_uint_eq(t_ino(t, A "/s.log"), file);
	t_expect(t, A "/s.log", "one\n");
	/* Without the list it would have had to get a new one. */
	t_close(t);
	ck_assert_int_eq(unlink(t_at(t, "meta/sealed")), 0);
	t_open(t);
	ck_assert_uint_ne(t_ino(t, A), ino);
	t_expect(t, A "/s.log", "one\n");
}
END_TEST

/* A folder that came in its place since, one that is new, one that is gone. */
START_TEST(test_what_was_changed_by_hand_is_seen)
{
	char from[256], to[256], cmd[4096];

	seal_one();
	t_close(t);
	(void)snprintf(from, sizeof(from), "%s", t_at(t, "sealed/%s", A));
	(void)snprintf(to, sizeof(to), "%s", t_at(t, "sealed/%s", "2026-12-01T03Z"));
	/* The copy takes the name's place; the old folder becomes another bucket, without facts. */
	(void)snprintf(cmd, sizeof(cmd),
		       "cp -r '%s' '%s.new' && mv '%s' '%s' && mv '%s.new' '%s' && "
		       "rm '%s/default/0.tar.zst'",
		       from, from, from, to, from, from, to);
	ck_assert_int_eq(system(cmd), 0);
	ck_assert_int_eq(removexattr(to, "user.varve.bucket"), 0);
	t_open(t);
	t_expect(t, A "/s.log", "one\n");
	t_expect_list(t, "2026-12-01T03Z", "");
	ck_assert_uint_ne(t_ino(t, A), t_ino(t, "2026-12-01T03Z"));
	t_close(t);
	(void)snprintf(cmd, sizeof(cmd), "rm -r '%s' '%s'", from, to);
	ck_assert_int_eq(system(cmd), 0);
	t_open(t);
	ck_assert(!is_there(A));
	ck_assert(!is_there("2026-12-01T03Z"));
}
END_TEST

/* Damaged, it is said and done without. */
START_TEST(test_a_damaged_list_is_done_without)
{
	uint64_t ino;

	seal_one();
	ino = t_ino(t, A);
	t_close(t);
	t_damage(t_at(t, "meta/sealed"), 20, 4);
	t_open(t);
	ck_assert_uint_eq(t_ino(t, A), ino);
	t_expect(t, A "/s.log", "one\n");
	/* The next end writes a good one. */
	t_close(t);
	ck_assert_int_eq(removexattr(t_at(t, "sealed/%s", A), "user.varve.bucket"), 0);
	t_open(t);
	ck_assert_uint_eq(t_ino(t, A), ino);
}
END_TEST

/* Dropped, taken back, killed before it was written: what is there counts. */
START_TEST(test_the_list_follows)
{
	seal_one();
	seal_one();
	t_close(t);
	t_open(t);
	ck_assert_int_eq(t_rmdir(t, A), 0);
	t_close(t);
	t_open(t);
	ck_assert(!is_there(A));
	t_expect(t, B "/s.log", "one\n");
	undrop(A);
	t_expect(t, A "/s.log", "one\n");
	t_close(t);
	t_open(t);
	t_expect(t, A "/s.log", "one\n");
	t_expect(t, B "/s.log", "one\n");
}
END_TEST

T_MAIN("known", 60)
{
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_list);
	tcase_add_test(tc, test_list_is_damaged);
	tcase_add_test(tc, test_the_next_mount_does_not_look);
	tcase_add_test(tc, test_what_was_changed_by_hand_is_seen);
	tcase_add_test(tc, test_a_damaged_list_is_done_without);
	tcase_add_test(tc, test_the_list_follows);
}
