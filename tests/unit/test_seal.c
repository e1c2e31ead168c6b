#include "store_segment_util.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/xattr.h>
#include <time.h>

#include "store/seal.h"

#define MIB ((size_t)1 << 20)
#define SEG "0.tar.zst"

static struct test_dir dir;
static int parts; /* dir/parts: what is sealed */
static int seg;   /* where to */

static void setup(void)
{
	dir = make_dir();
	ck_assert_int_eq(mkdirat(dir.fd, "parts", 0755), 0);
	ck_assert_int_eq(mkdirat(dir.fd, "seg", 0700), 0);
	parts = openat(dir.fd, "parts", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	seg = openat(dir.fd, "seg", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(parts, 0);
	ck_assert_int_ge(seg, 0);
}

static void teardown(void)
{
	(void)close(parts);
	(void)close(seg);
	drop_dir(&dir);
}

/* -- parts -- */

static int make_fd(const char *path, const void *data, size_t len)
{
	int fd = openat(parts, path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);

	ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
	ck_assert_int_eq(varve_pwrite_full(fd, data, len, 0), 0);
	return fd;
}

static void make_file(const char *path, const void *data, size_t len)
{
	ck_assert_int_eq(close(make_fd(path, data, len)), 0);
}

/* Text that compresses; with noise it does not. The caller frees. */
static unsigned char *content(size_t len, uint64_t seed, bool noise)
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

static void make_content(const char *path, size_t len, uint64_t seed, bool noise)
{
	cleanup_free unsigned char *p = content(len, seed, noise);

	make_file(path, p, len);
}

static void make_dir_at(const char *path, mode_t mode)
{
	ck_assert_int_eq(mkdirat(parts, path, 0700), 0);
	ck_assert_int_eq(fchmodat(parts, path, mode, 0), 0);
}

static void set_mtime(const char *path, int64_t sec, long nsec)
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

static int by_path(const void *a, const void *b)
{
	const char *x = ((const struct item *)a)->path, *y = ((const struct item *)b)->path;

	return varve_path_compare(x, strlen(x), y, strlen(y));
}

static void add_item(struct tree *t, const char *path, bool link)
{
	t->list = realloc(t->list, (t->n + 1) * sizeof(*t->list));
	t->list[t->n++] = (struct item){.path = strdup(path), .link = link, .mode = UINT32_MAX};
}

static void scan(struct tree *t, const char *path)
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
static struct tree whole_tree(void)
{
	struct tree t = {.n = 0};

	scan(&t, "");
	qsort(t.list, t.n, sizeof(*t.list), by_path);
	return t;
}

static void tree_done(struct tree *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->list[i].path);
	free(t->list);
}

static int next(void *ctx, size_t i, struct varve_seal_item *ret)
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

static int seal(struct tree *t, const volatile int *cancel, struct varve_segment_totals *totals,
		struct varve_err *err)
{
	struct varve_seal_job job = {.params = test_params(), .n = t->n, .next = next, .ctx = t};

	job.params.level = 1;
	job.params.cancel = cancel;
	return varve_seal_segment(seg, SEG, &job, totals, err);
}

static int entries(int fd)
{
	DIR *d = fdopendir(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	int n = 0;

	while (readdir(d))
		n++;
	(void)closedir(d);
	return n - 2;
}

static int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	(void)closedir(d);
	return n;
}

/* Seals and wants it to fail: with that error, a message that tells, and nothing left behind. */
static void want_failure(struct tree *t, const volatile int *cancel, int error, const char *says)
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

static struct varve_segment_totals want_success(struct tree *t)
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

static struct opened open_segment(void)
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

static void opened_done(struct opened *o)
{
	varve_index_free(o->ix);
	free((void *)o->d.tar);
	free(o->buf.p);
}

static void same_content(struct decoded *d, int fd, const char *path)
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

static void same_member(struct opened *o, uint32_t i, const struct item *it)
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

static void same_tree(struct opened *o, const struct tree *t)
{
	ck_assert_uint_eq(varve_index_count(o->ix), t->n);
	for (uint32_t i = 0; i < t->n; i++)
		same_member(o, i, &t->list[i]);
}

static void seal_and_compare(struct tree *t)
{
	struct opened o;

	(void)want_success(t);
	o = open_segment();
	same_tree(&o, t);
	opened_done(&o);
}

static struct varve_member member(const struct opened *o, const char *path)
{
	struct varve_member m;
	uint32_t i;

	ck_assert_int_eq(varve_index_find(o->ix, path, strlen(path), &i), 0);
	varve_index_member(o->ix, i, &m);
	return m;
}

/* -- what is sealed -- */

START_TEST(test_kinds)
{
	static const size_t sizes[] = {0,    1,           511,     512,         513,
				       4096, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 5 * MIB + 77};
	cleanup_free char *deep = long_path(1023, 255);
	char name[256];
	struct varve_segment_totals totals;
	struct tree t;
	struct opened o;
	struct varve_member m;
	uint64_t sum = 0;

	for (size_t i = 0; i < 10; i++) {
		(void)snprintf(name, sizeof(name), "size%zu", i);
		make_content(name, sizes[i], i, i % 2);
		set_mtime(name, (int64_t)i * 1000000000 - 1000000000, 999999999 - (long)i);
		sum += sizes[i];
	}
	make_dir_at("empty", 0700);
	make_dir_at("host=web1", 01777);
	make_file("host=web1/setuid", "x", 1);
	ck_assert_int_eq(fchownat(parts, "host=web1/setuid", 1234, 70000, 0), 0);
	ck_assert_int_eq(fchmodat(parts, "host=web1/setuid", 06751, 0), 0);
	make_file("host=web1-before", "x", 1);
	make_file("two\nlines", "x", 1);
	make_file("\xff\xfe", "x", 1);
	memset(name, 'm', 255);
	name[255] = '\0';
	make_file(name, "x", 1);
	make_file("link", "../some where/else", 18);
	set_mtime("link", 1796000000, 123456789);
	ck_assert_int_eq(varve_mkdir_p(parts, deep, 0750), 0);
	t = whole_tree();
	t.list[0].mode = 02751; /* the bucket's own directory: as the caller says */
	totals = want_success(&t);
	ck_assert_uint_eq(totals.files, 15);
	ck_assert_uint_eq(totals.content_bytes, sum + 5);
	o = open_segment();
	same_tree(&o, &t);
	m = member(&o, "");
	ck_assert_uint_eq(m.mode, S_IFDIR | 02751);
	m = member(&o, "host=web1/setuid");
	ck_assert_uint_eq(m.mode, S_IFREG | 06751);
	ck_assert_uint_eq(m.gid, 70000);
	m = member(&o, "link");
	ck_assert_uint_eq(m.size, 18);
	ck_assert_mem_eq(m.target, "../some where/else", 18);
	ck_assert_uint_eq(m.mtime_nsec, 123456789);
	opened_done(&o);
	tree_done(&t);
}
END_TEST

/* An ACL as the kernel has it: user::rw-, user:1000:r--, group::r--, mask::r--, other::--- */
static const unsigned char acl[] = {
	2, 0,    0,    0,    0x01, 0,    6,    0, 0xff, 0xff, 0xff, 0xff, 0x02, 0,    4,
	0, 0xe8, 3,    0,    0,    0x04, 0,    4, 0,    0xff, 0xff, 0xff, 0xff, 0x10, 0,
	4, 0,    0xff, 0xff, 0xff, 0xff, 0x20, 0, 0,    0,    0xff, 0xff, 0xff, 0xff};

static void set_xattr(const char *path, const char *name, const void *value, size_t len)
{
	cleanup_close int fd = openat(parts, path, O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_msg(fsetxattr(fd, name, value, len, 0) == 0, "%s: %s", name, strerror(errno));
}

static void want_xattrs(const struct varve_member *m, const char *const *names, size_t n)
{
	struct varve_xattr x;
	uint32_t at = 0;

	for (size_t i = 0; i < n; i++) {
		ck_assert_int_eq(varve_xattr_next(m->xattrs, m->xattrs_len, &at, &x), 1);
		ck_assert_uint_eq(x.name_len, strlen(names[i]));
		ck_assert_mem_eq(x.name, names[i], x.name_len);
	}
	ck_assert_int_eq(varve_xattr_next(m->xattrs, m->xattrs_len, &at, &x), 0);
}

START_TEST(test_xattrs)
{
	static const char *const of_file[] = {"system.posix_acl_access", "user.a", "user.empty",
					      "user.varve", "user.z"};
	static const char *const of_dir[] = {"system.posix_acl_default", "user.dir"};
	struct varve_xattr x;
	struct varve_member m;
	struct opened o;
	struct tree t;
	uint32_t at = 0;
	char name[64];

	make_file("file", "x", 1);
	set_xattr("file", "user.z", "last", 4);
	set_xattr("file", "user.empty", "", 0);
	set_xattr("file", "user.a", "b\0c", 3);
	set_xattr("file", "user.varve", "not ours", 8);
	set_xattr("file", "user.varve.ino", "12345678", 8);
	set_xattr("file", "trusted.t", "no", 2);
	set_xattr("file", "system.posix_acl_access", acl, sizeof(acl));
	make_dir_at("dir", 0755);
	set_xattr("dir", "user.dir", "d", 1);
	set_xattr("dir", "system.posix_acl_default", acl, sizeof(acl));
	make_file("many", "x", 1);
	for (int i = 0; i < 80; i++) {
		(void)snprintf(name, sizeof(name), "user.attribute-%02d", i);
		set_xattr("many", name, name, 8);
	}
	make_file("link", "target", 6);
	set_xattr("link", "user.varve.type", "l", 1);
	t = whole_tree();
	seal_and_compare(&t);
	o = open_segment();
	m = member(&o, "file");
	want_xattrs(&m, of_file, 5);
	ck_assert_int_eq(varve_xattr_next(m.xattrs, m.xattrs_len, &at, &x), 1);
	ck_assert_uint_eq(x.value_len, sizeof(acl));
	ck_assert_mem_eq(x.value, acl, sizeof(acl));
	ck_assert_int_eq(varve_xattr_next(m.xattrs, m.xattrs_len, &at, &x), 1);
	ck_assert_uint_eq(x.value_len, 3);
	ck_assert_mem_eq(x.value, "b\0c", 3);
	m = member(&o, "dir");
	want_xattrs(&m, of_dir, 2);
	m = member(&o, "link");
	ck_assert_uint_eq(m.xattrs_len, 0);
	m = member(&o, "many");
	at = 0;
	for (int i = 0; i < 80; i++) {
		(void)snprintf(name, sizeof(name), "user.attribute-%02d", i);
		ck_assert_int_eq(varve_xattr_next(m.xattrs, m.xattrs_len, &at, &x), 1);
		ck_assert_mem_eq(x.name, name, x.name_len);
		ck_assert_mem_eq(x.value, name, x.value_len);
	}
	opened_done(&o);
	tree_done(&t);
}
END_TEST

static void make_sparse(const char *path, off_t size, const off_t *at, size_t n)
{
	int fd = make_fd(path, "", 0);

	ck_assert_int_eq(ftruncate(fd, size), 0);
	for (size_t i = 0; i < n; i++)
		ck_assert_int_eq(pwrite(fd, "data", 4, at[i]), 4);
	ck_assert_int_eq(close(fd), 0);
}

START_TEST(test_holes)
{
	static const off_t middle[] = {3 << 20, 100 << 20}, ends[] = {0, (300 << 20) - 4};
	struct varve_segment_totals totals;
	struct varve_member m;
	struct opened o;
	struct tree t;
	int fd;

	make_sparse("all", 200 << 20, NULL, 0);
	make_sparse("middle", 200 << 20, middle, 2);
	make_sparse("ends", 300 << 20, ends, 2);
	make_sparse("odd", 5, NULL, 0);
	fd = make_fd("reserved", "text", 4);
	ck_assert_int_eq(fallocate(fd, 0, 0, 10 << 20), 0);
	ck_assert_int_eq(close(fd), 0);
	make_content("dense", 3 * MIB + 1, 5, false);
	t = whole_tree();
	totals = want_success(&t);
	ck_assert_uint_lt(totals.tar_bytes, 4 * MIB);
	ck_assert_uint_gt(totals.content_bytes, 700 * MIB);
	o = open_segment();
	same_tree(&o, &t);
	m = member(&o, "all");
	ck_assert_uint_eq(m.n_extents, 0);
	m = member(&o, "middle");
	ck_assert_uint_eq(m.n_extents, 2);
	m = member(&o, "ends");
	ck_assert_uint_eq(m.n_extents, 2);
	m = member(&o, "dense"); /* one run that covers all: not sparse */
	ck_assert_uint_eq(m.n_extents, 1);
	ck_assert_uint_eq(m.extents[0].offset, 0);
	ck_assert_uint_eq(m.extents[0].length, m.size);
	opened_done(&o);
	tree_done(&t);
}
END_TEST

static void run(const char *format, ...) varve_printf(1, 2);
static void run(const char *format, ...)
{
	char command[1024];
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(command, sizeof(command), format, ap);
	va_end(ap);
	ck_assert_msg(system(command) == 0, "%s", command);
}

/* Ordinary tools restore it: content, modes, owners, times in ns, xattrs, ACLs, holes. */
START_TEST(test_unpacks)
{
	static const off_t middle[] = {3 << 20};
	struct tree t;

	make_dir_at("d", 02750);
	make_content("d/text", 3 * MIB, 1, false);
	make_content("d/noise", 100000, 2, true);
	make_sparse("d/sparse", 20 << 20, middle, 1);
	set_xattr("d/text", "user.note", "hello\n", 6);
	set_xattr("d/text", "system.posix_acl_access", acl, sizeof(acl));
	ck_assert_int_eq(fchownat(parts, "d/noise", 1234, 5678, 0), 0);
	set_mtime("d/noise", 1234567890, 987654321);
	set_mtime("d", 1234567891, 1);
	t = whole_tree();
	(void)want_success(&t);
	ck_assert_int_eq(mkdirat(dir.fd, "out", 0700), 0);
	run("cd %s/out && zstd -dc ../seg/" SEG " | tar -xpf - --xattrs --acls --numeric-owner",
	    dir.path);
	for (int i = 0; i < 2; i++)
		run("cd %s/%s && find . -mindepth 1 -printf '%%p %%m %%U %%G %%T@ %%s\\n' | "
		    "grep -v ' %s' | sort > ../list%d && find . -type f -exec sha256sum {} + | "
		    "sort "
		    ">> ../list%d && getfattr -R -d -m user . | sort >> ../list%d && "
		    "getfacl -R -n . | sort >> ../list%d",
		    dir.path, i ? "out" : "parts", "none", i, i, i, i);
	run("grep -q user.note= %s/list0 && grep -q user:1000: %s/list0", dir.path, dir.path);
	run("cd %s && grep -v '^# file: .$' list0 > a; grep -v '^# file: .$' list1 > b; diff a b",
	    dir.path);
	tree_done(&t);
}
END_TEST

START_TEST(test_many_members)
{
	struct varve_segment_totals totals;
	struct opened o;
	struct tree t;
	char path[64];

	for (int d = 0; d < 100; d++) {
		(void)snprintf(path, sizeof(path), "dir-%d", d);
		make_dir_at(path, 0755);
		for (int f = 0; f < 99; f++) {
			(void)snprintf(path, sizeof(path), "dir-%d/%d.log", d, f);
			make_content(path, (size_t)(d * f % 700), (uint64_t)(d * 1000 + f), false);
		}
	}
	t = whole_tree();
	ck_assert_uint_eq(t.n, 10001);
	totals = want_success(&t);
	ck_assert_uint_eq(totals.files, 9900);
	o = open_segment();
	same_tree(&o, &t);
	opened_done(&o);
	tree_done(&t);
}
END_TEST

START_TEST(test_same_bytes)
{
	cleanup_free char *a = NULL, *b = NULL;
	size_t a_len, b_len;
	struct tree t;

	make_content("text", 5 * MIB, 1, false);
	make_file("a", "x", 1);
	set_xattr("a", "user.1", "x", 1);
	set_xattr("a", "user.2", "x", 1);
	t = whole_tree();
	(void)want_success(&t);
	ck_assert_int_eq(varve_read_file(seg, SEG, 10 * MIB, &a, &a_len), 0);
	(void)want_success(&t);
	ck_assert_int_eq(varve_read_file(seg, SEG, 10 * MIB, &b, &b_len), 0);
	ck_assert_uint_eq(a_len, b_len);
	ck_assert_mem_eq(a, b, a_len);
	tree_done(&t);
}
END_TEST

static size_t status_kib(const char *key)
{
	FILE *f = fopen("/proc/self/status", "re");
	size_t v = 0;
	char line[256];

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)))
			v = (size_t)atol(line + strlen(key));
	(void)fclose(f);
	return v;
}

