/*
 * A store's content, read from its files: for `varve ls` and `varve cat`, mounted or not. Nothing
 * is written and no lock is taken. A daemon may seal or drop what is being looked at: a bucket that
 * has moved is looked for once more.
 *
 * A place is BUCKET or BUCKET/PATH; BUCKET may be `current`.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "format/names.h"
#include "store/retention.h"

struct varve_disk;

struct varve_disk_bucket {
	char name[VARVE_BUCKET_NAME_MAX];
	int64_t start_ns, end_ns; /* the end may be the least that it can be */
	enum varve_bucket_state state;
};

struct varve_disk_entry {
	char *path; /* inside the bucket */
	size_t path_len;
	mode_t mode;
	uid_t uid;
	gid_t gid;
	uint64_t size;
	int64_t mtime_ns;
	char *target; /* of a symbolic link; else NULL */
};

struct varve_disk_list {
	struct varve_disk_entry *entries; /* in order of path, each path once */
	size_t n, size;
};

int varve_disk_open(const char *store, struct varve_disk **ret,
		    struct varve_err *err) varve_must_check;
void varve_disk_close(struct varve_disk *d); /* NULL is fine */

/* The buckets, oldest first; they live as long as d. */
size_t varve_disk_buckets(const struct varve_disk *d, const struct varve_disk_bucket **ret);

/* What is in the directory at `place` (all that is below it, when recursive), or the one file
 * there. -ENOENT: there is nothing of that name. The caller frees with _list_done. */
int varve_disk_list(struct varve_disk *d, const char *place, bool recursive,
		    struct varve_disk_list *ret, struct varve_err *err) varve_must_check;
void varve_disk_list_done(struct varve_disk_list *list);

/* Writes the content of the file at `place` to out_fd. */
int varve_disk_cat(struct varve_disk *d, const char *place, int out_fd,
		   struct varve_err *err) varve_must_check;
