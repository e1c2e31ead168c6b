#include "store/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/sync.h"
#include "base/sys.h"
#include "store/cache_private.h"

#define STREAMS 8
#define LARGE_INDEX_BYTES ((size_t)256 << 10)
/* The kernel reads ahead by itself, with several requests under way: they come somewhat out of
 * order. */
#define JITTER_BYTES (UINT64_C(2) << 20)
#define AHEAD_AFTER (UINT64_C(384) << 10) /* bytes read in order; `file` and `head` stay below */

/* Somebody who reads in order, or may turn out to. */
struct stream {
	uint64_t next;   /* tar offset behind the last byte that was read */
	uint64_t run;    /* bytes read in order */
	uint64_t used;   /* the count of reads at its last one; 0: free */
	uint32_t member; /* the file */
	bool across;     /* went on from file to file: a walk through the bucket */
};

struct varve_segment {
	struct varve_frame_source src;

	/* -- immutable once open -- */
	struct varve_index *index;
	char *path;
	uint64_t allocated;

	atomic_uint refs;

	pthread_mutex_t lock; /* a leaf, like "cache": the streams */
	struct stream streams[STREAMS];
	uint64_t reads;
};

/* -- opening and closing -- */

static ssize_t read_fd(void *ctx, void *buf, size_t len, uint64_t off)
{
	const int *fd = ctx;
	ssize_t n;

	do
		n = pread(*fd, buf, len, (off_t)off);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static struct varve_segment *segment_of(struct varve_frame_source *src)
{
	return (struct varve_segment *)((char *)src - offsetof(struct varve_segment, src));
}

static void free_segment(struct varve_segment *seg)
{
	if (seg->src.fd >= 0)
		(void)close(seg->src.fd);
	varve_index_free(seg->index);
	(void)pthread_mutex_destroy(&seg->lock);
	free(seg->path);
	free(seg);
}

static void segment_gone(struct varve_frame_source *src)
{
	free_segment(segment_of(src));
}

/* Says which frame failed, and what of which files can't be read now. */
static void frame_failed(struct varve_frame_source *src, uint32_t k, int error)
{
	const struct varve_segment *seg = segment_of(src);
	uint64_t off = 0, len = 0, from, length;
	struct varve_member m = {.path = NULL};
	struct varve_frame_info f;
	uint32_t files = 0, n = varve_index_count(seg->index);
	const char *why = error == -EBADMSG ? "is damaged" : strerror(-error);
	char more[48] = "";

	varve_index_frame(seg->index, k, &f);
	for (uint32_t i = 0; i < n; i++) {
		if (!varve_segment_covers(seg->index, i, &f, &from, &length))
			continue;
		if (files++ > 0)
			continue;
		varve_index_member(seg->index, i, &m);
		off = from;
		len = length;
	}
	if (files == 0) {
		varve_error("segment '%s': frame %" PRIu32
			    " can't be read (%s); no file's content is "
			    "in it",
			    seg->path, k, why);
		return;
	}
	if (files > 1)
		(void)snprintf(more, sizeof(more), " and of %" PRIu32 " more", files - 1);
	varve_error("segment '%s': frame %" PRIu32 " can't be read (%s): bytes %" PRIu64
		    " to %" PRIu64 " of '%.*s'%s are lost to readers",
		    seg->path, k, why, off, off + len - 1, (int)m.path_len, m.path, more);
}

static int open_file(int dirfd, const char *path, struct stat *ret, struct varve_err *err)
{
	int fd = varve_openat(dirfd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	int r;

	if (fd < 0)
		return varve_err_wrap(err, fd, "open");
	if (fstat(fd, ret) < 0)
		r = varve_err_wrap(err, -errno, "stat");
	else if (!S_ISREG(ret->st_mode))
		r = varve_err_set(err, -EBADMSG, "not a regular file");
	else
		return fd;
	(void)close(fd);
	return r;
}

static int load_segment(struct varve_segment *seg, int dirfd, const char *path,
			struct varve_err *err)
{
	struct varve_source from = {.read = read_fd, .ctx = &seg->src.fd};
	struct stat st;
	int r;

	seg->path = strdup(path);
	if (!seg->path)
		return -ENOMEM;
	seg->src.fd = open_file(dirfd, path, &st, err);
	if (seg->src.fd < 0)
		return seg->src.fd;
	seg->allocated = (uint64_t)st.st_blocks * 512;
	from.size = (uint64_t)st.st_size;
	r = varve_index_open(&from, &seg->index, err);
	if (r < 0)
		return r;
	seg->src.index = seg->index;
	return varve_cache_attach(&seg->src);
}

int varve_segment_open(struct varve_cache *cache, int dirfd, const char *path,
		       struct varve_segment **ret, struct varve_err *err)
{
	struct varve_segment *seg = calloc(1, sizeof(*seg));
	int r;

	if (!seg)
		return -ENOMEM;
	(void)pthread_mutex_init(&seg->lock, NULL);
	atomic_init(&seg->refs, 1);
	seg->src = (struct varve_frame_source){
		.cache = cache, .fd = -1, .failed = frame_failed, .gone = segment_gone};
	r = load_segment(seg, dirfd, path, err);
	if (r < 0) {
		free_segment(seg);
		return r;
	}
	*ret = seg;
	return 0;
}

struct varve_segment *varve_segment_ref(struct varve_segment *seg)
{
	(void)atomic_fetch_add_explicit(&seg->refs, 1, memory_order_relaxed);
	return seg;
}

void varve_segment_unref(struct varve_segment *seg)
{
	struct stat st;

	if (!seg || atomic_fetch_sub_explicit(&seg->refs, 1, memory_order_acq_rel) > 1)
		return;
	/* Neither blocks of the disk nor much memory are given back by whoever happens to be last: that
	 * may be an rmdir of the bucket. */
	varve_cache_detach(&seg->src, varve_index_memory(seg->index) > LARGE_INDEX_BYTES ||
					      (fstat(seg->src.fd, &st) == 0 && st.st_nlink == 0));
}

const struct varve_index *varve_segment_index(const struct varve_segment *seg)
{
	return seg->index;
}

uint64_t varve_segment_allocated(const struct varve_segment *seg)
{
	return seg->allocated;
}

uint64_t varve_segment_faults(const struct varve_segment *seg)
{
	/* The count is under the cache's lock. */
	return varve_cache_source_faults((struct varve_frame_source *)&seg->src);
}

/* -- where things are -- */

/* Where member i's content begins in the tar stream, and how many bytes of it there are (holes are
 * not among them); false for what has none. */
static bool content_place(const struct varve_index *ix, uint32_t i, struct varve_member *m,
			  uint64_t *ret_tar, uint64_t *ret_len)
{
	const struct varve_extent *last;
	uint64_t tar, run;

	varve_index_member(ix, i, m);
	if (!S_ISREG(m->mode) || m->n_extents == 0)
		return false;
	/* One extent stands right behind the other. */
	varve_index_map(ix, i, m->extents[0].offset, ret_tar, &run);
	last = &m->extents[m->n_extents - 1];
	varve_index_map(ix, i, last->offset, &tar, &run);
	*ret_len = tar + last->length - *ret_tar;
	return true;
}

/* The file offset of content byte `at` (counted without holes); at is within the content. */
static uint64_t content_to_file(const struct varve_member *m, uint64_t at)
{
	uint32_t x = 0;

	for (; at >= m->extents[x].length; x++)
		at -= m->extents[x].length;
	return m->extents[x].offset + at;
}

bool varve_segment_covers(const struct varve_index *ix, uint32_t i,
			  const struct varve_frame_info *f, uint64_t *ret_off, uint64_t *ret_len)
{
	struct varve_member m;
	uint64_t tar, len, from, to;

	if (!content_place(ix, i, &m, &tar, &len))
		return false;
	from = tar > f->raw_offset ? tar : f->raw_offset;
	to = f->raw_offset + f->raw_size;
	if (to > tar + len)
		to = tar + len;
	if (from >= to)
		return false;
	*ret_off = content_to_file(&m, from - tar);
	*ret_len = content_to_file(&m, to - 1 - tar) + 1 - *ret_off;
	return true;
}

/* A place in the tar stream as a place among the compressed bytes. */
static uint64_t compressed_place(const struct varve_index *ix, uint64_t tar)
{
	struct varve_frame_info f;

	varve_index_frame(ix, varve_index_frame_at(ix, tar), &f);
	return f.comp_offset + (tar - f.raw_offset) * f.comp_size / f.raw_size;
}

uint64_t varve_segment_share(const struct varve_segment *seg, uint32_t i)
{
	struct varve_member m;
	uint64_t tar, len, share;

	if (!content_place(seg->index, i, &m, &tar, &len))
		return 0;
	share = compressed_place(seg->index, tar + len) - compressed_place(seg->index, tar);
	return share > 0 ? share : 1;
}

/* -- reading -- */

static bool near(uint64_t a, uint64_t b)
{
	return a > b ? a - b <= JITTER_BYTES : b - a <= JITTER_BYTES;
}

/* The stream that a read at tar of file i goes on with, else the least recently used, begun anew.
 */
static struct stream *find_stream(struct varve_segment *seg, uint32_t i, uint64_t tar)
{
	struct stream *oldest = &seg->streams[0];

	for (size_t s = 0; s < STREAMS; s++) {
		struct stream *st = &seg->streams[s];

		if (st->used > 0 && near(st->next, tar) && (st->member == i || st->next <= tar))
			return st;
		if (st->used < oldest->used)
			oldest = st;
	}
	*oldest = (struct stream){.next = tar, .member = i};
	return oldest;
}

/* Notes a read of len bytes at tar in file i; for one who reads in order, asks for what comes next,
 * within the file or, when files are read one after the other, beyond. */
static void note_read(struct varve_segment *seg, uint32_t i, uint64_t tar, uint64_t len)
{
	uint32_t k, last, most = 2 * varve_cache_threads(seg->src.cache);
	uint64_t run, start, size;
	struct varve_member m;
	bool across;

	{
		struct stream *st;
		uint64_t behind = tar + len;

		guard(&seg->lock);
		st = find_stream(seg, i, tar);
		if (st->member != i)
			st->across = true;
		if (behind > st->next) {
			st->run += behind - st->next < len ? behind - st->next : len;
			st->next = behind;
		}
		st->member = i;
		st->used = ++seg->reads;
		run = st->run;
		across = st->across;
		tar = st->next - 1;
	}
	if (run < AHEAD_AFTER || !content_place(seg->index, i, &m, &start, &size))
		return;
	last = across ? varve_index_frames(seg->index) - 1
		      : varve_index_frame_at(seg->index, start + size - 1);
	k = varve_index_frame_at(seg->index, tar);
	/* The longer it has gone on, the further ahead. */
	if (run / VARVE_FRAME_BYTES + 1 < most)
		most = (uint32_t)(run / VARVE_FRAME_BYTES) + 1;
	if (last > k && last - k > most)
		last = k + most;
	if (last > k)
		varve_cache_ahead(&seg->src, k + 1, last);
}

/* Copies up to len bytes at tar, all of one frame: how many, or the frame's error. */
static ssize_t read_frame(struct varve_segment *seg, uint64_t tar, void *buf, uint64_t len)
{
	uint32_t k = varve_index_frame_at(seg->index, tar);
	struct varve_frame_info info;
	struct varve_frame *f;
	uint64_t left;
	int r = varve_cache_get(&seg->src, k, &f);

	if (r < 0)
		return r;
	varve_index_frame(seg->index, k, &info);
	left = info.raw_offset + info.raw_size - tar;
	if (len > left)
		len = left;
	memcpy(buf, varve_frame_bytes(f) + (tar - info.raw_offset), (size_t)len);
	varve_cache_put(f, (size_t)len);
	return (ssize_t)len;
}

ssize_t varve_segment_pread(struct varve_segment *seg, uint32_t i, void *buf, size_t len,
			    uint64_t off)
{
	struct varve_member m;
	bool noted = false;
	size_t done = 0;

	varve_index_member(seg->index, i, &m);
	if (!S_ISREG(m.mode))
		return S_ISDIR(m.mode) ? -EISDIR : -EINVAL;
	if (off >= m.size)
		return 0;
	if (len > m.size - off)
		len = (size_t)(m.size - off);
	if (len > SSIZE_MAX)
		len = SSIZE_MAX;
	while (done < len) {
		uint64_t tar, run;
		ssize_t n;

		varve_index_map(seg->index, i, off + done, &tar, &run);
		if (run > len - done)
			run = len - done;
		if (tar == UINT64_MAX) {
			memset((char *)buf + done, 0, (size_t)run);
			done += (size_t)run;
			continue;
		}
		if (!noted)
			note_read(seg, i, tar, run);
		noted = true;
		n = read_frame(seg, tar, (char *)buf + done, run);
		if (n < 0)
			return done > 0 ? (ssize_t)done : n;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

void varve_view_done(struct varve_view *v)
{
	for (unsigned i = 0; i < v->n; i++)
		varve_cache_put(v->frame[i], v->piece[i].iov_len);
	varve_segment_unref(v->seg);
	v->seg = NULL;
	v->n = 0;
}

ssize_t varve_segment_view(struct varve_segment *seg, uint32_t i, size_t len, uint64_t off,
			   struct varve_view *ret)
{
	struct varve_member m;
	uint64_t tar, run;

	varve_index_member(seg->index, i, &m);
	if (!S_ISREG(m.mode) || off >= m.size)
		return -EAGAIN;
	if (len > m.size - off)
		len = (size_t)(m.size - off);
	varve_index_map(seg->index, i, off, &tar, &run);
	if (len == 0 || tar == UINT64_MAX || run < len)
		return -EAGAIN;
	note_read(seg, i, tar, len);
	*ret = (struct varve_view){.seg = varve_segment_ref(seg)};
	for (size_t left = len; left > 0;) {
		uint32_t k = varve_index_frame_at(seg->index, tar);
		struct varve_frame_info info;
		struct varve_frame *f;
		size_t n;

		if (ret->n == 2 || (ret->n ? varve_cache_get_another(&seg->src, k, &f)
					   : varve_cache_get(&seg->src, k, &f)) < 0) {
			varve_view_done(ret);
			return -EAGAIN;
		}
		varve_index_frame(seg->index, k, &info);
		n = (size_t)(info.raw_offset + info.raw_size - tar);
		if (n > left)
			n = left;
		ret->frame[ret->n] = f;
		ret->piece[ret->n++] = (struct iovec){
			(void *)(uintptr_t)(varve_frame_bytes(f) + (tar - info.raw_offset)), n};
		tar += n;
		left -= n;
	}
	return (ssize_t)len;
}

ssize_t varve_segment_view_around(struct varve_segment *seg, uint32_t i, uint64_t off,
				  struct varve_view *ret, uint64_t *ret_off)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), tar, run, from, to;
	struct varve_frame_info info;
	struct varve_member m;
	struct varve_frame *f;
	uint32_t k;

	varve_index_member(seg->index, i, &m);
	if (!S_ISREG(m.mode) || off >= m.size || m.n_extents != 1 || m.extents[0].offset != 0 ||
	    m.extents[0].length != m.size)
		return -EAGAIN;
	varve_index_map(seg->index, i, off, &tar, &run);
	k = varve_index_frame_at(seg->index, tar);
	varve_index_frame(seg->index, k, &info);
	from = off > tar - info.raw_offset ? off - (tar - info.raw_offset) : 0;
	from = (from + page - 1) / page * page;
	to = off + (info.raw_offset + info.raw_size - tar);
	to = to >= m.size ? m.size : to / page * page;
	if (to <= from + page || varve_cache_lend(&seg->src, k, (uint64_t)i + 1, &f) < 0)
		return -EAGAIN;
	*ret = (struct varve_view){.seg = varve_segment_ref(seg), .n = 1, .frame = {f}};
	/* As file offsets go on, so does the tar stream. */
	ret->piece[0] = (struct iovec){(void *)(uintptr_t)(varve_frame_bytes(f) +
							   (tar + from - off - info.raw_offset)),
				       (size_t)(to - from)};
	*ret_off = from;
	return (ssize_t)(to - from);
}

bool varve_segment_ready(struct varve_segment *seg, uint32_t i, size_t len, uint64_t off)
{
	struct varve_member m;
	uint64_t end;

	varve_index_member(seg->index, i, &m);
	if (!S_ISREG(m.mode) || off >= m.size)
		return true;
	end = len < m.size - off ? off + len : m.size;
	while (off < end) {
		uint64_t tar, run;

		varve_index_map(seg->index, i, off, &tar, &run);
		if (run > end - off)
			run = end - off;
		for (uint64_t at = tar; tar != UINT64_MAX && at < tar + run;) {
			uint32_t k = varve_index_frame_at(seg->index, at);
			struct varve_frame_info info;

			if (!varve_cache_has(&seg->src, k))
				return false;
			varve_index_frame(seg->index, k, &info);
			at = info.raw_offset + info.raw_size;
		}
		off += run;
	}
	return true;
}
