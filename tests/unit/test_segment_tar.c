/* Segments in the hands of other people's tools: zstd, its seekable format, GNU tar, bsdtar. */
#include "segment_util.h"

#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <xxhash.h>
#include <zstd.h>

#define GIB (UINT64_C(1) << 30)

/* -- the published seekable format, by its rules -- */

START_TEST(seek_table)
{
	struct spec s[] = {{.path = "a", .mode = FILE_MODE, .size = 5 * VARVE_FRAME_BYTES + 1},
			   {.path = "b", .mode = FILE_MODE, .size = 99}};
	struct varve_segment_params params = test_params();
	struct varve_segment_totals totals;
	struct memory m = {0};
	const unsigned char *foot, *entry;
	uint64_t at = 0, raw_total = 0;
	uint32_t n;
	void *raw = malloc(VARVE_FRAME_BYTES);

	ck_assert_int_eq(encode(s, 2, &params, &m, &totals, NULL), 0);
	foot = m.buf.p + m.buf.len - 9;
	ck_assert_uint_eq(varve_get_le32(foot + 5), 0x8F92EAB1);
	ck_assert_uint_eq(foot[4], 0x80);
	n = varve_get_le32(foot);
	ck_assert_uint_eq(n, 7);
	entry = foot - 12 * n;
	ck_assert_uint_eq(varve_get_le32(entry - 4), 12 * n + 9);
	ck_assert_uint_eq(varve_get_le32(entry - 8), 0x184D2A5E);
	/* one entry for each frame, skippable ones included, each where the sum of those before
	 * ends */
	for (uint32_t i = 0; i < n; i++, entry += 12) {
		uint32_t comp = varve_get_le32(entry), size = varve_get_le32(entry + 4);
		size_t got = 0;

		ck_assert_uint_eq(ZSTD_findFrameCompressedSize(m.buf.p + at, m.buf.len - at), comp);
		if (i < n - 1)
			got = ZSTD_decompress(raw, VARVE_FRAME_BYTES, m.buf.p + at, comp);
		else
			ck_assert_uint_eq(varve_get_le32(m.buf.p + at) & 0xFFFFFFF0, 0x184D2A50);
		ck_assert_uint_eq(got, size);
		ck_assert_uint_eq((uint32_t)XXH64(raw, got, 0), varve_get_le32(entry + 8));
		at += comp;
		raw_total += size;
	}
	ck_assert_ptr_eq(m.buf.p + at + 8 + 12 * n, foot);
	ck_assert_uint_eq(raw_total, totals.tar_bytes);
	free(raw);
	varve_buf_done(&m.buf);
}
END_TEST

/* -- other people's tools -- */

static char folder[64];

