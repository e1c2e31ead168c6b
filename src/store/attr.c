/* Attributes and extended attributes. */
#include "store/entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include "store/file.h"
#include "store/native.h"
#include "store/part.h"
#include "store/xattrs.h"

int varve_store_getattr(struct varve_store *s, uint64_t id, uint64_t fh, struct stat *ret,
			int64_t *ret_valid_ns)
{
	held_node n = {s, varve_node_get(s, id)};
	struct varve_handle *h = fh ? varve_handle_get(s, fh) : NULL;
	held_node moved = {s, NULL};
	uint64_t ino;
	int r;

	if (!n.n) {
		varve_handle_put(s, h);
		return -ESTALE;
	}
	ino = n.n->ino;
	if (h && h->file) {
		/* Through a handle that moved on over a boundary: its file as it is now, but the
		 * number of what was opened. */
		guard(&s->ns);
		if (h->writable && !h->dated)
			moved.n = varve_node_ref(varve_file_newest(h->file));
		else
			moved.n = varve_node_ref(h->file);
	}
	varve_handle_put(s, h);
	r = varve_node_stat(s, moved.n ? moved.n : n.n, !(id & VARVE_ID_DATED), ret, ret_valid_ns);
	if (r == 0)
		ret->st_ino = ino;
	return r;
}

/* -- setting -- */

static void set_times(const struct stat *attr, unsigned set, struct timespec ts[2])
{
	ts[0].tv_sec = ts[1].tv_sec = 0;
	ts[0].tv_nsec = ts[1].tv_nsec = UTIME_OMIT;
	if (set & VARVE_SET_ATIME)
		ts[0] = attr->st_atim;
	if (set & VARVE_SET_MTIME)
		ts[1] = attr->st_mtim;
}

/* Applies mode, owner and times to something that is open for reading. */
static int set_on_fd(struct varve_store *s, int fd, const struct stat *attr, unsigned set)
{
	struct timespec ts[2];
	int r;

	if (set & (VARVE_SET_UID | VARVE_SET_GID)) {
		uid_t uid = set & VARVE_SET_UID ? attr->st_uid : (uid_t)-1;
		gid_t gid = set & VARVE_SET_GID ? attr->st_gid : (gid_t)-1;

		if (fchown(fd, uid, gid) < 0)
			return -errno;
	}
	if (set & VARVE_SET_MODE) {
		struct stat st;

		/* A file keeps no set-id bits; of a directory the group's is what it is for. */
		if (fstat(fd, &st) < 0)
			return -errno;
		r = varve_mode_set(fd, attr->st_mode & (S_ISDIR(st.st_mode) ? 03777 : 01777));
		if (r < 0)
			return r;
	}
	set_times(attr, set, ts);
	if (set & (VARVE_SET_ATIME | VARVE_SET_MTIME) && futimens(fd, ts) < 0)
		return -errno;
	(void)s;
	return 0;
}

/* In memory, for what has nothing on disk to ask. */
static void set_in_memory(struct stat *to, const struct stat *attr, unsigned set)
{
	struct timespec now, ts[2];

	(void)clock_gettime(CLOCK_REALTIME, &now);
	set_times(attr, set, ts);
	if (set & VARVE_SET_MODE)
		to->st_mode = (to->st_mode & S_IFMT) |
			      (attr->st_mode & (S_ISDIR(to->st_mode) ? 03777 : 01777));
	if (set & VARVE_SET_UID)
		to->st_uid = attr->st_uid;
	if (set & VARVE_SET_GID)
		to->st_gid = attr->st_gid;
	if (set & VARVE_SET_ATIME)
		to->st_atim = ts[0].tv_nsec == UTIME_NOW ? now : ts[0];
	if (set & VARVE_SET_MTIME)
		to->st_mtim = ts[1].tv_nsec == UTIME_NOW ? now : ts[1];
	to->st_ctim = now;
}

static int set_at(struct varve_store *s, int base, const char *path, int open_flags,
		  const struct stat *attr, unsigned set)
{
	cleanup_close int fd = -1;

	if (!path)
		return -ENOMEM;
	if (open_flags & O_DIRECTORY)
		fd = varve_openat(base, path, open_flags, 0);
	else
		fd = varve_part_open(base, path);
	return fd < 0 ? fd : set_on_fd(s, fd, attr, set);
}

