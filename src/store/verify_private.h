/* What the parts of the check share. */
#pragma once

#include "format/segment_dec.h"
#include "store/verify.h"

/* -- verify_frames.c: all frames of a segment in order, several decompressed at once -- */

struct varve_frame_reader;

/* Starts threads (0: one per core), which read ahead of the caller as far as the bound on memory
 * lets them. fd and ix must outlive it. 0, -ENOMEM, -EAGAIN. */
int varve_frame_reader_new(int fd, const struct varve_index *ix, unsigned threads,
			   struct varve_frame_reader **ret) varve_must_check;
void varve_frame_reader_free(struct varve_frame_reader *r); /* NULL is fine; at any time */

/* The next frame: 0 and its bytes, valid until the next call; or its error (-EBADMSG, an error of the
 * disk, -ENOMEM), after which one can go on. Must not be called beyond the last frame. */
int varve_frame_reader_next(struct varve_frame_reader *r, const unsigned char **ret);

/* -- verify.c -- */

/* The place of a segment in a store, to be compared with its index. */
struct varve_verify_place {
	const char *bucket, *class_name, *tablet;
	int64_t start_ns; /* of the window, as the bucket's name tells */
};

/* As varve_verify_segment; progress is counted from `done` on, of `total` (0: of this segment). place
 * may be NULL. */
int varve_verify_one(int dirfd, const char *path, const struct varve_verify_place *place,
		     const struct varve_verify_job *job, uint64_t done, uint64_t total,
		     struct varve_verify_counts *ret, struct varve_err *err) varve_must_check;
