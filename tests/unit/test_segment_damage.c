/* Segments that are damaged or lie: an error or the right bytes, never a crash, never wrong bytes. */
#include "golden_segment.h"
#include "segment_util.h"

#include "format/frame.h"
#include "format/layout.h"

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

/* Opens and reads all of a damaged segment: 0 when everything is as it was, else the error. Never
 * other bytes. Whatever can be asked is asked, for a sanitizer to watch. */
static int read_damaged(struct varve_buf *b, const struct spec *specs, size_t n)
{
	struct varve_source src = memory_source(b);
	struct varve_index *ix = NULL;
	struct varve_err err = {0};
	int r = varve_index_open(&src, &ix, &err);
	unsigned char *tar;

	if (r < 0) {
		ck_assert_ptr_null(ix);
		ck_assert_str_ne(err.msg, "");
		return r;
	}
	tar = decode_tar(ix, b);
	free(tar);
	varve_index_free(ix);
	if (!tar)
		return -EBADMSG;
	compare_segment(b, specs, n);
	return 0;
}

/* A copy in memory of its exact size. */
static struct varve_buf exact_copy(const struct varve_buf *b, size_t len)
{
	struct varve_buf c = {.p = malloc(len ? len : 1), .len = len, .size = len};

	memcpy(c.p, b->p, len);
	return c;
}

static struct memory make_small(void)
{
	struct varve_segment_params params = test_params();
	struct varve_segment_totals totals;
	struct memory m = {0};

	ck_assert_int_eq(encode(small, 7, &params, &m, &totals, NULL), 0);
	return m;
}

START_TEST(truncated)
{
	struct memory m = make_small();

	for (size_t len = 0; len < m.buf.len; len++) {
		struct varve_buf c = exact_copy(&m.buf, len);

		ck_assert_msg(read_damaged(&c, small, 7) == -EBADMSG, "at %zu", len);
		varve_buf_done(&c);
	}
	varve_buf_done(&m.buf);
}
END_TEST

START_TEST(beginning_cut_off)
{
	struct memory m = make_small();

	for (size_t off = 1; off < m.buf.len; off++) {
		struct varve_buf rest = {.p = m.buf.p + off}, c;

		c = exact_copy(&rest, m.buf.len - off);
		ck_assert_msg(read_damaged(&c, small, 7) == -EBADMSG, "at %zu", off);
		varve_buf_done(&c);
	}
	varve_buf_done(&m.buf);
}
END_TEST

START_TEST(every_bit_flipped)
{
	struct memory m = make_small();
	size_t found = 0;

	for (size_t bit = 0; bit < m.buf.len * 8; bit++) {
		struct varve_buf c = exact_copy(&m.buf, m.buf.len);
		int r;

		c.p[bit / 8] ^= (unsigned char)(1 << bit % 8);
		r = read_damaged(&c, small, 7);
		ck_assert_msg(r == 0 || r == -EBADMSG, "bit %zu: %d", bit, r);
		found += r < 0;
		varve_buf_done(&c);
	}
	/* Some bits change nothing in what zstd gives: a match found elsewhere has the same bytes. */
	ck_assert_uint_ge(found, m.buf.len * 8 * 95 / 100);
	varve_buf_done(&m.buf);
}
END_TEST

START_TEST(bytes_overwritten)
{
	static const unsigned char values[] = {0x00, 0xff, 0x80, 0x7f};
	struct memory m = make_small();

	for (size_t at = 0; at < m.buf.len; at++)
		for (size_t k = 0; k < 4 * 3; k++) {
			struct varve_buf c = exact_copy(&m.buf, m.buf.len);
			size_t len = (size_t)1 << (k / 4 * 2); /* 1, 4 or 16 bytes */

			memset(c.p + at, values[k % 4], len < c.len - at ? len : c.len - at);
			ck_assert_int_ne(read_damaged(&c, small, 7), -EPROTONOSUPPORT);
			varve_buf_done(&c);
		}
	varve_buf_done(&m.buf);
}
END_TEST

