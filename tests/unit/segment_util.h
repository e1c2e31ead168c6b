/* What the segment's tests share: made-up members, encoding into memory, and a full comparison. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../lib/unit.h"
#include "base/bytes.h"
#include "format/buf.h"
#include "format/digest.h"
#include "format/segment_dec.h"
#include "format/segment_enc.h"

#define FILE_MODE (S_IFREG | 0640)
#define DIR_MODE (S_IFDIR | 0755)
#define LINK_MODE (S_IFLNK | 0777)

/* A member whose content is worked out from its seed. */
struct spec {
	const char *path;
	uint32_t mode;
	uint64_t size;
	uint32_t seed;
	const char *target;
	const struct varve_extent *extents; /* NULL: no holes */
	uint32_t n_extents;
	int64_t mtime_sec;
	uint32_t mtime_nsec;
	const unsigned char *xattrs;
	uint32_t xattrs_len;
	uint32_t uid, gid;
	const struct varve_extent *want; /* as the index has them, where that differs */
	uint32_t n_want;
};

/* Text-like and different for every seed; the bytes of a hole are zeros wherever it is read. */
static inline unsigned char content_byte(uint32_t seed, uint64_t off)
{
	uint64_t v = (off / 7 + 1) * UINT64_C(0x9E3779B97F4A7C15) + seed;

	if (off % 64 == 63)
		return '\n';
	return (unsigned char)('a' + ((v >> 40) + off % 7) % 26);
}

static inline bool in_extents(const struct spec *s, uint64_t off)
{
	if (!s->extents && s->n_extents == 0)
		return true;
	for (uint32_t i = 0; i < s->n_extents; i++)
		if (off >= s->extents[i].offset &&
		    off - s->extents[i].offset < s->extents[i].length)
			return true;
	return false;
}

/* varve_segment_read of a spec. */
static inline ssize_t read_spec(void *ctx, void *buf, size_t len, uint64_t off)
{
	const struct spec *s = ctx;
	unsigned char *to = buf;

	if (off >= s->size)
		return 0;
	if (len > s->size - off)
		len = (size_t)(s->size - off);
	for (size_t i = 0; i < len; i++)
		to[i] = in_extents(s, off + i) ? content_byte(s->seed, off + i) : 0;
	return (ssize_t)len;
}

/* A memory sink that can be made to fail. */
struct memory {
	struct varve_buf buf;
	size_t fail_after; /* 0: never */
	int fail_with;
};

static inline int memory_sink(void *ctx, const void *data, size_t len)
{
	struct memory *m = ctx;

	if (m->fail_after > 0 && m->buf.len + len > m->fail_after)
		return m->fail_with;
	return varve_buf_add(&m->buf, data, len);
}

static inline ssize_t memory_read(void *ctx, void *buf, size_t len, uint64_t off)
{
	const struct varve_buf *b = ctx;

	if (off >= b->len)
		return 0;
	if (len > b->len - off)
		len = (size_t)(b->len - off);
	memcpy(buf, b->p + off, len);
	return (ssize_t)len;
}

static inline struct varve_source memory_source(struct varve_buf *b)
{
	return (struct varve_source){.read = memory_read, .ctx = b, .size = b->len};
}

static inline struct varve_segment_params test_params(void)
{
	return (struct varve_segment_params){.level = 3,
					     .threads = 2,
					     .bucket = "2026-11-30",
					     .class_name = "default",
					     .tablet = "0",
					     .start_ns = INT64_C(1796000000000000000),
					     .end_ns = INT64_C(1796086400000000000)};
}

/* The member a spec stands for. whole is room for the extent of a file without holes. */
static inline struct varve_member spec_member(const struct spec *s, uint64_t ino,
					      struct varve_extent *whole)
{
	struct varve_member m = {.path = s->path,
				 .path_len = (uint32_t)strlen(s->path),
				 .mode = s->mode,
				 .uid = s->uid,
				 .gid = s->gid,
				 .mtime_sec = s->mtime_sec,
				 .mtime_nsec = s->mtime_nsec,
				 .ino = ino,
				 .size = s->size,
				 .target = s->target,
				 .xattrs = s->xattrs,
				 .xattrs_len = s->xattrs_len,
				 .extents = s->extents,
				 .n_extents = s->n_extents};

