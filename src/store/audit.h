/*
 * audit.jsonl: one JSON object a line for every seal, drop, expiry, undrop, hold and erasure.
 * Append-only; a torn last line is recognised and cut off at open. Threads: one lock inside
 * ("audit"), held over the append; no other lock is taken under it.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct varve_audit;

struct varve_audit_line {
	int64_t time_ns; /* believed time of the event */
	const char
		*event; /* "seal", "drop", "expire", "undrop", "hold", "unhold", "clock-accept" */
	const char *cause; /* "keep", "max-size", "hand", ...; NULL: left out */
	const char *bucket;
	const char *class_name; /* NULL: left out */
	int64_t cutoff_ns;      /* 0: left out; the instant before which policy takes */
	int64_t buckets, files, bytes, segment_bytes; /* -1: left out */
	int64_t uid, pid;                             /* -1: left out (policy) */
	const char *id; /* a transition's own name (for example its trash name): recovery writes a
			 * line anew unless one with this event and id is there; NULL: left out */
};

/* Opens or creates dirfd/name (0600). */
int varve_audit_open(int dirfd, const char *name, struct varve_audit **ret,
		     struct varve_err *err) varve_must_check;
void varve_audit_close(struct varve_audit *a);
/* Appends one line and makes it durable (fdatasync). On a full disk -ENOSPC and the file is as
 * before. */
int varve_audit_append(struct varve_audit *a, const struct varve_audit_line *line) varve_must_check;
/* Whether a line with this event and id is there. 1, 0 or -errno. Reads from the end, at most the
 * last 4 MiB. */
int varve_audit_has(struct varve_audit *a, const char *event, const char *id);
