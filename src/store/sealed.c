/*
 * Sealed buckets as directories: the union of their tablets' segments, less what has a tombstone.
 * Segments are opened when first asked for and kept open, the most recently used ones.
 */
#include "store/entry.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

#define OPEN_SEGMENTS_MAX 256

/* -- the shelf of open segments -- */

static int newest_first(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

/* Closes the segments of all but the most recently used buckets. A bucket whose shelf is busy is in
 * use. */
static void thin_out(struct varve_store *s)
{
	struct varve_bucket **all;
	cleanup_free int64_t *used = NULL;
	uint32_t n, open = 0;
	int64_t limit;

	{
		guard(&s->ns);
		n = s->n_buckets;
		all = malloc((n + 1) * sizeof(*all));
		used = malloc((n + 1) * sizeof(*used));
		if (!all || !used) {
			free(all);
			return;
		}
		for (uint32_t i = 0; i < n; i++) {
			all[i] = varve_bucket_ref(s->buckets[i]);
			used[i] = all[i]->used_boot_ns;
		}
	}
	qsort(used, n, sizeof(*used), newest_first);
	limit = n > OPEN_SEGMENTS_MAX / 2 ? used[OPEN_SEGMENTS_MAX / 2] : 0;
	for (uint32_t i = 0; i < n; i++) {
		struct varve_bucket *b = all[i];

		if (pthread_mutex_trylock(&b->shelf) == 0) {
			for (uint32_t t = 0; t < b->n_tabs; t++) {
				if (b->tabs[t].seg && b->used_boot_ns <= limit) {
					varve_segment_unref(b->tabs[t].seg);
					b->tabs[t].seg = NULL;
				}
				open += b->tabs[t].seg != NULL;
			}
			(void)pthread_mutex_unlock(&b->shelf);
		}
		guard(&s->ns);
		varve_bucket_unref(s, b);
	}
	free(all);
	guard(&s->ns);
	s->n_open_segments = open;
}

/* A segment may have come from another store: what it numbers is not to be given out again. */
static uint64_t highest_ino(struct varve_segment *seg)
{
	const struct varve_index *ix = varve_segment_index(seg);
	struct varve_member m;
	uint64_t top = 0;

	for (uint32_t i = 0; i < varve_index_count(ix); i++) {
		varve_index_member(ix, i, &m);
		if (m.ino > top)
			top = m.ino;
	}
	return top;
}

struct tabs {
	struct varve_tab *tabs;
	uint32_t n_tabs;
};

static int add_tab(struct tabs *b, const char *class_name, const char *tablet,
		   uint64_t allocated)
{
	struct varve_tab *more = realloc(b->tabs, (b->n_tabs + 1) * sizeof(*more));

	if (!more)
		return -ENOMEM;
	b->tabs = more;
	b->tabs[b->n_tabs] = (struct varve_tab){.allocated = allocated};
	(void)snprintf(b->tabs[b->n_tabs].at.class_name, VARVE_CLASS_NAME_MAX, "%s", class_name);
	(void)snprintf(b->tabs[b->n_tabs].at.tablet, VARVE_CLASS_NAME_MAX, "%s", tablet);
	b->n_tabs++;
	return 0;
}

static int by_place(const void *a, const void *b)
{
	return memcmp(&((const struct varve_tab *)a)->at, &((const struct varve_tab *)b)->at,
		      sizeof(struct varve_place));
}

struct class_tabs {
	struct tabs *list;
	const char *class_name;
};

static int load_tab(void *ctx, int dir_fd, const char *name)
{
	struct class_tabs *c = ctx;
	size_t len = strlen(name);
	char tablet[VARVE_CLASS_NAME_MAX];
	struct stat st;

	if (len <= 8 || len - 8 >= sizeof(tablet) || strcmp(name + len - 8, ".tar.zst") != 0 || name[0] == '.')
		return 0;
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return 0;
	(void)snprintf(tablet, sizeof(tablet), "%.*s", (int)(len - 8), name);
	return add_tab(c->list, c->class_name, tablet, (uint64_t)st.st_blocks * 512);
}

static int load_class(struct tabs *b, int bucket_fd, const char *class_name)
{
	return varve_each_name(bucket_fd, class_name, load_tab, &(struct class_tabs){b, class_name});
}

static int load_tabs(struct varve_store *s, struct varve_bucket *b)
{
	cleanup_closedir DIR *dir = NULL;
	struct tabs list = {NULL, 0};
	struct dirent *e;
	struct stat st;
	int r = 0, fd = varve_openat(s->sealed_fd, b->name, O_RDONLY | O_DIRECTORY, 0);

	if (fd < 0)
		return fd;
	dir = fdopendir(fd);
	if (!dir) {
		(void)close(fd);
		return -errno;
	}
	while (r == 0 && (errno = 0, e = readdir(dir)))
		if (e->d_name[0] != '.' && strlen(e->d_name) < VARVE_CLASS_NAME_MAX) {
			r = load_class(&list, dirfd(dir), e->d_name);
			if (r == -ENOTDIR)
				r = 0;
		}
	if (r == 0)
		r = -errno;
	if (r == 0 && fstat(dirfd(dir), &st) < 0)
		r = -errno;
	if (r < 0) {
		free(list.tabs);
		return r;
	}
	if (list.n_tabs)
		qsort(list.tabs, list.n_tabs, sizeof(*list.tabs), by_place);
	guard(&s->ns);
	b->tabs = list.tabs;
	b->n_tabs = list.n_tabs;
	b->dir_ino = st.st_ino;
	atomic_store(&b->listed, true);
	return 0;
}

/* shelf held. */
static int ready_locked(struct varve_store *s, struct varve_bucket *b)
{
	int r = atomic_load(&b->listed) ? 0 : load_tabs(s, b);

	if (r < 0 && r != -ENOENT) {
		guard(&s->ns);
		if (!b->damaged)
			varve_error("sealed bucket '%s' can't be listed: %s", b->name, strerror(-r));
		b->damaged = true;
	}
	return r == -ENOENT ? -ESTALE : r;
}

int varve_sealed_ready(struct varve_store *s, struct varve_bucket *b)
{
	if (atomic_load(&b->listed))
		return 0;
	guard(&b->shelf);
	return ready_locked(s, b);
}

int varve_sealed_segment(struct varve_store *s, struct varve_bucket *b, uint32_t tab,
			 struct varve_segment **ret)
{
	struct varve_err err = {.msg = ""};
	struct varve_tab *t;
	char path[2 * VARVE_CLASS_NAME_MAX + VARVE_BUCKET_NAME_MAX + 16];
	bool many = false;
	int r = 0;

	{
		guard(&b->shelf);
		r = ready_locked(s, b);
		if (r < 0)
			return r;
		if (tab >= b->n_tabs)
			return -ESTALE;
		t = &b->tabs[tab];
		if (t->bad)
			return -EBADMSG;
		b->used_boot_ns = varve_clock_boottime(s->clock);
		if (!t->seg) {
			(void)snprintf(path, sizeof(path), "%s/%s/%s.tar.zst", b->name,
				       t->at.class_name, t->at.tablet);
			r = varve_segment_open(s->cache, s->sealed_fd, path, &t->seg, &err);
			if (r == -EBADMSG || r == -EPROTONOSUPPORT) {
				t->bad = true;
				(void)atomic_fetch_add(&s->faults, 1);
				varve_error("segment 'sealed/%s' can't be read: %s; 'varve verify' "
					    "tells what is left of it", path, err.msg);
			}
			if (r == 0) {
				varve_ino_beyond(s, highest_ino(t->seg));
				guard(&s->ns);
				many = ++s->n_open_segments > OPEN_SEGMENTS_MAX;
			} else if (t->bad) {
				guard(&s->ns);
				b->damaged = true;
			}
		}
		if (r == 0)
			*ret = varve_segment_ref(t->seg);
	}
	if (many)
		thin_out(s);
	return r == -ENOENT ? -ESTALE : r;
}

int varve_sealed_tombs(struct varve_store *s, struct varve_bucket *b, struct varve_tombs **ret)
{
	struct varve_err err = {.msg = ""};
	int r = 0;

	guard(&b->shelf);
	if (!b->tombs) {
		r = varve_tombs_open(s->tombs_fd, b->name, false, &b->tombs, &err);
		if (r < 0)
			varve_error("tombstones of bucket '%s' can't be read: %s", b->name, err.msg);
	}
	*ret = b->tombs;
	return r;
}

/* -- nodes -- */

void varve_sealed_attr(const struct varve_member *m, uint64_t ino, struct stat *ret)
{
	*ret = (struct stat){.st_ino = ino, .st_mode = m->mode, .st_nlink = 1, .st_uid = m->uid,
			     .st_gid = m->gid, .st_blksize = 4096};
	ret->st_size = S_ISDIR(m->mode) ? 4096 : (off_t)m->size;
	ret->st_mtim.tv_sec = (time_t)m->mtime_sec;
	ret->st_mtim.tv_nsec = m->mtime_nsec;
	ret->st_atim = ret->st_ctim = ret->st_mtim;
}

void varve_sealed_told(struct varve_store *s, struct varve_bucket *b, const struct varve_member *m)
{
	if (m->xattrs_len || m->path_len)
		return;
	guard(&s->ns);
	varve_sealed_attr(m, b->ino, &b->dir_attr);
	(void)atomic_fetch_add(&s->known_changes, 1);
}

int varve_sealed_stat(struct varve_store *s, struct varve_node *n, struct stat *ret)
{
	struct varve_segment *seg;
	struct varve_member m;
	int r;

	if (n->tab_none) {
		guard(&s->ns);
		*ret = n->bucket->dir_attr;
		if (ret->st_mode)
			return 0;
	}
	r = varve_sealed_segment(s, n->bucket, n->tab, &seg);
	/* A bucket's own directory can be seen even when nothing of it can be read; and a file that
	 * is open outlives its bucket. */
	if (r < 0) {
		*ret = n->attr;
		return n->tab_none || ret->st_mode ? 0 : r;
	}
	varve_index_member(varve_segment_index(seg), n->member, &m);
	varve_sealed_attr(&m, n->ino, ret);
	if (!S_ISDIR(m.mode))
		ret->st_blocks = (blkcnt_t)((varve_segment_share(seg, n->member) + 511) / 512);
	if (n->tab_none)
		varve_sealed_told(s, n->bucket, &m);
	varve_segment_unref(seg);
	return 0;
}

int varve_sealed_bucket_node(struct varve_store *s, struct varve_bucket *b, struct varve_node **ret)
{
	struct varve_node *n = varve_node_by_id(s, b->ino);

	if (n && n->bucket == b) {
		*ret = varve_node_ref(n);
		return 0;
	}
	n = varve_node_new(s, VARVE_KIND_SEALED, b->ino);
	if (!n)
		return -ENOMEM;
	n->bucket = varve_bucket_ref(b);
	n->tab_none = true;
	n->attr.st_mode = S_IFDIR | 0755;
	n->attr.st_uid = s->uid;
	n->attr.st_gid = getegid();
	n->attr.st_mtim.tv_sec = (time_t)(b->end_ns / VARVE_NS_PER_S);
	n->attr.st_ctim = n->attr.st_atim = n->attr.st_mtim;
	*ret = n;
	return 0;
}

/* The path of a directory inside its bucket, malloc'ed, with a name behind it. */
static int child_path(struct varve_store *s, struct varve_node *dir, const char *name, char **ret)
{
	struct varve_segment *seg;
	struct varve_member m;
	int r;

	if (dir->tab_none) {
		*ret = strdup(name);
		return *ret ? 0 : -ENOMEM;
	}
	r = varve_sealed_segment(s, dir->bucket, dir->tab, &seg);
	if (r < 0)
		return r;
	varve_index_member(varve_segment_index(seg), dir->member, &m);
	r = asprintf(ret, "%.*s%s%s", (int)m.path_len, m.path, m.path_len && *name ? "/" : "", name);
	varve_segment_unref(seg);
	return r < 0 ? -ENOMEM : 0;
}

static bool is_tombed(struct varve_tombs *t, const struct varve_place *at, const char *path,
		      size_t len)
{
	return varve_tombs_count(t) && varve_tombs_has(t, at->class_name, at->tablet, path, len);
}

/* Where a path is: the first tablet, from `from` on, that has it. -ENOENT; -EBADMSG when it may be in
 * one that can't be read. The segment is referenced. */
struct hit {
	struct varve_segment *seg;
	uint32_t tab, member;
};

static int find_path(struct varve_store *s, struct varve_bucket *b, const char *path, uint32_t from,
		     struct hit *ret)
{
	struct varve_tombs *tombs;
	int r = varve_sealed_tombs(s, b, &tombs), bad = 0;

	if (r == 0)
		r = varve_sealed_ready(s, b);
	if (r < 0)
		return r;
	for (uint32_t t = from; t < b->n_tabs; t++) {
		r = varve_sealed_segment(s, b, t, &ret->seg);
		if (r < 0) {
			bad = r;
			continue;
		}
		r = varve_index_find(varve_segment_index(ret->seg), path, strlen(path), &ret->member);
		if (r == 0 && !is_tombed(tombs, &b->tabs[t].at, path, strlen(path))) {
			ret->tab = t;
			return 0;
		}
		varve_segment_unref(ret->seg);
	}
	return bad ? bad : -ENOENT;
}

/* The node for what was found, referenced. ns held. */
static int node_for(struct varve_store *s, struct varve_bucket *b, const struct hit *hit,
		    const struct varve_member *m, struct varve_node **ret)
{
	struct varve_node *n = varve_node_by_id(s, m->ino);
	uint64_t ino = m->ino;

	if (n && n->kind == VARVE_KIND_SEALED && n->bucket == b && n->tab == hit->tab &&
	    n->member == hit->member) {
		*ret = varve_node_ref(n);
		return 0;
	}
	/* Only a segment that was copied by hand has a number that something else has: it gets one of
	 * its own, for this mount. */
	if (n || !ino) {
		ino = varve_ino_take(s);
		if (!ino)
			return -EAGAIN;
	}
	n = varve_node_new(s, VARVE_KIND_SEALED, ino);
	if (!n)
		return -ENOMEM;
	n->bucket = varve_bucket_ref(b);
	n->tab = (uint16_t)hit->tab;
	n->member = hit->member;
	varve_sealed_attr(m, ino, &n->attr);
	*ret = n;
	return 0;
}

int varve_sealed_lookup(struct varve_store *s, struct varve_node *dir, const char *name,
			struct varve_entry *ret)
{
	cleanup_free char *path = NULL;
	struct varve_node *n;
	struct varve_member m;
	struct hit hit;
	int r = child_path(s, dir, name, &path);

	if (r == 0)
		r = find_path(s, dir->bucket, path, 0, &hit);
	if (r < 0)
		return r;
	varve_index_member(varve_segment_index(hit.seg), hit.member, &m);
	r = varve_ino_ready(s);
	if (r == 0) {
		guard(&s->ns);
		r = node_for(s, dir->bucket, &hit, &m, &n);
		if (r == 0) {
			varve_entry_fill(s, n, false, ret);
			varve_node_unref(s, n);
		}
	}
	if (r == 0 && !S_ISDIR(m.mode))
		ret->attr.st_blocks =
			(blkcnt_t)((varve_segment_share(hit.seg, hit.member) + 511) / 512);
	varve_segment_unref(hit.seg);
	return r;
}

/* -- listing and removing -- */

/* Whether an earlier tablet shows this path already. */
static bool shown_before(struct varve_store *s, struct varve_bucket *b, const char *path,
			 uint32_t tab)
{
	struct hit hit;

	if (find_path(s, b, path, 0, &hit) < 0)
		return false;
	varve_segment_unref(hit.seg);
	return hit.tab < tab;
}

typedef int child_cb(void *ctx, const char *name, size_t len, const struct varve_member *m);

/* Calls cb for each child of the directory at path, in each tablet. Stops at a result other than 0.
 * What is intact is gone through first; then a tablet that can't be read is an error. */
static int each_child(struct varve_store *s, struct varve_bucket *b, const char *path, child_cb *cb,
		      void *ctx)
{
	struct varve_tombs *tombs;
	size_t skip = *path ? strlen(path) + 1 : 0;
	int r = varve_sealed_tombs(s, b, &tombs), bad = 0;

	if (r == 0)
		r = varve_sealed_ready(s, b);
	for (uint32_t t = 0; r == 0 && t < b->n_tabs; t++) {
		struct varve_segment *seg;
		const struct varve_index *ix;
		uint32_t i, end;
		int e = varve_sealed_segment(s, b, t, &seg);

		if (e < 0) {
			bad = e;
			continue;
		}
		ix = varve_segment_index(seg);
		e = varve_index_find(ix, path, strlen(path), &i);
		end = e == 0 ? varve_index_subtree_end(ix, i) : 0;
		for (i++; e == 0 && r == 0 && i < end; i = varve_index_subtree_end(ix, i)) {
			struct varve_member m;
			cleanup_free char *full = NULL;

			varve_index_member(ix, i, &m);
			if (is_tombed(tombs, &b->tabs[t].at, m.path, m.path_len))
				continue;
			if (t > 0) {
				full = strndup(m.path, m.path_len);
				if (!full || shown_before(s, b, full, t))
					continue;
			}
			r = cb(ctx, m.path + skip, m.path_len - skip, &m);
		}
		varve_segment_unref(seg);
	}
	return r ? r : bad;
}

/* st_ino of "..". */
static uint64_t ino_above(struct varve_store *s, struct varve_node *dir)
{
	struct varve_segment *seg;
	struct varve_member m;
	uint64_t ino = VARVE_ID_ROOT;
	const char *slash;
	uint32_t i;

	if (dir->tab_none || varve_sealed_segment(s, dir->bucket, dir->tab, &seg) < 0)
		return ino;
	ino = dir->bucket->ino;
	varve_index_member(varve_segment_index(seg), dir->member, &m);
	slash = memrchr(m.path, '/', m.path_len);
	if (slash && varve_index_find(varve_segment_index(seg), m.path, (size_t)(slash - m.path),
				      &i) == 0) {
		varve_index_member(varve_segment_index(seg), i, &m);
		ino = m.ino;
	}
	varve_segment_unref(seg);
	return ino;
}

/* The place of the directory in a tablet's index. */
static int dir_in_tab(const struct varve_node *dir, const char *path, uint32_t tab,
		      const struct varve_index *ix, uint32_t *ret)
{
	if (!dir->tab_none && tab == dir->tab) {
		*ret = dir->member;
		return 0;
	}
	return varve_index_find(ix, path, strlen(path), ret);
}

struct walk {
	struct varve_store *s;
	struct varve_node *dir;
	struct varve_tombs *tombs;
	const char *path;
	bool plus;
	varve_readdir_cb *cb;
	void *ctx;
};

/* Gives one entry. False: the callback has had enough. */
static bool give_child(const struct walk *w, const struct hit *hit, const struct varve_member *m,
		       const char *name, uint64_t next)
{
	struct varve_entry e = {0};

	if (w->plus) {
		struct varve_node *n;

		guard(&w->s->ns);
		if (node_for(w->s, w->dir->bucket, hit, m, &n) == 0) {
			varve_entry_fill(w->s, n, false, &e);
			varve_node_unref(w->s, n);
		}
	}
	if (!e.id) {
		e.attr.st_ino = m->ino;
		e.attr.st_mode = m->mode & S_IFMT;
	} else if (!S_ISDIR(m->mode)) {
		e.attr.st_blocks =
			(blkcnt_t)((varve_segment_share(hit->seg, hit->member) + 511) / 512);
	}
	if (w->cb(w->ctx, name, &e, next))
		return true;
	if (e.id)
		varve_store_forget(w->s, e.id, 1);
	return false;
}

/* A cookie is the place in the index where to go on: it holds for every handle, whatever was removed
 * meanwhile, since the kernel keeps what one of them has read for all of them. */
#define COOKIE_DOTS 2

static uint64_t cookie(uint32_t tab, uint32_t member)
{
	return ((uint64_t)tab << 32 | member) + COOKIE_DOTS;
}

/* One tablet's children of the directory, from member `at` on. 1: the callback has had enough. */
static int walk_tab(const struct walk *w, struct hit *hit, uint32_t at)
{
	const struct varve_index *ix = varve_segment_index(hit->seg);
	struct varve_bucket *b = w->dir->bucket;
	size_t skip = *w->path ? strlen(w->path) + 1 : 0;
	uint32_t i, end;

	if (dir_in_tab(w->dir, w->path, hit->tab, ix, &i) < 0)
		return 0;
	end = varve_index_subtree_end(ix, i);
	for (hit->member = at > i ? at : i + 1; hit->member < end;) {
		uint32_t next = varve_index_subtree_end(ix, hit->member);
		char name[NAME_MAX + 1];
		struct varve_member m;
		size_t len;

		varve_index_member(ix, hit->member, &m);
		len = m.path_len - skip;
		/* A place that no cookie of this directory names; a name that can't be looked up. */
		if (len > NAME_MAX || memchr(m.path + skip, '/', len)) {
			hit->member++;
			continue;
		}
		memcpy(name, m.path + skip, len);
		name[len] = '\0';
		if (!is_tombed(w->tombs, &b->tabs[hit->tab].at, m.path, m.path_len)) {
			cleanup_free char *full =
				hit->tab > 0 ? strndup(m.path, m.path_len) : NULL;

			if (hit->tab > 0 && !full)
				return -ENOMEM;
			if ((!full || !shown_before(w->s, b, full, hit->tab)) &&
			    !give_child(w, hit, &m, name, cookie(hit->tab, next)))
				return 1;
		}
		hit->member = next;
	}
	return 0;
}

static bool give_dot(const struct walk *w, const char *name, uint64_t ino, uint64_t next)
{
	struct varve_entry e = {.attr = {.st_ino = ino, .st_mode = S_IFDIR}};

	return w->cb(w->ctx, name, &e, next);
}

int varve_sealed_readdir(struct varve_store *s, struct varve_node *dir, uint64_t off, bool plus,
			 varve_readdir_cb *cb, void *ctx)
{
	struct varve_bucket *b = dir->bucket;
	struct walk w = {.s = s, .dir = dir, .plus = plus, .cb = cb, .ctx = ctx};
	cleanup_free char *path = NULL;
	uint64_t place = off > COOKIE_DOTS ? off - COOKIE_DOTS : 0;
	uint32_t at = (uint32_t)place;
	int r, bad = 0;

	if (off < 1 && !give_dot(&w, ".", dir->ino, 1))
		return 0;
	if (off < COOKIE_DOTS && !give_dot(&w, "..", ino_above(s, dir), COOKIE_DOTS))
		return 0;
	r = child_path(s, dir, "", &path);
	w.path = path;
	if (r == 0)
		r = varve_sealed_tombs(s, b, &w.tombs);
	if (r == 0)
		r = varve_sealed_ready(s, b);
	if (r == 0 && plus)
		r = varve_ino_ready(s);
	for (uint64_t t = place >> 32; r == 0 && t < b->n_tabs; t++, at = 0) {
		struct hit hit = {.tab = (uint32_t)t};
		int e = varve_sealed_segment(s, b, hit.tab, &hit.seg);

		if (e < 0) {
			bad = e;
			continue;
		}
		r = walk_tab(&w, &hit, at);
		varve_segment_unref(hit.seg);
	}
	if (r != 0)
		return r > 0 ? 0 : r;
	/* The intact part was shown; that it is not all is said. */
	return bad == -EBADMSG || bad == -EPROTONOSUPPORT ? -EIO : bad;
}

static int any_child(void *ctx, const char *name, size_t len, const struct varve_member *m)
{
	(void)ctx;
	(void)name;
	(void)len;
	(void)m;
	return 1;
}

bool varve_sealed_is_empty(struct varve_store *s, struct varve_bucket *b)
{
	return each_child(s, b, "", any_child, NULL) == 0;
}

/* Removing must work on a full disk, too. */
static int add_tomb(struct varve_store *s, struct varve_tombs *tombs, const struct varve_place *at,
		    const char *path)
{
	int r = varve_tombs_add(tombs, at->class_name, at->tablet, path, strlen(path));

	if (r != -ENOSPC)
		return r;
	varve_ballast_free(s);
	return varve_tombs_add(tombs, at->class_name, at->tablet, path, strlen(path));
}

int varve_sealed_remove(struct varve_store *s, struct varve_node *dir, const char *name, bool is_dir)
{
	cleanup_free char *path = NULL;
	struct varve_bucket *b = dir->bucket;
	struct varve_tombs *tombs;
	struct varve_member m;
	struct hit hit;
	bool any = false;
	int r = child_path(s, dir, name, &path);

	if (r == 0)
		r = varve_sealed_tombs(s, b, &tombs);
	if (r == 0)
		r = varve_sealed_ready(s, b);
	for (uint32_t t = 0; r == 0 && t < b->n_tabs; t = hit.tab + 1) {
		r = find_path(s, b, path, t, &hit);
		if (r < 0)
			break;
		varve_index_member(varve_segment_index(hit.seg), hit.member, &m);
		if (is_dir && !S_ISDIR(m.mode))
			r = -ENOTDIR;
		else if (!is_dir && S_ISDIR(m.mode))
			r = -EISDIR;
		else if (is_dir && each_child(s, b, path, any_child, NULL))
			r = -ENOTEMPTY;
		else
			r = add_tomb(s, tombs, &b->tabs[hit.tab].at, path);
		varve_segment_unref(hit.seg);
		any = any || r == 0;
	}
	if (any) {
		atomic_store(&s->names_dirty, true);
		return r == -ENOENT ? 0 : r;
	}
	return r;
}
