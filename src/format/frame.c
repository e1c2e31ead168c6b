#include "format/frame.h"

#include <errno.h>
#include <stdlib.h>

#define ZSTD_STATIC_LINKING_ONLY /* for the name of a parameter */
#include <zstd.h>
#include <zstd_errors.h>

#include "base/bytes.h"
#include "format/digest.h"
#include "format/segment_dec.h"

struct varve_frame_cctx {
	ZSTD_CCtx *z;
};

struct varve_frame_dctx {
	ZSTD_DCtx *z;
};

struct varve_frame_cctx *varve_frame_cctx_new(int level)
{
	struct varve_frame_cctx *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->z = ZSTD_createCCtx();
	if (!c->z || ZSTD_isError(ZSTD_CCtx_setParameter(c->z, ZSTD_c_compressionLevel, level)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(c->z, ZSTD_c_checksumFlag, 1)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(c->z, ZSTD_c_contentSizeFlag, 1))) {
		varve_frame_cctx_free(c);
		return NULL;
	}
	return c;
}

void varve_frame_cctx_free(struct varve_frame_cctx *c)
{
	if (!c)
		return;
	(void)ZSTD_freeCCtx(c->z);
	free(c);
}

size_t varve_frame_bound(size_t raw_size)
{
	return ZSTD_compressBound(raw_size);
}

int varve_frame_encode(struct varve_frame_cctx *c, const void *raw, size_t raw_size, void *comp,
		       size_t comp_room, size_t *ret_size, uint32_t *ret_check)
{
	size_t n = ZSTD_compress2(c->z, comp, comp_room, raw, raw_size);

	if (ZSTD_isError(n))
		return ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation ? -ENOMEM : -EIO;
	/* zstd's own checksum is the seek table's, and stands in the frame's last four bytes. */
	*ret_check = varve_get_le32((const unsigned char *)comp + n - 4);
	*ret_size = n;
	return 0;
}

struct varve_frame_dctx *varve_frame_dctx_new(void)
{
	struct varve_frame_dctx *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->z = ZSTD_createDCtx();
	if (!d->z) {
		free(d);
		return NULL;
	}
	return d;
}

struct varve_frame_dctx *varve_frame_dctx_new_for_hash(void)
{
	struct varve_frame_dctx *d = varve_frame_dctx_new();

	/* A library that can't leave it out computes it, too. */
	if (d)
		(void)ZSTD_DCtx_setParameter(d->z, ZSTD_d_forceIgnoreChecksum, ZSTD_d_ignoreChecksum);
	return d;
}

void varve_frame_dctx_free(struct varve_frame_dctx *d)
{
	if (!d)
		return;
	(void)ZSTD_freeDCtx(d->z);
	free(d);
}

int varve_frame_inflate(struct varve_frame_dctx *d, const void *comp, size_t comp_size, void *raw,
			size_t raw_size)
{
	size_t n = ZSTD_decompressDCtx(d->z, raw, raw_size, comp, comp_size);

	if (ZSTD_isError(n))
		return ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation ? -ENOMEM : -EBADMSG;
	return n == raw_size ? 0 : -EBADMSG;
}

int varve_frame_decode(struct varve_frame_dctx *d, const struct varve_frame_info *f,
		       const void *comp, void *raw)
{
	int r = varve_frame_inflate(d, comp, f->comp_size, raw, f->raw_size);

	if (r < 0)
		return r;
	return varve_hash64(raw, f->raw_size) == f->hash ? 0 : -EBADMSG;
}
