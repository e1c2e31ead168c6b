#include "cli/offline.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "cli/cli.h"
#include "cli/disk_private.h"
#include "control/status_json.h"
#include "store/policy.h"
#include "store/retention.h"

#define CONF_BYTES_MAX ((size_t)1 << 20)

struct counting {
	struct varve_disk *d;
	struct varve_bucket_status *b;
	uint64_t allocated;
};

/* -- sizes -- */

/* Of a part that several buckets share, the bucket's range of it counts. */
static int count_file(int dir_fd, const char *name, struct stat *st, struct counting *c)
{
	struct varve_disk_part part = {.late_fd = -1};
	uint64_t allocated = (uint64_t)st->st_blocks * 512;
	cleanup_close int fd = -1;

	if (c->b && (c->d->ranges.n || st->st_size == 0))
		fd = varve_openat(dir_fd, name, O_RDONLY | O_NONBLOCK, 0);
	if (fd >= 0) {
		int r = varve_disk_part(c->d, c->b->name, fd, st, &part);

		if (part.late_fd >= 0)
			(void)close(part.late_fd);
		if (r < 0)
			return r;
		if (part.range)
			allocated = (part.size + 4095) & ~UINT64_C(4095);
	}
	c->allocated += allocated;
	if (c->b && !(fd >= 0 && st->st_size == 0 && varve_disk_is_opened(fd))) {
		c->b->files++;
		c->b->bytes += (uint64_t)st->st_size;
	}
	return 0;
}

/* Adds what is below a folder (fd is taken over): regular files, their bytes, and what all of it
 * takes. */
static int count_folder(int fd, struct counting *c)
{
	cleanup_closedir DIR *dir = fdopendir(fd);
	const struct dirent *e;
	int r = 0;

	if (!dir) {
		(void)close(fd);
		return -errno;
	}
	while (r == 0 && (errno = 0, e = readdir(dir))) {
		struct stat st;
		int child;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
		    fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (S_ISREG(st.st_mode))
			r = count_file(dirfd(dir), e->d_name, &st, c);
		else
			c->allocated += (uint64_t)st.st_blocks * 512;
		if (!S_ISDIR(st.st_mode))
			continue;
		child = varve_openat(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY, 0);
		r = child < 0 ? child : count_folder(child, c);
	}
	return r ? r : -errno;
}

static int count_path(struct varve_disk *d, const char *path, struct counting *c)
{
	int fd = varve_openat(d->fd, path, O_RDONLY | O_DIRECTORY, 0);

	c->d = d;
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	return count_folder(fd, c);
}

static int count_parts(struct varve_disk *d, const char *path, const char *class_name,
		       const char *tablet, void *ctx)
{
	(void)class_name;
	(void)tablet;
	return count_path(d, path, ctx);
}

static int count_segment(struct varve_disk *d, const char *path, const char *class_name,
			 const char *name, void *ctx)
{
	struct counting *c = ctx;
	cleanup_free char *tablet = varve_disk_tablet_of(name);
	struct varve_segment_params about;
	struct varve_segment_totals totals;
	struct varve_segment *seg;

	(void)class_name;
	if (!tablet)
		return 0;
	if (varve_segment_open(d->cache, d->fd, path, &seg, NULL) < 0) {
		c->b->damaged = true;
		return 0;
	}
	varve_index_about(varve_segment_index(seg), &about, &totals);
	c->b->files += totals.files;
	c->b->bytes += totals.content_bytes;
	c->allocated += varve_segment_allocated(seg);
	varve_segment_unref(seg);
	return 0;
}

static int fill_bucket(struct varve_disk *d, const struct varve_disk_bucket *from,
		       struct varve_bucket_status *b)
{
	struct varve_place_of place = {.bucket = from};
	struct counting c = {.b = b};
	char path[64];
	struct stat st;
	int r;

