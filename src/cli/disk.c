#include "cli/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/disk_private.h"

#define XATTR_BUCKET "user.varve.bucket" /* of a bucket's folder: "INO START END" */
#define XATTR_TYPE "user.varve.type"     /* "l": the file holds a symbolic link's target */
#define SUFFIX ".tar.zst"
#define CACHE_BYTES ((size_t)64 << 20)

/* -- folders -- */

struct names {
	struct varve_disk *d;
	varve_disk_name_cb *cb;
	void *ctx;
};

static int one_name(void *ctx, int dir_fd, const char *name)
{
	const struct names *n = ctx;

	(void)dir_fd;
	return n->cb(n->d, name, n->ctx);
}

int varve_disk_each_name(struct varve_disk *d, const char *path, varve_disk_name_cb *cb, void *ctx)
{
	return varve_each_name(d->fd, path, one_name, &(struct names){d, cb, ctx});
}

/* Calls cb for each CLASS/TABLET below a bucket's folder. */
struct tablets {
	const char *folder; /* "open/BUCKET", "open/BUCKET/CLASS" */
	varve_disk_tablet_cb *cb;
	const char *class_name;
	void *ctx;
};

static int tablet_name(struct varve_disk *d, const char *name, void *ctx)
{
	const struct tablets *t = ctx;
	cleanup_free char *path = NULL;

	if (asprintf(&path, "%s/%s", t->folder, name) < 0)
		return -ENOMEM;
	return t->cb(d, path, t->class_name, name, t->ctx);
}

static int class_name(struct varve_disk *d, const char *name, void *ctx)
{
	struct tablets t = *(const struct tablets *)ctx;
	cleanup_free char *path = NULL;
	int r;

	/* What came late is found by the file that it belongs to. */
	if (name[0] == '.')
		return 0;
	if (asprintf(&path, "%s/%s", t.folder, name) < 0)
		return -ENOMEM;
	t.folder = path;
	t.class_name = name;
	r = varve_disk_each_name(d, path, tablet_name, &t);
	return r == -ENOTDIR ? 0 : r;
}

/* -- buckets -- */

static void read_window(struct varve_disk *d, const char *folder, struct varve_disk_bucket *b)
{
	char path[64], text[64];
	cleanup_close int fd = -1;
	long long start, end;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "%s/%s", folder, b->name);
	fd = varve_openat(d->fd, path, O_RDONLY | O_DIRECTORY, 0);
	n = fd < 0 ? -1 : fgetxattr(fd, XATTR_BUCKET, text, sizeof(text) - 1);
	if (n < 0)
		return; /* the name tells the start, and the least that the end can be */
	text[n] = '\0';
	if (sscanf(text, "%*u %lld %lld", &start, &end) == 2 && start == b->start_ns && end > start)
		b->end_ns = end;
}

static int add_bucket(struct varve_disk *d, const char *name, void *ctx)
{
	const char *folder = ctx;
	struct varve_disk_bucket b = {.state = !strcmp(folder, "sealed") ? VARVE_BUCKET_SEALED
									 : VARVE_BUCKET_CLOSING};

	if (varve_name_parse(name, &b.start_ns, &b.end_ns) < 0)
		return 0;
	for (size_t i = 0; i < d->n_buckets; i++)
		if (!strcmp(d->buckets[i].name, name)) {
			/* Its segment stands: what is left in open/ is garbage. */
			d->buckets[i].state = VARVE_BUCKET_SEALED;
			return 0;
		}
	if (d->n_buckets == d->size) {
		size_t size = d->size ? 2 * d->size : 32;
		void *p = realloc(d->buckets, size * sizeof(*d->buckets));

		if (!p)
			return -ENOMEM;
		d->buckets = p;
		d->size = size;
	}
	(void)snprintf(b.name, sizeof(b.name), "%s", name);
	read_window(d, folder, &b);
	d->buckets[d->n_buckets++] = b;
	return 0;
}

