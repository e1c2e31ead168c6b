/* Between file.c and io.c: what an open FILE needs. Private to store/. */
#pragma once

#include "store/core.h"

/* Bytes rounded up to blocks, as the budget counts them. */
uint64_t varve_blocks_of(uint64_t size);

/* f's size as those see it who read it: its part's range, and the late data. Takes file.lock. */
uint64_t varve_file_size(struct varve_store *s, struct varve_node *f);

/* *ret as the part's attributes `st` say it, with what the file shows instead; ns held. */
void varve_file_stat_from(const struct varve_node *f, const struct stat *st, struct stat *ret);

/* Sets what the budget counts of f, in its bucket or in .staging/: allocated bytes. f->lock held, or f is
 * not yet known to others. */
void varve_file_count(struct varve_store *s, struct varve_node *f, uint64_t bytes);

/* The same by what its part's stat says; of a part that several buckets share, the range counts that is f's. */
void varve_file_count_part(struct varve_store *s, struct varve_node *f, const struct stat *st);

/* Grows the object that h writes by a hole, up to size, as copying tools do with what holds zeros: only
 * the handle that has written it from its start may, and no stream; nothing that is there is changed.
 * -EPERM otherwise. handle.lock held. */
int varve_handle_grow(struct varve_store *s, struct varve_handle *h, uint64_t size);

/* n more writers by current/; ns held. */
void varve_file_add_writers(struct varve_store *s, struct varve_node *f, uint32_t n);

/* Counts a writer of f, which has its struct varve_native, that nobody is: what was written behind f's end goes on
 * in a successor, and only a file with a writer gets one. It is taken off when f gets it. ns held. */
void varve_file_lend_writer(struct varve_store *s, struct varve_node *f);

/* Opens; fresh: the file was made by the same call (see open_target). */
int varve_file_open(struct varve_store *s, uint64_t id, int flags, bool fresh,
		    struct varve_opened *ret);

/* A file that nobody can come by any more needs no way on; ns held. */
void varve_file_end_chain(struct varve_store *s, struct varve_node *f);

/* Gives f its successor, to which f's writers belong from now on; ns held. */
void varve_file_succeed(struct varve_store *s, struct varve_node *f, struct varve_node *succ);

/* One handle less on f (a writer by current/ or not); st: its part's attributes as they were when
 * attr_seq was seq, or NULL; ns held. Returns the part to be unreferenced without ns, or NULL. */
struct varve_part *varve_file_drop_handle(struct varve_store *s, struct varve_node *f, bool writer,
					  const struct stat *st, uint32_t seq);
