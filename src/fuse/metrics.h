/* The store's status in Prometheus' text format (version 0.0.4). Pure. */
#pragma once

#include "store/store.h"

/* malloc'ed text into *ret. -ENOMEM. */
int varve_metrics_text(const struct varve_status *status, char **ret) varve_must_check;
