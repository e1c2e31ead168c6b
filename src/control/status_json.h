/* The store's status as one JSON document: `varve status --json` and .varve/status.json. Pure. */
#pragma once

#include "store/store.h"

/* malloc'ed text, ending in a newline, into *ret. Instants are given twice: RFC 3339 (UTC) and,
 * with
 * "_ns" behind the key, ns since 1970. Bytes are bytes. What does not apply is left out. -ENOMEM.
 */
int varve_status_json(const struct varve_status *status, char **ret) varve_must_check;
