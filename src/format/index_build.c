#include "format/index_build.h"

#include <sys/stat.h>

#include "base/bytes.h"
#include "format/digest.h"
#include "format/frame.h"
#include "format/layout.h"

/* The index is read far more often than written, but at every open: fast to decompress at any
 * level, so only the time for writing bounds it. */
#define INDEX_LEVEL_MAX 9

static int add_name(struct varve_index_build *b, const char *name, uint16_t *ret_len)
{
	size_t len = name ? strlen(name) : 0;

	if (len == 0 || len > VARVE_NAME_BYTES_MAX || memchr(name, '/', len) ||
	    varve_path_check(name, len) < 0)
		return -EINVAL;
	*ret_len = (uint16_t)len;
	return varve_buf_add(&b->heap, name, len + 1);
}

int varve_index_build_init(struct varve_index_build *b, const struct varve_segment_params *params)
{
	int r;

	*b = (struct varve_index_build){.start_ns = params->start_ns, .end_ns = params->end_ns};
	r = add_name(b, params->bucket, &b->bucket_len);
	if (r == 0)
		r = add_name(b, params->class_name, &b->class_len);
	if (r == 0)
		r = add_name(b, params->tablet, &b->tablet_len);
	if (r < 0)
		varve_index_build_done(b);
	return r;
}

void varve_index_build_done(struct varve_index_build *b)
{
	varve_buf_done(&b->members);
	varve_buf_done(&b->heap);
	varve_buf_done(&b->frames);
	varve_buf_done(&b->extents);
	varve_buf_done(&b->open_dirs);
}

static unsigned char *record(const struct varve_index_build *b, uint32_t i)
{
	return b->members.p + (size_t)i * VARVE_IM_BYTES;
}

static const char *path_of(const struct varve_index_build *b, uint32_t i, size_t *ret_len)
{
	const unsigned char *rec = record(b, i);

	*ret_len = varve_get_le16(rec + VARVE_IM_PATH_LEN);
	return (const char *)b->heap.p + varve_get_le32(rec + VARVE_IM_HEAP);
}

static uint32_t open_dirs(const struct varve_index_build *b)
{
	return (uint32_t)(b->open_dirs.len / 4);
}

static uint32_t open_dir(const struct varve_index_build *b, uint32_t k)
{
	return varve_get_le32(b->open_dirs.p + (size_t)k * 4);
}

/* How many of the open directories hold a member of this path. */
static uint32_t holding(const struct varve_index_build *b, const struct varve_member *m)
{
	uint32_t n = open_dirs(b);

	while (n > 0) {
		size_t len;
		const char *dir = path_of(b, open_dir(b, n - 1), &len);

		if (len < m->path_len && memcmp(dir, m->path, len) == 0 &&
		    (len == 0 || m->path[len] == '/'))
			break;
		n--;
	}
	return n;
}

int varve_index_build_fits(const struct varve_index_build *b, const struct varve_member *m)
{
	size_t len;
	const char *path;
	uint32_t n;

	if (b->n_members == 0)
		return m->path_len == 0 && S_ISDIR(m->mode) ? 0 : -EINVAL;
	path = path_of(b, b->n_members - 1, &len);
	if (varve_path_compare(path, len, m->path, m->path_len) >= 0)
		return -EINVAL;
	n = holding(b, m);
	if (n == 0)
		return -EINVAL;
	/* The innermost of them has to be the parent, not a grandparent. */
	(void)path_of(b, open_dir(b, n - 1), &len);
	if (len > 0)
		len++;
	return memchr(m->path + len, '/', m->path_len - len) ? -EINVAL : 0;
}

static void close_dirs(struct varve_index_build *b, uint32_t keep)
{
	for (uint32_t n = open_dirs(b); n > keep; n--)
		varve_put_le32(record(b, open_dir(b, n - 1)) + VARVE_IM_SUBTREE_END, b->n_members);
	b->open_dirs.len = (size_t)keep * 4;
}

/* What the body would take with one more member; a bound for all that the counts can reach. */
static int check_room(const struct varve_index_build *b, const struct varve_member *m)
{
	uint64_t total = (uint64_t)b->members.len + b->heap.len + b->frames.len + b->extents.len;

	total += VARVE_IM_BYTES + m->path_len + m->xattrs_len +
		 (uint64_t)m->n_extents * VARVE_IE_BYTES + (S_ISLNK(m->mode) ? m->size : 0);
	return total > VARVE_INDEX_BYTES_MAX - VARVE_IF_BYTES ? -EFBIG : 0;
}

