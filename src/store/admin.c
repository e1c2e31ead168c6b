/* What the control socket asks of a running store, but drops and holds (drop.c). */
#include "store/core.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "store/content.h"
#include "store/entry.h"
#include "store/native.h"

static void count_tree(void *ctx, struct varve_node *n)
{
	struct varve_bucket_status *b = ctx;

	if (n->kind == VARVE_KIND_FILE && n->has_part && varve_dated_visible(n)) {
		b->files++;
		b->bytes += varve_content_guess(n);
	} else if (n->kind == VARVE_KIND_DDIR) {
		varve_node_each(n, count_tree, ctx);
	}
}

static void fill_bucket(struct varve_store *s, struct varve_bucket *b, struct varve_bucket_status *ret)
{
	*ret = (struct varve_bucket_status){.state = b->state, .held = b->held, .damaged = b->damaged,
					    .start_ns = b->start_ns, .end_ns = b->end_ns,
					    .goes_ns = INT64_MAX};
	(void)snprintf(ret->name, sizeof(ret->name), "%s", b->name);
	(void)snprintf(ret->class_name, sizeof(ret->class_name), "%s",
		       b->n_tabs ? b->tabs[0].at.class_name : s->places[0].class_name);
	if (b->root) {
		varve_node_each(b->root, count_tree, ret);
		ret->allocated = atomic_load(&b->allocated);
		return;
	}
	ret->files = b->files;
	ret->bytes = b->bytes;
	ret->allocated = varve_bucket_allocated(b);
}

/* Sealed buckets that came without counts (made by hand): from their indexes. */
static void count_sealed(struct varve_store *s, struct varve_bucket *b,
			 struct varve_bucket_status *ret)
{
	ret->files = ret->bytes = 0;
	(void)varve_sealed_ready(s, b);
	for (uint32_t t = 0; t < b->n_tabs; t++) {
		struct varve_segment_params about;
		struct varve_segment_totals totals;
		struct varve_segment *seg;

		if (varve_sealed_segment(s, b, t, &seg) < 0)
			continue;
		varve_index_about(varve_segment_index(seg), &about, &totals);
		ret->files += totals.files;
		ret->bytes += totals.content_bytes;
		varve_segment_unref(seg);
	}
	guard(&s->ns);
	ret->damaged = b->damaged;
	if (!b->damaged) {
		b->files = ret->files;
		b->bytes = ret->bytes;
	}
}

static const char *clock_word(enum varve_time_state state)
{
	static const char *const words[] = {"good", "behind", "untrusted"};

	return words[state];
}

int varve_store_status(struct varve_store *s, struct varve_status *ret)
{
	struct varve_bucket **list;
	struct varve_cache_stats cs;

	*ret = (struct varve_status){.n_buckets = 0};
	{
		guard(&s->ns);
		list = malloc((s->n_buckets + 1) * sizeof(struct varve_bucket *));
		ret->buckets = calloc(s->n_buckets + 1, sizeof(*ret->buckets));
		if (!list || !ret->buckets) {
			free(list);
			free(ret->buckets);
			return -ENOMEM;
		}
		ret->now_ns = varve_believed_now(s);
		ret->wall_ns = varve_clock_realtime(s->clock);
		ret->clock = clock_word(s->time.state);
		ret->next_boundary_ns = s->current->end_ns;
		for (uint32_t i = 0; i < s->n_buckets; i++) {
			list[i] = varve_bucket_ref(s->buckets[i]);
			fill_bucket(s, list[i], &ret->buckets[i]);
			ret->store_bytes += ret->buckets[i].allocated;
		}
		ret->n_buckets = s->n_buckets;
		ret->trash_buckets = s->n_dropped;
	}
	for (unsigned i = 0; i < ret->n_buckets; i++) {
		if (ret->buckets[i].state == VARVE_BUCKET_SEALED &&
		    ret->buckets[i].files == UINT64_MAX)
			count_sealed(s, list[i], &ret->buckets[i]);
		guard(&s->ns);
		varve_bucket_unref(s, list[i]);
	}
	free(list);
	varve_length_format(&s->policy.bucket, ret->bucket_length, sizeof(ret->bucket_length));
	varve_store_mode(s, ret->mode, sizeof(ret->mode));
	ret->trash_bytes = atomic_load(&s->trash_allocated);
	varve_cache_stats(s->cache, &cs);
	ret->faults = atomic_load(&s->faults) + cs.bad;
	ret->cache_bytes = cs.bytes;
	ret->cache_hits = cs.hits;
	ret->cache_misses = cs.misses;
	varve_retention_show(s, ret);
	return 0;
}

