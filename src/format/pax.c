#include "format/pax.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "format/layout.h"

/* Fields of a ustar header: offset and size. */
enum {
	T_NAME = 0,
	T_NAME_LEN = 100,
	T_MODE = 100,
	T_UID = 108,
	T_GID = 116,
	T_SIZE = 124,
	T_MTIME = 136,
	T_CHECKSUM = 148,
	T_TYPE = 156,
	T_LINK = 157,
	T_LINK_LEN = 100,
	T_MAGIC = 257,
	T_DEVMAJOR = 329,
	T_DEVMINOR = 337,
	T_PREFIX = 345,
	T_PREFIX_LEN = 155,
};

#define OCTAL7_MAX UINT64_C(07777777)
#define OCTAL11_MAX UINT64_C(077777777777)

/* digits octal digits and a NUL; a value that a pax record carries is written as 0. */
static void put_octal(unsigned char *to, uint64_t v, unsigned digits)
{
	to[digits] = 0;
	for (unsigned i = digits; i-- > 0; v >>= 3)
		to[i] = (unsigned char)('0' + (v & 7));
}

static void put_header(unsigned char *h, char type, uint32_t mode, uint64_t size)
{
	memset(h, 0, VARVE_TAR_BLOCK);
	put_octal(h + T_MODE, mode, 7);
	put_octal(h + T_UID, 0, 7);
	put_octal(h + T_GID, 0, 7);
	put_octal(h + T_SIZE, size <= OCTAL11_MAX ? size : 0, 11);
	put_octal(h + T_MTIME, 0, 11);
	h[T_TYPE] = (unsigned char)type;
	memcpy(h + T_MAGIC,
	       "ustar\0"
	       "00",
	       8);
	put_octal(h + T_DEVMAJOR, 0, 7);
	put_octal(h + T_DEVMINOR, 0, 7);
}

static void put_checksum(unsigned char *h)
{
	uint64_t sum = 0;

	memset(h + T_CHECKSUM, ' ', 8);
	for (size_t i = 0; i < VARVE_TAR_BLOCK; i++)
		sum += h[i];
	put_octal(h + T_CHECKSUM, sum, 6);
}

static size_t padding(size_t len)
{
	return (VARVE_TAR_BLOCK - len % VARVE_TAR_BLOCK) % VARVE_TAR_BLOCK;
}

static size_t decimal_digits(size_t v)
{
	size_t n = 1;

	for (; v >= 10; v /= 10)
		n++;
	return n;
}

/* "LEN KEY=VALUE\n", LEN counting itself. */
static int add_record(struct varve_buf *b, const void *key, size_t key_len, const void *value,
		      size_t value_len)
{
	size_t rest = 1 + key_len + 1 + value_len + 1, len = rest + decimal_digits(rest);
	char number[32];
	int r, n;

	if (rest + decimal_digits(len) > len)
		len = rest + decimal_digits(len);
	n = snprintf(number, sizeof(number), "%zu ", len);
	r = varve_buf_add(b, number, (size_t)n);
	if (r >= 0)
		r = varve_buf_add(b, key, key_len);
	if (r >= 0)
		r = varve_buf_add(b, "=", 1);
	if (r >= 0)
		r = varve_buf_add(b, value, value_len);
	return r < 0 ? r : varve_buf_add(b, "\n", 1);
}

static int add_bytes(struct varve_buf *b, const char *key, const void *value, size_t len)
{
	return add_record(b, key, strlen(key), value, len);
}

static int add_number(struct varve_buf *b, const char *key, uint64_t value)
{
	char text[24];
	int n = snprintf(text, sizeof(text), "%" PRIu64, value);

	return add_bytes(b, key, text, (size_t)n);
}

/* Decimal seconds. A time before 1970 is negative as a whole: -2 s + 0.5e9 ns is "-1.5". */
static int add_mtime(struct varve_buf *b, int64_t sec, uint32_t nsec)
{
	bool minus = sec < 0;
	uint64_t whole = minus ? 0 - (uint64_t)sec : (uint64_t)sec;
	char text[40];
	int n;

	if (minus && nsec > 0) {
		whole--;
		nsec = 1000000000 - nsec;
	}
	n = snprintf(text, sizeof(text), "%s%" PRIu64, minus ? "-" : "", whole);
	if (nsec > 0) {
		n += snprintf(text + n, sizeof(text) - (size_t)n, ".%09" PRIu32, nsec);
		while (text[n - 1] == '0')
			n--;
	}
	return add_bytes(b, "mtime", text, (size_t)n);
}

