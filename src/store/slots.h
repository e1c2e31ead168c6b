/*
 * A small record that is replaced again and again, kept in a file with two slots that are written
 *in turn: a write that is torn by a crash damages the older record only. Both slots are filled with
 * zeros and made durable when the file is made, so that a write needs no space: it works on a full
 * disk. Layout, all little-endian; each slot begins at a multiple of the slot's size:
 *
 *	 0	magic, 8 bytes (who the record belongs to)
 *	 8	sequence, 8 bytes; the higher of two valid slots is the record
 *	16	length of the payload, 8 bytes
 *	24	payload
 *	24+n	XXH3-64 of all that is before it in the slot
 *
 * Threads: none; the caller serialises.
 */
#pragma once

#include <stddef.h>

#include "base/err.h"

#define VARVE_SLOTS_MAGIC_BYTES 8
#define VARVE_SLOTS_PAYLOAD_MAX ((size_t)256 << 20)

struct varve_slots;

/* Opens dirfd/name (mode 0600), or makes it, durably, when it is absent. magic is 8 characters. A
 * file whose slots hold less than payload_max bytes is replaced by a larger one that holds the same
 * record. The caller frees with _close. -EINVAL: payload_max beyond the limit, or a bad magic. */
int varve_slots_open(int dirfd, const char *name, const char *magic, size_t payload_max,
		     struct varve_slots **ret, struct varve_err *err) varve_must_check;
void varve_slots_close(struct varve_slots *s); /* NULL is fine */

/* The record written last, into buf; *len is buf's size and becomes the record's. -ENOENT: none was
 * ever written (whole); -EBADMSG: both slots are damaged; -ERANGE: it does not fit. */
int varve_slots_read(struct varve_slots *s, void *buf, size_t *len) varve_must_check;

/* Replaces the record, durably (fdatasync). -EFBIG: more than payload_max. After any other error
 * the record may be the old or the new one, never something else. */
int varve_slots_write(struct varve_slots *s, const void *data, size_t len) varve_must_check;

/* The record written last, for those who only look: no lock is needed, nothing is written, also not where the
 * filesystem can't be written to; a daemon may replace it meanwhile. *ret is malloc'ed. -ENOENT: there is no
 * file, or no record in it; -EBADMSG. */
int varve_slots_peek(int dirfd, const char *name, const char *magic, void **ret,
		     size_t *ret_len) varve_must_check;

/* The largest record that a write takes. */
size_t varve_slots_payload_max(const struct varve_slots *s);
