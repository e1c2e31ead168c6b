#include "store_segment_util.h"

#include "format/frame.h"
#include "format/index_build.h"
#include "format/layout.h"
#include "format/pax.h"
#include "store/ranges.h"
#include "store/segment.h"
#include "store/verify.h"

#define FRAME ((uint64_t)VARVE_FRAME_BYTES)
#define NAME "2026-11-30"
#define FOUND_MAX 64

static const struct varve_extent holes[] = {{4096, 512}, {65536, 3 << 20}, {16 << 20, 100}};

static const struct spec specs[] = {
	{.path = "a", .mode = DIR_MODE},
	{.path = "a/empty", .mode = FILE_MODE},
	{.path = "a/link", .mode = LINK_MODE, .target = "../b"},
	{.path = "a/one", .mode = FILE_MODE, .size = 1, .seed = 1, .mtime_nsec = 7},
	{.path = "a/two", .mode = FILE_MODE, .size = 70001, .seed = 2},
	{.path = "big", .mode = FILE_MODE, .size = 4 * FRAME + 12345, .seed = 3},
	{.path = "d", .mode = DIR_MODE},
	{.path = "d/e", .mode = DIR_MODE},
	{.path = "holes",
	 .mode = FILE_MODE,
	 .size = 20 << 20,
	 .seed = 4,
	 .extents = holes,
	 .n_extents = 3},
	{.path = "nothing", .mode = FILE_MODE, .size = 1 << 20, .seed = 5, .extents = holes},
	{.path = "z", .mode = FILE_MODE, .size = 1000, .seed = 6},
};
#define N_SPECS (sizeof(specs) / sizeof(specs[0]))

static struct test_dir dir;
static struct varve_buf good; /* the segment of specs */

static struct varve_segment_params params_of(const char *bucket, const char *tablet)
{
	struct varve_segment_params p = test_params();

	p.level = 1;
	p.bucket = bucket;
	p.tablet = tablet;
	p.start_ns = INT64_C(1764460800) * 1000000000; /* 2025-11-30; see the test of places */
	p.end_ns = p.start_ns + INT64_C(86400) * 1000000000;
	return p;
}

static void set_up(void)
{
	struct varve_segment_params params = params_of(NAME, "0");
	struct varve_segment_totals totals;
	struct varve_err err;
	struct memory m = {.fail_after = 0};

	dir = make_dir();
	ck_assert_int_eq(encode(specs, N_SPECS, &params, &m, &totals, &err), 0);
	good = m.buf;
}

static void tear_down(void)
{
	varve_buf_done(&good);
	drop_dir(&dir);
}

/* -- collecting what is found -- */

struct finding {
	enum varve_verify_kind kind;
	char segment[128], path[128], what[256];
	uint64_t offset, length;
};

struct found {
	struct finding list[FOUND_MAX];
	size_t n;
	uint64_t done, total, calls;
	uint64_t cancel_at; /* calls; 0: never */
};

static int on_progress(void *ctx, uint64_t done, uint64_t total)
{
	struct found *f = ctx;

	ck_assert_uint_ge(done, f->done);
	ck_assert_uint_le(done, total);
	ck_assert(f->calls == 0 || f->total == total);
	f->done = done;
	f->total = total;
	f->calls++;
	return f->cancel_at > 0 && f->calls == f->cancel_at;
}

static void on_report(void *ctx, const struct varve_verify_finding *x)
{
	struct found *f = ctx;
	struct finding *to = &f->list[f->n];

	ck_assert_uint_lt(f->n++, FOUND_MAX);
	to->kind = x->kind;
	to->offset = x->offset;
	to->length = x->length;
	(void)snprintf(to->segment, sizeof(to->segment), "%s", x->segment);
	(void)snprintf(to->path, sizeof(to->path), "%.*s", (int)x->path_len,
		       x->path ? x->path : "");
	(void)snprintf(to->what, sizeof(to->what), "%s", x->what);
}

