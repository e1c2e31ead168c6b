/*
 * Carried parts: a part that the kernel writes to at a boundary goes on into the next bucket with its
 * writer. Its bytes up to the mark stay the older bucket's, what follows is the newer's; a hard link in the
 * newer bucket keeps the part when the older one is sealed, and then the older range is given back.
 *
 *   mark     the older file gets an end (varve_carry_mark); what its readers see is clamped from then on
 *   share    the newer file, its successor, gets the part with the mark as its head (varve_carry_share)
 *   save     the range record, durably; before anything that relies on it (varve_carry_save)
 *   link     the newer file's hard link (varve_carry_link)
 *   punch    once the older bucket is sealed or gone, and nobody can have its range mapped (varve_carry_punch)
 *
 * What recovery does with a crash in between: see recover.c.
 */
#pragma once

#include "store/core.h"

/* Gives every file of bucket b that the kernel may write to an end, where it has none yet. mutate held, or it is the keeper
 * and b the current bucket; ns not. -ENOMEM, errors of the parts. */
int varve_carry_mark(struct varve_store *s, struct varve_bucket *b);
/* The same for one file, at its part's present size, or at `at` if that is not UINT64_MAX. mutate held. */
int varve_carry_mark_file(struct varve_store *s, struct varve_node *f, uint64_t at);

/* Whether f is written to by the kernel and has no end yet: mark it first; ns held. */
bool varve_carry_is_due(const struct varve_node *f);

/* Puts f, which has a head or an end, where the record is written from; ns held. */
void varve_carry_list(struct varve_store *s, struct varve_node *f);
/* Of the listed files whose part has this number the one behind f, or the first (f NULL); NULL: no more. In no
 * order. ns held. */
struct varve_node *varve_carry_next_of(struct varve_store *s, uint64_t number, struct varve_node *f);

/* Takes it out there; nothing if it is not in; ns held. */
void varve_carry_unlist(struct varve_node *f);

/* Gives succ, a file of the current bucket without part, f's part from f's end on; ns held.
 * -EEXIST: it has a part already; -ENOMEM. */
int varve_carry_share(struct varve_store *s, struct varve_node *f, struct varve_node *succ);

/* Makes the hard link of a file that waits for it, in its bucket; mutate held. */
int varve_carry_link(struct varve_store *s, struct varve_node *f);

/* Writes the range record if what it tells has changed. ns not held; takes store.ranges, and may have to
 * wait for the disk. */
int varve_carry_save(struct varve_store *s);

/* All that waits: record, links, record. mutate held or (named false) taken in small steps. Errors are
 * logged; what could not be done is tried again by the next call. */
int varve_carry_finish(struct varve_store *s, bool has_mutate);

/* Before a name is changed or removed: every hard link that is still to be made is made, durably told.
 * mutate held. 0 or what kept it from being done. */
int varve_carry_ready(struct varve_store *s);

/* The grace of b is over: what is pending is settled. mutate held. */
void varve_carry_settle(struct varve_store *s, struct varve_bucket *b);

/* f's range is not needed any more (it is sealed, dropped or removed): its bytes are given back once that
 * can be done, and its marks go. ns held. */
void varve_carry_give_back(struct varve_store *s, struct varve_node *f);

/* The whole of what lies below the lowest head of f's part may be given back; ns held. For recovery. */
void varve_carry_give_below(struct varve_store *s, struct varve_node *f);

/* The same for a range of the part with that number whose file is not in memory; ns held. */
void varve_carry_give_range(struct varve_store *s, uint64_t number, uint64_t from, uint64_t upto);

/* Gives back what can be given back now, some of it; the reaper's. *ret_more: there is more to do now.
 * Whether anything waits at all: varve_carry_waits, ns held. */
void varve_carry_punch(struct varve_store *s, bool *ret_more);
bool varve_carry_waits(const struct varve_store *s);

/* Forgets what is still to be given back, and that there are links to be made: the store is being closed. */
void varve_carry_end(struct varve_store *s);

/* Reads the range record, at open; alone. */
int varve_carry_load(struct varve_store *s, struct varve_err *err);
/* What the record, as it was read, tells of a part in a bucket, by the number that is noted on the part; NULL:
 * nothing. Recovery's, or mutate held. */
const struct varve_range *varve_carry_entry(struct varve_store *s, const char *bucket, uint64_t number);
/* Recovery has found that part: f's range is as the record says, as far as the part goes. */
int varve_carry_apply(struct varve_store *s, struct varve_node *f, const struct varve_range *e);
/* Recovery: somebody writes to f's part without this daemon. */
int varve_carry_orphan(struct varve_store *s, struct varve_node *f);
/* Recovery: joins older and newer files of one part, gives back what is below all of them, and forgets
 * entries of buckets that are neither here nor in the trash. -ENOMEM, or the trash can't be read. Alone. */
int varve_carry_join(struct varve_store *s);
/* What the record told, when it was read, of a bucket that was in the trash then: the bucket has come back, or is
 * gone for good, and its ranges are given back. ns not held. */
void varve_carry_forget(struct varve_store *s, const char *bucket, bool gone);
/* Makes the newer file for an entry whose hard link was not made before a crash, in its bucket, from the
 * older file. -ENODATA: nobody writes to the part, and nothing is behind the older file's end. Alone. */
int varve_carry_remake(struct varve_store *s, struct varve_bucket *b, const struct varve_range *e);
