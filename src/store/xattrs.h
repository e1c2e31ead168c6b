/*
 * The extended attributes of a file that are kept: user.* but the store's own (user.varve.*), and POSIX ACLs; in
 * the packed form of format/segment.h, sorted by name.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/cleanup.h"

/* What the descriptor has; *ret is malloc'ed (NULL when there are none). -E2BIG: more than a segment takes. */
int varve_xattrs_pack(int fd, unsigned char **ret, size_t *ret_len) varve_must_check;

/* Sets (value) or removes (NULL) one; flags as setxattr(2). *packed is malloc'ed, and replaced. -EEXIST, -ENODATA, -E2BIG,
 * -ENOMEM: as it was. */
int varve_xattrs_change(unsigned char **packed, size_t *len, const char *name, const void *value, size_t size,
			int flags) varve_must_check;

/* As getxattr(2) and listxattr(2) would answer: size 0 asks for the length; -ERANGE, -ENODATA. */
ssize_t varve_xattrs_get(const unsigned char *packed, size_t len, const char *name, void *buf, size_t size);
ssize_t varve_xattrs_list(const unsigned char *packed, size_t len, char *buf, size_t size);
