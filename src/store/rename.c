/*
 * Renames: inside current/, inside .staging/ or a closing bucket, and from .staging/ into current/,
 * which publishes. Everything else is EXDEV (or EROFS in what is sealed).
 *
 * Crash safety: what moves bytes is always one rename(2) of the part, or of the directory of parts. What
 * may need room comes before it. Of a directory of current/ the skeleton follows; for one that is published
 * it is made before. Recovery makes what is missing of it; what is too much is an empty directory.
 */
#include "store/entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "store/carry.h"
#include "store/file.h"
#include "store/native.h"
#include "store/part.h"

struct move {
	struct varve_node *from_dir, *to_dir; /* the caller's */
	const char *name, *new_name;
	struct varve_node *node;   /* FILE, SDIR, DDIR or XDIR that moves; referenced */
	struct varve_node *victim; /* what stands at the new name, or NULL; referenced */
	struct varve_node *marker; /* stream marker at the old name, or NULL; referenced */
};

static void move_done(struct varve_store *s, struct move *m)
{
	guard(&s->ns);
	varve_node_unref(s, m->node);
	varve_node_unref(s, m->victim);
	varve_node_unref(s, m->marker);
}

static struct varve_node *referenced(struct varve_node *n)
{
	return n ? varve_node_ref(n) : NULL;
}

/* Which pairs of directories a rename may join. */
static int check_dirs(const struct varve_node *from, const struct varve_node *to)
{
	if (from->kind == VARVE_KIND_SEALED || to->kind == VARVE_KIND_SEALED)
		return from->kind == to->kind ? -EROFS
		       : to->kind == VARVE_KIND_SEALED ? -EROFS : -EXDEV;
	if (from->kind == VARVE_KIND_ROOT || to->kind == VARVE_KIND_ROOT)
		return -EPERM;
	if (!from->linked || !to->linked)
		return -ENOENT;
	if ((from->kind == VARVE_KIND_DDIR && from->bucket->shut) ||
	    (to->kind == VARVE_KIND_DDIR && to->bucket->shut))
		return -EROFS;
	if (from->kind == VARVE_KIND_XDIR && to->kind == VARVE_KIND_SDIR)
		return 0;
	if (from->kind != to->kind || from->bucket != to->bucket)
		return -EXDEV;
	return 0;
}

/* The FILE of a child, made from a stream's marker where need be. */
static int as_node(struct varve_store *s, struct varve_node *c, struct varve_node **ret)
{
	if (c && c->kind == VARVE_KIND_STREAM) {
		int r = varve_stream_file(s, c, &c);

		if (r < 0)
			return r;
	}
	*ret = referenced(c);
	return 0;
}

/* ns and mutate held. */
static int find_move(struct varve_store *s, struct move *m, unsigned flags)
{
	struct varve_node *c;
	int r = check_dirs(m->from_dir, m->to_dir);

	if (r < 0)
		return r;
	c = varve_visible_child(s, m->from_dir, m->name);
	if (!c)
		return -ENOENT;
	r = as_node(s, c, &m->node);
	if (r == 0)
		r = as_node(s, varve_visible_child(s, m->to_dir, m->new_name), &m->victim);
	if (r < 0)
		return r;
	if (m->from_dir->kind == VARVE_KIND_SDIR) {
		c = varve_node_child(m->from_dir, m->name);
		m->marker = c && c->kind == VARVE_KIND_STREAM ? varve_node_ref(c) : NULL;
	}
	if (m->victim && flags & RENAME_NOREPLACE)
		return -EEXIST;
	if (m->victim && s->policy.worm && m->to_dir->kind == VARVE_KIND_SDIR)
		return -EPERM;
	if (m->victim && varve_node_is_dir(m->node) != varve_node_is_dir(m->victim))
		return varve_node_is_dir(m->node) ? -ENOTDIR : -EISDIR;
	return 0;
}

/* -- files -- */

