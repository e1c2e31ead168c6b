#include "store/trash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/sys.h"

#define GONE "gone,"
#define GONE_NAME_MAX (VARVE_TRASH_NAME_MAX + 8)
#define STEP_BYTES (INT64_C(64) << 20)

static const enum varve_drop_cause causes[] = {VARVE_CAUSE_KEEP, VARVE_CAUSE_MAX_SIZE,
					       VARVE_CAUSE_MAX_BUCKETS, VARVE_CAUSE_MIN_FREE,
					       VARVE_CAUSE_HAND, VARVE_CAUSE_SEALED};

int varve_trash_format(const struct varve_trash_name *n, char buf[VARVE_TRASH_NAME_MAX])
{
	int64_t start, end;
	int len;

	if (varve_name_parse(n->bucket, &start, &end) < 0)
		return -EINVAL;
	if (n->state != VARVE_BUCKET_SEALED && n->state != VARVE_BUCKET_CLOSING)
		return -EINVAL;
	if (n->cause == VARVE_CAUSE_NONE || !n->class_name[0] || strpbrk(n->class_name, ",/"))
		return -EINVAL;
	len = snprintf(buf, VARVE_TRASH_NAME_MAX, "%s,%s,%s,%lld,%s,%lld,%lld,%u", n->bucket,
		       n->class_name, varve_bucket_state_name(n->state), (long long)n->time_ns,
		       varve_cause_name(n->cause), (long long)n->uid, (long long)n->pid, n->seq);
	return len >= VARVE_TRASH_NAME_MAX ? -ENAMETOOLONG : 0;
}

static int parse_number(const char *text, int64_t *ret)
{
	char *end;
	long long v;

	errno = 0;
	v = strtoll(text, &end, 10);
	if (errno || *end || end == text)
		return -EINVAL;
	*ret = v;
	return 0;
}

/* Cuts text at commas into exactly n fields. */
static int split(char *text, char **fields, int n)
{
	for (int i = 0; i < n; i++) {
		fields[i] = text;
		text = strchr(text, ',');
		if ((text == NULL) != (i == n - 1))
			return -EINVAL;
		if (text)
			*text++ = '\0';
	}
	return 0;
}

int varve_trash_parse(const char *name, struct varve_trash_name *ret)
{
	struct varve_trash_name n = {.cause = VARVE_CAUSE_NONE};
	char copy[VARVE_TRASH_NAME_MAX], again[VARVE_TRASH_NAME_MAX];
	char *f[8];
	int64_t seq;

	if (strlen(name) >= sizeof(copy))
		return -EINVAL;
	(void)strcpy(copy, name);
	if (split(copy, f, 8) < 0 || strlen(f[0]) >= sizeof(n.bucket) ||
	    strlen(f[1]) >= sizeof(n.class_name))
		return -EINVAL;
	(void)snprintf(n.bucket, sizeof(n.bucket), "%s", f[0]);
	(void)snprintf(n.class_name, sizeof(n.class_name), "%s", f[1]);
	n.state = !strcmp(f[2], "closing") ? VARVE_BUCKET_CLOSING : VARVE_BUCKET_SEALED;
	for (size_t i = 0; i < sizeof(causes) / sizeof(*causes); i++)
		if (!strcmp(f[4], varve_cause_name(causes[i])))
			n.cause = causes[i];
	if (parse_number(f[3], &n.time_ns) < 0 || parse_number(f[5], &n.uid) < 0 ||
	    parse_number(f[6], &n.pid) < 0 || parse_number(f[7], &seq) < 0 || seq < 0 ||
	    seq > UINT32_MAX)
		return -EINVAL;
	n.seq = (uint32_t)seq;
	/* Strict: whatever is not spelled as format spells it is not ours. */
	if (varve_trash_format(&n, again) < 0 || strcmp(again, name) != 0)
		return -EINVAL;
	*ret = n;
	return 0;
}

/* A name without the mark that its removal has begun. */
static const char *bare(const char *name)
{
	return !strncmp(name, GONE, strlen(GONE)) ? name + strlen(GONE) : name;
}

bool varve_trash_is_gone(const char *name)
{
	return bare(name) != name;
}

void varve_trash_gone(const char *name, char buf[VARVE_TRASH_NAME_MAX + 8])
{
	(void)snprintf(buf, VARVE_TRASH_NAME_MAX + 8, GONE "%s", name);
}

struct entry {
	char name[GONE_NAME_MAX];
	struct varve_trash_name parsed;
};

