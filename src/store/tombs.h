/*
 * Tombstones: which members of a sealed bucket were removed by hand. One append-only file a bucket,
 * meta/tombs/BUCKET, of self-checking records; a torn tail is recognised, ignored and cut off at
 * the next append; a damaged record is passed over with a warning, those behind it hold. Threads: a
 * set locks itself ("tombs", a leaf lock; appends write under it, a sync waits for the disk without
 * it).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct varve_tombs;

/* Loads the set of `bucket` below dirfd (meta/tombs; stays the caller's, must stay open, no
 * O_PATH). No file: an empty set, and none is made until the first add. read_only: never writes
 * (for tools beside a running daemon). -EBADMSG: no file of tombstones, or no regular file; -ELOOP;
 * ... */
int varve_tombs_open(int dirfd, const char *bucket, bool read_only, struct varve_tombs **ret,
		     struct varve_err *err) varve_must_check;
void varve_tombs_close(struct varve_tombs *t); /* NULL is fine */
bool varve_tombs_has(struct varve_tombs *t, const char *class_name, const char *tablet,
		     const char *path, size_t len);
size_t varve_tombs_count(struct varve_tombs *t); /* 0 lets a caller skip the questions */
/* Appends a record (survives the daemon at once; power loss once synced). What is there already is
 * not added again. On failure (-ENOSPC, -EIO, ...; -EROFS when read_only; -ENAMETOOLONG) the set
 * and its file are as before. */
int varve_tombs_add(struct varve_tombs *t, const char *class_name, const char *tablet,
		    const char *path, size_t len) varve_must_check;
/* Makes what was added durable (file, and its directory the first time), also by an earlier daemon.
 * Cheap when nothing is new. */
int varve_tombs_sync(struct varve_tombs *t) varve_must_check;
/* Removes the bucket's file (the bucket is gone for good). */
int varve_tombs_remove(int dirfd, const char *bucket) varve_must_check;
