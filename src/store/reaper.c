/* The reaper: one thread that empties the trash, at the lowest I/O priority. */
#include "store/core.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/log.h"
#include "store/carry.h"
#include "store/trash.h"

struct reap {
	struct varve_store *s;
	int64_t now_ns;
	bool purge;
	bool more; /* something is left that can go already */
	bool any;  /* something is left */
	bool changed;
};

static bool still_read(struct varve_store *s, const char *bucket)
{
	/* Whoever reads a dropped bucket holds its segments: they are cut down only when nobody
	 * can. */
	guard(&s->ns);
	for (uint32_t i = 0; i < s->n_handles; i++) {
		struct varve_handle *h = s->handles[i];

		if (h && h->file && h->file->bucket && !strcmp(h->file->bucket->name, bucket))
			return true;
	}
	return false;
}

/* A bucket is gone for good: what memory kept so that it could come back, and its tombstones. */
static void forget_dropped(struct varve_store *s, const char *bucket, bool removed)
{
	struct varve_bucket *b;
	bool back;

	{
		guard(&s->ns);
		b = varve_dropped_take(s, bucket);
		if (b)
			varve_bucket_forget_tree(s, b);
		varve_bucket_unref(s, b);
		back = varve_bucket_find(s, bucket) != NULL;
	}
	if (removed && !back)
		varve_carry_forget(s, bucket, true);
	if (removed && !back && varve_tombs_remove(s->tombs_fd, bucket) < 0)
		varve_error("'meta/tombs/%s' can't be removed", bucket);
}

static int reap_one(void *ctx, const char *name, const struct varve_trash_name *parsed)
{
	struct reap *rp = ctx;
	struct varve_store *s = rp->s;
	bool parts = parsed->cause == VARVE_CAUSE_SEALED;
	int r;

	if (parsed->cause == VARVE_CAUSE_HAND && !rp->purge && !varve_trash_is_gone(name) &&
	    parsed->time_ns + s->policy.undrop_ns > rp->now_ns) {
		rp->any = true;
		return 0;
	}
	/* An undrop must not find half of what it renames; between two entries it has its turn. */
	guard(&s->trash);
	if (!parts)
		forget_dropped(s, parsed->bucket, false);
	r = varve_trash_remove(s->trash_fd, name, !parts && still_read(s, parsed->bucket),
			       VARVE_NS_PER_S / 5);
	rp->changed = true;
	if (r < 0) {
		rp->any = true;
		if (!s->reap_failed)
			varve_error("'trash/%s' can't be removed: %s; it is tried again", name,
				    strerror(-r));
		s->reap_failed = true;
		return 0;
	}
	s->reap_failed = false;
	if (r > 0)
		rp->more = true;
	else if (!parts)
		forget_dropped(s, parsed->bucket, true);
	return 0;
}

int varve_reaper_step(struct varve_store *s, bool *ret_more)
{
	struct reap rp = {.s = s, .purge = atomic_exchange(&s->purge, false)};
	uint64_t bytes = 0;
	int r;

	{
		guard(&s->ns);
		rp.now_ns = varve_believed_now(s);
	}
	varve_carry_punch(s, &rp.more);
	r = varve_trash_each(s->trash_fd, reap_one, &rp);
	/* Walking what waits to be undropped is only worth it when something has changed. */
	if (!rp.any && !rp.more)
		atomic_store(&s->trash_allocated, 0);
	else if ((rp.changed || !atomic_load(&s->trash_allocated)) &&
		 varve_tree_allocated(s->dirfd, "trash", &bytes) == 0)
		atomic_store(&s->trash_allocated, bytes);
	*ret_more = rp.more;
	guard(&s->ns);
	(void)pthread_cond_broadcast(&s->made_room);
	return r < 0 ? r : 0;
}

void *varve_reaper_main(void *arg)
{
	struct varve_store *s = arg;
	bool more = true;

	/* Best effort, of the lowest kind: others go first, but policy waits for the space. */
	(void)syscall(SYS_ioprio_set, 1, 0, (2 << 13) | 7);
	for (;;) {
		struct timespec until;
		bool waiting;

		{
			guard(&s->ns);
			waiting = atomic_load(&s->trash_allocated) > 0 || varve_carry_waits(s);
			(void)clock_gettime(CLOCK_MONOTONIC, &until);
			until.tv_sec += 1;
			if (!s->stopping && !more && !s->reap && !atomic_load(&s->purge)) {
				if (waiting)
					(void)pthread_cond_timedwait(&s->wake_reaper, &s->ns, &until);
				else
					(void)pthread_cond_wait(&s->wake_reaper, &s->ns);
			}
			if (s->stopping)
				return NULL;
			s->reap = false;
		}
		if (varve_reaper_step(s, &more) < 0)
			more = false;
	}
}