	*b = (struct varve_bucket_status){.class_name = "default",
					  .state = from->state,
					  .start_ns = from->start_ns,
					  .end_ns = from->end_ns,
					  .goes_ns = INT64_MAX};
	(void)snprintf(b->name, sizeof(b->name), "%s", from->name);
	(void)snprintf(path, sizeof(path), "meta/holds/%s", from->name);
	b->held = fstatat(d->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
	r = varve_disk_each_tablet(d, &place, count_segment, count_parts, &c);
	b->allocated = c.allocated;
	return r;
}

/* -- policy -- */

static int read_policy(struct varve_disk *d, struct varve_policy *ret, struct varve_err *err)
{
	cleanup_free char *text = NULL;
	size_t len;
	int r = varve_read_file(d->fd, "varve.conf", CONF_BYTES_MAX, &text, &len);

	varve_policy_init(ret);
	return r < 0 ? r : varve_policy_parse_conf(ret, text, len, err);
}

static int plan(const struct varve_policy *policy, struct varve_status *st, uint64_t meta_bytes)
{
	struct varve_retention_input in = {
		.now_ns = st->now_ns,
		.time_trusted = true,
		.meta_bytes = meta_bytes,
		.volume_bytes = st->volume_bytes,
		.free_bytes = st->free_bytes,
	};
	cleanup_free struct varve_retention_item *items = calloc(st->n_buckets + 1, sizeof(*items));

	if (!items)
		return -ENOMEM;
	for (unsigned i = 0; i < st->n_buckets; i++) {
		const struct varve_bucket_status *b = &st->buckets[i];

		items[i] = (struct varve_retention_item){.name = b->name,
							 .start_ns = b->start_ns,
							 .end_ns = b->end_ns,
							 .state = b->state,
							 .held = b->held,
							 .allocated = b->allocated};
	}
	(void)varve_retention_plan(policy, &in, items, st->n_buckets);
	for (unsigned i = 0; i < st->n_buckets; i++) {
		bool now = items[i].cause != VARVE_CAUSE_NONE;

		st->buckets[i].goes_ns = items[i].when_ns;
		st->buckets[i].goes_by = now ? items[i].cause : VARVE_CAUSE_KEEP;
	}
	return 0;
}

static void fill_head(struct varve_disk *d, const struct varve_policy *policy,
		      struct varve_status *st)
{
	struct varve_window window;
	struct statvfs vfs;

	st->now_ns = st->wall_ns = varve_cli_now_ns();
	st->clock = "good";
	(void)snprintf(st->mode, sizeof(st->mode), "not mounted");
	varve_length_format(&policy->bucket, st->bucket_length, sizeof(st->bucket_length));
	if (varve_window_at(&policy->bucket, st->now_ns, &window) == 0)
		st->next_boundary_ns = window.end_ns;
	if (fstatvfs(d->fd, &vfs) == 0) {
		st->volume_bytes = (uint64_t)vfs.f_blocks * vfs.f_frsize;
		st->free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	}
}

static int count_trash(struct varve_disk *d, const char *name, void *ctx)
{
	struct varve_status *st = ctx;
	struct counting c = {0};
	char path[NAME_MAX + 8];
	int r;

	(void)snprintf(path, sizeof(path), "trash/%s", name);
	r = count_path(d, path, &c);
	st->trash_buckets++;
	st->trash_bytes += c.allocated;
	return r == -ENOTDIR ? 0 : r;
}

static int fill_status(struct varve_disk *d, struct varve_status *st, struct varve_err *err)
{
	const struct varve_disk_bucket *buckets;
	size_t n = varve_disk_buckets(d, &buckets);
	struct counting all = {0};
	struct varve_policy policy;
	uint64_t in_buckets = 0;
	int r = read_policy(d, &policy, err);

	if (r < 0)
		return r;
	fill_head(d, &policy, st);
	st->buckets = calloc(n + 1, sizeof(*st->buckets));
	if (!st->buckets)
		return -ENOMEM;
	for (size_t i = 0; i < n && r == 0; i++) {
		r = fill_bucket(d, &buckets[i], &st->buckets[st->n_buckets]);
		in_buckets += st->buckets[st->n_buckets++].allocated;
	}
	if (r == 0)
		r = count_path(d, "", &all);
	if (r == 0)
		r = varve_disk_each_name(d, "trash", count_trash, st);
	if (r == -ENOENT) /* no folder, no trash */
		r = 0;
	st->store_bytes = all.allocated;
	if (r == 0)
		r = plan(&policy, st, all.allocated > in_buckets ? all.allocated - in_buckets : 0);
	return r;
}

int varve_offline_status(const char *store, char **ret, struct varve_err *err)
{
	struct varve_status st = {0};
	struct varve_disk *d = NULL;
	int r = varve_disk_open(store, &d, err);

	if (r == 0)
		r = fill_status(d, &st, err);
	if (r == 0)
		r = varve_status_json(&st, ret);
	if (r < 0 && !err->msg[0])
		(void)varve_err_wrap(err, r, "read the store '%s'", store);
	free(st.buckets);
	varve_disk_close(d);
	return r;
}
