/*
 * What the tests of carried parts begin with: a store whose kernel is the test. A part that is made known
 * is kept, and a program's write-only O_APPEND descriptor of it is the test's own, opened anew: what is
 * written to it is in the part, and the store is not told.
 */
#pragma once

#include "../lib/storetest.h"

#include "store/carry.h"
#include "store/native.h"

#define A "2026-12-01T10Z"
#define B "2026-12-01T11Z"
#define C "2026-12-01T12Z"
#define D "2026-12-01T13Z"

#define APPEND (O_WRONLY | O_APPEND | O_CREAT)

static struct tstore *t;

static struct fake_kernel {
	int fds[64]; /* by number - 1; -1: forgotten */
	int n, live;
	int refuse; /* 0, or what the next registration is answered */
} kernel;

T_FN int k_register(void *ctx, int fd)
{
	(void)ctx;
	/* What the kernel keeps must not count as a writer. */
	ck_assert_int_eq(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	if (kernel.refuse) {
		int r = kernel.refuse;

		kernel.refuse = 0;
		return r;
	}
	ck_assert_int_lt(kernel.n, 64);
	kernel.fds[kernel.n] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	ck_assert_int_ge(kernel.fds[kernel.n], 0);
	kernel.live++;
	return ++kernel.n;
}

T_FN void k_forget(void *ctx, int id)
{
	(void)ctx;
	ck_assert(id > 0 && id <= kernel.n && kernel.fds[id - 1] >= 0);
	(void)close(kernel.fds[id - 1]);
	kernel.fds[id - 1] = -1;
	kernel.live--;
}

T_FN void open_store(struct tstore *of)
{
	t_open(of);
	varve_store_set_kernel(of->s, &(struct varve_store_kernel){.register_part = k_register,
								   .forget_part = k_forget});
}

T_FN void set_up(void)
{
	memset(&kernel, 0, sizeof(kernel));
	t = t_new(A);
	open_store(t);
}

T_FN void tear_down(void)
{
	t_free(t);
	ck_assert_int_eq(kernel.live, 0);
}

T_FN void reopen(void)
{
	t_close(t);
	open_store(t);
}

/* A program's open file: fd >= 0 where the kernel writes by itself. */
struct kfile {
	struct tfile f;
	int fd;
};

T_FN struct kfile k_open(const char *path)
{
	struct kfile k = {.f = t_file_open(t, path, APPEND), .fd = -1};
	char proc[64];

	if (!k.f.how.backing || k.f.how.direct_io)
		return k;
	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", kernel.fds[k.f.how.backing - 1]);
	k.fd = open(proc, O_WRONLY | O_APPEND | O_CLOEXEC);
	ck_assert_int_ge(k.fd, 0);
	return k;
}

/* One that the kernel writes to. */
T_FN struct kfile k_native(const char *path)
{
	struct kfile k = k_open(path);

	ck_assert_msg(k.fd >= 0, "%s is served by the daemon", path);
	return k;
}

T_FN void k_puts(struct kfile *k, const char *text)
{
	if (k->fd < 0)
		t_puts(t, &k->f, text);
	else
		ck_assert_int_eq(write(k->fd, text, strlen(text)), (ssize_t)strlen(text));
}

T_FN void k_close(struct kfile *k)
{
	if (k->fd >= 0)
		(void)close(k->fd);
	t_file_close(t, &k->f);
}

/* A boundary of which nothing is written down yet. */
T_FN void cut(void)
{
	t_pass(t, t->s->current->end_ns - t_now(t) + T_SECOND / 1000);
	guard(&t->s->mutate);
	ck_assert_int_eq(varve_boundary_cut(t->s, t_now(t)), 0);
}

T_FN void finish(void)
{
	{
		guard(&t->s->mutate);
		ck_assert_int_eq(varve_carry_finish(t->s, true), 0);
	}
	ck_assert_int_eq(varve_clock_keep(t->s), 0);
}

T_FN struct stat part_stat(const char *bucket, const char *path)
{
	const char *full = t_at(t, "open/%s/default/0/%s", bucket, path);
	struct stat st;

	ck_assert_msg(lstat(full, &st) == 0, "%s: %s", full, strerror(errno));
	return st;
}

T_FN bool has_part(const char *bucket, const char *path)
{
	return t_exists(t_at(t, "open/%s/default/0/%s", bucket, path));
}

/* As a program that outlived the daemon has it. */
T_FN int hold_part(const char *bucket, const char *path)
{
	int fd = open(t_at(t, "open/%s/default/0/%s", bucket, path), O_WRONLY | O_APPEND | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

T_FN void put_fd(int fd, const char *text)
{
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

/* What the record on disk says. */
T_FN struct varve_ranges on_disk(void)
{
	struct varve_ranges l;

	ck_assert_int_eq(varve_ranges_peek(&l, t->s->meta_fd), 0);
	return l;
}

T_FN bool is_recorded(const char *bucket)
{
	struct varve_ranges l = on_disk();
	bool found = varve_ranges_remove_bucket(&l, bucket) > 0;

	varve_ranges_done(&l);
	return found;
}
