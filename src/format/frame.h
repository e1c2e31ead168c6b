/*
 * zstd frames, one at a time and in memory; the only user of zstd. Decoding of data frames is
 * declared in format/segment_dec.h. A context serves one thread at a time and is reused.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct varve_frame_cctx;

struct varve_frame_cctx *varve_frame_cctx_new(int level); /* NULL: no memory */
void varve_frame_cctx_free(struct varve_frame_cctx *c);   /* NULL is fine */

/* The most bytes that raw_size bytes can take when compressed. */
size_t varve_frame_bound(size_t raw_size);

/* Compresses raw into one frame with content size and checksum. comp has room for
 * varve_frame_bound(raw_size). *ret_check is the low half of XXH64 of the raw bytes.
 * 0, -ENOMEM, or -EIO when zstd fails otherwise. */
int varve_frame_encode(struct varve_frame_cctx *c, const void *raw, size_t raw_size, void *comp,
		       size_t comp_room, size_t *ret_size, uint32_t *ret_check) varve_must_check;

struct varve_frame_dctx;

/* Decompresses one frame of exactly raw_size bytes: 0, or -EBADMSG. Nothing but zstd's own
 * checksum is checked. */
int varve_frame_inflate(struct varve_frame_dctx *d, const void *comp, size_t comp_size, void *raw,
			size_t raw_size) varve_must_check;
