/*
 * Marks: the offset in a part at which a boundary fell. It ends the older bucket's range of a carried part
 * and is the head of the newer's; both hold the one mark, counted.
 *
 * A boundary finds the part S bytes long. Where the byte before S ends a line (or cut=byte is set), the
 * mark is S. Otherwise the line may still be finished: the mark is just after the first newline at or
 * beyond S, VARVE_LINE_MAX beyond it at most, or wherever the part ends when the older bucket's grace does.
 * Until then it is pending: all there is belongs to the older bucket, and the newer one reads as empty.
 * An end that somebody has seen never moves back.
 *
 * Threads: any. A mark's own lock ("mark", a leaf) is held over the reading of at most VARVE_LINE_MAX
 * bytes of its part, that were written a moment ago.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define VARVE_LINE_MAX (64 * 1024) /* how far an unfinished line may go on into the older bucket */

struct varve_mark;

/* A mark at `at`; pending: the line that ends there is unfinished. NULL: no memory. */
struct varve_mark *varve_mark_new(uint64_t at, bool pending);
struct varve_mark *varve_mark_ref(struct varve_mark *m);
void varve_mark_unref(struct varve_mark *m); /* NULL is fine; the last frees */

/* Where the older bucket's range ends now, in the part that fd reads. *ret_pending (may be NULL): the
 * mark is still pending, so that this may grow. What can't be read counts as not there. */
uint64_t varve_mark_now(struct varve_mark *m, int fd, bool *ret_pending);

/* The grace is over: a pending mark is where the part ends now. fd -1: where it was last seen. */
void varve_mark_settle(struct varve_mark *m, int fd);

/* As it stands, without looking at the part: for the range record. */
uint64_t varve_mark_at(struct varve_mark *m, bool *ret_pending);