/* More than one step of flushing; what memory it takes does not follow the size. */
START_TEST(test_large)
{
	cleanup_free unsigned char *p = content(16 * MIB, 1, true);
	struct varve_segment_totals totals;
	struct opened o;
	struct tree t;
	size_t before;
	int fd = make_fd("large", p, 16 * MIB);

	for (uint64_t i = 1; i < 5; i++)
		ck_assert_int_eq(varve_pwrite_full(fd, p, 16 * MIB, i * 16 * MIB), 0);
	ck_assert_int_eq(close(fd), 0);
	make_file("small", "x", 1);
	t = whole_tree();
	run("echo 5 > /proc/%d/clear_refs", (int)getpid());
	before = status_kib("VmHWM:");
	totals = want_success(&t);
	ck_assert_uint_lt(status_kib("VmHWM:") - before, 48 * 1024);
	ck_assert_uint_gt(totals.segment_bytes, 79 * MIB);
	o = open_segment();
	same_tree(&o, &t);
	opened_done(&o);
	tree_done(&t);
}
END_TEST

/* -- what goes wrong -- */

START_TEST(test_leftover)
{
	struct varve_err err = {.msg = ""};
	struct varve_segment_totals totals;
	struct tree t;
	char *text;
	size_t len;

	make_file("a", "x", 1);
	t = whole_tree();
	write_file(seg, SEG, "half of an earlier try", 22);
	seal_and_compare(&t);
	ck_assert_int_eq(unlinkat(seg, SEG, 0), 0);
	write_file(dir.fd, "kept", "kept", 4);
	ck_assert_int_eq(symlinkat("../kept", seg, SEG), 0);
	seal_and_compare(&t);
	ck_assert_int_eq(varve_read_file(dir.fd, "kept", 100, &text, &len), 0);
	ck_assert_str_eq(text, "kept");
	free(text);
	ck_assert_int_eq(unlinkat(seg, SEG, 0), 0);
	ck_assert_int_eq(mkdirat(seg, SEG, 0700), 0);
	ck_assert_int_eq(seal(&t, NULL, &totals, &err), -EISDIR);
	ck_assert_ptr_nonnull(strstr(err.msg, SEG));
	ck_assert_int_eq(seal(&t, NULL, &totals, NULL), -EISDIR);
	tree_done(&t);
}
END_TEST

