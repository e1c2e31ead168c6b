/* The mount option auto_unmount: a process of its own that outlives the daemon by a moment. */
#pragma once

#include <sys/types.h>

#include "base/err.h"

/* Starts a process that waits for this one's end, however it comes, and then detaches the mount
 * that is topmost at mountpoint, if it still is `dev`. It holds nothing of ours open. Before the
 * first thread starts. The descriptor is to be kept until the end, and to be inherited by nobody.
 */
int varve_watcher_start(const char *mountpoint, dev_t dev, int *ret_fd,
			struct varve_err *err) varve_must_check;
