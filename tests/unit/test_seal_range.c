/* Members that are a range of a part which goes on behind it, with attributes that are given for them. */
#include "seal_util.h"

#include <pthread.h>
#include <stdatomic.h>

#include "store/xattrs.h"

/* -- a job of ranges -- */

#define MEMBERS_MAX 24

static struct varve_seal_item members[MEMBERS_MAX];
static char paths[MEMBERS_MAX][16];
static size_t n_members;
static void (*before)(size_t i); /* before member i is opened */

/* Members are named in order, behind the bucket's own directory; all are of the file "part". */
static struct varve_seal_item *add_range(uint64_t from, uint64_t size)
{
	struct varve_seal_item *it = &members[n_members];

	ck_assert_uint_lt(n_members, MEMBERS_MAX);
	*it = (struct varve_seal_item){.path = paths[n_members], .ino = 1000 + n_members, .mode = UINT32_MAX,
				       .ranged = true, .from = from, .size = size};
	it->path_len = (uint32_t)snprintf(paths[n_members], sizeof(*paths), "m%02zu", n_members);
	n_members++;
	return it;
}

static void begin(void)
{
	setup();
	members[0] = (struct varve_seal_item){.path = "", .ino = 1000, .mode = UINT32_MAX};
	n_members = 1;
	before = NULL;
}

static int next_range(void *ctx, size_t i, struct varve_seal_item *ret)
{
	(void)ctx;
	if (before)
		before(i);
	*ret = members[i];
	ret->fd = openat(parts, i ? "part" : ".", O_RDONLY | O_CLOEXEC);
	return ret->fd < 0 ? -errno : 0;
}

static int seal_ranges(struct varve_segment_totals *totals, struct varve_err *err)
{
	struct varve_seal_job job = {.params = test_params(), .n = n_members, .next = next_range};

	job.params.level = 1;
	return varve_seal_segment(seg, SEG, &job, totals, err);
}

static struct varve_segment_totals seal_well(void)
{
	struct varve_segment_totals totals;
	struct varve_err err = {.msg = ""};
	int r = seal_ranges(&totals, &err);

	ck_assert_msg(r == 0, "%d %s", r, err.msg);
	ck_assert_uint_eq(totals.members, n_members);
	return totals;
}

static void want_refused(int error)
{
	struct varve_segment_totals totals;
	struct varve_err err = {.msg = ""};
	int fds = open_fds(), r = seal_ranges(&totals, &err);

	ck_assert_msg(r == error, "%d %s, not %d", r, err.msg, error);
	ck_assert_ptr_nonnull(strstr(err.msg, "m01"));
	ck_assert_int_eq(entries(seg), 0);
	ck_assert_int_eq(open_fds(), fds);
}

static void expect_range(struct opened *o, uint32_t i)
{
	static unsigned char got[1 << 18], want[1 << 18];
	cleanup_close int fd = openat(parts, "part", O_RDONLY | O_CLOEXEC);
	struct varve_member m;

	varve_index_member(o->ix, i, &m);
	ck_assert_uint_eq(m.ino, 1000 + i);
	ck_assert_uint_eq(m.size, members[i].size);
	o->d.i = i;
	for (uint64_t at = 0; at < m.size; at += sizeof(got)) {
		size_t len = m.size - at < sizeof(got) ? (size_t)(m.size - at) : sizeof(got);

		ck_assert_int_eq(read_decoded(&o->d, got, len, at), (ssize_t)len);
		ck_assert_int_eq(varve_pread_full(fd, want, len, members[i].from + at), 0);
		ck_assert_msg(memcmp(got, want, len) == 0, "member %u at %llu", i, (unsigned long long)at);
	}
}

static void expect_ranges(struct opened *o)
{
	ck_assert_uint_eq(varve_index_count(o->ix), n_members);
	for (uint32_t i = 1; i < n_members; i++)
		expect_range(o, i);
}

/* -- the content -- */

START_TEST(test_ranges)
{
	const uint64_t size = 5 * MIB + 77;
	struct varve_segment_totals totals;
	uint64_t sum = 0;
	struct opened o;

	make_content("part", (size_t)size, 3, true);
	add_range(0, 0);
	add_range(0, 1);
	add_range(1, 511);
	add_range(511, 513);
	add_range(4095, 4097);
	add_range(4096, 2 * MIB);
	add_range(4097, 2 * MIB - 1);
	add_range(1, 2 * MIB + 1);
	add_range(MIB, 3 * MIB + 11);
	add_range(size - 1, 1);
	add_range(size - 100, 100);
	add_range(size, 0);
	add_range(0, size);
	for (size_t i = 1; i < n_members; i++)
		sum += members[i].size;
	totals = seal_well();
	ck_assert_uint_eq(totals.content_bytes, sum);
	o = open_segment();
	expect_ranges(&o);
	opened_done(&o);
}
END_TEST

