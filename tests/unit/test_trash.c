#include "store_segment_util.h"

#include <time.h>

#include "store/trash.h"

#define MIB (INT64_C(1) << 20)
#define MS INT64_C(1000000)
#define LONG_TIME (INT64_C(60) * 1000 * MS)

static struct test_dir dir;

static void setup(void)
{
	dir = make_dir();
}

static void teardown(void)
{
	drop_dir(&dir);
}

/* -- names -- */

#define CLASS63 "ccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"

static const struct {
	struct varve_trash_name n;
	const char *text;
} names[] = {
	{{"2026-11-28", "default", VARVE_BUCKET_SEALED, INT64_C(1764580000000000000),
	  VARVE_CAUSE_HAND, 1000, 4242, 0},
	 "2026-11-28,default,sealed,1764580000000000000,hand,1000,4242,0"},
	{{"2026-11-30T141530Z", "audit", VARVE_BUCKET_CLOSING, 5, VARVE_CAUSE_MIN_FREE, -1, -1, 7},
	 "2026-11-30T141530Z,audit,closing,5,min-free,-1,-1,7"},
	{{"2026-W49", "a", VARVE_BUCKET_SEALED, 0, VARVE_CAUSE_KEEP, -1, -1, 0},
	 "2026-W49,a,sealed,0,keep,-1,-1,0"},
	{{"2026-11-29", "default", VARVE_BUCKET_CLOSING, 9, VARVE_CAUSE_SEALED, -1, -1, 0},
	 "2026-11-29,default,closing,9,sealed,-1,-1,0"},
	{{"2026-11", "a b", VARVE_BUCKET_SEALED, -1, VARVE_CAUSE_MAX_SIZE, 0, 1, UINT32_MAX},
	 "2026-11,a b,sealed,-1,max-size,0,1,4294967295"},
	{{"2026-11-30T14Z", CLASS63, VARVE_BUCKET_CLOSING, INT64_MAX, VARVE_CAUSE_MAX_BUCKETS,
	  INT64_C(4294967295), INT64_C(4194304), 1},
	 "2026-11-30T14Z," CLASS63 ",closing,9223372036854775807,max-buckets,4294967295,4194304,1"},
};

START_TEST(test_name)
{
	const struct varve_trash_name *n = &names[_i].n;
	struct varve_trash_name back;
	char buf[VARVE_TRASH_NAME_MAX], gone[VARVE_TRASH_NAME_MAX + 8];

	ck_assert_int_eq(varve_trash_format(n, buf), 0);
	ck_assert_str_eq(buf, names[_i].text);
	ck_assert_int_eq(varve_trash_parse(buf, &back), 0);
	ck_assert_str_eq(back.bucket, n->bucket);
	ck_assert_str_eq(back.class_name, n->class_name);
	ck_assert_int_eq(back.state, n->state);
	ck_assert_int_eq(back.time_ns, n->time_ns);
	ck_assert_int_eq(back.cause, n->cause);
	ck_assert_int_eq(back.uid, n->uid);
	ck_assert_int_eq(back.pid, n->pid);
	ck_assert_uint_eq(back.seq, n->seq);
	ck_assert(!varve_trash_is_gone(buf));
	varve_trash_gone(buf, gone);
	ck_assert(varve_trash_is_gone(gone));
	ck_assert_str_eq(gone + strlen("gone,"), buf);
}
END_TEST

