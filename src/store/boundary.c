/*
 * The boundary: from bucket A to bucket B, and later the shutting of A's gate.
 *
 * What it costs grows with the files that writers hold, not with the files of the bucket: A keeps its
 * tree, B begins with an empty one, the skeleton of current/ stays as it is. Nothing is written in
 * the critical section; that B is current follows from the clock alone, and B's directory is made
 * with its first part.
 */
#include "store/core.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/bytes.h"
#include "base/log.h"
#include "store/boundary.h"
#include "store/carry.h"
#include "store/entry.h"
#include "store/file.h"

/* -- the clock record: high-water mark, and the current bucket's run of stream numbers -- */

#define CLOCK_RECORD_BYTES (8 + 8 + 8 + 8)

int varve_clock_keep(struct varve_store *s)
{
	unsigned char b[CLOCK_RECORD_BYTES];
	int64_t mark;
	int r;

	{
		guard(&s->ns);
		mark = varve_believed_now(s);
		varve_put_le64(b, (uint64_t)mark);
		varve_put_le64(b + 8, (uint64_t)s->current->start_ns);
		varve_put_le64(b + 16, s->serial_base);
		varve_put_le64(b + 24, s->serial_n);
	}
	r = varve_slots_write(s->clock_slots, b, sizeof(b));
	if (r == 0)
		atomic_store(&s->kept_mark_ns, mark);
	return r;
}

/* -- names of new windows -- */

static bool name_is_taken(struct varve_store *s, const char *name)
{
	struct stat st;

	return varve_bucket_find(s, name) || fstatat(s->sealed_fd, name, &st, 0) == 0 ||
	       fstatat(s->open_fd, name, &st, 0) == 0;
}

/* The window of now. Where its name was used already (the length was changed twice, or a bucket of
 * the same window was dropped and the clock stands still) it begins at this second instead: there
 * are never two buckets of one name. ns held: the two stats are of the store's own folders. */
static int window_for(struct varve_store *s, int64_t now_ns, struct varve_window *ret)
{
	const struct varve_length second = {VARVE_UNIT_SECONDS, 1};
	int64_t end, at = now_ns;
	int r = varve_window_at(&s->policy.bucket, now_ns, ret);

	end = ret->end_ns;
	while (r == 0 && name_is_taken(s, ret->name)) {
		r = varve_window_at(&second, at, ret);
		at += VARVE_NS_PER_S;
		if (ret->end_ns < end)
			ret->end_ns = end;
	}
	return r;
}

/* What was taken ahead, if that is enough for the streams there are. */
static int take_numbers(struct varve_store *s, struct varve_window_numbers *ret)
{
	int r;

	{
		guard(&s->ns);
		*ret = s->next_window;
		s->next_window.there = false;
		if (ret->there && ret->n >= s->next_serial)
			return 0;
	}
	r = varve_ino_next(s, &ret->ino);
	return r < 0 ? r : varve_ino_streams(s, &ret->base, &ret->n);
}

int varve_boundary_prepare(struct varve_store *s)
{
	struct varve_window_numbers num = {.there = true};
	int r = varve_ino_ready(s);

	{
		guard(&s->ns);
		/* A third of the spare ones is left: new streams come one by one. */
		if (s->next_window.there && s->next_window.n >= s->next_serial + VARVE_NEW_STREAMS / 3)
			return r;
	}
	if (r == 0)
		r = varve_ino_next(s, &num.ino);
	if (r == 0)
		r = varve_ino_streams(s, &num.base, &num.n);
	if (r < 0)
		return r;
	guard(&s->ns);
	s->next_window = num;
	return 0;
}

/* ns held. */
static int open_window(struct varve_store *s, int64_t now_ns, const struct varve_window_numbers *num)
{
	struct varve_window w;
	struct varve_bucket *b;
	int r = window_for(s, now_ns, &w);

	if (r < 0)
		return r;
	b = varve_bucket_new(w.name, w.start_ns, w.end_ns, num->ino);
	if (!b)
		return -ENOMEM;
	r = varve_bucket_root(s, b);
	if (r == 0)
		r = varve_bucket_list(s, b);
	varve_bucket_unref(s, b);
	if (r < 0)
		return r;
	s->current = b;
	s->serial_base = num->base;
	s->serial_n = num->n;
	return 0;
}

int varve_open_window(struct varve_store *s, int64_t now_ns)
{
	struct varve_window_numbers num;
	int r = take_numbers(s, &num);

	if (r < 0)
		return r;
	guard(&s->ns);
	return open_window(s, now_ns, &num);
}

/* -- successors -- */

/* The SDIR at a DDIR's path, made anew where it was removed meanwhile: a writer's next line must have
 * a place to go. mutate held, ns not. */
