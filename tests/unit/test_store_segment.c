#include "store_segment_util.h"

#include <pthread.h>
#include <stdatomic.h>

#include "store/cache.h"
#include "store/segment.h"

#define FRAME ((uint64_t)VARVE_FRAME_BYTES)

static const struct varve_extent holes[] = {{0, 4096},
					    {65536, 512},
					    {1 << 20, 1 << 20},
					    {UINT64_C(5) << 30, 3000000},
					    {(UINT64_C(9) << 30) + 512, 100}};
static const struct varve_extent behind_hole[] = {{1024, 1024}};

/* In index order. */
static const struct spec specs[] = {
	{.path = "a", .mode = DIR_MODE},
	{.path = "a/empty", .mode = FILE_MODE},
	{.path = "a/link", .mode = LINK_MODE, .target = "../b"},
	{.path = "a/one", .mode = FILE_MODE, .size = 1, .seed = 1},
	{.path = "a/small", .mode = FILE_MODE, .size = 70001, .seed = 2},
	{.path = "big", .mode = FILE_MODE, .size = 5 * FRAME + 12345, .seed = 3},
	{.path = "holes",
	 .mode = FILE_MODE,
	 .size = (UINT64_C(9) << 30) + 512 + 100,
	 .seed = 4,
	 .extents = holes,
	 .n_extents = 5},
	{.path = "nothing", .mode = FILE_MODE, .size = 1 << 20, .seed = 5, .extents = holes},
	{.path = "tail-hole",
	 .mode = FILE_MODE,
	 .size = 1 << 20,
	 .seed = 6,
	 .extents = behind_hole,
	 .n_extents = 1},
	{.path = "x0", .mode = FILE_MODE, .size = 1000, .seed = 7},
	{.path = "x1", .mode = FILE_MODE, .size = 2 * FRAME, .seed = 8},
	{.path = "x2", .mode = FILE_MODE, .size = 300, .seed = 9},
};
#define N_SPECS (sizeof(specs) / sizeof(specs[0]))

static struct test_dir dir;          /* with the segment "s"; the tests' processes share it */
static unsigned char *big_bytes;     /* the content of "big" */
static uint32_t first_big, last_big; /* its frames */

static uint32_t member_of(const char *path)
{
	for (uint32_t i = 0; i < N_SPECS; i++)
		if (strcmp(specs[i].path, path) == 0)
			return i + 1;
	ck_abort_msg("no member %s", path);
	return 0;
}

static const struct varve_index *index_of(struct varve_segment *seg)
{
	return varve_segment_index(seg);
}

/* The frame that holds a byte of a file. */
static uint32_t frame_of(struct varve_segment *seg, const char *path, uint64_t off)
{
	uint64_t tar, run;

	varve_index_map(index_of(seg), member_of(path), off, &tar, &run);
	return varve_index_frame_at(index_of(seg), tar);
}

static struct varve_segment *open_ok(struct varve_cache *cache, const char *name)
{
	struct varve_err err = {.msg = ""};
	struct varve_segment *seg;
	int r = varve_segment_open(cache, dir.fd, name, &seg, &err);

	ck_assert_msg(r == 0, "open: %d %s", r, err.msg);
	return seg;
}

static struct varve_cache *new_cache(size_t max)
{
	struct varve_cache *c;

	ck_assert_int_eq(varve_cache_new(max, 2, &c), 0);
	return c;
}

static void set_up(void)
{
	struct varve_segment_params params = test_params();
	struct varve_cache *c = new_cache(1 << 20);
	struct varve_segment *seg;

	dir = make_dir();
	params.level = 1;
	write_segment(dir.fd, "s", specs, N_SPECS, &params);
	big_bytes = malloc(5 * FRAME + 12345);
	ck_assert_int_gt(
		read_spec((void *)&specs[member_of("big") - 1], big_bytes, 5 * FRAME + 12345, 0),
		0);
	seg = open_ok(c, "s");
	first_big = frame_of(seg, "big", 0);
	last_big = frame_of(seg, "big", 5 * FRAME + 12344);
	varve_segment_unref(seg);
	varve_cache_free(c);
}