/* The directory node that lists files at the new place, there in memory and on disk. */
static int ready_target(struct varve_store *s, struct move *m, unsigned place, struct varve_node **ret)
{
	struct varve_node *dir = m->to_dir;
	int r = 0;

	{
		guard(&s->ns);
		if (dir->kind == VARVE_KIND_SDIR)
			r = varve_sdir_ddir(s, dir, &dir);
		if (r < 0)
			return r;
		*ret = varve_node_ref(dir);
	}
	if (dir->kind == VARVE_KIND_DDIR)
		r = varve_ddir_on_disk(s, dir, place);
	if (r < 0)
		varve_node_put(s, dir);
	return r;
}

/* Removes the part that the rename would leave elsewhere (another place): only then rename(2) does
 * not replace it by itself. */
static int drop_victim_part(struct varve_store *s, struct move *m, unsigned place)
{
	cleanup_free char *path = NULL;
	int fd;

	if (!m->victim || !m->victim->has_part || m->victim->place == place)
		return 0;
	{
		guard(&s->ns);
		path = varve_node_where(s, m->victim, NULL, m->victim->place, &fd);
	}
	if (!path)
		return -ENOMEM;
	return unlinkat(fd, path, 0) < 0 && errno != ENOENT ? -errno : 0;
}

/* Memory follows: the file leaves its old directory for the new one; ns held. */
static int relink_file(struct varve_store *s, struct move *m, struct varve_node *dir, unsigned place)
{
	struct varve_node *f = m->node;
	struct varve_bucket *old = f->bucket;

	if (m->victim) {
		varve_file_count(s, m->victim, 0);
		m->victim->nameless = true;
		m->victim->attr.st_nlink = 0;
		varve_carry_give_back(s, m->victim);
		varve_node_unlink(s, m->victim);
	}
	if (old != dir->bucket) {
		/* Published: from now on its handles may only append, and count as writers. */
		uint64_t counted = f->counted;

		varve_file_count(s, f, 0);
		f->bucket = varve_bucket_ref(dir->bucket);
		f->last = -1;
		varve_file_count(s, f, counted);
		if (f->writers)
			varve_file_add_writers(s, f, 0);
	}
	f->place = (uint16_t)place;
	atomic_store(&f->linked_durably, false);
	varve_node_unlink(s, f);
	return varve_node_link(dir, f, m->new_name);
}

/* The path is a stream still: what comes back at the next boundary is like what stands there now. */
static int renew_marker(struct varve_store *s, struct move *m)
{
	struct varve_node *c;
	int r;

	if (m->to_dir->kind != VARVE_KIND_SDIR)
		return 0;
	{
		guard(&s->ns);
		c = varve_node_child(m->to_dir, m->new_name);
		c = c && c->kind == VARVE_KIND_STREAM ? varve_node_ref(c) : NULL;
	}
	if (!c)
		return 0;
	r = varve_stream_unmake(s, c);
	varve_node_put(s, c);
	return r < 0 || m->node->is_link ? r
					 : varve_stream_make(s, m->to_dir, m->new_name, m->node);
}

static int move_file(struct varve_store *s, struct move *m)
{
	struct varve_node *dir;
	cleanup_free char *from = NULL;
	cleanup_free char *to = NULL;
	cleanup_free char *path = NULL;
	int from_fd, to_fd, r = 0;
	unsigned place;

	r = m->node->bucket ? varve_file_make_part(s, m->node) : 0;
	if (r < 0)
		return r;
	{
		guard(&s->ns);
		path = varve_node_path(m->to_dir, m->new_name);
	}
	if (!path)
		return -ENOMEM;
	if (strlen(path) > VARVE_LIVE_PATH_MAX)
		return -ENAMETOOLONG;
	place = m->to_dir->kind == VARVE_KIND_XDIR ? 0 : (unsigned)varve_place_for(s, path);
	r = ready_target(s, m, place, &dir);
	if (r < 0)
		return r;
	{
		guard(&s->ns);
		from = varve_node_where(s, m->node, NULL, m->node->place, &from_fd);
		to = varve_node_where(s, dir, m->new_name, place, &to_fd);
	}
	r = from && to ? drop_victim_part(s, m, place) : -ENOMEM;
	if (r == 0 && renameat(from_fd, from, to_fd, to) < 0)
		r = -errno;
	if (r == 0) {
		guard(&m->node->lock);
		guard(&s->ns);
		r = relink_file(s, m, dir, place);
		varve_dir_touch(m->from_dir);
		varve_dir_touch(m->to_dir);
	}
	if (r == 0 && m->marker)
		r = varve_stream_unmake(s, m->marker);
	if (r == 0)
		r = renew_marker(s, m);
	varve_node_put(s, dir);
	return r;
}