static struct varve_verify_job job_for(struct found *f)
{
	*f = (struct found){.n = 0};
	return (struct varve_verify_job){
		.threads = 2, .progress = on_progress, .report = on_report, .ctx = f};
}

static struct varve_verify_counts verify(const char *name, struct found *f)
{
	struct varve_verify_counts counts = {.segments = 0};
	struct varve_verify_job job = job_for(f);
	struct varve_err err = {.msg = ""};
	int r = varve_verify_segment(dir.fd, name, &job, &counts, &err);

	ck_assert_msg(r == 0, "verify: %d %s", r, err.msg);
	ck_assert_uint_eq(f->done, f->total);
	ck_assert_uint_eq(counts.segments, 1);
	return counts;
}

static void expect(const struct found *f, size_t i, enum varve_verify_kind kind, const char *path,
		   const char *what)
{
	ck_assert_uint_lt(i, f->n);
	ck_assert_msg(f->list[i].kind == kind, "%s: kind %d", f->list[i].what, f->list[i].kind);
	ck_assert_str_eq(f->list[i].path, path);
	ck_assert_msg(strstr(f->list[i].what, what), "'%s'", f->list[i].what);
}

static struct varve_index *good_index(void)
{
	struct varve_source src = memory_source(&good);
	struct varve_err err;
	struct varve_index *ix;

	ck_assert_int_eq(varve_index_open(&src, &ix, &err), 0);
	return ix;
}

/* -- intact, damaged -- */

START_TEST(intact)
{
	struct varve_verify_counts n;
	struct found f;

	write_file(dir.fd, "s", good.p, good.len);
	n = verify("s", &f);
	ck_assert_uint_eq(f.n, 0);
	ck_assert(varve_verify_clean(&n));
	ck_assert_uint_eq(n.members, N_SPECS + 1);
	ck_assert_uint_eq(n.files, 7);
	ck_assert_uint_eq(n.content_bytes, 1 + 70001 + 4 * FRAME + 12345 + (21 << 20) + 1000);
	ck_assert_uint_eq(n.segment_bytes, good.len);
	ck_assert_uint_ge(n.frames, 6);
	ck_assert_uint_ge(f.calls, n.frames);
	ck_assert_uint_eq(f.total, good.len);
}
END_TEST

/* What has to be said when frame k is damaged. */
static void expect_frame(const struct varve_index *ix, uint32_t k, const struct found *f)
{
	struct varve_frame_info info;
	uint64_t off, len;
	size_t at = 0;

	varve_index_frame(ix, k, &info);
	for (uint32_t i = 0; i < varve_index_count(ix); i++) {
		if (!varve_segment_covers(ix, i, &info, &off, &len))
			continue;
		expect(f, at, VARVE_VERIFY_FILE, specs[i - 1].path, "is damaged");
		ck_assert_uint_eq(f->list[at].offset, off);
		ck_assert_uint_eq(f->list[at].length, len);
		ck_assert_uint_gt(len, 0);
		at++;
	}
	ck_assert_uint_gt(at, 0);
	ck_assert_uint_eq(f->n, at);
}

START_TEST(each_frame_damaged)
{
	struct varve_index *ix = good_index();
	struct varve_frame_info info;
	struct varve_verify_counts n;
	struct found f;

	for (uint32_t k = 0; k < varve_index_frames(ix); k++) {
		varve_index_frame(ix, k, &info);
		write_file(dir.fd, "s", good.p, good.len);
		flip(dir.fd, "s", info.comp_offset + info.comp_size / 3);
		n = verify("s", &f);
		ck_assert_uint_eq(n.bad_frames, 1);
		ck_assert_uint_eq(n.bad_files, f.n);
		ck_assert_uint_eq(n.bad_headers + n.bad_segments, 0);
		expect_frame(ix, k, &f);
	}
	varve_index_free(ix);
}
END_TEST