/* The stream's marker keeps what the next bucket's file begins with. mutate held. */
static int set_marker(struct varve_store *s, struct varve_node *f, const struct stat *attr,
		      unsigned set)
{
	cleanup_free char *path = NULL;
	struct varve_node *stream;
	int r;

	set &= VARVE_SET_MODE | VARVE_SET_UID | VARVE_SET_GID;
	{
		guard(&s->ns);
		if (!f->linked || f->bucket != s->current || !f->parent->sdir)
			return 0;
		stream = varve_node_child(f->parent->sdir, f->name);
		if (!stream || stream->kind != VARVE_KIND_STREAM)
			return 0;
		path = varve_node_path(stream, NULL);
	}
	r = set ? set_at(s, s->tree_fd, path, O_RDWR, attr, set) : 0;
	if (r < 0)
		return r;
	guard(&s->ns);
	set_in_memory(&stream->attr, attr, set);
	return 0;
}

static int setattr_file(struct varve_store *s, struct varve_node *f, const struct stat *attr,
			unsigned set)
{
	struct varve_part *part = NULL;
	struct stat st;
	int r;

	if (f->bucket && f->bucket->shut && !f->nameless)
		return -EROFS;
	/* What the part has now is the next bucket's: this one's are in memory, and in the range record. */
	if (varve_native_is_frozen(s, f)) {
		guard(&s->ns);
		set_in_memory(&f->attr, attr, set);
		s->ranges_wanted++;
		return 0;
	}
	r = varve_file_part_named(s, f, &part);
	if (r == -ENODATA) {
		guard(&s->ns);
		set_in_memory(&f->attr, attr, set);
		r = 0;
	} else if (r == 0) {
		r = set_on_fd(s, part->fd, attr, set);
		if (r == 0)
			r = varve_mode_stat(part->fd, &st);
		if (r >= 0) {
			guard(&s->ns);
			f->lifted = r > 0;
			f->attr_seq++;
			r = 0;
			st.st_ino = f->ino;
			if (f->is_link)
				st.st_mode = S_IFLNK | 0777;
			f->attr = st;
			f->attr.st_nlink = f->linked ? 1 : 0;
		}
	}
	varve_part_unref(part);
	return r < 0 ? r : set_marker(s, f, attr, set);
}

static int setattr_dir(struct varve_store *s, struct varve_node *d, const struct stat *attr,
		       unsigned set)
{
	int r = 0;

	if (d->kind == VARVE_KIND_SDIR || d->kind == VARVE_KIND_XDIR) {
		cleanup_free char *path = NULL;
		int base = d->kind == VARVE_KIND_SDIR ? s->tree_fd : s->staging_fd;

		{
			guard(&s->ns);
			path = varve_node_path(d, NULL);
		}
		r = set_at(s, base, path, O_RDONLY | O_DIRECTORY, attr, set);
		if (r < 0)
			return r;
	}
	if (d->kind == VARVE_KIND_SDIR) {
		struct varve_node *in_bucket;

		guard(&s->ns);
		set_in_memory(&d->attr, attr, set);
		in_bucket = varve_sdir_ddir_if(s, d);
		if (!in_bucket)
			return 0;
		d = varve_node_ref(in_bucket);
	} else {
		guard(&s->ns);
		(void)varve_node_ref(d);
	}
	if (d->kind == VARVE_KIND_DDIR && d->bucket->shut)
		r = -EROFS;
	for (unsigned p = 0; r == 0 && d->kind == VARVE_KIND_DDIR && p < 32; p++) {
		cleanup_free char *path = NULL;
		int fd;

		if (!(d->on_disk & (1u << p)))
			continue;
		{
			guard(&s->ns);
			path = varve_node_where(s, d, NULL, p, &fd);
		}
		r = set_at(s, fd, path, O_RDONLY | O_DIRECTORY, attr, set);
	}
	guard(&s->ns);
	if (r == 0)
		set_in_memory(&d->attr, attr, set);
	varve_node_unref(s, d);
	return r;
}