/* -- directories -- */

struct emptiness {
	struct varve_store *s;
	bool files;
};

static void see_file(void *ctx, struct varve_node *n)
{
	struct emptiness *e = ctx;

	/* In the current bucket a stream's file is seen before it holds anything. */
	if (n->kind == VARVE_KIND_FILE && (n->bucket == e->s->current || varve_dated_visible(n)))
		e->files = true;
}

static bool victim_is_empty(struct varve_store *s, struct varve_node *v)
{
	struct emptiness e = {s, false};
	struct varve_node *d = v->kind == VARVE_KIND_SDIR ? varve_sdir_ddir_if(s, v) : v;

	if (v->kind != VARVE_KIND_DDIR && v->n_children)
		return false;
	if (d)
		varve_node_each(d, see_file, &e);
	return !e.files;
}

static int rename_in(int from_fd, const char *from, int to_fd, const char *to)
{
	if (!from || !to)
		return -ENOMEM;
	return renameat(from_fd, from, to_fd, to) < 0 ? -errno : 0;
}

static int rename_place(struct varve_store *s, const char *name, struct varve_node *from_up,
			struct varve_node *to_up, const char *new_name, unsigned place)
{
	cleanup_free char *from_path = NULL;
	cleanup_free char *to_path = NULL;
	int from_fd, to_fd;

	{
		guard(&s->ns);
		from_path = varve_node_where(s, from_up, name, place, &from_fd);
		to_path = varve_node_where(s, to_up, new_name, place, &to_fd);
	}
	return rename_in(from_fd, from_path, to_fd, to_path);
}

/* Moves d's directories of parts, place by place: all of them or none. */
static int move_ddir_on_disk(struct varve_store *s, struct varve_node *d, struct varve_node *to,
			     const char *new_name)
{
	struct varve_node *up = d->parent;
	uint32_t done = 0;
	bool counts;
	int r = 0;

	{
		guard(&s->ns);
		counts = varve_dated_visible(d);
	}
	/* What may need room comes first. */
	for (unsigned p = 0; r == 0 && p < 32; p++)
		if (d->on_disk & (1u << p)) {
			/* Where it was is there also when it has gone. */
			r = counts ? varve_ddir_on_disk(s, up, p) : 0;
			if (r == 0)
				r = counts ? varve_ddir_on_disk(s, to, p) : varve_ddir_for_open(s, to, p);
		}
	for (unsigned p = 0; r == 0 && p < 32; p++) {
		if (!(d->on_disk & (1u << p)))
			continue;
		r = rename_place(s, d->name, up, to, new_name, p);
		if (r == 0)
			done |= 1u << p;
	}
	for (unsigned p = 0; r < 0 && p < 32; p++)
		if (done & (1u << p))
			(void)rename_place(s, new_name, to, up, d->name, p);
	return r;
}

/* Takes an empty directory at the new name away, in memory, and its empty twin on disk; what
 * rename(2) replaces by itself is left to it. */