/* An xattr's name in a key: GNU tar takes %25 for '%' and %3D for '=', which ends the key. */
static int add_xattr(struct varve_buf *b, const char *name, size_t name_len,
		     const unsigned char *value, size_t value_len)
{
	static const char prefix[] = "SCHILY.xattr.";
	size_t n = sizeof(prefix) - 1;
	char key[sizeof(prefix) + 3 * VARVE_XATTR_NAME_MAX];

	memcpy(key, prefix, n);
	for (size_t i = 0; i < name_len; i++) {
		if (name[i] == '%' || name[i] == '=') {
			memcpy(key + n, name[i] == '%' ? "%25" : "%3D", 3);
			n += 3;
		} else {
			key[n++] = name[i];
		}
	}
	return add_record(b, key, n, value, value_len);
}

/* The kernel's entries of a POSIX ACL as text with numeric ids. 0, or -EINVAL when they are none.
 */
static int acl_to_text(const unsigned char *acl, size_t len, struct varve_buf *text)
{
	static const struct {
		unsigned tag;
		const char *name;
		bool has_id;
	} tags[] = {{0x01, "user", false}, {0x02, "user", true},  {0x04, "group", false},
		    {0x08, "group", true}, {0x10, "mask", false}, {0x20, "other", false}};

	text->len = 0;
	if (len < 12 || (len - 4) % 8 != 0 || varve_get_le32(acl) != 2)
		return -EINVAL;
	for (size_t at = 4; at < len; at += 8) {
		unsigned tag = varve_get_le16(acl + at), perm = varve_get_le16(acl + at + 2);
		char entry[48], id[16] = "";
		size_t t = 0;
		int n, r;

		while (t < 6 && tags[t].tag != tag)
			t++;
		if (t == 6 || perm > 7)
			return -EINVAL;
		if (tags[t].has_id)
			(void)snprintf(id, sizeof(id), "%" PRIu32, varve_get_le32(acl + at + 4));
		n = snprintf(entry, sizeof(entry), "%s%s:%s:%c%c%c", at > 4 ? "," : "",
			     tags[t].name, id, perm & 4 ? 'r' : '-', perm & 2 ? 'w' : '-',
			     perm & 1 ? 'x' : '-');
		r = varve_buf_add(text, entry, (size_t)n);
		if (r < 0)
			return r;
	}
	return 0;
}

static int add_acl_or_xattr(struct varve_buf *b, const struct varve_xattr *x)
{
	static const struct {
		const char *xattr, *key;
	} acls[] = {{"system.posix_acl_access", "SCHILY.acl.access"},
		    {"system.posix_acl_default", "SCHILY.acl.default"}};
	struct varve_buf text = {0};
	int r = -EINVAL;

	for (size_t i = 0; i < 2; i++) {
		if (x->name_len != strlen(acls[i].xattr) ||
		    memcmp(x->name, acls[i].xattr, x->name_len) != 0)
			continue;
		r = acl_to_text(x->value, x->value_len, &text);
		if (r >= 0)
			r = add_bytes(b, acls[i].key, text.p, text.len);
		break;
	}
	varve_buf_done(&text);
	if (r != -EINVAL)
		return r;
	return add_xattr(b, x->name, x->name_len, x->value, x->value_len);
}

static int add_xattrs(struct varve_buf *b, const struct varve_member *m)
{
	struct varve_xattr x;
	uint32_t at = 0;
	int r;

	while ((r = varve_xattr_next(m->xattrs, m->xattrs_len, &at, &x)) > 0) {
		r = add_acl_or_xattr(b, &x);
		if (r < 0)
			break;
	}
	return r;
}

/* Where a path of len bytes can be cut for prefix and name: the offset of the '/', 0 when the name
 * field holds all, -1 when it does not fit at all. */
