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

/* One segment being checked: a walk over its tar stream, member by member. */
struct check {
	const struct varve_verify_job *job;
	struct varve_verify_counts *counts;
	const char *segment;
	uint64_t done, total; /* for the progress */
	int fd;
	const struct varve_index *ix;
	struct varve_frame_reader *reader;
	struct varve_digest *digest;
	struct varve_buf header; /* of the member, as it should be */

	uint64_t at;                   /* in the tar stream */
	struct varve_frame_info frame; /* the one last read; */
	uint32_t n_read;               /* how many were */
	const unsigned char *bytes;    /* what is left of it; NULL: it is damaged */
	uint64_t left;
	bool named;     /* a file was named that has content in this damaged frame */
	char what[192]; /* about this damaged frame */

	uint64_t bound; /* where the content of the next file that has any begins, or the end */
	uint32_t bound_member; /* that file */
	bool lost;             /* where headers stand is not known up to there */
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

/* A damaged frame is told of by the files that it holds; one without any, here. */
static void end_frame(struct check *c)
{
	if (c->n_read > 0 && !c->bytes && !c->named)
		report(c, VARVE_VERIFY_FRAME, NULL, 0, 0, c->what);
}

static void say_frame(struct check *c, int error)
{
	bool damaged = error == -EBADMSG;

	(void)snprintf(c->what, sizeof(c->what),
		       "frame %" PRIu32 " (bytes %" PRIu64 " to %" PRIu64 " of the segment) %s%s",
		       c->n_read - 1, c->frame.comp_offset,
		       c->frame.comp_offset + c->frame.comp_size - 1,
		       damaged ? "is damaged" : "can't be read: ", damaged ? "" : strerror(-error));
}

static int next_frame(struct check *c)
{
	int r;

	end_frame(c);
	varve_index_frame(c->ix, c->n_read++, &c->frame);
	r = varve_frame_reader_next(c->reader, &c->bytes);
	if (r == -ENOMEM)
		return r;
	c->left = c->frame.raw_size;
	c->named = false;
	c->counts->frames++;
	if (r < 0) {
		c->bytes = NULL;
		c->counts->bad_frames++;
		say_frame(c, r);
	}
	return show_progress(c, c->frame.comp_offset + c->frame.comp_size);
}

/* The next bytes of the stream, at most `want` (not 0) and all of one frame; *ret is NULL when that
 * frame is damaged. The caller stays within the stream. */
static int pull(struct check *c, uint64_t want, const unsigned char **ret, size_t *ret_len)
{
	int r = c->left > 0 ? 0 : next_frame(c);

	if (r < 0)
		return r;
	*ret_len = (size_t)(want < c->left ? want : c->left);
	*ret = c->bytes;
	if (c->bytes)
		c->bytes += *ret_len;
	c->left -= *ret_len;
	c->at += *ret_len;
	return 0;
}

static bool all_zeros(const unsigned char *p, size_t len)
{
	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

/* Goes over len bytes that have to be as `should` says (NULL: zeros). 1, or 0 when they differ;
 * bytes of damaged frames are taken to be right: they are told of already. */
static int expect(struct check *c, const unsigned char *should, uint64_t len)
{
	int same = 1;

	while (len > 0) {
		const unsigned char *p;
		size_t n;
		int r = pull(c, len, &p, &n);

		if (r < 0)
			return r;
		if (p && !(should ? memcmp(p, should, n) == 0 : all_zeros(p, n)))
			same = 0;
		if (should)
			should += n;
		len -= n;
	}
	return same;
}

static int skip(struct check *c, uint64_t len)
{
	const unsigned char *p;
	size_t n;
	int r = 0;

	for (; len > 0 && r >= 0; len -= r < 0 ? 0 : n)
		r = pull(c, len, &p, &n);
	return r;
}

/* -- members -- */

/* The first file from i on that has content, and where that begins. */
static void find_bound(struct check *c, uint32_t i, uint64_t end)
{
	uint32_t n = varve_index_count(c->ix);
	struct varve_member m;
	uint64_t run;

	for (; i < n; i++) {
		varve_index_member(c->ix, i, &m);
		if (S_ISREG(m.mode) && m.n_extents > 0)
			break;
	}
	c->bound_member = i;
	c->bound = end;
	if (i < n)
		varve_index_map(c->ix, i, m.extents[0].offset, &c->bound, &run);
}

/* The headers of member i. What its content is preceded by ends where the content begins. */
static int check_header(struct check *c, uint32_t i, const struct varve_member *m)
{
	uint64_t room = c->bound - c->at;
	bool last = i == c->bound_member;
	int r;

	if (!c->lost) {
		c->header.len = 0;
		r = varve_pax_header(&c->header, m);
		if (r == -ENOMEM)
			return r;
		c->lost = r < 0 || c->header.len > room || (last && c->header.len < room);
		if (c->lost)
			bad_header(c, m, "its tar headers don't have the size that they should");
	}
	if (!c->lost) {
		r = expect(c, c->header.p, c->header.len);
		if (r == 0)
			bad_header(c, m, "its tar headers are not those of this file");
		return r;
	}
	if (!last)
		return 0;
	/* Whatever stands before the content; from there on all is known again. */
	c->lost = false;
	return skip(c, room);
}

/* Names the bytes of file i that are in the damaged frame at hand. */
static void name_range(struct check *c, uint32_t i, const struct varve_member *m)
{
	uint64_t off, len;

	if (varve_segment_covers(c->ix, i, &c->frame, &off, &len))
		report(c, VARVE_VERIFY_FILE, m, off, len, c->what);
	c->named = true;
}

/* One run of file i. *whole becomes false, and what is lost is named, where a frame is damaged. */
static int digest_extent(struct check *c, uint32_t i, const struct varve_member *m,
			 const struct varve_extent *x, uint32_t *last_named, bool *whole)
{
	varve_digest_extent(c->digest, x);
	for (uint64_t left = x->length; left > 0;) {
		const unsigned char *p;
		size_t n;
		int r = pull(c, left, &p, &n);

		if (r < 0)
			return r;
		left -= n;
		if (p) {
			varve_digest_data(c->digest, p, n);
			continue;
		}
		*whole = false;
		if (*last_named != c->n_read)
			name_range(c, i, m);
		*last_named = c->n_read;
	}
	return 0;
}

static int check_content(struct check *c, uint32_t i, const struct varve_member *m)
{
	uint32_t last_named = 0; /* counted as n_read: from 1 */
	unsigned char sum[16];
	bool whole = true;
	int r;

	varve_digest_begin(c->digest, m->size, m->extents, m->n_extents);
	for (uint32_t x = 0; x < m->n_extents; x++) {
		r = digest_extent(c, i, m, &m->extents[x], &last_named, &whole);
		if (r < 0)
			return r;
	}
	varve_digest_end(c->digest, sum);
	if (whole && memcmp(sum, m->digest, sizeof(sum)) != 0) {
		report(c, VARVE_VERIFY_FILE, m, 0, m->size, "its content does not have its digest");
		whole = false;
	}
	c->counts->files++;
	c->counts->content_bytes += m->size;
	c->counts->bad_files += !whole;
	if (c->at % VARVE_TAR_BLOCK == 0)
		return 0;
	r = expect(c, NULL, VARVE_TAR_BLOCK - c->at % VARVE_TAR_BLOCK);
	if (r == 0)
		bad_header(c, m, "the padding behind its content is not zeros");
	return r;
}

static int check_member(struct check *c, uint32_t i, uint64_t end)
{
	struct varve_member m;
	unsigned char sum[16];
	int r;

	varve_index_member(c->ix, i, &m);
	if (i > c->bound_member || i == 0)
		find_bound(c, i, end);
	r = check_header(c, i, &m);
	if (r < 0)
		return r;
	c->counts->members++;
	if (S_ISREG(m.mode))
		return check_content(c, i, &m);
	if (S_ISLNK(m.mode)) {
		varve_hash128(m.target, (size_t)m.size, sum);
		if (memcmp(sum, m.digest, sizeof(sum)) != 0)
			bad_header(c, &m, "the link's target does not have its digest");
	}
	return 0;
}

static int check_stream(struct check *c)
{
	struct varve_segment_params about;
	struct varve_segment_totals totals;
	uint64_t end;
	int r = 0;

	varve_index_about(c->ix, &about, &totals);
	end = totals.tar_bytes - VARVE_TAR_TRAILER;
	for (uint32_t i = 0; i < varve_index_count(c->ix) && r >= 0; i++)
		r = check_member(c, i, end);
	if (r >= 0 && c->at < end && !c->lost)
		bad_segment(c, "there are bytes behind its last member");
	if (r >= 0)
		r = skip(c, end - c->at);
	if (r >= 0)
		r = expect(c, NULL, VARVE_TAR_TRAILER);
	if (r == 0)
		bad_segment(c, "the tar stream does not end in zeros");
	if (r >= 0)
		end_frame(c);
	return r < 0 ? r : 0;
}

/* -- the segment -- */

/* That it is the segment its path says: one put in another bucket's place tells a wrong time. */
static void check_place(const struct check *c, const struct varve_verify_place *place)
{
	struct varve_segment_params about;
	struct varve_segment_totals totals;
	char what[1024];

	varve_index_about(c->ix, &about, &totals);
	if (strcmp(about.bucket, place->bucket) == 0 &&
	    strcmp(about.class_name, place->class_name) == 0 &&
	    strcmp(about.tablet, place->tablet) == 0 && about.start_ns == place->start_ns)
		return;
	(void)snprintf(what, sizeof(what), "it was written as %s/%s/%s.tar.zst%s", about.bucket,
		       about.class_name, about.tablet,
		       about.start_ns == place->start_ns ? "" : ", for another window");
	bad_segment(c, what);
}

static int check_frames(struct check *c)
{
	int r = varve_frame_reader_new(c->fd, c->ix, c->job->threads, &c->reader);

	if (r < 0)
		return r;
	c->digest = varve_digest_new();
	r = c->digest ? check_stream(c) : -ENOMEM;
	varve_frame_reader_free(c->reader);
	varve_digest_free(c->digest);
	varve_buf_done(&c->header);
	return r;
}

static ssize_t read_fd(void *ctx, void *buf, size_t len, uint64_t off)
{
	const struct check *c = ctx;
	ssize_t n;

	do
		n = pread(c->fd, buf, len, (off_t)off);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static int check_segment(struct check *c, uint64_t size, const struct varve_verify_place *place)
{
	struct varve_source src = {.read = read_fd, .ctx = c, .size = size};
	struct varve_err why = {.msg = ""};
	struct varve_index *ix = NULL;
	int r = varve_index_open(&src, &ix, &why);

	if (r == -ENOMEM)
		return r;
	if (r < 0) {
		bad_segment(c, why.msg[0] ? why.msg : strerror(-r));
		return show_progress(c, size);
	}
	c->ix = ix;
	if (place)
		check_place(c, place);
	r = check_frames(c);
	if (r == 0)
		r = show_progress(c, size);
	varve_index_free(ix);
	return r;
}

int varve_verify_one(int dirfd, const char *path, const struct varve_verify_place *place,
		     const struct varve_verify_job *job, uint64_t done, uint64_t total,
		     struct varve_verify_counts *ret, struct varve_err *err)
{
	cleanup_close int fd = varve_openat(dirfd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	struct check c = {.job = job, .counts = ret, .segment = path, .done = done, .fd = fd};
	struct stat st;
	int r;

	if (fd < 0)
		return varve_err_wrap(err, fd, "open '%s'", path);
	if (fstat(fd, &st) < 0)
		return varve_err_wrap(err, -errno, "stat '%s'", path);
	if (!S_ISREG(st.st_mode))
		return varve_err_set(err, -EBADMSG, "'%s' is not a regular file", path);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	ret->segments++;
	ret->segment_bytes += (uint64_t)st.st_size;
	c.total = total > 0 ? total : (uint64_t)st.st_size;
	r = check_segment(&c, (uint64_t)st.st_size, place);
	return r < 0 ? varve_err_wrap(err, r, "verify '%s'", path) : 0;
}

int varve_verify_segment(int dirfd, const char *path, const struct varve_verify_job *job,
			 struct varve_verify_counts *ret, struct varve_err *err)
{
	return varve_verify_one(dirfd, path, NULL, job, 0, 0, ret, err);
}