START_TEST(test_name_refused)
{
	static const struct varve_trash_name bad[] = {
		{"", "default", VARVE_BUCKET_SEALED, 1, VARVE_CAUSE_HAND, 1, 1, 0},
		{"current", "default", VARVE_BUCKET_SEALED, 1, VARVE_CAUSE_HAND, 1, 1, 0},
		{"2026-02-30", "default", VARVE_BUCKET_SEALED, 1, VARVE_CAUSE_HAND, 1, 1, 0},
		{"2026-11-28", "", VARVE_BUCKET_SEALED, 1, VARVE_CAUSE_HAND, 1, 1, 0},
		{"2026-11-28", "a,b", VARVE_BUCKET_SEALED, 1, VARVE_CAUSE_HAND, 1, 1, 0},
		{"2026-11-28", "a/b", VARVE_BUCKET_SEALED, 1, VARVE_CAUSE_HAND, 1, 1, 0},
		{"2026-11-28", "default", VARVE_BUCKET_OPEN, 1, VARVE_CAUSE_HAND, 1, 1, 0},
		{"2026-11-28", "default", VARVE_BUCKET_DROPPED, 1, VARVE_CAUSE_HAND, 1, 1, 0},
		{"2026-11-28", "default", VARVE_BUCKET_SEALED, 1, VARVE_CAUSE_NONE, 1, 1, 0},
	};
	char buf[VARVE_TRASH_NAME_MAX];

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ck_assert_msg(varve_trash_format(&bad[i], buf) == -EINVAL, "%zu", i);
}
END_TEST

/* Each is one slip away from a good one. */
static const char *const bad_names[] = {
	"",
	"2026-11-28",
	",,,,,,,",
	"2026-11-28,default,sealed,1,hand,1000,4242",
	"2026-11-28,default,sealed,1,hand,1000,4242,0,",
	"2026-11-28,default,sealed,1,hand,1000,4242,0,0",
	"2026-11-28,default,sealed,1,hand,1000,4242,",
	"2026-11-28,default,sealed,1,hand,1000,4242,-1",
	"2026-11-28,default,sealed,1,hand,1000,4242,4294967296",
	"2026-11-28,default,sealed,1,hand,1000,4242,00",
	"2026-11-28,default,sealed,1,hand,1000,4242,0 ",
	"2026-11-28,default,sealed,01,hand,1000,4242,0",
	"2026-11-28,default,sealed,+1,hand,1000,4242,0",
	"2026-11-28,default,sealed, 1,hand,1000,4242,0",
	"2026-11-28,default,sealed,0x1,hand,1000,4242,0",
	"2026-11-28,default,sealed,,hand,1000,4242,0",
	"2026-11-28,default,sealed,99999999999999999999,hand,1000,4242,0",
	"2026-11-28,default,sealed,1,none,1000,4242,0",
	"2026-11-28,default,sealed,1,Hand,1000,4242,0",
	"2026-11-28,default,sealed,1,,1000,4242,0",
	"2026-11-28,default,open,1,hand,1000,4242,0",
	"2026-11-28,default,dropped,1,hand,1000,4242,0",
	"2026-11-28,default,,1,hand,1000,4242,0",
	"2026-11-28,,sealed,1,hand,1000,4242,0",
	"2026-11-28,a/b,sealed,1,hand,1000,4242,0",
	"2026-11-28," CLASS63 "c,sealed,1,hand,1000,4242,0",
	"2026-11-31,default,sealed,1,hand,1000,4242,0",
	"2026-11-28x,default,sealed,1,hand,1000,4242,0",
	"current,default,sealed,1,hand,1000,4242,0",
	"gone,2026-11-28,default,sealed,1,hand,1000,4242,0",
	"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx,default,sealed,1,hand,1000,4242,0",
};

START_TEST(test_name_not_ours)
{
	char longer[VARVE_TRASH_NAME_MAX + 1];
	struct varve_trash_name n = {.seq = 77};

	for (size_t i = 0; i < sizeof(bad_names) / sizeof(*bad_names); i++)
		ck_assert_msg(varve_trash_parse(bad_names[i], &n) == -EINVAL, "'%s'", bad_names[i]);
	memset(longer, 'x', sizeof(longer));
	longer[VARVE_TRASH_NAME_MAX] = '\0';
	ck_assert_int_eq(varve_trash_parse(longer, &n), -EINVAL);
	ck_assert_uint_eq(n.seq, 77);
}
END_TEST

/* -- the list -- */

