/*
 * The command line of varvefs, also as mount(8) gives it to its helpers, taken apart into what is
 * the store's, what is FUSE's and what is nobody's. Pure.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct varve_options {
	bool help, version;
	bool foreground;
	bool debug; /* print what goes on; in the foreground */
	bool fake;  /* mount -f: do everything but the mount */
	bool allow_other, allow_root, auto_unmount, io_uring;
	unsigned max_read;              /* bytes; 0: as the kernel likes */
	const char *store, *mountpoint; /* of argv */
	/* What is not FUSE's and not to be dropped: to be checked with varve_policy_set. Values may
	 * be NULL. */
	char **names, **values;
	unsigned n_options;
	/* -- private -- */
	char *fsname, *subtype; /* NULL: ours */
	char *passed;           /* for libfuse: "ro,noatime", escaped; NULL: nothing */
};

/* program is what argv[0] is called by: a name that starts with "mount." is mount(8)'s helper,
 * whose -f means another thing. -EINVAL: misused; err says how. argv must outlive the result, which
 * the caller gives back with varve_options_done, also after an error. */
int varve_options_parse(int argc, char *const argv[], struct varve_options *ret,
			struct varve_err *err) varve_must_check;
void varve_options_done(struct varve_options *o);

/* libfuse's -o argument, malloc'ed; NULL: no memory. Every mount checks permissions in the kernel
 * and honours neither set-uid files nor devices; root's are for all users. */
char *varve_options_fuse(const struct varve_options *o, const char *store, bool root);

struct varve_fuse_option_help {
	const char *name, *help;
};
/* Those of FUSE's options that people want, for --help; ends with a NULL name. */
const struct varve_fuse_option_help *varve_options_fuse_help(void);
