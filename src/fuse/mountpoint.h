/*
 * The folder that is mounted on: checks before the mount, and taking the mount off again. Nothing
 * here asks the filesystem that is mounted (it may be ours), but for varve_mountpoint_prepare.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"

/* Makes path fit to be mounted on: dead FUSE mounts on it (ENOTCONN) are detached, and it must be a
 * directory. Its real, absolute path into *ret, malloc'ed. err says what is wrong. */
int varve_mountpoint_prepare(const char *path, char **ret, struct varve_err *err) varve_must_check;

/* Refuses (-EINVAL) a store in the mountpoint and a mountpoint in the store, by their real paths
 * and by walking up from each, which also finds what bind mounts hide. The store need not exist
 * yet. The store's absolute path into *ret_store, malloc'ed. */
int varve_mountpoint_check_store(const char *store, const char *mountpoint, char **ret_store,
				 struct varve_err *err) varve_must_check;

/* Which filesystem is mounted topmost at this real path. -ENOENT: none is. */
int varve_mountpoint_device(const char *mountpoint, dev_t *ret) varve_must_check;

/* Detaches what is mounted topmost there: the names vanish, what is open goes on. An ordinary
 * user's mount goes by fusermount3. Blocks until done. */
int varve_mountpoint_detach(const char *mountpoint, struct varve_err *err) varve_must_check;