struct seen {
	char names[8][256];
	struct varve_trash_name parsed[8];
	size_t n, stop_at;
	int stop_with;
};

static int see(void *ctx, const char *name, const struct varve_trash_name *parsed)
{
	struct seen *s = ctx;

	ck_assert_uint_lt(s->n, 8);
	strcpy(s->names[s->n], name);
	s->parsed[s->n] = *parsed;
	return ++s->n == s->stop_at ? s->stop_with : 0;
}

START_TEST(test_each)
{
	static const char *const want[] = {
		"2026-11-29,default,sealed,100,hand,0,1,0",
		"gone,2026-11-30,default,sealed,200,keep,-1,-1,0",
		"2026-11-28,default,sealed,300,hand,0,1,0",
		"2026-11-28,default,closing,300,hand,0,1,1",
		"2026-11-20,default,sealed,1000,keep,-1,-1,0",
	};
	static const char *const other[] = {"gone,", "lost+found", "gone,gone,x",
					    "2026-11-28,default,sealed,300,hand,0,1"};
	struct seen s = {.n = 0};

	ck_assert_int_eq(varve_trash_each(dir.fd, see, &s), 0);
	ck_assert_uint_eq(s.n, 0);
	for (size_t i = 5; i-- > 0;)
		ck_assert_int_eq(mkdirat(dir.fd, want[i], 0700), 0);
	for (size_t i = 0; i < 4; i++)
		ck_assert_int_eq(mkdirat(dir.fd, other[i], 0700), 0);
	ck_assert_int_eq(varve_trash_each(dir.fd, see, &s), 0);
	ck_assert_uint_eq(s.n, 5);
	for (size_t i = 0; i < 5; i++) {
		ck_assert_str_eq(s.names[i], want[i]);
		ck_assert_int_eq(varve_trash_is_gone(s.names[i]), i == 1);
	}
	ck_assert_str_eq(s.parsed[1].bucket, "2026-11-30");
	ck_assert_int_eq(s.parsed[1].cause, VARVE_CAUSE_KEEP);
	ck_assert_int_eq(s.parsed[3].state, VARVE_BUCKET_CLOSING);
	s = (struct seen){.stop_at = 2, .stop_with = -EIO};
	ck_assert_int_eq(varve_trash_each(dir.fd, see, &s), -EIO);
	ck_assert_uint_eq(s.n, 2);
	s = (struct seen){.stop_at = 2, .stop_with = 1}; /* only an error stops it */
	ck_assert_int_eq(varve_trash_each(dir.fd, see, &s), 0);
	ck_assert_uint_eq(s.n, 5);
}
END_TEST

/* -- removing -- */

#define HAND "2026-11-28,default,closing,300,hand,0,1,0"
#define POLICY "2026-11-28,default,sealed,300,keep,-1,-1,0"

