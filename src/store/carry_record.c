/* The range record: what it is written from, and what recovery makes of it. */
#include "store/carry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "store/content.h"
#include "store/entry.h"
#include "store/file.h"
#include "store/native.h"
#include "store/part.h"
#include "store/trash.h"

/* ns held. */
static int add_entry(struct varve_store *s, struct varve_ranges *l, struct varve_node *f)
{
	struct varve_native *nat = f->native;
	const struct varve_place *at = &s->places[f->place];
	struct varve_range e = {.part = nat->number, .ino = f->ino, .end = UINT64_MAX,
				.mode = f->attr.st_mode & 07777, .uid = f->attr.st_uid,
				.gid = f->attr.st_gid,
				.mtime_ns = (int64_t)f->attr.st_mtim.tv_sec * VARVE_NS_PER_S +
					    f->attr.st_mtim.tv_nsec,
				.xattrs = nat->xattrs, .xattrs_len = nat->xattrs_len};
	cleanup_free char *path = varve_node_path(f, NULL);

	/* Nothing of it is on disk: a range that held nothing was moved on whole. */
	if (!f->has_part && !nat->to_link)
		return 0;
	if (!path)
		return -ENOMEM;
	e.path = path;
	e.begun = nat->begun;
	(void)snprintf(e.bucket, sizeof(e.bucket), "%s", f->bucket->name);
	(void)snprintf(e.class_name, sizeof(e.class_name), "%s", at->class_name);
	(void)snprintf(e.tablet, sizeof(e.tablet), "%s", at->tablet);
	if (nat->head)
		e.head = varve_mark_at(nat->head, &e.head_pending);
	/* Between the marks of a boundary and its new bucket nothing is decided yet. */
	if (nat->end && f->bucket != s->current)
		e.end = varve_mark_at(nat->end, &e.end_pending);
	return varve_ranges_add(l, &e);
}

static int collect(struct varve_store *s, struct varve_ranges *l, uint64_t *ret_wanted)
{
	int r = 0;

	guard(&s->ns);
	for (struct varve_node *f = s->ranged; f && r == 0; f = f->native->next_ranged)
		if (f->linked)
			r = add_entry(s, l, f);
	for (size_t i = 0; i < s->kept.n && r == 0; i++)
		r = varve_ranges_add(l, &s->kept.list[i]);
	(void)snprintf(l->links_bucket, sizeof(l->links_bucket), "%s", s->current->name);
	l->links_done = s->n_to_link == 0;
	*ret_wanted = s->ranges_wanted;
	return r;
}

int varve_carry_save(struct varve_store *s)
{
	struct varve_ranges l;
	uint64_t wanted;
	int r;

	guard(&s->ranges);
	{
		guard(&s->ns);
		if (s->ranges_saved == s->ranges_wanted)
			return 0;
	}
	varve_ranges_init(&l);
	r = collect(s, &l, &wanted);
	if (r == 0)
		r = varve_ranges_save(&l, &s->range_slots, s->meta_fd);
	varve_ranges_done(&l);
	if (r == 0)
		s->ranges_saved = wanted;
	else
		varve_error("the range record 'meta/ranges' can't be written: %s; it is tried again",
			    strerror(-r));
	return r;
}

/* -- what recovery makes of it -- */

int varve_carry_load(struct varve_store *s, struct varve_err *err)
{
	int r = varve_ranges_load(&s->kept, &s->range_slots, s->meta_fd, err);

	/* A boundary must go through on a full disk. On one that is full already it is tried again by then. */
	if (r == 0 && s->policy.passthrough && !s->policy.worm)
		(void)!varve_ranges_reserve(&s->range_slots, s->meta_fd);
	if (r != -EBADMSG)
		return r;
	varve_error("the range record 'meta/ranges' is damaged: parts that went on over a boundary are shown "
		    "whole in each of their buckets; 'varve verify' tells more");
	varve_ranges_done(&s->kept);
	varve_ranges_init(&s->kept);
	return 0;
}

