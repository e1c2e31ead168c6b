/*
 * The daemon's end of the control socket, STORE/control.sock: what `varve` talks to.
 * One thread accepts; each request is served by a thread of its own (a bounded number of them), so
 * that a `seal` that waits holds up no `status`. Only root and the store's owner are answered.
 */
#pragma once

#include "base/err.h"
#include "store/store.h"

struct varve_control;

/* Makes the socket (mode 0600; one that a dead daemon left is replaced) and starts the thread.
 * After the last fork; the store must outlive it. On failure the mount can go on without: err says
 * why. */
int varve_control_start(struct varve_store *store, struct varve_control **ret,
			struct varve_err *err) varve_must_check;

/* Removes the socket, ends all connections and waits for their threads. Before varve_store_close:
 * a request that waits in the store (a seal) is waited for. NULL is fine. */
void varve_control_stop(struct varve_control *c);