/* In whole blocks of the tar stream, and not beyond the range's end. */
static void expect_extents(const struct opened *o, const char *path, const struct varve_extent *want, uint32_t n)
{
	struct varve_member m = member(o, path);

	ck_assert_uint_eq(m.n_extents, n);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t from = want[i].offset / 512 * 512;
		uint64_t to = (want[i].offset + want[i].length + 511) / 512 * 512;

		ck_assert_uint_eq(m.extents[i].offset, from);
		ck_assert_uint_eq(m.extents[i].length, (to < m.size ? to : m.size) - from);
	}
}

/* Data from 16 to 17 MiB and from 40 to 41 MiB; holes at the part's beginning, between and at its end. */
START_TEST(test_holes)
{
	cleanup_free unsigned char *p = content(MIB, 1, true);
	struct varve_segment_totals totals;
	struct opened o;
	int fd = make_fd("part", "", 0);

	ck_assert_int_eq(ftruncate(fd, 64 * MIB), 0);
	ck_assert_int_eq(varve_pwrite_full(fd, p, MIB, 16 * MIB), 0);
	ck_assert_int_eq(varve_pwrite_full(fd, p, MIB, 40 * MIB), 0);
	ck_assert_int_eq(close(fd), 0);
	add_range(8 * MIB + 5, 16 * MIB);      /* begins and ends in a hole */
	add_range(16 * MIB + 4096, 24 * MIB);  /* begins in data, ends in the next */
	add_range(16 * MIB + 1, MIB / 2);      /* within data */
	add_range(20 * MIB + 3, 10 * MIB);     /* within a hole */
	add_range(40 * MIB + 100, 24 * MIB - 100); /* to the end */
	add_range(15 * MIB, MIB + 1);          /* one byte of data at its end */
	add_range(17 * MIB - 1, MIB);          /* and at its beginning */
	add_range(0, 64 * MIB);
	totals = seal_well();
	ck_assert_uint_lt(totals.tar_bytes, 8 * MIB);
	o = open_segment();
	expect_ranges(&o);
	expect_extents(&o, "m01", (const struct varve_extent[]){{8 * MIB - 5, MIB}}, 1);
	expect_extents(&o, "m02",
		       (const struct varve_extent[]){{0, MIB - 4096}, {24 * MIB - 4096, 4096}}, 2);
	expect_extents(&o, "m03", (const struct varve_extent[]){{0, MIB / 2}}, 1);
	expect_extents(&o, "m04", NULL, 0);
	expect_extents(&o, "m05", (const struct varve_extent[]){{0, MIB - 100}}, 1);
	expect_extents(&o, "m06", (const struct varve_extent[]){{MIB, 1}}, 1);
	expect_extents(&o, "m07", (const struct varve_extent[]){{0, 1}}, 1);
	expect_extents(&o, "m08", (const struct varve_extent[]){{16 * MIB, MIB}, {40 * MIB, MIB}}, 2);
	opened_done(&o);
}
END_TEST

/* -- what others do meanwhile -- */

#define PART_BYTES (16 * MIB)

static pthread_t thread;
static int part_fd;
static atomic_bool stop;
static void (*change)(int fd, uint64_t k);
static off_t at_first, at_last; /* the part's size before the range is sealed, and before the next is */

static void *keep_changing(void *arg)
{
	(void)arg;
	for (uint64_t k = 0; !atomic_load(&stop); k++) {
		change(part_fd, k);
		(void)usleep(100);
	}
	return NULL;
}

static void see_sizes(size_t i)
{
	struct stat st;

	ck_assert_int_eq(fstat(part_fd, &st), 0);
	if (i == 1)
		at_first = st.st_size;
	if (i == 2)
		at_last = st.st_size;
}

static int seal_while(void (*what)(int fd, uint64_t k))
{
	struct varve_segment_totals totals;
	struct varve_err err = {.msg = ""};
	int r;

	change = what;
	atomic_store(&stop, false);
	before = see_sizes;
	part_fd = openat(parts, "part", O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(part_fd, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, keep_changing, NULL), 0);
	r = seal_ranges(&totals, &err);
	atomic_store(&stop, true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(close(part_fd), 0);
	return r;
}

static void append(int fd, uint64_t k)
{
	(void)k;
	ck_assert_int_eq(pwrite(fd, "behind\n", 7, lseek(fd, 0, SEEK_END)), 7);
}

static void cut(int fd, uint64_t k)
{
	ck_assert_int_eq(ftruncate(fd, k < 1600 ? (off_t)(PART_BYTES - (k + 1) * 10000) : 0), 0);
}

/* Until it did grow while the range was read: on a busy machine not always at once. */
START_TEST(test_appended_behind)
{
	struct opened o;

	make_content("part", PART_BYTES, 1, true);
	add_range(12345, PART_BYTES - 12345);
	add_range(0, 12345);
	do
		ck_assert_int_eq(seal_while(append), 0);
	while (at_last == at_first);
	o = open_segment();
	expect_ranges(&o);
	opened_done(&o);
	/* The same part as a whole is what a change is made of. */
	ck_assert_int_eq(unlinkat(seg, SEG, 0), 0);
	members[1].ranged = false;
	do
		ck_assert(seal_while(append) == -EAGAIN || at_last == at_first);
	while (at_last == at_first && entries(seg) == 1);
	ck_assert_int_eq(entries(seg), 0);
}
END_TEST

START_TEST(test_cut_meanwhile)
{
	int r;

	do {
		make_content("part", PART_BYTES, 1, true);
		n_members = 1;
		add_range(100, PART_BYTES - 100);
		r = seal_while(cut);
		/* -EBADMSG: it was shorter before it was begun. */
		ck_assert_msg(r == -EAGAIN || r == -EBADMSG, "%d", r);
		ck_assert_int_eq(entries(seg), 0);
	} while (r != -EAGAIN);
}
END_TEST

START_TEST(test_beyond_the_part)
{
	static const uint64_t wrong[][2] = {{0, 1001}, {1000, 1}, {1001, 0}, {999, 2}, {5, UINT64_MAX - 4},
					    {UINT64_MAX, 1}, {UINT64_MAX, UINT64_MAX}};

	make_content("part", 1000, 1, false);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		n_members = 1;
		add_range(wrong[i][0], wrong[i][1]);
		want_refused(-EBADMSG);
	}
	members[0].ranged = true; /* a directory has no range */
	n_members = 1;
	ck_assert_int_eq(seal_ranges(&(struct varve_segment_totals){0}, NULL), -EBADMSG);
}
END_TEST

