/* The range record: the list and its form on disk; and what bad input gets. The file: test_ranges_file.c. */
#include "ranges_util.h"

/* -- the list -- */

START_TEST(test_find)
{
	ck_assert_ptr_null(varve_ranges_find(&list, A, 2000));
	fill();
	ck_assert_uint_eq(varve_ranges_find(&list, B, 2000)->head, 100);
	ck_assert_uint_eq(varve_ranges_find(&list, A, 2000)->end, 100);
	ck_assert_uint_eq(varve_ranges_find(&list, C, 3000)->ino, 3007);
	ck_assert_ptr_null(varve_ranges_find(&list, A, 3000));
	ck_assert_ptr_null(varve_ranges_find(&list, "2026-12-01", 2000));
	ck_assert_ptr_null(varve_ranges_find(&list, "a name that is longer than any name of a bucket", 2000));
	/* What is added behind a look is found, too. */
	put(A, 1, 5, 6);
	ck_assert_uint_eq(varve_ranges_find(&list, A, 1)->head, 5);
	ck_assert_uint_eq(varve_ranges_find(&list, C, 2000)->head, 5000);
}
END_TEST

START_TEST(test_add_copies)
{
	unsigned char xattrs[64];
	char path[] = "x.log";
	struct varve_range e = entry(A, 2000, 0, 100);

	e.path = path;
	e.xattrs = xattrs;
	e.xattrs_len = pack(xattrs, sizeof(xattrs));
	add(&e);
	memset(path, '?', 5);
	memset(xattrs, '?', sizeof(xattrs));
	ck_assert_str_eq(list.list[0].path, "x.log");
	ck_assert_mem_eq(list.list[0].xattrs + 6, "user.a", 6);
}
END_TEST

START_TEST(test_remove_bucket)
{
	fill();
	ck_assert_uint_eq(varve_ranges_remove_bucket(&list, "2026-12-01T09Z"), 0);
	ck_assert_uint_eq(varve_ranges_remove_bucket(&list, C), 2);
	ck_assert_uint_eq(list.n, 2);
	ck_assert_ptr_null(varve_ranges_find(&list, C, 2000));
	ck_assert_ptr_nonnull(varve_ranges_find(&list, A, 2000));
	ck_assert_uint_eq(varve_ranges_remove_bucket(&list, C), 0);
	ck_assert_uint_eq(varve_ranges_remove_bucket(&list, B), 1);
	ck_assert_uint_eq(varve_ranges_remove_bucket(&list, A), 1);
	ck_assert_uint_eq(list.n, 0);
	put(A, 1, 2, 3);
	ck_assert_uint_eq(varve_ranges_find(&list, A, 1)->end, 3);
}
END_TEST

START_TEST(test_lowest_head)
{
	uint64_t low = 77;

	ck_assert(!varve_ranges_lowest_head(&list, 2000, &low));
	ck_assert_uint_eq(low, 77);
	put(C, 2000, 5000, UINT64_MAX);
	put(A, 2000, 300, 400);
	put(B, 2000, 400, 5000);
	put(A, 3000, 10, 20);
	ck_assert(varve_ranges_lowest_head(&list, 2000, &low));
	ck_assert_uint_eq(low, 300);
	ck_assert(varve_ranges_lowest_head(&list, 3000, &low));
	ck_assert_uint_eq(low, 10);
	ck_assert(!varve_ranges_lowest_head(&list, 2500, &low));
	(void)varve_ranges_remove_bucket(&list, A);
	ck_assert(varve_ranges_lowest_head(&list, 2000, &low));
	ck_assert_uint_eq(low, 400);
}
END_TEST