static void tear_down(void)
{
	free(big_bytes);
	drop_dir(&dir);
}

/* Another copy, to be harmed. */
static void copy_segment(const char *name)
{
	size_t len;
	char *bytes;

	ck_assert_int_eq(varve_read_file(dir.fd, "s", 1 << 30, &bytes, &len), 0);
	write_file(dir.fd, name, bytes, len);
	free(bytes);
}

/* What a view shows is what a read gives. Whether there is one. */
static bool check_view(struct varve_segment *seg, uint32_t i, uint64_t off, size_t len,
		       const unsigned char *want, ssize_t want_len)
{
	struct varve_view v;
	ssize_t n = varve_segment_view(seg, i, len, off, &v);

	if (n < 0) {
		ck_assert_int_eq(n, -EAGAIN);
		return false;
	}
	ck_assert_int_eq(n, want_len);
	for (unsigned p = 0; p < v.n; p++) {
		ck_assert_mem_eq(v.piece[p].iov_base, want, v.piece[p].iov_len);
		want += v.piece[p].iov_len;
		n -= (ssize_t)v.piece[p].iov_len;
	}
	ck_assert_int_eq(n, 0);
	varve_view_done(&v);
	return true;
}

static void check_read(struct varve_segment *seg, uint32_t i, uint64_t off, size_t len)
{
	unsigned char *got = malloc(len + 1), *want = malloc(len + 1);
	const struct spec *s = &specs[i - 1];
	ssize_t n, w = read_spec((void *)s, want, len, off);

	got[len] = 0x5a;
	n = varve_segment_pread(seg, i, got, len, off);
	ck_assert_msg(n == w, "%s: %zu at %llu: %zd, not %zd", s->path, len,
		      (unsigned long long)off, n, w);
	ck_assert_msg(memcmp(got, want, (size_t)w) == 0, "%s: %zu at %llu differs", s->path, len,
		      (unsigned long long)off);
	ck_assert_uint_eq(got[len], 0x5a);
	(void)check_view(seg, i, off, len, want, w);
	free(got);
	free(want);
}

/* -- right bytes -- */

START_TEST(offsets_and_sizes)
{
	static const size_t sizes[] = {0, 1, 2, 511, 512, 513, 4096, 131072, 1 << 20, 5 << 20};
	struct varve_cache *c = new_cache(32 << 20);
	struct varve_segment *seg = open_ok(c, "s");

	for (uint32_t i = 1; i <= N_SPECS; i++) {
		const struct spec *s = &specs[i - 1];
		uint64_t offs[] = {0,
				   1,
				   510,
				   512,
				   4095,
				   4096,
				   65535,
				   65536,
				   1 << 20,
				   FRAME - 1536,
				   FRAME - 1,
				   FRAME,
				   3 * FRAME - 7,
				   UINT64_C(5) << 30,
				   (UINT64_C(9) << 30) + 500,
				   s->size > 0 ? s->size - 1 : 0,
				   s->size,
				   s->size + 1,
				   UINT64_MAX};

		for (size_t o = 0; S_ISREG(s->mode) && o < sizeof(offs) / sizeof(offs[0]); o++)
			for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
				check_read(seg, i, offs[o], sizes[k]);
	}
	ck_assert_uint_eq(varve_segment_faults(seg), 0);
	varve_segment_unref(seg);
	varve_cache_free(c);
}
END_TEST

START_TEST(what_is_no_file)
{
	struct varve_cache *c = new_cache(1 << 20);
	struct varve_segment *seg = open_ok(c, "s");
	char b[4];

	ck_assert_int_eq(varve_segment_pread(seg, 0, b, sizeof(b), 0), -EISDIR);
	ck_assert_int_eq(varve_segment_pread(seg, member_of("a"), b, sizeof(b), 0), -EISDIR);
	ck_assert_int_eq(varve_segment_pread(seg, member_of("a/link"), b, sizeof(b), 0), -EINVAL);
	ck_assert_int_eq(varve_segment_pread(seg, member_of("a/empty"), b, sizeof(b), 0), 0);
	varve_segment_unref(seg);
	varve_cache_free(c);
}
END_TEST

