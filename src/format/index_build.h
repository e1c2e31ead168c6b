/*
 * Gathers the index while a segment is written, and writes what stands behind the data frames:
 * index frame and seek table. Its memory grows with members, extents and frames.
 */
#pragma once

#include "base/err.h"
#include "format/buf.h"
#include "format/segment.h"
#include "format/segment_enc.h"
#include "format/segment_pipe.h"

struct varve_index_build {
	struct varve_buf members, heap, frames,
		extents;            /* sections of the body, as layout.h has them */
	struct varve_buf open_dirs; /* u32 numbers of the directories that hold the last member */
	uint32_t n_members, n_frames, n_extents;
	uint64_t files, content_bytes;
	uint64_t tar_bytes, data_bytes; /* of the frames so far */
	int64_t start_ns, end_ns;
	uint16_t bucket_len, class_len, tablet_len;
};

/* -EINVAL for a name that can't be a single path component. */
int varve_index_build_init(struct varve_index_build *b,
			   const struct varve_segment_params *params) varve_must_check;
void varve_index_build_done(struct varve_index_build *b);

/* 0 when a member of this path may come next: behind the last, in a directory that is there.
 * Else -EINVAL. */
int varve_index_build_fits(const struct varve_index_build *b,
			   const struct varve_member *m) varve_must_check;

/* Adds a member that fits, its digest filled in; its content begins at data_offset in the tar
 * stream. 0, -EFBIG (more than an index may hold) or -ENOMEM. */
int varve_index_build_member(struct varve_index_build *b, const struct varve_member *m,
			     uint64_t data_offset) varve_must_check;

/* Adds a frame that was written. 0, -EFBIG or -ENOMEM. */
int varve_index_build_frame(struct varve_index_build *b,
			    const struct varve_pipe_frame *f) varve_must_check;

/* Appends index frame and seek table to `to`. 0, -EFBIG, -ENOMEM or -EIO. */
int varve_index_build_finish(struct varve_index_build *b, int level,
			     struct varve_buf *to) varve_must_check;
