/*
 * One mount: libfuse's session, the loop that serves it, and its ordered end.
 *
 * The end. By umount(8): the kernel disconnects, the loop returns. By SIGTERM or SIGINT: the mount
 * is detached, so that its names vanish, and what is open is served until it is closed, at most
 * VARVE_SESSION_GRACE_S (a second signal: not at all), then the loop is told to return. In both
 * cases the notify thread ends while there is still someone to answer it (or no connection), then
 * the connection is closed; what the store does at its end comes after that and is the caller's.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "store/store.h"

#define VARVE_SESSION_GRACE_S 5

struct varve_session;

struct varve_session_params {
	struct varve_store *store;
	const char *mountpoint;   /* as varve_mountpoint_prepare gave it */
	const char *fuse_options; /* libfuse's -o argument */
	unsigned max_read;        /* as said in fuse_options */
	bool debug;               /* libfuse prints every request */
	bool auto_unmount;        /* also when the daemon is killed */
	bool io_uring;            /* asked for; without it where it can't be had, which is said */
};

/* Blocks SIGTERM, SIGINT and SIGHUP in this thread and all that it starts, and ignores SIGPIPE: the
 * session has a thread that waits for them. Before the first thread starts. */
void varve_session_block_signals(void);

/* Everything but the mount. Starts no thread. The strings are copied. */
int varve_session_new(const struct varve_session_params *params, struct varve_session **ret,
		      struct varve_err *err) varve_must_check;
/* What to tell the store to call; they queue, and never block. Valid until varve_session_free,
 * which therefore comes after varve_store_close. */
struct varve_store_events varve_session_events(struct varve_session *s);

/* What lets the kernel write to parts by itself; valid likewise. */
struct varve_store_kernel varve_session_kernel(struct varve_session *s);

/* Mounts. From here on what touches the mountpoint waits until varve_session_run serves it. */
int varve_session_mount(struct varve_session *s, struct varve_err *err) varve_must_check;
/* Takes the mount off again when varve_session_run was not called. */
void varve_session_unmount(struct varve_session *s);

/* Serves until the mount is gone. Calls ready(ctx), from a thread of its own, once the mount
 * answers. To be called by the main thread. */
int varve_session_run(struct varve_session *s, void (*ready)(void *ctx), void *ctx,
		      struct varve_err *err) varve_must_check;

void varve_session_free(struct varve_session *s); /* NULL is fine */