struct reader {
	struct varve_segment *seg;
	pthread_t id;
	uint64_t seed;
	int rounds;
	int error;
};

static void *read_big(void *arg)
{
	struct reader *r = arg;
	uint32_t big = member_of("big");
	uint64_t size = specs[big - 1].size;
	size_t room = 3 << 20;
	unsigned char *buf = malloc(room);
	uint64_t at = 0;

	for (int i = 0; i < r->rounds && r->error == 0; i++) {
		size_t len = 1 + next_random(&r->seed) % (r->seed % 3 ? 200000 : room);
		uint64_t off = r->seed % 2 ? at : next_random(&r->seed) % size;
		ssize_t n = varve_segment_pread(r->seg, big, buf, len, off);
		uint64_t want = len < size - off ? len : size - off;

		if (n < 0)
			r->error = (int)n;
		else if ((uint64_t)n != want || memcmp(buf, big_bytes + off, (size_t)n) != 0)
			r->error = -EILSEQ;
		at = (off + want) % size;
	}
	free(buf);
	return NULL;
}

START_TEST(many_threads)
{
	static const size_t bounds[] = {0, 5 << 20, 64 << 20};
	struct varve_cache *c = new_cache(bounds[_i]);
	struct varve_segment *seg = open_ok(c, "s");
	struct varve_cache_stats st;
	struct reader readers[6];

	for (unsigned i = 0; i < 6; i++) {
		readers[i] = (struct reader){
			.seg = varve_segment_ref(seg), .seed = i + 11, .rounds = 60};
		ck_assert_int_eq(pthread_create(&readers[i].id, NULL, read_big, &readers[i]), 0);
	}
	varve_segment_unref(seg);
	for (unsigned i = 0; i < 6; i++)
		ck_assert_int_eq(pthread_join(readers[i].id, NULL), 0);
	for (unsigned i = 0; i < 6; i++) {
		ck_assert_int_eq(readers[i].error, 0);
		varve_segment_unref(readers[i].seg);
	}
	varve_cache_stats(c, &st);
	ck_assert_uint_le(st.peak, bounds[_i] > 5 << 20 ? bounds[_i] : 5 << 20);
	varve_cache_free(c);
}
END_TEST

/* -- ahead -- */

/* Waits for what the pool is at. */
static bool ahead_came(void *ctx)
{
	struct varve_cache_stats st;

	varve_cache_stats(ctx, &st);
	return st.misses + st.ahead >= last_big - first_big + 1;
}

START_TEST(in_order_comes_ahead)
{
	struct varve_cache *c = new_cache(64 << 20);
	struct varve_segment *seg = open_ok(c, "s");
	uint32_t big = member_of("big");
	uint64_t end = specs[big - 1].size - FRAME;
	struct varve_cache_stats st;

	for (uint64_t off = 0; off < end; off += 131072)
		check_read(seg, big, off, 131072);
	ck_assert(wait_until(ahead_came, c));
	check_read(seg, big, end, FRAME);
	varve_cache_stats(c, &st);
	ck_assert_uint_gt(st.ahead, 0);
	/* Nothing beyond the file, nothing twice. */
	ck_assert_uint_eq(st.misses + st.ahead, last_big - first_big + 1);
	varve_segment_unref(seg);
	varve_cache_free(c);
}
END_TEST

START_TEST(out_of_order_does_not)
{
	struct varve_cache *c = new_cache(64 << 20);
	struct varve_segment *seg = open_ok(c, "s");
	uint32_t big = member_of("big");
	struct varve_cache_stats st;

	check_read(seg, big, 0, 65536); /* as `head` does */
	for (uint32_t k = 5; k > 0; k--)
		check_read(seg, big, (k - 1) * FRAME + 1000000 * (k % 2), 100);
	varve_cache_stats(c, &st);
	ck_assert_uint_eq(st.ahead, 0);
	varve_segment_unref(seg);
	varve_cache_free(c);
}
END_TEST