static int compare_buckets(const void *a, const void *b)
{
	const struct varve_disk_bucket *x = a, *y = b;

	if (x->start_ns != y->start_ns)
		return x->start_ns < y->start_ns ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Before the buckets: one that is closing by then was cut when the record was written, or is shown whole. */
static int read_ranges(struct varve_disk *d)
{
	cleanup_close int meta = varve_openat(d->fd, "meta", O_RDONLY | O_DIRECTORY, 0);
	int r;

	varve_ranges_done(&d->ranges);
	if (meta < 0)
		return meta == -ENOENT ? 0 : meta;
	r = varve_ranges_peek(&d->ranges, meta);
	if (r == -EBADMSG) {
		varve_warning("the range record 'meta/ranges' is damaged: files that went on from one bucket "
			      "into the next are shown whole in each");
		r = 0;
	}
	return r;
}

int varve_disk_scan(struct varve_disk *d)
{
	static char open_folder[] = "open", sealed_folder[] = "sealed";
	int r;

	d->n_buckets = 0;
	r = read_ranges(d);
	if (r < 0)
		return r;
	/* In the order in which a bucket moves: none is missed between the two. */
	r = varve_disk_each_name(d, open_folder, add_bucket, open_folder);
	if (r == 0)
		r = varve_disk_each_name(d, sealed_folder, add_bucket, sealed_folder);
	if (r < 0)
		return r;
	if (!d->n_buckets)
		return 0;
	qsort(d->buckets, d->n_buckets, sizeof(*d->buckets), compare_buckets);
	for (size_t i = d->n_buckets; i--;)
		if (d->buckets[i].state != VARVE_BUCKET_SEALED) {
			if (d->buckets[i].end_ns > varve_cli_now_ns())
				d->buckets[i].state = VARVE_BUCKET_OPEN;
			break;
		}
	return 0;
}

int varve_disk_open(const char *store, struct varve_disk **ret, struct varve_err *err)
{
	struct varve_disk *d = calloc(1, sizeof(*d));
	int r = -ENOMEM;

	if (d) {
		d->fd = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = d->fd < 0 ? -errno : varve_cache_new(CACHE_BYTES, 0, &d->cache);
	}
	if (r == 0)
		r = varve_disk_scan(d);
	if (r < 0) {
		varve_disk_close(d);
		return varve_err_wrap(err, r, "read the store '%s'", store);
	}
	*ret = d;
	return 0;
}

void varve_disk_close(struct varve_disk *d)
{
	if (!d)
		return;
	if (d->cache)
		varve_cache_free(d->cache);
	if (d->fd >= 0)
		(void)close(d->fd);
	free(d->buckets);
	varve_ranges_done(&d->ranges);
	free(d);
}

size_t varve_disk_buckets(const struct varve_disk *d, const struct varve_disk_bucket **ret)
{
	*ret = d->buckets;
	return d->n_buckets;
}

int varve_disk_place(const struct varve_disk *d, const char *text, struct varve_place_of *ret,
		     struct varve_err *err)
{
	const char *slash = strchrnul(text, '/');
	size_t n = (size_t)(slash - text), len;

	*ret = (struct varve_place_of){.text = text,
				       .current = n == 7 && !memcmp(text, "current", 7)};
	for (size_t i = 0; i < d->n_buckets; i++) {
		const struct varve_disk_bucket *b = &d->buckets[i];

		if (ret->current ? b->state == VARVE_BUCKET_OPEN
				 : strlen(b->name) == n && !memcmp(b->name, text, n))
			ret->bucket = b;
	}
	if (!ret->bucket && !ret->current)
		return varve_err_set(err, -ENOENT, "there is no bucket '%.*s'; see: varve ls STORE",
				     (int)n, text);
	ret->current |= ret->bucket && ret->bucket->state == VARVE_BUCKET_OPEN;
	ret->path = slash + strspn(slash, "/");
	len = strlen(ret->path);
	while (len && ret->path[len - 1] == '/')
		len--;
	ret->path_len = len;
	if (len && varve_path_check(ret->path, len) < 0)
		return varve_err_set(err, -EINVAL, "'%s' is no path inside a bucket", text);
	return 0;
}

/* -- tablets -- */

int varve_disk_each_tablet(struct varve_disk *d, const struct varve_place_of *p,
			   varve_disk_tablet_cb *sealed, varve_disk_tablet_cb *plain, void *ctx)
{
	bool is_sealed = p->bucket->state == VARVE_BUCKET_SEALED;
	char folder[64];
	struct tablets t = {.folder = folder, .cb = is_sealed ? sealed : plain, .ctx = ctx};

	(void)snprintf(folder, sizeof(folder), "%s/%s", is_sealed ? "sealed" : "open",
		       p->bucket->name);
	return varve_disk_each_name(d, folder, class_name, &t);
}

int varve_disk_tombs(struct varve_disk *d, const struct varve_place_of *p, struct varve_tombs **ret,
		     struct varve_err *err)
{
	cleanup_close int fd = -1;

	*ret = NULL;
	if (!p->bucket || p->bucket->state != VARVE_BUCKET_SEALED)
		return 0;
	fd = varve_openat(d->fd, "meta/tombs", O_RDONLY | O_DIRECTORY, 0);
	if (fd == -ENOENT)
		return 0;
	return fd < 0 ? fd : varve_tombs_open(fd, p->bucket->name, true, ret, err);
}

char *varve_disk_tablet_of(const char *name)
{
	size_t n = strlen(name), s = strlen(SUFFIX);

	return n > s && !strcmp(name + n - s, SUFFIX) ? strndup(name, n - s) : NULL;
}

char *varve_disk_link_target(int fd, off_t size)
{
	char type[2], *target;

	if (size <= 0 || size > PATH_MAX || fgetxattr(fd, XATTR_TYPE, type, sizeof(type)) < 1 ||
	    type[0] != 'l')
		return NULL;
	target = calloc(1, (size_t)size + 1);
	if (target && varve_pread_full(fd, target, (size_t)size, 0) < 0) {
		free(target);
		return NULL;
	}
	return target;
}
