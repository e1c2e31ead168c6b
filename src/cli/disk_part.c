/* Parts as the files that they are in their bucket, read from the disk. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/clock.h"
#include "cli/disk_private.h"
#include "store/mark.h"

#define XATTR_INO "user.varve.ino" /* decimal */
#define XATTR_OPENED "user.varve.opened"

static uint64_t number_of(int fd)
{
	char text[24];
	ssize_t n = fgetxattr(fd, XATTR_INO, text, sizeof(text) - 1);

	if (n <= 0)
		return 0;
	text[n] = '\0';
	return strtoull(text, NULL, 10);
}

bool varve_disk_is_opened(int fd)
{
	return fgetxattr(fd, XATTR_OPENED, NULL, 0) >= 0;
}

/* A mark of the record in a part that may be shorter than it says, if power was lost. */
static int mark_in(int fd, uint64_t at, bool pending, uint64_t size, uint64_t *ret, bool *ret_pending)
{
	struct varve_mark *m;

	*ret_pending = false;
	*ret = at < size ? at : size;
	if (!pending || at > size)
		return 0;
	m = varve_mark_new(at, true);
	if (!m)
		return -ENOMEM;
	*ret = varve_mark_now(m, fd, ret_pending);
	varve_mark_unref(m);
	return 0;
}

static int apply(const struct varve_range *e, int fd, struct stat *st, struct varve_disk_part *p,
		 bool *ret_growing)
{
	const uint64_t size = p->end;
	bool pending;
	int r = mark_in(fd, e->head, e->head_pending, size, &p->head, &pending);

	if (r == 0 && e->end != UINT64_MAX) {
		r = mark_in(fd, e->end, e->end_pending, size, &p->end, ret_growing);
		st->st_mode = S_IFREG | e->mode;
		st->st_uid = e->uid;
		st->st_gid = e->gid;
		st->st_mtim.tv_sec = (time_t)(e->mtime_ns / VARVE_NS_PER_S);
		st->st_mtim.tv_nsec = (long)(e->mtime_ns % VARVE_NS_PER_S);
		if (st->st_mtim.tv_nsec < 0) {
			st->st_mtim.tv_sec--;
			st->st_mtim.tv_nsec += VARVE_NS_PER_S;
		}
	}
	/* What is there belongs to the older bucket still. */
	if (pending || p->end < p->head)
		p->end = p->head;
	return r;
}

static int open_late(struct varve_disk *d, const char *bucket, uint64_t ino, struct varve_disk_part *p)
{
	char path[VARVE_BUCKET_NAME_MAX + 40];
	cleanup_close int fd = -1;
	struct stat st;

	(void)snprintf(path, sizeof(path), "open/%s/.late/%llu", bucket, (unsigned long long)ino);
	fd = varve_openat(d->fd, path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0);
	if (fd == -ENOENT || fd == -ENOTDIR)
		return 0;
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	p->size += (uint64_t)st.st_size;
	p->late_fd = steal_fd(&fd);
	return 0;
}

int varve_disk_part(struct varve_disk *d, const char *bucket, int fd, struct stat *st,
		    struct varve_disk_part *ret)
{
	uint64_t number = number_of(fd);
	bool growing = false;
	int r = 0;

	*ret = (struct varve_disk_part){.late_fd = -1, .end = (uint64_t)st->st_size};
	if (number)
		ret->range = varve_ranges_find(&d->ranges, bucket, number);
	if (ret->range)
		r = apply(ret->range, fd, st, ret, &growing);
	ret->size = ret->end - ret->head;
	/* Behind a line that is not finished yet it would be in the middle of it. */
	if (r == 0 && number && !growing)
		r = open_late(d, bucket, ret->range ? ret->range->ino : number, ret);
	st->st_size = (off_t)ret->size;
	return r;
}

ssize_t varve_disk_part_read(const struct varve_disk_part *p, int fd, void *buf, size_t size,
			     uint64_t off)
{
	uint64_t len = p->end - p->head, at = p->head + off;
	ssize_t n;

	if (off >= p->size)
		return 0;
	if (off >= len) {
		fd = p->late_fd;
		at = off - len;
		len = p->size;
	}
	if (size > len - off)
		size = (size_t)(len - off);
	do
		n = pread(fd, buf, size, (off_t)at);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

bool varve_disk_still_plain(const struct varve_disk *d, const char *bucket)
{
	char path[VARVE_BUCKET_NAME_MAX + 16];
	struct stat st;

	(void)snprintf(path, sizeof(path), "open/%s", bucket);
	if (fstatat(d->fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	(void)snprintf(path, sizeof(path), "sealed/%s", bucket);
	return fstatat(d->fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0;
}
