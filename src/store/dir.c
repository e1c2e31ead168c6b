/* Lookup, and reading directories. */
#include "store/carry.h"
#include "store/entry.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "store/opened.h"
#include "store/part.h"

/* -- lookup -- */

static int lookup_root(struct varve_store *s, const char *name, struct varve_node **ret)
{
	struct varve_bucket *b;

	guard(&s->ns);
	if (!strcmp(name, "current")) {
		*ret = varve_node_ref(s->current_dir);
		return 0;
	}
	if (!strcmp(name, ".staging")) {
		*ret = varve_node_ref(s->staging_dir);
		return 0;
	}
	b = varve_bucket_find(s, name);
	/* What is being dropped is gone from sight from its first step on. */
	if (!b || b->dropping)
		return -ENOENT;
	if (b == s->current) {
		*ret = varve_node_ref(s->open_link);
		return 0;
	}
	if (!b->root)
		return varve_sealed_bucket_node(s, b, ret);
	if (!varve_opened_bucket(b))
		return -ENOENT;
	*ret = varve_node_ref(b->root);
	return 0;
}

/* ns held inside; the node referenced. */
static int lookup_live(struct varve_store *s, struct varve_node *dir, const char *name,
		       struct varve_node **ret)
{
	struct varve_node *c;
	int r = 0;

	guard(&s->ns);
	if (dir->kind == VARVE_KIND_SEALED)
		return -EAGAIN;
	c = varve_visible_child(s, dir, name);
	if (c && c->kind == VARVE_KIND_STREAM)
		r = varve_stream_file(s, c, &c);
	if (r < 0)
		return r;
	if (!c)
		return -ENOENT;
	*ret = varve_node_ref(c);
	return 0;
}

static enum varve_kind kind_now(struct varve_store *s, const struct varve_node *n)
{
	guard(&s->ns);
	return n->kind;
}

/* Whoever looks into a bucket that has just closed sees what was carried through it: its links are made first. */
static void wait_for_links(struct varve_store *s, struct varve_node *dir)
{
	bool wait;

	{
		guard(&s->ns);
		wait = dir->kind == VARVE_KIND_DDIR && dir->bucket != s->current && s->n_to_link;
	}
	if (!wait)
		return;
	guard(&s->mutate);
	(void)varve_carry_ready(s);
}

int varve_store_lookup(struct varve_store *s, uint64_t parent, const char *name,
		       struct varve_entry *ret)
{
	held_node dir = {s, varve_node_get(s, parent)};
	held_node n = {s, NULL};
	enum varve_kind kind;
	int64_t valid;
	int r;

	if (!dir.n)
		return -ESTALE;
	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	wait_for_links(s, dir.n);
again:
	kind = kind_now(s, dir.n);
	switch (kind) {
	case VARVE_KIND_ROOT:
		r = lookup_root(s, name, &n.n);
		break;
	case VARVE_KIND_SEALED:
		return varve_sealed_lookup(s, dir.n, name, ret);
	case VARVE_KIND_SDIR:
	case VARVE_KIND_DDIR:
	case VARVE_KIND_XDIR:
		r = varve_ino_ready(s);
		if (r == 0)
			r = lookup_live(s, dir.n, name, &n.n);
		break;
	default:
		r = -ENOTDIR;
	}
	/* It was sealed in this moment, or numbers have to be reserved. */
	if (r == -EAGAIN)
		goto again;
	if (r < 0)
		return r;
	{
		guard(&s->ns);
		varve_entry_fill(s, n.n, dir.n->kind == VARVE_KIND_SDIR, ret);
	}
	r = varve_node_stat(s, n.n, !(ret->id & VARVE_ID_DATED), &ret->attr, &valid);
	if (r < 0)
		varve_store_forget(s, ret->id, 1);
	return r;
}

void varve_store_forget(struct varve_store *s, uint64_t id, uint64_t count)
{
	struct varve_node *n;

	guard(&s->ns);
	n = varve_node_by_id(s, id);
	if (!n || !n->nlookup)
		return;
	n->nlookup = count < n->nlookup ? n->nlookup - count : 0;
	if (!n->nlookup)
		varve_node_unref(s, n);
}

/* -- reading directories -- */

