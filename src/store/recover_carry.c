/* Recovery of carried parts, and of parts whose bucket stands sealed. */
#include "store/recover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "store/boundary.h"
#include "store/carry.h"
#include "store/content.h"
#include "store/entry.h"
#include "store/file.h"
#include "store/native.h"
#include "store/trash.h"

/* -- parts of sealed buckets -- */

/* Its parts are garbage, if they are what was sealed. What a descriptor that outlived the daemon has written to
 * one since goes on in the current bucket. Anything else that is not the same is kept, and said. */
struct leftover {
	struct varve_store *s;
	struct varve_bucket *sealed;
	bool differs;
	bool carries;
};

static int sealed_size(struct leftover *lo, const char *path, uint64_t *ret)
{
	(void)varve_sealed_ready(lo->s, lo->sealed);
	for (uint32_t t = 0; t < lo->sealed->n_tabs; t++) {
		struct varve_segment *seg;
		struct varve_member m;
		uint32_t i;
		int r;

		if (varve_sealed_segment(lo->s, lo->sealed, t, &seg) < 0)
			continue;
		r = varve_index_find(varve_segment_index(seg), path, strlen(path), &i);
		if (r == 0) {
			varve_index_member(varve_segment_index(seg), i, &m);
			*ret = m.size;
		}
		varve_segment_unref(seg);
		if (r == 0)
			return 0;
	}
	return -ENOENT;
}

static void check_leftover(void *ctx, struct varve_node *n)
{
	struct leftover *lo = ctx;
	cleanup_free char *path = NULL;
	uint64_t sealed = 0, has;
	bool known, more, pending;

	if (n->kind == VARVE_KIND_DDIR) {
		varve_node_each(n, check_leftover, ctx);
		return;
	}
	/* What only came by, or was only opened, was not sealed, and is nobody's. */
	if (!varve_dated_visible(n))
		return;
	path = varve_node_path(n, NULL);
	known = path && sealed_size(lo, path, &sealed) == 0;
	has = varve_content_guess(n);
	more = n->native && !n->native->end && (n->native->orphan || has > sealed);
	if (known && (more || (!n->native && has > sealed))) {
		/* At the size that was sealed: what is behind it belongs to the current bucket. */
		uint64_t at = sealed;

		if (n->native && n->native->head)
			at += varve_mark_at(n->native->head, &pending);
		if (varve_carry_mark_file(lo->s, n, at) == 0) {
			guard(&lo->s->ns);
			n->appended = true;
			if (!n->native->orphan)
				varve_file_lend_writer(lo->s, n);
			lo->carries = true;
			return;
		}
	}
	/* Its line was finished before the seal, which the record need not have been told. */
	pending = false;
	if (n->native && n->native->end)
		(void)varve_mark_at(n->native->end, &pending);
	if (known && (has == sealed || (pending && has < sealed)))
		return;
	lo->differs = true;
	varve_error("'open/%s/.../%s' is not what its bucket was sealed with: it is kept; move it away by hand "
		    "once you have looked at it", lo->sealed->name, path ? path : n->name);
}

static int remove_sealed_parts(struct varve_store *s, struct varve_bucket *sealed, struct varve_err *err)
{
	struct leftover lo = {.s = s, .sealed = sealed};
	struct varve_bucket *b;
	int r = varve_recover_open(s, sealed->name, &b, err);

	if (r < 0)
		return r;
	/* It is in the nodes now. */
	varve_carry_forget(s, sealed->name, false);
	/* The segments are opened with locks that lookups under ns may not hold: at open nobody else
	 * is there. */
	varve_node_each(b->root, check_leftover, &lo);
	if (lo.carries) {
		varve_warning("recovery: parts of sealed bucket '%s' were written to since: what came goes on in "
			      "bucket '%s'", sealed->name, s->current->name);
		guard(&s->mutate);
		varve_boundary_settle(s, b);
		r = varve_carry_finish(s, true);
	}
	{
		guard(&s->ns);
		varve_bucket_forget_tree(s, b);
		varve_bucket_unref(s, b);
	}
	if (r < 0 || lo.differs)
		return r;
	varve_info("recovery: bucket '%s' is sealed, its parts are removed", sealed->name);
	return varve_remove_tree(s->open_fd, sealed->name, true);
}

