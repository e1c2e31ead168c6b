/*
 * Whole durable steps on the backing filesystem, and opening that cannot be led astray.
 * Everything in a store is opened through a directory descriptor with RESOLVE_BENEATH and
 * RESOLVE_NO_SYMLINKS: what lies under it is the users'.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/err.h"

/* openat2(2) below dirfd, never through a symbolic link, never out; O_CLOEXEC is added.
 * "" or "." opens dirfd itself anew. Returns a descriptor or a negative errno. */
int varve_openat(int dirfd, const char *path, int flags, mode_t mode) varve_must_check;

/* Reads exactly len bytes at off: 0, -EBADMSG when the file ends before, or a negative errno. */
int varve_pread_full(int fd, void *buf, size_t len, uint64_t off) varve_must_check;

/* Writes all of buf at off; EINTR and short writes are continued. 0 or a negative errno. */
int varve_pwrite_full(int fd, const void *buf, size_t len, uint64_t off) varve_must_check;

/* Reads a whole small file below dirfd (at most max bytes, else -EFBIG) into a malloc'ed,
 * NUL-terminated buffer that the caller frees. */
int varve_read_file(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len)
	varve_must_check;

/* Replaces dirfd/name as a whole: a new file beside it, fsync, rename, fsync of the directory. */
int varve_publish_file(int dirfd, const char *name, const void *data, size_t len, mode_t mode)
	varve_must_check;

/* fsync of a directory; dirfd may be an O_PATH descriptor's sub-path "." */
int varve_fsync_dir(int dirfd, const char *path) varve_must_check;

/* mkdir -p below dirfd: makes each missing component with mode, leaves what is there alone. */
int varve_mkdir_p(int dirfd, const char *path, mode_t mode) varve_must_check;

/* Calls cb for each name in the directory dirfd/path ("." itself) but "." and "..", in no order; dir_fd is the
 * directory's. Stops at a result other than 0 and returns it; else 0 or a negative errno. */
typedef int varve_name_cb(void *ctx, int dir_fd, const char *name);
int varve_each_name(int dirfd, const char *path, varve_name_cb *cb, void *ctx) varve_must_check;

/* The same with what the entry is (links are not followed); what is gone by then is left out. */
typedef int varve_entry_cb(void *ctx, int dir_fd, const char *name, const struct stat *st);
int varve_each_entry(int dirfd, const char *path, varve_entry_cb *cb, void *ctx);

/* Removes a file or a whole directory tree below dirfd; what is not there counts as removed.
 * Symbolic links are removed, not followed. Files above 64 MiB are cut down in steps first when
 * `in_steps`, so that the backing filesystem's journal is not held up. */
int varve_remove_tree(int dirfd, const char *name, bool in_steps) varve_must_check;

/* Where a killed daemon is tried: with test_hooks and VARVE_TEST_CRASH=NAME[:N] in the environment,
 * the N-th (default first) arrival at the point of that name ends the process with status 86.
 * Without test_hooks it is nothing. Names are listed in docs/architecture.md. */
#ifdef VARVE_TEST_HOOKS
void varve_crash_point(const char *name);
/* Likewise, with VARVE_TEST_PAUSE=NAME:FILE: a thread that comes to the point makes FILE.there and waits as long as
 * FILE exists. */
void varve_pause_point(const char *name);
#else
static inline void varve_pause_point(const char *name)
{
	(void)name;
}
static inline void varve_crash_point(const char *name)
{
	(void)name;
}
#endif