/* -- an index that lies, with every hash right -- */

/* An index taken apart: what is changed here is put together again with sizes and hashes to fit. */
struct apart {
	unsigned char header[VARVE_IH_SIZE + 64];
	uint32_t header_size;
	struct varve_buf data; /* the data frames */
	struct varve_buf body;
	struct varve_buf table; /* seek entries, the index frame's last */
};

static struct apart take_apart(const struct varve_buf *seg)
{
	const unsigned char *foot = seg->p + seg->len - VARVE_SEEK_FOOTER, *frame, *h;
	uint32_t entries = varve_get_le32(foot);
	size_t table_size = (size_t)entries * VARVE_SEEK_ENTRY;
	size_t index_size = varve_get_le32(foot - VARVE_SEEK_ENTRY);
	struct varve_frame_dctx *d = varve_frame_dctx_new();
	struct apart a = {0};

	frame = foot - table_size - VARVE_SKIP_HEADER - index_size;
	h = frame + VARVE_SKIP_HEADER;
	a.header_size = VARVE_IH_SIZE;
	memcpy(a.header, h, VARVE_IH_SIZE);
	ck_assert_int_eq(varve_buf_add(&a.data, seg->p, (size_t)(frame - seg->p)), 0);
	ck_assert_int_eq(varve_buf_add(&a.table, foot - table_size, table_size), 0);
	a.body.len = a.body.size = (size_t)varve_get_le64(h + VARVE_IH_BODY_SIZE);
	a.body.p = malloc(a.body.len);
	ck_assert_int_eq(varve_frame_inflate(d, h + VARVE_IH_SIZE,
					     (size_t)varve_get_le64(h + VARVE_IH_BODY_COMP),
					     a.body.p, a.body.len),
			 0);
	varve_frame_dctx_free(d);
	return a;
}

static void put_skip(struct varve_buf *b, uint32_t magic, size_t size)
{
	unsigned char head[8];

	varve_put_le32(head, magic);
	varve_put_le32(head + 4, (uint32_t)size);
	ck_assert_int_eq(varve_buf_add(b, head, 8), 0);
}

static struct varve_buf put_together(struct apart *a)
{
	struct varve_frame_cctx *c = varve_frame_cctx_new(1);
	struct varve_buf seg = {0};
	unsigned char foot[VARVE_SEEK_FOOTER];
	size_t room = varve_frame_bound(a->body.len), size;
	void *comp = malloc(room);
	uint32_t check, entries = (uint32_t)(a->table.len / VARVE_SEEK_ENTRY);

	ck_assert_int_eq(varve_frame_encode(c, a->body.p, a->body.len, comp, room, &size, &check),
			 0);
	varve_frame_cctx_free(c);
	varve_put_le64(a->header + VARVE_IH_BODY_COMP, size);
	varve_hash128(a->body.p, a->body.len, a->header + VARVE_IH_BODY_HASH);
	varve_put_le64(a->header + a->header_size - 8,
		       varve_hash64(a->header, a->header_size - 8));
	ck_assert_int_eq(varve_buf_add(&seg, a->data.p, a->data.len), 0);
	put_skip(&seg, VARVE_INDEX_FRAME_MAGIC, a->header_size + size);
	ck_assert_int_eq(varve_buf_add(&seg, a->header, a->header_size), 0);
	ck_assert_int_eq(varve_buf_add(&seg, comp, size), 0);
	varve_put_le32(a->table.p + a->table.len - VARVE_SEEK_ENTRY,
		       (uint32_t)(VARVE_SKIP_HEADER + a->header_size + size));
	put_skip(&seg, VARVE_SEEK_FRAME_MAGIC, a->table.len + VARVE_SEEK_FOOTER);
	ck_assert_int_eq(varve_buf_add(&seg, a->table.p, a->table.len), 0);
	varve_put_le32(foot, entries);
	foot[4] = VARVE_SEEK_DESCRIPTOR;
	varve_put_le32(foot + 5, VARVE_SEEK_MAGIC);
	ck_assert_int_eq(varve_buf_add(&seg, foot, sizeof(foot)), 0);
	free(comp);
	varve_buf_done(&a->data);
	varve_buf_done(&a->body);
	varve_buf_done(&a->table);
	return seg;
}

