/*
 * The range record, meta/ranges: which range of a part is whose, while a carried part belongs to more than one
 * bucket. Pure data and its form on disk (docs/format.md); no knowledge of nodes. Parsed as hostile input.
 *
 * Threads: none; the caller serialises.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "format/names.h"
#include "store/policy.h"
#include "store/slots.h"

#define VARVE_RANGES_MAGIC "VARVERNG"
#define VARVE_RANGES_VERSION 1

/* One bucket's file on a part. Key: bucket and part. */
struct varve_range {
	char bucket[VARVE_BUCKET_NAME_MAX];
	char class_name[VARVE_CLASS_NAME_MAX], tablet[VARVE_CLASS_NAME_MAX];
	uint64_t part; /* the number that is noted on the part (user.varve.ino) */
	uint64_t ino;  /* st_ino of this bucket's file */
	uint64_t head;
	uint64_t end;			/* UINT64_MAX: to the part's end, the bucket is current */
	bool head_pending, end_pending; /* the offset is the part's size at the boundary: see mark.h */
	bool begun;			/* it was truncated: it is there, also when it holds nothing */
	uint32_t mode, uid, gid;	/* permissions and owner; with an end: as of the boundary */
	int64_t mtime_ns;
	char *path;	       /* in the bucket, as of when it was written */
	unsigned char *xattrs; /* packed, as of the boundary; see store/xattrs.h */
	size_t xattrs_len;
};

struct varve_ranges {
	struct varve_range *list;
	size_t n, size;
	bool sorted;
	/* Whether all hard links into this bucket were made when the record was written. */
	char links_bucket[VARVE_BUCKET_NAME_MAX];
	bool links_done;
};

void varve_ranges_init(struct varve_ranges *l);
void varve_ranges_done(struct varve_ranges *l);

/* Adds a copy of e. -ENOMEM. */
int varve_ranges_add(struct varve_ranges *l, const struct varve_range *e) varve_must_check;
/* The entry, until the list is changed; NULL: none. */
const struct varve_range *varve_ranges_find(struct varve_ranges *l, const char *bucket, uint64_t part);
/* Removes what is not wanted. How many went. */
size_t varve_ranges_keep(struct varve_ranges *l, bool (*wanted)(void *ctx, const struct varve_range *e), void *ctx);
/* How many went. */
size_t varve_ranges_remove_bucket(struct varve_ranges *l, const char *bucket);
/* The lowest head of a part's entries; false: it has none. Quick until an entry is added behind the last _find. */
bool varve_ranges_lowest_head(const struct varve_ranges *l, uint64_t part, uint64_t *ret);

/* The record's payload; *ret is malloc'ed. -ENOMEM, -EFBIG. */
int varve_ranges_encode(const struct varve_ranges *l, unsigned char **ret, size_t *ret_len) varve_must_check;
/* -EBADMSG: it is no record; -EPROTONOSUPPORT: of a later version. On failure *ret is empty. */
int varve_ranges_decode(const unsigned char *data, size_t len, struct varve_ranges *ret) varve_must_check;

/* Reads meta/ranges into *ret; a store without one has an empty record. *slots stays NULL until there is a file,
 * and is the caller's, for _save, to be closed with varve_slots_close. -EBADMSG: damaged; -EPROTONOSUPPORT. */
int varve_ranges_load(struct varve_ranges *ret, struct varve_slots **slots, int meta_fd,
		      struct varve_err *err) varve_must_check;
/* The same for those who only look, with a daemon there or without: see varve_slots_peek. Also -EPROTONOSUPPORT. */
int varve_ranges_peek(struct varve_ranges *ret, int meta_fd) varve_must_check;
/* Makes the file where there is none, so that the first record needs no space either. */
int varve_ranges_reserve(struct varve_slots **slots, int meta_fd) varve_must_check;
/* Replaces the record, durably; an empty one makes no file. The file grows in large steps, and a write that fits
 * needs no space. */
int varve_ranges_save(const struct varve_ranges *l, struct varve_slots **slots, int meta_fd) varve_must_check;
