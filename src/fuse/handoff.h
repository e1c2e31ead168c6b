/*
 * The operations as libfuse is given them: each does its request (the varve_op_* of the same name)
 * in place, on the loop's thread, or hands it to the workers when it may take long and must not
 * keep the loop from the others.
 *
 * In place: appends, lookups, attributes, releases, and reads that find their bytes in memory.
 * To the workers, always: reads for which something must be decompressed, and very large ones. To
 * the workers unless another thread of the loop is free: all else, so that a single caller does not
 * pay for a change of threads, and many slow requests at once never take the last thread.
 *
 * A request that is still queued at the end is answered with ENOTCONN.
 */
#pragma once

#include "fuse/loop.h"
#include "fuse/ops.h"
#include "fuse/workers.h"

struct varve_handoff; /* where requests go; one a session */

/* loop may be NULL: then nobody knows of a free thread, and all that may be slow goes to the
 * workers. loop must outlive it. 0 or -ENOMEM. */
int varve_handoff_new(struct varve_loop *loop, struct varve_handoff **ret) varve_must_check;
/* Waits for the requests being done and drops those that are queued; after this all is in place. */
void varve_handoff_stop(struct varve_handoff *h);
void varve_handoff_free(struct varve_handoff *h); /* after stop; NULL is fine */

void varve_via_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void varve_via_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void varve_via_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void varve_via_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void varve_via_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void varve_via_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		      const char *new_name, unsigned flags);
void varve_via_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		       struct fuse_file_info *fi);
void varve_via_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
			size_t size, int flags);
void varve_via_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);
void varve_via_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void varve_via_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi);
void varve_via_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi);
void varve_via_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void varve_via_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
			 struct fuse_file_info *fi);
void varve_via_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi);
void varve_via_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			   struct fuse_file_info *fi);
void varve_via_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