static int split_path(const char *path, size_t len)
{
	if (len <= T_NAME_LEN)
		return 0;
	if (len > T_PREFIX_LEN + 1 + T_NAME_LEN)
		return -1;
	for (size_t i = len - T_NAME_LEN - 1; i <= T_PREFIX_LEN && i + 1 < len; i++)
		if (i > 0 && path[i] == '/')
			return (int)i;
	return -1;
}

static void put_path(unsigned char *h, const char *path, size_t len, int split)
{
	if (split > 0) {
		memcpy(h + T_PREFIX, path, (size_t)split);
		path += split + 1;
		len -= (size_t)split + 1;
	}
	memcpy(h + T_NAME, path, len < T_NAME_LEN ? len : T_NAME_LEN);
}

static bool is_utf8(const char *text, size_t len)
{
	static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};

	for (size_t i = 0; i < len;) {
		unsigned char c = (unsigned char)text[i++];
		unsigned more = c < 0x80 ? 0 : c < 0xc0 ? 9 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
		uint32_t v = more == 0 ? c : c & (0x3fU >> more);

		if (more > 3 || c > 0xf4 || more > len - i)
			return false;
		for (unsigned k = 0; k < more; k++, i++) {
			if (((unsigned char)text[i] & 0xc0) != 0x80)
				return false;
			v = v << 6 | ((unsigned char)text[i] & 0x3f);
		}
		if (v < least[more] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
			return false;
	}
	return true;
}

/* The map in front of the data: count, then offset and length each, in decimal lines, padded. */
static int add_sparse_map(struct varve_buf *b, const struct varve_member *m)
{
	/* A hole at the end is said by an empty run there. */
	bool tail =
		m->n_extents == 0 ||
		m->extents[m->n_extents - 1].offset + m->extents[m->n_extents - 1].length < m->size;
	char line[48];
	int n = snprintf(line, sizeof(line), "%" PRIu64 "\n", (uint64_t)m->n_extents + tail);
	size_t start = b->len;
	int r = varve_buf_add(b, line, (size_t)n);

	for (uint32_t i = 0; i < m->n_extents && r >= 0; i++) {
		n = snprintf(line, sizeof(line), "%" PRIu64 "\n%" PRIu64 "\n", m->extents[i].offset,
			     m->extents[i].length);
		r = varve_buf_add(b, line, (size_t)n);
	}
	if (tail && r >= 0) {
		n = snprintf(line, sizeof(line), "%" PRIu64 "\n0\n", m->size);
		r = varve_buf_add(b, line, (size_t)n);
	}
	return r < 0 ? r : varve_buf_add_zeros(b, padding(b->len - start));
}

/* What the ustar header can't hold, as records. */
static int add_records(struct varve_buf *b, const struct varve_member *m, const char *path,
		       size_t path_len, int split, uint64_t archived, bool sparse)
{
	bool long_link = S_ISLNK(m->mode) && m->size > T_LINK_LEN;
	bool long_path = split < 0;
	int r = 0;

	if (((long_path || sparse) && !is_utf8(path, path_len)) ||
	    (long_link && !is_utf8(m->target, (size_t)m->size)))
		r = add_bytes(b, "hdrcharset", "BINARY", 6);
	if (r >= 0 && sparse) {
		r = add_bytes(b, "GNU.sparse.major", "1", 1);
		if (r >= 0)
			r = add_bytes(b, "GNU.sparse.minor", "0", 1);
		if (r >= 0)
			r = add_bytes(b, "GNU.sparse.name", path, path_len);
		if (r >= 0)
			r = add_number(b, "GNU.sparse.realsize", m->size);
	} else if (r >= 0 && long_path) {
		r = add_bytes(b, "path", path, path_len);
	}
	if (r >= 0 && long_link)
		r = add_bytes(b, "linkpath", m->target, (size_t)m->size);
	if (r >= 0 && archived > OCTAL11_MAX)
		r = add_number(b, "size", archived);
	if (r >= 0 && m->uid > OCTAL7_MAX)
		r = add_number(b, "uid", m->uid);
	if (r >= 0 && m->gid > OCTAL7_MAX)
		r = add_number(b, "gid", m->gid);
	if (r >= 0 &&
	    (m->mtime_nsec > 0 || m->mtime_sec < 0 || (uint64_t)m->mtime_sec > OCTAL11_MAX))
		r = add_mtime(b, m->mtime_sec, m->mtime_nsec);
	return r < 0 ? r : add_xattrs(b, m);
}