static int revive_sdir(struct varve_store *s, struct varve_node *ddir, struct varve_node **ret)
{
	struct varve_node *sdir = ddir->sdir, *up, *again;
	struct varve_caller who = {.uid = ddir->attr.st_uid, .gid = ddir->attr.st_gid};
	struct varve_entry entry;
	int r;

	{
		guard(&s->ns);
		if (sdir && (sdir->linked || sdir == s->current_dir)) {
			*ret = sdir;
			return 0;
		}
	}
	if (!ddir->parent)
		return -ESTALE;
	r = revive_sdir(s, ddir->parent, &up);
	if (r < 0)
		return r;
	{
		guard(&s->ns);
		again = varve_node_child(up, ddir->name);
	}
	if (!again) {
		uint64_t id;

		/* mkdir takes mutate itself; by its number up is found again if it is still there. */
		{
			guard(&s->ns);
			id = up->ino;
			(void)varve_node_ref(up);
		}
		(void)pthread_mutex_unlock(&s->mutate);
		r = varve_store_mkdir(s, &who, id, ddir->name, ddir->attr.st_mode, &entry);
		(void)pthread_mutex_lock(&s->mutate);
		if (r == 0)
			varve_store_forget(s, entry.id, 1);
		guard(&s->ns);
		again = varve_node_child(up, ddir->name);
		varve_node_unref(s, up);
	}
	if (!again || again->kind != VARVE_KIND_SDIR)
		return r < 0 ? r : -ENOTDIR;
	*ret = again;
	return 0;
}

/* The file at this name of the current bucket, made in memory when there is none; ns held. */
static int successor_at(struct varve_store *s, struct varve_node *sdir, struct varve_node *f,
			struct varve_node **ret)
{
	struct varve_node *c = varve_current_child(s, sdir, f->name), *d, *n;
	uint64_t ino;
	int r;

	if (c && c->kind == VARVE_KIND_FILE && !c->is_link) {
		*ret = c;
		return 0;
	}
	if (c && c->kind == VARVE_KIND_STREAM)
		return varve_stream_file(s, c, ret);
	if (c)
		return -EEXIST;
	r = varve_sdir_ddir(s, sdir, &d);
	if (r < 0)
		return r;
	ino = varve_ino_take(s);
	if (!ino)
		return -EAGAIN;
	n = varve_node_new(s, VARVE_KIND_FILE, ino);
	if (!n)
		return -ENOMEM;
	n->attr = f->attr;
	n->attr.st_ino = ino;
	n->attr.st_size = n->attr.st_blocks = 0;
	n->last = '\n';
	n->bucket = varve_bucket_ref(s->current);
	r = varve_node_link(d, n, f->name);
	if (r == 0)
		*ret = n;
	varve_node_unref(s, n);
	return r;
}

/* f's writers go on in succ; with f's part, where the kernel writes to it. ns held. */
static void succeed(struct varve_store *s, struct varve_node *f, struct varve_node *succ)
{
	/* Where the name is somebody else's by now, what the kernel writes stays behind the mark, and goes
	 * with the part: as it does for a file that was removed while it was held. */
	if (f->native && f->native->end && !f->native->after)
		(void)varve_carry_share(s, f, succ);
	varve_file_succeed(s, f, succ);
}

static bool is_stream(struct varve_node *f)
{
	struct varve_node *c = f->parent->sdir ? varve_node_child(f->parent->sdir, f->name) : NULL;

	return c && c->kind == VARVE_KIND_STREAM;
}

/* At the boundary: what writers hold of A's streams goes on in B. ns held. */
static int give_successors(struct varve_store *s, struct varve_bucket *a)
{
	for (struct varve_node *f = a->written, *next; f; f = next) {
		struct varve_node *succ;
		int r;

		next = f->next_written; /* with its writers gone it leaves the list */
		/* Removed while held: it goes on as on any filesystem, nameless. */
		if (!f->linked || f->succ || !(f->appended || is_stream(f)))
			continue;
		r = successor_at(s, f->parent->sdir, f, &succ);
		if (r < 0)
			return r;
		succeed(s, f, succ);
	}
	return 0;
}

/* What was marked goes on in B even if its writers have let go of it since: what they wrote behind the mark is B's. ns
 * held. */
static int share_marked(struct varve_store *s, struct varve_bucket *a)
{
	for (struct varve_node *f = s->ranged, *next; f; f = next) {
		struct varve_node *succ;
		int r;

		next = f->native->next_ranged;
		if (f->bucket != a || !f->native->end || f->native->after || !f->linked || f->succ)
			continue;
		r = successor_at(s, f->parent->sdir, f, &succ);
		if (r < 0)
			return r;
		succeed(s, f, succ);
	}
	return 0;
}