START_TEST(all_frames_damaged)
{
	struct varve_index *ix = good_index();
	struct varve_frame_info info;
	struct varve_verify_counts n;
	struct found f;

	write_file(dir.fd, "s", good.p, good.len);
	for (uint32_t k = 0; k < varve_index_frames(ix); k++) {
		varve_index_frame(ix, k, &info);
		flip(dir.fd, "s", info.comp_offset);
	}
	n = verify("s", &f);
	ck_assert_uint_eq(n.bad_frames, varve_index_frames(ix));
	ck_assert_uint_eq(n.bad_files, 5); /* all that have content */
	ck_assert_uint_eq(n.bad_headers, 0);
	varve_index_free(ix);
}
END_TEST

START_TEST(every_byte_of_a_small_segment)
{
	static const struct spec few[] = {{.path = "f", .mode = FILE_MODE, .size = 700, .seed = 1},
					  {.path = "l", .mode = LINK_MODE, .target = "f"}};
	struct varve_segment_params params = params_of(NAME, "0");
	size_t len, harmless = 0;
	char *bytes;

	write_segment(dir.fd, "small", few, 2, &params);
	ck_assert_int_eq(varve_read_file(dir.fd, "small", 1 << 20, &bytes, &len), 0);
	for (size_t i = 0; i < len; i++) {
		struct varve_verify_counts n;
		struct found f;

		bytes[i] ^= 0x10;
		write_file(dir.fd, "s", bytes, len);
		n = verify("s", &f);
		if (varve_verify_clean(&n)) {
			/* A bit that zstd has no use for: then nothing is lost. */
			struct varve_buf b = {.p = (unsigned char *)bytes, .len = len};

			compare_segment(&b, few, 2);
			harmless++;
		} else {
			ck_assert_uint_gt(f.n, 0);
		}
		bytes[i] ^= 0x10;
	}
	ck_assert_uint_le(harmless, 8);
	free(bytes);
}
END_TEST

/* -- forged: every frame has its hash -- */

/* Makes a segment of the same members, with the tar stream and possibly one member changed. */
static void forge(const char *name, const unsigned char *tar, uint32_t changed,
		  void (*change)(struct varve_member *m))
{
	struct varve_segment_params params = params_of(NAME, "0");
	struct varve_frame_cctx *z = varve_frame_cctx_new(1);
	struct varve_index *ix = good_index();
	struct varve_index_build b = {.n_members = 0};
	struct varve_buf out = {.p = NULL}, header = {.p = NULL};
	uint64_t at = 0, run;

	ck_assert_int_eq(varve_index_build_init(&b, &params), 0);
	for (uint32_t i = 0; i < varve_index_count(ix); i++) {
		struct varve_member m;
		uint64_t data;

		varve_index_member(ix, i, &m);
		header.len = 0;
		ck_assert_int_eq(varve_pax_header(&header, &m), 0);
		data = at + header.len;
		at = data;
		for (uint32_t x = 0; x < m.n_extents; x++)
			at += m.extents[x].length;
		at = (at + 511) / 512 * 512;
		if (m.n_extents > 0) {
			uint64_t where;

			varve_index_map(ix, i, m.extents[0].offset, &where, &run);
			ck_assert_uint_eq(where, data);
		}
		if (change && i == changed)
			change(&m);
		ck_assert_int_eq(varve_index_build_member(&b, &m, data), 0);
	}
	for (uint32_t k = 0; k < varve_index_frames(ix); k++) {
		struct varve_frame_info info;
		struct varve_pipe_frame f;
		size_t room, size;
		void *comp;

		varve_index_frame(ix, k, &info);
		room = varve_frame_bound(info.raw_size);
		comp = malloc(room);
		f = (struct varve_pipe_frame){
			.comp = comp,
			.raw_size = info.raw_size,
			.hash = varve_hash64(tar + info.raw_offset, info.raw_size)};
		ck_assert_int_eq(varve_frame_encode(z, tar + info.raw_offset, info.raw_size, comp,
						    room, &size, &f.check),
				 0);
		f.comp_size = (uint32_t)size;
		ck_assert_int_eq(varve_buf_add(&out, comp, size), 0);
		ck_assert_int_eq(varve_index_build_frame(&b, &f), 0);
		free(comp);
	}
	ck_assert_int_eq(varve_index_build_finish(&b, 1, &out), 0);
	write_file(dir.fd, name, out.p, out.len);
	varve_frame_cctx_free(z);
	varve_index_build_done(&b);
	varve_index_free(ix);
	varve_buf_done(&header);
	varve_buf_done(&out);
}

