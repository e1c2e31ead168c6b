/*
 * Any bytes as a segment. The first byte chooses: 0: the rest is a segment as it stands. Else the
 * rest is an index header and an uncompressed body; sizes, hashes and the seek table are made to
 * fit them, so that what the hashes guard is reached.
 *
 * Replayed on corpus/segment by `meson test`. To look for more:
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -D_GNU_SOURCE -Isrc
 *tests/fuzz/fuzz_segment.c \ src/format/{digest,frame,index_check,segment,segment_dec}.c
 *src/base/err.c -lzstd -lxxhash
 *	./a.out -max_len=20000 NEW tests/fuzz/corpus/segment
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "format/buf.h"
#include "format/digest.h"
#include "format/frame.h"
#include "format/layout.h"
#include "format/segment_dec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(x)                                                                                 \
	((x) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort()))

/* A segment whose first bytes are zeros that nobody has to store. */
struct source {
	uint64_t zeros;
	struct varve_buf rest;
};

static ssize_t read_source(void *ctx, void *buf, size_t len, uint64_t off)
{
	const struct source *s = ctx;
	size_t from;

	if (off < s->zeros) {
		if (len > s->zeros - off)
			len = (size_t)(s->zeros - off);
		memset(buf, 0, len);
		return (ssize_t)len;
	}
	if (off - s->zeros >= s->rest.len)
		return 0;
	from = (size_t)(off - s->zeros);
	if (len > s->rest.len - from)
		len = s->rest.len - from;
	memcpy(buf, s->rest.p + from, len);
	return (ssize_t)len;
}

static void put(struct varve_buf *b, const void *data, size_t len)
{
	REQUIRE(varve_buf_add(b, data, len) == 0);
}

static void put_u32(struct varve_buf *b, uint32_t v)
{
	unsigned char le[4];

	varve_put_le32(le, v);
	put(b, le, sizeof(le));
}

/* The seek table that belongs to the frame records, where the counts say that they are. */
static void put_seek_table(struct varve_buf *b, const unsigned char *h, const uint8_t *body,
			   size_t body_size, size_t index_size)
{
	uint64_t at = (uint64_t)varve_get_le32(h + VARVE_IH_MEMBERS) * VARVE_IM_BYTES +
		      varve_get_le32(h + VARVE_IH_HEAP_SIZE);
	uint32_t n = varve_get_le32(h + VARVE_IH_FRAMES);

	if (at > body_size || n > (body_size - at) / VARVE_IF_BYTES)
		n = 1;
	put_u32(b, VARVE_SEEK_FRAME_MAGIC);
	put_u32(b, (n + 1) * VARVE_SEEK_ENTRY + VARVE_SEEK_FOOTER);
	for (uint32_t k = 0; k < n; k++)
		if (at + VARVE_IF_BYTES * (k + 1) <= body_size)
			put(b, body + at + VARVE_IF_BYTES * k, VARVE_SEEK_ENTRY);
		else
			put(b, "\1\0\0\0\1\0\0\0\0\0\0\0", VARVE_SEEK_ENTRY);
	put_u32(b, (uint32_t)index_size);
	put_u32(b, 0);
	put_u32(b, VARVE_SEEK_CHECK_EMPTY);
	put_u32(b, n + 1);
	put(b, "\x80", 1);
	put_u32(b, VARVE_SEEK_MAGIC);
}

static void make_segment(struct source *s, const uint8_t *data, size_t size)
{
	unsigned char h[VARVE_IH_SIZE] = {0};
	size_t head = size < sizeof(h) ? size : sizeof(h), room, comp_size;
	const uint8_t *body = data + head;
	size_t body_size = size - head;
	struct varve_frame_cctx *c = varve_frame_cctx_new(1);
	unsigned char *comp;
	uint32_t check;

	room = varve_frame_bound(body_size);
	comp = malloc(room);
	REQUIRE(c && comp);
	REQUIRE(varve_frame_encode(c, body, body_size, comp, room, &comp_size, &check) == 0);
	varve_frame_cctx_free(c);
	memcpy(h, data, head);
	memcpy(h, VARVE_INDEX_MAGIC, 8);
	varve_put_le32(h + VARVE_IH_HEADER_SIZE, VARVE_IH_SIZE);
	varve_put_le32(h + VARVE_IH_VERSION, VARVE_INDEX_VERSION);
	varve_put_le32(h + VARVE_IH_INCOMPAT, 0);
	varve_put_le64(h + VARVE_IH_BODY_SIZE, body_size);
	varve_put_le64(h + VARVE_IH_BODY_COMP, comp_size);
	varve_hash128(body, body_size, h + VARVE_IH_BODY_HASH);
	s->zeros = varve_get_le64(h + VARVE_IH_DATA_BYTES) & 0xffffff;
	varve_put_le64(h + VARVE_IH_DATA_BYTES, s->zeros);
	varve_put_le64(h + VARVE_IH_HASH, varve_hash64(h, VARVE_IH_HASH));
	put_u32(&s->rest, VARVE_INDEX_FRAME_MAGIC);
	put_u32(&s->rest, (uint32_t)(VARVE_IH_SIZE + comp_size));
	put(&s->rest, h, sizeof(h));
	put(&s->rest, comp, comp_size);
	put_seek_table(&s->rest, h, body, body_size, VARVE_SKIP_HEADER + VARVE_IH_SIZE + comp_size);
	free(comp);
}

