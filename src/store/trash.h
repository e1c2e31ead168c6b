/*
 * trash/: dropped buckets on their way out. A dropped bucket (or closing bucket) is one directory
 * that was renamed here; its name carries what was dropped, when, why and by whom:
 *   BUCKET,CLASS,STATE,TIME_NS,CAUSE,UID,PID,SEQ   (for example
 *   2026-11-28,default,sealed,1764580000000000000,hand,1000,4242,0)
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "format/names.h"
#include "store/policy.h"
#include "store/retention.h"

#define VARVE_TRASH_NAME_MAX 200

struct varve_trash_name {
	char bucket[VARVE_BUCKET_NAME_MAX];
	char class_name[VARVE_CLASS_NAME_MAX];
	enum varve_bucket_state state; /* SEALED or CLOSING: where it came from */
	int64_t time_ns;               /* believed time of the drop */
	enum varve_drop_cause cause;
	int64_t uid, pid; /* -1: policy */
	uint32_t seq;     /* makes the name unique */
};

/* -EINVAL: not a bucket's name, no class (or one with ',' or '/'), no cause, another state. */
int varve_trash_format(const struct varve_trash_name *n,
		       char buf[VARVE_TRASH_NAME_MAX]) varve_must_check;
/* Strict; -EINVAL for anything varve_trash_format could not have written. */
int varve_trash_parse(const char *name, struct varve_trash_name *ret) varve_must_check;

/* Whether the name is of an entry whose removal has begun: it can't come back. */
bool varve_trash_is_gone(const char *name);
/* The name of such an entry, from the one that varve_trash_format made. */
void varve_trash_gone(const char *name, char buf[VARVE_TRASH_NAME_MAX + 8]);

/* Calls cb for each well-formed entry, oldest drop first; others are ignored. Stops at a negative
 * return of cb and returns it. */
typedef int varve_trash_cb(void *ctx, const char *name, const struct varve_trash_name *parsed);
int varve_trash_each(int trash_dirfd, varve_trash_cb *cb, void *ctx);

/* Removes one entry for good: file by file, large ones in steps unless may_be_read (an open reader
 * needs the bytes until it closes: then only unlink); one with another hard link is only unlinked.
 * About budget_ns of time per call, and one step at least: returns 1 when more is left, 0 when it
 * is gone (or was). The entry is first renamed to "gone,NAME", so that it can't be undropped
 * (durably, if it could have been); name may be either. Blocks. */
int varve_trash_remove(int trash_dirfd, const char *name, bool may_be_read,
		       int64_t budget_ns) varve_must_check;

/* Allocated bytes of dirfd/name and all below, walking it; what vanishes meanwhile is not counted.
 * -ENOENT. */
int varve_tree_allocated(int dirfd, const char *name, uint64_t *ret_bytes) varve_must_check;
