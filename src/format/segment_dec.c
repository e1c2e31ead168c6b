#include "format/segment_dec.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "format/digest.h"
#include "format/frame.h"
#include "format/index_private.h"
#include "format/layout.h"

#define TAIL_BYTES (64 * 1024) /* read first; small segments need no second read */

/* The end of a segment, from some offset on. */
struct tail {
	unsigned char *p;
	size_t len;
	uint64_t start; /* its offset in the segment */
};

static int bad(struct varve_err *err, const char *what)
{
	return varve_err_set(err, -EBADMSG, "%s", what);
}

static int read_full(const struct varve_source *src, unsigned char *buf, size_t len, uint64_t off,
		     struct varve_err *err)
{
	while (len > 0) {
		ssize_t n = src->read(src->ctx, buf, len, off);

		if (n < 0)
			return varve_err_wrap(err, (int)n, "read at %llu", (unsigned long long)off);
		if (n == 0 || (size_t)n > len)
			return bad(err, "ends before its size");
		buf += n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	return 0;
}

/* Makes the tail reach down to the last `len` bytes of the segment. */
static int extend_tail(const struct varve_source *src, struct tail *t, uint64_t len,
		       struct varve_err *err)
{
	unsigned char *p;
	size_t more;
	int r;

	if (len <= t->len)
		return 0;
	more = (size_t)len - t->len;
	p = malloc((size_t)len);
	if (!p)
		return -ENOMEM;
	r = read_full(src, p, more, src->size - len, err);
	if (r < 0) {
		free(p);
		return r;
	}
	if (t->len > 0)
		memcpy(p + more, t->p, t->len);
	free(t->p);
	*t = (struct tail){.p = p, .len = (size_t)len, .start = src->size - len};
	return 0;
}

/* What the last bytes say of the two frames at the end. */
struct ending {
	uint32_t entries;    /* of the seek table, the index frame's included */
	uint64_t table_size; /* of the whole seek table frame */
	uint64_t index_size; /* of the whole index frame */
};

static int read_ending(const struct varve_source *src, struct tail *t, struct ending *ret,
		       struct varve_err *err)
{
	const uint64_t least = VARVE_SKIP_HEADER + VARVE_SEEK_ENTRY + VARVE_SEEK_FOOTER;
	const unsigned char *foot, *last;
	struct ending e;
	int r;