static bool three_ahead(void *ctx)
{
	struct varve_cache_stats st;

	varve_cache_stats(ctx, &st);
	return st.ahead >= 1;
}

START_TEST(file_after_file_comes_ahead)
{
	/* Files of 100 kB each: no file alone is worth reading ahead for. */
	enum { FILES = 60 };
	struct spec *many = calloc(FILES, sizeof(*many));
	struct varve_segment_params params = test_params();
	struct varve_cache *c = new_cache(64 << 20);
	struct varve_cache_stats st;
	struct varve_segment *seg;
	char names[FILES][8];
	char buf[100000];

	for (uint32_t i = 0; i < FILES; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "f%02u", i);
		many[i] = (struct spec){
			.path = names[i], .mode = FILE_MODE, .size = sizeof(buf), .seed = i};
	}
	write_segment(dir.fd, "many", many, FILES, &params);
	seg = open_ok(c, "many");
	for (uint32_t i = 1; i <= 10; i++)
		ck_assert_int_eq(varve_segment_pread(seg, i, buf, sizeof(buf), 0), sizeof(buf));
	ck_assert(wait_until(three_ahead, c));
	varve_cache_stats(c, &st);
	ck_assert_uint_eq(st.misses, 1);
	varve_segment_unref(seg);
	varve_cache_free(c);
	free(many);
}
END_TEST

/* -- damage -- */

static void harm_frame(const char *name, struct varve_segment *seg, uint32_t k)
{
	struct varve_frame_info f;

	varve_index_frame(index_of(seg), k, &f);
	flip(dir.fd, name, f.comp_offset + f.comp_size / 2);
}

START_TEST(damage_is_exact)
{
	struct varve_cache *c = new_cache((size_t[]){64 << 20, 0}[_i]);
	struct varve_segment *seg;
	struct varve_frame_info f;
	uint32_t big = member_of("big"), k;
	uint64_t off, len, size = specs[big - 1].size;
	unsigned char b[8192];

	copy_segment("hurt");
	seg = open_ok(c, "hurt");
	k = frame_of(seg, "big", 2 * FRAME);
	harm_frame("hurt", seg, k);
	varve_index_frame(index_of(seg), k, &f);
	ck_assert(varve_segment_covers(index_of(seg), big, &f, &off, &len));
	ck_assert_uint_eq(len, FRAME);

	for (uint64_t at = 0; at < size; at += sizeof(b)) {
		size_t want = size - at < sizeof(b) ? (size_t)(size - at) : sizeof(b);
		ssize_t n = varve_segment_pread(seg, big, b, sizeof(b), at);

		if (at >= off && at < off + len) {
			ck_assert_int_eq(n, -EBADMSG);
			continue;
		}
		if (at < off && at + want > off)
			want = (size_t)(off - at);
		ck_assert_int_eq(n, want);
		ck_assert_mem_eq(b, big_bytes + at, want);
	}
	/* The last byte before, the first behind. */
	ck_assert_int_eq(varve_segment_pread(seg, big, b, 10, off - 1), 1);
	ck_assert_uint_eq(b[0], big_bytes[off - 1]);
	ck_assert_int_eq(varve_segment_pread(seg, big, b, 1, off), -EBADMSG);
	ck_assert_int_eq(varve_segment_pread(seg, big, b, 1, off + len - 1), -EBADMSG);
	ck_assert_int_eq(varve_segment_pread(seg, big, b, 1, off + len), 1);
	ck_assert_uint_eq(b[0], big_bytes[off + len]);
	for (uint32_t i = 1; i <= N_SPECS; i++)
		if (i != big && S_ISREG(specs[i - 1].mode))
			check_read(seg, i, 0, 5 << 20);
	ck_assert_uint_eq(varve_segment_faults(seg), 1);
	varve_segment_unref(seg);
	varve_cache_free(c);
}
END_TEST