START_TEST(apart_and_together)
{
	struct memory m = make_small();
	struct apart a = take_apart(&m.buf);
	struct varve_buf again = put_together(&a);

	compare_segment(&again, small, 7);
	varve_buf_done(&again);
	varve_buf_done(&m.buf);
}
END_TEST

/* Members of `small`: 0 "", 1 a.log, 2 d, 3 d/e, 4 d/e/f, 5 d/l, 6 d\n\xff (2 extents), 7 z. Its
 * extents: 0 of a.log, 1 and 2. One frame. */
#define MEMBERS 8
enum where { HEADER, MEMBER, FRAME, EXTENT, HEAP, TABLE };

#define SET(v) {v, 0}
#define ADD(v) {0, v}

/* One field changed: set to a value, or something added to it. */
static const struct corruption {
	const char *name;
	enum where where;
	uint32_t i;	/* which record */
	uint32_t field; /* its offset in it */
	unsigned bytes;
	struct {
		uint64_t set;
		int64_t add; /* 0: set */
	} v;
	int want;
} corruptions[] = {
	{"corrupt_magic", HEADER, 0, VARVE_IH_MAGIC, 1, ADD(1), -EBADMSG},
	{"corrupt_version", HEADER, 0, VARVE_IH_VERSION, 4, SET(2), -EPROTONOSUPPORT},
	{"corrupt_version_0", HEADER, 0, VARVE_IH_VERSION, 4, SET(0), -EPROTONOSUPPORT},
	{"unknown_compat", HEADER, 0, VARVE_IH_COMPAT, 4, SET(0x80000000), 0},
	{"corrupt_incompat", HEADER, 0, VARVE_IH_INCOMPAT, 4, SET(1), -EPROTONOSUPPORT},
	{"corrupt_body_size", HEADER, 0, VARVE_IH_BODY_SIZE, 8, ADD(1), -EBADMSG},
	{"corrupt_body_size_0", HEADER, 0, VARVE_IH_BODY_SIZE, 8, SET(0), -EBADMSG},
	{"corrupt_body_size_huge", HEADER, 0, VARVE_IH_BODY_SIZE, 8, SET(UINT64_MAX), -EBADMSG},
	{"corrupt_start", HEADER, 0, VARVE_IH_START_NS, 8, SET(INT64_MAX), -EBADMSG},
	{"corrupt_end", HEADER, 0, VARVE_IH_END_NS, 8, SET(0), -EBADMSG},
	{"corrupt_tar_bytes", HEADER, 0, VARVE_IH_TAR_BYTES, 8, ADD(512), -EBADMSG},
	{"corrupt_tar_bytes_odd", HEADER, 0, VARVE_IH_TAR_BYTES, 8, ADD(1), -EBADMSG},
	{"corrupt_tar_bytes_0", HEADER, 0, VARVE_IH_TAR_BYTES, 8, SET(0), -EBADMSG},
	{"corrupt_tar_bytes_huge", HEADER, 0, VARVE_IH_TAR_BYTES, 8, SET(UINT64_MAX - 511), -EBADMSG},
	{"corrupt_data_bytes", HEADER, 0, VARVE_IH_DATA_BYTES, 8, ADD(1), -EBADMSG},
	{"corrupt_files", HEADER, 0, VARVE_IH_FILES, 8, ADD(1), -EBADMSG},
	{"corrupt_content_bytes", HEADER, 0, VARVE_IH_CONTENT_BYTES, 8, ADD(-1), -EBADMSG},
	{"corrupt_members", HEADER, 0, VARVE_IH_MEMBERS, 4, ADD(-1), -EBADMSG},
	{"corrupt_members_0", HEADER, 0, VARVE_IH_MEMBERS, 4, SET(0), -EBADMSG},
	{"corrupt_members_huge", HEADER, 0, VARVE_IH_MEMBERS, 4, SET(UINT32_MAX), -EBADMSG},
	{"corrupt_frames", HEADER, 0, VARVE_IH_FRAMES, 4, ADD(1), -EBADMSG},
	{"corrupt_frames_0", HEADER, 0, VARVE_IH_FRAMES, 4, SET(0), -EBADMSG},
	{"corrupt_frames_huge", HEADER, 0, VARVE_IH_FRAMES, 4, SET(UINT32_MAX), -EBADMSG},
	{"corrupt_extents", HEADER, 0, VARVE_IH_EXTENTS, 4, ADD(1), -EBADMSG},
	{"corrupt_extents_huge", HEADER, 0, VARVE_IH_EXTENTS, 4, SET(UINT32_MAX), -EBADMSG},
	{"corrupt_heap_size", HEADER, 0, VARVE_IH_HEAP_SIZE, 4, ADD(-1), -EBADMSG},
	{"corrupt_heap_size_huge", HEADER, 0, VARVE_IH_HEAP_SIZE, 4, SET(UINT32_MAX), -EBADMSG},
	{"corrupt_bucket_len", HEADER, 0, VARVE_IH_BUCKET_LEN, 2, ADD(1), -EBADMSG},
	{"corrupt_bucket_len_0", HEADER, 0, VARVE_IH_BUCKET_LEN, 2, SET(0), -EBADMSG},
	{"corrupt_bucket_len_huge", HEADER, 0, VARVE_IH_BUCKET_LEN, 2, SET(UINT16_MAX), -EBADMSG},
	{"corrupt_class_len", HEADER, 0, VARVE_IH_CLASS_LEN, 2, ADD(-1), -EBADMSG},
	{"corrupt_class_len_0", HEADER, 0, VARVE_IH_CLASS_LEN, 2, SET(0), -EBADMSG},
	{"corrupt_tablet_len", HEADER, 0, VARVE_IH_TABLET_LEN, 2, ADD(1), -EBADMSG},
	{"corrupt_tablet_len_huge", HEADER, 0, VARVE_IH_TABLET_LEN, 2, SET(200), -EBADMSG},
	{"corrupt_bucket_name", HEAP, 0, 4, 1, SET('/'), -EBADMSG},
	{"corrupt_bucket_name_nul", HEAP, 0, 4, 1, SET(0), -EBADMSG},
	{"corrupt_bucket_name_end", HEAP, 0, 10, 1, SET('x'), -EBADMSG},
	{"corrupt_tablet_name", HEAP, 0, 19, 1, SET('.'), -EBADMSG},

	{"corrupt_heap", MEMBER, 3, VARVE_IM_HEAP, 4, ADD(1), -EBADMSG},
	{"corrupt_heap_back", MEMBER, 3, VARVE_IM_HEAP, 4, SET(0), -EBADMSG},
	{"corrupt_heap_huge", MEMBER, 1, VARVE_IM_HEAP, 4, SET(UINT32_MAX), -EBADMSG},
	{"corrupt_path_len", MEMBER, 3, VARVE_IM_PATH_LEN, 2, ADD(1), -EBADMSG},
	{"corrupt_path_len_huge", MEMBER, 7, VARVE_IM_PATH_LEN, 2, SET(UINT16_MAX), -EBADMSG},
	{"corrupt_path_len_last", MEMBER, 7, VARVE_IM_PATH_LEN, 2, SET(0), -EBADMSG},
	{"corrupt_member_reserved", MEMBER, 2, VARVE_IM_RESERVED, 2, SET(1), -EBADMSG},
	{"corrupt_mode_type", MEMBER, 1, VARVE_IM_MODE, 4, SET(S_IFCHR | 0644), -EBADMSG},
	{"corrupt_mode_bits", MEMBER, 1, VARVE_IM_MODE, 4, ADD(0x10000), -EBADMSG},
	{"corrupt_mode_dir_to_file", MEMBER, 2, VARVE_IM_MODE, 4, SET(FILE_MODE), -EBADMSG},
	{"corrupt_mode_file_to_dir", MEMBER, 1, VARVE_IM_MODE, 4, SET(DIR_MODE), -EBADMSG},
	{"corrupt_mode_link_to_file", MEMBER, 5, VARVE_IM_MODE, 4, SET(FILE_MODE), -EBADMSG},
	{"corrupt_mode_file_to_link", MEMBER, 4, VARVE_IM_MODE, 4, SET(LINK_MODE), -EBADMSG},
	{"corrupt_mode_root", MEMBER, 0, VARVE_IM_MODE, 4, SET(FILE_MODE), -EBADMSG},
	{"corrupt_nsec", MEMBER, 1, VARVE_IM_MTIME_NSEC, 4, SET(1000000000), -EBADMSG},
	{"corrupt_size", MEMBER, 1, VARVE_IM_SIZE, 8, ADD(-1), -EBADMSG},
	{"corrupt_size_more", MEMBER, 1, VARVE_IM_SIZE, 8, ADD(1), -EBADMSG},
	{"corrupt_size_huge", MEMBER, 6, VARVE_IM_SIZE, 8, SET(UINT64_MAX), -EBADMSG},
	{"corrupt_size_2_63", MEMBER, 6, VARVE_IM_SIZE, 8, SET(UINT64_C(1) << 63), -EBADMSG},
	{"corrupt_size_dir", MEMBER, 7, VARVE_IM_SIZE, 8, SET(1), -EBADMSG},
	{"corrupt_size_link", MEMBER, 5, VARVE_IM_SIZE, 8, ADD(1), -EBADMSG},
	{"corrupt_size_link_0", MEMBER, 5, VARVE_IM_SIZE, 8, SET(0), -EBADMSG},
	{"corrupt_size_link_huge", MEMBER, 5, VARVE_IM_SIZE, 8, SET(UINT64_MAX), -EBADMSG},
	{"corrupt_data", MEMBER, 1, VARVE_IM_DATA, 8, ADD(1), -EBADMSG},
	{"corrupt_data_back", MEMBER, 2, VARVE_IM_DATA, 8, SET(512), -EBADMSG},
	{"corrupt_data_root", MEMBER, 0, VARVE_IM_DATA, 8, SET(0), -EBADMSG},
	{"corrupt_data_huge", MEMBER, 7, VARVE_IM_DATA, 8, SET(UINT64_MAX - 511), -EBADMSG},
	{"corrupt_data_last", MEMBER, 7, VARVE_IM_DATA, 8, ADD(512), -EBADMSG},
	{"corrupt_first_extent", MEMBER, 6, VARVE_IM_FIRST_EXTENT, 4, ADD(-1), -EBADMSG},
	{"corrupt_first_extent_huge", MEMBER, 6, VARVE_IM_FIRST_EXTENT, 4, SET(UINT32_MAX), -EBADMSG},
	{"corrupt_n_extents", MEMBER, 6, VARVE_IM_EXTENTS, 4, ADD(1), -EBADMSG},
	{"corrupt_n_extents_less", MEMBER, 6, VARVE_IM_EXTENTS, 4, ADD(-1), -EBADMSG},
	{"corrupt_n_extents_huge", MEMBER, 1, VARVE_IM_EXTENTS, 4, SET(UINT32_MAX), -EBADMSG},
	{"corrupt_xattrs_len", MEMBER, 6, VARVE_IM_XATTRS_LEN, 4, ADD(-1), -EBADMSG},
	{"corrupt_xattrs_len_more", MEMBER, 6, VARVE_IM_XATTRS_LEN, 4, ADD(1), -EBADMSG},
	{"corrupt_xattrs_len_huge", MEMBER, 1, VARVE_IM_XATTRS_LEN, 4, SET(UINT32_MAX), -EBADMSG},
	{"corrupt_subtree_end", MEMBER, 2, VARVE_IM_SUBTREE_END, 4, ADD(1), -EBADMSG},
	{"corrupt_subtree_end_less", MEMBER, 2, VARVE_IM_SUBTREE_END, 4, ADD(-1), -EBADMSG},
	{"corrupt_subtree_end_inner", MEMBER, 3, VARVE_IM_SUBTREE_END, 4, ADD(1), -EBADMSG},
	{"corrupt_subtree_end_empty", MEMBER, 7, VARVE_IM_SUBTREE_END, 4, ADD(-1), -EBADMSG},
	{"corrupt_subtree_end_file", MEMBER, 1, VARVE_IM_SUBTREE_END, 4, ADD(1), -EBADMSG},
	{"corrupt_subtree_end_root", MEMBER, 0, VARVE_IM_SUBTREE_END, 4, SET(UINT32_MAX), -EBADMSG},
	{"corrupt_digest_dir", MEMBER, 2, VARVE_IM_DIGEST, 1, SET(1), -EBADMSG},

	/* heap: names 10+1+7+1+1+1 = 21, then "a.log" 21, "d" 26, "d/e" 27, "d/e/f" 30, "d/l" 35
	 * with its target, "d\n\xff" 46 with an xattr of 13, "z" 62 */
	{"corrupt_order", HEAP, 0, 26, 1, SET('A'), -EBADMSG},
	{"corrupt_order_same", HEAP, 0, 37, 1, SET('e'), -EBADMSG},
	{"corrupt_parent", HEAP, 0, 29, 1, SET('d'), -EBADMSG},
	{"corrupt_parent_path", HEAP, 0, 27, 1, SET('e'), -EBADMSG},
	{"corrupt_path_dot", HEAP, 0, 62, 1, SET('.'), -EBADMSG},
	{"corrupt_path_slash", HEAP, 0, 62, 1, SET('/'), -EBADMSG},
	{"corrupt_path_nul", HEAP, 0, 23, 1, SET(0), -EBADMSG},
	{"corrupt_target_nul", HEAP, 0, 40, 1, SET(0), -EBADMSG},
	{"corrupt_xattr_name_len", HEAP, 0, 49, 2, SET(0), -EBADMSG},
	{"corrupt_xattr_value_len", HEAP, 0, 51, 4, ADD(1), -EBADMSG},
	{"corrupt_xattr_value_len_huge", HEAP, 0, 51, 4, SET(UINT32_MAX), -EBADMSG},
	{"corrupt_xattr_name_nul", HEAP, 0, 56, 1, SET(0), -EBADMSG},

	{"corrupt_comp_size", FRAME, 0, VARVE_IF_COMP_SIZE, 4, ADD(1), -EBADMSG},
	{"corrupt_comp_size_0", FRAME, 0, VARVE_IF_COMP_SIZE, 4, SET(0), -EBADMSG},
	{"corrupt_raw_size", FRAME, 0, VARVE_IF_RAW_SIZE, 4, ADD(512), -EBADMSG},
	{"corrupt_raw_size_0", FRAME, 0, VARVE_IF_RAW_SIZE, 4, SET(0), -EBADMSG},
	{"corrupt_raw_size_huge", FRAME, 0, VARVE_IF_RAW_SIZE, 4, SET(UINT32_MAX), -EBADMSG},
	{"corrupt_check", FRAME, 0, VARVE_IF_CHECK, 4, ADD(1), -EBADMSG},
	{"corrupt_frame_reserved", FRAME, 0, VARVE_IF_RESERVED, 4, SET(1), -EBADMSG},
	{"corrupt_hash", FRAME, 0, VARVE_IF_HASH, 8, ADD(1), -EBADMSG},

	{"corrupt_extent_offset", EXTENT, 1, VARVE_IE_OFFSET, 8, ADD(1), -EBADMSG},
	{"corrupt_extent_beyond", EXTENT, 2, VARVE_IE_OFFSET, 8, ADD(512), -EBADMSG},
	{"corrupt_extent_huge", EXTENT, 2, VARVE_IE_OFFSET, 8, SET(UINT64_MAX - 511), -EBADMSG},
	{"corrupt_extent_order", EXTENT, 2, VARVE_IE_OFFSET, 8, SET(0), -EBADMSG},
	{"corrupt_extent_touching", EXTENT, 2, VARVE_IE_OFFSET, 8, SET(1024), -EBADMSG},
	{"corrupt_extent_length", EXTENT, 0, VARVE_IE_LENGTH, 8, ADD(1), -EBADMSG},
	{"corrupt_extent_length_less", EXTENT, 0, VARVE_IE_LENGTH, 8, ADD(-1), -EBADMSG},
	{"corrupt_extent_length_0", EXTENT, 2, VARVE_IE_LENGTH, 8, SET(0), -EBADMSG},
	{"corrupt_extent_length_huge", EXTENT, 2, VARVE_IE_LENGTH, 8, SET(UINT64_MAX), -EBADMSG},

	{"corrupt_seek_comp_size", TABLE, 0, 0, 4, ADD(1), -EBADMSG},
	{"corrupt_seek_raw_size", TABLE, 0, 4, 4, ADD(1), -EBADMSG},
	{"corrupt_seek_check", TABLE, 0, 8, 4, ADD(1), -EBADMSG},
	{"corrupt_seek_index_raw_size", TABLE, 1, 4, 4, SET(1), -EBADMSG},
	{"corrupt_seek_index_check", TABLE, 1, 8, 4, ADD(1), -EBADMSG},
};

