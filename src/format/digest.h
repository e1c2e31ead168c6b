/*
 * Hashes of a segment: XXH3-64 of frames, XXH3-128 (canonical, big-endian bytes) of contents.
 * Pure; the only user of xxhash.
 *
 * The digest of a file without holes (one extent that covers it, or none and size 0) is XXH3-128 of
 * its bytes. A hole of a terabyte must not cost a terabyte of hashing, so the digest of a file with
 * holes is XXH3-128 over, for each extent, offset (u64), length (u64) and its bytes, then the
 * file's size (u64), all little-endian. The extents are those of the index.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "format/segment.h"
#include "format/segment_enc.h"

uint64_t varve_hash64(const void *data, size_t len);
void varve_hash128(const void *data, size_t len, unsigned char ret[16]);

struct varve_digest; /* may be used for one file after the other */

struct varve_digest *varve_digest_new(void);    /* NULL: no memory */
void varve_digest_free(struct varve_digest *d); /* NULL is fine */

/* The sequence for a file: _begin with its size and extents; per extent in order _extent, then its
 * bytes in any number of _data; _end. */
void varve_digest_begin(struct varve_digest *d, uint64_t size, const struct varve_extent *extents,
			uint32_t n_extents);
void varve_digest_extent(struct varve_digest *d, const struct varve_extent *extent);
void varve_digest_data(struct varve_digest *d, const void *data, size_t len);
void varve_digest_end(struct varve_digest *d, unsigned char ret[16]);

/* Works the digest of m out, whatever its type, content read through `read` by its extents; buf is
 * room for size bytes (64 KiB or more is wise). 0, -EBADMSG when the content is short, or what
 * read returned. */
int varve_digest_member(struct varve_digest *d, const struct varve_member *m,
			varve_segment_read *read, void *read_ctx, void *buf, size_t size,
			unsigned char ret[16]) varve_must_check;
