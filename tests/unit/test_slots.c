#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/unit.h"
#include "base/sys.h"
#include "store/slots.h"

#define MAGIC "VRVTEST1"
#define SLOT 4096

static char dir[64];
static int dirfd_;

static void setup(void)
{
	strcpy(dir, "/tmp/varve-slots-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dirfd_, 0);
}

static void teardown(void)
{
	(void)unlinkat(dirfd_, "r", 0);
	(void)close(dirfd_);
	ck_assert_int_eq(rmdir(dir), 0);
}

static struct varve_slots *open_record(size_t payload_max)
{
	struct varve_slots *s = NULL;
	struct varve_err err = {""};

	ck_assert_msg(varve_slots_open(dirfd_, "r", MAGIC, payload_max, &s, &err) == 0, "%s",
		      err.msg);
	return s;
}

/* What a read of the file as it is now gives: a negative errno, or the record's length. */
static int read_anew(char *buf, size_t size)
{
	struct varve_slots *s = open_record(100);
	int r = varve_slots_read(s, buf, &size);

	varve_slots_close(s);
	return r < 0 ? r : (int)size;
}

static void write_record(struct varve_slots *s, const char *text)
{
	ck_assert_int_eq(varve_slots_write(s, text, strlen(text)), 0);
}

static void load_image(unsigned char image[2 * SLOT])
{
	cleanup_close int fd = openat(dirfd_, "r", O_RDONLY);

	ck_assert_int_eq(varve_pread_full(fd, image, 2 * SLOT, 0), 0);
}

static void store_image(const unsigned char image[2 * SLOT])
{
	cleanup_close int fd = openat(dirfd_, "r", O_WRONLY);

	ck_assert_int_eq(varve_pwrite_full(fd, image, 2 * SLOT, 0), 0);
}

static void cut_file(off_t size)
{
	cleanup_close int fd = openat(dirfd_, "r", O_WRONLY);

	ck_assert_int_eq(ftruncate(fd, size), 0);
}

START_TEST(test_fresh)
{
	struct varve_slots *s = open_record(100);
	char buf[100];
	size_t len = sizeof(buf);
	struct stat st;

	ck_assert_int_eq(varve_slots_read(s, buf, &len), -ENOENT);
	ck_assert_int_eq(fstatat(dirfd_, "r", &st, 0), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(st.st_size, 2 * SLOT);
	ck_assert_int_ge(st.st_blocks * 512, 2 * SLOT);
	ck_assert_uint_ge(varve_slots_payload_max(s), 100);
	varve_slots_close(s);
	ck_assert_int_eq(read_anew(buf, sizeof(buf)), -ENOENT);
}
END_TEST

START_TEST(test_write_read)
{
	struct varve_slots *s = open_record(100);
	char buf[100], want[32];
	struct stat st;
	blkcnt_t blocks;

	ck_assert_int_eq(fstatat(dirfd_, "r", &st, 0), 0);
	blocks = st.st_blocks;
	for (int i = 0; i < 20; i++) {
		(void)snprintf(want, sizeof(want), "record %d", i * i * i);
		if (i % 3 == 0) {
			varve_slots_close(s);
			s = open_record(100);
		}
		write_record(s, want);
		ck_assert_int_eq(read_anew(buf, sizeof(buf)), (int)strlen(want));
		ck_assert_mem_eq(buf, want, strlen(want));
	}
	ck_assert_int_eq(varve_slots_write(s, "", 0), 0);
	ck_assert_int_eq(read_anew(buf, sizeof(buf)), 0);
	varve_slots_close(s);
	ck_assert_int_eq(fstatat(dirfd_, "r", &st, 0), 0);
	ck_assert_int_eq(st.st_size, 2 * SLOT);
	ck_assert_int_eq(st.st_blocks, blocks); /* no write took space: they work on a full disk */
}
END_TEST

START_TEST(test_limits)
{
	struct varve_slots *s = open_record(100);
	size_t max = varve_slots_payload_max(s);
	cleanup_free char *big = calloc(1, max + 1);
	size_t len;

	memset(big, 'x', max + 1);
	ck_assert_int_eq(varve_slots_write(s, big, max + 1), -EFBIG);
	ck_assert_int_eq(varve_slots_write(s, big, max), 0);
	len = max - 1;
	ck_assert_int_eq(varve_slots_read(s, big, &len), -ERANGE);
	len = max;
	ck_assert_int_eq(varve_slots_read(s, big, &len), 0);
	ck_assert_uint_eq(len, max);
	varve_slots_close(s);
	ck_assert_int_eq(varve_slots_open(dirfd_, "r", "short", 1, &s, NULL), -EINVAL);
	ck_assert_int_eq(
		varve_slots_open(dirfd_, "r", MAGIC, VARVE_SLOTS_PAYLOAD_MAX + 1, &s, NULL),
		-EINVAL);
}
END_TEST

START_TEST(test_grows)
{
	struct varve_slots *s = open_record(100);
	cleanup_free char *big = calloc(1, 10000);
	char buf[100];
	size_t len = sizeof(buf);

	write_record(s, "one");
	write_record(s, "two");
	varve_slots_close(s);
	s = open_record(10000);
	ck_assert_uint_ge(varve_slots_payload_max(s), 10000);
	ck_assert_int_eq(varve_slots_read(s, buf, &len), 0);
	ck_assert_uint_eq(len, 3);
	ck_assert_mem_eq(buf, "two", 3);
	ck_assert_int_eq(varve_slots_write(s, big, 10000), 0);
	varve_slots_close(s);
	/* Asked for less, it stays as large as it is. */
	s = open_record(1);
	len = 10000;
	ck_assert_int_eq(varve_slots_read(s, big, &len), 0);
	ck_assert_uint_eq(len, 10000);
	varve_slots_close(s);
}
END_TEST

/* A crash in the middle of the n-th write, after any number of its bytes: the record before it is
 * read, or, of the first, none; or the new one once it is whole. */
START_TEST(test_torn)
{
	static const char *const text[] = {"first", "second one", "third"};
	unsigned char before[2 * SLOT], after[2 * SLOT], torn[2 * SLOT];
	struct varve_slots *s = open_record(100);
	char buf[100];

	for (int i = 0; i < _i; i++)
		write_record(s, text[i]);
	load_image(before);
	write_record(s, text[_i]);
	load_image(after);
	varve_slots_close(s);
	for (size_t cut = 0; cut < 80; cut++) {
		size_t at = memcmp(before, after, SLOT) ? 0 : SLOT;
		int n;

		memcpy(torn, before, sizeof(torn));
		memcpy(torn + at, after + at, cut);
		store_image(torn);
		n = read_anew(buf, sizeof(buf));
		if (n == (int)strlen(text[_i]) && !memcmp(buf, text[_i], (size_t)n)) {
			ck_assert_mem_eq(torn + at, after + at, SLOT);
		} else if (_i == 0) {
			ck_assert_int_eq(n, -ENOENT);
		} else {
			ck_assert_int_eq(n, (int)strlen(text[_i - 1]));
			ck_assert_mem_eq(buf, text[_i - 1], (size_t)n);
		}
		/* And the next write goes through, on top of whatever was there. */
		s = open_record(100);
		write_record(s, "later");
		varve_slots_close(s);
		ck_assert_int_eq(read_anew(buf, sizeof(buf)), 5);
		ck_assert_mem_eq(buf, "later", 5);
	}
}
END_TEST

/* A bit that flips in one slot leaves the other's record; in both, -EBADMSG, never wrong bytes. */
START_TEST(test_flipped)
{
	unsigned char image[2 * SLOT], bad[2 * SLOT];
	struct varve_slots *s = open_record(100);
	const size_t used = 24 + 5 + 8;
	char buf[100];

	write_record(s, "first"); /* fills both slots */
	write_record(s, "newer"); /* slot 0 */
	varve_slots_close(s);
	load_image(image);
	for (size_t at = 0; at < used; at++) {
		memcpy(bad, image, sizeof(bad));
		bad[at] ^= (unsigned char)(1u << (at % 8));
		store_image(bad);
		ck_assert_int_eq(read_anew(buf, sizeof(buf)), 5);
		ck_assert_mem_eq(buf, "first", 5);
		bad[SLOT + (at * 7) % used] ^= 0x10;
		store_image(bad);
		ck_assert_int_eq(read_anew(buf, sizeof(buf)), -EBADMSG);
	}
	/* Growing does not turn "damaged" into "never written". */
	varve_slots_close(open_record(10000));
	ck_assert_int_eq(read_anew(buf, sizeof(buf)), -EBADMSG);
	s = open_record(100);
	write_record(s, "again");
	varve_slots_close(s);
	ck_assert_int_eq(read_anew(buf, sizeof(buf)), 5);
}
END_TEST

/* A file cut short: what is whole is read, nothing crashes. */
START_TEST(test_truncated)
{
	struct varve_slots *s = open_record(100);
	unsigned char image[2 * SLOT];
	char buf[100];

	write_record(s, "first");
	varve_slots_close(s);
	load_image(image);
	for (off_t size = 0; size < 2 * SLOT; size += 5) {
		int n;

		store_image(image);
		cut_file(size);
		n = read_anew(buf, sizeof(buf));
		ck_assert_int_eq(n, size >= SLOT ? 5 : -EBADMSG);
	}
}
END_TEST

/* For those who only look: the same record, whatever the file's size, and the file as it was. */
START_TEST(test_peek)
{
	struct varve_slots *s;
	struct stat before, after;
	void *data;
	size_t len;

	ck_assert_int_eq(varve_slots_peek(dirfd_, "r", MAGIC, &data, &len), -ENOENT);
	s = open_record(9000);
	ck_assert_int_eq(varve_slots_peek(dirfd_, "r", MAGIC, &data, &len), -ENOENT);
	write_record(s, "first");
	write_record(s, "second");
	ck_assert_int_eq(fchmodat(dirfd_, "r", 0400, 0), 0);
	ck_assert_int_eq(fstatat(dirfd_, "r", &before, 0), 0);
	ck_assert_int_eq(varve_slots_peek(dirfd_, "r", MAGIC, &data, &len), 0);
	ck_assert_uint_eq(len, 6);
	ck_assert_mem_eq(data, "second", 6);
	free(data);
	ck_assert_int_eq(varve_slots_peek(dirfd_, "r", "VRVOTHER", &data, &len), -EBADMSG);
	ck_assert_int_eq(varve_slots_peek(dirfd_, "r", "short", &data, &len), -EINVAL);
	ck_assert_int_eq(fstatat(dirfd_, "r", &after, 0), 0);
	ck_assert_int_eq(before.st_ino, after.st_ino);
	ck_assert_mem_eq(&before.st_mtim, &after.st_mtim, sizeof(before.st_mtim));
	varve_slots_close(s);
}
END_TEST

START_TEST(test_other_magic)
{
	struct varve_slots *s = open_record(100);
	char buf[100];
	size_t len = sizeof(buf);

	write_record(s, "first");
	varve_slots_close(s);
	ck_assert_int_eq(varve_slots_open(dirfd_, "r", "VRVOTHER", 100, &s, NULL), 0);
	ck_assert_int_eq(varve_slots_read(s, buf, &len), -EBADMSG);
	varve_slots_close(s);
}
END_TEST

START_TEST(test_not_a_file)
{
	struct varve_slots *s;
	struct varve_err err = {""};

	ck_assert_int_eq(mkdirat(dirfd_, "d", 0700), 0);
	ck_assert_int_lt(varve_slots_open(dirfd_, "d", MAGIC, 100, &s, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "'d'"));
	ck_assert_int_eq(symlinkat("/etc/passwd", dirfd_, "l"), 0);
	ck_assert_int_eq(varve_slots_open(dirfd_, "l", MAGIC, 100, &s, &err), -ELOOP);
	(void)unlinkat(dirfd_, "l", 0);
	(void)unlinkat(dirfd_, "d", AT_REMOVEDIR);
}
END_TEST

T_MAIN("slots", 60)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_fresh);
	tcase_add_test(tc, test_write_read);
	tcase_add_test(tc, test_limits);
	tcase_add_test(tc, test_grows);
	tcase_add_loop_test(tc, test_torn, 0, 3);
	tcase_add_test(tc, test_flipped);
	tcase_add_test(tc, test_truncated);
	tcase_add_test(tc, test_peek);
	tcase_add_test(tc, test_other_magic);
	tcase_add_test(tc, test_not_a_file);
}
