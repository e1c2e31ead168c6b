/*
 * The one place that decides whether an index makes sense. After it every accessor may follow any
 * number in the index without looking.
 */
#include <errno.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "format/index_private.h"
#include "format/layout.h"

static int bad(struct varve_err *err, const char *what)
{
	return varve_err_set(err, -EBADMSG, "index: %s", what);
}

static int bad_member(struct varve_err *err, uint32_t i, const char *what)
{
	return varve_err_set(err, -EBADMSG, "index: member %u: %s", i, what);
}

/* bucket, class and tablet: at the heap's start, each with a NUL. Returns their bytes or -EBADMSG.
 */
static int check_names(const struct varve_index *ix, struct varve_err *err)
{
	const uint16_t lens[] = {ix->bucket_len, ix->class_len, ix->tablet_len};
	uint32_t at = 0;

	for (size_t i = 0; i < 3; i++) {
		const char *name = (const char *)ix->heap + at;

		if (lens[i] == 0 || lens[i] > VARVE_NAME_BYTES_MAX || lens[i] >= ix->heap_size - at)
			return bad(err, "length of a name");
		if (name[lens[i]] != '\0' || memchr(name, '/', lens[i]) ||
		    varve_path_check(name, lens[i]) < 0)
			return bad(err, "name of bucket, class or tablet");
		at += lens[i] + 1U;
	}
	return (int)at;
}

static int check_frames(struct varve_index *ix, const unsigned char *records, struct varve_err *err)
{
	uint64_t comp = 0, raw = 0;

	for (uint32_t k = 0; k < ix->n_frames; k++) {
		const unsigned char *rec = records + (size_t)k * VARVE_IF_BYTES;
		struct varve_frame_info *f = &ix->frames[k];

		f->comp_offset = comp;
		f->comp_size = varve_get_le32(rec + VARVE_IF_COMP_SIZE);
		f->raw_offset = raw;
		f->raw_size = varve_get_le32(rec + VARVE_IF_RAW_SIZE);
		f->hash = varve_get_le64(rec + VARVE_IF_HASH);
		ix->frame_check[k] = varve_get_le32(rec + VARVE_IF_CHECK);
		if (f->raw_size == 0 || f->raw_size > VARVE_FRAME_BYTES_MAX || f->comp_size == 0 ||
		    varve_get_le32(rec + VARVE_IF_RESERVED) != 0)
			return varve_err_set(err, -EBADMSG, "index: frame %u", k);
		comp += f->comp_size;
		raw += f->raw_size;
	}
	if (comp != ix->data_bytes || raw != ix->totals.tar_bytes)
		return bad(err, "frames do not add up");
	return 0;
}

/* Fills in member i without its extents; *heap is where its strings have to begin. */
static int read_strings(struct varve_index *ix, uint32_t i, uint32_t *heap, struct varve_err *err)
{
	const unsigned char *rec = ix->members + (size_t)i * VARVE_IM_BYTES;
	uint32_t mode = varve_get_le32(rec + VARVE_IM_MODE);
	uint64_t need = varve_get_le16(rec + VARVE_IM_PATH_LEN);

	if (varve_get_le32(rec + VARVE_IM_HEAP) != *heap)
		return bad_member(err, i, "place of its strings");
	if (S_ISLNK(mode)) {
		uint64_t size = varve_get_le64(rec + VARVE_IM_SIZE);

		if (size > VARVE_PATH_BYTES_MAX)
			return bad_member(err, i, "length of its target");
		need += size;
	}
	need += varve_get_le32(rec + VARVE_IM_XATTRS_LEN);
	if (need > ix->heap_size - *heap)
		return bad_member(err, i, "strings end beyond the heap");
	*heap += (uint32_t)need;
	return 0;
}

/* Turns the extents of member i into native ones, with their places in the tar stream.
 * *tar is where the member's headers begin; it becomes the end of its content, padded. */
static int read_extents(struct varve_index *ix, uint32_t i, const unsigned char *records,
			uint32_t *extent, uint64_t *tar, struct varve_err *err)
{
	const unsigned char *rec = ix->members + (size_t)i * VARVE_IM_BYTES;
	uint64_t at = varve_get_le64(rec + VARVE_IM_DATA);
	uint64_t size = varve_get_le64(rec + VARVE_IM_SIZE);
	uint64_t limit = ix->totals.tar_bytes - VARVE_TAR_TRAILER;
	uint32_t n = varve_get_le32(rec + VARVE_IM_EXTENTS);

	if (varve_get_le32(rec + VARVE_IM_FIRST_EXTENT) != *extent || n > ix->n_extents - *extent)
		return bad_member(err, i, "number of its extents");
	if (at % VARVE_TAR_BLOCK != 0 || at > limit || at < *tar || at - *tar < VARVE_TAR_BLOCK)
		return bad_member(err, i, "place of its content");
	for (uint32_t k = *extent; k < *extent + n; k++) {
		const unsigned char *x = records + (size_t)k * VARVE_IE_BYTES;
		uint64_t offset = varve_get_le64(x + VARVE_IE_OFFSET);
		uint64_t length = varve_get_le64(x + VARVE_IE_LENGTH);

		ix->extents[k] = (struct varve_extent){.offset = offset, .length = length};
		ix->extent_tar[k] = at;
		if (length > limit - at)
			return bad_member(err, i, "content ends beyond the tar stream");
		if (offset % VARVE_TAR_BLOCK != 0 ||
		    (length % VARVE_TAR_BLOCK != 0 && offset + length != size))
			return bad_member(err, i, "extent is not aligned");
		at += length;
	}
	*extent += n;
	*tar = (at + VARVE_TAR_BLOCK - 1) / VARVE_TAR_BLOCK * VARVE_TAR_BLOCK;
	return 0;
}

