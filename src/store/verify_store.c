#include "store/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sys.h"
#include "format/names.h"
#include "store/policy.h"
#include "store/ranges.h"
#include "store/verify_private.h"

#define SUFFIX ".tar.zst"
#define SUFFIX_LEN (sizeof(SUFFIX) - 1)

/* A segment to be checked. */
struct item {
	char *path;                      /* in the store; owned */
	struct varve_verify_place place; /* strings: owned, in one piece with path */
	uint64_t size;
};

struct walk {
	const struct varve_verify_job *job;
	struct varve_verify_counts *counts;
	int sealed_fd;
	struct item *items;
	size_t n, room;
	uint64_t total;
};

static void report(struct walk *w, enum varve_verify_kind kind, const char *path, const char *what)
{
	struct varve_verify_finding f = {.kind = kind, .segment = path, .what = what};

	if (w->job->report)
		w->job->report(w->job->ctx, &f);
}

static void note(struct walk *w, const char *path, const char *what)
{
	w->counts->notes++;
	report(w, VARVE_VERIFY_NOTE, path, what);
}

/* What can't be looked at is a finding, and the rest is looked at all the same; except where going
 * on makes no sense: that error is returned. */
static int bad(struct walk *w, const char *path, int error, const char *what)
{
	switch (error) {
	case -ENOENT:
		note(w, path, "it was dropped meanwhile");
		return 0;
	case -ECANCELED:
	case -ENOMEM:
	case -EAGAIN:
	case -EMFILE:
	case -ENFILE:
		return error;
	default:
		w->counts->bad_segments++;
		report(w, VARVE_VERIFY_SEGMENT, path, what);
		return 0;
	}
}

/* -- what lies in a directory -- */

struct names {
	char **names;
	size_t n, room;
};

static void names_done(struct names *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->names[i]);
	free(l->names);
}

