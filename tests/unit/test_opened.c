/*
 * Parts that are there only because a stream was opened: for those who look they are not there before they hold a
 * byte, across remounts, boundaries and seals; and readers have the number that the first appender gets.
 */
#include "carry_util.h"

#include "store/opened.h"

/* Streams 'd/x' and 'y' of bucket A, which is sealed; B is current. */
static void begin(void)
{
	ck_assert_int_eq(t_try_mkdir(t, "current/d", 0755), 0);
	t_append(t, "current/d/x", "one\n");
	t_append(t, "current/y", "one\n");
	t_boundary(t);
	t_seal(t);
}

static bool is_marked(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool marked = fd >= 0 && varve_opened_is_noted(fd);

	if (fd >= 0)
		(void)close(fd);
	return marked;
}

/* An open without a write leaves nothing: held over the boundary or not, with a remount in between or not. */
START_TEST(test_nothing_written)
{
	bool held = _i & 1, crash = _i & 2;
	struct kfile x, y;

	begin();
	x = k_native("current/d/x");
	y = k_native("current/y");
	ck_assert(has_part(B, "d/x"));
	ck_assert(is_marked(t_at(t, "open/%s/default/0/d/x", B)));
	t_expect(t, "current/d/x", "");
	if (!held) {
		k_close(&x);
		k_close(&y);
	}
	t_boundary(t);
	t_expect_list(t, "", ".staging " A " " C " current");
	t_expect_r(t, B "/y", -ENOENT);
	if (held) {
		k_close(&x);
		k_close(&y);
	}
	if (crash) {
		t_crash(t);
		open_store(t);
		t_expect_list(t, "", ".staging " A " " C " current");
	}
	t_seal(t);
	t_expect_list(t, "", ".staging " A " " C " current");
	ck_assert(!t_exists(t_at(t, "open/%s", B)));
	ck_assert(!t_exists(t_at(t, "sealed/%s", B)));
	t_append(t, "current/d/x", "three\n");
	t_expect(t, "current/d/x", "three\n");
}
END_TEST

/* A byte by the kernel, of which the store is not told, and all of it is there. */
START_TEST(test_written)
{
	bool crash = _i & 1, held = _i & 2;
	struct kfile x, y;

	begin();
	x = k_native("current/d/x");
	y = k_native("current/y");
	k_puts(&x, "two\n");
	if (!held) {
		k_close(&x);
		k_close(&y);
	}
	t_boundary(t);
	t_expect_list(t, B, "d");
	t_expect_list(t, B "/d", "x");
	t_expect(t, B "/d/x", "two\n");
	if (held) {
		k_puts(&x, "three\n");
		k_close(&x);
		k_close(&y);
	}
	if (crash) {
		t_crash(t);
		open_store(t);
	}
	t_seal(t);
	t_expect_list(t, B, "d");
	t_expect_list(t, B "/d", "x");
	t_expect(t, B "/d/x", "two\n");
	t_expect(t, "current/d/x", held ? "three\n" : "");
}
END_TEST

/* What held something is there when it is taken away again: the file that was truncated, the folder of one that was
 * removed or moved. */
START_TEST(test_written_and_taken)
{
	struct kfile x;

	begin();
	ck_assert_int_eq(t_try_mkdir(t, "current/e", 0755), 0);
	x = k_native("current/d/x");
	k_puts(&x, "two\n");
	switch (_i) {
	case 0:
		ck_assert_int_eq(t_truncate(t, "current/d/x", 0), 0);
		break;
	case 1:
		ck_assert_int_eq(t_unlink(t, "current/d/x"), 0);
		break;
	case 2:
		ck_assert_int_eq(t_move(t, "current/d/x", "current/e/x", 0), 0);
		break;
	default:
		ck_assert_int_eq(t_move(t, "current/d", "current/e/d", 0), 0);
		break;
	}
	k_close(&x);
	ck_assert(!is_marked(t_at(t, "open/%s/default/0/d", B)));
	t_boundary(t);
	for (int i = 0; i < 3; i++) {
		static const char *const in_d[] = {"x", "", "", NULL};

		t_expect_list(t, B, _i < 3 ? "d e" : "e");
		if (in_d[_i])
			t_expect_list(t, B "/d", in_d[_i]);
		if (_i == 0)
			t_expect(t, B "/d/x", "");
		if (_i == 3)
			t_expect(t, B "/e/d/x", "two\n");
		if (i == 0)
			reopen();
		else if (i == 1)
			t_seal(t);
	}
}
END_TEST

