#include "store/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/bytes.h"
#include "base/sys.h"
#include "format/digest.h"
#include "format/segment_dec.h"
#include "store/verify.h"
#include "store/xattrs.h"

#define STEP_BYTES (UINT64_C(32) << 20)
#define EXTENTS_MAX 1000000u
#define SHOWN_MAX 200 /* of a path, in a message */

static bool cancelled(const struct varve_seal_job *job)
{
	return job->params.cancel && __atomic_load_n(job->params.cancel, __ATOMIC_RELAXED);
}

static int shown(uint32_t path_len)
{
	return path_len < SHOWN_MAX ? (int)path_len : SHOWN_MAX;
}

/* -- the new file -- */

struct out {
	int fd;
	uint64_t size;
	uint64_t flushed;
};

/* Little of it is dirty at any time: a final fsync of gigabytes would hold up all who append. */
static int flush_step(struct out *o)
{
	off_t from = (off_t)o->flushed, len = (off_t)(o->size - o->flushed);

	if (sync_file_range(o->fd, from, len,
			    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
				    SYNC_FILE_RANGE_WAIT_AFTER) < 0)
		return -errno;
	(void)posix_fadvise(o->fd, from, len, POSIX_FADV_DONTNEED);
	o->flushed = o->size;
	return 0;
}

static int out_sink(void *ctx, const void *data, size_t len)
{
	struct out *o = ctx;
	int r = varve_pwrite_full(o->fd, data, len, o->size);

	if (r < 0)
		return r;
	o->size += len;
	return o->size - o->flushed >= STEP_BYTES ? flush_step(o) : 0;
}

/* -- the content of a member -- */

struct source {
	int fd;
	uint64_t from;
	uint64_t dropped; /* pages below this were let go */
};

/* What was read is not read again: others' pages are worth more. (Of small files, which are about
 * to be removed with their pages, it would only push the dirty ones to the disk.) */