static int drop_victim_dir(struct varve_store *s, struct varve_node *v)
{
	struct varve_node *d = NULL;

	if (!v)
		return 0;
	{
		guard(&s->ns);
		if (!victim_is_empty(s, v))
			return -ENOTEMPTY;
		if (v->kind == VARVE_KIND_SDIR)
			d = referenced(varve_sdir_ddir_if(s, v));
	}
	for (unsigned p = 0; d && p < 32; p++) {
		cleanup_free char *path = NULL;
		int fd;

		if (!(d->on_disk & (1u << p)))
			continue;
		{
			guard(&s->ns);
			path = varve_node_where(s, d, NULL, p, &fd);
		}
		if (path)
			(void)unlinkat(fd, path, AT_REMOVEDIR);
	}
	guard(&s->ns);
	if (d) {
		varve_tree_drop(s, d);
		varve_node_unref(s, d);
	}
	return 0;
}

static int relink_dir(struct varve_store *s, struct varve_node *n, struct varve_node *to,
		      const char *new_name)
{
	int r;

	(void)varve_node_ref(n);
	varve_node_unlink(s, n);
	r = varve_node_link(to, n, new_name);
	varve_node_unref(s, n);
	return r;
}

/* The longest path below a directory, as it adds to that directory's own. */
struct depth {
	size_t at, most;
};

static void see_depth(void *ctx, struct varve_node *n)
{
	struct depth *d = ctx;
	size_t before = d->at;

	d->at += strlen(n->name) + 1;
	if (d->at > d->most)
		d->most = d->at;
	if (n->n_children)
		varve_node_each(n, see_depth, ctx);
	d->at = before;
}

/* A path that can't be opened any more could never be sealed. */
static int check_depth(struct varve_store *s, const struct move *m)
{
	struct depth below = {0, 0};
	cleanup_free char *path = NULL;
	struct varve_node *d;

	guard(&s->ns);
	path = varve_node_path(m->to_dir, m->new_name);
	if (!path)
		return -ENOMEM;
	varve_node_each(m->node, see_depth, &below);
	d = m->node->kind == VARVE_KIND_SDIR ? varve_sdir_ddir_if(s, m->node) : NULL;
	if (d)
		varve_node_each(d, see_depth, &below);
	return strlen(path) + below.most > VARVE_LIVE_PATH_MAX ? -ENAMETOOLONG : 0;
}

/* current/: skeleton and bucket. */
static int move_sdir(struct varve_store *s, struct move *m)
{
	struct varve_node *d, *to = NULL;
	cleanup_free char *from_path = NULL;
	cleanup_free char *to_path = NULL;
	int r = drop_victim_dir(s, m->victim);

	if (r < 0)
		return r;
	{
		guard(&s->ns);
		from_path = varve_node_path(m->node, NULL);
		to_path = varve_node_path(m->to_dir, m->new_name);
		d = referenced(varve_sdir_ddir_if(s, m->node));
		if (d)
			r = varve_sdir_ddir(s, m->to_dir, &to);
		if (r == 0 && to)
			(void)varve_node_ref(to);
	}
	/* The skeleton last: what recovery makes of a crash in between is a skeleton directory more. */
	if (r == 0 && d)
		r = move_ddir_on_disk(s, d, to, m->new_name);
	if (r == 0) {
		r = rename_in(s->tree_fd, from_path, s->tree_fd, to_path);
		for (unsigned p = 0; r < 0 && d && p < 32; p++)
			if (d->on_disk & (1u << p))
				(void)rename_place(s, m->new_name, to, d->parent, d->name, p);
	}
	{
		guard(&s->ns);
		if (r == 0 && m->victim) {
			m->victim->attr.st_nlink = 0;
			varve_tree_drop(s, m->victim);
		}
		if (r == 0)
			r = relink_dir(s, m->node, m->to_dir, m->new_name);
		if (r == 0 && d)
			r = relink_dir(s, d, to, m->new_name);
		varve_node_unref(s, d);
		varve_node_unref(s, to);
		varve_dir_touch(m->from_dir);
		varve_dir_touch(m->to_dir);
	}
	return r;
}

