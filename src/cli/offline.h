/* The status of a store that no daemon has mounted, worked out from its files. */
#pragma once

#include "base/err.h"

/* The same JSON document as the daemon gives (control/status_json.h), malloc'ed. Reads every index;
 * writes nothing. What only a daemon knows is left at 0. */
int varve_offline_status(const char *store, char **ret, struct varve_err *err) varve_must_check;
