#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/disk_private.h"

struct listing {
	const struct varve_place_of *place;
	bool recursive;
	bool found; /* the place itself is there */
	const char *bucket; /* whose parts are being listed; NULL: it is the skeleton */
	struct varve_disk *d;
	struct varve_disk_list *list;
	struct varve_tombs *tombs;
	int fault; /* a tablet that can't be read: the rest is listed all the same */
	struct varve_err *err;
};

void varve_disk_list_done(struct varve_disk_list *list)
{
	for (size_t i = 0; i < list->n; i++) {
		free(list->entries[i].path);
		free(list->entries[i].target);
	}
	free(list->entries);
	*list = (struct varve_disk_list){0};
}

/* Copies the path; takes the target over. */
static int add_entry(struct varve_disk_list *list, const char *path, size_t len,
		     struct varve_disk_entry e)
{
	if (list->n == list->size) {
		size_t size = list->size ? 2 * list->size : 64;
		void *p = realloc(list->entries, size * sizeof(*list->entries));

		if (!p) {
			free(e.target);
			return -ENOMEM;
		}
		list->entries = p;
		list->size = size;
	}
	e.path = strndup(path, len);
	e.path_len = len;
	if (!e.path) {
		free(e.target);
		return -ENOMEM;
	}
	list->entries[list->n++] = e;
	return 0;
}

static int add_member(struct listing *l, const struct varve_member *m)
{
	struct varve_disk_entry e = {
		.mode = m->mode,
		.uid = m->uid,
		.gid = m->gid,
		.size = m->size,
		.mtime_ns = m->mtime_sec * VARVE_NS_PER_S + m->mtime_nsec,
	};

	if (S_ISLNK(m->mode)) {
		e.target = strndup(m->target, (size_t)m->size);
		if (!e.target)
			return -ENOMEM;
	}
	return add_entry(l->list, m->path, m->path_len, e);
}

static bool removed(const struct listing *l, const char *cls, const char *tablet,
		    const struct varve_member *m)
{
	return l->tombs && varve_tombs_count(l->tombs) && m->path_len &&
	       varve_tombs_has(l->tombs, cls, tablet, m->path, m->path_len);
}

static int list_index(struct listing *l, const struct varve_index *ix, const char *cls,
		      const char *tablet)
{
	const struct varve_place_of *p = l->place;
	struct varve_member m;
	uint32_t i = 0, end;
	int r = p->path_len ? varve_index_find(ix, p->path, p->path_len, &i) : 0;

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	varve_index_member(ix, i, &m);
	if (removed(l, cls, tablet, &m))
		return 0;
	l->found = true;
	if (!S_ISDIR(m.mode))
		return add_member(l, &m);
	end = varve_index_subtree_end(ix, i);
	for (uint32_t k = i + 1; k < end && r == 0;) {
		varve_index_member(ix, k, &m);
		if (!removed(l, cls, tablet, &m))
			r = add_member(l, &m);
		k = l->recursive ? k + 1 : varve_index_subtree_end(ix, k);
	}
	return r;
}

static int list_sealed(struct varve_disk *d, const char *path, const char *cls, const char *name,
		       void *ctx)
{
	struct listing *l = ctx;
	cleanup_free char *tablet = varve_disk_tablet_of(name);
	struct varve_segment *seg;
	int r;

	if (!tablet)
		return 0;
	r = varve_segment_open(d->cache, d->fd, path, &seg, l->err);
	if (r == -ENOENT)
		return r;
	if (r < 0) {
		l->fault = r;
		return 0;
	}
	r = list_index(l, varve_segment_index(seg), cls, tablet);
	varve_segment_unref(seg);
	return r;
}

static int add_file(struct listing *l, int fd, struct stat *st, const char *path)
{
	struct varve_disk_part part = {.late_fd = -1};
	int r = l->bucket && S_ISREG(st->st_mode) ? varve_disk_part(l->d, l->bucket, fd, st, &part) : 0;
	struct varve_disk_entry e = {
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.size = (uint64_t)st->st_size,
		.mtime_ns = st->st_mtim.tv_sec * VARVE_NS_PER_S + st->st_mtim.tv_nsec,
	};

	if (part.late_fd >= 0)
		(void)close(part.late_fd);
	if (r < 0)
		return r;
	if (l->bucket && S_ISREG(st->st_mode) && st->st_size == 0 && varve_disk_is_opened(fd))
		return 0;
	if (S_ISREG(st->st_mode))
		e.target = varve_disk_link_target(fd, st->st_size);
	if (e.target)
		e.mode = S_IFLNK | 0777;
	return add_entry(l->list, path, strlen(path), e);
}

static int list_folder(struct listing *l, int fd, const char *path);

/* Whether a folder that was made for parts that were only opened has something in it by now: 1, 0 or -errno. */
static int holds_something(struct listing *l, int fd)
{
	struct varve_disk_list below = {0}, *list = l->list;
	bool recursive = l->recursive;
	int r, again = varve_openat(fd, ".", O_RDONLY | O_DIRECTORY, 0);

	if (again < 0)
		return again;
	l->list = &below;
	l->recursive = true;
	r = list_folder(l, again, "");
	l->list = list;
	l->recursive = recursive;
	if (r == 0)
		r = below.n != 0;
	varve_disk_list_done(&below);
	return r;
}

