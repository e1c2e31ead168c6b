/*
 * What time the store believes it is. design.md section 3, "Time". Pure: readings are handed in.
 * Believed time never goes backwards and is frozen while a forward jump is not trusted.
 * Not locked: the caller sees to it that one thread at a time is in here.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define VARVE_MOUNT_JUMP_NS (INT64_C(90) * 86400 * VARVE_NS_PER_S)

enum varve_time_state {
	VARVE_TIME_GOOD,   /* believed = wall clock */
	VARVE_TIME_BEHIND, /* the wall clock is before the high-water mark: believed = the mark */
	VARVE_TIME_UNTRUSTED, /* it jumped ahead and is not believed yet: believed stays */
};

const char *varve_time_state_name(enum varve_time_state state); /* "good", "behind", "untrusted" */

struct varve_timekeeper {
	int64_t believed_ns;	  /* high-water mark */
	int64_t believed_boot_ns; /* boot time when the wall clock last bore it out, or at mount */
	int64_t slack_ns;	  /* what may lie between the mark and the first good reading */
	int64_t last_wall_ns;	  /* the latest reading, believed or not */
	int64_t last_boot_ns;
	int64_t jump_boot_ns; /* UNTRUSTED only: since when, in boot time, it went on evenly */
	int64_t trust_ns;     /* clock-trust; may be changed at any time */
	enum varve_time_state state;
};

/* At mount: mark_ns is the persisted high-water mark (0: a new store: the wall clock is believed).
 * More than VARVE_MOUNT_JUMP_NS ahead of the mark is not believed unless synchronised. */
void varve_timekeeper_start(struct varve_timekeeper *tk, int64_t mark_ns, int64_t trust_ns,
			    int64_t wall_ns, int64_t boot_ns, bool synchronised);

/* Takes a reading; window_ns is the length of the current bucket. Returns the believed time.
 * A wall clock that is more than one window ahead of what was last believed and the boot time
 * passed since is untrusted (until the first good reading after a mount: more than
 * VARVE_MOUNT_JUMP_NS, since nobody knows how long no daemon ran). It is believed when it has gone
 * on evenly from there (each reading within one window of what boot time bears out) for trust_ns,
 * or is synchronised, or by varve_timekeeper_accept. A clock that steps back to what is believable
 * is good again at once. */
int64_t varve_timekeeper_read(struct varve_timekeeper *tk, int64_t window_ns, int64_t wall_ns,
			      int64_t boot_ns, bool synchronised);

/* `varve clock accept`: the wall clock as it is now is believed (if it is ahead). */
void varve_timekeeper_accept(struct varve_timekeeper *tk, int64_t wall_ns, int64_t boot_ns);
