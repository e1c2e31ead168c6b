/* The facade's operations on names: create, mkdir, symlink, unlink, rmdir. Renames: rename.c. */
#include "store/entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#include "store/carry.h"
#include "store/file.h"
#include "store/native.h"
#include "store/opened.h"
#include "store/part.h"

/* What a change below parent is answered where it can't be made at all; 0 where it can. mutate and
 * ns held. */
static int may_change(struct varve_store *s, const struct varve_node *parent)
{
	(void)s;
	switch (parent->kind) {
	case VARVE_KIND_SDIR:
	case VARVE_KIND_XDIR:
		/* A removed directory that is still somebody's working directory. */
		return parent->linked ? 0 : -ENOENT;
	case VARVE_KIND_DDIR:
		if (parent->bucket->shut)
			return -EROFS;
		return parent->linked ? 0 : -ENOENT;
	case VARVE_KIND_SEALED:
		return -EROFS;
	case VARVE_KIND_ROOT:
		return -EPERM;
	default:
		return -ENOTDIR;
	}
}

static gid_t group_for(const struct varve_caller *who, const struct varve_node *parent)
{
	return parent->attr.st_mode & S_ISGID ? parent->attr.st_gid : who->gid;
}

/* A directory's default ACL takes the umask's place. */
static mode_t mode_for(struct varve_store *s, const struct varve_caller *who, int base_fd,
		       const char *dir_path, mode_t mode)
{
	cleanup_close int fd = varve_openat(base_fd, dir_path, O_RDONLY | O_DIRECTORY, 0);

	(void)s;
	if (fd >= 0 && fgetxattr(fd, "system.posix_acl_default", NULL, 0) > 0)
		return mode;
	return mode & ~who->umask;
}

/* Where a new file of parent is made, and the directory of the same path whose default ACL holds. */
struct target {
	struct varve_node *dir; /* DDIR or XDIR: the node that will list it; referenced */
	unsigned place;
	int fd;	       /* the part's path is below this */
	char *path;    /* the part's */
	int acl_fd;    /* the ACL's directory is below this */
	char *acl_dir; /* its path */
};

static void target_done(struct varve_store *s, struct target *t)
{
	if (t->dir)
		varve_node_put(s, t->dir);
	free(t->path);
	free(t->acl_dir);
}

/* ns held. */
static int target_find(struct varve_store *s, struct varve_node *parent, const char *name,
		       struct target *t)
{
	struct varve_node *dir = parent;
	cleanup_free char *path = NULL;
	int r;

	*t = (struct target){0};
	if (parent->kind == VARVE_KIND_SDIR) {
		r = varve_sdir_ddir(s, parent, &dir);
		if (r < 0)
			return r;
		t->acl_fd = s->tree_fd;
		t->acl_dir = varve_node_path(parent, NULL);
	} else {
		t->acl_dir = varve_node_where(s, dir, NULL, 0, &t->acl_fd);
	}
	path = varve_node_path(dir, name);
	if (!path)
		return -ENOMEM;
	if (strlen(path) > VARVE_LIVE_PATH_MAX)
		return -ENAMETOOLONG;
	t->place = dir->bucket ? (unsigned)varve_place_for(s, path) : 0;
	t->path = varve_node_where(s, dir, name, t->place, &t->fd);
	t->dir = varve_node_ref(dir);
	return t->path && t->acl_dir ? 0 : -ENOMEM;
}

/* Makes the file on disk and in memory; mutate held. *ret is referenced by the caller. */
static int make_file(struct varve_store *s, const struct varve_caller *who,
		     struct varve_node *parent, const char *name, mode_t mode, const char *link_target,
		     struct varve_node **ret)
{
	struct target t = {0};
	struct varve_part_spec spec = {.uid = who->uid, .is_link = link_target, .template_fd = -1};
	struct varve_node *f;
	struct stat st;
	cleanup_close int acl = -1;
	cleanup_close int fd = -1;
	size_t len = link_target ? strlen(link_target) : 0;
	bool lifted = false;
	int r = varve_ino_ready(s);

