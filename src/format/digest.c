#include "format/digest.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "base/bytes.h"

struct varve_digest {
	XXH3_state_t *state; /* aligned as xxhash wants it */
	uint64_t size;       /* of the file, for one with holes */
	bool sparse;
};

uint64_t varve_hash64(const void *data, size_t len)
{
	return XXH3_64bits(data, len);
}

static void put_canonical(XXH128_hash_t h, unsigned char ret[16])
{
	XXH128_canonical_t c;

	XXH128_canonicalFromHash(&c, h);
	memcpy(ret, c.digest, 16);
}

void varve_hash128(const void *data, size_t len, unsigned char ret[16])
{
	put_canonical(XXH3_128bits(data, len), ret);
}

struct varve_digest *varve_digest_new(void)
{
	struct varve_digest *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->state = XXH3_createState();
	if (!d->state) {
		free(d);
		return NULL;
	}
	return d;
}

void varve_digest_free(struct varve_digest *d)
{
	if (!d)
		return;
	(void)XXH3_freeState(d->state);
	free(d);
}

void varve_digest_begin(struct varve_digest *d, uint64_t size, const struct varve_extent *extents,
			uint32_t n_extents)
{
	if (size == 0)
		d->sparse = false;
	else
		d->sparse = n_extents != 1 || extents[0].offset != 0 || extents[0].length != size;
	d->size = size;
	(void)XXH3_128bits_reset(d->state);
}

void varve_digest_extent(struct varve_digest *d, const struct varve_extent *extent)
{
	unsigned char b[16];

	if (!d->sparse)
		return;
	varve_put_le64(b, extent->offset);
	varve_put_le64(b + 8, extent->length);
	(void)XXH3_128bits_update(d->state, b, sizeof(b));
}

void varve_digest_data(struct varve_digest *d, const void *data, size_t len)
{
	(void)XXH3_128bits_update(d->state, data, len);
}

void varve_digest_end(struct varve_digest *d, unsigned char ret[16])
{
	unsigned char b[8];

	if (d->sparse) {
		varve_put_le64(b, d->size);
		(void)XXH3_128bits_update(d->state, b, sizeof(b));
	}
	put_canonical(XXH3_128bits_digest(d->state), ret);
}

static int digest_extent(struct varve_digest *d, const struct varve_extent *x,
			 varve_segment_read *read, void *read_ctx, void *buf, size_t size)
{
	varve_digest_extent(d, x);
	for (uint64_t done = 0; done < x->length;) {
		uint64_t left = x->length - done;
		size_t want = left < size ? (size_t)left : size;
		ssize_t n = read(read_ctx, buf, want, x->offset + done);

		if (n < 0)
			return (int)n;
		if (n == 0 || (size_t)n > want)
			return -EBADMSG;
		varve_digest_data(d, buf, (size_t)n);
		done += (uint64_t)n;
	}
	return 0;
}

int varve_digest_member(struct varve_digest *d, const struct varve_member *m,
			varve_segment_read *read, void *read_ctx, void *buf, size_t size,
			unsigned char ret[16])
{
	if (S_ISDIR(m->mode)) {
		memset(ret, 0, 16);
		return 0;
	}
	if (S_ISLNK(m->mode)) {
		varve_hash128(m->target, (size_t)m->size, ret);
		return 0;
	}
	varve_digest_begin(d, m->size, m->extents, m->n_extents);
	for (uint32_t i = 0; i < m->n_extents; i++) {
		int r = digest_extent(d, &m->extents[i], read, read_ctx, buf, size);

		if (r < 0)
			return r;
	}
	varve_digest_end(d, ret);
	return 0;
}