static uint32_t member_of(const char *path)
{
	for (uint32_t i = 0; i < N_SPECS; i++)
		if (strcmp(specs[i].path, path) == 0)
			return i + 1;
	ck_abort_msg("no member %s", path);
	return 0;
}

/* Where a file's content begins in the tar stream. */
static uint64_t place_of(const struct varve_index *ix, const char *path)
{
	uint32_t i = member_of(path);
	struct varve_member m;
	uint64_t tar, run;

	varve_index_member(ix, i, &m);
	varve_index_map(ix, i, m.extents[0].offset, &tar, &run);
	return tar;
}

START_TEST(forged_stream)
{
	static const struct {
		const char *path; /* whose content is behind or before the byte that is changed */
		int64_t delta;    /* from where that begins */
		enum varve_verify_kind kind;
		const char *named;
		const char *what;
	} cases[] = {
		{"a/one", 0, VARVE_VERIFY_FILE, "a/one", "digest"},
		{"a/one", 1, VARVE_VERIFY_HEADER, "a/one", "padding"},
		{"a/one", 511, VARVE_VERIFY_HEADER, "a/one", "padding"},
		{"a/one", 512, VARVE_VERIFY_HEADER, "a/two", "headers"},
		{"a/one", -1, VARVE_VERIFY_HEADER, "a/one", "headers"},
		{"a/one", -512, VARVE_VERIFY_HEADER, "a/one", "headers"},
		{"a/one", -3 * 512, VARVE_VERIFY_HEADER, "a/one", "headers"},
		{"a/one", -3 * 512 - 1, VARVE_VERIFY_HEADER, "a/link", "headers"},
		{"a/two", 70000, VARVE_VERIFY_FILE, "a/two", "digest"},
		{"big", 3 * FRAME, VARVE_VERIFY_FILE, "big", "digest"},
		{"holes", 0, VARVE_VERIFY_FILE, "holes", "digest"},
		/* Extents are widened to whole blocks. */
		{"holes", 512 + (3 << 20) + 511, VARVE_VERIFY_FILE, "holes", "digest"},
		{"holes", 512 + (3 << 20) + 512, VARVE_VERIFY_HEADER, "nothing", "headers"},
		{"holes", -20, VARVE_VERIFY_HEADER, "holes", "headers"},
		{"z", 999, VARVE_VERIFY_FILE, "z", "digest"},
		{"z", 1024, VARVE_VERIFY_SEGMENT, "", "zeros"},
		{"z", 2047, VARVE_VERIFY_SEGMENT, "", "zeros"},
	};
	struct varve_index *ix = good_index();

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned char *tar = decode_tar(ix, &good);
		struct varve_verify_counts n;
		struct found f;

		tar[(int64_t)place_of(ix, cases[i].path) + cases[i].delta] ^= 1;
		forge("s", tar, 0, NULL);
		n = verify("s", &f);
		ck_assert_msg(f.n == 1, "case %zu: %zu found", i, f.n);
		expect(&f, 0, cases[i].kind, cases[i].named, cases[i].what);
		ck_assert_uint_eq(n.bad_frames, 0);
		ck_assert_uint_eq(n.bad_files + n.bad_headers + n.bad_segments, 1);
		free(tar);
	}
	varve_index_free(ix);
}
END_TEST