static int recover_leftovers(struct varve_store *s, struct varve_err *err)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < s->n_buckets; i++) {
		struct varve_bucket *b = s->buckets[i];
		struct stat st;

		if (b->state == VARVE_BUCKET_SEALED &&
		    fstatat(s->open_fd, b->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			r = remove_sealed_parts(s, b, err);
	}
	return r;
}

/* -- carried parts -- */

static bool has_newer(struct varve_store *s, const struct varve_range *e)
{
	guard(&s->ns);
	for (struct varve_node *f = NULL; (f = varve_carry_next_of(s, e->part, f));)
		if (!strcmp(f->bucket->name, e->bucket))
			return true;
	return false;
}

static int is_dropped(void *ctx, const char *name, const struct varve_trash_name *parsed)
{
	const char *const *bucket = ctx;

	(void)name;
	return strcmp(parsed->bucket, *bucket) == 0 ? -EEXIST : 0;
}

int varve_recover_newest(struct varve_store *s)
{
	const char *bucket = s->kept.links_bucket;
	struct stat st;
	bool any = false;

	for (size_t i = 0; i < s->kept.n && !any; i++)
		any = !strcmp(s->kept.list[i].bucket, bucket);
	if (s->kept.links_done || !any || fstatat(s->open_fd, bucket, &st, AT_SYMLINK_NOFOLLOW) == 0 ||
	    fstatat(s->sealed_fd, bucket, &st, AT_SYMLINK_NOFOLLOW) == 0 ||
	    varve_trash_each(s->trash_fd, is_dropped, &bucket) != 0)
		return 0;
	return mkdirat(s->open_fd, bucket, 0700) < 0 ? -errno : 0;
}

/* A crash came between the record and the hard links. */
static void remake_links(struct varve_store *s)
{
	struct varve_bucket *b;

	if (s->kept.links_done)
		return;
	{
		guard(&s->ns);
		b = varve_bucket_find(s, s->kept.links_bucket);
	}
	for (size_t i = 0; b && i < s->kept.n; i++) {
		const struct varve_range *e = &s->kept.list[i];
		int r;

		if (strcmp(e->bucket, b->name) != 0 || has_newer(s, e))
			continue;
		r = varve_carry_remake(s, b, e);
		if (r < 0 && r != -ENODATA)
			varve_error("recovery: '%s' of bucket '%s' can't be linked again: %s; what was written "
				    "to it stays in the bucket before", e->path, b->name, strerror(-r));
	}
}

static int count_orphans(struct varve_store *s)
{
	unsigned n = 0;

	guard(&s->ns);
	for (uint32_t i = 0; i < s->n_buckets; i++)
		for (struct varve_node *f = s->buckets[i]->written; f; f = f->next_written)
			n += f->native && f->native->orphan;
	if (n)
		varve_info("recovery: descriptors that outlived the daemon still write to %u files", n);
	return 0;
}

/* Who outlived the daemon may still finish the line that he is at: its bucket has the grace that a boundary gives. */
static void give_grace(struct varve_store *s)
{
	guard(&s->ns);
	const int64_t now = varve_believed_now(s);

	for (struct varve_node *f = s->ranged; f; f = f->native->next_ranged) {
		const struct varve_node *newer = f->native->after;
		struct varve_bucket *b = f->bucket;
		bool pending = false;

		if (f->native->end && b->state == VARVE_BUCKET_CLOSING)
			(void)varve_mark_at(f->native->end, &pending);
		if (pending && newer && varve_native_is_written(newer))
			b->grace_end_ns = now + varve_policy_grace(&s->policy, b->end_ns - b->start_ns);
	}
}

int varve_recover_carried(struct varve_store *s, struct varve_err *err)
{
	int r = 0;

	remake_links(s);
	(void)count_orphans(s);
	{
		guard(&s->mutate);
		for (uint32_t i = 0; i < s->n_buckets; i++)
			if (s->buckets[i]->state == VARVE_BUCKET_CLOSING)
				varve_boundary_settle(s, s->buckets[i]);
		/* Only then: what is not in the record by now is not asked for any more. */
		r = varve_carry_join(s);
		s->ranges_wanted++;
		if (r == 0)
			r = varve_carry_finish(s, true);
	}
	if (r < 0)
		return varve_err_wrap(err, r, "carried parts");
	give_grace(s);
	return recover_leftovers(s, err);
}