/* A handle that does not write leaves a successor behind at each boundary: the chain is cut short, so
 * that it does not grow with time. What it skips is whole as far as this handle goes. ns held. */
static void shorten(struct varve_store *s, struct varve_node *f)
{
	struct varve_node *newest;

	if (!f || !f->succ)
		return;
	newest = varve_file_newest(f);
	if (f->succ == newest)
		return;
	(void)varve_node_ref(newest);
	varve_node_unref(s, f->succ);
	f->succ = newest;
}

static void shorten_chains(struct varve_store *s)
{
	for (uint32_t i = 0; i < s->n_handles; i++) {
		struct varve_handle *h = s->handles[i];

		if (h) {
			shorten(s, h->file);
			shorten(s, h->opened);
		}
	}
}

static uint32_t count_written(struct varve_bucket *a)
{
	uint32_t n = 0;

	for (struct varve_node *f = a->written; f; f = f->next_written)
		n++;
	return n;
}

struct names {
	struct name {
		uint64_t dir;
		char *name;
	} * list;
	size_t n;
};

static void collect_name(void *ctx, struct varve_node *n)
{
	struct names *l = ctx;
	struct name *more;

	if (n->kind == VARVE_KIND_DDIR) {
		varve_node_each(n, collect_name, ctx);
		return;
	}
	if (!n->nlookup || !n->parent->sdir)
		return;
	more = realloc(l->list, (l->n + 1) * sizeof(*more));
	if (!more)
		return;
	l->list = more;
	more[l->n].dir = n->parent->sdir->ino;
	more[l->n].name = strdup(n->name);
	if (more[l->n].name)
		l->n++;
}

/* The boundary came before the time until which names were let be cached (the clock was set ahead, and
 * is believed): the files of current/ that the kernel knows are not what their names mean any more. */
static void expire_names(struct varve_store *s, struct varve_bucket *a)
{
	struct names l = {NULL, 0};

	{
		guard(&s->ns);
		if (a->root)
			varve_node_each(a->root, collect_name, &l);
	}
	for (size_t i = 0; i < l.n; i++) {
		s->events.entry_gone(s->events.ctx, l.list[i].dir, l.list[i].name);
		free(l.list[i].name);
	}
	free(l.list);
}

/* A thousand machines are not to compress at the same moment: up to a fortieth of the window, 30 s at
 * most, by chance. */
static int64_t jitter(const struct varve_bucket *b)
{
	int64_t most = (b->end_ns - b->start_ns) / 40;
	uint32_t chance = 0;

	/* A test that moves the clock says itself when the grace is over. */
	if (varve_clock_is_moved())
		return 0;
	if (most > 30 * VARVE_NS_PER_S)
		most = 30 * VARVE_NS_PER_S;
	(void)!getrandom(&chance, sizeof(chance), GRND_NONBLOCK);
	return (int64_t)((double)most * chance / UINT32_MAX);
}

static bool any_due(struct varve_bucket *a)
{
	for (struct varve_node *f = a->written; f; f = f->next_written)
		if (varve_carry_is_due(f))
			return true;
	return false;
}

int varve_boundary_cut(struct varve_store *s, int64_t now_ns)
{
	struct varve_bucket *a = s->current;
	int64_t boot = varve_clock_boottime(s->clock), grace;
	struct varve_window_numbers num;
	uint32_t held;
	bool early = false, opened = false;
	int r;

	{
		guard(&s->ns);
		held = count_written(a);
	}
	r = varve_ino_ready(s);
	if (r == 0)
		r = take_numbers(s, &num);
	if (r < 0)
		return r;
	grace = varve_policy_grace(&s->policy, a->end_ns - a->start_ns) + jitter(a);
	varve_node_prepare(s, held);
	for (;;) {
		/* From here on what the kernel writes belongs to the new bucket, though nobody can look
		 * for it there yet. */
		r = opened ? 0 : varve_carry_mark(s, a);
		if (r < 0)
			varve_error("boundary at the end of bucket '%s': %s; what is written to some of its "
				    "files goes on into it until it is sealed", a->name, strerror(-r));
		{
			guard(&s->ns);
			if (!opened && r == 0 && any_due(a))
				continue;
			/* What was made ahead stays for the next try. */
			r = opened ? 0 : open_window(s, now_ns, &num);
			if (r < 0)
				return r;
			opened = true;
			a->state = VARVE_BUCKET_CLOSING;
			a->grace_end_ns = now_ns + grace;
			early = a->promise_boot_ns > boot + VARVE_NS_PER_S / 20;
			r = give_successors(s, a);
			if (r == 0)
				r = share_marked(s, a);
			shorten_chains(s);
		}
		if (r != -EAGAIN)
			break;
		r = varve_ino_ready(s);
		if (r < 0)
			break;
	}
	varve_node_prepare(s, 0);
	if (r < 0)
		varve_error("boundary at the end of bucket '%s': %s; writers that could not be moved "
			    "go on in it until it is sealed", a->name, strerror(-r));
	varve_crash_point("boundary.done");
	varve_info("boundary: bucket '%s' is closing, '%s' is open; writers hold %u files", a->name,
		   s->current->name, held);
	if (early && s->events.entry_gone)
		expire_names(s, a);
	return 0;
}

