#include "store/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/bytes.h"
#include "base/sys.h"
#include "format/digest.h"
#include "format/segment_dec.h"

#define FLUSH_BYTES (UINT64_C(32) << 20)
#define XATTRS_MAX (256 * 1024)
#define EXTENTS_MAX 1000000u
#define COPY_BYTES (256 * 1024)

/* -- writing: the dirty data in flight stays bounded, so that the last fsync holds nobody up -- */

struct out {
	int fd;
	uint64_t size;
	uint64_t flushed;
};

static int out_sink(void *ctx, const void *data, size_t len)
{
	struct out *o = ctx;
	int r = varve_pwrite_full(o->fd, data, len, o->size);

	if (r < 0)
		return r;
	o->size += len;
	if (o->size - o->flushed >= FLUSH_BYTES) {
		if (sync_file_range(o->fd, (off_t)o->flushed, (off_t)(o->size - o->flushed),
				    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
					    SYNC_FILE_RANGE_WAIT_AFTER) < 0)
			return -errno;
		o->flushed = o->size;
	}
	return 0;
}

static ssize_t read_fd(void *ctx, void *buf, size_t len, uint64_t off)
{
	const int *fd = ctx;
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(*fd, (char *)buf + done, len - done, (off_t)(off + done));

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
	unsigned char *xattrs;
	struct varve_extent *extents;
	char *target;
};

static void filled_done(struct filled *f)
{
	free(f->xattrs);
	free(f->extents);
	free(f->target);
}

static bool is_sealed_xattr(const char *name)
{
	if (!strncmp(name, "user.varve.", 11))
		return false;
	return !strncmp(name, "user.", 5) || !strcmp(name, "system.posix_acl_access") ||
	       !strcmp(name, "system.posix_acl_default");
}