START_TEST(forgery_without_change_is_clean)
{
	struct varve_index *ix = good_index();
	unsigned char *tar = decode_tar(ix, &good);
	struct found f;

	forge("s", tar, 0, NULL);
	(void)verify("s", &f);
	ck_assert_uint_eq(f.n, 0);
	free(tar);
	varve_index_free(ix);
}
END_TEST

static void other_mode(struct varve_member *m)
{
	m->mode ^= 0111;
}

static void nanoseconds(struct varve_member *m)
{
	m->mtime_nsec = 5; /* needs a pax header, which is not there */
}

static void no_nanoseconds(struct varve_member *m)
{
	m->mtime_nsec = 0;
}

static void other_digest(struct varve_member *m)
{
	m->digest[15] ^= 1;
}

START_TEST(forged_index)
{
	static const struct {
		const char *path;
		void (*change)(struct varve_member *m);
		enum varve_verify_kind kind;
		const char *what;
	} cases[] = {
		{"big", other_mode, VARVE_VERIFY_HEADER, "are not those"},
		{"big", nanoseconds, VARVE_VERIFY_HEADER, "size"},
		{"a", other_mode, VARVE_VERIFY_HEADER, "are not those"},
		{"a/one", no_nanoseconds, VARVE_VERIFY_HEADER, "size"},
		{"a/two", other_digest, VARVE_VERIFY_FILE, "digest"},
		{"a/empty", other_digest, VARVE_VERIFY_FILE, "digest"},
		{"nothing", other_digest, VARVE_VERIFY_FILE, "digest"},
		{"a/link", other_digest, VARVE_VERIFY_HEADER, "target"},
	};
	struct varve_index *ix = good_index();
	unsigned char *tar = decode_tar(ix, &good);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct found f;

		forge("s", tar, member_of(cases[i].path), cases[i].change);
		(void)verify("s", &f);
		ck_assert_msg(f.n == 1, "case %zu: %zu found", i, f.n);
		expect(&f, 0, cases[i].kind, cases[i].path, cases[i].what);
	}
	/* Of members without content the places are known again at the next that has some. */
	for (size_t i = 0; i < 3; i++) {
		static const char *const paths[] = {"a", "d", "nothing"};
		struct found f;

		forge("s", tar, member_of(paths[i]), nanoseconds);
		(void)verify("s", &f);
		ck_assert_uint_ge(f.n, 1);
		ck_assert_uint_le(f.n, 4);
		expect(&f, 0, VARVE_VERIFY_HEADER, paths[i], "are not those");
		for (size_t k = 0; k < f.n; k++)
			ck_assert_int_eq(f.list[k].kind, VARVE_VERIFY_HEADER);
	}
	free(tar);
	varve_index_free(ix);
}
END_TEST

START_TEST(no_index)
{
	struct varve_verify_counts n = {.segments = 0};
	struct varve_err err = {.msg = ""};
	struct found f;
	struct varve_verify_job job = job_for(&f);

	write_file(dir.fd, "cut", good.p, good.len - 1);
	n = verify("cut", &f);
	ck_assert_uint_eq(n.bad_segments, 1);
	ck_assert_uint_eq(f.n, 1);
	ck_assert_int_eq(f.list[0].kind, VARVE_VERIFY_SEGMENT);
	write_file(dir.fd, "none", "", 0);
	n = verify("none", &f);
	ck_assert_uint_eq(n.bad_segments, 1);
	ck_assert_int_eq(varve_verify_segment(dir.fd, "missing", &job, &n, &err), -ENOENT);
	ck_assert_int_eq(mkdirat(dir.fd, "folder", 0700), 0);
	ck_assert_int_eq(varve_verify_segment(dir.fd, "folder", &job, &n, &err), -EBADMSG);
}
END_TEST

START_TEST(cancelled)
{
	for (uint64_t at = 1; at <= 7; at++) {
		struct varve_verify_counts n = {.segments = 0};
		struct varve_err err;
		struct found f;
		struct varve_verify_job job = job_for(&f);

		write_file(dir.fd, "s", good.p, good.len);
		f.cancel_at = at;
		ck_assert_int_eq(varve_verify_segment(dir.fd, "s", &job, &n, &err), -ECANCELED);
		ck_assert_uint_eq(f.calls, at);
	}
}
END_TEST

