/* What recovery's modules share. Private to store/; all at open, when nobody else is there. */
#pragma once

#include "store/core.h"

/* A bucket into which nothing was linked yet when a crash came, though parts went on in it: its folder is made, so that
 * it is found with the others. After the range record was read. */
int varve_recover_newest(struct varve_store *s);

/* Whether something that is loaded has this number. */
bool varve_recover_is_known(struct varve_store *s, uint64_t ino);

/* Lists the sealed buckets, with their holds; half sealed ones go; a seal that was cut short behind
 * its commit gets its audit line. */
int varve_recover_sealed(struct varve_store *s);

/* What is left to be done about parts when it is known which bucket is current: orphans of closed windows go
 * on in it, hard links that are missing are made, parts of sealed buckets go. */
int varve_recover_carried(struct varve_store *s, struct varve_err *err);

/* Opens meta/clock and begins to keep time; *ret_start: the start of the bucket whose run of stream
 * numbers it noted, INT64_MIN: none. */
int varve_recover_clock(struct varve_store *s, int64_t *ret_start, struct varve_err *err);

/* Opens meta/ino; after the clock. Where the counter is lost, numbers go on beyond everything that
 * can be seen, by a wide margin. */
int varve_recover_counter(struct varve_store *s, struct varve_err *err);