/* .staging/ or a closing bucket: one tree on disk. */
static int move_plain_dir(struct varve_store *s, struct move *m)
{
	cleanup_free char *from_path = NULL;
	cleanup_free char *to_path = NULL;
	int from_fd, to_fd, r = drop_victim_dir(s, m->victim);

	if (r < 0)
		return r;
	if (m->node->kind == VARVE_KIND_DDIR) {
		r = move_ddir_on_disk(s, m->node, m->to_dir, m->new_name);
	} else {
		{
			guard(&s->ns);
			from_path = varve_node_where(s, m->node, NULL, 0, &from_fd);
			to_path = varve_node_where(s, m->to_dir, m->new_name, 0, &to_fd);
		}
		r = rename_in(from_fd, from_path, to_fd, to_path);
	}
	if (r < 0)
		return r;
	guard(&s->ns);
	if (m->victim) {
		m->victim->attr.st_nlink = 0;
		varve_tree_drop(s, m->victim);
	}
	r = relink_dir(s, m->node, m->to_dir, m->new_name);
	varve_dir_touch(m->from_dir);
	varve_dir_touch(m->to_dir);
	return r;
}

/* -- a whole directory from .staging/ -- */

/* One of the directories that are published: its XDIR, which becomes the skeleton's, and the bucket's. */
struct pub {
	struct varve_node *x, *d; /* referenced */
	size_t up;		  /* the number of the one it is in */
	char *tree_path;	  /* where the skeleton gets it */
};

struct pubs {
	struct varve_store *s;
	struct varve_bucket *b;
	struct pub *list;
	size_t n, at;
	const char *name; /* the top one's new name */
	struct varve_node *to;
	int r;
};

static void pub_add(void *ctx, struct varve_node *x)
{
	struct pubs *l = ctx;
	struct pub *more;
	uint64_t ino;

	if (x->kind != VARVE_KIND_XDIR || l->r < 0)
		return;
	ino = varve_ino_take(l->s);
	more = realloc(l->list, (l->n + 1) * sizeof(*more));
	if (more)
		l->list = more;
	if (!ino || !more) {
		l->r = ino ? -ENOMEM : -EAGAIN;
		return;
	}
	more += l->n++;
	*more = (struct pub){.x = varve_node_ref(x), .up = l->at};
	more->d = varve_node_new(l->s, VARVE_KIND_DDIR, ino);
	if (l->n == 1)
		more->tree_path = varve_node_path(l->to, l->name);
	else if (asprintf(&more->tree_path, "%s/%s", l->list[l->at].tree_path, x->name) < 0)
		more->tree_path = NULL;
	if (!more->d || !more->tree_path) {
		l->r = -ENOMEM;
		return;
	}
	more->d->attr = x->attr;
	more->d->attr.st_ino = ino;
	more->d->bucket = varve_bucket_ref(l->b);
	more->d->sdir = varve_node_ref(x);
	more->d->on_disk = 1;
}

/* Breadth first: the list is the queue. ns held; -EAGAIN: numbers must be reserved. */
static int pubs_collect(struct pubs *l, struct varve_node *top)
{
	pub_add(l, top);
	for (l->at = 0; l->r == 0 && l->at < l->n; l->at++)
		varve_node_each(l->list[l->at].x, pub_add, l);
	return l->r;
}

static void pubs_done(struct pubs *l)
{
	guard(&l->s->ns);
	for (size_t i = 0; i < l->n; i++) {
		varve_node_unref(l->s, l->list[i].x);
		varve_node_unref(l->s, l->list[i].d);
		free(l->list[i].tree_path);
	}
	free(l->list);
	*l = (struct pubs){.s = l->s, .b = l->b, .name = l->name, .to = l->to};
}