START_TEST(silent)
{
	struct varve_verify_job job = {.threads = 0};
	struct varve_verify_counts n = {.segments = 0};
	struct varve_err err;

	write_file(dir.fd, "s", good.p, good.len);
	flip(dir.fd, "s", 100);
	ck_assert_int_eq(varve_verify_segment(dir.fd, "s", &job, &n, &err), 0);
	ck_assert_uint_eq(n.bad_frames, 1);
	ck_assert(!varve_verify_clean(&n));
}
END_TEST

/* -- a store -- */

static const struct spec few[] = {{.path = "f", .mode = FILE_MODE, .size = 5000, .seed = 1}};

static void put(const char *place, const char *bucket, int64_t day, const char *tablet)
{
	struct varve_segment_params params = params_of(bucket, tablet);
	char folder[64];

	params.start_ns = day * 86400 * INT64_C(1000000000);
	params.end_ns = params.start_ns + 86400 * INT64_C(1000000000);
	(void)snprintf(folder, sizeof(folder), "sealed/%.*s", (int)(strrchr(place, '/') - place),
		       place);
	ck_assert_int_eq(varve_mkdir_p(dir.fd, folder, 0700), 0);
	(void)snprintf(folder, sizeof(folder), "sealed/%s", place);
	write_segment(dir.fd, folder, few, 1, &params);
}

static void make_store(void)
{
	put("2026-11-30/default/0.tar.zst", "2026-11-30", 20787, "0");
	put("2026-11-30/default/1.tar.zst", "2026-11-30", 20787, "1");
	put("2026-11-29/default/0.tar.zst", "2026-11-29", 20786, "0");
}

static struct varve_verify_counts verify_store(struct found *f)
{
	struct varve_verify_counts n = {.segments = 77};
	struct varve_verify_job job = job_for(f);
	struct varve_err err = {.msg = ""};
	int r = varve_verify_store(dir.fd, &job, &n, &err);

	ck_assert_msg(r == 0, "verify: %d %s", r, err.msg);
	ck_assert_uint_eq(f->done, f->total);
	return n;
}

START_TEST(store_is_clean)
{
	struct varve_verify_counts n;
	struct found f;

	make_store();
	n = verify_store(&f);
	for (size_t i = 0; i < f.n; i++)
		(void)fprintf(stderr, "%s: %s\n", f.list[i].segment, f.list[i].what);
	ck_assert_uint_eq(f.n, 0);
	ck_assert_uint_eq(n.segments, 3);
	ck_assert_uint_eq(n.content_bytes, 15000);
	ck_assert_uint_eq(f.total, n.segment_bytes);
}
END_TEST

