/*
 * Bucket lengths, boundaries and names. Always UTC. Pure.
 * A length is 1mo, 1w (ISO week, Monday) or any whole number of seconds that divides a day; windows
 * shorter than a day start at multiples of the length since midnight.
 * Names sort in time order among one length, and the length alone decides their form: 2026-11
 * (month), 2026-W49 (ISO week), 2026-11-30 (day), 2026-11-30T14Z (multiples of 1 h),
 * 2026-11-30T1415Z (other multiples of 1 min), 2026-11-30T141530Z (all else).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define VARVE_BUCKET_NAME_MAX 32 /* bytes with the NUL */

enum varve_unit { VARVE_UNIT_SECONDS, VARVE_UNIT_WEEK, VARVE_UNIT_MONTH };

struct varve_length {
	enum varve_unit unit;
	uint32_t seconds; /* VARVE_UNIT_SECONDS only: divides 86400 */
};

/* A window: [start, end), and the bucket's name. */
struct varve_window {
	int64_t start_ns;
	int64_t end_ns;
	char name[VARVE_BUCKET_NAME_MAX];
};

/* Parses `1s 10s 1m 15m 1h 6h 1d 1w 1mo` and the like. -EINVAL with an example in err. */
int varve_length_parse(const char *text, struct varve_length *ret,
		       struct varve_err *err) varve_must_check;
/* The shortest text that parses to it again (5400 s is "90m", 86400 s is "1d"). */
void varve_length_format(const struct varve_length *len, char *buf, size_t size);
/* The length of its shortest window (a month's is 28 days), in ns. */
int64_t varve_length_min_ns(const struct varve_length *len);

/* The window of this length that holds the instant now_ns. From 1970 up to what int64_t holds in ns
 * (April 2262): -ERANGE when the instant is before or the window's end after that; -EINVAL for a
 * length that varve_length_parse could not have given. */
int varve_window_at(const struct varve_length *len, int64_t now_ns,
		    struct varve_window *ret) varve_must_check;

/* Strict: only a name that varve_window_at could have written parses; the window's start and, as
 * far as the name tells, its end. A name does not tell the length of a sub-day bucket: the end is
 * that of the shortest it can be (1 h, 1 min, 1 s); of a day, week or month it is exact. -EINVAL
 * for anything else. */
int varve_name_parse(const char *name, int64_t *ret_start_ns,
		     int64_t *ret_min_end_ns) varve_must_check;
