#include "golden_segment.h"
#include "segment_util.h"

#include "format/layout.h"

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))
#define GIB (UINT64_C(1) << 30)

static void round_trip(const struct spec *specs, size_t n, unsigned threads)
{
	struct varve_segment_params params = test_params();
	struct varve_segment_totals totals;
	struct memory m = {0};
	struct varve_err err = {0};
	int r;

	params.threads = threads;
	r = encode(specs, n, &params, &m, &totals, &err);
	ck_assert_msg(r == 0, "encode: %d %s", r, err.msg);
	ck_assert_uint_eq(totals.segment_bytes, m.buf.len);
	compare_segment(&m.buf, specs, n);
	varve_buf_done(&m.buf);
}

/* Around a frame's end, also with the root's header, the file's own and the two blocks behind. */
static const uint64_t sizes[] = {0,
				 1,
				 511,
				 512,
				 513,
				 1023,
				 1 << 20,
				 VARVE_FRAME_BYTES - 1,
				 VARVE_FRAME_BYTES,
				 VARVE_FRAME_BYTES + 1,
				 3 * VARVE_FRAME_BYTES,
				 VARVE_FRAME_BYTES - 1024,
				 VARVE_FRAME_BYTES - 1024 - 1,
				 VARVE_FRAME_BYTES - 1024 + 1,
				 VARVE_FRAME_BYTES - 2048,
				 VARVE_FRAME_BYTES - 2048 + 1,
				 VARVE_FRAME_BYTES - 2048 - 511,
				 VARVE_FRAME_BYTES - 2048 - 512};

START_TEST(any_size)
{
	struct spec s = {.path = "f", .mode = FILE_MODE, .size = sizes[_i], .seed = 7};

	round_trip(&s, 1, 1);
	round_trip(&s, 1, 3);
}
END_TEST

static const struct varve_extent far_apart[] = {
	{0, 1}, {3 * GIB, 600}, {9 * GIB, 5}, {UINT64_C(1) << 50, 1}, {INT64_MAX - 10, 10}};
static const struct varve_extent far_want[] = {{0, 512},
					       {3 * GIB, 1024},
					       {9 * GIB, 512},
					       {UINT64_C(1) << 50, 512},
					       {INT64_MAX - 511, 511}};
static const struct varve_extent close_by[] = {{10, 10}, {100, 10}, {511, 2}, {2000, 1}};
static const struct varve_extent close_want[] = {{0, 1024}, {1536, 512}};
static const struct varve_extent none[1];

START_TEST(holes)
{
	struct spec s[] = {
		{.path = "a",
		 .mode = FILE_MODE,
		 .size = INT64_MAX,
		 .extents = far_apart,
		 .n_extents = 5,
		 .want = far_want,
		 .n_want = 5},
		{.path = "b",
		 .mode = FILE_MODE,
		 .size = 5000,
		 .extents = close_by,
		 .n_extents = 4,
		 .want = close_want,
		 .n_want = 2},
		{.path = "c", .mode = FILE_MODE, .size = 1024 * GIB, .extents = none},
		/* widened, the one extent is the whole file: no holes are left */
		{.path = "d",
		 .mode = FILE_MODE,
		 .size = 2002,
		 .extents = close_by,
		 .n_extents = 4,
		 .want = (const struct varve_extent[]){{0, 1024}, {1536, 466}},
		 .n_want = 2},
		{.path = "e",
		 .mode = FILE_MODE,
		 .size = 600,
		 .extents = close_by,
		 .n_extents = 3,
		 .want = (const struct varve_extent[]){{0, 600}},
		 .n_want = 1},
	};

	round_trip(s, 5, 2);
}
END_TEST