static bool exists(const char *path)
{
	struct stat st;

	return fstatat(dir.fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static off_t size_of(const char *path)
{
	struct stat st;

	return fstatat(dir.fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 ? -1 : st.st_size;
}

static void make(const char *name, const char *path, off_t size)
{
	char all[512];
	char *slash;
	int fd;

	(void)snprintf(all, sizeof(all), "%s/%s", name, path);
	slash = strrchr(all, '/');
	*slash = '\0';
	ck_assert_int_eq(varve_mkdir_p(dir.fd, all, 0700), 0);
	*slash = '/';
	fd = openat(dir.fd, all, O_WRONLY | O_CREAT | O_CLOEXEC, 0000);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, size), 0);
	ck_assert_int_eq(close(fd), 0);
}

START_TEST(test_remove)
{
	make("outside", "kept", 3);
	make(HAND, "default/0/a.log", 10);
	make(HAND, "default/0/nginx/access.log", 0);
	make(HAND, "default/0/nginx/deep/er/x", 1);
	ck_assert_int_eq(varve_mkdir_p(dir.fd, HAND "/default/0/empty", 0000), 0);
	ck_assert_int_eq(symlinkat("../../../outside", dir.fd, HAND "/default/0/out"), 0);
	ck_assert_int_eq(symlinkat("/nowhere", dir.fd, HAND "/default/0/broken"), 0);
	ck_assert_int_eq(varve_trash_remove(dir.fd, HAND, false, LONG_TIME), 0);
	ck_assert(!exists(HAND));
	ck_assert(!exists("gone," HAND));
	ck_assert_int_eq(size_of("outside/kept"), 3);
	ck_assert_int_eq(varve_trash_remove(dir.fd, HAND, false, LONG_TIME), 0);
	ck_assert_int_eq(varve_trash_remove(dir.fd, "gone," HAND, false, LONG_TIME), 0);
}
END_TEST

/* Large files go in steps, one call after the other; from the first on it can't come back. */
START_TEST(test_remove_in_steps)
{
	off_t size = 300 * MIB + 5;
	int r;

	make(POLICY, "default/0.tar.zst", size);
	r = varve_trash_remove(dir.fd, POLICY, false, 0);
	ck_assert(!exists(POLICY));
	for (; size > 64 * MIB; r = varve_trash_remove(dir.fd, "gone," POLICY, false, 0)) {
		ck_assert_int_eq(r, 1);
		size -= 64 * MIB;
		ck_assert_int_eq(size_of("gone," POLICY "/default/0.tar.zst"), size);
	}
	ck_assert_int_eq(r, 0);
	ck_assert(!exists("gone," POLICY));
}
END_TEST

/* A reader goes on; a part that another bucket has, too, keeps its bytes. */
START_TEST(test_remove_what_is_needed)
{
	char b;
	int fd;

	make(POLICY, "default/0.tar.zst", 200 * MIB);
	fd = openat(dir.fd, POLICY "/default/0.tar.zst", O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, "x", 1, 200 * MIB - 1), 1);
	ck_assert_int_eq(varve_trash_remove(dir.fd, POLICY, true, LONG_TIME), 0);
	ck_assert(!exists("gone," POLICY));
	ck_assert_int_eq(pread(fd, &b, 1, 200 * MIB - 1), 1);
	ck_assert_int_eq(b, 'x');
	ck_assert_int_eq(close(fd), 0);
	make(HAND, "default/0/carried", 200 * MIB);
	ck_assert_int_eq(linkat(dir.fd, HAND "/default/0/carried", dir.fd, "newer", 0), 0);
	ck_assert_int_eq(varve_trash_remove(dir.fd, HAND, false, LONG_TIME), 0);
	ck_assert(!exists("gone," HAND));
	ck_assert_int_eq(size_of("newer"), 200 * MIB);
}
END_TEST

/* However little time is given, each call gets on. */
START_TEST(test_remove_many)
{
	char path[64];
	int calls = 0, r;

	for (int i = 0; i < 500; i++) {
		(void)snprintf(path, sizeof(path), "default/0/d%d/f%d", i % 10, i);
		make(HAND, path, i);
	}
	do {
		r = varve_trash_remove(dir.fd, calls ? "gone," HAND : HAND, false, 0);
		ck_assert_int_ge(r, 0);
		ck_assert_int_le(++calls, 600);
	} while (r == 1);
	ck_assert_int_gt(calls, 100);
	ck_assert(!exists("gone," HAND));
}
END_TEST

