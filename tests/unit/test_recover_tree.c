/* Opening a store, see test_recover.c: the skeleton of current/, and staging/. */
#include "recover_util.h"

#include <sys/resource.h>

START_TEST(test_skeleton_lacks_a_directory)
{
	struct stat st;

	t_open(t);
	ck_assert_int_eq(t_try_mkdir(t, "current/d", 0777), 0);
	ck_assert_int_eq(t_try_mkdir(t, "current/d/e", 0750), 0);
	ck_assert_int_eq(t_chmod(t, "current/d", 01777), 0);
	ck_assert_int_eq(t_setattr(t, "current/d", &(struct stat){.st_uid = 7, .st_gid = 8},
				   VARVE_SET_UID | VARVE_SET_GID),
			 0);
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

static const char *const bad_serials[] = {"",
					  "x",
					  "-1",
					  "18446744073709551615",
					  "9007199254740992",
					  "99999999999999999999999999999999999999"};

START_TEST(test_marker_with_a_bad_serial)
{
	t_open(t);
	fill();
	t_close(t);
	ck_assert_int_eq(setxattr(t_at(t, "tree/s.log"), VARVE_XATTR_SERIAL, bad_serials[_i],
				  strlen(bad_serials[_i]), 0),
			 0);
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

T_MAIN("recover_tree", 60)
{
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_skeleton_lacks_a_directory);
	tcase_add_test(tc, test_skeleton_is_lost);
	tcase_add_test(tc, test_marker_without_serial);
	tcase_add_loop_test(tc, test_marker_with_a_bad_serial, 0,
			    (int)(sizeof(bad_serials) / sizeof(*bad_serials)));
	tcase_add_test(tc, test_serial_is_there_twice);
	tcase_add_test(tc, test_stream_and_directory_of_one_name);
	tcase_add_test(tc, test_file_and_skeleton_directory_of_one_name);
	tcase_add_test(tc, test_staging_survives);
	tcase_add_test(tc, test_deep_directories);
}
