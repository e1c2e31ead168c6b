#include "store/content.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "store/file.h"
#include "store/native.h"
#include "store/part.h"

#define LATE_FOLDER ".late"

/* Where the part ends, as far as it is known without asking it. */
static uint64_t part_end(const struct varve_node *f, const struct varve_part *part)
{
	struct stat st;

	if (part && f->native && f->native->by_kernel && fstat(part->fd, &st) == 0)
		return (uint64_t)st.st_size;
	return f->size;
}

int varve_content_last(struct varve_node *f, struct varve_part *part)
{
	unsigned char c = '\n';

	if (f->last < 0) {
		if (f->size && varve_pread_full(part->fd, &c, 1, f->size - 1) < 0)
			c = '\n';
		f->last = c;
	}
	return f->last;
}

/* A daemon-served writer that was there before the boundary may still finish its line in f. */
static bool line_is_open(struct varve_node *f, struct varve_part *part)
{
	/* Of a carried part the mark knows. */
	if (f->native && f->native->end)
		return false;
	return f->succ && !f->bucket->shut && part && f->size && f->late < VARVE_LINE_MAX &&
	       varve_content_last(f, part) != '\n';
}

void varve_content_now(struct varve_node *f, struct varve_part *part, struct varve_content *ret)
{
	struct varve_native *nat = f->native;
	int fd = part ? part->fd : -1;
	bool open = false;

	*ret = (struct varve_content){.open_ended = true};
	if (nat && nat->head)
		ret->head = varve_mark_now(nat->head, fd, &ret->pending);
	if (nat && nat->end) {
		ret->end = varve_mark_now(nat->end, fd, &open);
		ret->open_ended = false;
	} else {
		ret->end = part_end(f, part);
	}
	if (ret->pending || ret->end < ret->head)
		ret->end = ret->head;
	if (nat && nat->late && !open && !line_is_open(f, part))
		ret->late = nat->late_size;
}

uint64_t varve_content_size(struct varve_node *f, struct varve_part *part)
{
	struct varve_content c;

	guard(&f->lock);
	varve_content_now(f, part, &c);
	return c.end - c.head + c.late;
}

uint64_t varve_content_guess(const struct varve_node *f)
{
	const struct varve_native *nat = f->native;
	uint64_t head = 0, end = f->size;
	bool pending;

	if (!nat)
		return end;
	if (nat->head)
		head = varve_mark_at(nat->head, &pending);
	if (nat->end)
		end = varve_mark_at(nat->end, &pending);
	return (end > head ? end - head : 0) + nat->late_size;
}