/* The skeleton's directory like the one in .staging/, with its number. */
static int pub_make(struct varve_store *s, const struct pub *p)
{
	cleanup_free char *from = NULL;
	cleanup_close int src = -1;
	cleanup_close int dst = -1;
	int fd, r;

	{
		guard(&s->ns);
		from = varve_node_where(s, p->x, NULL, 0, &fd);
	}
	if (!from)
		return -ENOMEM;
	src = varve_openat(fd, from, O_RDONLY | O_DIRECTORY, 0);
	if (src < 0)
		return src;
	if (mkdirat(s->tree_fd, p->tree_path, 0700) < 0 && errno != EEXIST)
		return -errno;
	dst = varve_openat(s->tree_fd, p->tree_path, O_RDONLY | O_DIRECTORY, 0);
	if (dst < 0)
		return dst;
	if (fchown(dst, p->x->attr.st_uid, p->x->attr.st_gid) < 0 && errno != EPERM)
		return -errno;
	r = varve_xattrs_clear(dst);
	if (r == 0)
		r = varve_xattrs_copy(src, dst);
	if (r == 0)
		r = varve_ino_write_xattr(dst, p->x->ino);
	return r < 0 ? r : varve_mode_set(dst, p->x->attr.st_mode & 07777);
}

static void pubs_unmake(struct varve_store *s, const struct pubs *l, const struct varve_node *victim)
{
	cleanup_close int fd = -1;

	for (size_t i = l->n; i-- > (victim ? 1u : 0u);)
		(void)unlinkat(s->tree_fd, l->list[i].tree_path, AT_REMOVEDIR);
	/* An empty directory that was to be replaced stays what it was. */
	if (victim && l->n)
		fd = varve_openat(s->tree_fd, l->list[0].tree_path, O_RDONLY | O_DIRECTORY, 0);
	if (fd >= 0)
		(void)!varve_ino_write_xattr(fd, victim->ino);
}

/* The bucket's directories get numbers of their own; what is not noted now is noted by recovery. */
static void pubs_number(struct varve_store *s, const struct pubs *l)
{
	for (size_t i = 0; i < l->n; i++) {
		cleanup_free char *path = NULL;
		cleanup_close int fd = -1;
		int base;

		{
			guard(&s->ns);
			path = varve_node_where(s, l->list[i].d, NULL, 0, &base);
		}
		fd = path ? varve_openat(base, path, O_RDONLY | O_DIRECTORY, 0) : -1;
		if (fd >= 0)
			(void)!varve_ino_write_xattr(fd, l->list[i].d->ino);
	}
}

struct files {
	struct varve_store *s;
	struct varve_node *d;
	struct varve_node **list;
	size_t n;
	int r;
};

static void list_file(void *ctx, struct varve_node *f)
{
	struct files *l = ctx;
	struct varve_node **more;

	if (f->kind != VARVE_KIND_FILE)
		return;
	more = realloc(l->list, (l->n + 1) * sizeof(*more));
	if (!more) {
		l->r = -ENOMEM;
		return;
	}
	l->list = more;
	more[l->n++] = varve_node_ref(f);
}

/* Files go from the skeleton's side to the bucket's; ns held. */
static int pub_files(struct varve_store *s, const struct pub *p)
{
	struct files l = {.s = s, .d = p->d};

	varve_node_each(p->x, list_file, &l);
	for (size_t i = 0; i < l.n; i++) {
		cleanup_free char *name = strdup(l.list[i]->name);
		struct move m = {.node = l.list[i], .new_name = name};

		if (l.r == 0)
			l.r = name ? relink_file(s, &m, p->d, 0) : -ENOMEM;
		varve_node_unref(s, l.list[i]);
	}
	free(l.list);
	return l.r;
}

/* Memory follows the rename, in one go; ns held. */
static int pubs_flip(struct varve_store *s, struct move *m, const struct pubs *l,
		     struct varve_node *ddir)
{
	int r = 0;

