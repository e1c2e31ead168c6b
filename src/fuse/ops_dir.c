#include "fuse/ops.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"

/* A reply under construction. */
struct dirbuf {
	fuse_req_t req;
	bool plus;
	char *buf;
	size_t size, used;
	/* With plus: whose references the entries in buf carry, should the reply not be taken. */
	uint64_t *given;
	size_t n_given;
};

/* No entry of a READDIRPLUS reply is shorter than its attributes, so this many fit at the most. */
#define DIRENTPLUS_MIN 128

/* The kernel asks for attributes at the start of every listing, and goes on so only for those who
 * look at them: a small first answer spares the others a thousand inodes that nobody wants. */
#define FIRST_PLUS_BYTES 4096

static bool is_dot(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

static bool add_entry(void *ctx, const char *name, const struct varve_entry *entry, uint64_t next)
{
	struct dirbuf *d = ctx;
	size_t left = d->size - d->used;
	size_t n;

	if (d->plus) {
		struct fuse_entry_param e = varve_ll_entry(entry);

		/* The kernel takes no reference of these two, and ino 0 says: only a name. */
		if (is_dot(name))
			e.ino = 0;
		n = fuse_add_direntry_plus(d->req, d->buf + d->used, left, name, &e, (off_t)next);
		if (n <= left && e.ino && !varve_views_is(e.ino))
			d->given[d->n_given++] = e.ino;
	} else {
		n = fuse_add_direntry(d->req, d->buf + d->used, left, name, &entry->attr,
				      (off_t)next);
	}
	if (n > left)
		return false;
	d->used += n;
	return true;
}

static void read_directory(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, uint64_t dh,
			   bool plus)
{
	const struct varve_ll *ll = varve_ll_of(req);
	cleanup_free char *buf = NULL;
	cleanup_free uint64_t *given = NULL;
	struct dirbuf d = {.req = req, .plus = plus};
	int r;

	if (plus && off == 0 && size > FIRST_PLUS_BYTES)
		size = FIRST_PLUS_BYTES;
	buf = malloc(size ? size : 1);
	given = plus ? calloc(size / DIRENTPLUS_MIN + 1, sizeof(*given)) : NULL;
	d.buf = buf;
	d.size = size;
	d.given = given;
	if (!buf || (plus && !given))
		r = -ENOMEM;
	else if (varve_views_is(ino))
		r = varve_views_readdir(ll->views, (uint64_t)off, add_entry, &d);
	else
		r = varve_store_readdir(ll->store, dh, (uint64_t)off, plus, add_entry, &d);
	/* What was gathered before an error is good; the error comes again with the next call. */
	if (r < 0 && d.used == 0) {
		varve_ll_reply(req, r);
		return;
	}
	if (fuse_reply_buf(req, buf, d.used) < 0)
		for (size_t i = 0; i < d.n_given; i++)
			varve_store_forget(ll->store, given[i], 1);
}

void varve_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct varve_store *store = varve_ll_of(req)->store;
	uint64_t dh = 0;
	int r = varve_views_is(ino) ? 0 : varve_store_opendir(store, ino, &dh);

	if (r < 0) {
		varve_ll_reply(req, r);
		return;
	}
	fi->fh = dh;
	/* The kernel keeps the names, and with them what it knows of ACLs, over many listings. */
	if (!varve_views_is(ino) && varve_store_dir_is_final(store, dh))
		fi->cache_readdir = fi->keep_cache = 1;
	if (fuse_reply_open(req, fi) < 0 && !varve_views_is(ino))
		varve_store_releasedir(store, dh);
}

void varve_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		      struct fuse_file_info *fi)
{
	read_directory(req, ino, size, off, fi->fh, false);
}

void varve_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			  struct fuse_file_info *fi)
{
	read_directory(req, ino, size, off, fi->fh, true);
}

void varve_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (!varve_views_is(ino))
		varve_store_releasedir(varve_ll_of(req)->store, fi->fh);
	varve_ll_reply(req, 0);
}

void varve_op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)datasync;
	(void)fi;
	varve_ll_reply(
		req, varve_views_is(ino) ? 0 : varve_store_fsyncdir(varve_ll_of(req)->store, ino));
}