/* -- attributes -- */

static void set_attribute(const char *name, const char *value)
{
	cleanup_close int fd = openat(parts, "part", O_RDONLY | O_CLOEXEC);

	ck_assert_int_eq(fsetxattr(fd, name, value, strlen(value), 0), 0);
}

static void expect_attribute(const struct varve_member *m, const char *name, const char *want)
{
	char got[64];
	ssize_t n = varve_xattrs_get(m->xattrs, m->xattrs_len, name, got, sizeof(got));

	if (!want) {
		ck_assert_int_eq(n, -ENODATA);
		return;
	}
	ck_assert_int_eq(n, (ssize_t)strlen(want));
	ck_assert_mem_eq(got, want, (size_t)n);
}

START_TEST(test_dress)
{
	cleanup_close int fd = make_fd("part", "one\ntwo\n", 8);
	cleanup_free unsigned char *kept = NULL;
	struct varve_seal_dress then = {.mode = 06711, .uid = 1234, .gid = 70000,
					.mtime_ns = 1764580000123456789},
				bare = {.mode = S_IFREG | 0400, .mtime_ns = -1};
	struct varve_member m;
	struct opened o;

	/* As of the boundary; then they are changed. */
	set_attribute("user.a", "old");
	set_attribute("user.gone", "yes");
	ck_assert_int_eq(varve_xattrs_pack(fd, &kept, &then.xattrs_len), 0);
	then.xattrs = kept;
	set_attribute("user.a", "new");
	ck_assert_int_eq(fremovexattr(fd, "user.gone"), 0);
	ck_assert_int_eq(fchmod(fd, 0664), 0);
	set_mtime("part", 1800000000, 5);
	add_range(0, 4)->dress = &then;
	add_range(0, 4)->dress = &bare;
	add_range(4, 4);
	add_range(4, 4)->mode = 0604;
	(void)seal_well();
	o = open_segment();
	expect_ranges(&o);
	m = member(&o, "m01");
	ck_assert_uint_eq(m.mode, S_IFREG | 06711);
	ck_assert_uint_eq(m.uid, 1234);
	ck_assert_uint_eq(m.gid, 70000);
	ck_assert_int_eq(m.mtime_sec, 1764580000);
	ck_assert_uint_eq(m.mtime_nsec, 123456789);
	expect_attribute(&m, "user.a", "old");
	expect_attribute(&m, "user.gone", "yes");
	m = member(&o, "m02");
	ck_assert_uint_eq(m.mode, S_IFREG | 0400);
	ck_assert_uint_eq(m.uid, 0);
	ck_assert_int_eq(m.mtime_sec, -1);
	ck_assert_uint_eq(m.mtime_nsec, 999999999);
	ck_assert_uint_eq(m.xattrs_len, 0);
	m = member(&o, "m03");
	ck_assert_uint_eq(m.mode, S_IFREG | 0664);
	ck_assert_int_eq(m.mtime_sec, 1800000000);
	ck_assert_uint_eq(m.mtime_nsec, 5);
	expect_attribute(&m, "user.a", "new");
	expect_attribute(&m, "user.gone", NULL);
	m = member(&o, "m04");
	ck_assert_uint_eq(m.mode, S_IFREG | 0604);
	opened_done(&o);
}
END_TEST

T_MAIN("seal_range", 100)
{
	tcase_add_checked_fixture(tc, begin, teardown);
	tcase_add_test(tc, test_ranges);
	tcase_add_test(tc, test_holes);
	tcase_add_test(tc, test_appended_behind);
	tcase_add_test(tc, test_cut_meanwhile);
	tcase_add_test(tc, test_beyond_the_part);
	tcase_add_test(tc, test_dress);
}