/* A name that is given to it means it, also without a byte, as it does without the kernel. */
START_TEST(test_renamed_while_empty)
{
	struct kfile y;

	begin();
	y = k_native("current/y");
	ck_assert_int_eq(t_move(t, "current/y", "current/z", 0), 0);
	ck_assert(!is_marked(t_at(t, "open/%s/default/0/z", B)));
	k_close(&y);
	t_boundary(t);
	t_expect_list(t, B, "z");
	t_seal(t);
	t_expect(t, B "/z", "");
}
END_TEST

/* All opens of a stream without a part get one number, whoever comes first; what readers got it for becomes the
 * part. A reader alone makes nothing on disk. */
START_TEST(test_readers_have_the_number)
{
	static const int first[] = {O_RDONLY, O_RDWR, O_WRONLY};
	struct tfile r, again;
	struct kfile w;

	begin();
	r = t_file_open(t, "current/d/x", first[_i]);
	ck_assert_int_gt(r.how.backing, 0);
	ck_assert(r.how.direct_io);
	ck_assert(!t_exists(t_at(t, "open/%s", B)));
	ck_assert_int_eq(kernel.live, 1);
	if (_i)
		t_puts(t, &r, "served\n");
	w = k_native("current/d/x");
	ck_assert_int_eq(w.f.how.backing, r.how.backing);
	k_puts(&w, "two\n");
	if (_i != 2)
		t_expect_fh(t, r.fh, _i ? "served\ntwo\n" : "two\n");
	again = t_file_open(t, "current/d/x", O_RDONLY);
	ck_assert_int_eq(again.how.backing, r.how.backing);
	t_file_close(t, &again);
	t_file_close(t, &r);
	k_close(&w);
	ck_assert_int_eq(kernel.live, 0);
	t_boundary(t);
	t_expect(t, B "/d/x", _i ? "served\ntwo\n" : "two\n");
	reopen();
	t_seal(t);
	t_expect(t, B "/d/x", _i ? "served\ntwo\n" : "two\n");
}
END_TEST

/* Only read, over a boundary: nothing is left of it. */
START_TEST(test_only_read)
{
	struct tfile r;

	begin();
	r = t_file_open(t, "current/y", O_RDONLY);
	t_expect_fh(t, r.fh, "");
	t_boundary(t);
	t_expect_list(t, "", ".staging " A " " C " current");
	t_append(t, "current/y", "three\n");
	t_expect_fh(t, r.fh, "");
	t_file_close(t, &r);
	ck_assert_int_eq(kernel.live, 0);
	t_seal(t);
	ck_assert(!t_exists(t_at(t, "open/%s", B)));
}
END_TEST

/* It was removed before it held anything: who reads it by the number that he has sees what its writer writes. */
START_TEST(test_nameless)
{
	struct tfile r, w;

	begin();
	r = t_file_open(t, "current/y", O_RDONLY);
	w = t_file_open(t, "current/y", O_WRONLY);
	ck_assert_int_eq(t_unlink(t, "current/y"), 0);
	t_puts(t, &w, "into nowhere\n");
	t_expect_fh(t, r.fh, "into nowhere\n");
	ck_assert_int_eq(lseek(kernel.fds[r.how.backing - 1], 0, SEEK_END), 13);
	t_file_close(t, &w);
	t_file_close(t, &r);
	t_boundary(t);
	t_expect_r(t, B "/y", -ENOENT);
}
END_TEST

/* What was taken for empty and is not (bytes came by hand) is sealed, not thrown away. */
START_TEST(test_looked_at_before_it_goes)
{
	struct kfile y;
	int fd;

	begin();
	y = k_native("current/y");
	k_close(&y);
	t_boundary(t);
	fd = hold_part(B, "y");
	put_fd(fd, "by hand\n");
	(void)close(fd);
	t_seal(t);
	t_expect(t, B "/y", "by hand\n");
}
END_TEST

T_MAIN("opened", 60)
{
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(tc, test_nothing_written, 0, 4);
	tcase_add_loop_test(tc, test_written, 0, 4);
	tcase_add_loop_test(tc, test_written_and_taken, 0, 4);
	tcase_add_test(tc, test_renamed_while_empty);
	tcase_add_loop_test(tc, test_readers_have_the_number, 0, 3);
	tcase_add_test(tc, test_only_read);
	tcase_add_test(tc, test_nameless);
	tcase_add_test(tc, test_looked_at_before_it_goes);
}
