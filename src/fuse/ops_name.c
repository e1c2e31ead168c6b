#include "fuse/ops.h"

#include <errno.h>
#include <limits.h>

void varve_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const struct varve_ll *ll = varve_ll_of(req);
	struct varve_entry entry;
	int r;

	if (varve_views_covers(parent, name))
		r = varve_views_lookup(ll->views, parent, name, &entry);
	else
		r = varve_store_lookup(ll->store, parent, name, &entry);
	varve_ll_reply_entry(req, r, &entry);
}

static void forget(const struct varve_ll *ll, uint64_t id, uint64_t n)
{
	if (!varve_views_is(id))
		varve_store_forget(ll->store, id, n);
}

void varve_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	forget(varve_ll_of(req), ino, n);
	fuse_reply_none(req);
}

void varve_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	const struct varve_ll *ll = varve_ll_of(req);

	for (size_t i = 0; i < count; i++)
		forget(ll, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

void varve_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	const struct varve_caller who = varve_ll_caller(req);
	struct varve_entry entry;
	int r = varve_ll_may_change(parent, name);

	if (r == 0)
		r = varve_store_mkdir(varve_ll_of(req)->store, &who, parent, name, mode, &entry);
	varve_ll_reply_entry(req, r, &entry);
}

void varve_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	const struct varve_caller who = varve_ll_caller(req);
	struct varve_entry entry;
	int r = varve_ll_may_change(parent, name);

	(void)rdev;
	if (r == 0)
		r = varve_store_mknod(varve_ll_of(req)->store, &who, parent, name,
				      mode & ~(mode_t)(S_ISUID | S_ISGID), &entry);
	varve_ll_reply_entry(req, r, &entry);
}

void varve_op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	const struct varve_caller who = varve_ll_caller(req);
	struct varve_entry entry;
	int r = varve_ll_may_change(parent, name);

	if (r == 0)
		r = varve_store_symlink(varve_ll_of(req)->store, &who, target, parent, name,
					&entry);
	varve_ll_reply_entry(req, r, &entry);
}

/* Left out, this would be ENOSYS on some kernels; EPERM is what filesystems without hard links say.
 */
void varve_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	(void)ino;
	(void)parent;
	(void)name;
	varve_ll_reply(req, -EPERM);
}

void varve_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const struct varve_caller who = varve_ll_caller(req);
	int r = varve_ll_may_change(parent, name);

	if (r == 0)
		r = varve_store_unlink(varve_ll_of(req)->store, &who, parent, name);
	varve_ll_reply(req, r);
}

void varve_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const struct varve_caller who = varve_ll_caller(req);
	int r = varve_ll_may_change(parent, name);

	if (r == 0)
		r = varve_store_rmdir(varve_ll_of(req)->store, &who, parent, name);
	varve_ll_reply(req, r);
}

void varve_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		     const char *new_name, unsigned flags)
{
	int r = varve_ll_may_change(parent, name);

	if (r == 0)
		r = varve_ll_may_change(new_parent, new_name);
	if (r == 0)
		r = varve_store_rename(varve_ll_of(req)->store, parent, name, new_parent, new_name,
				       flags);
	varve_ll_reply(req, r);
}

void varve_op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char target[PATH_MAX + 1];
	int r = varve_views_is(ino) ? -EINVAL
				    : varve_store_readlink(varve_ll_of(req)->store, ino, target,
							   sizeof(target));

	if (r < 0)
		varve_ll_reply(req, r);
	else
		(void)fuse_reply_readlink(req, target);
}