static void put_member(unsigned char *rec, const struct varve_member *m)
{
	varve_put_le16(rec + VARVE_IM_PATH_LEN, (uint16_t)m->path_len);
	varve_put_le32(rec + VARVE_IM_MODE, m->mode);
	varve_put_le32(rec + VARVE_IM_UID, m->uid);
	varve_put_le32(rec + VARVE_IM_GID, m->gid);
	varve_put_le32(rec + VARVE_IM_MTIME_NSEC, m->mtime_nsec);
	varve_put_le64(rec + VARVE_IM_MTIME_SEC, (uint64_t)m->mtime_sec);
	varve_put_le64(rec + VARVE_IM_INO, m->ino);
	varve_put_le64(rec + VARVE_IM_SIZE, m->size);
	varve_put_le32(rec + VARVE_IM_EXTENTS, m->n_extents);
	varve_put_le32(rec + VARVE_IM_XATTRS_LEN, m->xattrs_len);
	memcpy(rec + VARVE_IM_DIGEST, m->digest, 16);
}

static int add_extents(struct varve_index_build *b, const struct varve_member *m)
{
	unsigned char rec[VARVE_IE_BYTES];
	int r = 0;

	for (uint32_t i = 0; i < m->n_extents && r >= 0; i++) {
		varve_put_le64(rec + VARVE_IE_OFFSET, m->extents[i].offset);
		varve_put_le64(rec + VARVE_IE_LENGTH, m->extents[i].length);
		r = varve_buf_add(&b->extents, rec, sizeof(rec));
	}
	return r;
}

int varve_index_build_member(struct varve_index_build *b, const struct varve_member *m,
			     uint64_t data_offset)
{
	unsigned char rec[VARVE_IM_BYTES] = {0}, number[4];
	int r = check_room(b, m);

	if (r < 0)
		return r;
	close_dirs(b, holding(b, m));
	put_member(rec, m);
	varve_put_le32(rec + VARVE_IM_HEAP, (uint32_t)b->heap.len);
	varve_put_le64(rec + VARVE_IM_DATA, data_offset);
	varve_put_le32(rec + VARVE_IM_FIRST_EXTENT, b->n_extents);
	varve_put_le32(rec + VARVE_IM_SUBTREE_END, b->n_members + 1);
	r = varve_buf_add(&b->members, rec, sizeof(rec));
	if (r >= 0)
		r = varve_buf_add(&b->heap, m->path, m->path_len);
	if (r >= 0 && S_ISLNK(m->mode))
		r = varve_buf_add(&b->heap, m->target, (size_t)m->size);
	if (r >= 0)
		r = varve_buf_add(&b->heap, m->xattrs, m->xattrs_len);
	if (r >= 0)
		r = add_extents(b, m);
	if (r >= 0 && S_ISDIR(m->mode)) {
		varve_put_le32(number, b->n_members);
		r = varve_buf_add(&b->open_dirs, number, sizeof(number));
	}
	if (r < 0)
		return r;
	b->n_members++;
	b->n_extents += m->n_extents;
	if (S_ISREG(m->mode)) {
		b->files++;
		if (!varve_add_u64(b->content_bytes, m->size, &b->content_bytes))
			return -EFBIG;
	}
	return 0;
}

int varve_index_build_frame(struct varve_index_build *b, const struct varve_pipe_frame *f)
{
	unsigned char rec[VARVE_IF_BYTES] = {0};
	int r;

	if (b->n_frames == VARVE_FRAMES_MAX)
		return -EFBIG;
	varve_put_le32(rec + VARVE_IF_COMP_SIZE, f->comp_size);
	varve_put_le32(rec + VARVE_IF_RAW_SIZE, f->raw_size);
	varve_put_le32(rec + VARVE_IF_CHECK, f->check);
	varve_put_le64(rec + VARVE_IF_HASH, f->hash);
	r = varve_buf_add(&b->frames, rec, sizeof(rec));
	if (r < 0)
		return r;
	b->n_frames++;
	b->tar_bytes += f->raw_size;
	b->data_bytes += f->comp_size;
	return 0;
}

/* All sections in one piece. */
static int gather_body(struct varve_index_build *b, struct varve_buf *body)
{
	struct varve_buf *sections[] = {&b->members, &b->heap, &b->frames, &b->extents};
	uint64_t total = 0;
	int r;

	for (size_t i = 0; i < 4; i++)
		total += sections[i]->len;
	if (total > VARVE_INDEX_BYTES_MAX)
		return -EFBIG;
	r = varve_buf_reserve(body, (size_t)total);
	for (size_t i = 0; i < 4 && r >= 0; i++)
		r = varve_buf_add(body, sections[i]->p, sections[i]->len);
	return r;
}