static int add_dirent(struct varve_handle *h, const char *name, size_t len, uint64_t ino,
		      mode_t type)
{
	char *copy = strndup(name, len);

	/* Powers of two: the list grows by doubling. */
	if (copy && (h->n_list & (h->n_list - 1)) == 0) {
		uint32_t size = h->n_list ? 2 * h->n_list : 1;
		struct varve_dirent *more = realloc(h->list, size * sizeof(*more));

		if (!more) {
			free(copy);
			return -ENOMEM;
		}
		h->list = more;
	}
	if (!copy)
		return -ENOMEM;
	h->list[h->n_list++] = (struct varve_dirent){copy, ino, type};
	return 0;
}

struct listing {
	struct varve_store *s;
	struct varve_handle *h;
	struct varve_node *dir;
	bool dated;
	int r;
};

static void add_child(void *ctx, struct varve_node *c)
{
	struct listing *l = ctx;

	if (l->r < 0 || (l->dated && !varve_dated_visible(c)))
		return;
	l->r = add_dirent(l->h, c->name, strlen(c->name), c->ino, c->attr.st_mode & S_IFMT);
}

/* Of a DDIR below current/: files only, its directories are the skeleton's. */
static void add_file(void *ctx, struct varve_node *c)
{
	if (c->kind == VARVE_KIND_FILE)
		add_child(ctx, c);
}

static void add_skeleton(void *ctx, struct varve_node *c)
{
	struct listing *l = ctx;
	struct varve_node *d, *f;

	if (l->r < 0)
		return;
	if (c->kind != VARVE_KIND_STREAM) {
		add_child(ctx, c);
		return;
	}
	d = varve_sdir_ddir_if(l->s, l->dir);
	f = d ? varve_node_child(d, c->name) : NULL;
	if (f)
		return; /* listed as a file */
	l->r = varve_stream_file(l->s, c, &f);
}

static int list_root(struct varve_store *s, struct varve_handle *h)
{
	int r;

	guard(&s->ns);
	r = add_dirent(h, "current", 7, VARVE_ID_CURRENT, S_IFDIR);
	if (r == 0)
		r = add_dirent(h, ".staging", 8, VARVE_ID_STAGING, S_IFDIR);
	for (uint32_t i = 0; r == 0 && i < s->n_buckets; i++) {
		struct varve_bucket *b = s->buckets[i];
		bool open = b == s->current;

		if (b->dropping || (!open && b->root && !varve_opened_bucket(b)))
			continue;
		r = add_dirent(h, b->name, strlen(b->name), open ? VARVE_ID_OPEN_LINK : b->ino,
				     open ? S_IFLNK : S_IFDIR);
	}
	return r;
}

static int list_live(struct varve_store *s, struct varve_node *dir, struct varve_handle *h)
{
	struct listing l = {s, h, dir, false, 0};
	struct varve_node *d;

	guard(&s->ns);
	if (dir->kind == VARVE_KIND_SEALED)
		return -EAGAIN;
	l.dated = dir->kind == VARVE_KIND_DDIR;
	/* Streams get their files first, so that all of them are seen with their numbers. */
	varve_node_each(dir, dir->kind == VARVE_KIND_SDIR ? add_skeleton : add_child, &l);
	d = dir->kind == VARVE_KIND_SDIR ? varve_sdir_ddir_if(s, dir) : NULL;
	if (l.r == 0 && d)
		varve_node_each(d, add_file, &l);
	return l.r;
}

static void clear_list(struct varve_handle *h)
{
	for (uint32_t i = 0; i < h->n_list; i++)
		free(h->list[i].name);
	free(h->list);
	h->list = NULL;
	h->n_list = 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct varve_dirent *)a)->name, ((const struct varve_dirent *)b)->name);
}

/* What the handle goes through: a list of what is there now, or the index of what is sealed. */
static int fill_list(struct varve_store *s, struct varve_node *dir, struct varve_handle *h)
{
	uint64_t up = VARVE_ID_ROOT;
	int r;

	do {
		enum varve_kind kind;

		{
			guard(&s->ns);
			kind = dir->kind;
			if (dir->parent)
				up = dir->parent->ino;
		}
		clear_list(h);
		h->on_index = kind == VARVE_KIND_SEALED;
		if (h->on_index)
			return 0;
		r = varve_ino_ready(s);
		if (r == 0)
			r = kind == VARVE_KIND_ROOT ? list_root(s, h) : list_live(s, dir, h);
	} while (r == -EAGAIN);
	if (r < 0)
		return r;
	if (h->n_list)
		qsort(h->list, h->n_list, sizeof(*h->list), by_name);
	r = add_dirent(h, ".", 1, dir->ino, S_IFDIR);
	return r < 0 ? r : add_dirent(h, "..", 2, up, S_IFDIR);
}

