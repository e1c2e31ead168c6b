#include "fuse/ops.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"

static void reply_attr(fuse_req_t req, int r, const struct stat *attr, int64_t valid_ns)
{
	if (r < 0)
		varve_ll_reply(req, r);
	else
		(void)fuse_reply_attr(req, attr, varve_ll_seconds(valid_ns));
}

void varve_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct varve_ll *ll = varve_ll_of(req);
	uint64_t fh = fi ? fi->fh : 0;
	int64_t valid_ns = 0;
	struct stat attr;
	int r;

	if (varve_views_is(ino))
		r = varve_views_getattr(ll->views, ino, fh, &attr);
	else
		r = varve_store_getattr(ll->store, ino, fh, &attr, &valid_ns);
	reply_attr(req, r, &attr, valid_ns);
}

/* What libfuse says is to be set, in the store's words; times that are "now" are marked in attr. */
static unsigned decode_set(struct stat *attr, int to_set)
{
	static const struct {
		int from;
		unsigned to;
	} map[] = {
		{FUSE_SET_ATTR_MODE, VARVE_SET_MODE},
		{FUSE_SET_ATTR_UID, VARVE_SET_UID},
		{FUSE_SET_ATTR_GID, VARVE_SET_GID},
		{FUSE_SET_ATTR_SIZE, VARVE_SET_SIZE},
		{FUSE_SET_ATTR_ATIME, VARVE_SET_ATIME},
		{FUSE_SET_ATTR_MTIME, VARVE_SET_MTIME},
		{FUSE_SET_ATTR_ATIME_NOW, VARVE_SET_ATIME},
		{FUSE_SET_ATTR_MTIME_NOW, VARVE_SET_MTIME},
	};
	unsigned set = 0;

	for (size_t i = 0; i < sizeof(map) / sizeof(map[0]); i++)
		if (to_set & map[i].from)
			set |= map[i].to;
	if (to_set & FUSE_SET_ATTR_ATIME_NOW)
		attr->st_atim.tv_nsec = UTIME_NOW;
	if (to_set & FUSE_SET_ATTR_MTIME_NOW)
		attr->st_mtim.tv_nsec = UTIME_NOW;
	return set;
}

void varve_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		      struct fuse_file_info *fi)
{
	struct varve_store *store = varve_ll_of(req)->store;
	uint64_t fh = fi ? fi->fh : 0;
	unsigned set = decode_set(attr, to_set);
	int64_t valid_ns = 0;
	struct stat now;
	int r;

	/* With KILLPRIV_V2 these bits are ours to clear; a file of ours never has them. */
	if ((set & VARVE_SET_MODE) && S_ISREG(attr->st_mode))
		attr->st_mode &= ~(mode_t)(S_ISUID | S_ISGID);
	if (varve_views_is(ino))
		r = -EROFS;
	else if (set)
		r = varve_store_setattr(store, ino, fh, attr, set, &now, &valid_ns);
	else
		r = varve_store_getattr(store, ino, fh, &now, &valid_ns);
	reply_attr(req, r, &now, valid_ns);
}

/* Both list and get: size 0 asks for the length. */
static void reply_xattr(fuse_req_t req, ssize_t n, const char *buf, size_t size)
{
	if (n < 0)
		varve_ll_reply(req, (int)n);
	else if (size == 0)
		(void)fuse_reply_xattr(req, (size_t)n);
	else
		(void)fuse_reply_buf(req, buf, (size_t)n);
}

void varve_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	cleanup_free char *buf = size ? malloc(size) : NULL;
	ssize_t n;

	if (size && !buf)
		n = -ENOMEM;
	else if (varve_views_is(ino))
		n = -EOPNOTSUPP;
	else
		n = varve_store_getxattr(varve_ll_of(req)->store, ino, name, buf, size);
	reply_xattr(req, n, buf, size);
}

void varve_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	cleanup_free char *buf = size ? malloc(size) : NULL;
	ssize_t n;

	if (size && !buf)
		n = -ENOMEM;
	else if (varve_views_is(ino))
		n = 0;
	else
		n = varve_store_listxattr(varve_ll_of(req)->store, ino, buf, size);
	reply_xattr(req, n, buf, size);
}

void varve_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		       size_t size, int flags)
{
	const struct varve_caller who = varve_ll_caller(req);

	varve_ll_reply(req, varve_views_is(ino)
				    ? -EROFS
				    : varve_store_setxattr(varve_ll_of(req)->store, &who, ino, name,
							   value, size, flags));
}

void varve_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	const struct varve_caller who = varve_ll_caller(req);

	varve_ll_reply(req, varve_views_is(ino) ? -EROFS
						: varve_store_removexattr(varve_ll_of(req)->store,
									  &who, ino, name));
}

void varve_op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs vfs;
	int r = varve_store_statfs(varve_ll_of(req)->store, &vfs);

	(void)ino;
	if (r < 0)
		varve_ll_reply(req, r);
	else
		(void)fuse_reply_statfs(req, &vfs);
}