static unsigned char *field_of(struct apart *a, const struct corruption *c)
{
	size_t heap = MEMBERS * VARVE_IM_BYTES;
	size_t frames = heap + varve_get_le32(a->header + VARVE_IH_HEAP_SIZE);
	size_t extents = frames + varve_get_le32(a->header + VARVE_IH_FRAMES) * VARVE_IF_BYTES;

	switch (c->where) {
	case HEADER:
		return a->header + c->field;
	case MEMBER:
		return a->body.p + c->i * VARVE_IM_BYTES + c->field;
	case HEAP:
		return a->body.p + heap + c->field;
	case FRAME:
		return a->body.p + frames + c->i * VARVE_IF_BYTES + c->field;
	case EXTENT:
		return a->body.p + extents + c->i * VARVE_IE_BYTES + c->field;
	case TABLE:
		break;
	}
	return a->table.p + c->i * VARVE_SEEK_ENTRY + c->field;
}

START_TEST(corrupted)
{
	const struct corruption *c = &corruptions[_i];
	struct memory m = make_small();
	struct apart a = take_apart(&m.buf);
	unsigned char *p = field_of(&a, c);
	uint64_t v = varve_get_le(p, c->bytes), to = c->v.set;
	struct varve_buf again;
	int r;

	if (c->v.add != 0)
		to = v + (uint64_t)c->v.add;
	varve_put_le(p, to, c->bytes);
	ck_assert_msg(varve_get_le(p, c->bytes) != v, "%s changes nothing", c->name);
	again = put_together(&a);
	r = read_damaged(&again, small, 7);
	ck_assert_msg(r == c->want, "%s: %d", c->name, r);
	varve_buf_done(&again);
	varve_buf_done(&m.buf);
}
END_TEST

