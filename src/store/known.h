/*
 * meta/sealed: what the last mount knew of its sealed buckets, so that the next one need not look
 * into each of them. Derived: what it does not have, or has of another directory of that name (the
 * backing filesystem's inode number tells), is read from the bucket itself.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "format/names.h"

struct varve_known_bucket {
	char name[VARVE_BUCKET_NAME_MAX];
	uint64_t dir_ino; /* st_ino of sealed/NAME */
	uint64_t ino, files, bytes;
	uint64_t allocated; /* bytes that its segments take */
	int64_t start_ns, end_ns;
	/* Its directory's, if it has no extended attributes; mode 0: see the segment. */
	uint32_t mode, uid, gid;
	int64_t mtime_sec;
	uint32_t mtime_nsec;
};

/* Reads the list, sorted by name; the caller frees *ret. -ENOENT: there is none; -EBADMSG: it makes
 * no sense. */
int varve_known_read(int meta_fd, struct varve_known_bucket **ret, size_t *ret_n);
/* NULL: not in the list, or of another directory. */
const struct varve_known_bucket *varve_known_find(const struct varve_known_bucket *list, size_t n,
						  const char *name, uint64_t dir_ino);
/* Replaces the list, durably. It is sorted in place. */
int varve_known_write(int meta_fd, struct varve_known_bucket *list, size_t n);

struct varve_store;
/* How many buckets may be sealed, or go, until the list is written while the store runs. */
#define VARVE_KNOWN_CHANGES_MAX 64
/* Writes down what the store knows now; does nothing when that has been done. Errors are logged: the
 * list only saves time. ns not held. */
void varve_known_keep(struct varve_store *s);
