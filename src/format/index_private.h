/* An open index, for format/segment_dec.c and format/index_check.c only. */
#pragma once

#include "base/err.h"
#include "format/segment_dec.h"

struct varve_index {
	unsigned char
		*body; /* the sections in one buffer; extents and frames are cut off once read */
	size_t body_size;
	const unsigned char *members; /* within body: records as layout.h has them */
	const unsigned char *heap;
	uint32_t n_members, n_frames, n_extents, heap_size;
	struct varve_extent *extents;
	uint64_t *extent_tar; /* per extent: its offset in the tar stream */
	struct varve_frame_info *frames;
	uint32_t *frame_check; /* per frame: low half of XXH64; NULL once the seek table was checked
				*/
	uint16_t bucket_len, class_len, tablet_len;
	int64_t start_ns, end_ns;
	struct varve_segment_totals totals;
	uint64_t data_bytes; /* of all data frames */
};

/* Checks header and sections against each other and every record, and fills in extents and frames.
 * ix holds the body and what the header says. 0, -ENOMEM, or -EBADMSG with the reason in err. */
int varve_index_check(struct varve_index *ix, struct varve_err *err) varve_must_check;
