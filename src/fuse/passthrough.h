/*
 * Passthrough: what lets the kernel write to parts by itself, for the store (struct varve_store_kernel).
 *
 * Whether it can be used is found out by and by, and said by the store's mode: libfuse must know it, the kernel must
 * offer it, and take a file of the store.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "fuse/compat.h"
#include "store/store.h"

struct varve_passthrough {
	pthread_mutex_t lock;	 /* a leaf: se; held over one ioctl */
	struct fuse_session *se; /* from when it is made until it ends; then NULL */
	struct varve_store *store;
	bool offered; /* by the kernel, at INIT; immutable then */
};

/* The session is about to end: with its connection all that the kernel was told of parts is gone. */
void varve_passthrough_end(struct varve_passthrough *p);

/* For varve_store_set_kernel; p outlives the store. */
struct varve_store_kernel varve_passthrough_kernel(struct varve_passthrough *p);

/* At INIT: asks the kernel for it, if the store wants it. */
void varve_passthrough_init(struct varve_passthrough *p, struct fuse_conn_info *conn);

/* Once the kernel has had the answer to INIT: tries whether it takes a file of the store, so that the mount can say how
 * writes are served. Any thread; no lock held. */
void varve_passthrough_try(struct varve_passthrough *p);
