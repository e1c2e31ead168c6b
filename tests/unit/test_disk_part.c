/*
 * Parts that several buckets share, read from the disk: `varve ls` and `varve cat` show of each bucket
 * what is its own, mounted or not, and write nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "../lib/unit.h"
#include "base/clock.h"
#include "base/sys.h"
#include "cli/disk.h"
#include "format/segment.h"
#include "store/ranges.h"

#define A "2020-01-01"
#define B "2020-01-02"
#define C "2200-12-30" /* no clock is as late: it is current */
#define PART 2000

static char dir[64];
static int dir_fd, meta_fd;
static struct varve_ranges record;
static struct varve_slots *slots;

static void make_folders(const char *path)
{
	cleanup_free char *folder = strdup(path);
	char *slash = strrchr(folder, '/');

	if (!slash)
		return;
	*slash = '\0';
	ck_assert_int_eq(varve_mkdir_p(dir_fd, folder, 0755), 0);
}

static void number(const char *path, uint64_t ino)
{
	cleanup_close int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
	char text[24];
	int n = snprintf(text, sizeof(text), "%llu", (unsigned long long)ino);

	ck_assert_int_eq(fsetxattr(fd, "user.varve.ino", text, (size_t)n, 0), 0);
}

static void put(const char *path, const char *text)
{
	cleanup_close int fd = -1;

	make_folders(path);
	fd = openat(dir_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(varve_pwrite_full(fd, text, strlen(text), 0), 0);
}

static void join(const char *path, const char *as)
{
	make_folders(as);
	ck_assert_int_eq(linkat(dir_fd, path, dir_fd, as, 0), 0);
}

static struct varve_range *range(const char *bucket, uint64_t part, uint64_t head, uint64_t end)
{
	struct varve_range e = {.class_name = "default", .tablet = "0", .part = part, .ino = part + 100,
				.head = head, .end = end, .mode = 0600, .uid = 3, .gid = 4,
				.mtime_ns = -1500000000, .path = (char *)(uintptr_t)"x.log"};

	(void)strcpy(e.bucket, bucket);
	e.ino += (uint64_t)bucket[strlen(bucket) - 1];
	ck_assert_int_eq(varve_ranges_add(&record, &e), 0);
	return &record.list[record.n - 1];
}

static void save(void)
{
	ck_assert_int_eq(varve_ranges_save(&record, &slots, meta_fd), 0);
}

/* One part in three buckets. */
static void setup(void)
{
	strcpy(dir, "/var/tmp/varve-disk-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(mkdirat(dir_fd, "meta", 0700), 0);
	ck_assert_int_eq(mkdirat(dir_fd, "sealed", 0700), 0);
	ck_assert_int_eq(mkdirat(dir_fd, "tree", 0700), 0);
	meta_fd = openat(dir_fd, "meta", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	put("varve.conf", "");
	put("tree/x.log", "");
	put("open/" A "/default/0/x.log", "of A\nof B, more\nof C\n");
	number("open/" A "/default/0/x.log", PART);
	join("open/" A "/default/0/x.log", "open/" B "/default/0/x.log");
	join("open/" A "/default/0/x.log", "open/" C "/default/0/x.log");
	put("open/" B "/default/0/own.log", "own\n");
	number("open/" B "/default/0/own.log", 3000);
	varve_ranges_init(&record);
	slots = NULL;
}

static void teardown(void)
{
	cleanup_close int fd = open("/var/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	varve_ranges_done(&record);
	varve_slots_close(slots);
	(void)close(meta_fd);
	(void)close(dir_fd);
	ck_assert_int_eq(varve_remove_tree(fd, dir + strlen("/var/tmp/"), false), 0);
}

static void three(void)
{
	(void)range(A, PART, 0, 5);
	(void)range(B, PART, 5, 16);
	(void)range(C, PART, 16, UINT64_MAX);
	save();
}

static struct varve_disk *open_disk(void)
{
	struct varve_disk *d = NULL;
	struct varve_err err = {""};

	ck_assert_msg(varve_disk_open(dir, &d, &err) == 0, "%s", err.msg);
	return d;
}

static void expect_cat(const char *place, const char *want)
{
	struct varve_disk *d = open_disk();
	struct varve_err err = {""};
	char got[256] = "";
	int fds[2], r;

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	r = varve_disk_cat(d, place, fds[1], &err);
	ck_assert_msg(r == 0, "%s: %d %s", place, r, err.msg);
	(void)close(fds[1]);
	ck_assert_int_ge(read(fds[0], got, sizeof(got) - 1), 0);
	(void)close(fds[0]);
	ck_assert_str_eq(got, want);
	varve_disk_close(d);
}

static struct varve_disk_entry look(const char *place)
{
	struct varve_disk *d = open_disk();
	struct varve_disk_list list;
	struct varve_err err = {""};
	struct varve_disk_entry e;
	int r = varve_disk_list(d, place, false, &list, &err);

	ck_assert_msg(r == 0, "%s: %d %s", place, r, err.msg);
	ck_assert_uint_eq(list.n, 1);
	e = list.entries[0];
	e.path = e.target = NULL;
	varve_disk_list_done(&list);
	varve_disk_close(d);
	return e;
}

/* Both ways of looking agree. */
static void expect(const char *place, const char *want)
{
	expect_cat(place, want);
	ck_assert_uint_eq(look(place).size, strlen(want));
}

START_TEST(test_ranges)
{
	struct varve_disk_entry e;

	three();
	expect(A "/x.log", "of A\n");
	expect(B "/x.log", "of B, more\n");
	expect(C "/x.log", "of C\n");
	expect("current/x.log", "of C\n");
	expect(B "/own.log", "own\n");
	/* As of the boundary; the part's own are the current bucket's. */
	e = look(A "/x.log");
	ck_assert_uint_eq(e.mode, S_IFREG | 0600);
	ck_assert_uint_eq(e.uid, 3);
	ck_assert_uint_eq(e.gid, 4);
	ck_assert_int_eq(e.mtime_ns, -1500000000);
	e = look(C "/x.log");
	ck_assert_uint_eq(e.mode, S_IFREG | 0644);
	ck_assert_int_gt(e.mtime_ns, 0);
}
END_TEST

/* Without a record, and where it tells of other buckets, a part is all there is. */
START_TEST(test_no_range)
{
	expect(A "/x.log", "of A\nof B, more\nof C\n");
	(void)range(B, PART, 5, 16);
	(void)range(A, 3000, 1, 2);
	save();
	expect(A "/x.log", "of A\nof B, more\nof C\n");
	expect(B "/x.log", "of B, more\n");
	expect(B "/own.log", "own\n");
}
END_TEST

/* A line that is not finished: up to its end it is the older bucket's, and the newer one is empty until then. */
START_TEST(test_pending)
{
	range(A, PART, 0, 2)->end_pending = true;
	range(B, PART, 2, 20)->head_pending = true;
	record.list[1].end_pending = true;
	range(C, PART, 20, UINT64_MAX)->head_pending = true;
	save();
	expect(A "/x.log", "of A\n");
	expect(B "/x.log", "of B, more\nof C\n");
	expect(C "/x.log", "");
	put("open/" A "/default/0/x.log", "of A, and more");
	expect(A "/x.log", "of A, and more");
	expect(B "/x.log", "");
	expect(C "/x.log", "");
}
END_TEST

/* Power loss can leave the part shorter than the record says. */
START_TEST(test_shorter)
{
	three();
	put("open/" A "/default/0/x.log", "of A\nof");
	expect(A "/x.log", "of A\n");
	expect(B "/x.log", "of");
	expect(C "/x.log", "");
	put("open/" A "/default/0/x.log", "o");
	expect(A "/x.log", "o");
	expect(B "/x.log", "");
	record.list[1].end_pending = record.list[2].head_pending = true;
	save();
	expect(B "/x.log", "");
	expect(C "/x.log", "");
}
END_TEST

START_TEST(test_late)
{
	char path[64];

	three();
	(void)snprintf(path, sizeof(path), "open/" A "/.late/%llu", (unsigned long long)record.list[0].ino);
	put(path, "late\n");
	put("open/" B "/.late/3000", "late too\n");
	expect(A "/x.log", "of A\nlate\n");
	expect(B "/x.log", "of B, more\n");
	expect(B "/own.log", "own\nlate too\n");
	/* Not before the line in front of it has its end. */
	varve_ranges_done(&record);
	range(A, PART, 0, 18)->end_pending = true;
	save();
	expect(A "/x.log", "of A\nof B, more\nof C\nlate\n");
	put("open/" A "/default/0/x.log", "of A\nof B, more\nof C");
	expect(A "/x.log", "of A\nof B, more\nof C");
}
END_TEST

/* The folder of late parts is none of the bucket's. */
START_TEST(test_list)
{
	struct varve_disk *d;
	struct varve_disk_list list;
	struct varve_err err = {""};

	three();
	put("open/" B "/.late/3000", "late\n");
	d = open_disk();
	ck_assert_int_eq(varve_disk_list(d, B, true, &list, &err), 0);
	ck_assert_uint_eq(list.n, 2);
	ck_assert_str_eq(list.entries[0].path, "own.log");
	ck_assert_uint_eq(list.entries[0].size, 9);
	ck_assert_str_eq(list.entries[1].path, "x.log");
	ck_assert_uint_eq(list.entries[1].size, 11);
	varve_disk_list_done(&list);
	varve_disk_close(d);
}
END_TEST

static void damage(off_t at)
{
	cleanup_close int fd = openat(meta_fd, "ranges", O_RDWR | O_CLOEXEC);

	ck_assert_int_eq(varve_pwrite_full(fd, "?", 1, (uint64_t)at), 0);
}

/* As the daemon would show it, and not without a word. */
START_TEST(test_damaged)
{
	struct varve_disk *d;
	struct varve_err err = {""};
	struct stat st;

	three();
	ck_assert_int_eq(fstatat(meta_fd, "ranges", &st, 0), 0);
	damage(30);
	expect(A "/x.log", "of A\n"); /* the other slot has it */
	damage(st.st_size / 2 + 30);
	expect(A "/x.log", "of A\nof B, more\nof C\n");
	ck_assert_int_eq(varve_slots_write(slots, "\2\0\0\0\0\0\0\0", 8), 0);
	ck_assert_int_eq(varve_disk_open(dir, &d, &err), -EPROTONOSUPPORT);
	ck_assert(err.msg[0]);
}
END_TEST

/* Nothing is written: neither the record's file nor its times; and it need not be writable. */
START_TEST(test_only_looks)
{
	struct stat before, after;

	three();
	ck_assert_int_eq(fchmodat(meta_fd, "ranges", 0400, 0), 0);
	ck_assert_int_eq(fstatat(meta_fd, "ranges", &before, 0), 0);
	expect(A "/x.log", "of A\n");
	ck_assert_int_eq(fstatat(meta_fd, "ranges", &after, 0), 0);
	ck_assert_int_eq(before.st_ino, after.st_ino);
	ck_assert_int_eq(before.st_size, after.st_size);
	ck_assert_mem_eq(&before.st_mtim, &after.st_mtim, sizeof(before.st_mtim));
}
END_TEST

/* What is sealed under the reader's hands has holes where its range was: it goes on in the segment. */
START_TEST(test_sealed_meanwhile)
{
	struct varve_disk *d;
	struct varve_err err = {""};
	int fds[2];
	char got[64];

	three();
	d = open_disk();
	/* As far as d knows it is closing; on disk it is dropped, or sealed with nothing in it. */
	ck_assert_int_eq(mkdirat(dir_fd, "sealed/" A, 0700), 0);
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
	ck_assert_int_eq(varve_disk_cat(d, A "/x.log", fds[1], &err), -ENOENT);
	ck_assert_int_lt(read(fds[0], got, sizeof(got)), 0);
	ck_assert_int_eq(unlinkat(dir_fd, "sealed/" A, AT_REMOVEDIR), 0);
	varve_disk_close(d);
	d = open_disk();
	ck_assert_int_eq(renameat(dir_fd, "open/" B, dir_fd, "open/gone"), 0);
	ck_assert_int_eq(mkdirat(dir_fd, "open/" B, 0700), 0);
	ck_assert_int_eq(varve_disk_cat(d, B "/x.log", fds[1], &err), -ENOENT);
	ck_assert_int_eq(varve_disk_cat(d, A "/x.log", fds[1], &err), 0);
	ck_assert_int_eq(read(fds[0], got, sizeof(got)), 5);
	(void)close(fds[0]);
	(void)close(fds[1]);
	varve_disk_close(d);
}
END_TEST

T_MAIN("disk_part", 60)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_ranges);
	tcase_add_test(tc, test_no_range);
	tcase_add_test(tc, test_pending);
	tcase_add_test(tc, test_shorter);
	tcase_add_test(tc, test_late);
	tcase_add_test(tc, test_list);
	tcase_add_test(tc, test_damaged);
	tcase_add_test(tc, test_only_looks);
	tcase_add_test(tc, test_sealed_meanwhile);
}
