/*
 * Start-up: what each name in the store means, and bringing it to a state that the running store
 * could have left. docs/architecture.md has the table; each row is a test.
 */
#include "store/recover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/log.h"
#include "store/carry.h"
#include "store/content.h"
#include "store/entry.h"
#include "store/file.h"
#include "store/native.h"
#include "store/opened.h"
#include "store/part.h"
#include "store/trash.h"

/* -- trees of files and directories -- */

struct loading {
	struct varve_store *s;
	struct varve_node *dir; /* DDIR, XDIR or SDIR */
	struct varve_bucket *b; /* NULL: .staging/ or the skeleton */
	unsigned place;
	const char *class_name;
	bool has_late; /* the bucket has late parts */
	struct varve_err *err;
};

/* The number noted on something, or a new one that is noted now. */
struct noted {
	uint64_t ino;
	uint64_t number; /* of a part: what is noted on it */
	bool is_stray; /* a hard link of a carried part that the record does not tell of */
	const struct varve_range *range; /* what the range record tells of it, or NULL */
	bool is_link;
	bool lifted;
	bool opened; /* it does not count yet, see opened.h */
	struct stat attr; /* with the mode that is shown */
};

bool varve_recover_is_known(struct varve_store *s, uint64_t ino)
{
	guard(&s->ns);
	return varve_node_by_id(s, ino) != NULL;
}

/* Whether a part with this number is, or was, shared by buckets. */
static bool is_shared(struct varve_store *s, uint64_t number)
{
	uint64_t low;

	if (varve_ranges_lowest_head(&s->kept, number, &low))
		return true;
	guard(&s->ns);
	return !s->threads_run && varve_carry_next_of(s, number, NULL);
}

static int read_noted(struct varve_store *s, const struct varve_bucket *b, int dir_fd, const char *name,
		      bool is_dir, struct noted *ret)
{
	cleanup_close int fd = is_dir ? varve_openat(dir_fd, name, O_RDONLY | O_DIRECTORY, 0)
				      : varve_part_open(dir_fd, name);
	char type[4];
	int r;

	if (fd < 0)
		return fd;
	*ret = (struct noted){.ino = 0};
	ret->is_link = !is_dir && fgetxattr(fd, VARVE_XATTR_TYPE, type, sizeof(type)) == 1 &&
		       type[0] == 'l';
	r = varve_mode_stat(fd, &ret->attr);
	if (r < 0)
		return r;
	ret->lifted = r > 0;
	ret->opened = varve_opened_is_noted(fd);
	r = varve_ino_read_xattr(fd, &ret->ino);
	ret->number = ret->ino;
	ret->range = r == 0 && !is_dir && b ? varve_carry_entry(s, b->name, ret->number) : NULL;
	if (ret->range && !varve_recover_is_known(s, ret->range->ino)) {
		ret->ino = ret->range->ino;
		return 0;
	}
	ret->range = NULL;
	ret->is_stray = r == 0 && !is_dir && b && ret->attr.st_nlink > 1 && is_shared(s, ret->number);
	if (ret->is_stray)
		return 0;
	if (r == 0 && !varve_recover_is_known(s, ret->ino))
		return 0;
	/* Put there by hand, or the number of a directory that .staging/ gave to the skeleton. */
	r = varve_ino_next(s, &ret->ino);
	return r < 0 ? r : varve_ino_write_xattr(fd, ret->ino);
}

static bool is_opened(int dir_fd, const char *name)
{
	cleanup_close int fd = varve_openat(dir_fd, name, O_RDONLY | O_DIRECTORY, 0);

	return fd >= 0 && varve_opened_is_noted(fd);
}

static int load_dir(struct loading *l, int dir_fd, const char *name);

static int add_loaded(struct loading *l, const char *name, const struct stat *st, uint64_t ino,
		      enum varve_kind kind, struct varve_node **ret)
{
	guard(&l->s->ns); /* a bucket that comes back is loaded beside a running store */
	struct varve_node *n = varve_node_new(l->s, kind, ino);
	int r;

	if (!n)
		return -ENOMEM;
	n->attr = *st;
	n->attr.st_ino = ino;
	n->attr.st_nlink = 1;
	if (l->b)
		n->bucket = varve_bucket_ref(l->b);
	r = varve_node_link(l->dir, n, name);
	varve_node_unref(l->s, n);
	*ret = n;
	return r;
}