const struct varve_range *varve_carry_entry(struct varve_store *s, const char *bucket, uint64_t number)
{
	return varve_ranges_find(&s->kept, bucket, number);
}

/* The mark that another file of the part has already; a pending one must be the same for both. */
static struct varve_mark *find_mark(struct varve_store *s, uint64_t number, uint64_t at)
{
	for (struct varve_node *f = NULL; (f = varve_carry_next_of(s, number, f));) {
		struct varve_mark *both[] = {f->native->head, f->native->end};
		bool pending;

		for (int i = 0; i < 2; i++)
			if (both[i] && varve_mark_at(both[i], &pending) == at && pending)
				return varve_mark_ref(both[i]);
	}
	return NULL;
}

static struct varve_mark *loaded_mark(struct varve_store *s, uint64_t number, uint64_t at, bool pending,
				      uint64_t size)
{
	struct varve_mark *m = pending ? find_mark(s, number, at) : NULL;

	/* Power loss can leave a part shorter than the record says. */
	if (at > size) {
		at = size;
		pending = false;
	}
	return m ? m : varve_mark_new(at, pending);
}

int varve_carry_apply(struct varve_store *s, struct varve_node *f, const struct varve_range *e)
{
	struct varve_native *nat;

	guard(&s->ns);
	nat = varve_native_of(f);
	if (!nat)
		return -ENOMEM;
	nat->number = e->part;
	nat->begun = e->begun;
	/* A newer file's head may be 0: the older one was only opened, or is empty. The first has the part's number. */
	if (e->head || e->ino != e->part) {
		nat->head = loaded_mark(s, e->part, e->head, e->head_pending, f->size);
		if (!nat->head)
			return -ENOMEM;
	}
	if (e->end != UINT64_MAX) {
		nat->end = loaded_mark(s, e->part, e->end, e->end_pending, f->size);
		nat->xattrs = e->xattrs_len ? malloc(e->xattrs_len) : NULL;
		if (!nat->end || (e->xattrs_len && !nat->xattrs))
			return -ENOMEM;
		if (e->xattrs_len)
			memcpy(nat->xattrs, e->xattrs, e->xattrs_len);
		nat->xattrs_len = e->xattrs_len;
		f->attr.st_mode = S_IFREG | (e->mode & 07777);
		f->attr.st_uid = e->uid;
		f->attr.st_gid = e->gid;
		f->attr.st_mtim.tv_sec = (time_t)(e->mtime_ns / VARVE_NS_PER_S);
		f->attr.st_mtim.tv_nsec = (long)(e->mtime_ns % VARVE_NS_PER_S);
	}
	varve_carry_list(s, f);
	varve_file_count_part(s, f, &(struct stat){.st_size = (off_t)f->size,
						   .st_blocks = (blkcnt_t)(f->counted / 512)});
	f->attr.st_size = (off_t)varve_content_guess(f);
	f->attr.st_blocks = (blkcnt_t)((varve_content_guess(f) + 4095) / 4096 * 8);
	return 0;
}

/* f has its struct varve_native and its pin; ns held. */
static void make_orphan(struct varve_store *s, struct varve_node *f)
{
	f->native->orphan = f->native->by_kernel = true;
	f->appended = true;
	varve_file_add_writers(s, f, 1);
}

int varve_carry_orphan(struct varve_store *s, struct varve_node *f)
{
	struct varve_part *part;
	int r = varve_file_part_named(s, f, &part);

	if (r < 0)
		return r;
	guard(&s->ns);
	if (!varve_native_of(f)) {
		varve_native_close_later(s, part);
		return -ENOMEM;
	}
	f->native->pin = part;
	make_orphan(s, f);
	return 0;
}

