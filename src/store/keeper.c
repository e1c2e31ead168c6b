/*
 * The keeper: the one thread that watches the clock. It wakes at the next boundary or end of a
 * grace, and once a second for retention; a clock that is set is noticed within that second.
 */
#include "store/core.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/log.h"
#include "store/carry.h"

/* While the volume is near to run short it is looked at more often. */
#define LOOK_AGAIN_NS (VARVE_NS_PER_S / 10)

static void wait_ns(struct varve_store *s, int64_t ns)
{
	struct timespec until;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(ns / VARVE_NS_PER_S);
	until.tv_nsec += (long)(ns % VARVE_NS_PER_S);
	if (until.tv_nsec >= VARVE_NS_PER_S) {
		until.tv_sec++;
		until.tv_nsec -= (long)VARVE_NS_PER_S;
	}
	if (ns > 0 && !s->stopping)
		(void)pthread_cond_timedwait(&s->wake_keeper, &s->ns, &until);
}

/* ns until something is due, at most a second; ns held. */
static int64_t next_due(struct varve_store *s, int64_t now)
{
	int64_t due = varve_clock_step_ns();

	if (s->room_asked != s->room_looked)
		return 0;
	if (s->near_short && due > LOOK_AGAIN_NS)
		due = LOOK_AGAIN_NS;

	if (s->time.state == VARVE_TIME_GOOD && s->current->end_ns - now < due)
		due = s->current->end_ns - now;
	for (uint32_t i = s->n_buckets; i-- > 0;) {
		struct varve_bucket *b = s->buckets[i];

		if (b->state == VARVE_BUCKET_SEALED)
			continue;
		if (b->state == VARVE_BUCKET_CLOSING && !b->shut && b->grace_end_ns - now < due)
			due = b->grace_end_ns - now;
	}
	return due < 1000000 ? 1000000 : due;
}

static void log_clock(struct varve_store *s, enum varve_time_state before,
		      enum varve_time_state now)
{
	if (now == before)
		return;
	if (now == VARVE_TIME_BEHIND)
		varve_warning("the clock was set back: bucket '%s' stays open until it has caught up",
			      s->current->name);
	else if (now == VARVE_TIME_UNTRUSTED)
		varve_warning("the clock jumped ahead and is not believed yet: nothing is cut and nothing "
			      "expires for now; 'varve clock accept' ends that");
	else
		varve_info("the clock is good again");
}

/* Closing buckets whose grace is over go to the sealer; ns held. */
static bool any_due(struct varve_store *s, int64_t now)
{
	for (uint32_t i = 0; i < s->n_buckets; i++) {
		struct varve_bucket *b = s->buckets[i];

		if (b->state == VARVE_BUCKET_CLOSING && (b->hurry || b->grace_end_ns <= now))
			return true;
	}
	return false;
}

static void tick(struct varve_store *s)
{
	enum varve_time_state before, after;
	int64_t now;
	bool over, ready, seal;

	{
		guard(&s->ns);
		before = s->time.state;
		now = varve_believed_now(s);
		after = s->time.state;
		over = now >= s->current->end_ns;
		ready = s->next_window.there;
	}
	log_clock(s, before, after);
	/* The marks come first and on time: whoever changes names may have to wait for the disk, and the boundary for
	 * them. (Only this thread changes which bucket is current.) */
	if (over && ready)
		(void)varve_carry_mark(s, s->current);
	if (over)
		varve_pause_point("boundary.marked");
	if (over) {
		guard(&s->mutate);
		int r = varve_boundary_cut(s, now);

		if (r < 0)
			varve_error("no new bucket can be opened after '%s': %s; it stays open",
				    s->current->name, strerror(-r));
	}
	{
		guard(&s->ns);
		seal = any_due(s, now);
		if (seal)
			(void)pthread_cond_signal(&s->wake_sealer);
		if (over || varve_recorder_is_due(s, now))
			varve_recorder_wake(s);
	}
}

void *varve_keeper_main(void *arg)
{
	struct varve_store *s = arg;
	int64_t checked = 0;

	/* A boundary must come on time, however busy the machine is; it needs little. */
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), -10);

	for (;;) {
		uint64_t asked;
		int64_t boot;

		{
			guard(&s->ns);
			if (s->stopping)
				return NULL;
			wait_ns(s, next_due(s, varve_believed_now(s)));
			if (s->stopping)
				return NULL;
			asked = s->room_asked;
		}
		tick(s);
		boot = varve_clock_boottime(s->clock);
		if (boot - checked >= (s->near_short ? LOOK_AGAIN_NS : VARVE_NS_PER_S) * 9 / 10 ||
		    asked != s->room_looked) {
			checked = boot;
			(void)varve_retention_step(s);
			guard(&s->ns);
			s->room_looked = asked;
			/* Not for nothing: an idle daemon's only wake-up is this one. */
			if (atomic_load(&s->trash_allocated) || varve_carry_waits(s))
				(void)pthread_cond_signal(&s->wake_reaper);
			(void)pthread_cond_broadcast(&s->made_room);
		}
	}
}
