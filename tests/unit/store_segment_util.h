/* Segments on disk, for the tests of what reads them. */
#pragma once

#include "segment_util.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/sys.h"

/* A directory of the test's own; removed by drop_dir. */
struct test_dir {
	char path[64];
	int fd;
};

static inline struct test_dir make_dir(void)
{
	struct test_dir d = {.path = "/tmp/varve-test-XXXXXX"};

	ck_assert_ptr_nonnull(mkdtemp(d.path));
	d.fd = open(d.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(d.fd, 0);
	return d;
}

static inline void drop_dir(struct test_dir *d)
{
	int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_ge(tmp, 0);
	ck_assert_int_eq(varve_remove_tree(tmp, strrchr(d->path, '/') + 1, false), 0);
	ck_assert_int_eq(close(tmp), 0);
	ck_assert_int_eq(close(d->fd), 0);
}

static inline void write_file(int dirfd, const char *name, const void *data, size_t len)
{
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(varve_pwrite_full(fd, data, len, 0), 0);
	ck_assert_int_eq(close(fd), 0);
}

/* Encodes the specs into dirfd/name. */
static inline void write_segment(int dirfd, const char *name, const struct spec *specs, size_t n,
				 const struct varve_segment_params *params)
{
	struct varve_segment_totals totals;
	struct varve_err err = {.msg = ""};
	struct memory m = {.fail_after = 0};
	int r = encode(specs, n, params, &m, &totals, &err);

	ck_assert_msg(r == 0, "encode: %d %s", r, err.msg);
	write_file(dirfd, name, m.buf.p, m.buf.len);
	varve_buf_done(&m.buf);
}

/* Flips one bit. */
static inline void flip(int dirfd, const char *name, uint64_t off)
{
	int fd = openat(dirfd, name, O_RDWR | O_CLOEXEC);
	unsigned char b;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(varve_pread_full(fd, &b, 1, off), 0);
	b ^= 0x10;
	ck_assert_int_eq(varve_pwrite_full(fd, &b, 1, off), 0);
	ck_assert_int_eq(close(fd), 0);
}

/* xorshift: the same numbers every run. */
static inline uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Polls for ten seconds at most. */
static inline bool wait_until(bool (*reached)(void *ctx), void *ctx)
{
	for (int i = 0; i < 10000; i++) {
		if (reached(ctx))
			return true;
		(void)usleep(1000);
	}
	return false;
}
