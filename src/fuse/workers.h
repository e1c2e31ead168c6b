/*
 * Threads for what may take long, in classes that do not wait for each other: each has its own
 * queue, first come first served, and its own bound of threads. A thread is begun when work comes
 * and none is idle, up to the bound, and ends after VARVE_WORKERS_LINGER_MS without work: idle,
 * there is none.
 *
 * The queues have no bound of their own: what is in them is a small record each, of somebody who
 * waits for the answer.
 */
#pragma once

#include <stdbool.h>

#include "base/cleanup.h"

#define VARVE_WORKERS_LINGER_MS 10000

enum varve_work_class {
	VARVE_WORK_SYNC,   /* waits for the disk: fsync */
	VARVE_WORK_READ,   /* takes the processor: decompression; its threads give way to others */
	VARVE_WORK_LOOK,   /* opens and lists, which may have to read an index */
	VARVE_WORK_CHANGE, /* changes names and attributes, which mostly wait for each other */
	VARVE_WORK_CLASSES,
};

/* One piece of work; part of its owner's memory from submit until run or drop is called, once. */
struct varve_work {
	void (*run)(struct varve_work *work);
	void (*drop)(struct varve_work *work); /* instead of run, at the end */
	struct varve_work *next;
};

struct varve_workers;

/* bounds: threads of each class, 1 to 32. Starts none. 0 or -ENOMEM. */
int varve_workers_new(const unsigned bounds[VARVE_WORK_CLASSES],
		      struct varve_workers **ret) varve_must_check;
/* How long a thread stays without work, instead of VARVE_WORKERS_LINGER_MS; before the first use.
 */
void varve_workers_set_linger(struct varve_workers *w, unsigned ms);

/* Queues work; false, and nothing is done, when the end has come or no thread can be had. From any
 * thread. */
bool varve_workers_submit(struct varve_workers *w, enum varve_work_class class_,
			  struct varve_work *work) varve_must_check;

/* How many threads of a class there are now. */
unsigned varve_workers_running(struct varve_workers *w, enum varve_work_class class_);

/* The end: what is being done is waited for, what is queued is dropped; then all threads have
 * ended. Idempotent. */
void varve_workers_stop(struct varve_workers *w);

void varve_workers_free(struct varve_workers *w); /* after stop; NULL is fine */
