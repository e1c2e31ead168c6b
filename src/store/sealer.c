/*
 * The sealer: one thread that makes segments of closing buckets, one bucket at a time.
 *
 *   shut the gate        no more bytes come into the bucket's parts
 *   sealed/.NAME.tmp/    one segment a tablet, written, fsynced, read back (store/seal)
 *   rename to sealed/NAME, fsync of sealed/     the commit
 *   audit line; the bucket's nodes become SEALED; open/NAME is removed
 *
 * Everything before the commit is thrown away and done again after a crash; everything after it is
 * redone by recovery.
 */
#include "store/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/log.h"
#include "base/units.h"
#include "store/boundary.h"
#include "store/carry.h"
#include "store/content.h"
#include "store/entry.h"
#include "store/file.h"
#include "store/part.h"
#include "store/seal.h"
#include "store/xattrs.h"

#define RETRY_NS (INT64_C(5) * VARVE_NS_PER_S)

/* One thing of the bucket, in the order of the segment. */
struct item {
	char *path;
	struct varve_node *node; /* referenced */
	uint32_t places;	 /* bit p: it is in place p */
	bool doubtful;		 /* seems to hold nothing: looked at again, see collect */
	uint32_t tab, member;	 /* once committed: where it is found first */
	bool found;
	struct stat attr; /* as the segment has it */
};

struct items {
	struct varve_store *s;
	struct varve_bucket *b;
	struct item *list;
	size_t n, size;
	unsigned place; /* the one being sealed */
	struct varve_seal_dress dress; /* of the item being sealed */
	unsigned char *dress_xattrs;   /* dress.xattrs, where they are not the node's */
	size_t *of_place;
	size_t n_of_place;
	int r;
};

static void items_done(struct items *it)
{
	guard(&it->s->ns);
	for (size_t i = 0; i < it->n; i++) {
		free(it->list[i].path);
		varve_node_unref(it->s, it->list[i].node);
	}
	free(it->list);
	free(it->of_place);
	free(it->dress_xattrs);
}

static int add_item(struct items *it, struct varve_node *n)
{
	if (it->n == it->size) {
		size_t size = it->size ? 2 * it->size : 256;
		struct item *more = realloc(it->list, size * sizeof(*more));

		if (!more)
			return -ENOMEM;
		it->list = more;
		it->size = size;
	}
	it->list[it->n] = (struct item){.path = varve_node_path(n, NULL), .node = varve_node_ref(n)};
	it->list[it->n].places = n->kind == VARVE_KIND_FILE ? 1u << n->place : n->on_disk;
	return it->list[it->n++].path ? 0 : -ENOMEM;
}

/* Breadth first: the list is the queue. A part that is taken to hold nothing is looked at before it goes. */
static void collect_one(void *ctx, struct varve_node *n)
{
	struct items *it = ctx;
	bool visible = varve_dated_visible(n);

	if (it->r < 0 || !(visible || n->has_part || (n->kind == VARVE_KIND_DDIR && n->on_disk)))
		return;
	it->r = add_item(it, n);
	if (it->r == 0)
		it->list[it->n - 1].doubtful = !visible;
}

