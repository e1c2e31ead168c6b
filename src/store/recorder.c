/*
 * The recorder: the one thread that writes what must be durable some time after a boundary or a change: the clock's mark,
 * the range record, hard links of carried parts, the numbers that the next window will need, tombstones, what is
 * known of sealed buckets. Whoever
 * watches the clock must not wait for the disk: the keeper only says when there is something.
 */
#include "store/core.h"

#include <string.h>

#include "base/log.h"
#include "store/carry.h"
#include "store/known.h"
#include "store/native.h"

/* A restart after power loss must not find the mark too old to be of use. */
#define KEEP_MARK_EVERY_NS (INT64_C(60) * VARVE_NS_PER_S)

void varve_recorder_wake(struct varve_store *s)
{
	s->record = true;
	(void)pthread_cond_signal(&s->wake_recorder);
}

bool varve_recorder_is_due(struct varve_store *s, int64_t now_ns)
{
	return now_ns - atomic_load(&s->kept_mark_ns) > KEEP_MARK_EVERY_NS || atomic_load(&s->names_dirty) ||
	       atomic_load(&s->known_changes) > VARVE_KNOWN_CHANGES_MAX || s->ranges_wanted != atomic_load(&s->ranges_saved) || s->n_to_link || s->to_close ||
	       !s->next_window.there || s->next_window.n < s->next_serial + VARVE_NEW_STREAMS / 3;
}

static void sync_tombs(struct varve_store *s)
{
	struct varve_bucket *b;

	if (!atomic_exchange(&s->names_dirty, false))
		return;
	for (uint32_t i = 0;; i++) {
		struct varve_tombs *t;

		{
			guard(&s->ns);
			if (i >= s->n_buckets)
				return;
			b = s->buckets[i];
			if (b->state != VARVE_BUCKET_SEALED || !b->tombs)
				continue;
			(void)varve_bucket_ref(b);
		}
		if (varve_sealed_tombs(s, b, &t) == 0 && varve_tombs_sync(t) < 0)
			varve_error("tombstones of bucket '%s' can't be made durable", b->name);
		guard(&s->ns);
		varve_bucket_unref(s, b);
	}
}

static void record(struct varve_store *s)
{
	bool clock;
	int r;

	{
		guard(&s->ns);
		clock = varve_believed_now(s) - atomic_load(&s->kept_mark_ns) > KEEP_MARK_EVERY_NS ||
			s->current->start_ns > atomic_load(&s->kept_mark_ns);
	}
	/* First of all what an fsync waits for. */
	(void)varve_carry_finish(s, false);
	r = clock ? varve_clock_keep(s) : 0;
	if (r < 0)
		varve_error("the clock's high-water mark can't be written to 'meta/clock': %s",
			    strerror(-r));
	r = varve_boundary_prepare(s);
	if (r < 0)
		varve_error("file numbers can't be reserved in 'meta/ino': %s", strerror(-r));
	sync_tombs(s);
	if (atomic_load(&s->known_changes) > VARVE_KNOWN_CHANGES_MAX)
		varve_known_keep(s);
	varve_native_cool_old(s, false);
	if (clock)
		varve_native_ask_orphans(s);
	varve_native_close(s);
}

void *varve_recorder_main(void *arg)
{
	struct varve_store *s = arg;

	for (;;) {
		{
			guard(&s->ns);
			while (!s->record && !s->stopping)
				(void)pthread_cond_wait(&s->wake_recorder, &s->ns);
			if (s->stopping)
				return NULL;
			s->record = false;
		}
		record(s);
	}
}