	if (src->size < least)
		return bad(err, "too short for a segment");
	r = extend_tail(src, t, src->size < TAIL_BYTES ? src->size : TAIL_BYTES, err);
	if (r < 0)
		return r;
	foot = t->p + t->len - VARVE_SEEK_FOOTER;
	last = foot - VARVE_SEEK_ENTRY;
	e.entries = varve_get_le32(foot);
	if (varve_get_le32(foot + 5) != VARVE_SEEK_MAGIC || foot[4] != VARVE_SEEK_DESCRIPTOR)
		return bad(err, "does not end in a seek table");
	if (e.entries < 2 || e.entries > VARVE_FRAMES_MAX + 1)
		return bad(err, "seek table: number of entries");
	e.table_size =
		VARVE_SKIP_HEADER + (uint64_t)e.entries * VARVE_SEEK_ENTRY + VARVE_SEEK_FOOTER;
	e.index_size = varve_get_le32(last);
	if (e.index_size < VARVE_SKIP_HEADER + VARVE_IH_SIZE ||
	    e.table_size + e.index_size > src->size)
		return bad(err, "seek table: sizes");
	*ret = e;
	return 0;
}

static int check_skip_header(const unsigned char *p, uint32_t magic, uint64_t frame_size)
{
	return varve_get_le32(p) == magic &&
	       varve_get_le32(p + 4) == frame_size - VARVE_SKIP_HEADER;
}

/* Header of the index, h_size bytes of it, against everything known from outside. */
static int check_header(const unsigned char *h, const struct ending *e, uint64_t index_start,
			uint32_t *ret_size, struct varve_err *err)
{
	uint32_t size = varve_get_le32(h + VARVE_IH_HEADER_SIZE);
	uint64_t room = e->index_size - VARVE_SKIP_HEADER;
	uint32_t version, incompat;

	if (memcmp(h, VARVE_INDEX_MAGIC, 8) != 0)
		return bad(err, "index: magic");
	if (size < VARVE_IH_SIZE || size > VARVE_IH_SIZE_MAX || size > room)
		return bad(err, "index: header size");
	if (varve_hash64(h, size - 8) != varve_get_le64(h + size - 8))
		return bad(err, "index: header hash");
	version = varve_get_le32(h + VARVE_IH_VERSION);
	incompat = varve_get_le32(h + VARVE_IH_INCOMPAT);
	if (version != VARVE_INDEX_VERSION || (incompat & ~VARVE_INDEX_INCOMPAT_KNOWN) != 0)
		return varve_err_set(err, -EPROTONOSUPPORT,
				     "index: version %u, flags %#x: written by a later varvefs",
				     version, incompat);
	if (varve_get_le64(h + VARVE_IH_BODY_COMP) != room - size)
		return bad(err, "index: compressed size");
	if (varve_get_le64(h + VARVE_IH_DATA_BYTES) != index_start)
		return bad(err, "index: place of the index");
	*ret_size = size;
	return 0;
}

static void read_header(struct varve_index *ix, const unsigned char *h, uint64_t segment_bytes)
{
	ix->start_ns = (int64_t)varve_get_le64(h + VARVE_IH_START_NS);
	ix->end_ns = (int64_t)varve_get_le64(h + VARVE_IH_END_NS);
	ix->data_bytes = varve_get_le64(h + VARVE_IH_DATA_BYTES);
	ix->n_members = varve_get_le32(h + VARVE_IH_MEMBERS);
	ix->n_frames = varve_get_le32(h + VARVE_IH_FRAMES);
	ix->n_extents = varve_get_le32(h + VARVE_IH_EXTENTS);
	ix->heap_size = varve_get_le32(h + VARVE_IH_HEAP_SIZE);
	ix->bucket_len = varve_get_le16(h + VARVE_IH_BUCKET_LEN);
	ix->class_len = varve_get_le16(h + VARVE_IH_CLASS_LEN);
	ix->tablet_len = varve_get_le16(h + VARVE_IH_TABLET_LEN);
	ix->totals = (struct varve_segment_totals){
		.files = varve_get_le64(h + VARVE_IH_FILES),
		.members = ix->n_members,
		.content_bytes = varve_get_le64(h + VARVE_IH_CONTENT_BYTES),
		.tar_bytes = varve_get_le64(h + VARVE_IH_TAR_BYTES),
		.segment_bytes = segment_bytes};
}

/* That the counts add up to the body, before anything is allocated for it. */
static int check_counts(const struct varve_index *ix, uint64_t body_size, const struct ending *e,
			struct varve_err *err)
{
	uint64_t sum = (uint64_t)ix->n_members * VARVE_IM_BYTES + ix->heap_size +
		       (uint64_t)ix->n_frames * VARVE_IF_BYTES +
		       (uint64_t)ix->n_extents * VARVE_IE_BYTES;

	if (body_size > VARVE_INDEX_BYTES_MAX || sum != body_size)
		return bad(err, "index: counts and size");
	if (ix->n_members == 0 || ix->n_frames + 1 != e->entries)
		return bad(err, "index: number of members or frames");
	if (ix->totals.tar_bytes < VARVE_TAR_TRAILER + VARVE_TAR_BLOCK ||
	    ix->totals.tar_bytes > INT64_MAX || ix->totals.tar_bytes % VARVE_TAR_BLOCK != 0)
		return bad(err, "index: size of the tar stream");
	return 0;
}

static int read_body(struct varve_index *ix, const unsigned char *h, uint32_t h_size,
		     struct varve_err *err)
{
	struct varve_frame_dctx *d;
	unsigned char hash[16];
	int r;

