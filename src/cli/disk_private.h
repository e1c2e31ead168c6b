/* Shared by disk.c (buckets and places), disk_list.c and disk_cat.c; nobody else's. */
#pragma once

#include "base/sys.h"
#include "cli/disk.h"
#include "store/cache.h"
#include "store/ranges.h"
#include "store/segment.h"
#include "store/tombs.h"

struct varve_disk {
	int fd; /* STORE */
	struct varve_cache *cache;
	struct varve_disk_bucket *buckets;
	size_t n_buckets, size;
	struct varve_ranges ranges; /* as of the last scan */
};

/* A place, taken apart: the bucket it is in and the path inside. */
struct varve_place_of {
	const char *text;
	const struct varve_disk_bucket
		*bucket; /* NULL: current/, but nothing was written to it yet */
	bool current;
	const char *path; /* path_len bytes count: no slash at the end */
	size_t path_len;
};

/* Reads the names of the buckets (again). */
int varve_disk_scan(struct varve_disk *d) varve_must_check;
int varve_disk_place(const struct varve_disk *d, const char *text, struct varve_place_of *ret,
		     struct varve_err *err) varve_must_check;

/* Calls cb for each name in a folder below the store, "." and ".." left out; another result than 0
 * ends the walk and is its result. */
typedef int varve_disk_name_cb(struct varve_disk *d, const char *name, void *ctx);
int varve_disk_each_name(struct varve_disk *d, const char *path, varve_disk_name_cb *cb,
			 void *ctx) varve_must_check;

/* Given the path of a tablet: a segment file, or a folder of parts. Another result than 0 ends the
 * walk and is its result. */
typedef int varve_disk_tablet_cb(struct varve_disk *d, const char *path, const char *class_name,
				 const char *tablet, void *ctx);
/* Each tablet of the place's bucket: `sealed` or `plain`, by the bucket's state. */
int varve_disk_each_tablet(struct varve_disk *d, const struct varve_place_of *p,
			   varve_disk_tablet_cb *sealed, varve_disk_tablet_cb *plain, void *ctx);

/* What a part in open/BUCKET holds of the bucket: all of it, or, of a part that writers took over a boundary, a
 * range; and behind that what came late. */
struct varve_disk_part {
	uint64_t head, end; /* offsets in the part */
	uint64_t size;	    /* with what came late */
	int late_fd;	    /* -1: nothing did */
	const struct varve_range *range; /* until the next scan; NULL: it is not shared */
};

/* Whether a part or folder does not count yet: it was made when a stream was opened (user.varve.opened). What it
 * holds, it counts for. */
bool varve_disk_is_opened(int fd);

/* fd: the part, open for reading; st: its stat, which becomes that of the bucket's file. The caller closes late_fd. */
int varve_disk_part(struct varve_disk *d, const char *bucket, int fd, struct stat *st,
		    struct varve_disk_part *ret) varve_must_check;
/* Reads as pread(2) does. */
ssize_t varve_disk_part_read(const struct varve_disk_part *p, int fd, void *buf, size_t size,
			     uint64_t off);
/* Whether the bucket is still read from its parts: once it is sealed or dropped, what was read may be a hole that
 * the daemon has made by then. */
bool varve_disk_still_plain(const struct varve_disk *d, const char *bucket);

/* The bucket's tombstones; NULL when it has none. */
int varve_disk_tombs(struct varve_disk *d, const struct varve_place_of *p, struct varve_tombs **ret,
		     struct varve_err *err) varve_must_check;
/* "0.tar.zst" -> "0", malloc'ed; NULL: not a segment's name. */
char *varve_disk_tablet_of(const char *name);
/* An unsealed symbolic link is a file that holds the target: that, malloc'ed, or NULL: a plain
 * file. */
char *varve_disk_link_target(int fd, off_t size);