/* Where a path of the heap is. */
struct place {
	const char *path;
	uint32_t len;
	uint32_t member;
};

/* The member before the one being looked at, and the directories that hold it, innermost last. No
 * component is empty, so that many are enough. */
struct open_dirs {
	struct place before;
	uint32_t n;
	struct place at[VARVE_PATH_BYTES_MAX / 2 + 2];
};

static bool holds(const struct place *dir, const struct varve_member *m)
{
	return dir->len < m->path_len && memcmp(dir->path, m->path, dir->len) == 0 &&
	       (dir->len == 0 || m->path[dir->len] == '/');
}

static int close_dirs(const struct varve_index *ix, struct open_dirs *open,
		      const struct varve_member *next, uint32_t i, struct varve_err *err)
{
	for (; open->n > 0; open->n--) {
		const struct place *dir = &open->at[open->n - 1];

		if (next && holds(dir, next))
			return 0;
		if (varve_index_subtree_end(ix, dir->member) != i)
			return bad_member(err, dir->member, "end of what is in it");
	}
	return next ? bad_member(err, i, "is in no directory") : 0;
}

/* Order, and that the directory which holds m was there just before. */
static int check_place(const struct varve_index *ix, struct open_dirs *open,
		       const struct varve_member *m, uint32_t i, struct varve_err *err)
{
	size_t skip;
	int r;

	if (i == 0) {
		if (m->path_len != 0 || !S_ISDIR(m->mode))
			return bad_member(err, i, "is not the bucket's directory");
	} else {
		if (varve_path_compare(open->before.path, open->before.len, m->path, m->path_len) >= 0)
			return bad_member(err, i, "out of order");
		r = close_dirs(ix, open, m, i, err);
		if (r < 0)
			return r;
		skip = open->at[open->n - 1].len;
		skip += skip > 0;
		if (memchr(m->path + skip, '/', m->path_len - skip))
			return bad_member(err, i, "its directory is missing");
	}
	open->before = (struct place){m->path, m->path_len, i};
	if (S_ISDIR(m->mode))
		open->at[open->n++] = open->before;
	else if (varve_index_subtree_end(ix, i) != i + 1)
		return bad_member(err, i, "end of what is in it");
	return 0;
}

static int check_member(struct varve_index *ix, struct open_dirs *open, uint32_t i, uint64_t *files,
			uint64_t *bytes, struct varve_err *err)
{
	static const unsigned char zeros[16];
	struct varve_member m;
	struct varve_err why;

	why.msg[0] = '\0'; /* the rest of it is not worth its time, member by member */
	varve_index_member(ix, i, &m);
	if (varve_get_le16(ix->members + (size_t)i * VARVE_IM_BYTES + VARVE_IM_RESERVED) != 0)
		return bad_member(err, i, "reserved field");
	if (varve_member_check(&m, &why) < 0)
		return bad_member(err, i, why.msg);
	if (S_ISDIR(m.mode) && memcmp(m.digest, zeros, sizeof(zeros)) != 0)
		return bad_member(err, i, "a directory with a digest");
	if (S_ISREG(m.mode)) {
		(*files)++;
		if (!varve_add_u64(*bytes, m.size, bytes))
			return bad_member(err, i, "sizes overflow");
	}
	return check_place(ix, open, &m, i, err);
}

static int check_members(struct varve_index *ix, uint32_t heap, const unsigned char *extents,
			 struct open_dirs *open, struct varve_err *err)
{
	uint64_t tar = 0, files = 0, bytes = 0;
	uint32_t extent = 0;
	int r = 0;

	for (uint32_t i = 0; i < ix->n_members && r >= 0; i++) {
		r = read_strings(ix, i, &heap, err);
		if (r >= 0)
			r = read_extents(ix, i, extents, &extent, &tar, err);
		if (r >= 0)
			r = check_member(ix, open, i, &files, &bytes, err);
	}
	if (r >= 0)
		r = close_dirs(ix, open, NULL, ix->n_members, err);
	if (r < 0)
		return r;
	if (heap != ix->heap_size || extent != ix->n_extents)
		return bad(err, "heap or extents left over");
	if (tar + VARVE_TAR_TRAILER != ix->totals.tar_bytes)
		return bad(err, "members do not fill the tar stream");
	if (files != ix->totals.files || bytes != ix->totals.content_bytes)
		return bad(err, "totals are wrong");
	return 0;
}

int varve_index_check(struct varve_index *ix, struct varve_err *err)
{
	size_t kept = (size_t)ix->n_members * VARVE_IM_BYTES + ix->heap_size;
	const unsigned char *frames = ix->body + kept;
	const unsigned char *extents = frames + (size_t)ix->n_frames * VARVE_IF_BYTES;
	cleanup_free struct open_dirs *open = calloc(1, sizeof(*open));
	int r;

	ix->members = ix->body;
	ix->heap = ix->body + (size_t)ix->n_members * VARVE_IM_BYTES;
	ix->frames = calloc(ix->n_frames, sizeof(*ix->frames));
	ix->frame_check = calloc(ix->n_frames, sizeof(*ix->frame_check));
	/* One more than there are: calloc(0) may be NULL. */
	ix->extents = calloc((size_t)ix->n_extents + 1, sizeof(*ix->extents));
	ix->extent_tar = calloc((size_t)ix->n_extents + 1, sizeof(*ix->extent_tar));
	if (!open || !ix->frames || !ix->frame_check || !ix->extents || !ix->extent_tar)
		return -ENOMEM;
	if (ix->start_ns >= ix->end_ns)
		return bad(err, "window");
	r = check_frames(ix, frames, err);
	if (r >= 0)
		r = check_names(ix, err);
	return r < 0 ? r : check_members(ix, (uint32_t)r, extents, open, err);
}
