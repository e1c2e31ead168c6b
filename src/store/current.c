/* The directories of current/: the union of the skeleton and of the current bucket's tree. */
#include "store/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#include "store/entry.h"
#include "store/opened.h"
#include "store/part.h"

struct varve_node *varve_sdir_ddir_if(struct varve_store *s, struct varve_node *sdir)
{
	if (sdir == s->current_dir)
		return s->current->root;
	if (sdir->ddir && sdir->ddir->bucket == s->current && sdir->ddir->linked)
		return sdir->ddir;
	return NULL;
}

int varve_sdir_ddir(struct varve_store *s, struct varve_node *sdir, struct varve_node **ret)
{
	struct varve_node *up, *d = varve_sdir_ddir_if(s, sdir);
	uint64_t ino;
	int r;

	if (d) {
		*ret = d;
		return 0;
	}
	if (!sdir->linked)
		return -ENOENT;
	/* As deep as a path has components, 2,000 at most. */
	r = varve_sdir_ddir(s, sdir->parent, &up);
	if (r < 0)
		return r;
	/* Recovery has found it on disk, in a bucket that is current for a moment only. */
	d = varve_node_child(up, sdir->name);
	if (d && d->kind == VARVE_KIND_DDIR && !d->sdir) {
		d->sdir = varve_node_ref(sdir);
		sdir->ddir = d;
		*ret = d;
		return 0;
	}
	ino = varve_ino_take(s);
	if (!ino)
		return -EAGAIN;
	d = varve_node_new(s, VARVE_KIND_DDIR, ino);
	if (!d)
		return -ENOMEM;
	d->attr = sdir->attr;
	d->attr.st_ino = ino;
	d->bucket = varve_bucket_ref(s->current);
	d->sdir = varve_node_ref(sdir);
	r = varve_node_link(up, d, sdir->name);
	if (r == 0) {
		sdir->ddir = d;
		*ret = d;
	}
	varve_node_unref(s, d);
	return r;
}

struct varve_node *varve_current_child(struct varve_store *s, struct varve_node *sdir,
				       const char *name)
{
	struct varve_node *d = varve_sdir_ddir_if(s, sdir);
	struct varve_node *c = d ? varve_node_child(d, name) : NULL;

	if (c && c->kind == VARVE_KIND_FILE)
		return c;
	return varve_node_child(sdir, name);
}

struct varve_node *varve_visible_child(struct varve_store *s, struct varve_node *dir,
				       const char *name)
{
	struct varve_node *c;

	if (dir->kind == VARVE_KIND_SDIR)
		return varve_current_child(s, dir, name);
	c = varve_node_child(dir, name);
	return c && dir->kind == VARVE_KIND_DDIR && !varve_dated_visible(c) ? NULL : c;
}

int varve_stream_file(struct varve_store *s, struct varve_node *stream, struct varve_node **ret)
{
	struct varve_node *d = NULL, *f;
	uint64_t ino;
	int r = varve_sdir_ddir(s, stream->parent, &d);

	if (r < 0)
		return r;
	f = varve_node_child(d, stream->name);
	if (f && f->kind == VARVE_KIND_FILE) {
		*ret = f;
		return 0;
	}
	if (f)
		return -EEXIST;
	ino = stream->serial < s->serial_n ? s->serial_base + stream->serial : 0;
	/* Only a store whose marks were touched by hand has it in use already. */
	if (!ino || varve_node_by_id(s, ino))
		ino = varve_ino_take(s);
	if (!ino)
		return -EAGAIN;
	f = varve_node_new(s, VARVE_KIND_FILE, ino);
	if (!f)
		return -ENOMEM;
	f->attr = stream->attr;
	f->attr.st_ino = ino;
	f->attr.st_size = f->attr.st_blocks = 0;
	f->attr.st_mtim.tv_sec = (time_t)(s->current->start_ns / VARVE_NS_PER_S);
	f->attr.st_mtim.tv_nsec = 0;
	f->attr.st_atim = f->attr.st_ctim = f->attr.st_mtim;
	f->last = '\n';
	f->bucket = varve_bucket_ref(s->current);
	r = varve_node_link(d, f, stream->name);
	if (r == 0)
		*ret = f;
	varve_node_unref(s, f);
	return r;
}