static void make_folder(void)
{
	(void)strcpy(folder, "/var/tmp/varve-segment-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void run(const char *command)
{
	int r = system(command);

	ck_assert_msg(r == 0, "%d from: %s", r, command);
}

static void remove_folder(void)
{
	char command[256];

	(void)snprintf(command, sizeof(command), "chmod -R u+rwX %s && rm -rf %s", folder, folder);
	run(command);
}

static void write_segment(const struct varve_buf *b)
{
	char path[96];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/s.tar.zst", folder);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(b->p, 1, b->len, f), b->len);
	ck_assert_int_eq(fclose(f), 0);
}

/* Unpacks with `tar` into a folder of its own and returns that. */
static int extract(const char *tar)
{
	char command[512];
	int dir;

	(void)snprintf(
		command, sizeof(command),
		"cd %s && chmod -Rf u+rwX x; rm -rf x && mkdir x && zstd -qdc s.tar.zst > s.tar "
		"&& LC_ALL=C.UTF-8 %s -C x -xpf s.tar 2>messages || "
		"{ cat messages >&2; exit 1; }",
		folder, tar);
	run(command);
	(void)snprintf(command, sizeof(command), "%s/x", folder);
	dir = open(command, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dir, 0);
	return dir;
}

static void compare_unpacked_xattrs(int fd, const struct spec *s)
{
	struct varve_xattr x;
	uint32_t at = 0;

	while (varve_xattr_next(s->xattrs, s->xattrs_len, &at, &x) > 0) {
		char name[256] = "", value[4096];
		ssize_t n;

		memcpy(name, x.name, x.name_len);
		n = fgetxattr(fd, name, value, sizeof(value));
		ck_assert_msg(n >= 0, "%s: %s: %s", s->path, name, strerror(errno));
		ck_assert_int_eq(n, x.value_len);
		ck_assert_mem_eq(value, x.value, x.value_len);
	}
}

static void compare_unpacked_content(int fd, const struct spec *s)
{
	static unsigned char got[1 << 16], want[1 << 16];
	struct varve_extent whole;
	struct varve_member m = spec_member(s, 0, &whole);

	for (uint32_t e = 0; e < m.n_extents; e++) {
		uint64_t from = m.extents[e].offset > 600 ? m.extents[e].offset - 600 : 0;
		uint64_t to = m.extents[e].offset + m.extents[e].length + 600;

		for (uint64_t at = from; at < to && at < m.size; at += sizeof(got)) {
			size_t n = to - at < sizeof(got) ? (size_t)(to - at) : sizeof(got);
			ssize_t r = pread(fd, got, n, (off_t)at);

			ck_assert_int_eq(r, read_spec((void *)s, want, n, at));
			ck_assert_msg(memcmp(got, want, (size_t)r) == 0, "%s at %llu", s->path,
				      (unsigned long long)at);
		}
	}
}

static void compare_unpacked(int dir, const struct spec *s)
{
	cleanup_close int fd = -1;
	struct stat st;
	char target[4096];

	ck_assert_msg(fstatat(dir, s->path, &st, AT_SYMLINK_NOFOLLOW) == 0, "%s: %s", s->path,
		      strerror(errno));
	ck_assert_msg(st.st_mode == s->mode, "%s: mode %o", s->path, st.st_mode);
	ck_assert_msg(st.st_mtim.tv_sec == s->mtime_sec &&
			      (uint32_t)st.st_mtim.tv_nsec == s->mtime_nsec,
		      "%s: %lld.%09ld", s->path, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	if (geteuid() == 0) {
		ck_assert_uint_eq(st.st_uid, s->uid);
		ck_assert_uint_eq(st.st_gid, s->gid);
	}
	if (S_ISLNK(s->mode)) {
		ck_assert_int_eq(readlinkat(dir, s->path, target, sizeof(target)),
				 (ssize_t)strlen(s->target));
		ck_assert_mem_eq(target, s->target, strlen(s->target));
		return;
	}
	if ((s->mode & 0444) == 0)
		return;
	fd = openat(dir, s->path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	compare_unpacked_xattrs(fd, s);
	if (!S_ISREG(s->mode))
		return;
	ck_assert_uint_eq((uint64_t)st.st_size, s->size);
	if (s->extents || s->n_extents > 0)
		ck_assert_uint_lt((uint64_t)st.st_blocks * 512, 1 << 20);
	compare_unpacked_content(fd, s);
}

static void compare_with(const char *tar, const struct spec *specs, size_t n)
{
	int dir = extract(tar);

	for (size_t i = 0; i < n; i++)
		compare_unpacked(dir, &specs[i]);
	(void)close(dir);
}

static int by_path(const void *a, const void *b)
{
	const struct spec *x = a, *y = b;

	return varve_path_compare(x->path, strlen(x->path), y->path, strlen(y->path));
}

static void encode_to_folder(const struct spec *specs, size_t n)
{
	struct varve_segment_params params = test_params();
	struct varve_segment_totals totals;
	struct varve_err err = {0};
	struct memory m = {0};
	char command[128];
	int r = encode(specs, n, &params, &m, &totals, &err);

	ck_assert_msg(r == 0, "%d %s", r, err.msg);
	compare_segment(&m.buf, specs, n);
	write_segment(&m.buf);
	varve_buf_done(&m.buf);
	(void)snprintf(command, sizeof(command), "zstd -qt %s/s.tar.zst", folder);
	run(command);
}

static char q255[256], bytes255[256], e255[256];

static const struct varve_extent far_apart[] = {{4096, 4096},
						{1 << 20, 512},
						{1024 * GIB - 4096, 4000}},
				 odd[] = {{1000, 10}, {5000, 1}},
				 odd_want[] = {{512, 512}, {4608, 512}},
				 far_want[] = {{4096, 4096},
					       {1 << 20, 512},
					       {1024 * GIB - 4096, 4096}},
				 tail_only[] = {{9 * GIB, 7}}, none[1];

static const unsigned char an_acl[] = {
	2,  0, 0, 0, 1,   0,   6,   0,   255, 255, 255, 255, 2,   0,   4,    0,  0xe8, 3,
	0,  0, 4, 0, 4,   0,   255, 255, 255, 255, 8,   0,   6,   0,   0xea, 3,  0,    0,
	16, 0, 6, 0, 255, 255, 255, 255, 32,  0,   0,   0,   255, 255, 255,  255};
static unsigned char some_xattrs[512], dir_xattrs[512];

#define FILE_AT(when, ...)                                                                         \
	{                                                                                          \
		.mode = FILE_MODE, .mtime_sec = (when), __VA_ARGS__                                \
	}
#define A_FILE(...) FILE_AT(1796000123, __VA_ARGS__)

static struct spec awkward[128] = {
	A_FILE(.path = "*.example.com.log", .size = 3),
	A_FILE(.path = "-rf", .size = 3),
	A_FILE(.path = " ", .size = 1),
	A_FILE(.path = "\\", .size = 1),
	A_FILE(.path = "C:\\x", .size = 1),
	A_FILE(.path = "new\nline\n", .size = 5),
	A_FILE(.path = "tab\there", .size = 5),
	A_FILE(.path = "\x01\x7f", .size = 5),
	A_FILE(.path = "\xff\xfe", .size = 5),
	A_FILE(.path = "caf\xc3\xa9", .size = 5),
	A_FILE(.path = "empty.log"),
	A_FILE(.path = "frame.log", .size = VARVE_FRAME_BYTES),
	FILE_AT(1796000123, .path = "ns.log", .size = 1, .mtime_nsec = 123456789),
	FILE_AT(0, .path = "ns1.log", .size = 1, .mtime_nsec = 1),
	FILE_AT(-86400 * 365, .path = "old.log", .size = 1),
	FILE_AT(INT64_C(4102444800), .path = "late.log", .size = 1, .mtime_nsec = 7),
	FILE_AT(INT64_C(9000000000), .path = "later.log", .size = 1),
	{.path = "secret", .mode = S_IFREG, .size = 3, .mtime_sec = 5},
	{.path = "run.sh", .mode = S_IFREG | 0755, .size = 3, .mtime_sec = 5},
	{.path = "shared", .mode = S_IFDIR | 01777, .mtime_sec = 77, .mtime_nsec = 5},
	{.path = "read-only", .mode = S_IFDIR | 0555, .mtime_sec = 77, .mtime_nsec = 5},
	A_FILE(.path = "read-only/f", .size = 1000),
	{.path = "bare", .mode = S_IFDIR | 0700, .mtime_sec = 78},
	{.path = "link", .mode = LINK_MODE, .target = "run.sh", .mtime_sec = 5, .mtime_nsec = 6},
	{.path = "dangling", .mode = LINK_MODE, .target = "/no/where", .mtime_sec = 5},
	{.path = "link255", .mode = LINK_MODE, .target = q255, .mtime_sec = 5},
	{.path = "link-bytes", .mode = LINK_MODE, .target = bytes255, .mtime_sec = 5},
	{.path = "link-new\nline", .mode = LINK_MODE, .target = "a\nb\xff", .mtime_sec = 5},
	A_FILE(.path = q255, .size = 9),
	A_FILE(.path = bytes255, .size = 9),
	A_FILE(.path = e255, .size = 9),
	A_FILE(.path = "sparse-1T", .size = 1024 * GIB, .extents = far_apart, .n_extents = 3,
	       .want = far_want, .n_want = 3),
	A_FILE(.path = "sparse-9G", .size = 9 * GIB + 7, .extents = tail_only, .n_extents = 1),
	A_FILE(.path = "sparse-all", .size = 9 * GIB, .extents = none),
	A_FILE(.path = "sparse\nodd\xff", .size = 9000, .extents = odd, .n_extents = 2,
	       .want = odd_want, .n_want = 2),
	{.path = "acl.log",
	 .mode = S_IFREG | 0660,
	 .size = 30,
	 .mtime_sec = 5,
	 .xattrs = some_xattrs},
	{.path = "acl-dir", .mode = DIR_MODE, .mtime_sec = 5, .xattrs = dir_xattrs},
};

static void put(unsigned char *to, uint32_t *len, const char *name, const void *value,
		uint32_t value_len)
{
	size_t n = *len;

	ck_assert_int_eq(varve_xattr_put(to, 512, &n, name, value, value_len), 0);
	*len = (uint32_t)n;
}

/* Fills in what can't be written as a constant; returns how many members there are. */
static size_t make_awkward(void)
{
	static char *deep;
	size_t n = 0;

	memset(q255, 'q', 255);
	memset(bytes255, 0xff, 255);
	for (size_t i = 0; i < 254; i++)
		e255[i] = i % 2 ? '\xa9' : '\xc3';
	while (awkward[n].path) {
		struct spec *s = &awkward[n++];

		s->seed = (uint32_t)n;
		if (s->xattrs == some_xattrs) {
			put(some_xattrs, &s->xattrs_len, "user.note", "a=b\nc\0d", 7);
			put(some_xattrs, &s->xattrs_len, "user.empty", "", 0);
			put(some_xattrs, &s->xattrs_len, "system.posix_acl_access", an_acl,
			    sizeof(an_acl));
		}
		if (s->xattrs == dir_xattrs)
			put(dir_xattrs, &s->xattrs_len, "system.posix_acl_default", an_acl,
			    sizeof(an_acl));
	}
	if (geteuid() == 0) {
		awkward[0].uid = 2097152; /* one more than the field holds */
		awkward[1].gid = 4000000000;
		awkward[2].uid = 12;
	}
	deep = long_path(4000, 200);
	for (size_t i = 0; i < 4000; i++)
		if (deep[i] == '/')
			awkward[n++] = (struct spec){.path = strndup(deep, i),
						     .mode = DIR_MODE,
						     .mtime_sec = 1000 + (int64_t)i};
	awkward[n++] = (struct spec)A_FILE(.path = deep, .size = 5000, .mtime_nsec = 1);
	qsort(awkward, n, sizeof(awkward[0]), by_path);
	return n;
}

START_TEST(tar_and_bsdtar_restore_all)
{
	size_t n = make_awkward();

	make_folder();
	encode_to_folder(awkward, n);
	compare_with("tar --xattrs --acls", awkward, n);
	compare_with("bsdtar --xattrs --acls", awkward, n);
	remove_folder();
}
END_TEST

/* Where bsdtar (libarchive 3.6) is known to be wrong itself; see docs/format.md. */
START_TEST(tar_restores_more)
{
	static unsigned char packed[512];
	struct spec s[] = {
		{.path = "a", .mode = FILE_MODE, .mtime_sec = -2, .mtime_nsec = 500000000},
		{.path = "b", .mode = FILE_MODE, .mtime_sec = -1, .mtime_nsec = 1},
		{.path = "c", .mode = FILE_MODE, .mtime_sec = 5, .xattrs = packed},
	};

	put(packed, &s[2].xattrs_len, "user.a=b%3D", "v", 1);
	make_folder();
	encode_to_folder(s, 3);
	compare_with("tar --xattrs --acls", s, 3);
	remove_folder();
}
END_TEST

START_TEST(tar_lists_names)
{
	struct spec s[] = {{.path = "d", .mode = DIR_MODE},
			   {.path = "d/f", .mode = FILE_MODE, .size = 3 * VARVE_FRAME_BYTES},
			   {.path = "e", .mode = FILE_MODE}};
	char command[256];

	make_folder();
	encode_to_folder(s, 3);
	(void)snprintf(
		command, sizeof(command),
		"test \"$(zstd -dc %s/s.tar.zst | tar tf - | tr '\\n' ' ')\" = './ d/ d/f e '",
		folder);
	run(command);
	remove_folder();
}
END_TEST

T_MAIN("segment_tar", 100)
{
	tcase_add_test(tc, seek_table);
	tcase_add_test(tc, tar_and_bsdtar_restore_all);
	tcase_add_test(tc, tar_restores_more);
	tcase_add_test(tc, tar_lists_names);
}