START_TEST(damage_covers_many_files)
{
	struct varve_cache *c = new_cache(64 << 20);
	struct varve_segment *seg;
	struct varve_frame_info f;
	uint64_t off, len;
	char b[1];

	copy_segment("hurt0");
	seg = open_ok(c, "hurt0");
	varve_index_frame(index_of(seg), 0, &f);
	harm_frame("hurt0", seg, 0);
	ck_assert(!varve_segment_covers(index_of(seg), member_of("a"), &f, &off, &len));
	ck_assert(!varve_segment_covers(index_of(seg), member_of("a/empty"), &f, &off, &len));
	ck_assert(!varve_segment_covers(index_of(seg), member_of("a/link"), &f, &off, &len));
	ck_assert(varve_segment_covers(index_of(seg), member_of("a/one"), &f, &off, &len));
	ck_assert_uint_eq(off, 0);
	ck_assert_uint_eq(len, 1);
	ck_assert(varve_segment_covers(index_of(seg), member_of("a/small"), &f, &off, &len));
	ck_assert_uint_eq(len, 70001);
	ck_assert(!varve_segment_covers(index_of(seg), member_of("holes"), &f, &off, &len));
	ck_assert_int_eq(varve_segment_pread(seg, member_of("a/one"), b, 1, 0), -EBADMSG);
	ck_assert_int_eq(varve_segment_pread(seg, member_of("a/small"), b, 1, 7), -EBADMSG);
	ck_assert_int_eq(varve_segment_pread(seg, member_of("a/empty"), b, 1, 0), 0);
	check_read(seg, member_of("x1"), 0, 100);
	ck_assert_uint_eq(varve_segment_faults(seg), 1);
	varve_segment_unref(seg);
	varve_cache_free(c);
}
END_TEST

START_TEST(holes_of_a_damaged_file_are_read)
{
	struct varve_cache *c = new_cache(64 << 20);
	struct varve_segment *seg;
	struct varve_frame_info f;
	uint32_t i = member_of("holes");
	uint64_t off, len;
	unsigned char b[100];

	copy_segment("hurt1");
	seg = open_ok(c, "hurt1");
	for (uint32_t k = frame_of(seg, "holes", 0);
	     k <= frame_of(seg, "holes", specs[i - 1].size - 1); k++)
		harm_frame("hurt1", seg, k);
	varve_index_frame(index_of(seg), frame_of(seg, "holes", 0), &f);
	ck_assert(varve_segment_covers(index_of(seg), i, &f, &off, &len));
	ck_assert_uint_eq(off, 0);
	ck_assert_uint_gt(len, 65536);
	check_read(seg, i, 4096, 61440);
	ck_assert_int_eq(varve_segment_pread(seg, i, b, 100, 4095), -EBADMSG);
	ck_assert_int_eq(varve_segment_pread(seg, i, b, 100, 65500), 36);
	varve_segment_unref(seg);
	varve_cache_free(c);
}
END_TEST

static void expect_refused(const char *name, int want)
{
	struct varve_cache *c = new_cache(1 << 20);
	struct varve_err err = {.msg = ""};
	struct varve_segment *seg = NULL;

	ck_assert_int_eq(varve_segment_open(c, dir.fd, name, &seg, &err), want);
	ck_assert_ptr_null(seg);
	ck_assert_str_ne(err.msg, "");
	varve_cache_free(c);
}

START_TEST(what_is_no_segment)
{
	struct stat st;

	expect_refused("missing", -ENOENT);
	expect_refused("../etc/passwd", -EXDEV);
	ck_assert_int_eq(symlinkat("s", dir.fd, "symlink"), 0);
	expect_refused("symlink", -ELOOP);
	ck_assert_int_eq(mkdirat(dir.fd, "folder", 0700), 0);
	expect_refused("folder", -EBADMSG);
	ck_assert_int_eq(mkfifoat(dir.fd, "fifo", 0600), 0);
	expect_refused("fifo", -EBADMSG);
	write_file(dir.fd, "short", "abc", 3);
	expect_refused("short", -EBADMSG);
	write_file(dir.fd, "none", "", 0);
	expect_refused("none", -EBADMSG);
	copy_segment("cut");
	ck_assert_int_eq(fstatat(dir.fd, "cut", &st, 0), 0);
	flip(dir.fd, "cut", (uint64_t)st.st_size - 20);
	expect_refused("cut", -EBADMSG);
}
END_TEST

