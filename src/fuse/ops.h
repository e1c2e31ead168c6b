/*
 * The low-level operations: each decodes its request, makes one call of the store (or of the views
 * in .varve/) and replies once. Nothing that the reply may free is touched after it.
 *
 * Identity. A fuse_ino_t is the store's id as it is; the store counts the references that
 * varve_ll_reply_entry hands to the kernel. Ids with VARVE_ID_VIEW are the views': they live for
 * ever and are not counted. fi->fh is the store's handle or, for an id of the views, theirs.
 */
#pragma once

#include "fuse/compat.h"
#include "fuse/views.h"
#include "store/store.h"

struct varve_handoff; /* fuse/handoff.h */
struct varve_notify;  /* fuse/notify.h */

/* What every operation is given as its user data; immutable once the session is made. */
struct varve_ll {
	struct varve_store *store;
	struct varve_views *views;
	struct varve_handoff *handoff;
	struct varve_notify *notify;
	unsigned max_read; /* what the mount option max_read said; 0: nothing */
};

/* -- shared by the ops_*.c files -- */

static inline struct varve_ll *varve_ll_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* Who asks. */
struct varve_caller varve_ll_caller(fuse_req_t req);
/* A time-out in seconds. Finite ones are cut by 10 ms, since the kernel rounds up to a tick and
 * counts from the reply's arrival: a name must not outlive its boundary. */
double varve_ll_seconds(int64_t ns);
/* Replies with r, 0 or a negative errno of the store. */
void varve_ll_reply(fuse_req_t req, int r);
struct fuse_entry_param varve_ll_entry(const struct varve_entry *entry);
/* Replies with the entry, or with r when that is negative. If the kernel does not take the reply,
 * the entry's reference goes back to the store. */
void varve_ll_reply_entry(fuse_req_t req, int r, const struct varve_entry *entry);
/* -EROFS when the parent is the views' folder, -EPERM when the name is that folder's own. */
int varve_ll_may_change(uint64_t parent, const char *name);

/* -- ops_name.c -- */

void varve_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void varve_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n);
void varve_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void varve_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void varve_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void varve_op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void varve_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name);
void varve_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void varve_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void varve_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		     const char *new_name, unsigned flags);
void varve_op_readlink(fuse_req_t req, fuse_ino_t ino);

/* -- ops_attr.c -- */

void varve_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void varve_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		      struct fuse_file_info *fi);
void varve_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void varve_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void varve_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		       size_t size, int flags);
void varve_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);
void varve_op_statfs(fuse_req_t req, fuse_ino_t ino);

/* -- ops_file.c -- */

void varve_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void varve_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		     struct fuse_file_info *fi);
void varve_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		   struct fuse_file_info *fi);
void varve_op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		    struct fuse_file_info *fi);
void varve_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void varve_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
			struct fuse_file_info *fi);
void varve_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);

/* -- ops_dir.c -- */

void varve_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void varve_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		      struct fuse_file_info *fi);
void varve_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			  struct fuse_file_info *fi);
void varve_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void varve_op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
