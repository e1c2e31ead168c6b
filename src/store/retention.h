/*
 * Which buckets policy takes next, when and why. Pure: the store hands in what there is.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/policy.h"

enum varve_drop_cause {
	VARVE_CAUSE_NONE,
	VARVE_CAUSE_KEEP,
	VARVE_CAUSE_MAX_SIZE,
	VARVE_CAUSE_MAX_BUCKETS,
	VARVE_CAUSE_MIN_FREE,
	VARVE_CAUSE_HAND,
	VARVE_CAUSE_SEALED, /* in the trash only: the parts of a bucket that stands sealed */
};

const char *varve_cause_name(enum varve_drop_cause cause); /* "keep", "max-size", ..., "hand" */

enum varve_bucket_state {
	VARVE_BUCKET_OPEN,
	VARVE_BUCKET_CLOSING,
	VARVE_BUCKET_SEALED,
	VARVE_BUCKET_DROPPED,
};

const char *varve_bucket_state_name(enum varve_bucket_state state); /* "open", ... */

/* One bucket (of one class) as retention sees it. */
struct varve_retention_item {
	const char *name;
	int64_t start_ns;
	int64_t end_ns;
	enum varve_bucket_state state;
	bool held;	    /* on hold: exempt */
	uint64_t allocated; /* bytes */
	/* -- results -- */
	enum varve_drop_cause cause; /* why it goes now; NONE: it stays, for now */
	int64_t when_ns; /* believed time at which it goes: now or before when cause is not NONE;
			  * else when `keep` will take it (INT64_MAX: not by age; not after now when
			  * only untrusted time is in the way) */
};

struct varve_retention_input {
	int64_t now_ns;	       /* believed time */
	bool time_trusted;     /* false: nothing goes by keep or max-buckets */
	uint64_t meta_bytes;   /* allocated elsewhere in the store: counted against max-size */
	uint64_t volume_bytes; /* of the backing filesystem */
	uint64_t free_bytes;   /* available to the daemon, trash counted as free */
};

/* Works out cause and when for each of n items, which are sorted oldest first. The rules are asked
 * in the order keep, max-size, max-buckets, min-free, each about what those before it left; a bucket
 * that several would take goes by the first.
 * - keep takes every bucket whose end is at least so long ago.
 * - max-size, max-buckets and min-free count everything (the open bucket, what is held, for max-size
 *   the metadata too) but take only as much as brings the store within their limit: sealed buckets
 *   oldest first, and closing ones, oldest first, only when no sealed one is left to take.
 * Never taken: the open bucket, what is dropped already, what is held, and what ended less than
 * keep_min ago. Returns how many go now. O(n). */
size_t varve_retention_plan(const struct varve_policy *policy,
			    const struct varve_retention_input *in,
			    struct varve_retention_item *items, size_t n);
