/* What the tests of sealing share: a tree of parts, sealing it, and comparing what comes out. */
#pragma once

#include "store_segment_util.h"

#include <sys/xattr.h>
#include <time.h>

#include "store/seal.h"

#define MIB ((size_t)1 << 20)
#define SEG "0.tar.zst"

static struct test_dir dir;
static int parts; /* dir/parts: what is sealed */
static int seg;   /* where to */

static inline void setup(void)
{
	dir = make_dir();
	ck_assert_int_eq(mkdirat(dir.fd, "parts", 0755), 0);
	ck_assert_int_eq(mkdirat(dir.fd, "seg", 0700), 0);
	parts = openat(dir.fd, "parts", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	seg = openat(dir.fd, "seg", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(parts, 0);
	ck_assert_int_ge(seg, 0);
}

static inline void teardown(void)
{
	(void)close(parts);
	(void)close(seg);
	drop_dir(&dir);
}

/* -- parts -- */

static inline int make_fd(const char *path, const void *data, size_t len)
{
	int fd = openat(parts, path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);

	ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
	ck_assert_int_eq(varve_pwrite_full(fd, data, len, 0), 0);
	return fd;
}

static inline void make_file(const char *path, const void *data, size_t len)
{
	ck_assert_int_eq(close(make_fd(path, data, len)), 0);
}

/* Text that compresses; with noise it does not. The caller frees. */
static inline unsigned char *content(size_t len, uint64_t seed, bool noise)
{
	unsigned char *p = malloc(len + 8);
	uint64_t state = seed * 2 + 1;

	for (size_t i = 0; i < len; i += 8) {
		uint64_t v = next_random(&state);

		if (!noise)
			v = UINT64_C(0x0a21646c726f7720) + (v & 0x0f0f0f);
		memcpy(p + i, &v, 8);
	}
	return p;
}

static inline void make_content(const char *path, size_t len, uint64_t seed, bool noise)
{
	cleanup_free unsigned char *p = content(len, seed, noise);

	make_file(path, p, len);
}

static inline void make_dir_at(const char *path, mode_t mode)
{
	ck_assert_int_eq(mkdirat(parts, path, 0700), 0);
	ck_assert_int_eq(fchmodat(parts, path, mode, 0), 0);
}

static inline void set_mtime(const char *path, int64_t sec, long nsec)
{
	struct timespec ts[2] = {{.tv_sec = sec}, {.tv_sec = sec, .tv_nsec = nsec}};

	ck_assert_int_eq(utimensat(parts, path, ts, 0), 0);
}

/* -- a job -- */

struct item {
	char *path;
	bool link;
	uint32_t mode;
};

struct tree {
	struct item *list;
	size_t n;
	/* Called before member i is opened; may give another descriptor or an error. */
	int (*hook)(struct tree *t, size_t i, int *fd);
	void *arg;
	int r;
};

static inline int by_path(const void *a, const void *b)
{
	const char *x = ((const struct item *)a)->path, *y = ((const struct item *)b)->path;

	return varve_path_compare(x, strlen(x), y, strlen(y));
}

static inline void add_item(struct tree *t, const char *path, bool link)
{
	t->list = realloc(t->list, (t->n + 1) * sizeof(*t->list));
	t->list[t->n++] = (struct item){.path = strdup(path), .link = link, .mode = UINT32_MAX};
}

static inline void scan(struct tree *t, const char *path)
{
	int fd = openat(parts, path[0] ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *e;
	DIR *d;

	ck_assert_int_ge(fd, 0);
	d = fdopendir(fd);
	add_item(t, path, false);
	while ((e = readdir(d))) {
		cleanup_free char *below = NULL;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		ck_assert_int_ge(asprintf(&below, "%s%s%s", path, path[0] ? "/" : "", e->d_name),
				 0);
		if (e->d_type == DT_DIR)
			scan(t, below);
		else
			add_item(t, below, !strncmp(e->d_name, "link", 4));
	}
	(void)closedir(d);
}

/* All of parts/, in order; what is called link... is a symbolic link. */
static inline struct tree whole_tree(void)
{
	struct tree t = {.n = 0};

	scan(&t, "");
	qsort(t.list, t.n, sizeof(*t.list), by_path);
	return t;
}

static inline void tree_done(struct tree *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->list[i].path);
	free(t->list);
}

static inline int next(void *ctx, size_t i, struct varve_seal_item *ret)
{
	struct tree *t = ctx;
	const struct item *it = &t->list[i];
	int fd = -1, r = 0;

	*ret = (struct varve_seal_item){.path = it->path,
					.path_len = (uint32_t)strlen(it->path),
					.ino = 1000 + i,
					.fd = -1,
					.mode = it->mode,
					.is_link = it->link};
	if (t->hook)
		r = t->hook(t, i, &fd);
	if (r < 0)
		return r;
	if (fd < 0)
		fd = openat(parts, it->path[0] ? it->path : ".", O_RDONLY | O_CLOEXEC);
	ret->fd = fd;
	return fd < 0 ? -errno : 0;
}

static inline int seal(struct tree *t, const volatile int *cancel,
		       struct varve_segment_totals *totals, struct varve_err *err)
{
	struct varve_seal_job job = {.params = test_params(), .n = t->n, .next = next, .ctx = t};

	job.params.level = 1;
	job.params.cancel = cancel;
	return varve_seal_segment(seg, SEG, &job, totals, err);
}

static inline int entries(int fd)
{
	DIR *d = fdopendir(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	int n = 0;

	while (readdir(d))
		n++;
	(void)closedir(d);
	return n - 2;
}

static inline int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	(void)closedir(d);
	return n;
}

/* Seals and wants it to fail: with that error, a message that tells, and nothing left behind. */
static inline void want_failure(struct tree *t, const volatile int *cancel, int error,
				const char *says)
{
	struct varve_segment_totals totals = {.members = 77};
	struct varve_err err = {.msg = ""};
	int fds = open_fds(), r = seal(t, cancel, &totals, &err);

	ck_assert_msg(r == error, "%d %s, not %d", r, err.msg, error);
	ck_assert_msg(!says || strstr(err.msg, says), "'%s' does not say '%s'", err.msg, says);
	ck_assert_uint_eq(totals.members, 77);
	ck_assert_int_eq(entries(seg), 0);
	ck_assert_int_eq(open_fds(), fds);
}

static inline struct varve_segment_totals want_success(struct tree *t)
{
	struct varve_segment_totals totals = {.members = 0};
	struct varve_err err = {.msg = ""};
	int fds = open_fds(), r = seal(t, NULL, &totals, &err);
	struct stat st;

	ck_assert_msg(r == 0, "%d %s", r, err.msg);
	ck_assert_int_eq(entries(seg), 1);
	ck_assert_int_eq(fstatat(seg, SEG, &st, AT_SYMLINK_NOFOLLOW), 0);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0600);
	ck_assert_uint_eq((uint64_t)st.st_size, totals.segment_bytes);
	ck_assert_uint_eq(totals.members, t->n);
	ck_assert_int_eq(open_fds(), fds);
	return totals;
}

/* -- comparing a segment with the parts -- */

struct opened {
	struct varve_buf buf;
	struct varve_index *ix;
	struct decoded d;
};

static inline struct opened open_segment(void)
{
	struct opened o = {.ix = NULL};
	struct varve_err err = {.msg = ""};
	struct varve_source src;
	char *text;
	size_t len;

	ck_assert_int_eq(varve_read_file(seg, SEG, 512 * MIB, &text, &len), 0);
	o.buf.p = (void *)text;
	o.buf.len = len;
	src = memory_source(&o.buf);
	ck_assert_msg(varve_index_open(&src, &o.ix, &err) == 0, "%s", err.msg);
	o.d = (struct decoded){.ix = o.ix, .tar = decode_tar(o.ix, &o.buf)};
	ck_assert_ptr_nonnull(o.d.tar);
	return o;
}

static inline void opened_done(struct opened *o)
{
	varve_index_free(o->ix);
	free((void *)o->d.tar);
	free(o->buf.p);
}

static inline void same_content(struct decoded *d, int fd, const char *path)
{
	static unsigned char got[1 << 18], want[1 << 18];
	uint64_t at = 0;
	ssize_t n;

	while ((n = pread(fd, want, sizeof(want), (off_t)at)) > 0) {
		ck_assert_int_eq(read_decoded(d, got, (size_t)n, at), n);
		ck_assert_msg(memcmp(got, want, (size_t)n) == 0, "'%s' at %llu", path,
			      (unsigned long long)at);
		at += (uint64_t)n;
	}
	ck_assert_int_eq(n, 0);
}

static inline void same_member(struct opened *o, uint32_t i, const struct item *it)
{
	cleanup_close int fd = openat(parts, it->path[0] ? it->path : ".", O_RDONLY | O_CLOEXEC);
	struct varve_member m;
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	varve_index_member(o->ix, i, &m);
	ck_assert_uint_eq(m.path_len, strlen(it->path));
	ck_assert_mem_eq(m.path, it->path, m.path_len);
	ck_assert_uint_eq(m.ino, 1000 + i);
	ck_assert_uint_eq(m.uid, st.st_uid);
	ck_assert_uint_eq(m.gid, st.st_gid);
	ck_assert_int_eq(m.mtime_sec, st.st_mtim.tv_sec);
	ck_assert_int_eq(m.mtime_nsec, st.st_mtim.tv_nsec);
	if (it->link) {
		ck_assert_uint_eq(m.mode, S_IFLNK | 0777);
		ck_assert_uint_eq(m.size, (uint64_t)st.st_size);
		return;
	}
	ck_assert_uint_eq(m.mode,
			  it->mode == UINT32_MAX ? st.st_mode : (st.st_mode & S_IFMT) | it->mode);
	if (!S_ISREG(m.mode))
		return;
	ck_assert_uint_eq(m.size, (uint64_t)st.st_size);
	o->d.i = i;
	same_content(&o->d, fd, it->path);
}

static inline void same_tree(struct opened *o, const struct tree *t)
{
	ck_assert_uint_eq(varve_index_count(o->ix), t->n);
	for (uint32_t i = 0; i < t->n; i++)
		same_member(o, i, &t->list[i]);
}

static inline void seal_and_compare(struct tree *t)
{
	struct opened o;

	(void)want_success(t);
	o = open_segment();
	same_tree(&o, t);
	opened_done(&o);
}

static inline struct varve_member member(const struct opened *o, const char *path)
{
	struct varve_member m;
	uint32_t i;

	ck_assert_int_eq(varve_index_find(o->ix, path, strlen(path), &i), 0);
	varve_index_member(o->ix, i, &m);
	return m;
}