/* -- shares, life -- */

START_TEST(shares_add_up)
{
	struct varve_cache *c = new_cache(1 << 20);
	struct varve_segment *seg = open_ok(c, "s");
	struct varve_segment_params about;
	struct varve_segment_totals totals;
	struct stat st;
	uint64_t sum = 0;

	varve_index_about(index_of(seg), &about, &totals);
	for (uint32_t i = 0; i < varve_index_count(index_of(seg)); i++) {
		uint64_t share = varve_segment_share(seg, i);

		sum += share;
		ck_assert_int_eq(share > 0, i > 0 && S_ISREG(specs[i - 1].mode) &&
						    specs[i - 1].size > 0 &&
						    i != member_of("nothing"));
	}
	ck_assert_uint_le(sum, totals.segment_bytes);
	ck_assert_uint_ge(sum, totals.segment_bytes * 9 / 10);
	ck_assert_uint_gt(varve_segment_share(seg, member_of("big")),
			  varve_segment_share(seg, member_of("x1")));
	ck_assert_int_eq(fstatat(dir.fd, "s", &st, 0), 0);
	ck_assert_uint_eq(varve_segment_allocated(seg), (uint64_t)st.st_blocks * 512);
	varve_segment_unref(seg);
	varve_segment_unref(NULL);
	varve_cache_free(c);
}
END_TEST

START_TEST(what_can_be_viewed)
{
	struct varve_cache *c = new_cache(16 << 20);
	struct varve_segment *seg = open_ok(c, "s");
	uint32_t big = member_of("big"), k = first_big;
	uint64_t size = specs[big - 1].size, off, len;
	struct varve_frame_info f;

	varve_index_frame(index_of(seg), k + 1, &f);
	ck_assert(varve_segment_covers(index_of(seg), big, &f, &off, &len));
	ck_assert(check_view(seg, big, off, FRAME, big_bytes + off, FRAME));
	ck_assert(check_view(seg, big, off - 5, 10, big_bytes + off - 5, 10));
	ck_assert(check_view(seg, big, off - FRAME / 2, FRAME, big_bytes + off - FRAME / 2, FRAME));
	ck_assert(check_view(seg, big, size - 7, 100, big_bytes + size - 7, 7));
	/* Three frames. */
	ck_assert(!check_view(seg, big, off - 1, FRAME + 2, NULL, 0));
	ck_assert(!check_view(seg, big, size, 1, NULL, 0));
	ck_assert(!check_view(seg, big, 0, 0, NULL, 0));
	ck_assert(!check_view(seg, member_of("a/empty"), 0, 1, NULL, 0));
	ck_assert(!check_view(seg, member_of("a/link"), 0, 1, NULL, 0));
	ck_assert(!check_view(seg, member_of("a"), 0, 1, NULL, 0));
	varve_segment_unref(seg);

	/* A damaged frame is not shown, nor the whole one before it together with it. */
	copy_segment("hurt");
	seg = open_ok(c, "hurt");
	harm_frame("hurt", seg, k + 1);
	ck_assert(check_view(seg, big, off - 10, 10, big_bytes + off - 10, 10));
	ck_assert(!check_view(seg, big, off - 5, 10, NULL, 0));
	ck_assert(!check_view(seg, big, off, 1, NULL, 0));
	varve_segment_unref(seg);
	varve_cache_free(c);

	/* There is room for one frame alone: who holds one does not wait for it. */
	c = new_cache(1 << 20);
	seg = open_ok(c, "s");
	ck_assert(check_view(seg, big, off - 10, 10, big_bytes + off - 10, 10));
	ck_assert(!check_view(seg, big, off - 5, 10, NULL, 0));
	varve_segment_unref(seg);
	varve_cache_free(c);
}
END_TEST