/* A header of a later version may be longer; one of another size than it says is refused. */
START_TEST(header_sizes)
{
	static const struct {
		uint32_t size, said;
		int want;
	} cases[] = {{VARVE_IH_SIZE + 8, VARVE_IH_SIZE + 8, 0},
		     {VARVE_IH_SIZE + 64, VARVE_IH_SIZE + 64, 0},
		     {VARVE_IH_SIZE, VARVE_IH_SIZE + 8, -EBADMSG},
		     {VARVE_IH_SIZE, VARVE_IH_SIZE - 8, -EBADMSG},
		     {VARVE_IH_SIZE, 0, -EBADMSG},
		     {VARVE_IH_SIZE, 4097, -EBADMSG},
		     {VARVE_IH_SIZE, UINT32_MAX, -EBADMSG}};
	struct memory m = make_small();

	for (int i = 0; i < COUNT(cases); i++) {
		struct apart a = take_apart(&m.buf);
		struct varve_buf again;

		a.header_size = cases[i].size;
		varve_put_le32(a.header + VARVE_IH_HEADER_SIZE, cases[i].said);
		again = put_together(&a);
		ck_assert_int_eq(read_damaged(&again, small, 7), cases[i].want);
		varve_buf_done(&again);
	}
	varve_buf_done(&m.buf);
}
END_TEST