static int by_part(const void *a, const void *b)
{
	const struct varve_node *x = *(struct varve_node *const *)a, *y = *(struct varve_node *const *)b;
	bool pending;
	uint64_t hx = x->native->head ? varve_mark_at(x->native->head, &pending) : 0;
	uint64_t hy = y->native->head ? varve_mark_at(y->native->head, &pending) : 0;

	if (x->native->number != y->native->number)
		return x->native->number < y->native->number ? -1 : 1;
	if (hx != hy)
		return hx < hy ? -1 : 1;
	return x->bucket->start_ns < y->bucket->start_ns ? -1 : x->bucket->start_ns > y->bucket->start_ns;
}

/* The buckets that are in the trash and may come back. */
struct in_trash {
	char (*list)[VARVE_BUCKET_NAME_MAX];
	size_t n, size;
};

static int note_in_trash(void *ctx, const char *name, const struct varve_trash_name *parsed)
{
	struct in_trash *t = ctx;

	if (varve_trash_is_gone(name))
		return 0;
	if (t->n == t->size) {
		size_t size = t->size ? 2 * t->size : 64;
		void *more = realloc(t->list, size * sizeof(*t->list));

		if (!more)
			return -ENOMEM;
		t->list = more;
		t->size = size;
	}
	(void)strcpy(t->list[t->n++], parsed->bucket);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static bool may_come_back(void *ctx, const struct varve_range *e)
{
	const struct in_trash *t = ctx;

	return t->n && bsearch(e->bucket, t->list, t->n, sizeof(*t->list), by_name);
}

/* Sealed buckets of which parts are left: what is told of these says which bytes were sealed. */
static int note_leftovers(struct varve_store *s, struct in_trash *t)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && s->kept.n && i < s->n_buckets; i++) {
		const struct varve_bucket *b = s->buckets[i];
		struct varve_trash_name name = {.time_ns = 0};
		struct stat st;

		if (b->state != VARVE_BUCKET_SEALED || fstatat(s->open_fd, b->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		(void)snprintf(name.bucket, sizeof(name.bucket), "%s", b->name);
		r = note_in_trash(t, b->name, &name);
	}
	return r;
}

/* What the record tells of buckets that are nowhere any more is forgotten; what it tells of the others is in
 * their files. */
static int keep_trash(struct varve_store *s)
{
	struct in_trash t = {0};
	int r = varve_trash_each(s->trash_fd, note_in_trash, &t);

	if (r == 0)
		r = note_leftovers(s, &t);
	if (r == 0) {
		if (t.n)
			qsort(t.list, t.n, sizeof(*t.list), by_name);
		(void)varve_ranges_keep(&s->kept, may_come_back, &t);
	}
	free(t.list);
	return r;
}

int varve_carry_join(struct varve_store *s)
{
	cleanup_free struct varve_node **list = NULL;
	size_t n = 0;
	int r = keep_trash(s);

	if (r < 0)
		return r;
	guard(&s->ns);
	for (struct varve_node *f = s->ranged; f; f = f->native->next_ranged)
		n++;
	if (n == 0)
		return 0;
	list = malloc(n * sizeof(struct varve_node *));
	if (!list)
		return -ENOMEM;
	n = 0;
	for (struct varve_node *f = s->ranged; f; f = f->native->next_ranged)
		list[n++] = f;
	qsort(list, n, sizeof(*list), by_part);
	for (size_t i = 0; i < n; i++) {
		bool first = i == 0 || list[i - 1]->native->number != list[i]->native->number;
		uint64_t low;

		if (!first && !list[i - 1]->native->after)
			list[i - 1]->native->after = varve_node_ref(list[i]);
		if (first && list[i]->native->head &&
		    !varve_ranges_lowest_head(&s->kept, list[i]->native->number, &low))
			varve_carry_give_below(s, list[i]);
	}
	return 0;
}

void varve_carry_forget(struct varve_store *s, const char *bucket, bool gone)
{
	guard(&s->ranges);
	guard(&s->ns);
	for (size_t i = 0; gone && i < s->kept.n; i++) {
		const struct varve_range *e = &s->kept.list[i];

		if (!strcmp(e->bucket, bucket) && e->end != UINT64_MAX && !e->end_pending)
			varve_carry_give_range(s, e->part, e->head, e->end);
	}
	if (varve_ranges_remove_bucket(&s->kept, bucket))
		s->ranges_wanted++;
}

/* The skeleton's directory of a path's folders; NULL: it is not there. ns held. */
static struct varve_node *folder_of(struct varve_store *s, const char *path, const char **ret_name)
{
	struct varve_node *dir = s->current_dir;
	const char *slash;

	for (; (slash = strchr(path, '/')); path = slash + 1) {
		char name[256];

		if ((size_t)(slash - path) >= sizeof(name))
			return NULL;
		memcpy(name, path, (size_t)(slash - path));
		name[slash - path] = '\0';
		dir = varve_node_child(dir, name);
		if (!dir || dir->kind != VARVE_KIND_SDIR)
			return NULL;
	}
	*ret_name = path;
	return dir;
}

/* ns held; b is s->current for the moment. */
static int remake(struct varve_store *s, struct varve_node *older, const struct varve_range *e)
{
	struct varve_node *dir, *ddir, *f;
	const char *name;
	int r;

	dir = folder_of(s, e->path, &name);
	if (!dir)
		return -ENOENT;
	r = varve_sdir_ddir(s, dir, &ddir);
	if (r < 0)
		return r;
	if (varve_node_child(ddir, name) || varve_node_by_id(s, e->ino))
		return -EEXIST;
	f = varve_node_new(s, VARVE_KIND_FILE, e->ino);
	if (!f)
		return -ENOMEM;
	f->attr = older->attr;
	f->attr.st_ino = e->ino;
	f->last = -1;
	f->size = older->size;
	f->bucket = varve_bucket_ref(s->current);
	r = varve_node_link(ddir, f, name);
	if (r == 0)
		r = varve_carry_share(s, older, f);
	if (r == 0)
		varve_file_succeed(s, older, f);
	varve_node_unref(s, f);
	return r;
}

/* The newest of a part's files, if it has an end and nobody is behind it; ns held. */
static struct varve_node *newest_of(struct varve_store *s, uint64_t number)
{
	struct varve_node *newest = NULL;

	for (struct varve_node *f = NULL; (f = varve_carry_next_of(s, number, f));)
		if (!newest || f->bucket->start_ns > newest->bucket->start_ns)
			newest = f;
	return newest && newest->native->end && !newest->native->after ? newest : NULL;
}

/* Whether the part goes on behind f's end. */
static bool has_more(struct varve_store *s, struct varve_node *f, int base, const char *path)
{
	bool pending;
	struct stat st;

	(void)s;
	return fstatat(base, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       (uint64_t)st.st_size > varve_mark_at(f->native->end, &pending);
}

int varve_carry_remake(struct varve_store *s, struct varve_bucket *b, const struct varve_range *e)
{
	struct varve_bucket *current = s->current;
	cleanup_free char *path = NULL;
	struct varve_node *older;
	struct varve_part *part;
	bool held;
	int base, r;

	{
		guard(&s->ns);
		older = newest_of(s, e->part);
		path = older ? varve_node_where(s, older, NULL, older->place, &base) : NULL;
	}
	if (!older || !path)
		return older ? -ENOMEM : -ENOENT;
	/* Before it is open here. */
	held = varve_part_has_writer(base, path);
	if (!held && !has_more(s, older, base, path))
		return -ENODATA;
	r = varve_file_part_named(s, older, &part);
	if (r < 0)
		return r;
	r = varve_ino_ready(s);
	if (r == 0) {
		guard(&s->ns);
		if (!older->native->pin)
			older->native->pin = varve_part_ref(part);
		s->current = b;
		r = remake(s, older, e);
		s->current = current;
		if (r == 0 && held)
			make_orphan(s, older->native->after);
	}
	varve_part_unref(part);
	return r;
}