/* Whether it was a copying tool's last step: the hole at the end of what it wrote. */
static bool grow(struct varve_store *s, struct varve_handle *h, uint64_t size)
{
	guard(&h->lock);
	return (h->wrote || h->flags & (O_EXCL | O_TRUNC)) && h->file &&
	       size > varve_file_size(s, h->file) && varve_handle_grow(s, h, size) == 0;
}

/* By current/ it is meant of what the name is now: a boundary may have passed while it waited for mutate, which is held.
 * The reference moves along. */
static void follow(struct varve_store *s, uint64_t id, struct varve_node **n)
{
	struct varve_node *newest;

	if (id & VARVE_ID_DATED)
		return;
	guard(&s->ns);
	newest = varve_node_ref(varve_file_newest(*n));
	varve_node_unref(s, *n);
	*n = newest;
}

int varve_store_setattr(struct varve_store *s, uint64_t id, uint64_t fh, const struct stat *attr,
			unsigned set, struct stat *ret, int64_t *ret_valid_ns)
{
	held_node n = {s, varve_node_get(s, id)};
	struct varve_handle *h = fh ? varve_handle_get(s, fh) : NULL;
	held_node target = {s, NULL};
	int r = 0;

	if (n.n) {
		guard(&s->ns);
		struct varve_node *t = h && h->file ? h->file : n.n;

		/* What writers hold moves on with them; by name (and dated) it is what it is. */
		if (!(id & VARVE_ID_DATED) && t->kind != VARVE_KIND_SDIR)
			t = varve_file_newest(t);
		target.n = varve_node_ref(t);
	} else {
		r = -ESTALE;
	}
	if (r < 0) {
		varve_handle_put(s, h);
		return r;
	}
	if (set & VARVE_SET_SIZE && h && grow(s, h, (uint64_t)attr->st_size))
		set &= ~VARVE_SET_SIZE;
	varve_handle_put(s, h);
	switch (target.n->kind) {
	case VARVE_KIND_SEALED:
		return -EROFS;
	case VARVE_KIND_ROOT:
	case VARVE_KIND_OPEN_LINK:
	case VARVE_KIND_STREAM:
		return -EPERM;
	case VARVE_KIND_FILE:
		if (set & VARVE_SET_SIZE)
			r = id & VARVE_ID_DATED
				    ? varve_file_truncate(s, target.n, (uint64_t)attr->st_size)
				    : varve_file_truncate_newest(s, target.n, (uint64_t)attr->st_size);
		break;
	default:
		if (set & VARVE_SET_SIZE)
			return -EISDIR;
		break;
	}
	set &= ~VARVE_SET_SIZE;
	if (r == 0 && set) {
		guard(&s->mutate);
		follow(s, id, &target.n);
		r = varve_node_is_dir(target.n) ? setattr_dir(s, target.n, attr, set)
						: setattr_file(s, target.n, attr, set);
	}
	return r < 0 ? r : varve_store_getattr(s, id, fh, ret, ret_valid_ns);
}

/* -- extended attributes -- */

static bool is_own(const char *name)
{
	return !strncmp(name, "user.varve.", 11);
}

static bool is_kept(const char *name)
{
	return !strncmp(name, "user.", 5) || !strcmp(name, "system.posix_acl_access") ||
	       !strcmp(name, "system.posix_acl_default");
}

/* Something of n that has its xattrs: a descriptor, or -errno; -ENODATA: nothing on disk yet. named:
 * mutate is held. */