static ssize_t read_source(void *ctx, void *buf, size_t len, uint64_t off)
{
	struct source *s = ctx;
	size_t done = 0;

	off += s->from;
	if (off - s->dropped >= STEP_BYTES) {
		(void)posix_fadvise(s->fd, (off_t)s->dropped, (off_t)(off - s->dropped),
				    POSIX_FADV_DONTNEED);
		s->dropped = off;
	}
	while (done < len) {
		ssize_t n = pread(s->fd, (char *)buf + done, len - done, (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/* -- what a member is, by its descriptor -- */

struct filled {
	struct varve_member m;
	struct stat st;
	unsigned char *xattrs;
	uint64_t from; /* where the content begins in the descriptor */
	struct varve_extent *extents;
	char *target;
};

static void filled_done(struct filled *f)
{
	free(f->xattrs);
	free(f->extents);
	free(f->target);
}

static int add_extent(struct filled *f, uint64_t off, uint64_t len)
{
	/* Powers of two. */
	if ((f->m.n_extents & (f->m.n_extents - 1)) == 0) {
		uint32_t size = f->m.n_extents ? 2 * f->m.n_extents : 1;
		struct varve_extent *more = realloc(f->extents, size * sizeof(*more));

		if (!more)
			return -ENOMEM;
		f->extents = more;
	}
	f->extents[f->m.n_extents++] = (struct varve_extent){off, len};
	f->m.extents = f->extents;
	return 0;
}

static int fill_extents(int fd, struct filled *f)
{
	const off_t from = (off_t)f->from, size = from + (off_t)f->m.size;
	off_t at = from;
	int r = 0;

	while (r == 0 && at < size) {
		off_t data = lseek(fd, at, SEEK_DATA), hole;

		if (data < 0 && errno == ENXIO)
			break;
		if (data < 0) /* no holes to be told of here */
			data = at;
		if (data >= size)
			break;
		hole = lseek(fd, data, SEEK_HOLE);
		/* Of a file in so many pieces the rest is taken as one: its holes become zeros. */
		if (hole < 0 || hole > size || f->m.n_extents + 1 == EXTENTS_MAX)
			hole = size;
		r = add_extent(f, (uint64_t)(data - from), (uint64_t)(hole - data));
		at = hole;
	}
	return r;
}

static int fill_link(int fd, struct filled *f)
{
	if (f->m.size > VARVE_PATH_BYTES_MAX)
		return -EBADMSG;
	f->target = malloc(f->m.size + 1);
	if (!f->target)
		return -ENOMEM;
	f->target[f->m.size] = '\0';
	f->m.target = f->target;
	f->m.mode = S_IFLNK | 0777;
	return varve_pread_full(fd, f->target, f->m.size, 0);
}

static int take_xattrs(int fd, struct filled *f)
{
	size_t len;
	int r = varve_xattrs_pack(fd, &f->xattrs, &len);

	f->m.xattrs = f->xattrs;
	f->m.xattrs_len = r == 0 ? (uint32_t)len : 0;
	return r;
}

static int wear(const struct varve_seal_dress *d, struct filled *f)
{
	int64_t sec = d->mtime_ns / 1000000000, nsec = d->mtime_ns % 1000000000;

	if (nsec < 0) {
		sec--;
		nsec += 1000000000;
	}
	f->m.mode = (f->m.mode & S_IFMT) | (d->mode & 07777);
	f->m.uid = d->uid;
	f->m.gid = d->gid;
	f->m.mtime_sec = sec;
	f->m.mtime_nsec = (uint32_t)nsec;
	f->m.xattrs = d->xattrs;
	f->m.xattrs_len = (uint32_t)d->xattrs_len;
	return 0;
}

static int fill(const struct varve_seal_item *it, struct filled *f)
{
	struct stat *st = &f->st;
	int r;

	if (fstat(it->fd, st) < 0)
		return -errno;
	if (!S_ISREG(st->st_mode) && (it->is_link || !S_ISDIR(st->st_mode)))
		return -EBADMSG;
	f->m = (struct varve_member){.path = it->path,
				     .path_len = it->path_len,
				     .ino = it->ino,
				     .mode = st->st_mode,
				     .uid = st->st_uid,
				     .gid = st->st_gid,
				     .mtime_sec = st->st_mtim.tv_sec,
				     .mtime_nsec = (uint32_t)st->st_mtim.tv_nsec};
	if (S_ISREG(st->st_mode))
		f->m.size = (uint64_t)st->st_size;
	if (it->ranged) {
		if (!S_ISREG(st->st_mode) || it->from > f->m.size || it->size > f->m.size - it->from)
			return -EBADMSG;
		f->from = it->from;
		f->m.size = it->size;
	}
	if (it->is_link)
		return fill_link(it->fd, f);
	if (it->mode != UINT32_MAX)
		f->m.mode = (f->m.mode & S_IFMT) | (it->mode & 07777);
	r = it->dress ? wear(it->dress, f) : take_xattrs(it->fd, f);
	if (r == 0 && S_ISREG(st->st_mode))
		r = fill_extents(it->fd, f);
	return r;
}

static bool has_changed(const struct varve_seal_item *it, const struct stat *before)
{
	struct stat st;

	if (fstat(it->fd, &st) < 0)
		return true;
	/* What others do behind a range is none of its business. */
	if (it->ranged)
		return (uint64_t)st.st_size < it->from + it->size;
	return st.st_size != before->st_size ||
	       st.st_mtim.tv_sec != before->st_mtim.tv_sec ||
	       st.st_mtim.tv_nsec != before->st_mtim.tv_nsec;
}

/* -- writing -- */

/* All that the index has to say of a member, into the one hash of all of them. Its extents are in
 * its digest. */
static void tally(struct varve_digest *d, const struct varve_member *m)
{
	const uint64_t v[] = {m->path_len,   m->mode, m->uid,  m->gid,       (uint64_t)m->mtime_sec,
			      m->mtime_nsec, m->ino,  m->size, m->xattrs_len};
	unsigned char b[sizeof(v)];

	for (size_t i = 0; i < sizeof(v) / sizeof(*v); i++)
		varve_put_le64(b + 8 * i, v[i]);
	varve_digest_data(d, b, sizeof(b));
	varve_digest_data(d, m->path, m->path_len);
	if (S_ISLNK(m->mode))
		varve_digest_data(d, m->target, (size_t)m->size);
	if (m->xattrs_len)
		varve_digest_data(d, m->xattrs, m->xattrs_len);
	varve_digest_data(d, m->digest, sizeof(m->digest));
}

static int add_content(struct varve_segment_enc *enc, const struct varve_seal_item *it,
		       struct filled *f, struct varve_err *err)
{
	struct source src = {.fd = it->fd, .from = f->from, .dropped = f->from};
	bool file = S_ISREG(f->m.mode);
	int r;

	if (file && f->m.size >= STEP_BYTES)
		(void)posix_fadvise(it->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	r = varve_segment_enc_add(enc, &f->m, file ? read_source : NULL, &src, f->m.digest, err);
	/* -EBADMSG: it became shorter under the encoder's hands. */
	if (file && (r == 0 || r == -EBADMSG) && has_changed(it, &f->st))
		r = varve_err_set(err, -EAGAIN, "'%.*s' changed while it was being sealed",
				  shown(it->path_len), it->path);
	if (file && f->m.size >= STEP_BYTES)
		(void)posix_fadvise(it->fd, (off_t)f->from, (off_t)f->m.size, POSIX_FADV_DONTNEED);
	return r;
}

static int add_member(struct varve_segment_enc *enc, const struct varve_seal_item *it,
		      struct varve_digest *sum, struct varve_err *err)
{
	struct filled f = {.xattrs = NULL};
	int r = fill(it, &f);

	if (r < 0)
		(void)varve_err_set(err, r, "'%.*s' can't be read: %s", shown(it->path_len),
				    it->path, strerror(-r));
	else
		r = add_content(enc, it, &f, err);
	if (r == 0)
		tally(sum, &f.m);
	filled_done(&f);
	return r;
}

static int add_next(struct varve_segment_enc *enc, const struct varve_seal_job *job, size_t i,
		    struct varve_digest *sum, struct varve_err *err)
{
	struct varve_seal_item it = {.fd = -1, .mode = UINT32_MAX};
	int r;

	if (cancelled(job))
		return -ECANCELED;
	r = job->next(job->ctx, i, &it);
	if (r < 0)
		(void)varve_err_set(err, r, "'%.*s' can't be opened: %s",
				    it.path ? shown(it.path_len) : 0, it.path ? it.path : "",
				    strerror(-r));
	else
		r = add_member(enc, &it, sum, err);
	if (it.fd >= 0)
		(void)close(it.fd);
	return r;
}

static int encode(struct out *o, const struct varve_seal_job *job, struct varve_digest *sum,
		  struct varve_segment_totals *ret, struct varve_err *err)
{
	struct varve_segment_enc *enc = NULL;
	int r = varve_segment_enc_new(&job->params, out_sink, o, &enc, err);

	for (size_t i = 0; r == 0 && i < job->n; i++)
		r = add_next(enc, job, i, sum, err);
	if (r == 0)
		r = varve_segment_enc_finish(enc, ret, err);
	varve_segment_enc_free(enc);
	if (r == 0 && fsync(o->fd) < 0)
		r = varve_err_set(err, -errno, "can't be made durable: %s", strerror(errno));
	return r;
}

/* -- reading back -- */

struct back {
	const struct varve_seal_job *job;
	struct varve_err *err;
	bool told;
};

static int back_progress(void *ctx, uint64_t done, uint64_t total)
{
	const struct back *b = ctx;

	(void)done;
	(void)total;
	return cancelled(b->job);
}

static void back_report(void *ctx, const struct varve_verify_finding *f)
{
	struct back *b = ctx;

	if (!b->told)
		(void)varve_err_set(b->err, -EBADMSG,
				    "read back, it is not what was written: '%.*s': %s",
				    f->path ? shown((uint32_t)f->path_len) : 0,
				    f->path ? f->path : "", f->what);
	b->told = true;
}

/* That the segment is whole was looked at; here, that it says of every part what the part was. */
static int compare_index(int fd, uint64_t size, struct varve_digest *d,
			 const unsigned char want[16], struct varve_err *err)
{
	struct source from = {.fd = fd};
	struct varve_source src = {.read = read_source, .ctx = &from, .size = size};
	struct varve_index *ix = NULL;
	unsigned char got[16];
	int r = varve_index_open(&src, &ix, err);

	if (r < 0)
		return r;
	varve_digest_begin(d, 0, NULL, 0);
	for (uint32_t i = 0; i < varve_index_count(ix); i++) {
		struct varve_member m;

		varve_index_member(ix, i, &m);
		tally(d, &m);
	}
	varve_digest_end(d, got);
	varve_index_free(ix);
	if (memcmp(got, want, sizeof(got)) != 0)
		return varve_err_set(err, -EBADMSG,
				     "read back, its index is not that of the parts");
	return 0;
}

static int read_back(int dirfd, const char *name, const struct out *o,
		     const struct varve_seal_job *job, struct varve_digest *d,
		     const unsigned char want[16], struct varve_err *err)
{
	struct back b = {.job = job, .err = err};
	struct varve_verify_job check = {.threads = job->params.threads,
					 .progress = back_progress,
					 .report = back_report,
					 .ctx = &b};
	struct varve_verify_counts counts = {.segments = 0};
	int r = varve_verify_segment(dirfd, name, &check, &counts, err);

	if (r == 0 && !varve_verify_clean(&counts))
		return -EBADMSG;
	if (r == 0)
		r = compare_index(o->fd, o->size, d, want, err);
	if (o->size >= STEP_BYTES)
		(void)posix_fadvise(o->fd, 0, 0, POSIX_FADV_DONTNEED);
	return r;
}

static int make_segment(int dirfd, const char *name, const struct varve_seal_job *job,
			struct varve_digest *d, struct varve_segment_totals *ret,
			struct varve_err *err)
{
	cleanup_close int fd =
		varve_openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	struct out o = {.fd = fd};
	struct varve_segment_totals totals;
	unsigned char sum[16];
	int r;

	if (fd < 0)
		return varve_err_set(err, fd, "can't be made: %s", strerror(-fd));
	varve_digest_begin(d, 0, NULL, 0);
	r = encode(&o, job, d, &totals, err);
	varve_digest_end(d, sum);
	if (r == 0)
		r = read_back(dirfd, name, &o, job, d, sum, err);
	if (r < 0)
		(void)unlinkat(dirfd, name, 0);
	else
		*ret = totals;
	return r;
}

int varve_seal_segment(int dirfd, const char *name, const struct varve_seal_job *job,
		       struct varve_segment_totals *ret, struct varve_err *err)
{
	struct varve_digest *d;
	int r;

	if (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
		return varve_err_set(err, -errno,
				     "segment '%s': what is left of an earlier try can't be "
				     "removed: %s",
				     name, strerror(errno));
	d = varve_digest_new();
	if (!d)
		return -ENOMEM;
	r = make_segment(dirfd, name, job, d, ret, err);
	varve_digest_free(d);
	return r < 0 ? varve_err_wrap(err, r, "segment '%s'", name) : 0;
}
