#include "segment_util.h"

#define PATH(s) s, sizeof(s) - 1

static const struct {
	const char *path;
	size_t len;
	int want;
} paths[] = {
	{PATH(""), 0},
	{PATH("a"), 0},
	{PATH("a/b/c.log"), 0},
	{PATH("..."), 0},
	{PATH(".a/..b"), 0},
	{PATH("a\nb/\xff\xfe"), 0},
	{PATH("*.example.com.log"), 0},
	{PATH("/"), -EINVAL},
	{PATH("/a"), -EINVAL},
	{PATH("a/"), -EINVAL},
	{PATH("a//b"), -EINVAL},
	{PATH("."), -EINVAL},
	{PATH(".."), -EINVAL},
	{PATH("a/./b"), -EINVAL},
	{PATH("a/.."), -EINVAL},
	{PATH("../a"), -EINVAL},
	{PATH("a\0b"), -EINVAL},
};

START_TEST(path_check)
{
	ck_assert_int_eq(varve_path_check(paths[_i].path, paths[_i].len), paths[_i].want);
}
END_TEST

START_TEST(path_check_length)
{
	char *p = long_path(4096, 200);

	ck_assert_int_eq(varve_path_check(p, 4096), -EINVAL);
	ck_assert_int_eq(varve_path_check(p, 4095), 0);
	free(p);
}
END_TEST

/* In the order of a segment. */
static const char *const ordered[] = {"",      "a",       "a/\x01", "a/a",   "a/b",   "a/b/c",
				      "a\x01", "a\x01/z", "a b",    "a-b",   "a.b",   "a0",
				      "aa",    "b",       "b/c",    "b/c/d", "b/c-",  "b/c0",
				      "b-",    "\x7f",    "\x80",   "\xff",  "\xff/a"};

START_TEST(path_order)
{
	size_t n = sizeof(ordered) / sizeof(ordered[0]);

	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < n; j++) {
			int c = varve_path_compare(ordered[i], strlen(ordered[i]), ordered[j],
						   strlen(ordered[j]));

			ck_assert_msg((c > 0) - (c < 0) == (i > j) - (i < j), "'%s' and '%s': %d",
				      ordered[i], ordered[j], c);
		}
}
END_TEST

START_TEST(xattrs_packed)
{
	unsigned char packed[64];
	struct varve_xattr x;
	uint32_t at = 0;
	size_t len = 0;

	ck_assert_uint_eq(varve_xattr_packed_size("user.a", 3), 15);
	ck_assert_int_eq(varve_xattr_put(packed, sizeof(packed), &len, "user.a", "x\0y", 3), 0);
	ck_assert_int_eq(varve_xattr_put(packed, sizeof(packed), &len, "user.b", NULL, 0), 0);
	ck_assert_uint_eq(len, 27);
	ck_assert_int_eq(varve_xattr_put(packed, 38, &len, "user.c", NULL, 0), -ENOSPC);
	ck_assert_uint_eq(len, 27);
	ck_assert_int_eq(varve_xattr_put(packed, 39, &len, "user.c", NULL, 0), 0);
	len -= 12;

	ck_assert_int_eq(varve_xattr_next(packed, (uint32_t)len, &at, &x), 1);
	ck_assert_uint_eq(x.name_len, 6);
	ck_assert_mem_eq(x.name, "user.a", 6);
	ck_assert_uint_eq(x.value_len, 3);
	ck_assert_mem_eq(x.value, "x\0y", 3);
	ck_assert_int_eq(varve_xattr_next(packed, (uint32_t)len, &at, &x), 1);
	ck_assert_mem_eq(x.name, "user.b", 6);
	ck_assert_uint_eq(x.value_len, 0);
	ck_assert_int_eq(varve_xattr_next(packed, (uint32_t)len, &at, &x), 0);

	at = 0;
	ck_assert_int_eq(varve_xattr_next(packed, 0, &at, &x), 0);
	ck_assert_int_eq(varve_xattr_next(NULL, 0, &at, &x), 0);
}
END_TEST