	if (r < 0)
		return r;
	{
		guard(&s->ns);
		r = target_find(s, parent, name, &t);
		spec.gid = group_for(who, parent);
		spec.ino = varve_ino_take(s);
	}
	if (r == 0 && !spec.ino)
		r = -EAGAIN;
	if (r == 0 && t.dir->kind == VARVE_KIND_DDIR)
		r = varve_ddir_on_disk(s, t.dir, t.place);
	if (r < 0)
		goto out;
	acl = varve_openat(t.acl_fd, t.acl_dir, O_RDONLY | O_DIRECTORY, 0);
	if (acl < 0) {
		r = acl;
		goto out;
	}
	spec.mode = link_target ? 0777 : mode_for(s, who, t.acl_fd, t.acl_dir, mode);
	fd = varve_part_create(acl, t.fd, t.path, &spec, link_target, len);
	r = fd < 0 ? fd : varve_mode_stat(fd, &st);
	if (r < 0)
		goto out;
	lifted = r > 0;
	{
		guard(&s->ns);
		f = varve_node_new(s, VARVE_KIND_FILE, spec.ino);
		r = f ? varve_node_link(t.dir, f, name) : -ENOMEM;
		if (f && r < 0)
			varve_node_unref(s, f);
		if (r == 0) {
			f->attr = st;
			f->attr.st_ino = spec.ino;
			f->lifted = lifted;
			f->is_link = spec.is_link;
			if (spec.is_link)
				f->attr.st_mode = S_IFLNK | 0777;
			f->has_part = true;
			f->place = (uint16_t)t.place;
			f->size = len;
			f->last = len ? -1 : '\n';
			if (t.dir->bucket)
				f->bucket = varve_bucket_ref(t.dir->bucket);
			varve_file_count(s, f, varve_blocks_of(len));
			varve_dir_touch(parent);
			*ret = f;
		}
	}
	if (r < 0)
		(void)unlinkat(t.fd, t.path, 0);
out:
	target_done(s, &t);
	return r;
}

static int finish_entry(struct varve_store *s, struct varve_node *n, bool by_current,
			struct varve_entry *ret)
{
	int64_t valid;
	int r;

	{
		guard(&s->ns);
		varve_entry_fill(s, n, by_current, ret);
	}
	r = varve_node_stat(s, n, by_current, &ret->attr, &valid);
	if (r < 0)
		varve_store_forget(s, ret->id, 1);
	return r;
}

static int check_new(struct varve_store *s, struct varve_node *parent, const char *name)
{
	guard(&s->ns);
	int r = may_change(s, parent);

	if (r == 0 && varve_visible_child(s, parent, name))
		r = -EEXIST;
	return r;
}

/* mknod, create and symlink: a new file under parent. */
static int new_file(struct varve_store *s, const struct varve_caller *who, uint64_t parent_id,
		    const char *name, mode_t mode, const char *link_target, struct varve_node **ret,
		    bool *ret_by_current)
{
	held_node parent = {s, varve_node_get(s, parent_id)};
	int r = varve_name_check(name);

	if (!parent.n)
		return -ESTALE;
	if (r < 0)
		return r;
	*ret_by_current = parent.n->kind == VARVE_KIND_SDIR;
	guard(&s->mutate);
	r = check_new(s, parent.n, name);
	return r < 0 ? r : make_file(s, who, parent.n, name, mode, link_target, ret);
}

int varve_store_mknod(struct varve_store *s, const struct varve_caller *who, uint64_t parent,
		      const char *name, mode_t mode, struct varve_entry *ret)
{
	held_node f = {s, NULL};
	bool by_current;
	int r;

	if (!S_ISREG(mode) && (mode & S_IFMT))
		return -EPERM;
	r = VARVE_WITH_ROOM(s, new_file(s, who, parent, name, mode, NULL, &f.n, &by_current));
	return r < 0 ? r : finish_entry(s, f.n, by_current, ret);
}

int varve_store_symlink(struct varve_store *s, const struct varve_caller *who, const char *target,
			uint64_t parent, const char *name, struct varve_entry *ret)
{
	held_node f = {s, NULL};
	bool by_current;
	int r = VARVE_WITH_ROOM(
		s, new_file(s, who, parent, name, 0777, target, &f.n, &by_current));

	return r < 0 ? r : finish_entry(s, f.n, by_current, ret);
}

int varve_store_create(struct varve_store *s, const struct varve_caller *who, uint64_t parent,
		       const char *name, mode_t mode, int flags, struct varve_entry *ret,
		       struct varve_opened *ret_opened)
{
	held_node f = {s, NULL};
	bool by_current, fresh = false;
	int r = VARVE_WITH_ROOM(s, new_file(s, who, parent, name, mode, NULL, &f.n, &by_current));

	if (r == -EEXIST && !(flags & O_EXCL)) {
		/* Another caller was first; the open is as if it had come a moment later. */
		r = varve_store_lookup(s, parent, name, ret);
		if (r == 0 && !S_ISREG(ret->attr.st_mode))
			r = S_ISDIR(ret->attr.st_mode) ? -EISDIR : -ELOOP;
		else if (r < 0)
			return r;
	} else if (r == 0) {
		fresh = true;
		r = finish_entry(s, f.n, by_current, ret);
		if (r < 0)
			return r;
	} else {
		return r;
	}
	if (r == 0)
		r = varve_file_open(s, ret->id, flags, fresh, ret_opened);
	if (r < 0)
		varve_store_forget(s, ret->id, 1);
	return r;
}

