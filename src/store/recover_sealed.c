/* Sealed buckets at open: each name in sealed/, by what the last mount wrote down or by itself. */
#include "store/recover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "store/known.h"

/* ".BUCKET.tmp"; other hidden things are somebody's, and stay. */
static bool is_half_sealed(const char *name)
{
	char bucket[VARVE_BUCKET_NAME_MAX];
	size_t len = strlen(name);
	int64_t start, end;

	if (name[0] != '.' || len < 6 || len - 5 >= sizeof(bucket) ||
	    strcmp(name + len - 4, ".tmp") != 0)
		return false;
	(void)snprintf(bucket, sizeof(bucket), "%.*s", (int)(len - 5), name + 1);
	return varve_name_parse(bucket, &start, &end) == 0;
}

static int list_sealed(struct varve_store *s, const char *name,
		       const struct varve_bucket_facts *facts, struct varve_bucket **ret)
{
	struct varve_bucket *b =
		varve_bucket_new(name, facts->start_ns, facts->end_ns, facts->ino);
	int r;

	if (!b)
		return -ENOMEM;
	b->state = VARVE_BUCKET_SEALED;
	b->files = facts->files;
	b->bytes = facts->bytes;
	r = varve_bucket_list(s, b);
	varve_bucket_unref(s, b);
	*ret = b;
	return r;
}

static int recover_known(struct varve_store *s, const struct varve_known_bucket *k)
{
	struct varve_bucket *b;
	int r = list_sealed(s, k->name,
			    &(struct varve_bucket_facts){.ino = k->ino, .files = k->files,
							 .bytes = k->bytes,
							 .start_ns = k->start_ns,
							 .end_ns = k->end_ns}, &b);

	if (r < 0)
		return r;
	b->dir_ino = k->dir_ino;
	b->told_allocated = k->allocated;
	if (k->mode)
		varve_sealed_attr(&(struct varve_member){.mode = k->mode, .uid = k->uid,
							 .gid = k->gid, .mtime_sec = k->mtime_sec,
							 .mtime_nsec = k->mtime_nsec},
				  b->ino, &b->dir_attr);
	return 0;
}

/* What is there is looked into. */
static int recover_unknown(struct varve_store *s, const char *name)
{
	struct varve_bucket_facts facts;
	struct varve_bucket *b;
	struct stat st;
	int r;

	if (fstatat(s->sealed_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (is_half_sealed(name)) {
		varve_info("recovery: 'sealed/%s' was being written and is done again", name);
		return varve_remove_tree(s->sealed_fd, name, true);
	}
	if (!S_ISDIR(st.st_mode) || varve_bucket_facts(s, s->sealed_fd, name, &facts) < 0) {
		varve_warning("'sealed/%s' is no bucket and is ignored", name);
		return 0;
	}
	if (!facts.ino || varve_recover_is_known(s, facts.ino)) {
		r = varve_ino_next(s, &facts.ino);
		if (r < 0)
			return r;
		(void)varve_bucket_note(s->sealed_fd, name, &facts);
	}
	r = list_sealed(s, name, &facts, &b);
	if (r < 0)
		return r;
	(void)atomic_fetch_add(&s->known_changes, 1);
	(void)varve_sealed_ready(s, b); /* it says what is wrong, and marks it */
	return 0;
}

struct found {
	char *name;
	uint64_t dir_ino;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct found *)a)->name, ((const struct found *)b)->name);
}

static int read_names(struct varve_store *s, struct found **ret, size_t *ret_n)
{
	cleanup_closedir DIR *dir = NULL;
	struct dirent *e;
	size_t size = 0;
	int fd = varve_openat(s->sealed_fd, ".", O_RDONLY | O_DIRECTORY, 0);

	if (fd < 0)
		return fd;
	dir = fdopendir(fd);
	if (!dir) {
		(void)close(fd);
		return -errno;
	}
	while ((errno = 0, e = readdir(dir))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (*ret_n == size) {
			struct found *more;

			size = size ? 2 * size : 256;
			more = realloc(*ret, size * sizeof(*more));
			if (!more)
				return -ENOMEM;
			*ret = more;
		}
		(*ret)[*ret_n] = (struct found){strdup(e->d_name), e->d_ino};
		if (!(*ret)[(*ret_n)++].name)
			return -ENOMEM;
	}
	return -errno;
}

static int mark_held(void *ctx, int dir_fd, const char *name, const struct stat *st)
{
	struct varve_bucket *b = varve_bucket_find(ctx, name);

	(void)dir_fd;
	(void)st;
	if (b)
		b->held = true;
	return 0;
}

static int audit_seal(void *ctx, int dir_fd, const char *name, const struct stat *st)
{
	struct varve_store *s = ctx;
	struct varve_bucket *b = varve_bucket_find(s, name);
	int r;

	(void)dir_fd;
	(void)st;
	/* Only a seal that was cut short before its end has its parts still there. */
	if (!b || b->state != VARVE_BUCKET_SEALED)
		return 0;
	r = varve_audit_has(s->audit, "seal", b->name);
	if (r != 0)
		return r < 0 ? r : 0;
	return varve_audit_append(
		s->audit, &(struct varve_audit_line){
				  .time_ns = s->time.believed_ns, .event = "seal",
				  .bucket = b->name, .buckets = 1,
				  .files = b->files == UINT64_MAX ? -1 : (int64_t)b->files,
				  .bytes = b->bytes == UINT64_MAX ? -1 : (int64_t)b->bytes,
				  .segment_bytes = -1, .uid = -1, .pid = -1, .id = b->name});
}

int varve_recover_sealed(struct varve_store *s)
{
	cleanup_free struct varve_known_bucket *known = NULL;
	struct found *list = NULL;
	size_t n = 0, n_known = 0, told = 0;
	int r = varve_known_read(s->meta_fd, &known, &n_known);

	if (r == -EBADMSG)
		varve_warning("'meta/sealed' is damaged: each sealed bucket is looked into instead");
	r = read_names(s, &list, &n);
	/* In the order of time: each goes to the end of the list of buckets. */
	if (n)
		qsort(list, n, sizeof(*list), by_name);
	for (size_t i = 0; i < n; i++) {
		const struct varve_known_bucket *k =
			varve_known_find(known, n_known, list[i].name, list[i].dir_ino);

		told += k != NULL;
		if (r == 0)
			r = k ? recover_known(s, k) : recover_unknown(s, list[i].name);
		free(list[i].name);
	}
	free(list);
	if (told != n_known)
		(void)atomic_fetch_add(&s->known_changes, 1);
	if (r == 0)
		r = varve_each_entry(s->holds_fd, ".", mark_held, s);
	return r < 0 ? r : varve_each_entry(s->open_fd, ".", audit_seal, s);
}