START_TEST(what_is_around)
{
	struct varve_cache *c = new_cache(64 << 20);
	struct varve_segment *seg = open_ok(c, "s");
	uint32_t big = member_of("big");
	uint64_t size = specs[big - 1].size, off, len, from, seen = 0;
	struct varve_view v;
	ssize_t n;

	/* Nothing is decompressed for it. */
	ck_assert_int_eq(varve_segment_view_around(seg, big, 0, &v, &from), -EAGAIN);
	for (uint32_t k = first_big; k <= last_big; k++) {
		struct varve_frame_info f;

		varve_index_frame(index_of(seg), k, &f);
		ck_assert(varve_segment_covers(index_of(seg), big, &f, &off, &len));
		check_read(seg, big, off + len / 2, 10);
		n = varve_segment_view_around(seg, big, off + len / 2, &v, &from);
		ck_assert_int_gt(n, 0);
		ck_assert_uint_eq(from % 4096, 0);
		ck_assert_uint_ge(from, off);
		ck_assert_uint_lt(from - off, 4096);
		ck_assert_uint_le(from + (uint64_t)n, off + len);
		ck_assert(from + (uint64_t)n == size || (n % 4096 == 0 && off + len - from - (uint64_t)n < 4096));
		ck_assert_mem_eq(v.piece[0].iov_base, big_bytes + from, n);
		seen += (uint64_t)n;
		varve_view_done(&v);
		/* Once. */
		ck_assert_int_eq(varve_segment_view_around(seg, big, off, &v, &from), -EAGAIN);
	}
	ck_assert_uint_ge(seen, size - 6 * 4096);
	ck_assert_int_eq(varve_segment_view_around(seg, big, size, &v, &from), -EAGAIN);
	ck_assert_int_eq(varve_segment_view_around(seg, member_of("a/empty"), 0, &v, &from),
			 -EAGAIN);
	varve_segment_unref(seg);
	varve_cache_free(c);

	/* Who waits for the kernel must not hold what others wait for. */
	c = new_cache(3 << 20);
	seg = open_ok(c, "s");
	check_read(seg, big, 0, 10);
	ck_assert_int_eq(varve_segment_view_around(seg, big, 0, &v, &from), -EAGAIN);
	varve_segment_unref(seg);
	varve_cache_free(c);
}
END_TEST

static bool closed(void *ctx)
{
	return fcntl(*(int *)ctx, F_GETFD) < 0;
}

START_TEST(unlinked_is_read_and_closed)
{
	struct varve_cache *c = new_cache(8 << 20);
	struct varve_segment *seg;
	int fd = dup(dir.fd); /* the next descriptor's number */

	copy_segment("going");
	(void)close(fd);
	seg = open_ok(c, "going");
	ck_assert_int_eq(unlinkat(dir.fd, "going", 0), 0);
	check_read(seg, member_of("big"), 100, 3 << 20);
	varve_segment_unref(seg);
	ck_assert(wait_until(closed, &fd));
	varve_cache_free(c);
}
END_TEST

T_MAIN("store_segment", 100)
{
	tcase_add_unchecked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, offsets_and_sizes);
	tcase_add_test(tc, what_is_no_file);
	tcase_add_loop_test(tc, many_threads, 0, 3);
	tcase_add_test(tc, in_order_comes_ahead);
	tcase_add_test(tc, out_of_order_does_not);
	tcase_add_test(tc, file_after_file_comes_ahead);
	tcase_add_loop_test(tc, damage_is_exact, 0, 2);
	tcase_add_test(tc, damage_covers_many_files);
	tcase_add_test(tc, holes_of_a_damaged_file_are_read);
	tcase_add_test(tc, what_is_no_segment);
	tcase_add_test(tc, shares_add_up);
	tcase_add_test(tc, what_can_be_viewed);
	tcase_add_test(tc, what_is_around);
	tcase_add_test(tc, unlinked_is_read_and_closed);
}