/* -- directories -- */

/* The directory's file in its base, dressed; the path was free. */
static int make_dir_on_disk(struct varve_store *s, int base, const char *path, mode_t mode, uid_t uid,
			    gid_t gid, uint64_t ino)
{
	cleanup_close int fd = -1;
	struct stat st;
	int r;

	(void)s;
	if (mkdirat(base, path, (mode & 0777) | 0700) < 0)
		return -errno;
	fd = varve_openat(base, path, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	if (fchown(fd, uid, gid) < 0 && errno != EPERM)
		return -errno;
	r = varve_ino_write_xattr(fd, ino);
	if (r < 0)
		return r;
	/* What a default ACL above took away stays away. */
	if (fgetxattr(fd, "system.posix_acl_access", NULL, 0) > 0) {
		if (fstat(fd, &st) < 0)
			return -errno;
		mode = (mode & 07700) | (mode & st.st_mode & 077);
	}
	return varve_mode_set(fd, mode);
}

static int stat_dir(int base, const char *path, uint64_t ino, struct stat *ret)
{
	cleanup_close int fd = varve_openat(base, path, O_RDONLY | O_DIRECTORY, 0);
	int r = fd < 0 ? fd : varve_mode_stat(fd, ret);

	if (r < 0)
		return r;
	ret->st_ino = ino;
	ret->st_nlink = 1;
	return 0;
}

/* Makes the DDIR of a new directory of current/ too: the bucket keeps empty directories. */
static int also_in_bucket(struct varve_store *s, struct varve_node *sdir)
{
	struct varve_node *d;
	int r;

	{
		guard(&s->ns);
		r = varve_sdir_ddir(s, sdir, &d);
		if (r == 0)
			(void)varve_node_ref(d);
	}
	if (r < 0)
		return r;
	r = varve_ddir_on_disk(s, d, 0);
	varve_node_put(s, d);
	return r;
}

static int make_dir(struct varve_store *s, const struct varve_caller *who, struct varve_node *parent,
		    const char *name, mode_t mode, struct varve_node **ret)
{
	bool setgid = parent->attr.st_mode & S_ISGID;
	bool ddir = parent->kind == VARVE_KIND_DDIR;
	cleanup_free char *path = NULL;
	cleanup_free char *parent_path = NULL;
	struct varve_node *d;
	struct stat st;
	uint64_t ino;
	int base = s->tree_fd, r = varve_ino_next(s, &ino);

	if (r < 0)
		return r;
	if (ddir)
		r = varve_ddir_on_disk(s, parent, 0);
	if (r < 0)
		return r;
	{
		guard(&s->ns);
		if (parent->kind == VARVE_KIND_SDIR) {
			path = varve_node_path(parent, name);
			parent_path = varve_node_path(parent, NULL);
		} else {
			path = varve_node_where(s, parent, name, 0, &base);
			parent_path = varve_node_where(s, parent, NULL, 0, &base);
		}
	}
	if (!path || !parent_path)
		return -ENOMEM;
	if (strlen(path) > VARVE_LIVE_PATH_MAX)
		return -ENAMETOOLONG;
	mode = mode_for(s, who, base, parent_path, mode & 01777) | (setgid ? S_ISGID : 0);
	r = make_dir_on_disk(s, base, path, mode, who->uid, group_for(who, parent), ino);
	if (r == 0)
		r = stat_dir(base, path, ino, &st);
	if (r < 0) {
		if (r != -EEXIST)
			(void)unlinkat(base, path, AT_REMOVEDIR);
		return r;
	}
	{
		guard(&s->ns);
		d = varve_node_new(s, parent->kind, ino);
		r = d ? varve_node_link(parent, d, name) : -ENOMEM;
		if (r < 0) {
			varve_node_unref(s, d);
			return r;
		}
		d->attr = st;
		if (ddir) {
			d->bucket = varve_bucket_ref(parent->bucket);
			d->on_disk = 1;
		}
		varve_dir_touch(parent);
	}
	*ret = d;
	/* On a full disk it is made in the bucket with the first file in it; the directory is there. */
	if (parent->kind == VARVE_KIND_SDIR)
		(void)also_in_bucket(s, d);
	return 0;
}

static int new_dir(struct varve_store *s, const struct varve_caller *who, uint64_t parent_id,
		   const char *name, mode_t mode, struct varve_entry *ret)
{
	held_node parent = {s, varve_node_get(s, parent_id)};
	held_node d = {s, NULL};
	int r = varve_name_check(name);

	if (!parent.n)
		return -ESTALE;
	if (r == 0)
		r = varve_ino_ready(s);
	if (r < 0)
		return r;
	{
		guard(&s->mutate);
		r = check_new(s, parent.n, name);
		if (r == 0)
			r = make_dir(s, who, parent.n, name, mode, &d.n);
	}
	return r < 0 ? r : finish_entry(s, d.n, parent.n->kind == VARVE_KIND_SDIR, ret);
}

int varve_store_mkdir(struct varve_store *s, const struct varve_caller *who, uint64_t parent,
		      const char *name, mode_t mode, struct varve_entry *ret)
{
	return VARVE_WITH_ROOM(s, new_dir(s, who, parent, name, mode, ret));
}

/* -- removing -- */

/* Takes the FILE off its directory in memory; ns held. */
static void unlink_file(struct varve_store *s, struct varve_node *f)
{
	varve_file_count(s, f, 0);
	f->nameless = true;
	f->attr.st_nlink = 0;
	(void)clock_gettime(CLOCK_REALTIME, &f->attr.st_ctim);
	varve_carry_give_back(s, f);
	varve_node_unlink(s, f);
}

int varve_store_unlink(struct varve_store *s, const struct varve_caller *who, uint64_t parent_id,
		       const char *name)
{
	held_node parent = {s, varve_node_get(s, parent_id)};
	held_node f = {s, NULL};
	held_node stream = {s, NULL};
	cleanup_free char *path = NULL;
	int r, base = -1;

	(void)who;
	if (!parent.n)
		return -ESTALE;
	if (parent.n->kind == VARVE_KIND_SEALED)
		return varve_sealed_remove(s, parent.n, name, false);
	if (parent.n->kind == VARVE_KIND_ROOT)
		return -EBUSY;
	guard(&s->mutate);
	/* After a crash a link that is still to be made would bring the name back. */
	r = varve_carry_ready(s);
	if (r < 0)
		return r;
	{
		guard(&s->ns);
		struct varve_node *c, *m;

		r = may_change(s, parent.n);
		c = r == 0 ? varve_visible_child(s, parent.n, name) : NULL;
		if (r == 0 && !c)
			r = -ENOENT;
		if (r == 0 && varve_node_is_dir(c))
			r = -EISDIR;
		if (r == 0 && s->policy.worm && parent.n->kind == VARVE_KIND_SDIR)
			r = -EPERM;
		if (r < 0)
			return r;
		m = parent.n->kind == VARVE_KIND_SDIR ? varve_node_child(parent.n, name) : NULL;
		stream.n = m ? varve_node_ref(m) : NULL;
		f.n = c->kind == VARVE_KIND_FILE ? varve_node_ref(c) : NULL;
		if (f.n && f.n->has_part)
			path = varve_node_where(s, f.n, NULL, f.n->place, &base);
		if (f.n && f.n->has_part && !path)
			return -ENOMEM;
	}
	r = f.n ? varve_opened_mean_used(s, f.n) : 0;
	if (r == 0 && stream.n)
		r = varve_stream_unmake(s, stream.n);
	if (r < 0)
		return r;
	if (path) {
		/* Whoever has it open keeps it: the descriptor must be there before the name goes. */
		if (unlinkat(base, path, 0) < 0 && errno != ENOENT)
			return -errno;
	}
	if (f.n) {
		/* Its size counts until it has no name: no append may come in between. */
		guard(&f.n->lock);
		guard(&s->ns);
		unlink_file(s, f.n);
	}
	if (f.n)
		varve_native_cool(s, f.n);
	guard(&s->ns);
	varve_dir_touch(parent.n);
	return 0;
}

struct count {
	unsigned n;
};

static void count_visible(void *ctx, struct varve_node *n)
{
	struct count *c = ctx;

	if (varve_dated_visible(n))
		c->n++;
}

static void count_files(void *ctx, struct varve_node *n)
{
	struct count *c = ctx;

	if (n->kind == VARVE_KIND_FILE)
		c->n++;
}

bool varve_bucket_is_empty_dir(struct varve_store *s, struct varve_bucket *b)
{
	{
		guard(&s->ns);
		if (b->root) {
			struct count c = {0};

			varve_node_each(b->root, count_visible, &c);
			return !c.n;
		}
	}
	return varve_sealed_is_empty(s, b);
}

static bool dir_is_empty(struct varve_store *s, struct varve_node *dir)
{
	struct count c = {0};
	struct varve_node *d;

	switch (dir->kind) {
	case VARVE_KIND_SDIR:
		d = varve_sdir_ddir_if(s, dir);
		if (d)
			varve_node_each(d, count_files, &c);
		return !dir->n_children && !c.n;
	case VARVE_KIND_DDIR:
		varve_node_each(dir, count_visible, &c);
		return !c.n;
	default:
		return !dir->n_children;
	}
}

/* Removes a DDIR's directories from disk; mutate held, it is empty. */
static int remove_ddir(struct varve_store *s, struct varve_node *d)
{
	for (unsigned p = 0; p < 32; p++) {
		cleanup_free char *path = NULL;
		int fd;

		if (!(d->on_disk & (1u << p)))
			continue;
		{
			guard(&s->ns);
			path = varve_node_where(s, d, NULL, p, &fd);
		}
		if (!path)
			return -ENOMEM;
		if (unlinkat(fd, path, AT_REMOVEDIR) < 0 && errno != ENOENT)
			return -errno;
		guard(&s->ns);
		d->on_disk &= ~(1u << p);
	}
	guard(&s->ns);
	varve_tree_drop(s, d);
	return 0;
}

static int remove_dir(struct varve_store *s, struct varve_node *parent, struct varve_node *dir)
{
	cleanup_free char *path = NULL;
	held_node d = {s, NULL};
	int base = s->tree_fd, r = 0;

	{
		guard(&s->ns);
		if (!dir_is_empty(s, dir))
			return -ENOTEMPTY;
		if (dir->kind == VARVE_KIND_SDIR) {
			struct varve_node *in_bucket = varve_sdir_ddir_if(s, dir);

			path = varve_node_path(dir, NULL);
			d.n = in_bucket ? varve_node_ref(in_bucket) : NULL;
		} else if (dir->kind == VARVE_KIND_XDIR) {
			path = varve_node_where(s, dir, NULL, 0, &base);
		}
	}
	if (dir->kind == VARVE_KIND_DDIR)
		return remove_ddir(s, dir);
	if (!path)
		return -ENOMEM;
	if (d.n)
		r = remove_ddir(s, d.n);
	if (r == 0 && unlinkat(base, path, AT_REMOVEDIR) < 0 && errno != ENOENT)
		r = -errno;
	if (r < 0)
		return r;
	guard(&s->ns);
	dir->attr.st_nlink = 0;
	varve_node_unlink(s, dir);
	varve_dir_touch(parent);
	return 0;
}

static int rmdir_in_root(struct varve_store *s, const struct varve_caller *who, const char *name)
{
	struct varve_err err = {.msg = ""};
	struct varve_bucket *b;
	bool current;
	int r = -EPERM;

	if (!strcmp(name, "current") || !strcmp(name, ".staging"))
		return -EBUSY;
	{
		guard(&s->ns);
		b = varve_bucket_find(s, name);
		if (!b || b->dropping)
			return -ENOENT;
		current = b == s->current;
		(void)varve_bucket_ref(b);
	}
	if (current)
		r = -ENOTDIR; /* there it is a symbolic link */
	else if (s->policy.rmdir_posix && !varve_bucket_is_empty_dir(s, b))
		r = -ENOTEMPTY;
	else
		r = varve_drop_bucket(s, b, VARVE_CAUSE_HAND, who, 0, &err);
	guard(&s->ns);
	varve_bucket_unref(s, b);
	return r;
}

int varve_store_rmdir(struct varve_store *s, const struct varve_caller *who, uint64_t parent_id,
		      const char *name)
{
	held_node parent = {s, varve_node_get(s, parent_id)};
	held_node dir = {s, NULL};
	int r;

	if (!parent.n)
		return -ESTALE;
	if (parent.n->kind == VARVE_KIND_ROOT)
		return rmdir_in_root(s, who, name);
	if (parent.n->kind == VARVE_KIND_SEALED)
		return varve_sealed_remove(s, parent.n, name, true);
	guard(&s->mutate);
	{
		guard(&s->ns);
		r = may_change(s, parent.n);
		dir.n = r == 0 ? varve_visible_child(s, parent.n, name) : NULL;
		if (r == 0 && !dir.n)
			r = -ENOENT;
		if (dir.n && !varve_node_is_dir(dir.n)) {
			dir.n = NULL;
			r = -ENOTDIR;
		}
		if (r < 0)
			return r;
		(void)varve_node_ref(dir.n);
	}
	return remove_dir(s, parent.n, dir.n);
}