static ssize_t read_at(int fd, void *buf, size_t size, uint64_t off)
{
	ssize_t n;

	do
		n = pread(fd, buf, size, (off_t)off);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* What of n bytes read at off belongs to f after all: a boundary may have passed since. -EAGAIN: it has begun anew. */
static ssize_t clamp(struct varve_node *f, struct varve_part *part, uint64_t head, uint64_t off, ssize_t n)
{
	struct varve_content c;

	if (n <= 0)
		return n;
	guard(&f->lock);
	varve_content_now(f, part, &c);
	if (c.head != head)
		return -EAGAIN;
	if (c.open_ended)
		return n;
	if (c.head + off >= c.end)
		return 0;
	return c.end - c.head - off < (uint64_t)n ? (ssize_t)(c.end - c.head - off) : n;
}

static ssize_t read_once(struct varve_node *f, struct varve_part *part, void *buf, size_t size,
			 uint64_t off)
{
	struct varve_content c;
	struct varve_part *late = NULL;
	uint64_t len;
	ssize_t n;

	if (!f->native)
		return clamp(f, part, 0, off, read_at(part->fd, buf, size, off));
	{
		guard(&f->lock);
		varve_content_now(f, part, &c);
		if (c.late)
			late = varve_part_ref(f->native->late);
	}
	len = c.end - c.head;
	varve_pause_point("read.part");
	if (off < len) {
		n = read_at(part->fd, buf, size < len - off ? size : (size_t)(len - off), c.head + off);
		n = clamp(f, part, c.head, off, n);
	} else {
		n = 0;
	}
	if (n >= 0 && late && off + (uint64_t)n >= len && (size_t)n < size) {
		uint64_t at = off + (uint64_t)n - len, left = at < c.late ? c.late - at : 0;
		ssize_t more = read_at(late->fd, (char *)buf + n,
				       size - (size_t)n < left ? size - (size_t)n : (size_t)left, at);

		n = more > 0 ? n + more : n ? n : more;
	}
	varve_part_unref(late);
	return n;
}

ssize_t varve_content_read(struct varve_node *f, struct varve_part *part, void *buf, size_t size,
			   uint64_t off)
{
	ssize_t n;

	do
		n = read_once(f, part, buf, size, off);
	while (n == -EAGAIN);
	return n;
}

/* -- late data -- */

bool varve_content_needs_late(struct varve_node *f, struct varve_part *part)
{
	return (f->native && (f->native->end || f->native->late)) || line_is_open(f, part);
}

/* "BUCKET/.late/INO" below open/. */
static void late_path(const struct varve_node *f, char *buf, size_t size)
{
	(void)snprintf(buf, size, "%s/" LATE_FOLDER "/%llu", f->bucket->name,
		       (unsigned long long)f->ino);
}

static int make_late(struct varve_store *s, struct varve_node *f)
{
	struct varve_part_spec spec = {.mode = 0600, .uid = geteuid(), .gid = getegid(), .ino = f->ino,
				       .template_fd = -1};
	char path[VARVE_BUCKET_NAME_MAX + 64];
	struct varve_native *nat;
	struct varve_part *part;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/" LATE_FOLDER, f->bucket->name);
	if (mkdirat(s->open_fd, path, 0700) < 0 && errno != EEXIST)
		return -errno;
	late_path(f, path, sizeof(path));
	fd = varve_part_create(s->meta_fd, s->open_fd, path, &spec, NULL, 0);
	if (fd < 0)
		return fd;
	part = varve_part_new(fd);
	if (!part)
		return -ENOMEM;
	guard(&s->ns);
	nat = varve_native_of(f);
	if (!nat) {
		varve_native_close_later(s, part);
		return -ENOMEM;
	}
	nat->late = part;
	return 0;
}

ssize_t varve_content_append_late(struct varve_store *s, struct varve_node *f, const void *buf,
				  size_t size)
{
	ssize_t n;

	guard(&f->lock);
	if (!f->native || !f->native->late) {
		int r = make_late(s, f);

		if (r < 0)
			return r;
	}
	n = varve_part_append(f->native->late, buf, size);
	if (n > 0) {
		(void)atomic_fetch_add(&f->bucket->allocated,
				       varve_blocks_of(f->native->late_size + (uint64_t)n) -
					       varve_blocks_of(f->native->late_size));
		f->native->late_size += (uint64_t)n;
		guard(&s->ns);
		(void)clock_gettime(CLOCK_REALTIME, &f->attr.st_mtim);
	}
	return n;
}

bool varve_content_has_late(struct varve_store *s, const char *name)
{
	char path[VARVE_BUCKET_NAME_MAX + 16];

	(void)snprintf(path, sizeof(path), "%s/" LATE_FOLDER, name);
	return faccessat(s->open_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int varve_content_load_late(struct varve_store *s, struct varve_node *f)
{
	char path[VARVE_BUCKET_NAME_MAX + 64];
	struct varve_part *part;
	struct stat st;
	int fd;

	late_path(f, path, sizeof(path));
	fd = varve_part_open(s->open_fd, path);
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	if (fstat(fd, &st) < 0) {
		(void)close(fd);
		return -errno;
	}
	part = varve_part_new(fd);
	if (!part)
		return -ENOMEM;
	guard(&s->ns);
	if (!varve_native_of(f)) {
		varve_native_close_later(s, part);
		return -ENOMEM;
	}
	f->native->late = part;
	f->native->late_size = (uint64_t)st.st_size;
	(void)atomic_fetch_add(&f->bucket->allocated, (uint64_t)st.st_blocks * 512);
	return 0;
}

int varve_content_copy(struct varve_store *s, struct varve_node *f, struct varve_part *part)
{
	cleanup_close int fd = varve_part_unnamed(s->meta_fd);
	cleanup_free char *buf = malloc(1 << 20);
	uint64_t off = 0;
	ssize_t n;

	if (fd < 0)
		return fd;
	if (!buf)
		return -ENOMEM;
	while ((n = varve_content_read(f, part, buf, 1 << 20, off)) > 0) {
		int r = varve_pwrite_full(fd, buf, (size_t)n, off);

		if (r < 0)
			return r;
		off += (uint64_t)n;
	}
	return n < 0 ? (int)n : steal_fd(&fd);
}