static int xattr_fd(struct varve_store *s, struct varve_node *n, bool named)
{
	cleanup_free char *path = NULL;
	struct varve_part *part;
	int base = -1, fd;

	if (n->kind == VARVE_KIND_FILE) {
		int r = named ? varve_file_part_named(s, n, &part) : varve_file_part(s, n, &part);

		if (r == 0) {
			fd = fcntl(part->fd, F_DUPFD_CLOEXEC, 0);
			varve_part_unref(part);
			return fd < 0 ? -errno : fd;
		}
		if (r != -ENODATA)
			return r;
		/* A stream that nothing was written to: its marker. */
		{
			guard(&s->ns);
			if (!n->linked || !n->parent->sdir)
				return -ENODATA;
			path = varve_tree_where(n->parent, n->name);
		}
		fd = path ? varve_openat(s->tree_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0)
			  : -ENOMEM;
		/* What a writer took along under a name that is no stream. */
		return fd == -ENOENT ? -ENODATA : fd;
	}
	{
		guard(&s->ns);
		if (n->kind == VARVE_KIND_SDIR) {
			base = s->tree_fd;
			path = varve_node_path(n, NULL);
		} else if (n->kind == VARVE_KIND_XDIR || (n->kind == VARVE_KIND_DDIR && n->on_disk)) {
			unsigned place = n->on_disk ? (unsigned)__builtin_ctz(n->on_disk) : 0;

			path = varve_node_where(s, n, NULL, place, &base);
		} else {
			return -ENODATA;
		}
	}
	return path ? varve_openat(base, path, O_RDONLY | O_DIRECTORY, 0) : -ENOMEM;
}

ssize_t varve_give_value(const void *value, size_t len, void *buf, size_t size)
{
	if (size == 0)
		return (ssize_t)len;
	if (len > size)
		return -ERANGE;
	memcpy(buf, value, len);
	return (ssize_t)len;
}

/* The node that an id means for attributes: what was opened by current/ is what its writers are at. */
static struct varve_node *attr_node(struct varve_store *s, uint64_t id)
{
	struct varve_node *n;

	guard(&s->ns);
	n = varve_node_by_id(s, id);
	if (n && !(id & VARVE_ID_DATED))
		n = varve_file_newest(n);
	return n ? varve_node_ref(n) : NULL;
}

/* user.varve.state of anything in a bucket; hold of a bucket. */
static ssize_t own_value(struct varve_store *s, struct varve_node *n, const char *name, void *buf,
			 size_t size)
{
	const char *value = NULL;

	guard(&s->ns);
	if (n == s->current_dir && !strcmp(name, "user.varve.state"))
		value = varve_bucket_state_name(s->current->state);
	if (!n->bucket)
		return value ? varve_give_value(value, strlen(value), buf, size) : -ENODATA;
	if (!strcmp(name, "user.varve.state"))
		value = varve_bucket_state_name(n->bucket->state);
	else if (!strcmp(name, "user.varve.hold") && n->ino == n->bucket->ino && n->bucket->held)
		value = "1";
	return value ? varve_give_value(value, strlen(value), buf, size) : -ENODATA;
}

ssize_t varve_store_getxattr(struct varve_store *s, uint64_t id, const char *name, void *buf,
			     size_t size)
{
	held_node n = {s, attr_node(s, id)};
	cleanup_close int fd = -1;
	ssize_t r;

	if (!n.n)
		return -ESTALE;
	if (!is_kept(name))
		return -EOPNOTSUPP;
	if (is_own(name)) {
		r = own_value(s, n.n, name, buf, size);
		return r == -ENODATA && n.n->kind == VARVE_KIND_SEALED
			       ? varve_sealed_getxattr(s, n.n, name, buf, size)
			       : r;
	}
	if (n.n->kind == VARVE_KIND_SEALED)
		return varve_sealed_getxattr(s, n.n, name, buf, size);
	if (varve_native_is_frozen(s, n.n)) {
		guard(&s->ns);
		return varve_xattrs_get(n.n->native->xattrs, n.n->native->xattrs_len, name, buf, size);
	}
	fd = xattr_fd(s, n.n, false);
	if (fd < 0)
		return fd;
	r = fgetxattr(fd, name, buf, size);
	return r < 0 ? -errno : r;
}

