/*
 * The mount option io_uring: requests come over a ring for each processor instead of by read(2)
 * from /dev/fuse. libfuse does that; here is whether it can, and the loop that goes with it.
 *
 * On a ring, a request is handled by a thread bound to the processor that asked, and keeps that
 * processor's other requests waiting: so all that may be slow goes to the workers.
 */
#pragma once

#include "fuse/compat.h"

/* Why io_uring can't be had on this machine; NULL: nothing is known against it. (Whether the kernel
 * offers it for the mount is told by FUSE's INIT.) */
const char *varve_uring_obstacle(void);

/* Whether the kernel, at INIT, offers it. */
bool varve_uring_offered(const struct fuse_conn_info *conn);

/* As varve_loop_run, for a session with libfuse's option io_uring; fuse_session_exit ends it. */
int varve_uring_run(struct fuse_session *se);