int varve_store_opendir(struct varve_store *s, uint64_t id, uint64_t *ret_dh)
{
	held_node dir = {s, varve_node_get(s, id)};
	struct varve_handle *h;
	int r;

	if (!dir.n)
		return -ESTALE;
	if (!varve_node_is_dir(dir.n))
		return -ENOTDIR;
	wait_for_links(s, dir.n);
	h = varve_handle_new(s, dir.n, O_RDONLY | O_DIRECTORY);
	if (!h)
		return -ENOMEM;
	h->is_dir = true;
	r = fill_list(s, dir.n, h);
	if (r < 0) {
		varve_handle_put(s, h);
		return r;
	}
	*ret_dh = h->fh;
	return 0;
}

int varve_store_readdir(struct varve_store *s, uint64_t dh, uint64_t off, bool plus,
			varve_readdir_cb *cb, void *ctx)
{
	struct varve_handle *h = varve_handle_get(s, dh);
	int r = 0;

	if (!h || !h->is_dir) {
		varve_handle_put(s, h);
		return -EBADF;
	}
	(void)pthread_mutex_lock(&h->lock);
	/* rewinddir(3): what has changed since is to be seen. next_off tells that it was read. */
	if (off == 0 && h->next_off != UINT64_MAX)
		r = fill_list(s, h->file, h);
	h->next_off = off;
	if (r == 0 && h->on_index) {
		r = varve_sealed_readdir(s, h->file, off, plus, cb, ctx);
		/* It was dropped: as in any directory that was removed, there is nothing more. */
		if (r == -ESTALE)
			r = -ENOENT;
	}
	for (uint64_t i = off; r == 0 && i < h->n_list; i++) {
		const struct varve_dirent *e = &h->list[i];
		struct varve_entry entry = {0};
		bool dots = !strcmp(e->name, ".") || !strcmp(e->name, "..");

		if (plus && !dots && varve_store_lookup(s, h->file->ino, e->name, &entry) < 0)
			entry = (struct varve_entry){0};
		if (!entry.id) {
			entry.attr.st_ino = e->ino;
			entry.attr.st_mode = e->type;
		}
		if (!cb(ctx, e->name, &entry, i + 1)) {
			if (entry.id)
				varve_store_forget(s, entry.id, 1);
			break;
		}
	}
	(void)pthread_mutex_unlock(&h->lock);
	varve_handle_put(s, h);
	return r;
}

bool varve_store_dir_is_final(struct varve_store *s, uint64_t dh)
{
	struct varve_handle *h = varve_handle_get(s, dh);
	bool final = false;

	if (h) {
		guard(&h->lock);
		final = h->is_dir && h->on_index;
	}
	varve_handle_put(s, h);
	return final;
}

void varve_store_releasedir(struct varve_store *s, uint64_t dh)
{
	varve_store_release(s, dh);
}

int varve_store_fsyncdir(struct varve_store *s, uint64_t id)
{
	held_node dir = {s, varve_node_get(s, id)};
	cleanup_free char *tree_path = NULL;
	cleanup_free char *path = NULL;
	int base = -1, r = 0;

	if (!dir.n)
		return -ESTALE;
	if (dir.n->kind == VARVE_KIND_SEALED) {
		struct varve_tombs *t;

		r = varve_sealed_tombs(s, dir.n->bucket, &t);
		return r < 0 ? r : varve_tombs_sync(t);
	}
	{
		guard(&s->ns);
		struct varve_node *in_bucket = dir.n;

		if (dir.n->kind == VARVE_KIND_SDIR) {
			tree_path = varve_node_path(dir.n, NULL);
			in_bucket = varve_sdir_ddir_if(s, dir.n);
		}
		if (in_bucket && (in_bucket->kind == VARVE_KIND_XDIR || in_bucket->on_disk)) {
			unsigned p = in_bucket->on_disk ? (unsigned)__builtin_ctz(in_bucket->on_disk)
							: 0;

			path = varve_node_where(s, in_bucket, NULL, p, &base);
		}
	}
	/* With the way up to it: a directory is only there if what it is in is. */
	for (int i = 0; i < 2 && r == 0; i++) {
		char *p = i ? path : tree_path;
		int fd = i ? base : s->tree_fd;

		while (p && r == 0) {
			char *slash;

			r = varve_fsync_dir(fd, p);
			if (r == -ENOENT)
				r = 0;
			if (!*p)
				break;
			slash = strrchr(p, '/');
			*(slash ? slash : p) = '\0';
		}
	}
	return r;
}