static int add_name(struct names *l, const char *name)
{
	if (l->n == l->room) {
		size_t room = l->room > 0 ? 2 * l->room : 16;
		char **p = realloc(l->names, room * sizeof(*p));

		if (!p)
			return -ENOMEM;
		l->names = p;
		l->room = room;
	}
	l->names[l->n] = strdup(name);
	return l->names[l->n++] ? 0 : -ENOMEM;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int note_name(void *ctx, int dir_fd, const char *name)
{
	(void)dir_fd;
	return add_name(ctx, name);
}

/* All names in dirfd/path, sorted. */
static int list(int dirfd, const char *path, struct names *ret)
{
	int r = varve_each_name(dirfd, path, note_name, ret);

	if (r == 0 && ret->n > 0)
		qsort(ret->names, ret->n, sizeof(*ret->names), by_name);
	return r;
}

static bool ends_in(const char *name, const char *suffix)
{
	size_t n = strlen(name), k = strlen(suffix);

	return n > k && strcmp(name + n - k, suffix) == 0;
}

static void note_stray(struct walk *w, const char *path, const char *expected)
{
	char what[128];

	if (ends_in(path, ".tmp")) {
		note(w, path, "left over from sealing, or being sealed now");
		return;
	}
	(void)snprintf(what, sizeof(what), "not %s; varvefs takes no notice of it", expected);
	note(w, path, what);
}

/* -- collecting -- */

static int add_item(struct walk *w, const char *bucket, int64_t start_ns, const char *class_name,
		    const char *tablet, uint64_t size)
{
	struct item *it;
	size_t b = strlen(bucket) + 1, c = strlen(class_name) + 1, t = strlen(tablet) + 1;
	char *p;

	if (w->n == w->room) {
		size_t room = w->room > 0 ? 2 * w->room : 16;

		it = realloc(w->items, room * sizeof(*it));
		if (!it)
			return -ENOMEM;
		w->items = it;
		w->room = room;
	}
	p = malloc(2 * (b + c + t) + SUFFIX_LEN);
	if (!p)
		return -ENOMEM;
	(void)sprintf(p, "%s/%s/%s" SUFFIX, bucket, class_name, tablet);
	it = &w->items[w->n++];
	*it = (struct item){.path = p, .size = size};
	p += strlen(p) + 1;
	it->place.bucket = memcpy(p, bucket, b);
	it->place.class_name = memcpy(p + b, class_name, c);
	it->place.tablet = memcpy(p + b + c, tablet, t);
	it->place.start_ns = start_ns;
	w->total += size;
	return 0;
}

/* The type of an entry (S_IFMT bits) and its size; 0: it is gone. */
static uint32_t type_of(int dirfd, const char *path, uint64_t *ret_size)
{
	struct stat st;

	if (fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	*ret_size = (uint64_t)st.st_size;
	return st.st_mode & S_IFMT;
}

/* "0.tar.zst" -> "0" in buf; false: not a segment's name. */
static bool tablet_name(const char *name, char buf[VARVE_CLASS_NAME_MAX])
{
	size_t len = strlen(name);

	if (name[0] == '.' || !ends_in(name, SUFFIX) || len - SUFFIX_LEN >= VARVE_CLASS_NAME_MAX)
		return false;
	memcpy(buf, name, len - SUFFIX_LEN);
	buf[len - SUFFIX_LEN] = '\0';
	return true;
}

static int collect_class(struct walk *w, const char *bucket, int64_t start_ns,
			 const char *class_name)
{
	char dir[3 * NAME_MAX], path[4 * NAME_MAX], tablet[VARVE_CLASS_NAME_MAX];
	struct names names = {.n = 0};
	uint64_t size = 0;
	size_t before = w->n;
	int r;

	(void)snprintf(dir, sizeof(dir), "%s/%s", bucket, class_name);
	r = list(w->sealed_fd, dir, &names);
	for (size_t i = 0; i < names.n && r >= 0; i++) {
		uint32_t type;

		(void)snprintf(path, sizeof(path), "%s/%s", dir, names.names[i]);
		type = type_of(w->sealed_fd, path, &size);
		if (type == 0)
			continue;
		if (type == S_IFREG && tablet_name(names.names[i], tablet))
			r = add_item(w, bucket, start_ns, class_name, tablet, size);
		else
			note_stray(w, path, "a segment");
	}
	names_done(&names);
	if (r >= 0 && w->n == before)
		note(w, dir, "there is no segment in it");
	return r < 0 ? bad(w, dir, r, strerror(-r)) : 0;
}

static int collect_bucket(struct walk *w, const char *bucket, int64_t start_ns)
{
	char path[3 * NAME_MAX];
	struct names names = {.n = 0};
	uint64_t size = 0;
	bool any = false;
	int r;

	r = list(w->sealed_fd, bucket, &names);
	for (size_t i = 0; i < names.n && r >= 0; i++) {
		const char *name = names.names[i];
		uint32_t type;

		(void)snprintf(path, sizeof(path), "%s/%s", bucket, name);
		type = type_of(w->sealed_fd, path, &size);
		if (type == 0)
			continue;
		if (type != S_IFDIR || name[0] == '.' || strlen(name) >= VARVE_CLASS_NAME_MAX) {
			note_stray(w, path, "a class's folder");
			continue;
		}
		r = collect_class(w, bucket, start_ns, name);
		any = true;
	}
	names_done(&names);
	if (r >= 0 && !any)
		note(w, bucket, "there is no class's folder in it");
	return r < 0 ? bad(w, bucket, r, strerror(-r)) : 0;
}

struct bucket {
	const char *name;
	int64_t start_ns;
};

static int by_start(const void *a, const void *b)
{
	const struct bucket *x = a, *y = b;

	if (x->start_ns != y->start_ns)
		return x->start_ns < y->start_ns ? -1 : 1;
	return strcmp(x->name, y->name);
}

static bool is_wanted(const struct varve_verify_job *job, const char *name)
{
	for (size_t i = 0; i < job->n_buckets; i++)
		if (strcmp(job->buckets[i], name) == 0)
			return true;
	return job->n_buckets == 0;
}

/* Every bucket that was asked for is there. */
static int check_wanted(const struct varve_verify_job *job, const struct bucket *buckets, size_t n,
			struct varve_err *err)
{
	for (size_t i = 0; i < job->n_buckets; i++) {
		size_t k = 0;

		while (k < n && strcmp(buckets[k].name, job->buckets[i]) != 0)
			k++;
		if (k == n)
			return varve_err_set(err, -ENOENT, "there is no sealed bucket '%s'",
					     job->buckets[i]);
	}
	return 0;
}

static int collect(struct walk *w, struct varve_err *err)
{
	struct names names = {.n = 0};
	cleanup_free struct bucket *buckets = NULL;
	int64_t min_end;
	uint64_t size = 0;
	size_t n = 0;
	int r = list(w->sealed_fd, "", &names);

	if (r >= 0)
		buckets = malloc((names.n + 1) * sizeof(*buckets));
	if (r >= 0 && !buckets)
		r = -ENOMEM;
	for (size_t i = 0; i < names.n && r >= 0; i++) {
		struct bucket *b = &buckets[n];

		b->name = names.names[i];
		if (type_of(w->sealed_fd, b->name, &size) == S_IFDIR &&
		    varve_name_parse(b->name, &b->start_ns, &min_end) == 0)
			n += is_wanted(w->job, b->name);
		else if (w->job->n_buckets == 0)
			note_stray(w, b->name, "a bucket");
	}
	if (r >= 0)
		r = check_wanted(w->job, buckets, n, err);
	if (r >= 0 && n > 0)
		qsort(buckets, n, sizeof(*buckets), by_start);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = collect_bucket(w, buckets[i].name, buckets[i].start_ns);
	names_done(&names);
	return r;
}

/* -- the whole -- */

static int check_all(struct walk *w, struct varve_err *err)
{
	uint64_t done = 0;

	for (size_t i = 0; i < w->n; i++) {
		struct varve_err why = {.msg = ""};
		int r = varve_verify_one(w->sealed_fd, w->items[i].path, &w->items[i].place, w->job,
					 done, w->total, w->counts, &why);

		if (r < 0)
			r = bad(w, w->items[i].path, r, why.msg[0] ? why.msg : strerror(-r));
		if (r < 0) {
			if (err)
				*err = why;
			return r;
		}
		done += w->items[i].size;
	}
	return 0;
}

/* A later version's is none that this one can tell of. */
static int check_ranges(struct walk *w, int store_fd)
{
	cleanup_close int meta = varve_openat(store_fd, "meta", O_RDONLY | O_DIRECTORY, 0);
	struct varve_ranges ranges;
	char what[128];
	int r;

	if (meta == -ENOENT || w->job->n_buckets > 0)
		return 0;
	varve_ranges_init(&ranges);
	r = meta < 0 ? meta : varve_ranges_peek(&ranges, meta);
	varve_ranges_done(&ranges);
	if (r == 0 || r == -ENOMEM)
		return r;
	if (r == -EPROTONOSUPPORT) {
		note(w, "meta/ranges", "written by a later version of varvefs; not looked at");
		return 0;
	}
	if (r == -EBADMSG)
		(void)snprintf(what, sizeof(what), "damaged: files that went on from one bucket into the next "
			       "are shown whole in each");
	else
		(void)snprintf(what, sizeof(what), "can't be read: %s", strerror(-r));
	w->counts->bad_records++;
	report(w, VARVE_VERIFY_RECORD, "meta/ranges", what);
	return 0;
}

int varve_verify_store(int store_fd, const struct varve_verify_job *job,
		       struct varve_verify_counts *ret, struct varve_err *err)
{
	cleanup_close int fd = varve_openat(store_fd, "sealed", O_RDONLY | O_DIRECTORY, 0);
	struct walk w = {.job = job, .counts = ret, .sealed_fd = fd};
	int r;

	if (fd < 0)
		return varve_err_wrap(err, fd, "open the store's folder 'sealed'");
	*ret = (struct varve_verify_counts){.segments = 0};
	r = check_ranges(&w, store_fd);
	if (r == 0)
		r = collect(&w, err);
	r = r < 0 ? varve_err_wrap(err, r, "look through 'sealed'") : check_all(&w, err);
	for (size_t i = 0; i < w.n; i++)
		free(w.items[i].path);
	free(w.items);
	return r;
}
