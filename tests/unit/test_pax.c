/* Tar headers, byte by byte; that GNU tar and bsdtar take them is shown in test_segment_enc.c. */
#include "segment_util.h"

#include <inttypes.h>

#include "format/pax.h"

/* What the headers of one member say, read with an eye of its own. */
struct parsed {
	size_t total;       /* bytes before the content */
	bool extended;      /* there is a pax header */
	char records[9000]; /* its records, NUL-terminated (values of these tests have no NUL) */
	const unsigned char *h; /* the ustar header */
};

static uint64_t octal(const unsigned char *p, size_t digits)
{
	uint64_t v = 0;

	for (size_t i = 0; i < digits; i++) {
		ck_assert_msg(p[i] >= '0' && p[i] <= '7', "digit %zu is %#x", i, p[i]);
		v = v * 8 + (uint64_t)(p[i] - '0');
	}
	return v;
}

static void check_sum(const unsigned char *h)
{
	uint64_t sum = 8 * ' ';

	for (size_t i = 0; i < 512; i++)
		if (i < 148 || i >= 156)
			sum += h[i];
	ck_assert_uint_eq(octal(h + 148, 6), sum);
	ck_assert_uint_eq(h[154], 0);
	ck_assert_uint_eq(h[155], ' ');
	ck_assert_mem_eq(h + 257,
			 "ustar\0"
			 "00",
			 8);
}

static struct varve_buf made;

static struct parsed make(const struct varve_member *m)
{
	struct parsed p = {0};
	size_t size;

	made.len = 0;
	ck_assert_int_eq(varve_member_check(m, NULL), 0);
	ck_assert_int_eq(varve_pax_header(&made, m), 0);
	ck_assert_uint_eq(made.len % 512, 0);
	p.total = made.len;
	p.h = made.p;
	check_sum(p.h);
	if (p.h[156] == 'x') {
		p.extended = true;
		size = octal(p.h + 124, 11);
		ck_assert_uint_lt(size, sizeof(p.records));
		memcpy(p.records, p.h + 512, size);
		for (size_t i = size; i % 512 != 0; i++)
			ck_assert_uint_eq(p.h[512 + i], 0);
		p.h += 512 + (size + 511) / 512 * 512;
		check_sum(p.h);
	}
	return p;
}

static struct varve_member file(const char *path)
{
	return (struct varve_member){.path = path,
				     .path_len = (uint32_t)strlen(path),
				     .mode = FILE_MODE,
				     .uid = 1000,
				     .gid = 100,
				     .mtime_sec = 1700000000};
}

START_TEST(plain_file)
{
	static const struct varve_extent x = {0, 5};
	struct varve_member m = file("nginx/access.log");
	struct parsed p;

	m.size = 5;
	m.extents = &x;
	m.n_extents = 1;
	p = make(&m);
	ck_assert(!p.extended);
	ck_assert_uint_eq(p.total, 512);
	ck_assert_str_eq((const char *)p.h, "nginx/access.log");
	ck_assert_uint_eq(octal(p.h + 100, 7), 0640);
	ck_assert_uint_eq(octal(p.h + 108, 7), 1000);
	ck_assert_uint_eq(octal(p.h + 116, 7), 100);
	ck_assert_uint_eq(octal(p.h + 124, 11), 5);
	ck_assert_uint_eq(octal(p.h + 136, 11), 1700000000);
	ck_assert_uint_eq(p.h[156], '0');
}
END_TEST

START_TEST(directories)
{
	struct varve_member m = file("");
	struct parsed p;

	m.mode = S_IFDIR | 01777;
	p = make(&m);
	ck_assert_str_eq((const char *)p.h, "./");
	ck_assert_uint_eq(p.h[156], '5');
	ck_assert_uint_eq(octal(p.h + 100, 7), 01777);

	m = file("a/b");
	m.mode = DIR_MODE;
	p = make(&m);
	ck_assert_str_eq((const char *)p.h, "a/b/");
}
END_TEST

/* bsdtar would take the beginning off: it could be a drive or a share. */
START_TEST(other_systems_paths)
{
	static const struct {
		const char *path, *want;
	} cases[] = {
		{"C:", "./C:"}, {"c:\\x", "./c:\\x"}, {"\\", "./\\"}, {"\\\\?\\x", "./\\\\?\\x"},
		{"::", "./::"}, {"ab:", "ab:"},       {"a\\", "a\\"}, {":", ":"}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct varve_member m = file(cases[i].path);
		struct parsed p = make(&m);

		ck_assert_str_eq((const char *)p.h, cases[i].want);
	}
}
END_TEST

START_TEST(links)
{
	struct varve_member m = file("l");
	char target[102], want[128];
	struct parsed p;

	memset(target, 't', 101);
	target[101] = '\0';
	m.mode = LINK_MODE;
	m.target = target;
	m.size = 100;
	p = make(&m);
	ck_assert(!p.extended);
	ck_assert_uint_eq(p.h[156], '2');
	ck_assert_mem_eq(p.h + 157, target, 100);
	ck_assert_uint_eq(octal(p.h + 124, 11), 0);

	m.size = 101;
	p = make(&m);
	(void)snprintf(want, sizeof(want), "115 linkpath=%s\n", target);
	ck_assert_str_eq(p.records, want);
}
END_TEST

