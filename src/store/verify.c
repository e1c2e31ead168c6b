#include "store/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sys.h"
#include "format/digest.h"
#include "format/layout.h"
#include "format/pax.h"
#include "store/segment.h"
#include "store/verify_private.h"

/* One segment being checked: a walk over its tar stream. */
struct check {
	const struct varve_verify_job *job;
	struct varve_verify_counts *counts;
	const char *segment;
	uint64_t done, total; /* for the progress */
	const struct varve_index *ix;
	struct varve_frame_reader *reader;
	struct varve_digest *digest;
	struct varve_buf header; /* of the member, as it should be */
	uint64_t tar_bytes;

	uint64_t at; /* in the tar stream */
	struct varve_frame_info frame; /* the one that holds `at`, once `left` is not 0 */
	uint32_t n_read;	       /* frames read so far */
	const unsigned char *bytes;    /* what is left of it; NULL: it is damaged */
	uint64_t left;
	bool reported; /* of a damaged frame: a file of which it holds content was named */

	uint64_t bound;	      /* where the content of the next file that has any begins */
	uint32_t bound_member; /* that file; the number of members: there is none */
	bool lost;	      /* where headers stand is not known up to there */
};

/* -- findings -- */

static void report(const struct check *c, enum varve_verify_kind kind, const struct varve_member *m,
		   uint64_t offset, uint64_t length, const char *what)
{
	struct varve_verify_finding f = {.kind = kind,
					 .segment = c->segment,
					 .path = m ? m->path : NULL,
					 .path_len = m ? m->path_len : 0,
					 .offset = offset,
					 .length = length,
					 .what = what};

	if (c->job->report)
		c->job->report(c->job->ctx, &f);
}

static void bad_header(const struct check *c, const struct varve_member *m, const char *what)
{
	c->counts->bad_headers++;
	report(c, VARVE_VERIFY_HEADER, m, 0, 0, what);
}

static void bad_segment(const struct check *c, const char *what)
{
	c->counts->bad_segments++;
	report(c, VARVE_VERIFY_SEGMENT, NULL, 0, 0, what);
}

static int show_progress(const struct check *c, uint64_t in_segment)
{
	if (c->job->progress && c->job->progress(c->job->ctx, c->done + in_segment, c->total))
		return -ECANCELED;
	return 0;
}

/* -- the tar stream -- */

static void say_frame(const struct check *c, int error, char *buf, size_t size)
{
	(void)snprintf(buf, size, "frame %" PRIu32 " (segment bytes %" PRIu64 " to %" PRIu64 ") %s%s",
		       c->n_read - 1, c->frame.comp_offset,
		       c->frame.comp_offset + c->frame.comp_size - 1,
		       error == -EBADMSG ? "is damaged" : "can't be read: ",
		       error == -EBADMSG ? "" : strerror(-error));
}

/* Reads the next frame. A damaged one has no bytes; the files it holds are named here, since the walk
 * comes to each of them only later and need not come to all in order. */
static int next_frame(struct check *c)
{
	uint32_t n = varve_index_count(c->ix);
	uint64_t off, len;
	char what[160];
	int r;

	varve_index_frame(c->ix, c->n_read++, &c->frame);
	r = varve_frame_reader_next(c->reader, &c->bytes);
	if (r == -ENOMEM)
		return r;
	c->left = c->frame.raw_size;
	c->counts->frames++;
	if (r < 0) {
		bool named = false;

		c->bytes = NULL;
		c->counts->bad_frames++;
		say_frame(c, r, what, sizeof(what));
		for (uint32_t i = c->member; i < n; i++) {
			(void)off;
			(void)len;
			(void)named;
		}
	}
	return show_progress(c, c->frame.comp_offset + c->frame.comp_size);
}