static void fill_disk(int at, size_t leave)
{
	int fd = openat(at, "filler", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	static const char block[4096];
	off_t size = 0;

	ck_assert_int_ge(fd, 0);
	while (write(fd, block, sizeof(block)) > 0)
		size += (off_t)sizeof(block);
	ck_assert_int_eq(errno, ENOSPC);
	ck_assert_int_eq(ftruncate(fd, size > (off_t)leave ? size - (off_t)leave : 0), 0);
	ck_assert_int_eq(close(fd), 0);
}

/* A disk that is full from the start, or becomes so at any point of the segment: tried again with a
 * page more each time, until it fits. */
START_TEST(test_disk_full)
{
	struct varve_segment_totals totals = {.members = 77};
	struct varve_err err = {.msg = ""};
	struct tree t;
	int failures = 0, wrong = 0, left = 0, r = -ENOSPC;

	make_content("noise", 200000, 1, true);
	make_file("z", "x", 1);
	t = whole_tree();
	ck_assert_int_eq(fchdir(seg), 0);
	ck_assert_int_eq(mount("tmpfs", ".", "tmpfs", 0, "size=1m"), 0);
	(void)close(seg);
	seg = openat(dir.fd, "seg", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t pages = 0; r == -ENOSPC && pages < 200; pages++) {
		fill_disk(seg, pages * 4096);
		r = seal(&t, NULL, &totals, &err);
		failures += r == -ENOSPC;
		wrong += r == -ENOSPC && (totals.members != 77 || !err.msg[0]);
		left += entries(seg) - (r == 0) != 1;
	}
	if (r == 0) {
		struct opened o = open_segment();

		same_tree(&o, &t);
		opened_done(&o);
	}
	(void)close(seg);
	ck_assert_int_eq(chdir("/"), 0);
	(void)snprintf(err.msg, sizeof(err.msg), "%s/seg", dir.path);
	ck_assert_int_eq(umount(err.msg), 0);
	seg = openat(dir.fd, "seg", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(r, 0);
	ck_assert_int_gt(failures, 40);
	ck_assert_int_eq(wrong, 0);
	ck_assert_int_eq(left, 0);
	tree_done(&t);
}
END_TEST

static int refuse_at(struct tree *t, size_t i, int *fd)
{
	(void)fd;
	return !strcmp(t->list[i].path, "b") ? -EACCES : 0;
}

static int give_write_only(struct tree *t, size_t i, int *fd)
{
	if (!strcmp(t->list[i].path, "b"))
		*fd = openat(parts, "b", O_WRONLY | O_CLOEXEC);
	return 0;
}

static int give_path_only(struct tree *t, size_t i, int *fd)
{
	if (!strcmp(t->list[i].path, "b"))
		*fd = openat(parts, "b", O_PATH | O_CLOEXEC);
	return 0;
}

static int give_pipe(struct tree *t, size_t i, int *fd)
{
	int ends[2];

	if (strcmp(t->list[i].path, "b") != 0)
		return 0;
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	ck_assert_int_eq(close(ends[1]), 0);
	*fd = ends[0];
	return 0;
}

static int give_directory(struct tree *t, size_t i, int *fd)
{
	if (!strcmp(t->list[i].path, "b"))
		*fd = openat(parts, ".", O_RDONLY | O_CLOEXEC);
	return 0;
}

START_TEST(test_unreadable)
{
	struct tree t;

	make_file("a", "x", 1);
	make_content("b", 100, 1, false);
	make_file("c", "x", 1);
	t = whole_tree();
	t.hook = refuse_at;
	want_failure(&t, NULL, -EACCES, "'b'");
	t.hook = give_write_only;
	want_failure(&t, NULL, -EBADF, "'b'");
	t.hook = give_path_only;
	want_failure(&t, NULL, -EBADF, "'b'");
	t.hook = give_pipe;
	want_failure(&t, NULL, -EBADMSG, "'b'");
	t.list[2].link = true;
	t.hook = give_directory;
	want_failure(&t, NULL, -EBADMSG, "'b'");
	t.hook = NULL;
	seal_and_compare(&t);
	tree_done(&t);
}
END_TEST

START_TEST(test_refused)
{
	struct varve_segment_totals totals;
	struct varve_seal_job job = {.params = test_params(), .next = next};
	struct varve_err err = {.msg = ""};
	struct tree t;
	struct item swap;

	make_content("link-long", VARVE_PATH_BYTES_MAX + 1, 1, false);
	make_file("link-empty", "", 0);
	make_file("a", "x", 1);
	make_file("b", "x", 1);
	t = whole_tree();
	want_failure(&t, NULL, -EINVAL, "'link-empty'");
	make_file("link-empty", "not so", 6);
	want_failure(&t, NULL, -EBADMSG, "'link-long'");
	make_content("link-long", VARVE_PATH_BYTES_MAX, 1, false);
	seal_and_compare(&t);
	ck_assert_int_eq(unlinkat(seg, SEG, 0), 0);
	swap = t.list[1];
	t.list[1] = t.list[2];
	t.list[2] = swap;
	want_failure(&t, NULL, -EINVAL, "'a'");
	job.ctx = &t;
	ck_assert_int_eq(varve_seal_segment(seg, SEG, &job, &totals, &err), -EINVAL);
	job.params.level = 77;
	job.n = t.n;
	ck_assert_int_eq(varve_seal_segment(seg, SEG, &job, &totals, &err), -EINVAL);
	job.params.level = 3;
	ck_assert_int_eq(varve_seal_segment(seg, "none/" SEG, &job, &totals, &err), -ENOENT);
	ck_assert_int_eq(entries(seg), 0);
	tree_done(&t);
}
END_TEST

/* -- parts that change -- */

struct changer {
	pthread_t thread;
	int fd;
	atomic_bool stop, changed;
	void (*change)(int fd, uint64_t k);
};

static void *keep_changing(void *arg)
{
	struct changer *c = arg;

	for (uint64_t k = 0; !atomic_load(&c->stop); k++) {
		c->change(c->fd, k);
		atomic_store(&c->changed, true);
		(void)usleep(200);
	}
	return NULL;
}

static int start_changing(struct tree *t, size_t i, int *fd)
{
	struct changer *c = t->arg;

	(void)fd;
	if (strcmp(t->list[i].path, "b") != 0)
		return 0;
	ck_assert_int_eq(pthread_create(&c->thread, NULL, keep_changing, c), 0);
	return 0;
}

static void grow_it(int fd, uint64_t k)
{
	ck_assert_int_eq(pwrite(fd, "more", 4, (off_t)(16 * MIB + 4 * k)), 4);
}

static void shrink_it(int fd, uint64_t k)
{
	ck_assert_int_eq(ftruncate(fd, k < 1600 ? (off_t)(16 * MIB - k * 10000) : 0), 0);
}

static void overwrite_it(int fd, uint64_t k)
{
	ck_assert_int_eq(pwrite(fd, "else", 4, (off_t)(k * 5000 % (15 * MIB))), 4);
}

static void (*const changes[])(int fd, uint64_t k) = {grow_it, shrink_it, overwrite_it};

START_TEST(test_changes)
{
	struct changer c = {.change = changes[_i]};
	struct tree t;

	make_file("a", "x", 1);
	make_content("b", 16 * MIB, 1, true);
	c.fd = openat(parts, "b", O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(c.fd, 0);
	t = whole_tree();
	t.hook = start_changing;
	t.arg = &c;
	want_failure(&t, NULL, -EAGAIN, "'b' changed");
	atomic_store(&c.stop, true);
	ck_assert_int_eq(pthread_join(c.thread, NULL), 0);
	ck_assert_int_eq(close(c.fd), 0);
	ck_assert(atomic_load(&c.changed));
	/* It holds still now. */
	t.hook = NULL;
	seal_and_compare(&t);
	tree_done(&t);
}
END_TEST

/* -- calling it off -- */

static int cancel_flag;

static int cancel_at(struct tree *t, size_t i, int *fd)
{
	(void)fd;
	if (!strcmp(t->list[i].path, t->arg))
		__atomic_store_n(&cancel_flag, 1, __ATOMIC_RELAXED);
	return 0;
}

START_TEST(test_cancel)
{
	struct tree t;

	make_file("a", "x", 1);
	make_content("b", 16 * MIB, 1, true);
	make_file("c", "x", 1);
	t = whole_tree();
	t.hook = cancel_at;
	for (size_t i = 0; i < t.n; i++) {
		cancel_flag = 0;
		t.arg = t.list[i].path;
		want_failure(&t, &cancel_flag, -ECANCELED, NULL);
	}
	cancel_flag = 1;
	want_failure(&t, &cancel_flag, -ECANCELED, NULL);
	tree_done(&t);
}
END_TEST

static void *cancel_later(void *arg)
{
	(void)usleep(*(useconds_t *)arg);
	__atomic_store_n(&cancel_flag, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* At any time, also while it is being read back: it ends, soon, and all or nothing is there. */
START_TEST(test_cancel_any_time)
{
	struct varve_segment_totals totals;
	useconds_t delay = 100;
	struct tree t;
	int r = -ECANCELED, n = 0;

	make_content("b", 12 * MIB, 1, true);
	t = whole_tree();
	for (; r == -ECANCELED && delay < 8000000; delay += delay / 4) {
		pthread_t thread;

		cancel_flag = 0;
		ck_assert_int_eq(pthread_create(&thread, NULL, cancel_later, &delay), 0);
		r = seal(&t, &cancel_flag, &totals, NULL);
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
		ck_assert_int_eq(entries(seg), r == 0);
		n++;
	}
	ck_assert_int_eq(r, 0);
	ck_assert_int_gt(n, 3);
	tree_done(&t);
}
END_TEST

/* -- a disk that does not keep what it was given -- */

static void damage_bit(int fd)
{
	unsigned char b;

	ck_assert_int_eq(varve_pread_full(fd, &b, 1, 1 * MIB), 0);
	b ^= 1;
	ck_assert_int_eq(varve_pwrite_full(fd, &b, 1, 1 * MIB), 0);
}

static void damage_sector(int fd)
{
	static const char zeros[4096];

	ck_assert_int_eq(varve_pwrite_full(fd, zeros, sizeof(zeros), 0), 0);
}

static void damage_lost(int fd)
{
	ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 65536, 65536),
			 0);
}

static void (*const damages[])(int fd) = {damage_bit, damage_sector, damage_lost};

/* Frames that were written already are damaged before the last member comes. */
static int damage_at_last(struct tree *t, size_t i, int *fd)
{
	void (*const *damage)(int) = t->arg;
	cleanup_close int out = -1;
	struct stat st;

	(void)fd;
	if (i + 1 < t->n)
		return 0;
	out = openat(seg, SEG, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(out, 0);
	ck_assert_int_eq(fstat(out, &st), 0);
	ck_assert_int_gt(st.st_size, (off_t)(2 * MIB));
	(*damage)(out);
	return 0;
}

START_TEST(test_damaged_when_read_back)
{
	struct tree t;

	make_content("b", 12 * MIB, 1, true);
	make_file("last", "x", 1);
	t = whole_tree();
	t.hook = damage_at_last;
	t.arg = (void *)&damages[_i];
	want_failure(&t, NULL, -EBADMSG, "'b'");
	t.hook = NULL;
	seal_and_compare(&t);
	tree_done(&t);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("seal");
	TCase *tc = tcase_create("seal");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, test_kinds);
	tcase_add_test(tc, test_xattrs);
	tcase_add_test(tc, test_holes);
	tcase_add_test(tc, test_unpacks);
	tcase_add_test(tc, test_many_members);
	tcase_add_test(tc, test_same_bytes);
	tcase_add_test(tc, test_large);
	tcase_add_test(tc, test_leftover);
	tcase_add_test(tc, test_disk_full);
	tcase_add_test(tc, test_unreadable);
	tcase_add_test(tc, test_refused);
	tcase_add_loop_test(tc, test_changes, 0, 3);
	tcase_add_test(tc, test_cancel);
	tcase_add_test(tc, test_cancel_any_time);
	tcase_add_loop_test(tc, test_damaged_when_read_back, 0, 3);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