START_TEST(xattrs_malformed)
{
	static const struct {
		const char *bytes;
		uint32_t len;
	} cases[] = {
		{PATH("\x01")},               /* no room for the lengths */
		{PATH("\x01\0\0\0\0")},       /* nor here */
		{PATH("\x01\0\0\0\0\0")},     /* no room for the name */
		{PATH("\0\0\0\0\0\0")},       /* an empty name */
		{PATH("\x01\0\x02\0\0\0av")}, /* a value that is longer than what is there */
		{PATH("\x01\0\xff\xff\xff\xff"
		      "av")},
		{PATH("\x02\0\0\0\0\0a\0")}, /* a NUL in the name */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned char *exact = malloc(cases[i].len);
		struct varve_xattr x;
		uint32_t at = 0;

		memcpy(exact, cases[i].bytes, cases[i].len);
		ck_assert_int_eq(varve_xattr_next(exact, cases[i].len, &at, &x), -EINVAL);
		free(exact);
	}
}
END_TEST

START_TEST(xattr_name_too_long)
{
	unsigned char *packed = malloc(1024);
	struct varve_xattr x;
	uint32_t at = 0;
	char name[258];
	size_t len = 0;

	memset(name, 'n', 257);
	name[256] = '\0';
	ck_assert_int_eq(varve_xattr_put(packed, 1024, &len, name, "", 0), -ENOSPC);
	name[255] = '\0';
	ck_assert_int_eq(varve_xattr_put(packed, 1024, &len, name, "", 0), 0);
	ck_assert_int_eq(varve_xattr_next(packed, (uint32_t)len, &at, &x), 1);
	varve_put_le16(packed, 256);
	packed[len] = 'n';
	at = 0;
	ck_assert_int_eq(varve_xattr_next(packed, (uint32_t)len + 1, &at, &x), -EINVAL);
	free(packed);
}
END_TEST

struct align_case {
	uint64_t size;
	uint32_t n, n_want;
	struct varve_extent in[4], want[4];
};

static const struct align_case aligns[] = {
	{0, 0, 0, {{0}}, {{0}}},
	{1, 1, 1, {{0, 1}}, {{0, 1}}},
	{1000, 1, 1, {{0, 1000}}, {{0, 1000}}},
	{1000, 1, 1, {{1, 1}}, {{0, 512}}},
	{1000, 1, 1, {{999, 1}}, {{512, 488}}},
	{1000, 2, 1, {{0, 1}, {999, 1}}, {{0, 1000}}},
	{9000, 2, 1, {{0, 511}, {600, 1}}, {{0, 1024}}},
	{9000, 2, 2, {{0, 512}, {1024, 1}}, {{0, 512}, {1024, 512}}},
	{9000, 3, 2, {{100, 1}, {700, 1}, {5000, 1}}, {{0, 1024}, {4608, 512}}},
	{UINT64_C(1) << 40,
	 2,
	 2,
	 {{4096, 4096}, {(UINT64_C(1) << 40) - 1, 1}},
	 {{4096, 4096}, {(UINT64_C(1) << 40) - 512, 512}}},
	{INT64_MAX, 1, 1, {{INT64_MAX - 1, 1}}, {{INT64_MAX - 511, 511}}},
};

START_TEST(extents_align)
{
	const struct align_case *c = &aligns[_i];
	struct varve_extent x[4];
	uint32_t n;

	memcpy(x, c->in, sizeof(x));
	n = varve_extents_align(x, c->n, c->size);
	ck_assert_uint_eq(n, c->n_want);
	for (uint32_t i = 0; i < n; i++) {
		ck_assert_uint_eq(x[i].offset, c->want[i].offset);
		ck_assert_uint_eq(x[i].length, c->want[i].length);
	}
}
END_TEST

static const struct varve_extent whole[] = {{0, 10}}, beyond[] = {{0, 11}}, empty[] = {{1, 0}},
				 touching[] = {{0, 3}, {3, 2}}, backwards[] = {{5, 1}, {0, 1}},
				 overflow[] = {{UINT64_MAX, 2}}, holes[] = {{1, 2}, {4, 6}};

