/*
 * The virtual files of MOUNTPOINT/.varve/: status.json and metrics. Read-only, for the store's
 * owner, not listed in the root. Their content is made when they are opened and stays as it is for
 * that handle. Their ids have VARVE_ID_VIEW set, live for ever and are not counted.
 *
 * Threads: everything here may be called from any thread; no lock is held over a call of the store.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "store/store.h"

#define VARVE_ID_VIEW (UINT64_C(1) << 61)
#define VARVE_VIEWS_NAME ".varve"

struct varve_views;

/* The store must outlive the views. -ENOMEM, or -errno of looking up who owns the store. */
int varve_views_new(struct varve_store *store, struct varve_views **ret) varve_must_check;
/* Open handles count as released. NULL is fine. */
void varve_views_free(struct varve_views *v);

static inline bool varve_views_is(uint64_t id)
{
	return id & VARVE_ID_VIEW;
}

/* Whether a lookup of this name is the views' to answer: .varve in the root, anything in .varve. */
bool varve_views_covers(uint64_t parent, const char *name);
/* -ENOENT: no such view. The entry carries no reference. */
int varve_views_lookup(struct varve_views *v, uint64_t parent, const char *name,
		       struct varve_entry *ret);
/* fh 0: by name, with the size that the content would have now; else of that handle. */
int varve_views_getattr(struct varve_views *v, uint64_t id, uint64_t fh, struct stat *ret);
/* flags as open(2); -EROFS unless for reading only. */
int varve_views_open(struct varve_views *v, uint64_t id, int flags, uint64_t *ret_fh);
ssize_t varve_views_read(struct varve_views *v, uint64_t fh, void *buf, size_t size, uint64_t off);
void varve_views_release(struct varve_views *v, uint64_t fh);
/* As varve_store_readdir, of .varve itself. */
int varve_views_readdir(struct varve_views *v, uint64_t off, varve_readdir_cb *cb, void *ctx);
