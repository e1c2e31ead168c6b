/*
 * The loop: threads that take requests from /dev/fuse and handle each to its reply, or to where it
 * is handed to the workers.
 *
 * `base` threads do all of it as long as no handler stays long: few, since each request wakes the
 * thread that has waited longest, and with many that is always a cold one. A handler may
 * nonetheless be held up by what nobody foresaw (a throttled disk, a lock that waits for one): when
 * all threads have been at the same requests for VARVE_LOOP_STUCK_MS, one more is begun, up to
 * VARVE_LOOP_MAX; it ends when enough others are free again. What watches for this ticks only while
 * all threads are busy now and then, so an idle mount wakes nobody.
 *
 * Memory: each thread's request buffer is as large as the largest write (1 MiB) but resident only
 * as far as it was ever filled.
 *
 * The threads are interrupted by SIGUSR1, for which the process must have a handler (without
 * SA_RESTART) that does nothing.
 */
#pragma once

#include "base/err.h"
#include <stdbool.h>

#include "base/cleanup.h"
#include "fuse/compat.h"

#define VARVE_LOOP_MAX 32
#define VARVE_LOOP_STUCK_MS 3

struct varve_loop;

/* Takes requests of se with `base` threads (1 to VARVE_LOOP_MAX). Starts none yet. 0 or -ENOMEM. */
int varve_loop_new(struct fuse_session *se, unsigned base,
		   struct varve_loop **ret) varve_must_check;

/* Serves until the mount is gone or varve_loop_stop; all threads have ended when it returns. 0, or
 * what reading /dev/fuse failed with, or -EAGAIN when there is no thread to be had. Once only. */
int varve_loop_run(struct varve_loop *loop);

/* Whether a thread is there to take the next request while the caller, a handler, goes on with its
 * own. */
bool varve_loop_spare(const struct varve_loop *loop);

/* Has varve_loop_run return once the handlers that run now have. From any thread. */
void varve_loop_stop(struct varve_loop *loop);

void varve_loop_free(struct varve_loop *loop); /* NULL is fine; not while it runs */