static int pack_xattr(int fd, const char *name, struct filled *f)
{
	size_t name_len = strlen(name);
	ssize_t len = fgetxattr(fd, name, NULL, 0);
	unsigned char *more;

	if (len < 0)
		return errno == ENODATA ? 0 : -errno;
	if (f->m.xattrs_len + 6 + name_len + (size_t)len > XATTRS_MAX)
		return -E2BIG;
	more = realloc(f->xattrs, f->m.xattrs_len + 6 + name_len + (size_t)len + 1);
	if (!more)
		return -ENOMEM;
	f->xattrs = more;
	more += f->m.xattrs_len;
	len = fgetxattr(fd, name, more + 6 + name_len, (size_t)len + 1);
	if (len < 0)
		return errno == ENODATA ? 0 : -errno;
	varve_put_le16(more, (uint16_t)name_len);
	varve_put_le32(more + 2, (uint32_t)len);
	memcpy(more + 6, name, name_len);
	f->m.xattrs_len += (uint32_t)(6 + name_len + (size_t)len);
	return 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted, so that the same content gives the same segment. */
static int fill_xattrs(int fd, struct filled *f)
{
	cleanup_free char *names = NULL;
	cleanup_free const char **list = NULL;
	size_t n = 0;
	ssize_t len = flistxattr(fd, NULL, 0);

	if (len <= 0)
		return len < 0 && errno != ENOTSUP ? -errno : 0;
	names = malloc((size_t)len);
	list = malloc((size_t)len * sizeof(*list));
	if (!names || !list)
		return -ENOMEM;
	len = flistxattr(fd, names, (size_t)len);
	if (len < 0)
		return -errno;
	for (const char *x = names; x < names + len; x += strlen(x) + 1)
		if (is_sealed_xattr(x))
			list[n++] = x;
	qsort(list, n, sizeof(*list), by_text);
	for (size_t i = 0; i < n; i++) {
		int r = pack_xattr(fd, list[i], f);

		if (r < 0)
			return r;
	}
	f->m.xattrs = f->xattrs;
	return 0;
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
	off_t size = (off_t)f->m.size, at = 0;
	int r = 0;

	while (r == 0 && at < size) {
		off_t data = lseek(fd, at, SEEK_DATA), hole;

		if (data < 0 && errno == ENXIO)
			break;
		if (data < 0) /* no holes to be told of here */
			data = at;
		hole = lseek(fd, data, SEEK_HOLE);
		if (hole < 0 || hole > size || f->m.n_extents == EXTENTS_MAX)
			hole = size;
		if (data >= size)
			break;
		r = add_extent(f, (uint64_t)data, (uint64_t)(hole - data));
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
	return varve_pread_full(fd, f->target, f->m.size, 0);
}

static int fill(const struct varve_seal_item *it, struct filled *f)
{
	struct stat st;
	int r;

	if (fstat(it->fd, &st) < 0)
		return -errno;
	f->m = (struct varve_member){.path = it->path,
				     .path_len = it->path_len,
				     .ino = it->ino,
				     .mode = st.st_mode,
				     .uid = st.st_uid,
				     .gid = st.st_gid,
				     .mtime_sec = st.st_mtim.tv_sec,
				     .mtime_nsec = (uint32_t)st.st_mtim.tv_nsec};
	if (it->mode != UINT32_MAX)
		f->m.mode = (f->m.mode & S_IFMT) | (it->mode & 07777);
	if (S_ISREG(st.st_mode))
		f->m.size = (uint64_t)st.st_size;
	if (it->is_link) {
		f->m.mode = S_IFLNK | 0777;
		return fill_link(it->fd, f);
	}
	r = fill_xattrs(it->fd, f);
	if (r == 0 && S_ISREG(st.st_mode))
		r = fill_extents(it->fd, f);
	return r;
}

/* -- one member into the encoder -- */

static int add_member(struct varve_segment_enc *enc, struct varve_seal_item *it,
		      struct varve_err *err)
{
	struct filled f = {.xattrs = NULL};
	struct stat st;
	bool file;
	int r = fill(it, &f);

	if (r < 0) {
		filled_done(&f);
		return varve_err_set(err, r, "'%.*s' can't be read: %s", (int)it->path_len,
				     it->path, strerror(-r));
	}
	file = S_ISREG(f.m.mode);
	if (file)
		(void)posix_fadvise(it->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	r = varve_segment_enc_add(enc, &f.m, file ? read_fd : NULL, &it->fd, NULL, err);
	if (r == 0 && file && (fstat(it->fd, &st) < 0 || (uint64_t)st.st_size != f.m.size))
		r = varve_err_set(err, -EAGAIN, "'%.*s' changed while it was being sealed",
				  (int)it->path_len, it->path);
	if (file)
		(void)posix_fadvise(it->fd, 0, 0, POSIX_FADV_DONTNEED);
	filled_done(&f);
	return r;
}

static int encode(struct out *o, const struct varve_seal_job *job, struct varve_segment_totals *ret,
		  struct varve_err *err)
{
	struct varve_segment_enc *enc = NULL;
	int r = varve_segment_enc_new(&job->params, out_sink, o, &enc, err);

	for (size_t i = 0; r == 0 && i < job->n; i++) {
		struct varve_seal_item it = {.fd = -1};

		if (job->params.cancel && *job->params.cancel) {
			r = -ECANCELED;
			break;
		}
		r = job->next(job->ctx, i, &it);
		if (r < 0)
			r = varve_err_set(err, r, "'%.*s' can't be opened: %s", (int)it.path_len,
					  it.path ? it.path : "", strerror(-r));
		else
			r = add_member(enc, &it, err);
		if (it.fd >= 0)
			(void)close(it.fd);
	}
	if (r == 0)
		r = varve_segment_enc_finish(enc, ret, err);
	varve_segment_enc_free(enc);
	return r;
}

/* -- reading back -- */

struct back {
	const struct varve_index *ix;
	int fd;
	struct varve_frame_dctx *dctx;
	unsigned char *comp, *raw;
	size_t comp_size, raw_size;
	uint32_t next;              /* the first frame that has not been decoded */
	struct varve_frame_info at; /* the frame in raw */
	uint32_t member;
	const volatile int *cancel;
};

static int decode_next(struct back *b)
{
	void *more;

	if (b->cancel && *b->cancel)
		return -ECANCELED;
	if (b->next == varve_index_frames(b->ix))
		return -EBADMSG;
	varve_index_frame(b->ix, b->next++, &b->at);
	if (b->at.comp_size > b->comp_size) {
		more = realloc(b->comp, b->at.comp_size);
		if (!more)
			return -ENOMEM;
		b->comp = more;
		b->comp_size = b->at.comp_size;
	}
	if (b->at.raw_size > b->raw_size) {
		more = realloc(b->raw, b->at.raw_size);
		if (!more)
			return -ENOMEM;
		b->raw = more;
		b->raw_size = b->at.raw_size;
	}
	int r = varve_pread_full(b->fd, b->comp, b->at.comp_size, b->at.comp_offset);

	return r < 0 ? r : varve_frame_decode(b->dctx, &b->at, b->comp, b->raw);
}

/* Reads member content; members come in the order of the stream, so frames are met in order, too.
 */
static ssize_t back_read(void *ctx, void *buf, size_t len, uint64_t off)
{
	struct back *b = ctx;
	size_t done = 0;

	while (done < len) {
		uint64_t tar, run;
		size_t n;

		varve_index_map(b->ix, b->member, off + done, &tar, &run);
		if (tar == UINT64_MAX)
			return -EBADMSG;
		while (b->next == 0 || tar >= b->at.raw_offset + b->at.raw_size) {
			int r = decode_next(b);

			if (r < 0)
				return r;
		}
		if (tar < b->at.raw_offset)
			return -EBADMSG;
		n = (size_t)(b->at.raw_offset + b->at.raw_size - tar);
		if (n > run)
			n = (size_t)run;
		if (n > len - done)
			n = len - done;
		memcpy((char *)buf + done, b->raw + (tar - b->at.raw_offset), n);
		done += n;
	}
	return (ssize_t)done;
}

static int compare_members(struct back *b, struct varve_err *err)
{
	struct varve_digest *d = varve_digest_new();
	cleanup_free void *buf = malloc(COPY_BYTES);
	int r = d && buf ? 0 : -ENOMEM;

	for (uint32_t i = 0; r == 0 && i < varve_index_count(b->ix); i++) {
		struct varve_member m;
		unsigned char digest[16];

		varve_index_member(b->ix, i, &m);
		b->member = i;
		r = varve_digest_member(d, &m, back_read, b, buf, COPY_BYTES, digest);
		if (r == 0 && memcmp(digest, m.digest, sizeof(digest)) != 0)
			r = -EBADMSG;
		if (r < 0 && r != -ECANCELED)
			(void)varve_err_set(err, r,
					    "'%.*s' read back from the new segment is not what was "
					    "written: %s",
					    (int)m.path_len, m.path, strerror(-r));
	}
	while (r == 0 && b->next < varve_index_frames(b->ix))
		r = decode_next(b);
	varve_digest_free(d);
	return r;
}

/* The index holds the digests of the parts as they were read; every byte of the segment is read
 * from the disk and held against them. */
static int read_back(int fd, uint64_t size, size_t n_members, const volatile int *cancel,
		     struct varve_err *err)
{
	struct varve_source src = {.read = read_fd, .ctx = &fd, .size = size};
	struct varve_index *ix = NULL;
	struct back b = {.fd = fd, .cancel = cancel};
	int r;

	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	r = varve_index_open(&src, &ix, err);
	if (r == 0 && varve_index_count(ix) != n_members)
		r = varve_err_set(err, -EBADMSG, "the new segment has %u members, not %zu",
				  varve_index_count(ix), n_members);
	b.ix = ix;
	b.dctx = varve_frame_dctx_new();
	if (r == 0)
		r = b.dctx ? compare_members(&b, err) : -ENOMEM;
	varve_frame_dctx_free(b.dctx);
	free(b.comp);
	free(b.raw);
	varve_index_free(ix);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return r;
}

int varve_seal_segment(int dirfd, const char *name, const struct varve_seal_job *job,
		       struct varve_segment_totals *ret, struct varve_err *err)
{
	cleanup_close int fd = -1;
	struct out o = {.size = 0};
	int r;

	if (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = varve_openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (fd < 0)
		return varve_err_set(err, fd, "'%s' can't be made: %s", name, strerror(-fd));
	o.fd = fd;
	r = encode(&o, job, ret, err);
	if (r == 0 && fsync(fd) < 0)
		r = varve_err_set(err, -errno, "'%s' can't be made durable: %s", name,
				  strerror(errno));
	if (r == 0)
		r = read_back(fd, o.size, job->n, job->params.cancel, err);
	if (r < 0)
		(void)unlinkat(dirfd, name, 0);
	return r;
}