static void fill_loaded(struct loading *l, struct varve_node *n, const struct stat *st,
			const struct noted *noted)
{
	guard(&l->s->ns);
	n->has_part = true;
	n->lifted = noted->lifted;
	n->place = (uint16_t)l->place;
	n->size = (uint64_t)st->st_size;
	n->last = st->st_size ? -1 : '\n';
	n->is_link = noted->is_link;
	if (noted->is_link)
		n->attr.st_mode = S_IFLNK | 0777;
	if (noted->opened && l->b && varve_native_of(n))
		n->native->opened = true;
	varve_file_count(l->s, n, (uint64_t)st->st_blocks * 512);
}

/* A directory of another tablet is there for the same path; it counts if one of them does. */
static void note_place(struct varve_node *n, unsigned place, bool opened)
{
	n->opened = opened && (n->opened || !n->on_disk);
	n->on_disk |= 1u << place;
}

static int load_file(struct loading *l, int dir_fd, const char *name, const struct stat *st)
{
	struct varve_node *n = NULL;
	struct noted noted;
	int r = read_noted(l->s, l->b, dir_fd, name, false, &noted);

	if (r == 0 && noted.is_stray) {
		varve_info("recovery: '%s' of bucket '%s' is part of an older bucket's file and was not told of: "
			   "its bytes stay there", name, l->b->name);
		return unlinkat(dir_fd, name, 0) < 0 ? -errno : 0;
	}
	if (r == 0)
		r = add_loaded(l, name, &noted.attr, noted.ino, VARVE_KIND_FILE, &n);
	if (r < 0)
		return varve_err_wrap(l->err, r, "'%s'", name);
	fill_loaded(l, n, st, &noted);
	r = noted.range ? varve_carry_apply(l->s, n, noted.range) : 0;
	if (r == 0 && l->has_late)
		r = varve_content_load_late(l->s, n);
	/* What nobody but this store opens has no writer that is not its own. */
	if (r == 0 && l->b && !l->s->threads_run && !noted.is_link && !(n->native && n->native->end) &&
	    varve_part_has_writer(dir_fd, name))
		r = varve_carry_orphan(l->s, n);
	return r < 0 ? varve_err_wrap(l->err, r, "'%s'", name) : 0;
}

static int load_one(void *ctx, int dir_fd, const char *name, const struct stat *st)
{
	struct loading *l = ctx;
	enum varve_kind kind = l->b ? VARVE_KIND_DDIR : VARVE_KIND_XDIR;
	struct varve_node *n, *up = l->dir;
	struct noted noted;
	int r;

	{
		guard(&l->s->ns);
		n = varve_node_child(l->dir, name);
	}
	if (S_ISREG(st->st_mode)) {
		if (!n)
			return load_file(l, dir_fd, name, st);
		varve_warning("'%s' is in two tablets of bucket '%s'; the second is left alone", name,
			      l->b ? l->b->name : ".staging");
		return 0;
	}
	if (!S_ISDIR(st->st_mode)) {
		varve_warning("'%s' in bucket '%s' is no file or directory of varvefs and is ignored", name,
			      l->b ? l->b->name : ".staging");
		return 0;
	}
	if (!n) {
		r = read_noted(l->s, NULL, dir_fd, name, true, &noted);
		if (r == 0)
			r = add_loaded(l, name, &noted.attr, noted.ino, kind, &n);
		if (r < 0)
			return varve_err_wrap(l->err, r, "'%s'", name);
	} else {
		noted.opened = is_opened(dir_fd, name);
	}
	if (l->b)
		note_place(n, l->place, noted.opened);
	l->dir = n;
	r = load_dir(l, dir_fd, name);
	l->dir = up;
	return r;
}

static int load_dir(struct loading *l, int dir_fd, const char *name)
{
	return varve_each_entry(dir_fd, name, load_one, l);
}

/* -- open/ -- */

static int load_tablet(void *ctx, int dir_fd, const char *name, const struct stat *st)
{
	struct loading *l = ctx;
	int place;

	if (!S_ISDIR(st->st_mode) || strlen(name) >= VARVE_CLASS_NAME_MAX)
		return 0;
	{
		guard(&l->s->ns);
		place = varve_place_add(l->s, l->class_name, name);
	}
	if (place < 0)
		return place;
	l->place = (unsigned)place;
	note_place(l->dir, l->place, is_opened(dir_fd, name));
	return load_dir(l, dir_fd, name);
}

