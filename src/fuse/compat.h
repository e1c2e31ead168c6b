/*
 * The one place that knows which libfuse it is built against: 3.18 (our subproject) or a
 * distribution's from 3.14 on. Everything else in fuse/ includes this, not libfuse's headers.
 */
#pragma once

#define FUSE_USE_VERSION FUSE_MAKE_VERSION(3, 14)
#include <fuse_lowlevel.h>

#include <stdbool.h>
#include <stdint.h>

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)

/* Asks for a capability if the kernel has it; returns whether it does. */
static inline bool varve_fuse_want(struct fuse_conn_info *conn, uint64_t cap)
{
	return fuse_set_feature_flag(conn, cap);
}

static inline void varve_fuse_unwant(struct fuse_conn_info *conn, uint64_t cap)
{
	fuse_unset_feature_flag(conn, cap);
}

#define VARVE_FUSE_CAP_KILLPRIV_V2 ((uint64_t)FUSE_CAP_HANDLE_KILLPRIV_V2)
#define VARVE_FUSE_CAP_PASSTHROUGH ((uint64_t)FUSE_CAP_PASSTHROUGH)

/* The number that the kernel may write to by itself; 0: none. */
static inline void varve_fuse_set_backing(struct fuse_file_info *fi, int backing)
{
	fi->backing_id = backing;
}

/* No handler of ours looks for interrupts: the kernel need not send them. */
static inline void varve_fuse_no_interrupt(struct fuse_conn_info *conn)
{
	conn->no_interrupt = 1;
}

#else

static inline bool varve_fuse_want(struct fuse_conn_info *conn, uint64_t cap)
{
	if (!cap || (conn->capable & cap) != cap)
		return false;
	conn->want |= (unsigned)cap;
	return true;
}

static inline void varve_fuse_unwant(struct fuse_conn_info *conn, uint64_t cap)
{
	conn->want &= ~(unsigned)cap;
}

#define VARVE_FUSE_CAP_KILLPRIV_V2 UINT64_C(0)
#define VARVE_FUSE_CAP_PASSTHROUGH UINT64_C(0)

static inline void varve_fuse_set_backing(struct fuse_file_info *fi, int backing)
{
	(void)fi;
	(void)backing;
}

static inline void varve_fuse_no_interrupt(struct fuse_conn_info *conn)
{
	(void)conn;
}

#endif