static const struct {
	struct varve_member m;
	int want;
} members[] = {
	{{.path = "", .mode = DIR_MODE}, 0},
	{{.path = "f", .path_len = 1, .mode = FILE_MODE}, 0},
	{{.path = "f", .path_len = 1, .mode = FILE_MODE, .size = 10}, 0}, /* all hole */
	{{.path = "f",
	  .path_len = 1,
	  .mode = FILE_MODE,
	  .size = 10,
	  .extents = whole,
	  .n_extents = 1},
	 0},
	{{.path = "f",
	  .path_len = 1,
	  .mode = FILE_MODE,
	  .size = 10,
	  .extents = holes,
	  .n_extents = 2},
	 0},
	{{.path = "l", .path_len = 1, .mode = LINK_MODE, .size = 3, .target = "../"}, 0},
	{{.path = "f", .path_len = 1, .mode = S_IFREG | 07777, .mtime_nsec = 999999999}, 0},
	{{.path = "/", .path_len = 1, .mode = FILE_MODE}, -EINVAL},
	{{.path = "f", .path_len = 1, .mode = 0644}, -EINVAL},
	{{.path = "f", .path_len = 1, .mode = S_IFIFO | 0644}, -EINVAL},
	{{.path = "f", .path_len = 1, .mode = S_IFREG | 0200000}, -EINVAL},
	{{.path = "f", .path_len = 1, .mode = FILE_MODE, .mtime_nsec = 1000000000}, -EINVAL},
	{{.path = "f", .path_len = 1, .mode = FILE_MODE, .size = UINT64_C(1) << 63}, -EINVAL},
	{{.path = "f",
	  .path_len = 1,
	  .mode = FILE_MODE,
	  .size = 10,
	  .extents = beyond,
	  .n_extents = 1},
	 -EINVAL},
	{{.path = "f",
	  .path_len = 1,
	  .mode = FILE_MODE,
	  .size = 10,
	  .extents = empty,
	  .n_extents = 1},
	 -EINVAL},
	{{.path = "f",
	  .path_len = 1,
	  .mode = FILE_MODE,
	  .size = 10,
	  .extents = touching,
	  .n_extents = 2},
	 -EINVAL},
	{{.path = "f",
	  .path_len = 1,
	  .mode = FILE_MODE,
	  .size = 10,
	  .extents = backwards,
	  .n_extents = 2},
	 -EINVAL},
	{{.path = "f",
	  .path_len = 1,
	  .mode = FILE_MODE,
	  .size = 10,
	  .extents = overflow,
	  .n_extents = 1},
	 -EINVAL},
	{{.path = "f", .path_len = 1, .mode = FILE_MODE, .extents = whole, .n_extents = 1},
	 -EINVAL},
	{{.path = "d", .path_len = 1, .mode = DIR_MODE, .size = 1}, -EINVAL},
	{{.path = "d", .path_len = 1, .mode = DIR_MODE, .extents = whole, .n_extents = 1}, -EINVAL},
	{{.path = "l", .path_len = 1, .mode = LINK_MODE, .size = 0, .target = ""}, -EINVAL},
	{{.path = "l", .path_len = 1, .mode = LINK_MODE, .size = 3, .target = "a\0b"}, -EINVAL},
	{{.path = "l", .path_len = 1, .mode = LINK_MODE, .size = 4096, .target = "a"}, -EINVAL},
	{{.path = "f",
	  .path_len = 1,
	  .mode = FILE_MODE,
	  .xattrs = (const void *)"\x01",
	  .xattrs_len = 1},
	 -EINVAL},
};

START_TEST(member_check)
{
	struct varve_err err = {0};

	ck_assert_int_eq(varve_member_check(&members[_i].m, &err), members[_i].want);
	ck_assert_int_eq(err.msg[0] != '\0', members[_i].want < 0);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

T_MAIN("segment_path", 60)
{
	tcase_add_loop_test(tc, path_check, 0, COUNT(paths));
	tcase_add_test(tc, path_check_length);
	tcase_add_test(tc, path_order);
	tcase_add_test(tc, xattrs_packed);
	tcase_add_test(tc, xattrs_malformed);
	tcase_add_test(tc, xattr_name_too_long);
	tcase_add_loop_test(tc, extents_align, 0, COUNT(aligns));
	tcase_add_loop_test(tc, member_check, 0, COUNT(members));
}