static int load_class(void *ctx, int dir_fd, const char *name, const struct stat *st)
{
	struct loading *l = ctx;

	if (!S_ISDIR(st->st_mode) || strlen(name) >= VARVE_CLASS_NAME_MAX || name[0] == '.')
		return 0;
	l->class_name = name;
	return varve_each_entry(dir_fd, name, load_tablet, l);
}

static bool is_on_hold(struct varve_store *s, const char *name)
{
	return faccessat(s->holds_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int varve_recover_open(struct varve_store *s, const char *name, struct varve_bucket **ret,
		       struct varve_err *err)
{
	struct varve_bucket_facts facts;
	struct varve_bucket *b;
	struct loading l = {.s = s, .err = err};
	int r = varve_bucket_facts(s, s->open_fd, name, &facts);

	if (r == 0 && (!facts.ino || varve_recover_is_known(s, facts.ino))) {
		r = varve_ino_next(s, &facts.ino);
		facts.files = UINT64_MAX;
		if (r == 0)
			r = varve_bucket_note(s->open_fd, name, &facts);
	}
	if (r < 0)
		return varve_err_wrap(err, r, "open/%s", name);
	b = varve_bucket_new(name, facts.start_ns, facts.end_ns, facts.ino);
	if (!b)
		return -ENOMEM;
	b->dir_made = true;
	b->held = is_on_hold(s, name);
	{
		guard(&s->ns);
		r = varve_bucket_root(s, b);
	}
	if (r == 0) {
		l.b = b;
		l.dir = b->root;
		l.has_late = varve_content_has_late(s, name);
		r = varve_each_entry(s->open_fd, name, load_class, &l);
	}
	if (r < 0) {
		guard(&s->ns);
		varve_bucket_forget_tree(s, b);
		varve_bucket_unref(s, b);
		return varve_err_wrap(err, r, "open/%s", name);
	}
	*ret = b;
	return 0;
}

static int recover_open_bucket(void *ctx, int dir_fd, const char *name, const struct stat *st)
{
	struct loading *l = ctx;
	struct varve_bucket *b;
	int64_t start, end;
	int r;

	(void)dir_fd;
	if (!S_ISDIR(st->st_mode) || varve_name_parse(name, &start, &end) < 0) {
		varve_warning("'open/%s' is no bucket and is ignored", name);
		return 0;
	}
	/* Its parts are garbage, or not quite: once it is known which bucket is current. */
	if (varve_bucket_find(l->s, name))
		return 0;
	r = varve_recover_open(l->s, name, &b, l->err);
	if (r < 0)
		return r;
	b->state = VARVE_BUCKET_CLOSING;
	b->grace_end_ns = 0;
	r = varve_bucket_list(l->s, b);
	varve_bucket_unref(l->s, b);
	return r;
}

/* -- tree/ -- */

static int read_serial(int fd, uint64_t *ret)
{
	char text[32], *end;
	ssize_t n = fgetxattr(fd, VARVE_XATTR_SERIAL, text, sizeof(text) - 1);

	if (n <= 0)
		return -ENODATA;
	text[n] = '\0';
	errno = 0;
	*ret = strtoull(text, &end, 10);
	return *end || errno || *ret >= VARVE_INO_LIMIT ? -ENODATA : 0;
}

/* Streams without a serial get one only when all that have one are known. */
#define NO_SERIAL UINT64_MAX

static int load_stream(struct loading *l, int dir_fd, const char *name, const struct stat *st)
{
	cleanup_close int fd = varve_part_open(dir_fd, name);
	struct varve_node *n = varve_node_new(l->s, VARVE_KIND_STREAM, 0);
	int r;

	if (!n)
		return -ENOMEM;
	if (fd < 0 || varve_mode_stat(fd, &n->attr) < 0)
		n->attr = *st;
	n->attr.st_nlink = 1;
	if (fd < 0 || read_serial(fd, &n->serial) < 0)
		n->serial = NO_SERIAL;
	else if (n->serial >= l->s->next_serial)
		l->s->next_serial = n->serial + 1;
	r = varve_node_link(l->dir, n, name);
	varve_node_unref(l->s, n);
	return r;
}

static int load_skeleton(void *ctx, int dir_fd, const char *name, const struct stat *st)
{
	struct loading *l = ctx;
	struct varve_node *up = l->dir, *n = NULL;
	struct noted noted;
	int r;

	if (S_ISREG(st->st_mode))
		return load_stream(l, dir_fd, name, st);
	if (!S_ISDIR(st->st_mode))
		return 0;
	r = read_noted(l->s, NULL, dir_fd, name, true, &noted);
	if (r == 0)
		r = add_loaded(l, name, &noted.attr, noted.ino, VARVE_KIND_SDIR, &n);
	if (r < 0)
		return r;
	l->dir = n;
	r = varve_each_entry(dir_fd, name, load_skeleton, l);
	l->dir = up;
	return r;
}

static void give_serial(void *ctx, struct varve_node *n)
{
	struct varve_store *s = ctx;
	cleanup_free char *path = NULL;
	cleanup_close int fd = -1;
	char text[32];
	int len;

	if (n->kind == VARVE_KIND_SDIR) {
		varve_node_each(n, give_serial, ctx);
		return;
	}
	if (n->serial != NO_SERIAL)
		return;
	n->serial = s->next_serial++;
	path = varve_node_path(n, NULL);
	fd = path ? varve_part_open(s->tree_fd, path) : -1;
	len = snprintf(text, sizeof(text), "%llu", (unsigned long long)n->serial);
	if (fd >= 0)
		(void)fsetxattr(fd, VARVE_XATTR_SERIAL, text, (size_t)len, 0);
}

/* A directory of the current bucket and the skeleton's at its path are joined; where the skeleton
 * has none (power was lost, or a crash came between publishing and the skeleton) it is made. */
struct joining {
	struct varve_store *s;
	struct varve_node *sdir;
	int r;
};

/* The skeleton has something at this name that the bucket's is not: parts are what counts. */
static int drop_from_skeleton(struct varve_store *s, struct varve_node *c, const char *as)
{
	cleanup_free char *path = varve_node_path(c, NULL);
	int r;

	if (!path)
		return -ENOMEM;
	varve_warning("'current/%s' is a %s with parts and a %s too; the %s is forgotten", path, as,
		      c->kind == VARVE_KIND_STREAM ? "stream" : "directory",
		      c->kind == VARVE_KIND_STREAM ? "stream" : "directory");
	r = varve_remove_tree(s->tree_fd, path, false);
	if (r < 0)
		return r;
	varve_tree_drop(s, c);
	return 0;
}

/* Makes the skeleton's directory for d, dressed like d's own. */
static int make_in_skeleton(struct varve_store *s, struct varve_node *up, struct varve_node *d,
			    struct varve_node **ret)
{
	struct loading l = {.s = s, .dir = up};
	cleanup_free char *path = varve_node_path(up, d->name);
	cleanup_free char *from = NULL;
	cleanup_close int src = -1;
	cleanup_close int fd = -1;
	uint64_t ino;
	int base, r = path ? varve_ino_next(s, &ino) : -ENOMEM;

	if (r < 0)
		return r;
	from = varve_node_where(s, d, NULL, (unsigned)__builtin_ctz(d->on_disk), &base);
	if (!from)
		return -ENOMEM;
	if (mkdirat(s->tree_fd, path, 0700) < 0 && errno != EEXIST)
		return -errno;
	src = varve_openat(base, from, O_RDONLY | O_DIRECTORY, 0);
	fd = varve_openat(s->tree_fd, path, O_RDONLY | O_DIRECTORY, 0);
	if (src < 0 || fd < 0)
		return src < 0 ? src : fd;
	if (fchown(fd, d->attr.st_uid, d->attr.st_gid) < 0 && errno != EPERM)
		return -errno;
	r = varve_xattrs_copy(src, fd);
	if (r == 0 && fchmod(fd, d->attr.st_mode & 07777) < 0)
		r = -errno;
	if (r == 0)
		r = varve_ino_write_xattr(fd, ino);
	return r < 0 ? r : add_loaded(&l, d->name, &d->attr, ino, VARVE_KIND_SDIR, ret);
}

static void join_one(void *ctx, struct varve_node *d)
{
	struct joining *j = ctx;
	struct varve_store *s = j->s;
	struct varve_node *up = j->sdir, *c;
	bool is_dir = d->kind == VARVE_KIND_DDIR;

	if (j->r < 0)
		return;
	c = varve_node_child(up, d->name);
	if (c && c->kind == (is_dir ? VARVE_KIND_STREAM : VARVE_KIND_SDIR)) {
		j->r = drop_from_skeleton(s, c, is_dir ? "directory" : "file");
		c = NULL;
	}
	if (!is_dir || j->r < 0)
		return;
	if (!c) {
		j->r = make_in_skeleton(s, up, d, &c);
		if (j->r < 0)
			return;
	}
	d->sdir = varve_node_ref(c);
	c->ddir = d;
	d->attr.st_mode = c->attr.st_mode;
	j->sdir = c;
	varve_node_each(d, join_one, j);
	j->sdir = up;
}

/* -- which bucket is current -- */

/* The bucket that now is in goes on; all others are closing. */
static int choose_current(struct varve_store *s, int64_t kept_start)
{
	int64_t now = varve_believed_now(s);
	uint64_t base, n;
	int r;

	for (uint32_t i = s->n_buckets; i-- > 0;) {
		struct varve_bucket *b = s->buckets[i];

		if (b->state == VARVE_BUCKET_CLOSING && b->start_ns <= now && now < b->end_ns) {
			b->state = VARVE_BUCKET_OPEN;
			s->current = b;
			break;
		}
	}
	base = s->serial_base;
	n = s->serial_n;
	if (!s->current)
		r = varve_open_window(s, now);
	else
		r = varve_ino_streams(s, &s->serial_base, &s->serial_n);
	/* The window goes on, so its streams keep the numbers that they were seen with. */
	if (r == 0 && kept_start == s->current->start_ns) {
		s->serial_base = base;
		s->serial_n = n;
	}
	/* Also one that holds nothing yet, and so is not in open/. */
	if (r == 0)
		s->current->held = is_on_hold(s, s->current->name);
	return r;
}

/* A crash between a drop's rename and its audit line. */
static int audit_trash(void *ctx, const char *name, const struct varve_trash_name *t)
{
	struct varve_store *s = ctx;
	bool hand = t->cause == VARVE_CAUSE_HAND;
	int r = varve_trash_is_gone(name)
			? 1 /* the removal begins after the line */
			: varve_audit_has(s->audit, hand ? "drop" : "expire", name);

	if (r != 0)
		return r < 0 ? r : 0;
	return varve_audit_append(
		s->audit, &(struct varve_audit_line){.time_ns = t->time_ns,
						     .event = hand ? "drop" : "expire",
						     .cause = varve_cause_name(t->cause),
						     .bucket = t->bucket, .class_name = t->class_name,
						     .buckets = 1, .files = -1, .bytes = -1,
						     .segment_bytes = -1, .uid = t->uid,
						     .pid = t->pid, .id = name});
}

int varve_recover(struct varve_store *s, struct varve_err *err)
{
	struct loading l = {.s = s, .err = err};
	struct joining j;
	int64_t kept_start;
	int r = varve_recover_clock(s, &kept_start, err);

	if (r == 0)
		r = varve_recover_counter(s, err);
	if (r == 0)
		r = varve_recover_sealed(s);
	l.dir = s->current_dir;
	if (r == 0)
		r = varve_each_entry(s->tree_fd, ".", load_skeleton, &l);
	if (r == 0)
		varve_node_each(s->current_dir, give_serial, s);
	if (r == 0)
		r = varve_carry_load(s, err);
	if (r == 0)
		r = varve_recover_newest(s);
	if (r == 0)
		r = varve_each_entry(s->open_fd, ".", recover_open_bucket, &l);
	if (r == 0)
		r = choose_current(s, kept_start);
	l.dir = s->staging_dir;
	l.b = NULL;
	if (r == 0)
		r = varve_each_entry(s->staging_fd, ".", load_one, &l);
	if (r == 0)
		r = varve_trash_each(s->trash_fd, audit_trash, s);
	if (r < 0)
		return varve_err_wrap(err, r, "store '%s' can't be recovered", s->path);
	j = (struct joining){.s = s, .sdir = s->current_dir};
	varve_node_each(s->current->root, join_one, &j);
	if (j.r < 0)
		return varve_err_wrap(err, j.r, "the skeleton of current/");
	r = varve_recover_carried(s, err);
	return r < 0 ? r : varve_clock_keep(s);
}