ssize_t varve_store_listxattr(struct varve_store *s, uint64_t id, char *buf, size_t size)
{
	held_node n = {s, attr_node(s, id)};
	cleanup_close int fd = -1;
	cleanup_free char *all = NULL;
	ssize_t len, out = 0;

	if (!n.n)
		return -ESTALE;
	if (n.n->kind == VARVE_KIND_SEALED)
		return varve_sealed_listxattr(s, n.n, buf, size);
	if (varve_native_is_frozen(s, n.n)) {
		guard(&s->ns);
		return varve_xattrs_list(n.n->native->xattrs, n.n->native->xattrs_len, buf, size);
	}
	fd = xattr_fd(s, n.n, false);
	if (fd == -ENODATA)
		return 0;
	if (fd < 0)
		return fd;
	len = flistxattr(fd, NULL, 0);
	all = len < 0 ? NULL : malloc((size_t)len + 1);
	if (len < 0)
		return -errno;
	if (!all)
		return -ENOMEM;
	len = flistxattr(fd, all, (size_t)len);
	for (const char *x = all; len > 0 && x < all + len; x += strlen(x) + 1) {
		size_t k = strlen(x) + 1;

		if (!is_kept(x) || is_own(x))
			continue;
		if (size && (size_t)out + k > size)
			return -ERANGE;
		if (size)
			memcpy(buf + out, x, k);
		out += (ssize_t)k;
	}
	return len < 0 ? -errno : out;
}

/* Sets (value) or removes (NULL) on one descriptor. */
static int change_xattr(int fd, const char *name, const void *value, size_t size, int flags)
{
	if (value)
		return fsetxattr(fd, name, value, size, flags) < 0 ? -errno : 0;
	return fremovexattr(fd, name) < 0 ? -errno : 0;
}

/* The marker of a stream, and the bucket's own directory of a current one, follow what was set. */
static int change_twin(struct varve_store *s, struct varve_node *n, const char *name,
		       const void *value, size_t size)
{
	cleanup_free char *path = NULL;
	cleanup_close int fd = -1;
	int base = s->tree_fd, r, flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;

	{
		guard(&s->ns);
		struct varve_node *d;

		if (n->kind == VARVE_KIND_FILE && n->linked && n->has_part &&
		    n->bucket == s->current && n->bucket && n->parent->sdir &&
		    varve_node_child(n->parent->sdir, n->name)) {
			path = varve_tree_where(n->parent, n->name);
		} else if (n->kind == VARVE_KIND_SDIR) {
			d = varve_sdir_ddir_if(s, n);
			if (d && d->on_disk & 1u)
				path = varve_node_where(s, d, NULL, 0, &base);
			flags = O_RDONLY | O_DIRECTORY;
		}
	}
	if (!path)
		return 0;
	fd = varve_openat(base, path, flags, 0);
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	r = change_xattr(fd, name, value, size, 0);
	return r == -ENODATA ? 0 : r;
}

/* An ACL changes the mode with it. */
static void refresh_mode(struct varve_store *s, struct varve_node *n, int fd)
{
	struct stat st;
	struct varve_node *c;

	int r = varve_mode_stat(fd, &st);

	if (r < 0)
		return;
	guard(&s->ns);
	if (n->is_link)
		return;
	n->lifted = r > 0;
	n->attr_seq++;
	n->attr.st_mode = st.st_mode;
	n->attr.st_ctim = st.st_ctim;
	c = n->kind == VARVE_KIND_SDIR ? varve_sdir_ddir_if(s, n) : NULL;
	if (c)
		c->attr.st_mode = st.st_mode;
	if (n->kind != VARVE_KIND_FILE || !n->linked || !n->bucket || !n->parent->sdir)
		return;
	c = varve_node_child(n->parent->sdir, n->name);
	if (c && c->kind == VARVE_KIND_STREAM)
		c->attr.st_mode = st.st_mode;
}

static int hold_by_xattr(struct varve_store *s, const struct varve_caller *who, struct varve_node *n,
			 const char *name, bool on)
{
	struct varve_err err = {.msg = ""};
	char bucket[VARVE_BUCKET_NAME_MAX];

	{
		guard(&s->ns);
		if (!n->bucket || n->ino != n->bucket->ino || strcmp(name, "user.varve.hold") != 0)
			return -EPERM;
		(void)strcpy(bucket, n->bucket->name);
	}
	return varve_store_hold(s, who, bucket, on, &err);
}