/* A body that swells to more than it says, or is not zstd at all. */
START_TEST(body_of_other_size)
{
	struct memory m = make_small();

	for (int more = -1; more <= 1; more += 2) {
		struct apart a = take_apart(&m.buf);
		struct varve_buf again;

		if (more > 0)
			ck_assert_int_eq(varve_buf_add_zeros(&a.body, 1), 0);
		else
			a.body.len--;
		again = put_together(&a);
		ck_assert_int_eq(read_damaged(&again, small, 7), -EBADMSG);
		varve_buf_done(&again);
	}
	varve_buf_done(&m.buf);
}
END_TEST

START_TEST(damaged_frame)
{
	struct spec s[] = {{.path = "a", .mode = FILE_MODE, .size = VARVE_FRAME_BYTES},
			   {.path = "b", .mode = FILE_MODE, .size = VARVE_FRAME_BYTES}};
	struct varve_segment_params params = test_params();
	struct varve_frame_dctx *d = varve_frame_dctx_new();
	struct varve_segment_totals totals;
	unsigned char *raw = malloc(VARVE_FRAME_BYTES);
	struct memory m = {0};
	struct varve_index *ix;
	struct varve_source src;
	struct varve_frame_info f;

	ck_assert_int_eq(encode(s, 2, &params, &m, &totals, NULL), 0);
	src = memory_source(&m.buf);
	ck_assert_int_eq(varve_index_open(&src, &ix, NULL), 0);
	ck_assert_uint_eq(varve_index_frames(ix), 3);
	varve_index_frame(ix, 1, &f);
	m.buf.p[f.comp_offset + f.comp_size / 2] ^= 4;
	ck_assert_int_eq(varve_frame_decode(d, &f, m.buf.p + f.comp_offset, raw), -EBADMSG);
	/* the context is as good as before, and so are the other frames */
	for (uint32_t k = 0; k < 3; k += 2) {
		varve_index_frame(ix, k, &f);
		ck_assert_int_eq(varve_frame_decode(d, &f, m.buf.p + f.comp_offset, raw), 0);
	}
	/* bytes that are a good frame, but not this one */
	varve_index_frame(ix, 0, &f);
	f.hash ^= 1;
	ck_assert_int_eq(varve_frame_decode(d, &f, m.buf.p + f.comp_offset, raw), -EBADMSG);
	varve_frame_dctx_free(d);
	varve_frame_dctx_free(NULL);
	varve_index_free(ix);
	varve_buf_done(&m.buf);
	free(raw);
}
END_TEST

T_MAIN("segment_damage", 100)
{
	tcase_add_test(tc, truncated);
	tcase_add_test(tc, beginning_cut_off);
	tcase_add_test(tc, every_bit_flipped);
	tcase_add_test(tc, bytes_overwritten);
	tcase_add_test(tc, apart_and_together);
	tcase_add_loop_test(tc, corrupted, 0, COUNT(corruptions));
	tcase_add_test(tc, header_sizes);
	tcase_add_test(tc, body_of_other_size);
	tcase_add_test(tc, damaged_frame);
}
