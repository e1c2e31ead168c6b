/* From what was given as STORE to the store's folder. */
#pragma once

#include "base/err.h"

/* `given` is a store's folder, or the mountpoint of one that is mounted (looked up in
 * /proc/self/mountinfo, so that it works on a mount whose daemon is dead, too). *ret is malloc'ed.
 * -ENOENT and others, with err saying what to give instead. */
int varve_cli_resolve(const char *given, char **ret, struct varve_err *err) varve_must_check;

/* Where the store in this folder is mounted, malloc'ed; NULL: nowhere that is known. */
char *varve_cli_mountpoint(const char *store);