static void walk_extents(const struct varve_index *ix, uint32_t i, const struct varve_member *m,
			 uint64_t tar_bytes)
{
	uint64_t off = 0;

	/* Every run of the file, data and holes, and each is where the extents say. */
	for (uint32_t runs = 0; off < m->size; runs++) {
		uint64_t tar, len;

		varve_index_map(ix, i, off, &tar, &len);
		REQUIRE(len > 0 && len <= m->size - off);
		REQUIRE(tar == UINT64_MAX || (tar < tar_bytes && len <= tar_bytes - tar));
		REQUIRE(runs <= 2 * m->n_extents);
		off += len;
	}
}

static void walk_member(const struct varve_index *ix, uint32_t i, uint64_t tar_bytes)
{
	struct varve_member m;
	struct varve_xattr x;
	uint32_t found, at = 0, end = varve_index_subtree_end(ix, i);

	varve_index_member(ix, i, &m);
	REQUIRE(varve_member_check(&m, NULL) == 0);
	REQUIRE(varve_index_find(ix, m.path, m.path_len, &found) == 0 && found == i);
	REQUIRE(end > i && end <= varve_index_count(ix));
	REQUIRE(S_ISDIR(m.mode) || end == i + 1);
	while (varve_xattr_next(m.xattrs, m.xattrs_len, &at, &x) > 0)
		REQUIRE(!memchr(x.name, 0, x.name_len));
	if (S_ISREG(m.mode))
		walk_extents(ix, i, &m, tar_bytes);
}

static void walk_frames(const struct varve_index *ix, struct source *s)
{
	struct varve_frame_dctx *d = varve_frame_dctx_new();
	uint32_t n = varve_index_frames(ix);

	REQUIRE(d);
	for (uint32_t k = 0; k < n && k < 8; k++) {
		struct varve_frame_info f;
		unsigned char *comp, *raw;

		varve_index_frame(ix, k, &f);
		REQUIRE(varve_index_frame_at(ix, f.raw_offset) == k);
		REQUIRE(f.comp_offset + f.comp_size <= s->zeros + s->rest.len);
		comp = malloc(f.comp_size);
		raw = malloc(f.raw_size);
		REQUIRE(comp && raw);
		if (read_source(s, comp, f.comp_size, f.comp_offset) == (ssize_t)f.comp_size)
			(void)!varve_frame_decode(d, &f, comp, raw);
		free(comp);
		free(raw);
	}
	varve_frame_dctx_free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct source s = {0};
	struct varve_source src = {.read = read_source, .ctx = &s};
	struct varve_segment_params about;
	struct varve_segment_totals totals;
	struct varve_index *ix = NULL;
	struct varve_err err = {0};
	int r;

	if (size == 0)
		return 0;
	if (data[0] == 0)
		put(&s.rest, data + 1, size - 1);
	else
		make_segment(&s, data + 1, size - 1);
	src.size = s.zeros + s.rest.len;
	r = varve_index_open(&src, &ix, &err);
	REQUIRE(r == 0 || r == -EBADMSG || r == -EPROTONOSUPPORT);
	if (r == 0) {
		varve_index_about(ix, &about, &totals);
		REQUIRE(about.bucket[0] && about.class_name[0] && about.tablet[0]);
		for (uint32_t i = 0; i < varve_index_count(ix); i++)
			walk_member(ix, i, totals.tar_bytes);
		walk_frames(ix, &s);
		varve_index_free(ix);
	}
	varve_buf_done(&s.rest);
	return 0;
}
