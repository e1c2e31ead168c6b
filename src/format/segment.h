/*
 * What a segment is made of, in memory. docs/format.md has the bytes; format/layout.h the offsets.
 * The encoder (format/segment_enc.h) takes members in index order, the decoder
 * (format/segment_dec.h) gives them back.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define VARVE_PATH_BYTES_MAX 4095 /* a path inside a bucket, without a NUL */
#define VARVE_XATTR_NAME_MAX 255
#define VARVE_FRAME_BYTES (UINT32_C(2) << 20)      /* tar stream per frame when written */
#define VARVE_FRAME_BYTES_MAX (UINT32_C(16) << 20) /* refused beyond, when read */

/* A run of bytes of a file that is not a hole. Ascending, not touching, within the file's size. */
struct varve_extent {
	uint64_t offset;
	uint64_t length;
};

/* One file, directory or symbolic link of a bucket. Pointers belong to whoever filled it in: for
 * the decoder they live as long as the index. Paths are byte strings: no leading or trailing '/',
 * no empty, "." or ".." component, no NUL, not necessarily UTF-8. The bucket's own directory is the
 * member with the empty path and always comes first. */
struct varve_member {
	const char *path;
	uint32_t path_len;
	uint32_t mode; /* type and permissions: S_IFREG, S_IFDIR or S_IFLNK */
	uint32_t uid;
	uint32_t gid;
	int64_t mtime_sec; /* may be negative */
	uint32_t mtime_nsec;
	uint64_t ino;       /* st_ino, for life */
	uint64_t size;      /* of a file's content; of a link's target */
	const char *target; /* symbolic link only, size bytes */
	const unsigned char
		*xattrs;     /* packed: u16 name length, u32 value length, name, value; ... */
	uint32_t xattrs_len; /* user.* and system.posix_acl_* of the file, none of varve's own */
	const struct varve_extent
		*extents; /* file only; a file without holes has one, an empty one none */
	uint32_t n_extents;
	unsigned char
		digest[16]; /* XXH3-128 (canonical, big-endian) of the content, of a link's target;
			     * zeros for a directory; with holes: see format/digest.h */
};

/* The order of members in a segment and in its index: byte by byte, '/' below every other byte, so
 * that a directory is followed at once by all that is in it. Returns <0, 0, >0. */
int varve_path_compare(const char *a, size_t a_len, const char *b, size_t b_len);

/* 0 when the path may stand in a segment (see struct varve_member), else -EINVAL. */
int varve_path_check(const char *path, size_t len);

/* 0 when everything in m is as struct varve_member says (the digest aside), else -EINVAL with the
 * reason in err. Extents: ascending, apart, not empty, within the size. */
int varve_member_check(const struct varve_member *m, struct varve_err *err) varve_must_check;

/* One extended attribute in the packed form. */
struct varve_xattr {
	const char *name; /* name_len bytes, no NUL */
	const unsigned char *value;
	uint32_t name_len;
	uint32_t value_len;
};

/* Goes through packed attributes: *at starts at 0. 1 and the next one, 0 at the end, -EINVAL when
 * the bytes are no packed attributes. */
int varve_xattr_next(const unsigned char *xattrs, uint32_t len, uint32_t *at,
		     struct varve_xattr *ret);

/* Appends one attribute to a packed run with room for room bytes, of which *len are in use: 0, or
 * -ENOSPC (nothing was written; varve_xattr_packed_size says what it takes). */
int varve_xattr_put(unsigned char *xattrs, size_t room, size_t *len, const char *name,
		    const void *value, uint32_t value_len) varve_must_check;
size_t varve_xattr_packed_size(const char *name, uint32_t value_len);

/* Widens extents to whole blocks of 512 bytes (the last may end with the file) and joins those that
 * then touch, in place; returns how many are left. They were checked before. */
uint32_t varve_extents_align(struct varve_extent *extents, uint32_t n, uint64_t size);
