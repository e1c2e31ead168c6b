/*
 * What a store and a mount are told: options and varve.conf, parsed and validated in one place.
 * Pure but for looking up the names of users and groups; files are read and written by the caller.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "format/names.h"

#define VARVE_CLASS_NAME_MAX 64

#define VARVE_GRACE_AUTO INT64_C(-1)

struct varve_policy {
	struct varve_length bucket; /* default 1d */
	int64_t grace_ns;           /* VARVE_GRACE_AUTO: see varve_policy_grace */
	int64_t keep_ns;            /* 0: no limit */
	int64_t keep_min_ns;        /* 0: no floor */
	uint64_t max_size;          /* bytes; 0: no limit */
	uint32_t max_buckets;       /* 0: no limit */
	double min_free_fraction;   /* default 0.05 */
	uint64_t min_free_bytes;    /* one of the two is 0 */
	int64_t undrop_ns;          /* default 10 min */
	int64_t clock_trust_ns;     /* default 1 h */
	int seal_level;             /* 1 to 19, default 9 */
	uint32_t seal_threads;      /* 0: one per core */
	uint64_t cache_bytes;       /* default 64 MiB; at least 16 MiB */
	bool worm;
	bool rmdir_posix; /* rmdir=posix; the default is rmdir=drop */
	bool passthrough; /* default yes */
	bool cut_byte; /* cut=byte; the default is cut=line */
	uid_t uid; /* of current/ and .staging/; (uid_t)-1: as they are, at first the daemon's */
	gid_t gid;
	mode_t mode; /* of current/ and .staging/; (mode_t)-1: as they are, at first 0755 */
};

/* All defaults. */
void varve_policy_init(struct varve_policy *p);

/* Sets one option by its name (`bucket grace keep keep-min max-size max-buckets min-free undrop
 * clock-trust seal-level seal-threads cache worm rmdir uid gid mode passthrough cut`); value NULL for
 * an option that stands alone (worm, passthrough). -ENOENT: no such option of ours (err says so,
 * and names the nearest); -EINVAL: a bad value; err names the option, the value and gives an
 * example. On failure p is untouched. */
int varve_policy_set(struct varve_policy *p, const char *name, const char *value,
		     struct varve_err *err) varve_must_check;

/* Applies varve.conf's text: `name = value` lines, comments from a '#' at the start or behind a
 * blank, blank lines, and the sections [store] (as without one) and [class default] (only keep,
 * keep-min, max-size, max-buckets). -EINVAL: err names the line. On failure p is untouched. */
int varve_policy_parse_conf(struct varve_policy *p, const char *text, size_t len,
			    struct varve_err *err) varve_must_check;

/* The text of a fresh varve.conf: what was set (differs from the defaults) as lines, every other
 * option as a comment with its default, each under one line of what it does.
 * malloc'ed; NULL: no memory. */
char *varve_policy_conf_text(const struct varve_policy *p);

/* Checks that need more than one option (keep >= keep-min, ...); when all are set. -EINVAL. */
int varve_policy_check(const struct varve_policy *p, struct varve_err *err) varve_must_check;

/* The grace for a bucket of this window length: as set; automatic: a tenth of the length, at least
 * 500 ms and at most 60 s; never more than the length. */
int64_t varve_policy_grace(const struct varve_policy *p, int64_t length_ns);

/* The options that varve_policy_set knows, for --help and for tests; ends with a NULL name. */
struct varve_option_help {
	const char *name;
	const char *value; /* what to write in its place ("SIZE"); NULL: stands alone */
	const char *help;
	const char *example; /* of the value ("200G"); of an option that stands alone: "yes" */
};
const struct varve_option_help *varve_policy_help(void);