	if (m->victim) {
		m->victim->attr.st_nlink = 0;
		varve_tree_drop(s, m->victim);
	}
	for (size_t i = 0; r == 0 && i < l->n; i++) {
		const struct pub *p = &l->list[i];

		p->x->kind = VARVE_KIND_SDIR;
		if (i == 0)
			r = relink_dir(s, p->x, m->to_dir, m->new_name);
		if (r == 0)
			r = varve_node_link(i ? l->list[p->up].d : ddir, p->d, p->x->name);
		if (r == 0) {
			p->x->ddir = p->d;
			r = pub_files(s, p);
		}
	}
	varve_dir_touch(m->from_dir);
	varve_dir_touch(m->to_dir);
	return r;
}

/* What may need room is done first; then one rename(2) of the whole, which is the commit; then memory. */
static int publish(struct varve_store *s, struct move *m)
{
	struct pubs l = {.s = s, .b = s->current, .name = m->new_name, .to = m->to_dir};
	struct varve_node *ddir;
	cleanup_free char *from = NULL;
	cleanup_free char *to = NULL;
	int from_fd, to_fd, r = drop_victim_dir(s, m->victim);

	if (r < 0)
		return r;
	do {
		pubs_done(&l);
		r = varve_ino_ready(s);
		if (r < 0)
			return r;
		guard(&s->ns);
		r = pubs_collect(&l, m->node);
	} while (r == -EAGAIN);
	if (r == 0)
		r = ready_target(s, m, 0, &ddir);
	if (r < 0) {
		pubs_done(&l);
		return r;
	}
	for (size_t i = 0; r == 0 && i < l.n; i++)
		r = pub_make(s, &l.list[i]);
	{
		guard(&s->ns);
		from = varve_node_where(s, m->node, NULL, 0, &from_fd);
		to = varve_node_where(s, ddir, m->new_name, 0, &to_fd);
	}
	if (r == 0)
		r = rename_in(from_fd, from, to_fd, to);
	if (r < 0) {
		pubs_unmake(s, &l, m->victim);
	} else {
		varve_crash_point("publish.renamed");
		{
			guard(&s->ns);
			r = pubs_flip(s, m, &l, ddir);
		}
		pubs_number(s, &l);
	}
	pubs_done(&l);
	varve_node_put(s, ddir);
	return r;
}

static int do_move(struct varve_store *s, struct move *m)
{
	int r;

	if (m->victim == m->node)
		return 0;
	if (!varve_node_is_dir(m->node))
		return move_file(s, m);
	r = check_depth(s, m);
	if (r < 0)
		return r;
	if (m->from_dir->kind == VARVE_KIND_SDIR)
		return move_sdir(s, m);
	if (m->to_dir->kind == VARVE_KIND_SDIR)
		return publish(s, m);
	return move_plain_dir(s, m);
}

static int rename_once(struct varve_store *s, uint64_t parent, const char *name,
		       uint64_t new_parent, const char *new_name, unsigned flags)
{
	held_node from = {s, varve_node_get(s, parent)};
	held_node to = {s, varve_node_get(s, new_parent)};
	struct move m = {.from_dir = from.n, .to_dir = to.n, .name = name, .new_name = new_name};
	int r = varve_name_check(new_name);

	if (!from.n || !to.n)
		return -ESTALE;
	if (flags & ~(unsigned)RENAME_NOREPLACE)
		return -EINVAL;
	if (r == 0)
		r = varve_ino_ready(s);
	if (r < 0)
		return r;
	guard(&s->mutate);
	r = varve_carry_ready(s);
	if (r < 0)
		return r;
	{
		guard(&s->ns);
		r = find_move(s, &m, flags);
	}
	if (r == 0)
		r = do_move(s, &m);
	if (r == 0 && m.victim && m.victim != m.node)
		varve_native_cool(s, m.victim);
	move_done(s, &m);
	return r;
}

int varve_store_rename(struct varve_store *s, uint64_t parent, const char *name,
		       uint64_t new_parent, const char *new_name, unsigned flags)
{
	return VARVE_WITH_ROOM(s, rename_once(s, parent, name, new_parent, new_name, flags));
}
