#include "seal_util.h"

#include <stdarg.h>

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

T_MAIN("seal", 100)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_kinds);
	tcase_add_test(tc, test_xattrs);
	tcase_add_test(tc, test_holes);
	tcase_add_test(tc, test_unpacks);
	tcase_add_test(tc, test_many_members);
	tcase_add_test(tc, test_same_bytes);
	tcase_add_test(tc, test_large);
}