static int list_child(struct listing *l, int dirfd, const char *dir, const char *name)
{
	cleanup_close int fd = varve_openat(dirfd, name, O_RDONLY | O_NONBLOCK, 0);
	cleanup_free char *path = NULL;
	struct stat st;
	int r;

	if (fd == -ENOENT || fd == -ELOOP) /* gone meanwhile; no link of ours */
		return 0;
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return 0;
	if (l->bucket && S_ISDIR(st.st_mode) && varve_disk_is_opened(fd)) {
		r = holds_something(l, fd);
		if (r <= 0)
			return r;
	}
	if (asprintf(&path, "%s%s%s", dir, dir[0] ? "/" : "", name) < 0)
		return -ENOMEM;
	r = add_file(l, fd, &st, path);
	if (r == 0 && l->recursive && S_ISDIR(st.st_mode))
		r = list_folder(l, steal_fd(&fd), path);
	return r;
}

/* Takes fd over. */
static int list_folder(struct listing *l, int fd, const char *path)
{
	cleanup_closedir DIR *dir = fdopendir(fd);
	const struct dirent *e;
	int r = 0;

	if (!dir) {
		(void)close(fd);
		return -errno;
	}
	while (r == 0 && (errno = 0, e = readdir(dir)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = list_child(l, dirfd(dir), path, e->d_name);
	return r ? r : -errno;
}

/* What is at the place below a folder of plain files: a tablet's parts, or the skeleton. */
static int list_plain(struct varve_disk *d, const char *folder, const char *cls, const char *tablet,
		      void *ctx)
{
	struct listing *l = ctx;
	cleanup_free char *full = NULL, *path = strndup(l->place->path, l->place->path_len);
	cleanup_close int fd = -1;
	struct stat st;

	(void)tablet;
	l->bucket = cls ? l->place->bucket->name : NULL;
	if (!path || asprintf(&full, "%s/%s", folder, path) < 0)
		return -ENOMEM;
	fd = varve_openat(d->fd, full, O_RDONLY | O_NONBLOCK, 0);
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return 0;
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	l->found = true;
	if (S_ISDIR(st.st_mode))
		return list_folder(l, steal_fd(&fd), path);
	return S_ISREG(st.st_mode) ? add_file(l, fd, &st, path) : 0;
}

static int compare_entries(const void *a, const void *b)
{
	const struct varve_disk_entry *x = a, *y = b;

	return varve_path_compare(x->path, x->path_len, y->path, y->path_len);
}

/* A folder is in every tablet that holds something of it, and all of it may be in the skeleton. */
static void sort_unique(struct varve_disk_list *list)
{
	size_t kept = 0;

	if (!list->n)
		return;
	qsort(list->entries, list->n, sizeof(*list->entries), compare_entries);
	for (size_t i = 1; i < list->n; i++) {
		struct varve_disk_entry *last = &list->entries[kept], *e = &list->entries[i];

		if (compare_entries(last, e) != 0) {
			list->entries[++kept] = *e;
			continue;
		}
		/* Of a stream's marker and its part, the part tells what is there. */
		if (S_ISREG(e->mode) && e->size > last->size) {
			struct varve_disk_entry swap = *last;

			*last = *e;
			*e = swap;
		}
		free(e->path);
		free(e->target);
	}
	list->n = kept + 1;
}

static int list_place(struct varve_disk *d, struct listing *l)
{
	int r = varve_disk_tombs(d, l->place, &l->tombs, l->err);

	if (r == 0 && l->place->bucket)
		r = varve_disk_each_tablet(d, l->place, list_sealed, list_plain, l);
	if (r == 0 && l->place->current)
		r = list_plain(d, "tree", NULL, NULL, l);
	varve_tombs_close(l->tombs);
	l->tombs = NULL;
	return r;
}

int varve_disk_list(struct varve_disk *d, const char *text, bool recursive,
		    struct varve_disk_list *ret, struct varve_err *err)
{
	struct varve_place_of place;
	struct listing l = {.place = &place, .recursive = recursive, .list = ret, .err = err, .d = d};
	int r;

	*ret = (struct varve_disk_list){0};
	for (int attempt = 0; attempt < 2; attempt++) {
		r = varve_disk_place(d, text, &place, err);
		if (r == 0)
			r = list_place(d, &l);
		if (r != -ENOENT)
			break;
		/* Sealed or dropped under our hands, or not known yet. */
		varve_disk_list_done(ret);
		l.found = false;
		if (varve_disk_scan(d) < 0)
			break;
	}
	if (r == 0)
		r = l.fault;
	if (r == 0 && !l.found && place.path_len)
		r = varve_err_set(err, -ENOENT, "'%s' is not there", text);
	sort_unique(ret);
	if (r < 0 && !err->msg[0])
		(void)varve_err_wrap(err, r, "read '%s'", text);
	return r;
}