static void put_header(const struct varve_index_build *b, const struct varve_buf *body,
		       size_t comp_size, unsigned char *h)
{
	memset(h, 0, VARVE_IH_SIZE);
	memcpy(h + VARVE_IH_MAGIC, VARVE_INDEX_MAGIC, 8);
	varve_put_le32(h + VARVE_IH_HEADER_SIZE, VARVE_IH_SIZE);
	varve_put_le32(h + VARVE_IH_VERSION, VARVE_INDEX_VERSION);
	varve_put_le64(h + VARVE_IH_BODY_SIZE, body->len);
	varve_put_le64(h + VARVE_IH_BODY_COMP, comp_size);
	varve_hash128(body->p, body->len, h + VARVE_IH_BODY_HASH);
	varve_put_le64(h + VARVE_IH_START_NS, (uint64_t)b->start_ns);
	varve_put_le64(h + VARVE_IH_END_NS, (uint64_t)b->end_ns);
	varve_put_le64(h + VARVE_IH_TAR_BYTES, b->tar_bytes);
	varve_put_le64(h + VARVE_IH_DATA_BYTES, b->data_bytes);
	varve_put_le64(h + VARVE_IH_FILES, b->files);
	varve_put_le64(h + VARVE_IH_CONTENT_BYTES, b->content_bytes);
	varve_put_le32(h + VARVE_IH_MEMBERS, b->n_members);
	varve_put_le32(h + VARVE_IH_FRAMES, b->n_frames);
	varve_put_le32(h + VARVE_IH_EXTENTS, b->n_extents);
	varve_put_le32(h + VARVE_IH_HEAP_SIZE, (uint32_t)b->heap.len);
	varve_put_le16(h + VARVE_IH_BUCKET_LEN, b->bucket_len);
	varve_put_le16(h + VARVE_IH_CLASS_LEN, b->class_len);
	varve_put_le16(h + VARVE_IH_TABLET_LEN, b->tablet_len);
	varve_put_le64(h + VARVE_IH_HASH, varve_hash64(h, VARVE_IH_HASH));
}

static void put_skip_header(unsigned char *to, uint32_t magic, size_t size)
{
	varve_put_le32(to, magic);
	varve_put_le32(to + 4, (uint32_t)size);
}

/* Appends the index frame. */
static int add_index_frame(const struct varve_index_build *b, const struct varve_buf *body,
			   int level, struct varve_buf *to)
{
	size_t head = VARVE_SKIP_HEADER + VARVE_IH_SIZE, room = varve_frame_bound(body->len), size;
	struct varve_frame_cctx *cctx;
	unsigned char *p;
	uint32_t check;
	int r = varve_buf_reserve(to, head + room);

	if (r < 0)
		return r;
	cctx = varve_frame_cctx_new(level < INDEX_LEVEL_MAX ? level : INDEX_LEVEL_MAX);
	if (!cctx)
		return -ENOMEM;
	p = to->p + to->len;
	r = varve_frame_encode(cctx, body->p, body->len, p + head, room, &size, &check);
	varve_frame_cctx_free(cctx);
	if (r < 0)
		return r;
	put_skip_header(p, VARVE_INDEX_FRAME_MAGIC, VARVE_IH_SIZE + size);
	put_header(b, body, size, p + VARVE_SKIP_HEADER);
	to->len += head + size;
	return 0;
}

static int add_seek_entry(struct varve_buf *to, uint32_t comp_size, uint32_t raw_size,
			  uint32_t check)
{
	unsigned char e[VARVE_SEEK_ENTRY];

	varve_put_le32(e, comp_size);
	varve_put_le32(e + 4, raw_size);
	varve_put_le32(e + 8, check);
	return varve_buf_add(to, e, sizeof(e));
}

/* Appends the seek table. The published format wants an entry for every frame but its own, so the
 * index frame has one too, of decompressed size 0. */
static int add_seek_table(const struct varve_index_build *b, size_t index_frame,
			  struct varve_buf *to)
{
	size_t entries = (size_t)b->n_frames + 1;
	unsigned char head[VARVE_SKIP_HEADER], foot[VARVE_SEEK_FOOTER];
	int r;

	put_skip_header(head, VARVE_SEEK_FRAME_MAGIC,
			entries * VARVE_SEEK_ENTRY + VARVE_SEEK_FOOTER);
	varve_put_le32(foot, (uint32_t)entries);
	foot[4] = VARVE_SEEK_DESCRIPTOR;
	varve_put_le32(foot + 5, VARVE_SEEK_MAGIC);
	r = varve_buf_add(to, head, sizeof(head));
	for (uint32_t k = 0; k < b->n_frames && r >= 0; k++) {
		const unsigned char *rec = b->frames.p + (size_t)k * VARVE_IF_BYTES;

		r = add_seek_entry(to, varve_get_le32(rec + VARVE_IF_COMP_SIZE),
				   varve_get_le32(rec + VARVE_IF_RAW_SIZE),
				   varve_get_le32(rec + VARVE_IF_CHECK));
	}
	if (r >= 0)
		r = add_seek_entry(to, (uint32_t)index_frame, 0, VARVE_SEEK_CHECK_EMPTY);
	return r < 0 ? r : varve_buf_add(to, foot, sizeof(foot));
}

int varve_index_build_finish(struct varve_index_build *b, int level, struct varve_buf *to)
{
	struct varve_buf body = {0};
	size_t start = to->len;
	int r;

	close_dirs(b, 0);
	r = gather_body(b, &body);
	if (r >= 0)
		r = add_index_frame(b, &body, level, to);
	varve_buf_done(&body);
	return r < 0 ? r : add_seek_table(b, to->len - start, to);
}