/* A store's recovery asks for each part in turn: it must not look through all of them each time. */
START_TEST(test_quick)
{
	const uint64_t n = 300000;

	for (uint64_t i = 0; i < n; i++)
		put(i % 2 ? A : B, 5000 + (i / 2) * 7919 % n, 10 + i, 10 + i);
	for (uint64_t i = 0; i < n; i++) {
		const struct varve_range *e = varve_ranges_find(&list, i % 2 ? A : B, 5000 + (i / 2) * 7919 % n);
		uint64_t low;

		ck_assert_ptr_nonnull(e);
		ck_assert_uint_eq(e->head, 10 + i);
		ck_assert(varve_ranges_lowest_head(&list, e->part, &low));
		ck_assert_uint_eq(low, 10 + i / 2 * 2);
	}
	ck_assert_ptr_null(varve_ranges_find(&list, C, 5000));
}
END_TEST

/* -- the form on disk -- */

static unsigned char *encode(size_t *ret_len)
{
	unsigned char *data;

	ck_assert_int_eq(varve_ranges_encode(&list, &data, ret_len), 0);
	return data;
}

static void expect_round_trip(void)
{
	struct varve_ranges got;
	size_t len;
	unsigned char *data = encode(&len);

	ck_assert_int_eq(varve_ranges_decode(data, len, &got), 0);
	expect_equal(&list, &got);
	varve_ranges_done(&got);
	free(data);
}

START_TEST(test_round_trip)
{
	expect_round_trip();
	ck_assert(list.links_done);
	fill();
	expect_round_trip();
}
END_TEST

START_TEST(test_round_trip_of_many)
{
	for (uint64_t i = 0; i < 10000; i++) {
		char path[64];
		/* Not in their order. */
		struct varve_range e = entry(i % 3 ? B : A, 1024 + i * 7919 % 10007, i, 2 * i);

		(void)snprintf(path, sizeof(path), "dir-%llu/x.log", (unsigned long long)i);
		e.path = path;
		add(&e);
	}
	expect_round_trip();
}
END_TEST

