/*
 * Reads a segment's index and frames. Pure: bytes come from a source (file or memory), nothing is
 * logged, no lock is taken. Everything is hostile until checked: -EBADMSG for bytes that make no
 * sense, -EPROTONOSUPPORT for a version or incompatible flag that is not known.
 * An index, once open, is immutable and may be used by many threads.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "format/segment.h"
#include "format/segment_enc.h"

/* Reads up to len bytes at off; returns the bytes read (short at the end) or -errno. */
typedef ssize_t varve_source_read(void *ctx, void *buf, size_t len, uint64_t off);

struct varve_source {
	varve_source_read *read;
	void *ctx;
	uint64_t size; /* of the whole segment, bytes */
};

struct varve_index;

struct varve_frame_info {
	uint64_t comp_offset; /* in the segment */
	uint32_t comp_size;
	uint32_t raw_size;   /* at most VARVE_FRAME_BYTES_MAX */
	uint64_t raw_offset; /* in the tar stream */
	uint64_t hash;       /* XXH3-64 of the raw bytes */
};

/* Finds, reads and checks the index at the segment's end. The caller frees. err says what is wrong.
 */
int varve_index_open(const struct varve_source *src, struct varve_index **ret,
		     struct varve_err *err) varve_must_check;
void varve_index_free(struct varve_index *ix);           /* NULL is fine */
size_t varve_index_memory(const struct varve_index *ix); /* bytes it occupies */

/* What the index says of the whole: names (NUL-terminated, live as long as the index), window,
 * totals. */
void varve_index_about(const struct varve_index *ix, struct varve_segment_params *ret_about,
		       struct varve_segment_totals *ret_totals);

uint32_t varve_index_count(const struct varve_index *ix); /* members; 0 is the bucket's directory */
void varve_index_member(const struct varve_index *ix, uint32_t i, struct varve_member *ret);
/* Exact path: its number into *ret, or -ENOENT. */
int varve_index_find(const struct varve_index *ix, const char *path, size_t len, uint32_t *ret);
/* The number just behind all that is in directory i: the children of i are i+1, then
 * subtree_end(child), and so on while below subtree_end(i). For anything else i + 1. */
uint32_t varve_index_subtree_end(const struct varve_index *ix, uint32_t i);

/* Where a file's content stands in the tar stream: fills in the run that holds file offset off:
 * a data run gives its tar offset, a hole gives *ret_tar = UINT64_MAX; *ret_len is how many bytes
 * from off the run still has. off is below the file's size. */
void varve_index_map(const struct varve_index *ix, uint32_t i, uint64_t off, uint64_t *ret_tar,
		     uint64_t *ret_len);

uint32_t varve_index_frames(const struct varve_index *ix);
void varve_index_frame(const struct varve_index *ix, uint32_t k, struct varve_frame_info *ret);
uint32_t varve_index_frame_at(const struct varve_index *ix,
			      uint64_t tar_offset); /* the frame's number */

/* Decompresses one frame that was read whole into comp, into raw (raw_size bytes), and checks its
 * hash: 0, or -EBADMSG. dctx: see varve_frame_dctx_new. */
struct varve_frame_dctx;
struct varve_frame_dctx *varve_frame_dctx_new(void); /* NULL: no memory */
/* One that leaves zstd's own checksum of a frame uncomputed: varve_frame_decode compares the index's
 * hash of the same bytes in any case, and who only reads need not pay for both. */
struct varve_frame_dctx *varve_frame_dctx_new_for_hash(void);
void varve_frame_dctx_free(struct varve_frame_dctx *d);
int varve_frame_decode(struct varve_frame_dctx *d, const struct varve_frame_info *f,
		       const void *comp, void *raw) varve_must_check;
