/*
 * The tar headers of one member: ustar where it holds everything, else a pax extended header
 * before it. Pure; the same member gives the same bytes everywhere.
 */
#pragma once

#include "base/err.h"
#include "format/buf.h"
#include "format/segment.h"

/* Appends to `to` all that stands before the member's content: whole blocks of 512 bytes. For a
 * file with holes that includes the map of GNU.sparse 1.0; the extents then have to be aligned
 * (varve_extents_align), since readers disagree on anything else. The member was checked before
 * (varve_member_check). 0, -EFBIG or -ENOMEM. */
int varve_pax_header(struct varve_buf *to, const struct varve_member *m) varve_must_check;

/* A file that is written with a map of its extents. */
static inline int varve_member_sparse(const struct varve_member *m)
{
	return m->size > 0 && (m->n_extents != 1 || m->extents[0].length != m->size);
}