int varve_boundary_step(struct varve_store *s, int64_t now_ns)
{
	int r = varve_boundary_cut(s, now_ns);

	if (r == 0)
		r = varve_clock_keep(s);
	return r < 0 ? r : varve_carry_finish(s, true);
}

/* -- the end of the grace -- */

static int mark_if_due(struct varve_store *s, struct varve_node *f)
{
	bool due;

	{
		guard(&s->ns);
		due = varve_carry_is_due(f);
	}
	return due ? varve_carry_mark_file(s, f, UINT64_MAX) : 0;
}

/* One file's successor, as a stream of its path. */
static int settle(struct varve_store *s, struct varve_node *f, struct varve_node *dir)
{
	struct varve_node *sdir, *succ;
	cleanup_free char *name = NULL;
	bool none;
	int r = revive_sdir(s, dir, &sdir);

	if (r < 0)
		return r;
	{
		guard(&s->ns);
		none = varve_current_child(s, sdir, f->name) == NULL;
		name = strdup(f->name);
	}
	if (!name)
		return -ENOMEM;
	if (none) {
		r = varve_stream_make(s, sdir, name, f);
		/* Without its marker (a full disk) it goes on all the same, until the next boundary. */
		if (r < 0)
			varve_warning("'current/%s' can't be marked as a stream: %s", name,
				      strerror(-r));
	}
	do {
		r = varve_ino_ready(s);
		if (r == 0)
			r = mark_if_due(s, f);
		if (r < 0)
			return r;
		guard(&s->ns);
		r = successor_at(s, sdir, f, &succ);
		if (r == 0)
			succeed(s, f, succ);
	} while (r == -EAGAIN);
	return r;
}

/* Every file that writers still hold gets a successor: an object goes on as a stream of its path. */
void varve_boundary_settle(struct varve_store *s, struct varve_bucket *a)
{
	for (;;) {
		struct varve_node *f, *dir;
		int r;

		{
			guard(&s->ns);
			for (f = a->written; f; f = f->next_written)
				if (f->linked && !f->succ && !f->stuck)
					break;
			if (!f)
				return;
			(void)varve_node_ref(f);
			dir = f->parent;
		}
		r = settle(s, f, dir);
		if (r < 0) {
			f->stuck = true;
			varve_warning("bucket '%s': what holds '%s' open for writing can't go on in "
				      "bucket '%s': %s; its writes will fail until it opens the file anew",
				      a->name, f->name, s->current->name, strerror(-r));
		}
		varve_node_put(s, f);
	}
}

void varve_bucket_shut(struct varve_store *s, struct varve_bucket *b)
{
	varve_boundary_settle(s, b);
	varve_carry_settle(s, b);
	/* Waits for the writes that are under way; those that come now find it shut. */
	(void)pthread_rwlock_wrlock(&b->gate);
	{
		guard(&s->ns);
		b->shut = true;
	}
	(void)pthread_rwlock_unlock(&b->gate);
	/* Whoever opened a file in between; nobody can from now on. */
	varve_boundary_settle(s, b);
}

/* The ranges of its files are nobody's any more; ns held. */
static void give_back_ranges(struct varve_store *s, struct varve_bucket *b)
{
	for (struct varve_node *f = s->ranged, *next; f; f = next) {
		next = f->native->next_ranged;
		if (f->bucket == b)
			varve_carry_give_back(s, f);
	}
}

void varve_bucket_forget_tree(struct varve_store *s, struct varve_bucket *b)
{
	give_back_ranges(s, b);
	while (b->written) {
		struct varve_node *f = b->written;

		b->written = f->next_written;
		if (b->written)
			b->written->written_at = &b->written;
		f->next_written = NULL;
		f->written_at = NULL;
		varve_node_unref(s, f);
	}
	if (b->root) {
		struct varve_node *root = b->root;

		b->root = NULL;
		while (root->n_children)
			for (uint32_t i = 0; i < root->n_chains; i++)
				if (root->chains[i])
					varve_tree_drop(s, root->chains[i]);
		root->linked = false;
		varve_node_unref(s, root);
	}
}
