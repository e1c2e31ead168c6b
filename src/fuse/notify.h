/*
 * Tells the kernel that what it has cached is no longer so. One thread of its own does the telling,
 * since the kernel takes locks for it that a request being served may hold: never call libfuse's
 * notify functions from anywhere else.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

struct fuse_session;
struct varve_notify;
struct varve_store;

/* store: for varve_notify_read; outlives it, as far as reads go on. 0 or -ENOMEM. */
int varve_notify_new(struct varve_store *store, struct varve_notify **ret) varve_must_check;

/* Starts the thread. Before that, what is queued waits. */
int varve_notify_start(struct varve_notify *n, struct fuse_session *se,
		       struct varve_err *err) varve_must_check;

/* Queue one message; never block on the kernel. Any thread. A message that finds 2^18 others
 * waiting, or no memory, is lost, which is logged once. After stop they do nothing. */
void varve_notify_entry_gone(struct varve_notify *n, uint64_t parent_id, const char *name);
void varve_notify_inode_changed(struct varve_notify *n, uint64_t id);

/* Little of a sealed file, at off, was read by its node `id` and handle fh, and answered: has the
 * kernel keep all that was decompressed for it. A courtesy: dropped when there is much of it. */
void varve_notify_read(struct varve_notify *n, uint64_t id, uint64_t fh, uint64_t off);

/* Ends the thread; what still waits is thrown away. The session must still be served by others, or
 * be disconnected, since the message under way needs answers. May be called twice. */
void varve_notify_stop(struct varve_notify *n);
void varve_notify_free(struct varve_notify *n); /* after stop; NULL is fine */