START_TEST(store_of_classes_and_strays)
{
	static const struct {
		const char *path, *what;
	} notes[] = {
		{".2026-11-27.tmp", "sealing"},
		{"2026-11-31", "not a bucket"},
		{"lost+found", "not a bucket"},
		{"2026-11-28", "no class"},
		{"2026-11-30/README", "not a class"},
		{"2026-11-30/default/.0.tar.zst.tmp", "sealing"},
		{"2026-11-30/default/0.tar", "not a segment"},
		{"2026-11-30/default/2.tar.zst", "not a segment"},
		{"2026-11-30/empty", "no segment"},
	};
	struct varve_verify_counts n;
	struct found f;

	make_store();
	put("2026-11-30/other/0.tar.zst", "2026-11-30", 20787, "0");   /* written as default */
	put("2026-11-26/default/0.tar.zst", "2026-11-26", 20782, "0"); /* a day off */
	ck_assert_int_eq(mkdirat(dir.fd, "sealed/.2026-11-27.tmp", 0700), 0);
	ck_assert_int_eq(mkdirat(dir.fd, "sealed/2026-11-31", 0700), 0);
	ck_assert_int_eq(mkdirat(dir.fd, "sealed/lost+found", 0700), 0);
	ck_assert_int_eq(mkdirat(dir.fd, "sealed/2026-11-28", 0700), 0);
	ck_assert_int_eq(mkdirat(dir.fd, "sealed/2026-11-30/empty", 0700), 0);
	write_file(dir.fd, "sealed/2026-11-30/README", "x", 1);
	write_file(dir.fd, "sealed/2026-11-30/default/.0.tar.zst.tmp", "x", 1);
	write_file(dir.fd, "sealed/2026-11-30/default/0.tar", "x", 1);
	ck_assert_int_eq(symlinkat("0.tar.zst", dir.fd, "sealed/2026-11-30/default/2.tar.zst"), 0);
	flip(dir.fd, "sealed/2026-11-29/default/0.tar.zst", 30);
	n = verify_store(&f);
	ck_assert_uint_eq(n.segments, 5);
	ck_assert_uint_eq(n.notes, sizeof(notes) / sizeof(notes[0]));
	for (size_t i = 0; i < n.notes; i++) {
		ck_assert_int_eq(f.list[i].kind, VARVE_VERIFY_NOTE);
		ck_assert_str_eq(f.list[i].segment, notes[i].path);
		expect(&f, i, VARVE_VERIFY_NOTE, "", notes[i].what);
	}
	ck_assert_uint_eq(f.n, n.notes + 3);
	expect(&f, n.notes, VARVE_VERIFY_SEGMENT, "", "another window");
	ck_assert_str_eq(f.list[n.notes].segment, "2026-11-26/default/0.tar.zst");
	expect(&f, n.notes + 1, VARVE_VERIFY_FILE, "f", "damaged");
	ck_assert_str_eq(f.list[n.notes + 1].segment, "2026-11-29/default/0.tar.zst");
	expect(&f, n.notes + 2, VARVE_VERIFY_SEGMENT, "", "2026-11-30/default/0");
	ck_assert_uint_eq(n.bad_segments, 2);
	ck_assert_uint_eq(n.bad_frames, 1);
	ck_assert_uint_eq(n.bad_files, 1);
}
END_TEST

