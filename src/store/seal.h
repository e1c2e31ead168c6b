/*
 * Makes one segment file out of parts: written, fsynced, read back and compared. It knows of files,
 * not of buckets' states: what is sealed when, the commit and what follows are store/sealer's.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "format/segment_enc.h"

/* What a member is recorded with instead of what its descriptor says: a borrowed range's attributes are those of
 * the boundary. */
struct varve_seal_dress {
	uint32_t mode, uid, gid;
	int64_t mtime_ns;
	const unsigned char *xattrs; /* packed, see format/segment.h */
	size_t xattrs_len;
};

/* What the caller knows of the next member: its path and ino; for a file or directory a readable
 * descriptor (owned by seal from then on; a part or a directory in open/), from which mode, owner,
 * mtime, size, holes, xattrs and ACLs are taken; xattrs other than user.* and POSIX ACLs, and
 * user.varve.*, are left out. What is not filled in counts as fd -1, mode UINT32_MAX, no link. */
struct varve_seal_item {
	const char *path; /* valid until the next call */
	uint32_t path_len;
	uint64_t ino;
	int fd;
	uint32_t mode; /* permissions to record instead of the descriptor's; UINT32_MAX: the
			  descriptor's */
	bool ranged;   /* the content is `size` bytes of the descriptor from offset `from` on; what is
			  behind it may grow meanwhile */
	uint64_t from, size;
	const struct varve_seal_dress *dress; /* valid until the next call; NULL: as the descriptor says */
	bool is_link;  /* a symbolic link: the file's content is its target (see docs/format.md) */
};

/* Gives member i (in index order, 0 is the bucket's own directory). 0 or -errno. */
typedef int varve_seal_next(void *ctx, size_t i, struct varve_seal_item *ret);

struct varve_seal_job {
	struct varve_segment_params params; /* params.cancel: see there */
	size_t n;                           /* members */
	varve_seal_next *next;
	void *ctx;
};

/* Writes dirfd/name as a new file (0600, O_EXCL; a leftover of that name is removed first), fsyncs
 * it, and reads it back from the disk (page cache dropped first as far as may be): every frame,
 * every member's digest and tar headers, and the index against what the parts said. Nothing else is
 * touched. On failure the file is removed and ret is as before; err names segment and member. The
 * caller fsyncs the directory and commits. Blocks for as long as it takes; memory is bounded (some
 * MiB a thread, and the index).
 * -EAGAIN: a part's size or mtime changed meanwhile; -ENOSPC: to be taken up again when there is
 * room; -ECANCELED: soon after params.cancel became non-zero; -EBADMSG: what was read back is
 * wrong; what next returned; errors of the disk. */
int varve_seal_segment(int dirfd, const char *name, const struct varve_seal_job *job,
		       struct varve_segment_totals *ret, struct varve_err *err) varve_must_check;
