/*
 * Going into the background so that the one who asked waits until the work is really being done,
 * and gets the failure when it is not.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Forks. The parent stays in here until the child calls varve_daemon_ready or ends, and then exits:
 * with 0, or with the child's status (1 if it was killed). The child returns with a descriptor for
 * varve_daemon_ready; it is the leader of a new session, its stdin, stdout and stderr still what
 * they were. Before the first thread starts. */
int varve_daemon_fork(int *ret_ready_fd, struct varve_err *err) varve_must_check;

/* Lets the parent go, and tells a service manager (NOTIFY_SOCKET) that we are ready. ready_fd -1:
 * in the foreground, no parent waits; else stdin, stdout and stderr become /dev/null. */
void varve_daemon_ready(int ready_fd);

/* Tells the service manager that we are about to end. */
void varve_daemon_stopping(void);

/* What the caller left open above stderr is closed: it may well be a file of a mount that this
 * daemon replaces. Whichever of stdin, stdout and stderr is closed becomes /dev/null, before
 * something else gets its number. First of all. */
void varve_daemon_clean_fds(void);

/* Gives up CAP_SYS_RESOURCE, so that writers can't eat the backing filesystem's reserve by way of the
 * daemon. After the limits were raised. */
void varve_daemon_spare_reserve(void);

/* RLIMIT_NOFILE up to what is allowed. */
void varve_daemon_raise_nofile(void);