/* The directory of the bucket itself, with what names it and its window noted on it. */
static int bucket_on_disk(struct varve_store *s, struct varve_bucket *b)
{
	const struct varve_bucket_facts facts = {.ino = b->ino, .files = UINT64_MAX,
						 .start_ns = b->start_ns, .end_ns = b->end_ns};
	int r;

	if (b->dir_made)
		return 0;
	if (mkdirat(s->open_fd, b->name, 0700) < 0 && errno != EEXIST)
		return -errno;
	r = varve_bucket_note(s->open_fd, b->name, &facts);
	if (r < 0)
		return r;
	b->dir_made = true;
	return 0;
}

/* What was made for parts that were only opened counts from now on. */
static int mean_ddir(struct varve_store *s, struct varve_node *ddir)
{
	for (unsigned p = 0; p < VARVE_PLACES_MAX; p++) {
		cleanup_free char *where = NULL;
		cleanup_close int fd = -1;
		int base;

		if (!(ddir->on_disk & (1u << p)))
			continue;
		{
			guard(&s->ns);
			where = varve_node_where(s, ddir, NULL, p, &base);
		}
		fd = where ? varve_openat(base, where, O_RDONLY | O_DIRECTORY, 0) : -ENOMEM;
		if (fd < 0)
			return fd;
		if (fremovexattr(fd, VARVE_XATTR_OPENED) < 0 && errno != ENODATA)
			return -errno;
	}
	guard(&s->ns);
	ddir->opened = false;
	return 0;
}

/* Owner, mode, xattrs and number of a directory that was made just now. */
static int dress_ddir(struct varve_store *s, int fd, const struct stat *attr, uint64_t ino, const char *tree_path)
{
	cleanup_close int skeleton = -1;
	struct stat st;
	int r;

	/* Below a directory with setgid it began with that one's group. */
	if (fstat(fd, &st) < 0)
		return -errno;
	if ((attr->st_uid != st.st_uid || attr->st_gid != st.st_gid) &&
	    fchown(fd, attr->st_uid, attr->st_gid) < 0 && errno != EPERM)
		return -errno;
	if (tree_path && *tree_path)
		skeleton = varve_openat(s->tree_fd, tree_path, O_RDONLY | O_DIRECTORY, 0);
	if (skeleton >= 0) {
		r = varve_xattrs_copy(skeleton, fd);
		if (r < 0)
			return r;
	}
	r = varve_ino_write_xattr(fd, ino);
	return r < 0 ? r : varve_mode_set(fd, attr->st_mode & 07777);
}