/* A path of total bytes; where it goes depends on where its '/' stand. */
START_TEST(where_paths_go)
{
	static const struct {
		size_t total, component;
		uint32_t mode;
		int prefix; /* -1: a pax record */
	} cases[] = {
		{100, 200, FILE_MODE, 0},  {99, 200, DIR_MODE, 0},     {101, 50, FILE_MODE, 50},
		{100, 50, DIR_MODE, 50},   {256, 155, FILE_MODE, 155}, {255, 155, DIR_MODE, 155},
		{101, 200, FILE_MODE, -1}, {257, 155, FILE_MODE, -1},  {256, 155, DIR_MODE, -1},
		{255, 156, FILE_MODE, -1}, {255, 154, FILE_MODE, 154}, /* a name of exactly 100 */
		{256, 154, FILE_MODE, -1}, {4000, 200, FILE_MODE, -1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *path = long_path(cases[i].total, cases[i].component), whole[300];
		struct varve_member m = file(path);
		struct parsed p;

		m.mode = cases[i].mode;
		p = make(&m);
		ck_assert_int_eq(p.extended, cases[i].prefix < 0);
		if (!p.extended) {
			(void)snprintf(whole, sizeof(whole), "%.155s%s%.100s", p.h + 345,
				       p.h[345] ? "/" : "", p.h);
			ck_assert_uint_eq(strlen(whole), cases[i].total + S_ISDIR(m.mode));
			ck_assert_mem_eq(whole, path, cases[i].total);
			ck_assert_uint_eq(strnlen((const char *)p.h + 345, 155),
					  (size_t)cases[i].prefix);
		} else {
			char *at = strstr(p.records, " path=");

			ck_assert_ptr_nonnull(at);
			ck_assert_uint_eq(strtoul(p.records, NULL, 10), strlen(p.records));
			ck_assert_mem_eq(at + 6, path, cases[i].total);
			ck_assert_ptr_null(strstr(p.records, "hdrcharset"));
		}
		free(path);
	}
}
END_TEST

/* The length of a record counts its own digits, also where they become one more. */
START_TEST(record_lengths)
{
	for (size_t total = 101; total < 1100; total++) {
		char *path = long_path(total, 2000);
		struct varve_member m = file(path);
		struct parsed p = make(&m);
		char *end;

		ck_assert_uint_eq(strtoul(p.records, &end, 10), strlen(p.records));
		ck_assert_int_eq(*end, ' ');
		ck_assert_uint_eq(strlen(p.records), (size_t)(end - p.records) + 7 + total);
		free(path);
	}
}
END_TEST

static const struct {
	int64_t sec;
	uint32_t nsec;
	const char *records; /* NULL: the ustar field is enough */
} times[] = {
	{0, 0, NULL},
	{077777777777, 0, NULL},
	{1, 500000000, "13 mtime=1.5\n"},
	{1, 1, "21 mtime=1.000000001\n"},
	{0, 123456789, "21 mtime=0.123456789\n"},
	{4102444800, 10, "29 mtime=4102444800.00000001\n"},
	{0100000000000, 0, "20 mtime=8589934592\n"},
	{-1, 0, "12 mtime=-1\n"},
	{-1, 500000000, "14 mtime=-0.5\n"},
	{-2, 500000000, "14 mtime=-1.5\n"},
	{-1, 999999999, "22 mtime=-0.000000001\n"},
	{INT64_MIN, 0, "30 mtime=-9223372036854775808\n"},
	{INT64_MIN, 1, "40 mtime=-9223372036854775807.999999999\n"},
	{INT64_MAX, 999999999, "39 mtime=9223372036854775807.999999999\n"},
};

START_TEST(mtimes)
{
	struct varve_member m = file("f");
	struct parsed p;

	m.mtime_sec = times[_i].sec;
	m.mtime_nsec = times[_i].nsec;
	p = make(&m);
	ck_assert_int_eq(p.extended, times[_i].records != NULL);
	ck_assert_str_eq(p.records, times[_i].records ? times[_i].records : "");
}
END_TEST

START_TEST(large_numbers)
{
	static const struct varve_extent most = {0, 077777777777}, more = {0, 0100000000000};
	struct varve_member m = file("f");
	struct parsed p;

	m.uid = m.gid = 07777777;
	m.size = most.length;
	m.extents = &most;
	m.n_extents = 1;
	p = make(&m);
	ck_assert(!p.extended);
	ck_assert_uint_eq(octal(p.h + 124, 11), most.length);

	m.uid = 010000000;
	m.gid = UINT32_MAX;
	m.size = more.length;
	m.extents = &more;
	p = make(&m);
	ck_assert_str_eq(p.records, "19 size=8589934592\n15 uid=2097152\n18 gid=4294967295\n");
}
END_TEST

/* hdrcharset is said for bytes that are not UTF-8, in a record, and only then. */
START_TEST(charsets)
{
	static const struct {
		const char *bytes;
		bool utf8;
	} cases[] = {
		{"\xc3\xa9", true},
		{"\xe2\x82\xac", true},
		{"\xf0\x9f\x98\x80", true},
		{"\xf4\x8f\xbf\xbf", true},
		{"\x80", false},
		{"\xc3", false},
		{"\xc0\x80", false},
		{"\xe0\x80\x80", false},
		{"\xed\xa0\x80", false},
		{"\xf4\x90\x80\x80", false},
		{"\xf8\x88\x80\x80", false},
		{"\xff", false},
		{"\xe2\x82", false},
		{"\xf0\x9f\x98", false},
		{"\xc3\x28", false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char path[300];
		struct varve_member m;
		struct parsed p;

		(void)snprintf(path, sizeof(path), "%0200d%s", 0, cases[i].bytes);
		m = file(path);
		p = make(&m);
		ck_assert_msg((strstr(p.records, "21 hdrcharset=BINARY\n") != NULL) !=
				      cases[i].utf8,
			      "case %zu: %s", i, p.records);
		m = file(cases[i].bytes); /* short: raw, in the ustar header */
		p = make(&m);
		ck_assert(!p.extended);
		ck_assert_str_eq((const char *)p.h, cases[i].bytes);
	}
}
END_TEST

START_TEST(sparse)
{
	static const struct varve_extent two[] = {{4096, 512}, {UINT64_C(1) << 40, 3}};
	struct varve_member m = file("s");
	struct parsed p;

	m.size = (UINT64_C(1) << 40) + 3;
	m.extents = two;
	m.n_extents = 2;
	p = make(&m);
	ck_assert_str_eq(p.records, "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
				    "21 GNU.sparse.name=s\n37 GNU.sparse.realsize=1099511627779\n");
	ck_assert_uint_eq(octal(p.h + 124, 11), 512 + 512 + 3);
	ck_assert_uint_eq(p.total, 512 + 512 + 512 + 512);
	ck_assert_str_eq((const char *)p.h + 512, "2\n4096\n512\n1099511627776\n3\n");

	/* a hole at the end; a file that is all hole */
	m.size++;
	p = make(&m);
	ck_assert_str_eq((const char *)p.h + 512,
			 "3\n4096\n512\n1099511627776\n3\n1099511627780\n0\n");
	m.n_extents = 0;
	p = make(&m);
	ck_assert_str_eq((const char *)p.h + 512, "1\n1099511627780\n0\n");
	ck_assert_uint_eq(octal(p.h + 124, 11), 512);
}
END_TEST

START_TEST(attributes)
{
	static const unsigned char acl[] = {
		2,   0,   0,   0,    1,   0,  6,    0,    255,  255,  255, 255, 2,
		0,   5,   0,   0xe8, 3,   0,  0,    4,    0,    4,    0,   255, 255,
		255, 255, 8,   0,    7,   0,  0xff, 0xff, 0xff, 0x7f, 16,  0,   4,
		0,   255, 255, 255,  255, 32, 0,    0,    0,    255,  255, 255, 255};
	unsigned char packed[1024];
	struct varve_member m = file("f");
	size_t len = 0;
	struct parsed p;

	ck_assert_int_eq(varve_xattr_put(packed, sizeof(packed), &len, "user.a=b%", "v\n", 2), 0);
	ck_assert_int_eq(varve_xattr_put(packed, sizeof(packed), &len, "system.posix_acl_access",
					 acl, sizeof(acl)),
			 0);
	ck_assert_int_eq(
		varve_xattr_put(packed, sizeof(packed), &len, "system.posix_acl_default", acl, 12),
		0);
	/* what is no ACL is kept as it is */
	ck_assert_int_eq(
		varve_xattr_put(packed, sizeof(packed), &len, "system.posix_acl_access", "x", 1),
		0);
	m.xattrs = packed;
	m.xattrs_len = (uint32_t)len;
	p = make(&m);
	ck_assert_str_eq(
		p.records,
		"33 SCHILY.xattr.user.a%3Db%25=v\n\n"
		"98 SCHILY.acl.access=user::rw-,user:1000:r-x,group::r--,group:2147483647:rwx,"
		"mask::r--,other::---\n"
		"32 SCHILY.acl.default=user::rw-\n"
		"42 SCHILY.xattr.system.posix_acl_access=x\n");
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

T_MAIN("pax", 60)
{
	tcase_add_test(tc, plain_file);
	tcase_add_test(tc, directories);
	tcase_add_test(tc, other_systems_paths);
	tcase_add_test(tc, links);
	tcase_add_test(tc, where_paths_go);
	tcase_add_test(tc, record_lengths);
	tcase_add_loop_test(tc, mtimes, 0, COUNT(times));
	tcase_add_test(tc, large_numbers);
	tcase_add_test(tc, charsets);
	tcase_add_test(tc, sparse);
	tcase_add_test(tc, attributes);
}
