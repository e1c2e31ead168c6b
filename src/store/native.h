/*
 * What the kernel writes to by itself (passthrough): which opens are answered with a backing number, and
 * how long it lives.
 *
 * The kernel's rule is that all opens of one of its inodes at a time agree: an inode that was opened once
 * with a backing number must be opened with that number until the last of those is closed. So it is decided
 * per node: where passthrough is on and the file's bytes begin where its part's do, the first open gets the
 * number and all share it; a write-only O_APPEND open writes by the kernel, all others are direct (reads and
 * writes come to the store). Where there is no part yet, an appender's open makes it (opened.h), and any other's gets the
 * number of an empty file without a name, which becomes the part. In all other cases opens are direct, without a
 * number.
 */
#pragma once

#include "store/core.h"

/* n's struct varve_native, made when there is none; NULL: no memory. ns held. */
struct varve_native *varve_native_of(struct varve_node *n);
/* Frees it with its node; its parts go to store.to_close; ns held. */
void varve_native_free(struct varve_store *s, struct varve_node *n);
/* Gives a reference to a part up where nothing may be closed (under ns, which is held); NULL is fine. */
void varve_native_close_later(struct varve_store *s, struct varve_part *part);
/* Closes what is in store.to_close; ns not held. */
void varve_native_close(struct varve_store *s);

/* Whether the kernel is let write at all, as things are; ns held. */
bool varve_native_is_on(const struct varve_store *s);

/* Whether bytes may come to f from the kernel, through descriptors that are known or through orphans;
 * ns held. */
bool varve_native_is_written(const struct varve_node *f);

/* Decides how h, which was opened by node n and is on file f with this part (NULL: none), is answered, and
 * counts it. ret->backing, ret->direct_io. ns not held. */
void varve_native_open(struct varve_store *s, struct varve_handle *h, struct varve_node *n,
		       struct varve_node *f, struct varve_part *part, struct varve_opened *ret);
/* The end of h; ns not held. Before the handle is taken off its file. */
void varve_native_release(struct varve_store *s, struct varve_handle *h);

/* f was opened by current/ for appending, and is kept open beyond its last close: whoever opens it anew finds its part
 * and its number there. The one that was kept longest makes room. ns not held. */
void varve_native_keep_warm(struct varve_store *s, struct varve_node *f);
/* f is not kept any more (its name is gone, its bucket's window has passed); nothing if it is not. ns not held. */
void varve_native_cool(struct varve_store *s, struct varve_node *f);
/* All that are not in the current bucket; all: all. ns not held. */
void varve_native_cool_old(struct varve_store *s, bool all);

/* The part of f that the kernel wrote to has no writer any more: from now on the daemon knows its size.
 * file.lock not held. */
void varve_native_settle(struct varve_store *s, struct varve_node *f);

/* Asks again, of the current bucket's files that an earlier daemon left to somebody, whether they are still held: who has
 * let go of one and opens it anew writes by the kernel again, from the next bucket on. Takes mutate for each. */
void varve_native_ask_orphans(struct varve_store *s);

/* Looks how large the current bucket's files that the kernel writes to have become: what the budget counts
 * follows. ns not held. */
void varve_native_count(struct varve_store *s);

/* Whether f's attributes are those of a boundary for good: its part has gone on into another bucket. Takes ns. */
bool varve_native_is_frozen(struct varve_store *s, const struct varve_node *f);

/* Whether attributes of f may be cached by the kernel as long as its name: nobody changes the file but
 * through the one inode that they belong to. ns held. */
bool varve_native_attr_is_exact(struct varve_store *s, const struct varve_node *f);
