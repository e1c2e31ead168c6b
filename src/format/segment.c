#include "format/segment.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "format/layout.h"

int varve_path_compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t n = a_len < b_len ? a_len : b_len;

	for (size_t i = 0; i < n; i++) {
		unsigned char x = (unsigned char)a[i], y = (unsigned char)b[i];

		if (x == y)
			continue;
		/* No component holds a NUL, so '/' can take its place as the lowest of all. */
		if (x == '/')
			return -1;
		if (y == '/')
			return 1;
		return x < y ? -1 : 1;
	}
	return a_len == b_len ? 0 : a_len < b_len ? -1 : 1;
}

int varve_path_check(const char *path, size_t len)
{
	size_t start = 0;

	if (len == 0)
		return 0;
	if (len > VARVE_PATH_BYTES_MAX || memchr(path, '\0', len))
		return -EINVAL;
	for (size_t i = 0; i <= len; i++) {
		if (i < len && path[i] != '/')
			continue;
		if (i == start || (i - start == 1 && path[start] == '.') ||
		    (i - start == 2 && path[start] == '.' && path[start + 1] == '.'))
			return -EINVAL;
		start = i + 1;
	}
	return 0;
}

int varve_xattr_next(const unsigned char *xattrs, uint32_t len, uint32_t *at,
		     struct varve_xattr *ret)
{
	struct varve_cursor c = {.p = xattrs + *at, .left = len - *at};
	uint32_t name_len, value_len;
	const void *name, *value;

	if (c.left == 0)
		return 0;
	name_len = (uint32_t)varve_cursor_le(&c, 2);
	value_len = (uint32_t)varve_cursor_le(&c, 4);
	name = varve_cursor_take(&c, name_len);
	value = varve_cursor_take(&c, value_len);
	if (c.bad || name_len == 0 || name_len > VARVE_XATTR_NAME_MAX || memchr(name, 0, name_len))
		return -EINVAL;
	*ret = (struct varve_xattr){
		.name = name, .name_len = name_len, .value = value, .value_len = value_len};
	*at = len - (uint32_t)c.left;
	return 1;
}

size_t varve_xattr_packed_size(const char *name, uint32_t value_len)
{
	return 6 + strlen(name) + (size_t)value_len;
}

int varve_xattr_put(unsigned char *xattrs, size_t room, size_t *len, const char *name,
		    const void *value, uint32_t value_len)
{
	size_t name_len = strlen(name), need = varve_xattr_packed_size(name, value_len);
	unsigned char *to;

	if (name_len > VARVE_XATTR_NAME_MAX || *len > room || need > room - *len)
		return -ENOSPC;
	to = xattrs + *len;
	varve_put_le16(to, (uint16_t)name_len);
	varve_put_le32(to + 2, value_len);
	memcpy(to + 6, name, name_len);
	if (value_len > 0)
		memcpy(to + 6 + name_len, value, value_len);
	*len += need;
	return 0;
}

static int check_link(const struct varve_member *m)
{
	if (m->size == 0 || m->size > VARVE_PATH_BYTES_MAX || m->n_extents > 0)
		return -EINVAL;
	return memchr(m->target, '\0', (size_t)m->size) ? -EINVAL : 0;
}

static int check_extents(const struct varve_member *m)
{
	uint64_t behind = 0; /* where the extent before ended */

	if (m->size > INT64_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < m->n_extents; i++) {
		const struct varve_extent *x = &m->extents[i];
		uint64_t end;

		if (x->length == 0 || !varve_add_u64(x->offset, x->length, &end) || end > m->size ||
		    (i > 0 && x->offset <= behind))
			return -EINVAL;
		behind = end;
	}
	return 0;
}

static int check_xattrs(const struct varve_member *m)
{
	struct varve_xattr x;
	uint32_t at = 0;
	int r;

	do
		r = varve_xattr_next(m->xattrs, m->xattrs_len, &at, &x);
	while (r > 0);
	return r;
}

int varve_member_check(const struct varve_member *m, struct varve_err *err)
{
	int r;

	if (varve_path_check(m->path, m->path_len) < 0)
		return varve_err_set(err, -EINVAL, "not a path that can stand in a segment");
	if ((m->mode & ~(uint32_t)(S_IFMT | 07777)) != 0 || m->mtime_nsec >= 1000000000)
		return varve_err_set(err, -EINVAL, "mode or time out of range");
	switch (m->mode & S_IFMT) {
	case S_IFREG:
		r = check_extents(m);
		break;
	case S_IFLNK:
		r = check_link(m);
		break;
	case S_IFDIR:
		r = m->n_extents > 0 || m->size > 0 ? -EINVAL : 0;
		break;
	default:
		return varve_err_set(err, -EINVAL, "not a file, directory or symbolic link");
	}
	if (r < 0)
		return varve_err_set(err, r, "size, extents or target out of range");
	if (check_xattrs(m) < 0)
		return varve_err_set(err, -EINVAL, "malformed extended attributes");
	return 0;
}

uint32_t varve_extents_align(struct varve_extent *extents, uint32_t n, uint64_t size)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t start = extents[i].offset / VARVE_TAR_BLOCK * VARVE_TAR_BLOCK;
		uint64_t end = extents[i].offset + extents[i].length;
		struct varve_extent *last = kept > 0 ? &extents[kept - 1] : NULL;

		/* A size is below 2^63, so rounding up can't overflow. */
		end = (end + VARVE_TAR_BLOCK - 1) / VARVE_TAR_BLOCK * VARVE_TAR_BLOCK;
		if (end > size)
			end = size;
		if (last && start <= last->offset + last->length)
			last->length = end - last->offset;
		else
			extents[kept++] =
				(struct varve_extent){.offset = start, .length = end - start};
	}
	return kept;
}
