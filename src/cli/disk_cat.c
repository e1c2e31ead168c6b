#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "cli/disk_private.h"

#define COPY_BYTES ((size_t)1 << 20)

struct content {
	const struct varve_place_of *place;
	struct varve_tombs *tombs;
	int out_fd;
	bool found;
	uint64_t done; /* bytes of it that were written out */
	struct varve_err *err;
};

static int put_out(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t w = write(fd, p, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return -errno;
		p += w;
		n -= (size_t)w;
	}
	return 0;
}

static int not_a_file(const struct content *c, mode_t mode)
{
	return varve_err_set(c->err, S_ISDIR(mode) ? -EISDIR : -ELOOP, "'%s' is a %s",
			     c->place->text, S_ISDIR(mode) ? "directory" : "symbolic link");
}

static int cat_member(struct content *c, struct varve_segment *seg, uint32_t i,
		      const struct varve_member *m)
{
	cleanup_free char *buf = malloc(COPY_BYTES);
	int r = 0;

	if (!buf)
		return -ENOMEM;
	for (uint64_t off = c->done; off < m->size && r == 0;) {
		ssize_t n = varve_segment_pread(seg, i, buf, COPY_BYTES, off);

		if (n == -EBADMSG)
			return varve_err_set(c->err, -EBADMSG,
					     "'%s' is damaged at byte %llu; see: varve verify",
					     c->place->text, (unsigned long long)off);
		if (n <= 0)
			return n < 0 ? (int)n : -EBADMSG;
		r = put_out(c->out_fd, buf, (size_t)n);
		off += (uint64_t)n;
	}
	return r;
}

static int cat_sealed(struct varve_disk *d, const char *path, const char *cls, const char *name,
		      void *ctx)
{
	struct content *c = ctx;
	cleanup_free char *tablet = varve_disk_tablet_of(name);
	struct varve_segment *seg;
	struct varve_member m;
	uint32_t i;
	int r;

	if (!tablet)
		return 0;
	r = varve_segment_open(d->cache, d->fd, path, &seg, c->err);
	if (r < 0)
		return r;
	r = varve_index_find(varve_segment_index(seg), c->place->path, c->place->path_len, &i);
	if (r == 0)
		varve_index_member(varve_segment_index(seg), i, &m);
	if (r == -ENOENT ||
	    (r == 0 && c->tombs && varve_tombs_has(c->tombs, cls, tablet, m.path, m.path_len))) {
		r = 0;
	} else if (r == 0) {
		c->found = true;
		r = S_ISREG(m.mode) ? cat_member(c, seg, i, &m) : not_a_file(c, m.mode);
	}
	varve_segment_unref(seg);
	return r ? r : c->found;
}

/* -ESTALE: the bucket was sealed or dropped meanwhile. */
static int copy_out(const struct varve_disk *d, struct content *c, const char *bucket,
		    const struct varve_disk_part *part, int fd)
{
	cleanup_free char *buf = malloc(COPY_BYTES);
	ssize_t n;
	int r = 0;

	if (!buf)
		return -ENOMEM;
	while (r == 0 && (n = varve_disk_part_read(part, fd, buf, COPY_BYTES, c->done)) != 0) {
		if (n < 0)
			return (int)n;
		if (part->range && !varve_disk_still_plain(d, bucket))
			return -ESTALE;
		r = put_out(c->out_fd, buf, (size_t)n);
		c->done += (uint64_t)n;
	}
	return r;
}

static int cat_plain(struct varve_disk *d, const char *folder, const char *cls, const char *tablet,
		     void *ctx)
{
	struct content *c = ctx;
	cleanup_free char *full = NULL, *target = NULL;
	cleanup_close int fd = -1;
	struct varve_disk_part part = {.late_fd = -1};
	struct stat st;
	int r = 0;

	(void)tablet;
	if (asprintf(&full, "%s/%.*s", folder, (int)c->place->path_len, c->place->path) < 0)
		return -ENOMEM;
	fd = varve_openat(d->fd, full, O_RDONLY | O_NONBLOCK, 0);
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return fd < 0 ? fd : -errno;
	c->found = true;
	target = S_ISREG(st.st_mode) ? varve_disk_link_target(fd, st.st_size) : NULL;
	if (!S_ISREG(st.st_mode) || target)
		return not_a_file(c, target ? S_IFLNK : S_IFDIR);
	part.end = part.size = (uint64_t)st.st_size;
	if (cls)
		r = varve_disk_part(d, c->place->bucket->name, fd, &st, &part);
	if (r == 0)
		r = copy_out(d, c, cls ? c->place->bucket->name : NULL, &part, fd);
	if (part.late_fd >= 0)
		(void)close(part.late_fd);
	if (r == -ESTALE) {
		/* Goes on from where it is read now. */
		c->found = false;
		r = -ENOENT;
	}
	return r ? r : 1;
}

/* 1: found and written out, 0: not there. */
static int cat_place(struct varve_disk *d, struct content *c)
{
	int r = varve_disk_tombs(d, c->place, &c->tombs, c->err);

	if (r == 0 && c->place->bucket)
		r = varve_disk_each_tablet(d, c->place, cat_sealed, cat_plain, c);
	if (r == 0 && c->place->current)
		r = cat_plain(d, "tree", NULL, NULL, c);
	varve_tombs_close(c->tombs);
	c->tombs = NULL;
	return r;
}

int varve_disk_cat(struct varve_disk *d, const char *text, int out_fd, struct varve_err *err)
{
	struct varve_place_of place;
	struct content c = {.place = &place, .out_fd = out_fd, .err = err};
	int r = 0;

	for (int attempt = 0; attempt < 2; attempt++) {
		r = varve_disk_place(d, text, &place, err);
		if (r == 0 && !place.path_len)
			return not_a_file(&c, S_IFDIR);
		if (r == 0)
			r = cat_place(d, &c);
		/* Once something was written out, it must not be written again. */
		if (c.found || (r != 0 && r != -ENOENT) || varve_disk_scan(d) < 0)
			break;
	}
	if (r > 0)
		return 0;
	if (r == 0 || (r == -ENOENT && !err->msg[0]))
		return varve_err_set(err, -ENOENT, "'%s' is not there", text);
	if (!err->msg[0])
		(void)varve_err_wrap(err, r, "read '%s'", text);
	return r;
}