START_TEST(mapping)
{
	struct spec s = {.path = "f",
			 .mode = FILE_MODE,
			 .size = 10000,
			 .extents = (const struct varve_extent[]){{512, 1024}, {4096, 512}},
			 .n_extents = 2};
	static const struct {
		uint64_t off, tar, len; /* tar: behind the map, or hole */
	} cases[] = {{0, UINT64_MAX, 512}, {511, UINT64_MAX, 1},     {512, 0, 1024},
		     {1535, 1023, 1},      {1536, UINT64_MAX, 2560}, {4095, UINT64_MAX, 1},
		     {4096, 1024, 512},    {4607, 1535, 1},          {4608, UINT64_MAX, 5392},
		     {9999, UINT64_MAX, 1}};
	struct varve_segment_params params = test_params();
	struct varve_segment_totals totals;
	struct varve_index *ix;
	struct memory m = {0};
	struct varve_source src;

	ck_assert_int_eq(encode(&s, 1, &params, &m, &totals, NULL), 0);
	src = memory_source(&m.buf);
	ck_assert_int_eq(varve_index_open(&src, &ix, NULL), 0);
	for (int i = 0; i < COUNT(cases); i++) {
		/* root 512; pax header 1024, header 512, map 512 */
		uint64_t tar, len, base = cases[i].tar == UINT64_MAX ? 0 : 512 + 1024 + 512 + 512;

		varve_index_map(ix, 1, cases[i].off, &tar, &len);
		ck_assert_uint_eq(tar, base + cases[i].tar);
		ck_assert_uint_eq(len, cases[i].len);
	}
	varve_index_free(ix);
	varve_buf_done(&m.buf);
}
END_TEST

START_TEST(looking_up)
{
	static const struct {
		const char *path;
		int i; /* -1: not there */
	} cases[] = {{"", 0},     {"a.log", 1},   {"d", 2},     {"d/e", 3},    {"d/e/f", 4},
		     {"d/l", 5},  {"d\n\xff", 6}, {"z", 7},     {"a", -1},     {"a.log/", -1},
		     {"b", -1},   {"d/", -1},     {"d/e/", -1}, {"d/e/g", -1}, {"zz", -1},
		     {"z/a", -1}, {"\x01", -1},   {"\xff", -1}, {"/", -1}};
	static const uint32_t ends[] = {8, 2, 6, 5, 5, 6, 7, 8};
	struct varve_segment_params params = test_params(), about;
	struct varve_segment_totals totals, again;
	struct varve_index *ix;
	struct memory m = {0};
	struct varve_source src;

	ck_assert_int_eq(encode(small, 7, &params, &m, &totals, NULL), 0);
	src = memory_source(&m.buf);
	ck_assert_int_eq(varve_index_open(&src, &ix, NULL), 0);
	for (int i = 0; i < COUNT(cases); i++) {
		uint32_t got = 99;
		int r = varve_index_find(ix, cases[i].path, strlen(cases[i].path), &got);

		ck_assert_int_eq(r, cases[i].i < 0 ? -ENOENT : 0);
		ck_assert_uint_eq(got, cases[i].i < 0 ? 99 : (uint32_t)cases[i].i);
	}
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_uint_eq(varve_index_subtree_end(ix, i), ends[i]);
	varve_index_about(ix, &about, &again);
	ck_assert_str_eq(about.bucket, params.bucket);
	ck_assert_str_eq(about.class_name, params.class_name);
	ck_assert_str_eq(about.tablet, params.tablet);
	ck_assert_int_eq(about.start_ns, params.start_ns);
	ck_assert_int_eq(about.end_ns, params.end_ns);
	ck_assert_mem_eq(&again, &totals, sizeof(totals));
	ck_assert_uint_eq(totals.files, 3);
	ck_assert_uint_eq(totals.content_bytes, 9700);
	ck_assert_uint_ge(varve_index_memory(ix), 8 * VARVE_IM_BYTES);
	varve_index_free(ix);
	varve_index_free(NULL);
	compare_segment(&m.buf, small, 7);
	varve_buf_done(&m.buf);
}
END_TEST