	ix->body_size = (size_t)varve_get_le64(h + VARVE_IH_BODY_SIZE);
	ix->body = malloc(ix->body_size);
	d = varve_frame_dctx_new();
	r = ix->body && d ? varve_frame_inflate(d, h + h_size,
						(size_t)varve_get_le64(h + VARVE_IH_BODY_COMP),
						ix->body, ix->body_size)
			  : -ENOMEM;
	varve_frame_dctx_free(d);
	if (r < 0)
		return r == -EBADMSG ? bad(err, "index: does not decompress") : r;
	varve_hash128(ix->body, ix->body_size, hash);
	if (memcmp(hash, h + VARVE_IH_BODY_HASH, sizeof(hash)) != 0)
		return bad(err, "index: hash");
	return 0;
}

/* The seek table says nothing that the index does not say too: every byte of it is known. */
static int check_seek_table(const struct varve_index *ix, const unsigned char *table,
			    const struct ending *e, struct varve_err *err)
{
	const unsigned char *entry = table + VARVE_SKIP_HEADER;

	if (!check_skip_header(table, VARVE_SEEK_FRAME_MAGIC, e->table_size))
		return bad(err, "seek table: header");
	for (uint32_t k = 0; k < ix->n_frames; k++, entry += VARVE_SEEK_ENTRY)
		if (varve_get_le32(entry) != ix->frames[k].comp_size ||
		    varve_get_le32(entry + 4) != ix->frames[k].raw_size ||
		    varve_get_le32(entry + 8) != ix->frame_check[k])
			return varve_err_set(err, -EBADMSG, "seek table: entry %u", k);
	if (varve_get_le32(entry + 4) != 0 || varve_get_le32(entry + 8) != VARVE_SEEK_CHECK_EMPTY)
		return bad(err, "seek table: entry of the index");
	return 0;
}

/* Frames and extents are kept as native arrays only. */
static void shrink(struct varve_index *ix)
{
	size_t keep = (size_t)ix->n_members * VARVE_IM_BYTES + ix->heap_size;
	unsigned char *p = realloc(ix->body, keep);

	free(ix->frame_check);
	ix->frame_check = NULL;
	if (!p)
		return;
	ix->body = p;
	ix->body_size = keep;
	ix->members = p;
	ix->heap = p + (size_t)ix->n_members * VARVE_IM_BYTES;
}

static int open_index(struct varve_index *ix, const struct varve_source *src, struct tail *t,
		      struct varve_err *err)
{
	const unsigned char *frame, *h;
	struct ending e = {0};
	uint32_t h_size = 0;
	int r = read_ending(src, t, &e, err);

	if (r >= 0)
		r = extend_tail(src, t, e.table_size + e.index_size, err);
	if (r < 0)
		return r;
	frame = t->p + t->len - e.table_size - e.index_size;
	h = frame + VARVE_SKIP_HEADER;
	if (!check_skip_header(frame, VARVE_INDEX_FRAME_MAGIC, e.index_size))
		return bad(err, "index: frame header");
	r = check_header(h, &e, src->size - e.table_size - e.index_size, &h_size, err);
	if (r < 0)
		return r;
	read_header(ix, h, src->size);
	r = check_counts(ix, varve_get_le64(h + VARVE_IH_BODY_SIZE), &e, err);
	if (r >= 0)
		r = read_body(ix, h, h_size, err);
	if (r >= 0)
		r = varve_index_check(ix, err);
	if (r >= 0)
		r = check_seek_table(ix, frame + e.index_size, &e, err);
	return r;
}

int varve_index_open(const struct varve_source *src, struct varve_index **ret,
		     struct varve_err *err)
{
	struct varve_index *ix = calloc(1, sizeof(*ix));
	struct tail t = {0};
	int r = ix ? open_index(ix, src, &t, err) : -ENOMEM;

	free(t.p);
	if (r < 0) {
		varve_index_free(ix);
		return r;
	}
	shrink(ix);
	*ret = ix;
	return 0;
}

void varve_index_free(struct varve_index *ix)
{
	if (!ix)
		return;
	free(ix->body);
	free(ix->extents);
	free(ix->extent_tar);
	free(ix->frames);
	free(ix->frame_check);
	free(ix);
}

size_t varve_index_memory(const struct varve_index *ix)
{
	return sizeof(*ix) + ix->body_size + ix->n_frames * sizeof(*ix->frames) +
	       ((size_t)ix->n_extents + 1) * (sizeof(*ix->extents) + sizeof(*ix->extent_tar));
}

void varve_index_about(const struct varve_index *ix, struct varve_segment_params *ret_about,
		       struct varve_segment_totals *ret_totals)
{
	const char *names = (const char *)ix->heap;