	if (s->target)
		m.size = strlen(s->target);
	if (S_ISREG(s->mode) && !s->extents && s->n_extents == 0 && s->size > 0) {
		*whole = (struct varve_extent){.offset = 0, .length = s->size};
		m.extents = whole;
		m.n_extents = 1;
	}
	return m;
}

static inline int add_spec(struct varve_segment_enc *enc, const struct spec *s, uint64_t ino,
			   struct varve_err *err)
{
	struct varve_extent whole;
	struct varve_member m = spec_member(s, ino, &whole);

	return varve_segment_enc_add(enc, &m, read_spec, (void *)s, NULL, err);
}

/* Encodes the bucket's directory and n specs; the first error is returned. */
static inline int encode(const struct spec *specs, size_t n,
			 const struct varve_segment_params *params, struct memory *to,
			 struct varve_segment_totals *totals, struct varve_err *err)
{
	static const struct spec root = {.path = "", .mode = DIR_MODE, .mtime_sec = 1796000001};
	struct varve_segment_enc *enc = NULL;
	int r = varve_segment_enc_new(params, memory_sink, to, &enc, err);

	if (r == 0)
		r = add_spec(enc, &root, 1, err);
	for (size_t i = 0; i < n && r == 0; i++)
		r = add_spec(enc, &specs[i], i + 2, err);
	if (r == 0)
		r = varve_segment_enc_finish(enc, totals, err);
	varve_segment_enc_free(enc);
	return r;
}

/* All frames one after the other: the tar stream. NULL when one does not decode. */
static inline unsigned char *decode_tar(const struct varve_index *ix, const struct varve_buf *seg)
{
	struct varve_segment_params about;
	struct varve_segment_totals totals;
	struct varve_frame_dctx *d = varve_frame_dctx_new();
	unsigned char *tar;
	int r = 0;

	varve_index_about(ix, &about, &totals);
	tar = malloc((size_t)totals.tar_bytes);
	for (uint32_t k = 0; k < varve_index_frames(ix) && r == 0; k++) {
		struct varve_frame_info f;
		cleanup_free void *comp = NULL;

		varve_index_frame(ix, k, &f);
		ck_assert_uint_eq(varve_index_frame_at(ix, f.raw_offset), k);
		ck_assert_uint_eq(varve_index_frame_at(ix, f.raw_offset + f.raw_size - 1), k);
		comp = malloc(f.comp_size); /* exact, so that a sanitizer sees reads beyond it */
		memcpy(comp, seg->p + f.comp_offset, f.comp_size);
		r = varve_frame_decode(d, &f, comp, tar + f.raw_offset);
	}
	varve_frame_dctx_free(d);
	if (r < 0) {
		free(tar);
		return NULL;
	}
	return tar;
}

/* varve_segment_read of a member of an opened segment. */
struct decoded {
	const struct varve_index *ix;
	const unsigned char *tar;
	uint32_t i;
};

static inline ssize_t read_decoded(void *ctx, void *buf, size_t len, uint64_t off)
{
	const struct decoded *d = ctx;
	struct varve_member m;
	uint64_t at, run;
	size_t done = 0;

	varve_index_member(d->ix, d->i, &m);
	while (done < len && off + done < m.size) {
		varve_index_map(d->ix, d->i, off + done, &at, &run);
		ck_assert_uint_gt(run, 0);
		if (run > len - done)
			run = len - done;
		if (at == UINT64_MAX)
			memset((char *)buf + done, 0, (size_t)run);
		else
			memcpy((char *)buf + done, d->tar + at, (size_t)run);
		done += (size_t)run;
	}
	return (ssize_t)done;
}

/* Content of member i against what was put in, in whole for small files, else where there is data
 * and around it. */
