#include "fuse/ops.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "fuse/notify.h"
#include "store/view.h"

/* The page cache asks for this little only when nothing was read in order before. */
#define AT_RANDOM_MAX (32u << 10)

static void fill_opened(struct fuse_file_info *fi, const struct varve_opened *opened)
{
	fi->fh = opened->fh;
	fi->direct_io = opened->direct_io;
	fi->keep_cache = opened->keep_cache;
	varve_fuse_set_backing(fi, opened->backing);
	/* There is nothing to do at close(2), so the kernel need not ask. */
	fi->noflush = 1;
}

static void open_view(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct varve_ll *ll = varve_ll_of(req);
	uint64_t fh;
	int r = varve_views_open(ll->views, ino, fi->flags, &fh);

	if (r < 0) {
		varve_ll_reply(req, r);
		return;
	}
	fill_opened(fi, &(struct varve_opened){.fh = fh, .direct_io = true});
	if (fuse_reply_open(req, fi) < 0)
		varve_views_release(ll->views, fh);
}

void varve_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct varve_store *store = varve_ll_of(req)->store;
	struct varve_opened opened;
	int r;

	if (varve_views_is(ino)) {
		open_view(req, ino, fi);
		return;
	}
	r = varve_store_open_file(store, ino, fi->flags, &opened);
	if (r < 0) {
		varve_ll_reply(req, r);
		return;
	}
	fill_opened(fi, &opened);
	if (fuse_reply_open(req, fi) < 0)
		varve_store_release(store, opened.fh);
}

void varve_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		     struct fuse_file_info *fi)
{
	struct varve_store *store = varve_ll_of(req)->store;
	const struct varve_caller who = varve_ll_caller(req);
	struct varve_opened opened;
	struct varve_entry entry;
	struct fuse_entry_param e;
	int r = varve_ll_may_change(parent, name);

	if (r == 0)
		r = varve_store_create(store, &who, parent, name,
				       mode & ~(mode_t)(S_ISUID | S_ISGID), fi->flags, &entry,
				       &opened);
	if (r < 0) {
		varve_ll_reply(req, r);
		return;
	}
	e = varve_ll_entry(&entry);
	fill_opened(fi, &opened);
	if (fuse_reply_create(req, &e, fi) < 0) {
		varve_store_release(store, opened.fh);
		varve_store_forget(store, entry.id, 1);
	}
}

/* Straight from where it was decompressed to; false when that can't be. */
static bool reply_view(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       const struct fuse_file_info *fi)
{
	const struct varve_ll *ll = varve_ll_of(req);
	bool at_random = size <= AT_RANDOM_MAX && fi->lock_owner == 0;
	struct varve_view view;
	uint64_t fh = fi->fh;

	if (varve_store_view(ll->store, fh, size, (uint64_t)off, &view) < 0)
		return false;
	(void)fuse_reply_iov(req, view.piece, (int)view.n);
	varve_view_done(&view);
	if (at_random)
		varve_notify_read(ll->notify, ino, fh, (uint64_t)off);
	return true;
}

void varve_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		   struct fuse_file_info *fi)
{
	const struct varve_ll *ll = varve_ll_of(req);
	cleanup_free char *buf = NULL;
	ssize_t n;

	if (!varve_views_is(ino) && reply_view(req, ino, size, off, fi))
		return;
	buf = malloc(size ? size : 1);
	if (!buf)
		n = -ENOMEM;
	else if (varve_views_is(ino))
		n = varve_views_read(ll->views, fi->fh, buf, size, (uint64_t)off);
	else /* only a read(2) has a lock owner; read-ahead, mappings and splice have none */
		n = varve_store_read(ll->store, fi->fh, buf, size, (uint64_t)off,
				     fi->lock_owner == 0);
	if (n < 0)
		varve_ll_reply(req, (int)n);
	else
		(void)fuse_reply_buf(req, buf, (size_t)n);
}

void varve_op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	ssize_t n;

	/* A page written back from a shared mapping has no place in an append-only file. */
	if (varve_views_is(ino) || fi->writepage)
		n = -EPERM;
	else
		n = varve_store_write(varve_ll_of(req)->store, fi->fh, buf, size, (uint64_t)off,
				      fi->flags);
	if (n < 0)
		varve_ll_reply(req, (int)n);
	else
		(void)fuse_reply_write(req, (size_t)n);
}

void varve_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)datasync;
	varve_ll_reply(
		req, varve_views_is(ino) ? 0 : varve_store_fsync(varve_ll_of(req)->store, fi->fh));
}

void varve_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
			struct fuse_file_info *fi)
{
	varve_ll_reply(req, varve_views_is(ino)
				    ? -EPERM
				    : varve_store_fallocate(varve_ll_of(req)->store, fi->fh, mode,
							    (uint64_t)off, (uint64_t)len));
}

void varve_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct varve_ll *ll = varve_ll_of(req);

	if (varve_views_is(ino))
		varve_views_release(ll->views, fi->fh);
	else
		varve_store_release(ll->store, fi->fh);
	varve_ll_reply(req, 0);
}