/* What a crash can leave: a mark without removal, a removal that is half done. */
START_TEST(test_remove_after_crash)
{
	struct seen s = {.n = 0};

	make("gone," HAND, "default/0/left", 10);
	ck_assert_int_eq(varve_trash_each(dir.fd, see, &s), 0);
	ck_assert_uint_eq(s.n, 1);
	ck_assert(varve_trash_is_gone(s.names[0]));
	ck_assert_int_eq(varve_trash_remove(dir.fd, s.names[0], false, LONG_TIME), 0);
	ck_assert(!exists("gone," HAND));
	/* Two of one name: the half-removed one is no obstacle for ever. */
	make("gone," HAND, "default/0/left", 10);
	make(HAND, "default/0/a", 10);
	ck_assert_int_eq(varve_trash_remove(dir.fd, HAND, false, LONG_TIME), 1);
	ck_assert(exists(HAND));
	ck_assert(!exists("gone," HAND));
	ck_assert_int_eq(varve_trash_remove(dir.fd, HAND, false, LONG_TIME), 0);
	ck_assert(!exists(HAND));
	/* Empty ones, and a stray file under an entry's name. */
	ck_assert_int_eq(mkdirat(dir.fd, HAND, 0700), 0);
	ck_assert_int_eq(varve_trash_remove(dir.fd, HAND, false, LONG_TIME), 0);
	write_file(dir.fd, HAND, "x", 1);
	ck_assert_int_eq(varve_trash_remove(dir.fd, HAND, false, LONG_TIME), 0);
	ck_assert(!exists(HAND) && !exists("gone," HAND));
}
END_TEST

START_TEST(test_remove_deep)
{
	cleanup_close int at = openat(dir.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(mkdirat(dir.fd, HAND, 0700), 0);
	for (int i = 0; i < 400; i++) {
		int next = openat(at, i ? "d" : HAND, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		ck_assert_int_ge(next, 0);
		ck_assert_int_eq(mkdirat(next, "d", 0700), 0);
		(void)close(at);
		at = next;
	}
	ck_assert_int_eq(varve_trash_remove(dir.fd, HAND, false, LONG_TIME), 0);
	ck_assert(!exists("gone," HAND));
}
END_TEST

/* -- allocated bytes -- */

static uint64_t du(const char *path)
{
	char command[256];
	unsigned long long v = 0;
	FILE *p;

	(void)snprintf(command, sizeof(command), "du -s -B1 '%s/%s'", dir.path, path);
	p = popen(command, "re");
	ck_assert_ptr_nonnull(p);
	ck_assert_int_eq(fscanf(p, "%llu", &v), 1);
	ck_assert_int_eq(pclose(p), 0);
	return v;
}

START_TEST(test_allocated)
{
	static char data[300000];
	uint64_t got;
	int fd;

	make("t", "a/b/sparse", 10 * MIB);
	make("t", "a/empty", 0);
	ck_assert_int_eq(symlinkat("/usr", dir.fd, "t/link"), 0);
	fd = openat(dir.fd, "t/a/data", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	memset(data, 'x', sizeof(data));
	ck_assert_int_eq(varve_pwrite_full(fd, data, sizeof(data), 0), 0);
	ck_assert_int_eq(fsync(fd), 0);
	ck_assert_int_eq(close(fd), 0);
	ck_assert_int_eq(varve_tree_allocated(dir.fd, "t", &got), 0);
	ck_assert_uint_eq(got, du("t"));
	ck_assert_uint_ge(got, sizeof(data));
	ck_assert_uint_lt(got, 10 * MIB);
	ck_assert_int_eq(varve_tree_allocated(dir.fd, "t/a/data", &got), 0);
	ck_assert_uint_eq(got, du("t/a/data"));
	ck_assert_int_eq(varve_tree_allocated(dir.fd, "t/link", &got), 0);
	ck_assert_uint_eq(got, du("t/link"));
	ck_assert_int_eq(varve_tree_allocated(dir.fd, "none", &got), -ENOENT);
}
END_TEST

T_MAIN("trash", 60)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_name, 0, sizeof(names) / sizeof(*names));
	tcase_add_test(tc, test_name_refused);
	tcase_add_test(tc, test_name_not_ours);
	tcase_add_test(tc, test_each);
	tcase_add_test(tc, test_remove);
	tcase_add_test(tc, test_remove_in_steps);
	tcase_add_test(tc, test_remove_what_is_needed);
	tcase_add_test(tc, test_remove_many);
	tcase_add_test(tc, test_remove_after_crash);
	tcase_add_test(tc, test_remove_deep);
	tcase_add_test(tc, test_allocated);
}