START_TEST(test_longest_names)
{
	char path[VARVE_PATH_BYTES_MAX + 1];
	struct varve_range e = entry(A, 1024, 1, 2);

	memset(path, 'p', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	e.path = path;
	memset(e.class_name, 'c', sizeof(e.class_name) - 1);
	memset(e.tablet, 't', sizeof(e.tablet) - 1);
	e.class_name[sizeof(e.class_name) - 1] = e.tablet[sizeof(e.tablet) - 1] = '\0';
	add(&e);
	expect_round_trip();
}
END_TEST

/* The layout, as docs/format.md has it: what is written must stay readable. */
START_TEST(test_layout)
{
	static const unsigned char want[] =
		"\x01\0\0\0"			      /* version */
		"\x01\0\0\0"			      /* flags: links done */
		"\x0e\0"			      /* the bucket that they are in */
		"2026-12-01T11Z"
		"\x01\0\0\0"			      /* entries */
		"\x02\0\0\0"			      /* flags: end pending */
		"\xd0\x07\0\0\0\0\0\0"		      /* part */
		"\xd7\x07\0\0\0\0\0\0"		      /* ino */
		"\x0a\0\0\0\0\0\0\0"		      /* head */
		"\x64\0\0\0\0\0\0\0"		      /* end */
		"\xfe\xff\xff\xff\xff\xff\xff\xff"    /* mtime */
		"\xa0\x01\0\0\x03\0\0\0\x04\0\0\0"    /* mode, uid, gid */
		"\x0e\0"
		"2026-12-01T10Z"
		"\x07\0"
		"default"
		"\x01\0"
		"0"
		"\x05\0"
		"x.log"
		"\x0f\0\0\0"			      /* attributes */
		"\x06\0\x03\0\0\0"
		"user.aone";
	struct varve_range e = entry(A, 2000, 10, 100);
	unsigned char xattrs[32];
	unsigned char *data;
	size_t len = 0;

	ck_assert_int_eq(varve_xattr_put(xattrs, sizeof(xattrs), &len, "user.a", "one", 3), 0);
	e.xattrs = xattrs;
	e.xattrs_len = len;
	e.end_pending = true;
	e.mtime_ns = -2;
	e.path = (char *)(uintptr_t)"x.log";
	add(&e);
	(void)strcpy(list.links_bucket, B);
	data = encode(&len);
	ck_assert_uint_eq(len, sizeof(want) - 1);
	ck_assert_mem_eq(data, want, len);
	free(data);
}
END_TEST

/* -- bad input -- */

static int decode(const unsigned char *data, size_t len, struct varve_ranges *ret)
{
	/* Exactly as long: a sanitizer sees a byte too many. */
	unsigned char *exact = malloc(len ? len : 1);
	int r;

	if (!exact)
		ck_abort_msg("no memory");
	if (len)
		memcpy(exact, data, len);
	r = varve_ranges_decode(exact, len, ret);
	free(exact);
	if (r < 0 && (ret->n || ret->list))
		ck_abort_msg("refused, and there are entries");
	return r;
}

static bool is_sound(const struct varve_range *e)
{
	int64_t start, end;
	struct varve_xattr x;
	uint32_t at = 0;
	int r;

	while ((r = varve_xattr_next(e->xattrs, (uint32_t)e->xattrs_len, &at, &x)) > 0)
		;
	return r == 0 && varve_name_parse(e->bucket, &start, &end) == 0 && e->class_name[0] &&
	       e->class_name[0] != '.' && !strchr(e->class_name, '/') && e->tablet[0] &&
	       e->tablet[0] != '.' && !strchr(e->tablet, '/') && e->path[0] &&
	       varve_path_check(e->path, strlen(e->path)) == 0 && e->part && e->ino &&
	       e->head <= e->end && (int64_t)e->head >= 0 &&
	       ((int64_t)e->end >= 0 || e->end == UINT64_MAX) && e->mode <= 07777;
}

/* Refused, or every entry of it may be used. */
static int decode_any(const unsigned char *data, size_t len)
{
	struct varve_ranges got;
	int r = decode(data, len, &got);

	bool sound = r == 0 || r == -EBADMSG || r == -EPROTONOSUPPORT;

	for (size_t i = 0; i < got.n; i++)
		sound = sound && is_sound(&got.list[i]);
	if (!sound)
		ck_abort_msg("%d, %zu entries", r, got.n);
	varve_ranges_done(&got);
	return r;
}

START_TEST(test_truncated)
{
	unsigned char *data;
	size_t len;

	fill();
	data = encode(&len);
	for (size_t cut = 0; cut < len; cut++)
		ck_assert_int_eq(decode_any(data, cut), -EBADMSG);
	ck_assert_int_eq(decode_any(data, len), 0);
	free(data);
}
END_TEST

START_TEST(test_flipped)
{
	static const unsigned char with[] = {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff, 0x5a};
	unsigned char *data;
	unsigned refused = 0;
	size_t len;

	fill();
	data = encode(&len);
	for (size_t at = 0; at < len; at += T_ONE_IN(3))
		for (size_t i = 0; i < sizeof(with); i++) {
			data[at] ^= with[i];
			refused += decode_any(data, len) < 0;
			data[at] ^= with[i];
		}
	ck_assert_uint_gt(refused, len);
	free(data);
}
END_TEST

/* Two bytes at a time, by chance, and any rubbish at all. */
START_TEST(test_rubbish)
{
	uint64_t seed = 88172645463325252;
	unsigned char *data, *copy;
	size_t len;

	fill();
	data = encode(&len);
	copy = malloc(len);
	ck_assert_ptr_nonnull(copy);
	for (int i = 0; i < 100000; i += T_ONE_IN(7)) {
		memcpy(copy, data, len);
		for (int k = 0; k < 1 + i % 4; k++) {
			seed ^= seed << 13;
			seed ^= seed >> 7;
			seed ^= seed << 17;
			copy[(seed >> 8) % len] = (unsigned char)seed;
		}
		(void)decode_any(copy, i % 5 ? len : (size_t)(seed >> 20) % len);
	}
	for (size_t i = 0; i < len; i++)
		copy[i] = (unsigned char)(i < 4 ? i == 0 : 0xff);
	ck_assert_int_lt(decode_any(copy, len), 0);
	free(copy);
	free(data);
}
END_TEST

START_TEST(test_later_version)
{
	unsigned char *data;
	size_t len;

	fill();
	data = encode(&len);
	data[0] = VARVE_RANGES_VERSION + 1;
	ck_assert_int_eq(decode_any(data, len), -EPROTONOSUPPORT);
	/* Whatever else is in it. */
	ck_assert_int_eq(decode_any(data, 8), -EPROTONOSUPPORT);
	data[3] = 0x80;
	ck_assert_int_eq(decode_any(data, len), -EPROTONOSUPPORT);
	memset(data, 0, 4);
	ck_assert_int_eq(decode_any(data, len), -EBADMSG);
	free(data);
}
END_TEST

/* One fault each in an entry that is right otherwise. */
#define TEXT(x) ((char *)(uintptr_t)(x))
#define UNSOUND(name, ...)                                                                         \
	static void name(struct varve_range *e)                                                    \
	{                                                                                          \
		__VA_ARGS__;                                                                       \
	}

UNSOUND(none, (void)e)
UNSOUND(no_bucket, e->bucket[0] = '\0')
UNSOUND(bad_bucket, (void)strcpy(e->bucket, "current"))
UNSOUND(outside_bucket, (void)strcpy(e->bucket, "../sealed"))
UNSOUND(no_class, e->class_name[0] = '\0')
UNSOUND(hidden_class, (void)strcpy(e->class_name, ".late"))
UNSOUND(class_up, (void)strcpy(e->class_name, ".."))
UNSOUND(class_of_two, (void)strcpy(e->class_name, "a/b"))
UNSOUND(no_tablet, e->tablet[0] = '\0')
UNSOUND(hidden_tablet, (void)strcpy(e->tablet, ".0"))
UNSOUND(tablet_of_two, (void)strcpy(e->tablet, "0/.."))
UNSOUND(no_path, e->path = TEXT(""))
UNSOUND(absolute_path, e->path = TEXT("/etc/passwd"))
UNSOUND(path_up, e->path = TEXT("a/../../x"))
UNSOUND(path_of_dot, e->path = TEXT("./x"))
UNSOUND(path_with_nothing, e->path = TEXT("a//x"))
UNSOUND(path_of_folder, e->path = TEXT("a/"))
UNSOUND(backwards, e->head = 101)
UNSOUND(no_part, e->part = 0)
UNSOUND(no_ino, e->ino = 0)
UNSOUND(head_beyond, e->head = (uint64_t)INT64_MAX + 1; e->end = UINT64_MAX)
UNSOUND(end_beyond, e->end = (uint64_t)INT64_MAX + 1)
UNSOUND(end_nearly_open, e->end = UINT64_MAX - 1)
UNSOUND(open_and_pending, e->end = UINT64_MAX; e->end_pending = true)
UNSOUND(mode_with_type, e->mode = 0100644)
UNSOUND(bad_xattrs, e->xattrs_len--)

static const struct {
	void (*spoil)(struct varve_range *e);
	int r;
} unsound[] = {
	{none, 0},
	{no_bucket, -EBADMSG},	   {bad_bucket, -EBADMSG},	{outside_bucket, -EBADMSG},
	{no_class, -EBADMSG},	   {hidden_class, -EBADMSG},	{class_up, -EBADMSG},
	{class_of_two, -EBADMSG},  {no_tablet, -EBADMSG},	{hidden_tablet, -EBADMSG},
	{tablet_of_two, -EBADMSG}, {no_path, -EBADMSG},		{absolute_path, -EBADMSG},
	{path_up, -EBADMSG},	   {path_of_dot, -EBADMSG},	{path_with_nothing, -EBADMSG},
	{path_of_folder, -EBADMSG}, {backwards, -EBADMSG},	{no_part, -EBADMSG},
	{no_ino, -EBADMSG},	   {head_beyond, -EBADMSG},	{end_beyond, -EBADMSG},
	{end_nearly_open, -EBADMSG}, {open_and_pending, -EBADMSG}, {mode_with_type, -EBADMSG},
	{bad_xattrs, -EBADMSG},
};

START_TEST(test_unsound)
{
	unsigned char xattrs[64], *data;
	struct varve_range e = entry(A, 2000, 10, 100);
	size_t len;

	fill();
	(void)varve_ranges_remove_bucket(&list, A);
	e.xattrs = xattrs;
	e.xattrs_len = pack(xattrs, sizeof(xattrs));
	unsound[_i].spoil(&e);
	add(&e);
	data = encode(&len);
	ck_assert_int_eq(decode_any(data, len), unsound[_i].r);
	free(data);
}
END_TEST

/* Where the fields are that no entry can be given wrongly by its struct. */
#define AT_FLAGS 4
#define AT_LINKS 8
#define AT_ENTRY (4 + 4 + 2 + 14 + 4)
#define AT_BUCKET (AT_ENTRY + 4 + 5 * 8 + 3 * 4)

static unsigned char *encode_one(size_t *ret_len)
{
	put(A, 2000, 10, 100);
	(void)strcpy(list.links_bucket, B);
	return encode(ret_len);
}

static void expect_refused(const unsigned char *data, size_t len)
{
	ck_assert_int_eq(decode_any(data, len), -EBADMSG);
}

START_TEST(test_refused)
{
	unsigned char *data, *longer;
	size_t len;

	data = encode_one(&len);
	ck_assert_int_eq(decode_any(data, len), 0);
	/* Unknown flags: of the record, of an entry. */
	data[AT_FLAGS] = 2;
	expect_refused(data, len);
	data[AT_FLAGS] = 0;
	ck_assert_int_eq(decode_any(data, len), 0);
	data[AT_ENTRY] = 8;
	expect_refused(data, len);
	data[AT_ENTRY] = 0;
	/* A bucket of links that is none, or none at all: which is allowed. */
	data[AT_LINKS + 2] = 'x';
	expect_refused(data, len);
	data[AT_LINKS + 2] = '\0';
	expect_refused(data, len);
	data[AT_LINKS + 2] = '2';
	/* Names longer than any; with a NUL. */
	data[AT_BUCKET] = VARVE_BUCKET_NAME_MAX;
	expect_refused(data, len);
	data[AT_BUCKET] = 14;
	data[AT_BUCKET + 2 + 13] = '\0';
	expect_refused(data, len);
	data[AT_BUCKET + 2 + 13] = 'Z';
	ck_assert_int_eq(decode_any(data, len), 0);
	/* More entries than there are; fewer; something behind the last. */
	data[AT_ENTRY - 4] = 2;
	expect_refused(data, len);
	memset(data + AT_ENTRY - 4, 0xff, 4);
	expect_refused(data, len);
	memset(data + AT_ENTRY - 4, 0, 4);
	expect_refused(data, len);
	data[AT_ENTRY - 4] = 1;
	longer = calloc(1, len + 1);
	ck_assert_ptr_nonnull(longer);
	memcpy(longer, data, len);
	expect_refused(longer, len + 1);
	free(longer);
	free(data);
}
END_TEST

/* One file of a part in a bucket: two would be two truths. */
START_TEST(test_same_key_twice)
{
	unsigned char *data;
	size_t len;

	put(A, 2000, 0, 100);
	put(B, 2000, 100, UINT64_MAX);
	put(A, 2000, 0, 100);
	data = encode(&len);
	expect_refused(data, len);
	free(data);
}
END_TEST

T_MAIN("ranges", 60)
{
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_find);
	tcase_add_test(tc, test_add_copies);
	tcase_add_test(tc, test_remove_bucket);
	tcase_add_test(tc, test_lowest_head);
	tcase_add_test(tc, test_quick);
	tcase_add_test(tc, test_round_trip);
	tcase_add_test(tc, test_round_trip_of_many);
	tcase_add_test(tc, test_longest_names);
	tcase_add_test(tc, test_layout);
	tcase_add_test(tc, test_truncated);
	tcase_add_test(tc, test_flipped);
	tcase_add_test(tc, test_rubbish);
	tcase_add_test(tc, test_later_version);
	tcase_add_loop_test(tc, test_unsound, 0, (int)(sizeof(unsound) / sizeof(*unsound)));
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_same_key_twice);
}