static int by_time(const void *a, const void *b)
{
	const struct varve_trash_name *x = &((const struct entry *)a)->parsed;
	const struct varve_trash_name *y = &((const struct entry *)b)->parsed;

	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static int read_entries(int trash_dirfd, struct entry **ret, size_t *ret_n)
{
	cleanup_closedir DIR *dir = NULL;
	struct dirent *e;
	int fd = varve_openat(trash_dirfd, ".", O_RDONLY | O_DIRECTORY, 0);

	*ret = NULL;
	*ret_n = 0;
	if (fd < 0)
		return fd;
	dir = fdopendir(fd);
	if (!dir) {
		(void)close(fd);
		return -errno;
	}
	while ((errno = 0, e = readdir(dir))) {
		struct varve_trash_name parsed;
		struct entry *more;

		if (strlen(e->d_name) >= sizeof(more->name) ||
		    varve_trash_parse(bare(e->d_name), &parsed) < 0)
			continue;
		more = realloc(*ret, (*ret_n + 1) * sizeof(*more));
		if (!more)
			return -ENOMEM;
		*ret = more;
		(void)strcpy(more[*ret_n].name, e->d_name);
		more[(*ret_n)++].parsed = parsed;
	}
	return -errno;
}

int varve_trash_each(int trash_dirfd, varve_trash_cb *cb, void *ctx)
{
	cleanup_free struct entry *list = NULL;
	size_t n;
	int r = read_entries(trash_dirfd, &list, &n);

	if (r == 0 && n)
		qsort(list, n, sizeof(*list), by_time);
	for (size_t i = 0; r == 0 && i < n; i++) {
		r = cb(ctx, list[i].name, &list[i].parsed);
		if (r > 0)
			r = 0;
	}
	return r;
}

/* -- removing -- */

struct removal {
	int64_t until_ns;
	bool may_be_read;
	bool began; /* something was given back already */
};

/* However short the time, every call gets on by a step. */
static bool time_is_up(const struct removal *rm)
{
	return rm->began && varve_clock_monotonic_ns() > rm->until_ns;
}

/* One file: 1 when it is only smaller yet, 0 when it is gone. */
static int remove_file(int dirfd, const char *name, struct removal *rm)
{
	cleanup_close int fd = -1;
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISREG(st.st_mode) && st.st_size > STEP_BYTES && st.st_nlink == 1 && !rm->may_be_read)
		fd = varve_openat(dirfd, name, O_WRONLY | O_NONBLOCK | O_NOFOLLOW, 0);
	while (fd >= 0 && st.st_size > STEP_BYTES) {
		if (time_is_up(rm))
			return 1;
		st.st_size -= STEP_BYTES;
		if (ftruncate(fd, st.st_size) < 0)
			break;
		rm->began = true;
	}
	if (time_is_up(rm))
		return 1;
	rm->began = true;
	return unlinkat(dirfd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int remove_some(int dirfd_, const char *name, struct removal *rm)
{
	cleanup_closedir DIR *dir = NULL;
	struct dirent *e;
	int r = 0, fd = varve_openat(dirfd_, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);

	if (fd == -ENOTDIR || fd == -ELOOP)
		return remove_file(dirfd_, name, rm);
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	dir = fdopendir(fd);
	if (!dir) {
		(void)close(fd);
		return -errno;
	}
	while (r == 0 && (errno = 0, e = readdir(dir))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (time_is_up(rm))
			return 1;
		r = remove_some(dirfd(dir), e->d_name, rm);
	}
	if (r == 0 && errno)
		r = -errno;
	if (r == 0 && unlinkat(dirfd_, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		r = -errno;
	return r;
}

/* Marks an entry as one whose removal has begun. What a hand dropped must not come back in part,
 * also not after a power loss: the mark is made durable first. */
static int mark_gone(int trash_dirfd, const char *name, char gone[GONE_NAME_MAX])
{
	struct varve_trash_name parsed;

	if (snprintf(gone, GONE_NAME_MAX, GONE "%s", name) >= GONE_NAME_MAX)
		return -ENAMETOOLONG;
	if (renameat(trash_dirfd, name, trash_dirfd, gone) < 0)
		return -errno;
	if (varve_trash_parse(name, &parsed) == 0 && parsed.cause != VARVE_CAUSE_HAND)
		return 0;
	return varve_fsync_dir(trash_dirfd, ".");
}

int varve_trash_remove(int trash_dirfd, const char *name, bool may_be_read, int64_t budget_ns)
{
	struct removal rm = {.until_ns = varve_clock_monotonic_ns() + budget_ns, .may_be_read = may_be_read};
	char gone[GONE_NAME_MAX];
	int r;

	if (bare(name) != name)
		return remove_some(trash_dirfd, name, &rm);
	r = mark_gone(trash_dirfd, name, gone);
	if (r == -EEXIST || r == -ENOTEMPTY) {
		/* An earlier one of this very name has to go first. */
		r = remove_some(trash_dirfd, gone, &rm);
		return r < 0 ? r : 1;
	}
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return remove_some(trash_dirfd, gone, &rm);
}

int varve_tree_allocated(int dirfd_, const char *name, uint64_t *ret_bytes)
{
	cleanup_closedir DIR *dir = NULL;
	struct dirent *e;
	struct stat st;
	int fd;

	*ret_bytes = 0;
	if (fstatat(dirfd_, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	*ret_bytes = (uint64_t)st.st_blocks * 512;
	if (!S_ISDIR(st.st_mode))
		return 0;
	fd = varve_openat(dirfd_, name, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	dir = fdopendir(fd);
	if (!dir) {
		(void)close(fd);
		return -errno;
	}
	while ((errno = 0, e = readdir(dir))) {
		uint64_t below;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (varve_tree_allocated(dirfd(dir), e->d_name, &below) == 0)
			*ret_bytes += below;
	}
	return -errno;
}
