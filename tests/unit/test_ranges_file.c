/* meta/ranges: the record in its two slots, how the file grows, a torn slot, a full disk. */
#include "ranges_util.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/sys.h"

static char dir[64];
static int meta_fd;
static struct varve_slots *slots;

static void set_up_file(void)
{
	set_up();
	(void)strcpy(dir, "/var/tmp/varve-ranges-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	meta_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(meta_fd, 0);
	slots = NULL;
}

static void tear_down_file(void)
{
	varve_slots_close(slots);
	(void)unlinkat(meta_fd, "ranges", 0);
	(void)close(meta_fd);
	(void)rmdir(dir);
	tear_down();
}

static int load(struct varve_ranges *ret, struct varve_slots **ret_slots)
{
	struct varve_err err = {.msg = ""};

	*ret_slots = NULL;
	return varve_ranges_load(ret, ret_slots, meta_fd, &err);
}

/* As another daemon finds it. */
static void expect_on_disk(const struct varve_ranges *want)
{
	struct varve_ranges got;
	struct varve_slots *other;

	ck_assert_int_eq(load(&got, &other), 0);
	expect_equal(want, &got);
	varve_ranges_done(&got);
	varve_slots_close(other);
}

static void save(void)
{
	ck_assert_int_eq(varve_ranges_save(&list, &slots, meta_fd), 0);
}

static struct stat file_stat(void)
{
	struct stat st;

	ck_assert_int_eq(fstatat(meta_fd, "ranges", &st, 0), 0);
	return st;
}

START_TEST(test_no_file)
{
	struct varve_ranges got;
	struct varve_slots *other;

	ck_assert_int_eq(load(&got, &other), 0);
	ck_assert_uint_eq(got.n, 0);
	ck_assert(got.links_done);
	ck_assert_ptr_null(other);
	/* A store in which nothing was ever carried has none. */
	save();
	ck_assert_ptr_null(slots);
	ck_assert_int_lt(faccessat(meta_fd, "ranges", F_OK, 0), 0);
}
END_TEST

START_TEST(test_save_and_load)
{
	fill();
	save();
	expect_on_disk(&list);
	ck_assert_uint_eq(file_stat().st_mode & 07777, 0600);
	for (int i = 0; i < 5; i++) {
		put(A, 5000 + (uint64_t)i, 1, 2);
		list.links_done = i % 2;
		save();
		expect_on_disk(&list);
	}
	/* Once there it says so when there is nothing left. */
	varve_ranges_done(&list);
	save();
	expect_on_disk(&list);
	ck_assert_uint_eq(list.n, 0);
}
END_TEST

static void put_many(size_t n)
{
	for (size_t i = 0; i < n; i++)
		put(A, 10000 + list.n, list.n, 2 * list.n);
}

/* It grows in large steps, and each way leaves the older record or the newer. */
START_TEST(test_growth)
{
	off_t size, last = 0;
	unsigned grown = 0;

	for (int i = 0; i < 60; i++) {
		put_many(100);
		save();
		expect_on_disk(&list);
		size = file_stat().st_size;
		ck_assert_int_ge(size, last);
		grown += size != last;
		last = size;
	}
	/* 600 KiB of entries. */
	ck_assert_uint_ge(grown, 3);
	ck_assert_uint_le(grown, 6);
	/* Smaller again: the file stays, so that it need not grow again on a full disk. */
	varve_ranges_done(&list);
	fill();
	save();
	ck_assert_int_eq(file_stat().st_size, last);
	expect_on_disk(&list);
}
END_TEST

/* Where a slot of the file begins, and which one is newer. */
static off_t newest_slot(void)
{
	cleanup_close int fd = openat(meta_fd, "ranges", O_RDONLY | O_CLOEXEC);
	off_t stride = file_stat().st_size / 2;
	unsigned char a[8], b[8];

	ck_assert_int_eq(varve_pread_full(fd, a, 8, 8), 0);
	ck_assert_int_eq(varve_pread_full(fd, b, 8, (uint64_t)stride + 8), 0);
	return varve_get_le64(b) > varve_get_le64(a) ? stride : 0;
}

static void flip(off_t at)
{
	cleanup_close int fd = openat(meta_fd, "ranges", O_RDWR | O_CLOEXEC);
	unsigned char c;

	ck_assert_int_eq(varve_pread_full(fd, &c, 1, (uint64_t)at), 0);
	c ^= 0x10;
	ck_assert_int_eq(varve_pwrite_full(fd, &c, 1, (uint64_t)at), 0);
}

START_TEST(test_torn)
{
	struct varve_ranges older, got;
	struct varve_slots *other;
	off_t newest;

	fill();
	save();
	expect_on_disk(&list);
	ck_assert_int_eq(load(&older, &other), 0);
	varve_slots_close(other);
	put(A, 9000, 5, 6);
	save();
	newest = newest_slot();
	flip(newest + 24 + 50);
	expect_on_disk(&older);
	/* The next one goes over what is damaged. */
	varve_slots_close(slots);
	ck_assert_int_eq(load(&got, &slots), 0);
	varve_ranges_done(&got);
	put(B, 9000, 6, 7);
	save();
	ck_assert_int_eq(newest_slot(), newest);
	expect_on_disk(&list);
	/* Both: it is said, not taken for empty. */
	flip(24 + 50);
	flip(file_stat().st_size / 2 + 24 + 50);
	ck_assert_int_eq(load(&got, &other), -EBADMSG);
	ck_assert_uint_eq(got.n, 0);
	/* And there is a way on. */
	varve_slots_close(slots);
	slots = other;
	save();
	expect_on_disk(&list);
	varve_ranges_done(&older);
}
END_TEST

/* Whole as a slot, but no record. */
START_TEST(test_rubbish_in_the_slots)
{
	struct varve_ranges got;
	struct varve_slots *other;
	struct varve_err err = {.msg = ""};

	ck_assert_int_eq(varve_slots_open(meta_fd, "ranges", VARVE_RANGES_MAGIC, 65536, &slots, &err), 0);
	ck_assert_int_eq(varve_slots_write(slots, "rubbish, that is", 16), 0);
	other = NULL;
	ck_assert_int_eq(varve_ranges_load(&got, &other, meta_fd, &err), -EPROTONOSUPPORT);
	ck_assert_ptr_nonnull(strstr(err.msg, "later version"));
	varve_slots_close(other);
	ck_assert_int_eq(varve_slots_write(slots, "\1\0\0\0rubbish, it is", 18), 0);
	ck_assert_int_eq(load(&got, &other), -EBADMSG);
	varve_slots_close(other);
	/* Never written through: as good as none. */
	(void)unlinkat(meta_fd, "ranges", 0);
	varve_slots_close(slots);
	ck_assert_int_eq(varve_slots_open(meta_fd, "ranges", VARVE_RANGES_MAGIC, 65536, &slots, &err), 0);
	ck_assert_int_eq(load(&got, &other), 0);
	ck_assert_uint_eq(got.n, 0);
	varve_slots_close(other);
}
END_TEST

START_TEST(test_full_disk)
{
	struct varve_ranges empty;
	cleanup_close int other = -1;
	char buf[4096] = "";
	size_t before;

	ck_assert_msg(unshare(CLONE_NEWNS) == 0, "unshare: %s", strerror(errno));
	ck_assert_int_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	ck_assert_int_eq(mount("none", dir, "tmpfs", 0, "size=1m"), 0);
	(void)close(meta_fd);
	meta_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fill();
	save();
	other = openat(meta_fd, "other", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	while (write(other, buf, sizeof(buf)) > 0)
		;
	ck_assert_int_eq(errno, ENOSPC);
	/* What fits needs no space. */
	for (int i = 0; i < 4; i++) {
		put_many(100);
		save();
		expect_on_disk(&list);
	}
	before = list.n;
	/* What does not is refused, and leaves what there was. */
	put_many(1000);
	ck_assert_int_eq(varve_ranges_save(&list, &slots, meta_fd), -ENOSPC);
	while (list.n > before) {
		free(list.list[list.n - 1].path);
		list.n--;
	}
	expect_on_disk(&list);
	/* Also when the next one is empty: what is not true any more must not stay. */
	varve_ranges_init(&empty);
	ck_assert_int_eq(varve_ranges_save(&empty, &slots, meta_fd), 0);
	expect_on_disk(&empty);
	/* With room it goes through. */
	ck_assert_int_eq(ftruncate(other, 0), 0);
	put_many(1000);
	save();
	expect_on_disk(&list);
	(void)unlinkat(meta_fd, "other", 0);
}
END_TEST

T_MAIN("ranges_file", 60)
{
	tcase_add_checked_fixture(tc, set_up_file, tear_down_file);
	tcase_add_test(tc, test_no_file);
	tcase_add_test(tc, test_save_and_load);
	tcase_add_test(tc, test_growth);
	tcase_add_test(tc, test_torn);
	tcase_add_test(tc, test_rubbish_in_the_slots);
	tcase_add_test(tc, test_full_disk);
}
