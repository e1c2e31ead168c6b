/*
 * Passthrough: what lets the kernel write to parts by itself, for the store (struct varve_store_kernel).
 *
 * Whether it can be used is found out by and by, and said by the store's mode: libfuse must know it, the kernel must
 * offer it, and take a file of the store.
 */
#pragma once

#include <stdbool.h>

#include "fuse/compat.h"
#include "store/store.h"

struct varve_passthrough {
	struct fuse_session *se; /* once it is made */
	struct varve_store *store;
	bool offered; /* by the kernel, at INIT; immutable then */
};

/* For varve_store_set_kernel; p outlives the store. */
struct varve_store_kernel varve_passthrough_kernel(struct varve_passthrough *p);

/* At INIT: asks the kernel for it, if the store wants it. */
void varve_passthrough_init(struct varve_passthrough *p, struct fuse_conn_info *conn);

/* Once the kernel has had the answer to INIT: tries whether it takes a file of the store, so that the mount can say how
 * writes are served. Any thread; no lock held. */
void varve_passthrough_try(struct varve_passthrough *p);
