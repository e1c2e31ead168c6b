/*
 * A sealed segment on disk, opened for reading: index and descriptor, shared by all who read it,
 * and the frame cache that serves it. Threads: everything here is thread-safe.
 */
#pragma once

#include "base/err.h"
#include "format/segment_dec.h"
#include "store/view.h"

struct varve_cache;   /* frames, decompressed: bounded; see store/cache.h */
struct varve_segment; /* reference-counted */

/* Opens dirfd/path (a segment file), reads and checks its index. One reference to the caller.
 * Frames are served through cache, which must outlive the segment. Blocks on I/O. -ENOENT and the
 * like; -EBADMSG when it is no regular file or makes no sense; -EPROTONOSUPPORT. err says what is
 * wrong, not of which segment. */
int varve_segment_open(struct varve_cache *cache, int dirfd, const char *path,
		       struct varve_segment **ret, struct varve_err *err) varve_must_check;
struct varve_segment *varve_segment_ref(struct varve_segment *seg);
/* NULL is fine; the last one closes. May be called under any lock but the cache's: the descriptor of
 * a segment that was unlinked, whose blocks are given back by close(2), and a large index are given
 * back by the pool. */
void varve_segment_unref(struct varve_segment *seg);

const struct varve_index *varve_segment_index(const struct varve_segment *seg);

/* Allocated bytes of the segment file on the backing filesystem when it was opened. */
uint64_t varve_segment_allocated(const struct varve_segment *seg);

/* The share of the segment that member i takes, in bytes: its compressed share, for st_blocks. A part
 * of a frame counts by its part of the frame's compressed size. At least 1 when the file is not all
 * holes (tools take 0 blocks for "nothing but zeros"); 0 for what has no content. */
uint64_t varve_segment_share(const struct varve_segment *seg, uint32_t i);

/* Reads up to len bytes of file i at off. Returns the bytes read: short only at the file's end (0
 * beyond it); -EBADMSG when a frame that is needed fails its check and no byte before it was asked
 * for: bytes of intact frames before a bad one are returned as a short count only if at least one
 * was read AND the caller asks again it gets the error. Never wrong bytes. Errors of the backing disk
 * (-EIO) come in the same way. -EISDIR, -EINVAL for what is no file. Blocks on I/O.
 * The kernel's page cache takes a short answer for the file's end: it must not be given one before. */
ssize_t varve_segment_pread(struct varve_segment *seg, uint32_t i, void *buf, size_t len,
			    uint64_t off);

/* The same bytes that varve_segment_pread would copy, all of them, to be read until
 * varve_view_done. Returns how many; -EAGAIN: ask varve_segment_pread instead (there are holes among
 * them, or a frame that can't be had). Blocks on I/O; the caller holds no other view. */
ssize_t varve_segment_view(struct varve_segment *seg, uint32_t i, size_t len, uint64_t off,
			   struct varve_view *ret);

/* All of file i that is in the frame of its byte `off`, in whole pages (the last of the file may be
 * short): for who has read some of it and wants to keep the rest. Returns how many bytes, from *ret_off
 * on; -EAGAIN when it is not in memory (any more), was viewed so just before, has holes, or there is nothing
 * but the page of that byte. Never blocks. */
ssize_t varve_segment_view_around(struct varve_segment *seg, uint32_t i, uint64_t off,
				  struct varve_view *ret, uint64_t *ret_off);

/* Whether reading these bytes needs nothing to be decompressed, as things are just now. */
bool varve_segment_ready(struct varve_segment *seg, uint32_t i, size_t len, uint64_t off);

/* How many frames have failed (their check, or to be read) since the segment was opened. Each was
 * logged, once. */
uint64_t varve_segment_faults(const struct varve_segment *seg);

/* The file offsets of member i whose bytes are in frame f, holes between them included: from and
 * length. False when there are none. */
bool varve_segment_covers(const struct varve_index *ix, uint32_t i,
			  const struct varve_frame_info *f, uint64_t *ret_off, uint64_t *ret_len);