static inline void compare_content(struct decoded *d, const struct spec *s)
{
	static unsigned char got[1 << 16], want[1 << 16];
	struct varve_member m;

	varve_index_member(d->ix, d->i, &m);
	for (uint32_t e = 0; e < m.n_extents; e++) {
		uint64_t from = m.extents[e].offset > 100 ? m.extents[e].offset - 100 : 0;
		uint64_t to = m.extents[e].offset + m.extents[e].length + 100;

		for (uint64_t at = from; at < to && at < m.size; at += sizeof(got)) {
			size_t n = to - at < sizeof(got) ? (size_t)(to - at) : sizeof(got);
			ssize_t a = read_decoded(d, got, n, at);
			ssize_t b = read_spec((void *)s, want, n, at);

			ck_assert_int_eq(a, b);
			ck_assert_msg(memcmp(got, want, (size_t)a) == 0, "%s at %llu", s->path,
				      (unsigned long long)at);
		}
	}
	if (m.size > 0) {
		ck_assert_int_eq(read_decoded(d, got, 1, m.size - 1), 1);
		ck_assert_int_eq(read_spec((void *)s, want, 1, m.size - 1), 1);
		ck_assert_uint_eq(got[0], want[0]);
	}
}

static inline void compare_member(struct decoded *d, const struct spec *s, uint64_t ino)
{
	static unsigned char room[1 << 16];
	struct varve_digest *digest = varve_digest_new();
	unsigned char sum[16];
	struct varve_extent whole;
	struct varve_member want = spec_member(s, ino, &whole), m;

	varve_index_member(d->ix, d->i, &m);
	ck_assert_mem_eq(m.path, s->path, m.path_len);
	ck_assert_uint_eq(m.mode, want.mode);
	ck_assert_uint_eq(m.uid, want.uid);
	ck_assert_uint_eq(m.gid, want.gid);
	ck_assert_int_eq(m.mtime_sec, want.mtime_sec);
	ck_assert_uint_eq(m.mtime_nsec, want.mtime_nsec);
	ck_assert_uint_eq(m.ino, ino);
	ck_assert_uint_eq(m.size, want.size);
	if (want.target)
		ck_assert_mem_eq(m.target, want.target, (size_t)m.size);
	ck_assert_uint_eq(m.xattrs_len, want.xattrs_len);
	if (want.xattrs_len > 0)
		ck_assert_mem_eq(m.xattrs, want.xattrs, want.xattrs_len);
	if (s->want) {
		want.extents = s->want;
		want.n_extents = s->n_want;
	}
	ck_assert_uint_eq(m.n_extents, want.n_extents);
	for (uint32_t e = 0; e < m.n_extents; e++) {
		ck_assert_uint_eq(m.extents[e].offset, want.extents[e].offset);
		ck_assert_uint_eq(m.extents[e].length, want.extents[e].length);
	}
	if (S_ISREG(m.mode))
		compare_content(d, s);
	ck_assert_int_eq(
		varve_digest_member(digest, &m, read_spec, (void *)s, room, sizeof(room), sum), 0);
	ck_assert_mem_eq(sum, m.digest, 16);
	ck_assert_int_eq(varve_digest_member(digest, &m, read_decoded, d, room, sizeof(room), sum),
			 0);
	ck_assert_mem_eq(sum, m.digest, 16);
	varve_digest_free(digest);
}

/* Opens the segment in seg and compares it with the specs it was made of. */
static inline void compare_segment(struct varve_buf *seg, const struct spec *specs, size_t n)
{
	struct varve_source src = memory_source(seg);
	struct varve_index *ix = NULL;
	struct varve_err err = {0};
	int r = varve_index_open(&src, &ix, &err);
	struct decoded d;

	ck_assert_msg(r == 0, "open: %d %s", r, err.msg);
	d = (struct decoded){.ix = ix, .tar = decode_tar(ix, seg)};
	ck_assert_ptr_nonnull(d.tar);
	ck_assert_uint_eq(varve_index_count(ix), n + 1);
	ck_assert_uint_eq(varve_index_subtree_end(ix, 0), n + 1);
	for (size_t i = 0; i < n; i++) {
		ck_assert_int_eq(varve_index_find(ix, specs[i].path, strlen(specs[i].path), &d.i),
				 0);
		ck_assert_uint_eq(d.i, i + 1);
		compare_member(&d, &specs[i], i + 2);
	}
	free((void *)d.tar);
	varve_index_free(ix);
}

/* A path of components of given length: "aaa/aaa/...", then `name`; the caller frees. */
static inline char *long_path(size_t total, size_t component)
{
	char *p = malloc(total + 1);

	for (size_t i = 0; i < total; i++)
		p[i] = i % (component + 1) == component && i + 1 < total ? '/' : 'n';
	p[total] = '\0';
	return p;
}
