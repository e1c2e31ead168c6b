#include "fuse/ops.h"

#include <errno.h>
#include <string.h>

struct varve_caller varve_ll_caller(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return (struct varve_caller){
		.uid = ctx->uid,
		.gid = ctx->gid,
		.pid = ctx->pid,
		.umask = ctx->umask,
	};
}

double varve_ll_seconds(int64_t ns)
{
	const int64_t slack_ns = 10 * 1000 * 1000;

	if (ns == INT64_MAX)
		return 1e9; /* 30 years: for ever, and no overflow in the kernel's jiffies */
	if (ns <= slack_ns)
		return 0;
	return (double)(ns - slack_ns) / 1e9;
}

void varve_ll_reply(fuse_req_t req, int r)
{
	(void)fuse_reply_err(req, r < 0 ? -varve_store_errno(r) : 0);
}

struct fuse_entry_param varve_ll_entry(const struct varve_entry *entry)
{
	return (struct fuse_entry_param){
		.ino = entry->id,
		.generation = 1 + entry->generation, /* ids are never used again */
		.attr = entry->attr,
		.attr_timeout = varve_ll_seconds(entry->attr_valid_ns),
		.entry_timeout = varve_ll_seconds(entry->entry_valid_ns),
	};
}

void varve_ll_reply_entry(fuse_req_t req, int r, const struct varve_entry *entry)
{
	const struct varve_ll *ll = varve_ll_of(req);
	struct fuse_entry_param e;

	if (r < 0) {
		varve_ll_reply(req, r);
		return;
	}
	e = varve_ll_entry(entry);
	if (fuse_reply_entry(req, &e) < 0 && !varve_views_is(entry->id))
		varve_store_forget(ll->store, entry->id, 1);
}

int varve_ll_may_change(uint64_t parent, const char *name)
{
	if (varve_views_is(parent))
		return -EROFS;
	if (parent == VARVE_ID_ROOT && strcmp(name, VARVE_VIEWS_NAME) == 0)
		return -EPERM;
	return 0;
}
