#include "store/xattrs.h"

#include <errno.h>
#include <linux/limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "format/buf.h"
#include "format/segment.h"

#define XATTRS_MAX (256 * 1024)
#define XATTR_VALUE_MAX (64 * 1024)

static bool is_kept(const char *name)
{
	if (!strncmp(name, "user.varve.", 11))
		return false;
	return !strncmp(name, "user.", 5) || !strcmp(name, "system.posix_acl_access") ||
	       !strcmp(name, "system.posix_acl_default");
}

static int pack_one(int fd, const char *name, void *value, struct varve_buf *b)
{
	ssize_t len = fgetxattr(fd, name, value, XATTR_VALUE_MAX);
	size_t more;
	int r;

	if (len < 0)
		return errno == ENODATA ? 0 : -errno;
	more = varve_xattr_packed_size(name, (uint32_t)len);
	if (b->len + more > XATTRS_MAX)
		return -E2BIG;
	r = varve_buf_reserve(b, more);
	return r < 0 ? r : varve_xattr_put(b->p, b->size, &b->len, name, value, (uint32_t)len);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted, so that the same content gives the same segment. */
static int pack_names(int fd, const char *names, size_t len, struct varve_buf *b)
{
	cleanup_free const char **list = malloc((len + 1) * sizeof(*list));
	cleanup_free void *value = NULL;
	size_t n = 0;
	int r = 0;

	if (!list)
		return -ENOMEM;
	for (const char *x = names; x < names + len; x += strlen(x) + 1)
		if (is_kept(x))
			list[n++] = x;
	if (n == 0)
		return 0;
	value = malloc(XATTR_VALUE_MAX);
	if (!value)
		return -ENOMEM;
	qsort(list, n, sizeof(*list), by_text);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = pack_one(fd, list[i], value, b);
	return r;
}

static int pack(int fd, struct varve_buf *b)
{
	cleanup_free char *more = NULL;
	char few[512];
	ssize_t len = flistxattr(fd, few, sizeof(few));

	if (len < 0 && errno == ENOTSUP)
		return 0;
	if (len >= 0)
		return pack_names(fd, few, (size_t)len, b);
	if (errno != ERANGE)
		return -errno;
	more = malloc(XATTR_LIST_MAX);
	if (!more)
		return -ENOMEM;
	len = flistxattr(fd, more, XATTR_LIST_MAX);
	return len < 0 ? -errno : pack_names(fd, more, (size_t)len, b);
}

int varve_xattrs_pack(int fd, unsigned char **ret, size_t *ret_len)
{
	struct varve_buf b = {0};
	int r = pack(fd, &b);

	if (r < 0 || !b.len) {
		varve_buf_done(&b);
		*ret = NULL;
		*ret_len = 0;
		return r;
	}
	*ret = b.p;
	*ret_len = b.len;
	return 0;
}

static ssize_t give(const void *value, size_t len, void *buf, size_t size)
{
	if (size == 0)
		return (ssize_t)len;
	if (len > size)
		return -ERANGE;
	memcpy(buf, value, len);
	return (ssize_t)len;
}

ssize_t varve_xattrs_get(const unsigned char *packed, size_t len, const char *name, void *buf, size_t size)
{
	struct varve_xattr x;
	uint32_t at = 0;

	while (varve_xattr_next(packed, (uint32_t)len, &at, &x) > 0)
		if (x.name_len == strlen(name) && !memcmp(x.name, name, x.name_len))
			return give(x.value, x.value_len, buf, size);
	return -ENODATA;
}

ssize_t varve_xattrs_list(const unsigned char *packed, size_t len, char *buf, size_t size)
{
	struct varve_xattr x;
	uint32_t at = 0;
	size_t out = 0;

	while (varve_xattr_next(packed, (uint32_t)len, &at, &x) > 0) {
		if (size && out + x.name_len + 1 > size)
			return -ERANGE;
		if (size) {
			memcpy(buf + out, x.name, x.name_len);
			buf[out + x.name_len] = '\0';
		}
		out += x.name_len + 1;
	}
	return (ssize_t)out;
}

static int put_one(struct varve_buf *b, const char *name, size_t name_len, const void *value, size_t size)
{
	char text[XATTR_NAME_MAX + 1];
	size_t more;
	int r;

	if (name_len > XATTR_NAME_MAX)
		return -ERANGE;
	memcpy(text, name, name_len);
	text[name_len] = '\0';
	more = varve_xattr_packed_size(text, (uint32_t)size);
	if (b->len + more > XATTRS_MAX)
		return -E2BIG;
	r = varve_buf_reserve(b, more);
	return r < 0 ? r : varve_xattr_put(b->p, b->size, &b->len, text, value, (uint32_t)size);
}

int varve_xattrs_change(unsigned char **packed, size_t *len, const char *name, const void *value, size_t size,
			int flags)
{
	bool there = varve_xattrs_get(*packed, *len, name, NULL, 0) >= 0, done = !value;
	struct varve_buf b = {0};
	struct varve_xattr x;
	uint32_t at = 0;
	int r = 0;

	if (there && flags & XATTR_CREATE)
		return -EEXIST;
	if (!there && (!value || flags & XATTR_REPLACE))
		return -ENODATA;
	while (r == 0 && varve_xattr_next(*packed, (uint32_t)*len, &at, &x) > 0) {
		size_t n = strlen(name), common = x.name_len < n ? x.name_len : n;
		int order = memcmp(name, x.name, common);

		if (order == 0)
			order = n < x.name_len ? -1 : n > x.name_len;
		/* In the order of names, as they were packed. */
		if (!done && order <= 0) {
			r = put_one(&b, name, n, value, size);
			done = true;
		}
		if (r == 0 && order != 0)
			r = put_one(&b, x.name, x.name_len, x.value, x.value_len);
	}
	if (r == 0 && !done)
		r = put_one(&b, name, strlen(name), value, size);
	if (r < 0) {
		varve_buf_done(&b);
		return r;
	}
	free(*packed);
	*packed = b.p;
	*len = b.len;
	return 0;
}