	*ret_about = (struct varve_segment_params){.bucket = names,
						   .class_name = names + ix->bucket_len + 1,
						   .tablet = names + ix->bucket_len + 1 +
							     ix->class_len + 1,
						   .start_ns = ix->start_ns,
						   .end_ns = ix->end_ns};
	*ret_totals = ix->totals;
}

uint32_t varve_index_count(const struct varve_index *ix)
{
	return ix->n_members;
}

static const unsigned char *record(const struct varve_index *ix, uint32_t i)
{
	return ix->members + (size_t)i * VARVE_IM_BYTES;
}

void varve_index_member(const struct varve_index *ix, uint32_t i, struct varve_member *ret)
{
	const unsigned char *rec = record(ix, i);
	const unsigned char *strings = ix->heap + varve_get_le32(rec + VARVE_IM_HEAP);
	uint32_t path_len = varve_get_le16(rec + VARVE_IM_PATH_LEN);
	uint64_t target_len = 0;

	*ret = (struct varve_member){.path = (const char *)strings,
				     .path_len = path_len,
				     .mode = varve_get_le32(rec + VARVE_IM_MODE),
				     .uid = varve_get_le32(rec + VARVE_IM_UID),
				     .gid = varve_get_le32(rec + VARVE_IM_GID),
				     .mtime_sec = (int64_t)varve_get_le64(rec + VARVE_IM_MTIME_SEC),
				     .mtime_nsec = varve_get_le32(rec + VARVE_IM_MTIME_NSEC),
				     .ino = varve_get_le64(rec + VARVE_IM_INO),
				     .size = varve_get_le64(rec + VARVE_IM_SIZE),
				     .xattrs_len = varve_get_le32(rec + VARVE_IM_XATTRS_LEN),
				     .extents = ix->extents +
						varve_get_le32(rec + VARVE_IM_FIRST_EXTENT),
				     .n_extents = varve_get_le32(rec + VARVE_IM_EXTENTS)};
	memcpy(ret->digest, rec + VARVE_IM_DIGEST, sizeof(ret->digest));
	if (S_ISLNK(ret->mode)) {
		ret->target = ret->path + path_len;
		target_len = ret->size;
	}
	ret->xattrs = strings + path_len + target_len;
}

int varve_index_find(const struct varve_index *ix, const char *path, size_t len, uint32_t *ret)
{
	uint32_t lo = 0, hi = ix->n_members;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const unsigned char *rec = record(ix, mid);
		int c = varve_path_compare(
			path, len, (const char *)ix->heap + varve_get_le32(rec + VARVE_IM_HEAP),
			varve_get_le16(rec + VARVE_IM_PATH_LEN));

		if (c == 0) {
			*ret = mid;
			return 0;
		}
		if (c < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return -ENOENT;
}

uint32_t varve_index_subtree_end(const struct varve_index *ix, uint32_t i)
{
	return varve_get_le32(record(ix, i) + VARVE_IM_SUBTREE_END);
}

void varve_index_map(const struct varve_index *ix, uint32_t i, uint64_t off, uint64_t *ret_tar,
		     uint64_t *ret_len)
{
	const unsigned char *rec = record(ix, i);
	uint32_t first = varve_get_le32(rec + VARVE_IM_FIRST_EXTENT);
	uint32_t end = first + varve_get_le32(rec + VARVE_IM_EXTENTS), lo = first, hi = end;
	const struct varve_extent *x;

	/* lo becomes the first extent that ends behind off. */
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (ix->extents[mid].offset + ix->extents[mid].length <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	*ret_tar = UINT64_MAX;
	if (lo == end) {
		*ret_len = varve_get_le64(rec + VARVE_IM_SIZE) - off;
		return;
	}
	x = &ix->extents[lo];
	if (off < x->offset) {
		*ret_len = x->offset - off;
		return;
	}
	*ret_tar = ix->extent_tar[lo] + (off - x->offset);
	*ret_len = x->length - (off - x->offset);
}

uint32_t varve_index_frames(const struct varve_index *ix)
{
	return ix->n_frames;
}

void varve_index_frame(const struct varve_index *ix, uint32_t k, struct varve_frame_info *ret)
{
	*ret = ix->frames[k];
}

uint32_t varve_index_frame_at(const struct varve_index *ix, uint64_t tar_offset)
{
	uint32_t lo = 0, hi = ix->n_frames - 1;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo + 1) / 2;

		if (ix->frames[mid].raw_offset <= tar_offset)
			lo = mid;
		else
			hi = mid - 1;
	}
	return lo;
}