static int set_or_remove(struct varve_store *s, const struct varve_caller *who, uint64_t id,
			 const char *name, const void *value, size_t size, int flags)
{
	held_node n = {s, attr_node(s, id)};
	cleanup_close int fd = -1;
	int r;

	if (!n.n)
		return -ESTALE;
	if (!is_kept(name))
		return -EOPNOTSUPP;
	if (is_own(name))
		return hold_by_xattr(s, who, n.n, name, value != NULL);
	if (n.n->kind == VARVE_KIND_SEALED)
		return -EROFS;
	guard(&s->mutate);
	follow(s, id, &n.n);
	if (n.n->bucket && n.n->bucket->shut && !n.n->nameless)
		return -EROFS;
	if (varve_native_is_frozen(s, n.n)) {
		/* An ACL would change the mode with it, which only the part's filesystem knows how to. */
		if (strncmp(name, "user.", 5) != 0)
			return -EROFS;
		guard(&s->ns);
		s->ranges_wanted++;
		return varve_xattrs_change(&n.n->native->xattrs, &n.n->native->xattrs_len, name, value, size,
					   flags);
	}
	fd = xattr_fd(s, n.n, true);
	if (fd == -ENODATA && n.n->kind == VARVE_KIND_FILE) {
		r = varve_file_make_part(s, n.n);
		if (r < 0)
			return r;
		fd = xattr_fd(s, n.n, true);
	}
	if (fd < 0)
		return fd == -ENODATA ? -EPERM : fd;
	r = change_xattr(fd, name, value, size, flags);
	if (r < 0)
		return r;
	refresh_mode(s, n.n, fd);
	return change_twin(s, n.n, name, value, size);
}

int varve_store_setxattr(struct varve_store *s, const struct varve_caller *who, uint64_t id,
			 const char *name, const void *value, size_t size, int flags)
{
	return VARVE_WITH_ROOM(
		s, set_or_remove(s, who, id, name, value ? value : "", size, flags));
}

int varve_store_removexattr(struct varve_store *s, const struct varve_caller *who, uint64_t id,
			    const char *name)
{
	return set_or_remove(s, who, id, name, NULL, 0, 0);
}

int varve_store_readlink(struct varve_store *s, uint64_t id, char *buf, size_t size)
{
	held_node n = {s, varve_node_get(s, id)};
	struct varve_part *part;
	ssize_t len;
	int r;

	if (!n.n)
		return -ESTALE;
	if (n.n->kind == VARVE_KIND_OPEN_LINK) {
		(void)snprintf(buf, size, "current");
		return 0;
	}
	if (n.n->kind == VARVE_KIND_SEALED) {
		struct varve_segment *seg;
		struct varve_member m;

		r = varve_sealed_segment(s, n.n->bucket, n.n->tab, &seg);
		if (r < 0)
			return r;
		varve_index_member(varve_segment_index(seg), n.n->member, &m);
		if (S_ISLNK(m.mode))
			(void)snprintf(buf, size, "%.*s", (int)m.size, m.target);
		varve_segment_unref(seg);
		return S_ISLNK(m.mode) ? 0 : -EINVAL;
	}
	if (n.n->kind != VARVE_KIND_FILE || !n.n->is_link)
		return -EINVAL;
	r = varve_file_part(s, n.n, &part);
	if (r < 0)
		return r;
	len = pread(part->fd, buf, size - 1, 0);
	r = len < 0 ? -errno : 0;
	varve_part_unref(part);
	if (r == 0)
		buf[len] = '\0';
	return r;
}

int varve_store_statfs(struct varve_store *s, struct statvfs *ret)
{
	uint64_t trash = atomic_load(&s->trash_allocated);

	if (fstatvfs(s->dirfd, ret) < 0)
		return -errno;
	/* What a hand dropped is on its way out, and goes at once when the volume runs short. */
	if (ret->f_frsize) {
		ret->f_bfree += trash / ret->f_frsize;
		ret->f_bavail += trash / ret->f_frsize;
	}
	if (ret->f_bfree > ret->f_blocks)
		ret->f_bfree = ret->f_blocks;
	if (ret->f_bavail > ret->f_bfree)
		ret->f_bavail = ret->f_bfree;
	ret->f_namemax = 255;
	return 0;
}