/* The extended header: its own ustar header, then the records, padded. Nothing without records. */
static int add_extended(struct varve_buf *b, const struct varve_member *m, const char *path,
			size_t path_len, int split, uint64_t archived, bool sparse)
{
	size_t start = b->len, len;
	int r = varve_buf_add_zeros(b, VARVE_TAR_BLOCK);

	if (r < 0)
		return r;
	r = add_records(b, m, path, path_len, split, archived, sparse);
	if (r < 0)
		return r;
	len = b->len - start - VARVE_TAR_BLOCK;
	if (len == 0) {
		b->len = start;
		return 0;
	}
	if (len > OCTAL11_MAX)
		return -EFBIG;
	put_header(b->p + start, 'x', 0644, len);
	memcpy(b->p + start + T_NAME, "././@PaxHeader", 14);
	put_checksum(b->p + start);
	return varve_buf_add_zeros(b, padding(len));
}

/* bsdtar takes off what a path begins with on other systems, unless "./" stands before it. */
static bool needs_dot(const struct varve_member *m)
{
	return m->path_len > 0 && (m->path[0] == '\\' || (m->path_len > 1 && m->path[1] == ':'));
}

/* The member's name in the archive: a directory's ends in '/', the bucket's own is "./". */
static size_t archive_path(const struct varve_member *m, char *buf)
{
	size_t len = 0;

	if (m->path_len == 0)
		buf[len++] = '.';
	if (needs_dot(m)) {
		memcpy(buf, "./", 2);
		len = 2;
	}
	memcpy(buf + len, m->path, m->path_len);
	len += m->path_len;
	if (S_ISDIR(m->mode))
		buf[len++] = '/';
	return len;
}

static int add_ustar(struct varve_buf *b, const struct varve_member *m, const char *path,
		     size_t path_len, int split, uint64_t archived, bool sparse)
{
	char type = S_ISDIR(m->mode) ? '5' : S_ISLNK(m->mode) ? '2' : '0';
	int r = varve_buf_reserve(b, VARVE_TAR_BLOCK);
	unsigned char *h;

	if (r < 0)
		return r;
	h = b->p + b->len;
	put_header(h, type, m->mode & 07777, archived);
	if (sparse) /* readers that know nothing of sparse files unpack map and data here */
		memcpy(h + T_NAME, "GNUSparseFile/file", 18);
	else
		put_path(h, path, path_len, split);
	put_octal(h + T_UID, m->uid <= OCTAL7_MAX ? m->uid : 0, 7);
	put_octal(h + T_GID, m->gid <= OCTAL7_MAX ? m->gid : 0, 7);
	if (m->mtime_sec >= 0 && (uint64_t)m->mtime_sec <= OCTAL11_MAX)
		put_octal(h + T_MTIME, (uint64_t)m->mtime_sec, 11);
	if (S_ISLNK(m->mode))
		memcpy(h + T_LINK, m->target, m->size < T_LINK_LEN ? (size_t)m->size : T_LINK_LEN);
	put_checksum(h);
	b->len += VARVE_TAR_BLOCK;
	return 0;
}

int varve_pax_header(struct varve_buf *to, const struct varve_member *m)
{
	bool sparse = S_ISREG(m->mode) && varve_member_sparse(m);
	char path[VARVE_PATH_BYTES_MAX + 3];
	size_t path_len = archive_path(m, path);
	int split = split_path(path, path_len), r;
	struct varve_buf map = {0};
	uint64_t archived = 0;

	for (uint32_t i = 0; i < m->n_extents; i++)
		archived += m->extents[i].length;
	r = sparse ? add_sparse_map(&map, m) : 0;
	archived += map.len;
	if (r >= 0)
		r = add_extended(to, m, path, path_len, split, archived, sparse);
	if (r >= 0)
		r = add_ustar(to, m, path, path_len, split, archived, sparse);
	if (r >= 0)
		r = varve_buf_add(to, map.p, map.len);
	varve_buf_done(&map);
	return r;
}