static int ddir_on_disk(struct varve_store *s, struct varve_node *ddir, unsigned place, bool opening)
{
	struct varve_node *up;
	struct stat attr;
	uint64_t ino;
	cleanup_free char *path = NULL;
	cleanup_free char *where = NULL;
	cleanup_close int fd = -1;
	cleanup_free char *tree_path = NULL;
	bool there, opened;
	int r;

	{
		guard(&s->ns);
		there = ddir->on_disk & (1u << place);
		opened = ddir->opened;
		if (there && (opening || !opened))
			return 0;
		opening = opening && (opened || !ddir->on_disk);
		up = ddir->parent;
		if (ddir->sdir && ddir->sdir->linked)
			tree_path = varve_node_path(ddir->sdir, NULL);
		attr = ddir->attr;
		ino = ddir->ino;
		path = varve_node_path(ddir, NULL);
	}
	where = path ? varve_part_path(s, ddir->bucket, place, path) : NULL;
	if (!where)
		return -ENOMEM;
	r = up ? ddir_on_disk(s, up, place, opening) : bucket_on_disk(s, ddir->bucket);
	if (r == 0 && opened && !opening)
		r = mean_ddir(s, ddir);
	if (r < 0 || there)
		return r;
	if (!up) {
		r = varve_mkdir_p(s->open_fd, where, 0700);
		if (r < 0)
			return r;
	} else if (mkdirat(s->open_fd, where, 0700) < 0 && errno != EEXIST) {
		return -errno;
	}
	fd = varve_openat(s->open_fd, where, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	r = opening ? varve_opened_note(fd) : 0;
	if (r == 0)
		r = dress_ddir(s, fd, &attr, ino, tree_path);
	if (r < 0)
		return r;
	guard(&s->ns);
	ddir->on_disk |= 1u << place;
	ddir->opened = opening;
	return 0;
}

int varve_ddir_on_disk(struct varve_store *s, struct varve_node *ddir, unsigned place)
{
	return ddir_on_disk(s, ddir, place, false);
}

int varve_ddir_for_open(struct varve_store *s, struct varve_node *ddir, unsigned place)
{
	return ddir_on_disk(s, ddir, place, true);
}

/* Notes the serial on a marker's file. */
static int write_serial(int fd, uint64_t serial)
{
	char text[32];
	int n = snprintf(text, sizeof(text), "%llu", (unsigned long long)serial);

	return fsetxattr(fd, VARVE_XATTR_SERIAL, text, (size_t)n, 0) < 0 ? -errno : 0;
}

/* The marker's file in tree/, dressed like the part before it has its name; one that a crash left is
 * replaced. */
static int make_marker(struct varve_store *s, const char *path, int part_fd, const struct stat *attr,
		       uint64_t serial)
{
	cleanup_close int fd = varve_part_unnamed(s->tree_fd);
	int r;

	if (fd < 0)
		return fd;
	if (fchown(fd, attr->st_uid, attr->st_gid) < 0 && errno != EPERM)
		return -errno;
	r = part_fd >= 0 ? varve_xattrs_copy(part_fd, fd) : 0;
	if (r == 0)
		r = write_serial(fd, serial);
	if (r == 0)
		r = varve_mode_set(fd, attr->st_mode & 01777);
	if (r == 0)
		r = varve_part_link(fd, s->tree_fd, path);
	if (r == -EEXIST)
		r = unlinkat(s->tree_fd, path, 0) < 0 ? -errno
						      : varve_part_link(fd, s->tree_fd, path);
	return r;
}

int varve_stream_make(struct varve_store *s, struct varve_node *sdir, const char *name,
		      struct varve_node *like)
{
	struct varve_part *part = NULL;
	struct varve_node *stream;
	struct stat attr;
	uint64_t serial;
	cleanup_free char *path = NULL;
	int r = varve_file_stat(s, like, &attr);

	if (r == 0)
		r = varve_file_part_named(s, like, &part);
	if (r < 0 && r != -ENODATA && r != -ENOENT && r != -ESTALE)
		return r;
	{
		guard(&s->ns);
		path = varve_node_path(sdir, name);
		serial = s->next_serial++;
	}
	r = path ? make_marker(s, path, part ? part->fd : -1, &attr, serial) : -ENOMEM;
	varve_part_unref(part);
	if (r < 0)
		return r;
	guard(&s->ns);
	stream = varve_node_new(s, VARVE_KIND_STREAM, 0);
	if (!stream)
		return -ENOMEM;
	stream->serial = serial;
	stream->attr = attr;
	r = varve_node_link(sdir, stream, name);
	varve_node_unref(s, stream);
	return r;
}

int varve_stream_mark(struct varve_store *s, struct varve_node *f)
{
	struct varve_node *sdir;
	cleanup_free char *name = NULL;

	{
		guard(&s->ns);
		sdir = f->linked && f->parent ? f->parent->sdir : NULL;
		if (!sdir || f->bucket != s->current || varve_node_child(sdir, f->name))
			return 0;
		name = strdup(f->name);
	}
	return name ? varve_stream_make(s, sdir, name, f) : -ENOMEM;
}

int varve_stream_unmake(struct varve_store *s, struct varve_node *stream)
{
	cleanup_free char *path = NULL;

	{
		guard(&s->ns);
		path = varve_node_path(stream, NULL);
	}
	if (!path)
		return -ENOMEM;
	if (unlinkat(s->tree_fd, path, 0) < 0 && errno != ENOENT)
		return -errno;
	guard(&s->ns);
	varve_node_unlink(s, stream);
	return 0;
}