void varve_status_done(struct varve_status *st)
{
	free(st->buckets);
	st->buckets = NULL;
	st->n_buckets = 0;
}

/* -- seal -- */

/* Marks what is to be sealed; how many. ns held. */
static int hurry(struct varve_store *s, const char *bucket, struct varve_err *err)
{
	struct varve_bucket *b = bucket ? varve_bucket_find(s, bucket) : NULL;
	int n = 0;

	if (bucket && !b)
		return varve_err_set(err, -ENOENT, "there is no bucket '%s'; 'varve status' lists them",
				     bucket);
	if (b == s->current && b)
		return varve_err_set(err, -EBUSY, "bucket '%s' is the open one: it is sealed after its "
				     "window has passed", bucket);
	for (uint32_t i = 0; i < s->n_buckets; i++) {
		struct varve_bucket *c = s->buckets[i];

		if (c->state != VARVE_BUCKET_CLOSING || (b && c != b))
			continue;
		c->hurry = true;
		c->seal_failed = false;
		c->retry_ns = 0;
		n++;
	}
	(void)pthread_cond_signal(&s->wake_sealer);
	return n;
}

static bool any_hurry(struct varve_store *s, bool *ret_failed)
{
	bool any = false;

	for (uint32_t i = 0; i < s->n_buckets; i++) {
		struct varve_bucket *c = s->buckets[i];

		if (c->state != VARVE_BUCKET_CLOSING || !c->hurry)
			continue;
		any = true;
		*ret_failed = *ret_failed || c->seal_failed;
	}
	return any;
}

int varve_store_seal(struct varve_store *s, const char *bucket, int64_t timeout_ns,
		     struct varve_err *err)
{
	struct timespec until;
	bool failed = false;
	int r;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(timeout_ns / VARVE_NS_PER_S);
	until.tv_nsec += (long)(timeout_ns % VARVE_NS_PER_S);
	if (until.tv_nsec >= VARVE_NS_PER_S) {
		until.tv_sec++;
		until.tv_nsec -= (long)VARVE_NS_PER_S;
	}
	guard(&s->ns);
	r = hurry(s, bucket, err);
	if (r < 0)
		return r;
	while (any_hurry(s, &failed)) {
		if (failed)
			return varve_err_set(err, -EIO, "sealing failed; the daemon's log says why, and it "
					     "is tried again");
		if (s->stopping)
			return varve_err_set(err, -ECANCELED, "the daemon is ending");
		if (pthread_cond_timedwait(&s->sealed_one, &s->ns, &until) == ETIMEDOUT)
			return varve_err_set(err, -ETIMEDOUT, "sealing is not done yet and goes on");
	}
	return 0;
}

/* -- clock -- */

int varve_store_clock_accept(struct varve_store *s, const struct varve_caller *who,
			     struct varve_err *err)
{
	struct varve_audit_line line = {.event = "clock-accept", .buckets = -1, .files = -1, .bytes = -1,
					.segment_bytes = -1, .uid = who->uid, .pid = who->pid};
	int r;

	{
		guard(&s->ns);
		varve_timekeeper_accept(&s->time, varve_clock_realtime(s->clock),
					varve_clock_boottime(s->clock));
		line.time_ns = varve_believed_now(s);
		(void)pthread_cond_signal(&s->wake_keeper);
	}
	r = varve_audit_append(s->audit, &line);
	if (r < 0)
		return varve_err_set(err, r, "the clock is accepted, but the audit line can't be written: "
				     "%s", strerror(-r));
	varve_info("the clock is accepted as it is");
	return 0;
}