START_TEST(golden_version_1)
{
	struct varve_buf b = {0};

	ck_assert_int_eq(varve_buf_add(&b, golden_segment_1, sizeof(golden_segment_1)), 0);
	compare_segment(&b, small, 7);
	varve_buf_done(&b);
}
END_TEST

START_TEST(many_members)
{
	enum { HOSTS = 100 / T_ONE_IN(4), FILES = 1000, N = HOSTS * (FILES + 1) };
	struct spec *s = calloc(N, sizeof(*s));
	size_t n = 0;

	for (int h = 0; h < HOSTS; h++) {
		for (int f = -1; f < FILES; f++, n++) {
			char *path = malloc(32);

			(void)snprintf(path, 32, f < 0 ? "host=%02d" : "host=%02d/%03d.log", h, f);
			s[n] = (struct spec){.path = path,
					     .mode = f < 0 ? DIR_MODE : FILE_MODE,
					     .size = f < 0 ? 0 : (uint64_t)f % 97,
					     .seed = (uint32_t)n,
					     .mtime_sec = h,
					     .mtime_nsec = 9};
		}
	}
	round_trip(s, n, 2);
	for (size_t i = 0; i < n; i++)
		free((void *)s[i].path);
	free(s);
}
END_TEST

START_TEST(deepest_directories)
{
	char *p = malloc(VARVE_PATH_BYTES_MAX + 1);
	struct spec *s = calloc(2048, sizeof(*s));
	size_t n = 0;

	for (size_t len = 1; len <= VARVE_PATH_BYTES_MAX; len += 2) {
		p[len - 1] = 'd';
		p[len] = '\0';
		s[n++] = (struct spec){.path = strdup(p), .mode = DIR_MODE};
		if (len < VARVE_PATH_BYTES_MAX)
			p[len] = '/';
	}
	round_trip(s, n, 1);
	for (size_t i = 0; i < n; i++)
		free((void *)s[i].path);
	free(s);
	free(p);
}
END_TEST

START_TEST(zero_frames_per_file)
{
	round_trip(NULL, 0, 1);
}
END_TEST

/* -- sources that fail -- */

struct failing {
	struct varve_buf *b;
	int at, calls, error;
	size_t most;
};

static ssize_t failing_read(void *ctx, void *buf, size_t len, uint64_t off)
{
	struct failing *f = ctx;

	if (++f->calls == f->at)
		return f->error;
	return memory_read(f->b, buf, len < f->most ? len : f->most, off);
}

START_TEST(source_fails)
{
	struct varve_segment_params params = test_params();
	struct varve_segment_totals totals;
	struct memory m = {0};
	struct varve_index *ix = NULL;
	struct failing f;
	struct varve_source src;

	ck_assert_int_eq(encode(small, 7, &params, &m, &totals, NULL), 0);
	src = (struct varve_source){.read = failing_read, .ctx = &f, .size = m.buf.len};
	for (int at = 1;; at++) {
		struct varve_err err = {0};
		int r;

		f = (struct failing){.b = &m.buf, .at = at, .error = -EIO, .most = 300};
		r = varve_index_open(&src, &ix, &err);
		if (r == 0 && f.calls < at)
			break;
		ck_assert_int_eq(r, -EIO);
		ck_assert_str_ne(err.msg, "");
		f = (struct failing){.b = &m.buf, .at = at, .error = 0, .most = 300};
		ck_assert_int_eq(varve_index_open(&src, &ix, &err), -EBADMSG);
	}
	varve_index_free(ix);
	varve_buf_done(&m.buf);
}
END_TEST

T_MAIN("segment_dec", 100)
{
	tcase_add_loop_test(tc, any_size, 0, COUNT(sizes));
	tcase_add_test(tc, holes);
	tcase_add_test(tc, mapping);
	tcase_add_test(tc, looking_up);
	tcase_add_test(tc, golden_version_1);
	tcase_add_test(tc, many_members);
	tcase_add_test(tc, deepest_directories);
	tcase_add_test(tc, zero_frames_per_file);
	tcase_add_test(tc, source_fails);
}