/* Whether a part that was only opened, or only came by, holds something all the same: 1, 0 or -errno. */
static int holds_bytes(struct items *it, struct item *m)
{
	struct varve_node *f = m->node;
	cleanup_free char *path = varve_part_path(it->s, it->b, f->place, m->path);
	uint64_t head = 0, end;
	struct stat st;
	bool pending;

	if (!path)
		return -ENOMEM;
	if (fstatat(it->s->open_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	guard(&f->lock);
	guard(&it->s->ns);
	if (f->native && f->native->head)
		head = varve_mark_at(f->native->head, &pending);
	end = f->native && f->native->end ? varve_mark_at(f->native->end, &pending) : (uint64_t)st.st_size;
	if (end <= head)
		return 0;
	f->size = (uint64_t)st.st_size;
	f->last = -1;
	return 1;
}

/* Leaves those in the list that are there; a folder if anything below it is. */
static int settle_doubts(struct items *it)
{
	size_t kept = 0;

	for (size_t i = 0; i < it->n; i++) {
		int r = it->list[i].doubtful && it->list[i].node->kind == VARVE_KIND_FILE
				? holds_bytes(it, &it->list[i]) : 0;

		if (r < 0)
			return r;
		if (r > 0)
			it->list[i].doubtful = false;
	}
	guard(&it->s->ns);
	for (size_t i = 0; i < it->n; i++) {
		struct item m = it->list[i];

		if (m.doubtful && !varve_dated_visible(m.node)) {
			free(m.path);
			varve_node_unref(it->s, m.node);
			continue;
		}
		it->list[kept++] = m;
	}
	it->n = kept;
	return 0;
}

static int by_path(const void *a, const void *b)
{
	const char *x = ((const struct item *)a)->path, *y = ((const struct item *)b)->path;

	return varve_path_compare(x, strlen(x), y, strlen(y));
}

/* ns is let go between directories: others look things up meanwhile, nothing changes. */
static int collect(struct items *it)
{
	{
		guard(&it->s->ns);
		it->r = add_item(it, it->b->root);
	}
	for (size_t i = 0; it->r == 0 && i < it->n; i++) {
		guard(&it->s->ns);
		if (it->list[i].node->kind == VARVE_KIND_DDIR)
			varve_node_each(it->list[i].node, collect_one, it);
	}
	if (it->r == 0)
		it->r = settle_doubts(it);
	if (it->r == 0)
		qsort(it->list, it->n, sizeof(*it->list), by_path);
	return it->r;
}

/* -- making the segments -- */

/* What such a file wears: what it had at the boundary, or what its part has. */
static int dress_item(struct items *it, struct varve_node *f, int fd)
{
	const struct varve_native *nat = f->native;
	struct varve_seal_dress *d = &it->dress;
	struct stat st;
	int r;

	r = varve_file_stat(it->s, f, &st);
	if (r < 0)
		return r;
	d->mode = st.st_mode & 07777;
	d->uid = st.st_uid;
	d->gid = st.st_gid;
	d->mtime_ns = (int64_t)st.st_mtim.tv_sec * VARVE_NS_PER_S + st.st_mtim.tv_nsec;
	d->xattrs = nat->xattrs;
	d->xattrs_len = nat->xattrs_len;
	if (nat->end)
		return 0;
	free(steal_ptr(&it->dress_xattrs));
	r = varve_xattrs_pack(fd, &it->dress_xattrs, &d->xattrs_len);
	d->xattrs = it->dress_xattrs;
	return r;
}

/* A file that is not simply its part: the range of it, as it was at the boundary, and what came late. */
static int ranged_item(struct items *it, struct varve_node *f, struct varve_seal_item *ret)
{
	const struct varve_native *nat = f->native;
	struct varve_part part = {.fd = ret->fd};
	struct varve_content c;
	int r;

	if (!nat->head && !nat->end && !nat->late)
		return 0;
	r = dress_item(it, f, ret->fd);
	if (r < 0)
		return r;
	ret->dress = &it->dress;
	{
		guard(&f->lock);
		varve_content_now(f, &part, &c);
	}
	ret->ranged = true;
	ret->from = c.head;
	ret->size = c.end - c.head;
	if (c.late) {
		int fd = varve_content_copy(it->s, f, &part);

		(void)close(ret->fd);
		ret->fd = fd;
		ret->from = 0;
		ret->size += c.late;
	}
	return ret->fd < 0 ? ret->fd : 0;
}

static int next_item(void *ctx, size_t i, struct varve_seal_item *ret)
{
	struct items *it = ctx;
	struct item *m = &it->list[it->of_place[i]];
	cleanup_free char *path = varve_part_path(it->s, it->b, it->place, m->path);
	bool dir = m->node->kind == VARVE_KIND_DDIR;

	if (!path)
		return -ENOMEM;
	*ret = (struct varve_seal_item){.path = m->path, .path_len = (uint32_t)strlen(m->path),
					.ino = m->node->ino, .is_link = m->node->is_link,
					.mode = UINT32_MAX};
	if (dir) {
		ret->mode = m->node->attr.st_mode & 07777;
		ret->fd = varve_openat(it->s->open_fd, path, O_RDONLY | O_DIRECTORY, 0);
	} else {
		if (m->node->lifted)
			ret->mode = m->node->attr.st_mode & 07777;
		ret->fd = varve_part_open(it->s->open_fd, path);
		if (ret->fd >= 0 && m->node->native)
			return ranged_item(it, m->node, ret);
	}
	return ret->fd < 0 ? ret->fd : 0;
}

static int select_place(struct items *it, unsigned place)
{
	it->place = place;
	it->n_of_place = 0;
	if (!it->of_place)
		it->of_place = malloc(it->n * sizeof(*it->of_place));
	if (!it->of_place)
		return -ENOMEM;
	for (size_t i = 0; i < it->n; i++)
		if (it->list[i].places & (1u << place))
			it->of_place[it->n_of_place++] = i;
	return 0;
}

static int seal_place(struct items *it, int tmp_fd, struct varve_segment_totals *sum,
		      struct varve_err *err)
{
	const struct varve_place *at = &it->s->places[it->place];
	char name[VARVE_CLASS_NAME_MAX + 16];
	cleanup_close int dir = -1;
	struct varve_segment_totals t;
	struct varve_seal_job job = {
		.params = {.level = it->s->policy.seal_level,
			   .threads = it->s->policy.seal_threads,
			   .bucket = it->b->name,
			   .class_name = at->class_name,
			   .tablet = at->tablet,
			   .start_ns = it->b->start_ns,
			   .end_ns = it->b->end_ns,
			   .cancel = (const volatile int *)&it->s->cancel_seal},
		.n = it->n_of_place,
		.next = next_item,
		.ctx = it,
	};
	int r;

	if (mkdirat(tmp_fd, at->class_name, 0700) < 0 && errno != EEXIST)
		return -errno;
	dir = varve_openat(tmp_fd, at->class_name, O_RDONLY | O_DIRECTORY, 0);
	if (dir < 0)
		return dir;
	(void)snprintf(name, sizeof(name), "%s.tar.zst", at->tablet);
	r = varve_seal_segment(dir, name, &job, &t, err);
	if (r < 0)
		return r;
	sum->files += t.files;
	sum->content_bytes += t.content_bytes;
	sum->segment_bytes += t.segment_bytes;
	return fsync(dir) < 0 ? -errno : 0;
}

static int make_segments(struct items *it, const char *tmp, struct varve_segment_totals *sum,
			 struct varve_err *err)
{
	struct varve_bucket_facts facts = {.ino = it->b->ino, .start_ns = it->b->start_ns,
					   .end_ns = it->b->end_ns};
	cleanup_close int tmp_fd = -1;
	int r = varve_remove_tree(it->s->sealed_fd, tmp, true);

	if (r < 0)
		return r;
	if (mkdirat(it->s->sealed_fd, tmp, 0700) < 0)
		return -errno;
	tmp_fd = varve_openat(it->s->sealed_fd, tmp, O_RDONLY | O_DIRECTORY, 0);
	if (tmp_fd < 0)
		return tmp_fd;
	for (unsigned p = 0; r == 0 && p < it->s->n_places; p++) {
		r = select_place(it, p);
		if (r == 0 && it->n_of_place)
			r = seal_place(it, tmp_fd, sum, err);
	}
	if (r < 0)
		return r;
	facts.files = sum->files;
	facts.bytes = sum->content_bytes;
	r = varve_bucket_note(it->s->sealed_fd, tmp, &facts);
	if (r == 0 && fsync(tmp_fd) < 0)
		r = -errno;
	return r;
}

/* -- after the commit -- */

static void find_members(struct items *it)
{
	for (uint32_t t = it->b->n_tabs; t-- > 0;) {
		struct varve_segment *seg;

		if (varve_sealed_segment(it->s, it->b, t, &seg) < 0)
			continue;
		for (size_t i = 0; i < it->n; i++) {
			struct item *m = &it->list[i];

			struct varve_member member;

			if (varve_index_find(varve_segment_index(seg), m->path, strlen(m->path),
					     &m->member) < 0)
				continue;
			m->tab = t;
			m->found = true;
			varve_index_member(varve_segment_index(seg), m->member, &member);
			varve_sealed_attr(&member, m->node->ino, &m->attr);
			if (m->node == it->b->root)
				varve_sealed_told(it->s, it->b, &member);
		}
		varve_segment_unref(seg);
	}
}

/* Before a part goes its size is looked at again, and of one that an earlier daemon may have left to a
 * descriptor, whether it is still held: what came behind what was sealed goes on in the current bucket. */
static int keep_rest(struct items *it)
{
	struct varve_store *s = it->s;
	bool carries = false;
	int r = 0;

	for (size_t i = 0; i < it->n; i++) {
		struct item *m = &it->list[i];
		struct varve_node *f = m->node;
		cleanup_free char *path = NULL;
		uint64_t head = 0;
		bool pending;
		struct stat st;

		if (f->kind != VARVE_KIND_FILE || !m->found || f->is_link)
			continue;
		if (f->native && (f->native->end || f->native->late))
			continue;
		path = varve_part_path(s, it->b, f->place, m->path);
		if (f->native && f->native->head)
			head = varve_mark_at(f->native->head, &pending);
		if (!path || fstatat(s->open_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    (uint64_t)st.st_size == head + (uint64_t)m->attr.st_size)
			continue;
		guard(&s->mutate);
		r = varve_carry_mark_file(s, f, head + (uint64_t)m->attr.st_size);
		if (r < 0)
			break;
		guard(&s->ns);
		f->appended = true;
		varve_file_lend_writer(s, f);
		carries = true;
	}
	if (carries) {
		guard(&s->mutate);
		varve_boundary_settle(s, it->b);
		r = varve_carry_finish(s, true);
		varve_warning("parts of bucket '%s' were written to while it was sealed: what came goes on in "
			      "bucket '%s'", it->b->name, s->current->name);
	}
	if (r < 0)
		varve_error("parts of bucket '%s' were written to while it was sealed, and can't be carried on: "
			    "%s; they stay in 'open/%s'", it->b->name, strerror(-r), it->b->name);
	return r;
}

/* From here on the bucket is read from its segments, also by those who had it open. */
static void become_sealed(struct items *it, const struct varve_segment_totals *sum)
{
	struct varve_store *s = it->s;
	struct varve_part **parts = calloc(it->n, sizeof(struct varve_part *));
	struct varve_node *root = it->b->root;

	{
		guard(&s->ns);
		for (size_t i = 0; i < it->n; i++) {
			struct item *m = &it->list[i];
			struct varve_node *n = m->node;

			n->kind = VARVE_KIND_SEALED;
			n->tab = (uint16_t)m->tab;
			n->member = m->member;
			n->tab_none = n == root;
			n->has_part = false;
			if (m->found)
				n->attr = m->attr;
			if (parts)
				parts[i] = n->part;
			/* Without memory the descriptor stays open as long as the node: no harm. */
			if (parts)
				n->part = NULL;
			if (n->sdir) {
				if (n->sdir->ddir == n)
					n->sdir->ddir = NULL;
				varve_node_unref(s, n->sdir);
				n->sdir = NULL;
			}
		}
		it->b->state = VARVE_BUCKET_SEALED;
		it->b->files = sum->files;
		it->b->bytes = sum->content_bytes;
		varve_bucket_forget_tree(s, it->b);
	}
	for (size_t i = 0; parts && i < it->n; i++)
		varve_part_unref(parts[i]);
	free(parts);
}

static void log_seal(struct varve_store *s, struct varve_bucket *b,
		     const struct varve_segment_totals *sum, int64_t took_ns)
{
	char bytes[32], seg[32], took[32];
	struct varve_audit_line line = {
		.event = "seal", .bucket = b->name, .buckets = 1, .files = (int64_t)sum->files,
		.bytes = (int64_t)sum->content_bytes, .segment_bytes = (int64_t)sum->segment_bytes,
		.uid = -1, .pid = -1, .id = b->name,
	};
	int r;

	{
		guard(&s->ns);
		line.time_ns = varve_believed_now(s);
	}
	r = varve_audit_append(s->audit, &line);
	if (r < 0)
		varve_error("the audit line for the seal of bucket '%s' can't be written: %s", b->name,
			    strerror(-r));
	varve_size_format(sum->content_bytes, bytes, sizeof(bytes));
	varve_size_format(sum->segment_bytes, seg, sizeof(seg));
	varve_duration_format(took_ns, took, sizeof(took));
	varve_info("sealed bucket '%s': %llu files, %s to %s (ratio %.1f) in %s", b->name,
		   (unsigned long long)sum->files, bytes, seg,
		   sum->segment_bytes ? (double)sum->content_bytes / (double)sum->segment_bytes : 0.0,
		   took);
}

/* A window in which nothing was written leaves nothing. */
static int vanish(struct varve_store *s, struct varve_bucket *b)
{
	int r = b->dir_made ? varve_remove_tree(s->open_fd, b->name, false) : 0;

	if (r < 0)
		return r;
	{
		guard(&s->ns);
		b->state = VARVE_BUCKET_DROPPED;
		varve_bucket_forget_tree(s, b);
		varve_bucket_unlist(s, b);
	}
	if (s->events.entry_gone)
		s->events.entry_gone(s->events.ctx, VARVE_ID_ROOT, b->name);
	varve_debug("bucket '%s' held nothing and is gone", b->name);
	return 0;
}

static int commit(struct varve_store *s, struct varve_bucket *b, const char *tmp)
{
	varve_crash_point("seal.written");
	if (renameat2(s->sealed_fd, tmp, s->sealed_fd, b->name, RENAME_NOREPLACE) < 0)
		return -errno;
	varve_crash_point("seal.renamed");
	return fsync(s->sealed_fd) < 0 ? -errno : 0;
}

int varve_seal_bucket(struct varve_store *s, struct varve_bucket *b)
{
	struct items it = {.s = s, .b = b};
	struct varve_segment_totals sum = {0};
	struct varve_err err = {.msg = ""};
	int64_t began = varve_clock_boottime(s->clock);
	char tmp[VARVE_BUCKET_NAME_MAX + 8];
	int r;

	(void)snprintf(tmp, sizeof(tmp), ".%s.tmp", b->name);
	{
		guard(&s->mutate);
		varve_bucket_shut(s, b);
	}
	varve_crash_point("seal.shut");
	/* Where the ranges end must be known, and what newer buckets have of the parts must have names there,
	 * before anything of this bucket goes. */
	r = varve_carry_finish(s, false);
	if (r == 0)
		r = collect(&it);
	if (r == 0 && it.n <= 1) {
		items_done(&it);
		return vanish(s, b);
	}
	if (r == 0)
		r = make_segments(&it, tmp, &sum, &err);
	if (r == 0)
		r = commit(s, b, tmp);
	if (r < 0) {
		/* What can't be removed now is removed by the next try, or the next mount. */
		(void)!varve_remove_tree(s->sealed_fd, tmp, true);
		items_done(&it);
		if (r != -ECANCELED && !b->seal_failed)
			varve_error("bucket '%s' can't be sealed: %s%s%s; its parts stay as they are in "
				    "'open/%s', and it is tried again", b->name, strerror(-r),
				    err.msg[0] ? ": " : "", err.msg, b->name);
		return r;
	}
	varve_crash_point("seal.committed");
	varve_pause_point("seal.committed");
	(void)atomic_fetch_add(&s->known_changes, 1);
	(void)varve_sealed_ready(s, b);
	find_members(&it);
	r = keep_rest(&it);
	become_sealed(&it, &sum);
	items_done(&it);
	log_seal(s, b, &sum, varve_clock_boottime(s->clock) - began);
	varve_crash_point("seal.audited");
	if (r == 0)
		r = varve_parts_to_trash(s, b->name);
	if (r < 0)
		varve_error("the parts of sealed bucket '%s' can't be removed: %s; the next mount tries "
			    "again", b->name, strerror(-r));
	varve_crash_point("seal.removed");
	return 0;
}

/* -- the thread -- */

/* The next bucket to seal, or NULL; ns held. *ret_wait: ns until a failed one is tried again. */
static struct varve_bucket *choose(struct varve_store *s, int64_t *ret_wait)
{
	int64_t now = varve_believed_now(s), boot = varve_clock_boottime(s->clock);

	*ret_wait = INT64_MAX;
	for (uint32_t i = 0; i < s->n_buckets; i++) {
		struct varve_bucket *b = s->buckets[i];

		if (b->state != VARVE_BUCKET_CLOSING || b->dropping)
			continue;
		if (!b->hurry && b->grace_end_ns > now)
			continue;
		if (b->retry_ns > boot) {
			if (b->retry_ns - boot < *ret_wait)
				*ret_wait = b->retry_ns - boot;
			continue;
		}
		return b;
	}
	return NULL;
}

static void wait_for_work(struct varve_store *s, int64_t ns)
{
	struct timespec until;

	if (ns == INT64_MAX) {
		(void)pthread_cond_wait(&s->wake_sealer, &s->ns);
		return;
	}
	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(ns / VARVE_NS_PER_S) + 1;
	(void)pthread_cond_timedwait(&s->wake_sealer, &s->ns, &until);
}

void *varve_sealer_main(void *arg)
{
	struct varve_store *s = arg;

	/* Best effort I/O of the lowest kind: whoever appends goes first. */
	(void)syscall(SYS_ioprio_set, 1, 0, (2 << 13) | 7);
	(void)pthread_mutex_lock(&s->ns);
	while (!s->stopping) {
		int64_t wait;
		struct varve_bucket *b = choose(s, &wait);
		int r;

		if (!b) {
			wait_for_work(s, wait);
			continue;
		}
		(void)varve_bucket_ref(b);
		b->sealing = true;
		atomic_store(&s->cancel_seal, 0);
		(void)pthread_mutex_unlock(&s->ns);
		r = varve_seal_bucket(s, b);
		(void)pthread_mutex_lock(&s->ns);
		b->sealing = false;
		b->seal_failed = r < 0 && r != -ECANCELED;
		/* Called off, for a drop or for room: later, too. */
		b->retry_ns = r < 0 ? varve_clock_boottime(s->clock) + RETRY_NS : 0;
		(void)pthread_cond_broadcast(&s->sealed_one);
		varve_bucket_unref(s, b);
	}
	(void)pthread_mutex_unlock(&s->ns);
	return NULL;
}