START_TEST(range_record)
{
	static const char *const one[] = {"2026-11-29"};
	struct varve_range e = {.bucket = "2026-11-30", .class_name = "default", .tablet = "0", .part = 2000,
				.ino = 2000, .end = 10, .path = (char *)(uintptr_t)"f"};
	cleanup_close int meta = -1;
	struct varve_slots *slots = NULL;
	struct varve_verify_counts n;
	struct varve_verify_job job;
	struct varve_ranges ranges;
	struct varve_err err;
	struct found f;
	struct stat st;

	make_store();
	ck_assert_int_eq(mkdirat(dir.fd, "meta", 0700), 0);
	meta = openat(dir.fd, "meta", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	varve_ranges_init(&ranges);
	ck_assert_int_eq(varve_ranges_add(&ranges, &e), 0);
	ck_assert_int_eq(varve_ranges_save(&ranges, &slots, meta), 0);
	varve_ranges_done(&ranges);
	varve_slots_close(slots);
	n = verify_store(&f);
	ck_assert_uint_eq(f.n, 0);
	ck_assert(varve_verify_clean(&n));
	/* One slot stands for both. */
	ck_assert_int_eq(fstatat(meta, "ranges", &st, 0), 0);
	flip(meta, "ranges", 30);
	n = verify_store(&f);
	ck_assert_uint_eq(f.n, 0);
	flip(meta, "ranges", (uint64_t)st.st_size / 2 + 30);
	n = verify_store(&f);
	ck_assert_uint_eq(f.n, 1);
	expect(&f, 0, VARVE_VERIFY_RECORD, "", "damaged");
	ck_assert_str_eq(f.list[0].segment, "meta/ranges");
	ck_assert_uint_eq(n.bad_records, 1);
	ck_assert(!varve_verify_clean(&n));
	ck_assert_uint_eq(n.segments, 3);
	/* It is no bucket's. */
	job = job_for(&f);
	job.buckets = one;
	job.n_buckets = 1;
	ck_assert_int_eq(varve_verify_store(dir.fd, &job, &n, &err), 0);
	ck_assert_uint_eq(f.n, 0);
	ck_assert(varve_verify_clean(&n));
	/* A later version's is no fault. */
	ck_assert_int_eq(varve_slots_open(meta, "ranges", VARVE_RANGES_MAGIC, 4096, &slots, &err), 0);
	ck_assert_int_eq(varve_slots_write(slots, "\2\0\0\0\0\0\0\0", 8), 0);
	varve_slots_close(slots);
	n = verify_store(&f);
	expect(&f, 0, VARVE_VERIFY_NOTE, "", "later version");
	ck_assert(varve_verify_clean(&n));
	/* What can't be a record is one. */
	ck_assert_int_eq(unlinkat(meta, "ranges", 0), 0);
	ck_assert_int_eq(mkdirat(meta, "ranges", 0700), 0);
	n = verify_store(&f);
	ck_assert_uint_eq(n.bad_records, 1);
	expect(&f, 0, VARVE_VERIFY_RECORD, "", "");
}
END_TEST

START_TEST(some_buckets)
{
	static const char *const one[] = {"2026-11-29"}, *const wrong[] = {"2026-11-29",
									   "2026-11-11"};
	struct varve_verify_counts n;
	struct varve_err err = {.msg = ""};
	struct found f;
	struct varve_verify_job job;

	make_store();
	job = job_for(&f);
	job.buckets = one;
	job.n_buckets = 1;
	ck_assert_int_eq(varve_verify_store(dir.fd, &job, &n, &err), 0);
	ck_assert_uint_eq(n.segments, 1);
	ck_assert_uint_eq(f.n, 0);
	job = job_for(&f);
	job.buckets = wrong;
	job.n_buckets = 2;
	ck_assert_int_eq(varve_verify_store(dir.fd, &job, &n, &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.msg, "2026-11-11"));
}
END_TEST

START_TEST(no_store)
{
	struct varve_verify_counts n;
	struct varve_err err = {.msg = ""};
	struct found f;
	struct varve_verify_job job = job_for(&f);

	ck_assert_int_eq(varve_verify_store(dir.fd, &job, &n, &err), -ENOENT);
	ck_assert_str_ne(err.msg, "");
	ck_assert_int_eq(mkdirat(dir.fd, "sealed", 0700), 0);
	ck_assert_int_eq(varve_verify_store(dir.fd, &job, &n, &err), 0);
	ck_assert_uint_eq(n.segments, 0);
	ck_assert_uint_eq(f.n, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verify");
	TCase *tc = tcase_create("segment"), *st = tcase_create("store");

	tcase_set_timeout(tc, 100);
	tcase_add_unchecked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, intact);
	tcase_add_test(tc, each_frame_damaged);
	tcase_add_test(tc, all_frames_damaged);
	tcase_add_test(tc, every_byte_of_a_small_segment);
	tcase_add_test(tc, forged_stream);
	tcase_add_test(tc, forgery_without_change_is_clean);
	tcase_add_test(tc, forged_index);
	tcase_add_test(tc, no_index);
	tcase_add_test(tc, cancelled);
	tcase_add_test(tc, silent);
	suite_add_tcase(s, tc);
	tcase_set_timeout(st, 100);
	tcase_add_checked_fixture(st, set_up, tear_down);
	tcase_add_test(st, store_is_clean);
	tcase_add_test(st, store_of_classes_and_strays);
	tcase_add_test(st, range_record);
	tcase_add_test(st, some_buckets);
	tcase_add_test(st, no_store);
	suite_add_tcase(s, st);
	return t_main(s);
}
