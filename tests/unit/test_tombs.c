#include "store_segment_util.h"

#include <pthread.h>
#include <sys/mount.h>

#include "base/log.h"
#include "store/tombs.h"

#define BUCKET "2026-11-30"
#define REMOVE(t, path) varve_tombs_add(t, "default", "0", path, strlen(path))
#define HAS(t, path) varve_tombs_has(t, "default", "0", path, strlen(path))

static struct test_dir dir;

static void setup(void)
{
	dir = make_dir();
}

static void teardown(void)
{
	drop_dir(&dir);
}

static struct varve_tombs *load(bool read_only)
{
	struct varve_tombs *t = NULL;
	struct varve_err err = {.msg = ""};
	int r = varve_tombs_open(dir.fd, BUCKET, read_only, &t, &err);

	ck_assert_msg(r == 0, "open: %d %s", r, err.msg);
	return t;
}

static off_t file_size(void)
{
	struct stat st;

	return fstatat(dir.fd, BUCKET, &st, AT_SYMLINK_NOFOLLOW) < 0 ? -1 : st.st_size;
}

static char *file_bytes(size_t *ret_len)
{
	char *text = NULL;

	ck_assert_int_eq(varve_read_file(dir.fd, BUCKET, 1 << 20, &text, ret_len), 0);
	return text;
}

START_TEST(test_nothing)
{
	struct varve_tombs *t = load(false);

	ck_assert_uint_eq(varve_tombs_count(t), 0);
	ck_assert(!HAS(t, "a"));
	ck_assert_int_eq(varve_tombs_sync(t), 0);
	ck_assert_int_eq(file_size(), -1);
	ck_assert_int_eq(varve_tombs_remove(dir.fd, BUCKET), 0);
	varve_tombs_close(t);
	varve_tombs_close(NULL);
}
END_TEST

/* Paths are bytes; class and tablet belong to the key. */
static const struct {
	const char *class_name, *tablet, *path;
} removed[] = {
	{"default", "0", "nginx/access.log"},
	{"default", "0", ""},
	{"default", "0", "two\nlines"},
	{"default", "0", "\xff\xfe not UTF-8 \x01"},
	{"default", "1", "other tablet"},
	{"audit", "0", "other class"},
	{"a", "b", "c/d"},
	{"", "", ""},
};

static const struct {
	const char *class_name, *tablet, *path;
} kept[] = {
	{"default", "0", "nginx/access.lo"},
	{"default", "0", "nginx/access.log1"},
	{"default", "0", "nginx"},
	{"default", "0", "other tablet"},
	{"default", "0", "other class"},
	{"a", "b", "c"},
	{"a", "", "b/c/d"},
	{"audit", "1", "other class"},
};

static void check_removed(struct varve_tombs *t)
{
	for (size_t i = 0; i < sizeof(removed) / sizeof(*removed); i++)
		ck_assert_msg(varve_tombs_has(t, removed[i].class_name, removed[i].tablet,
					      removed[i].path, strlen(removed[i].path)),
			      "%zu", i);
	for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++)
		ck_assert_msg(!varve_tombs_has(t, kept[i].class_name, kept[i].tablet, kept[i].path,
					       strlen(kept[i].path)),
			      "%zu", i);
}

START_TEST(test_add_and_load)
{
	size_t n = sizeof(removed) / sizeof(*removed);
	struct varve_tombs *t = load(false);
	off_t size;

	for (size_t i = 0; i < n; i++)
		ck_assert_int_eq(varve_tombs_add(t, removed[i].class_name, removed[i].tablet,
						 removed[i].path, strlen(removed[i].path)),
				 0);
	ck_assert_uint_eq(varve_tombs_count(t), n);
	check_removed(t);
	ck_assert_int_eq(varve_tombs_sync(t), 0);
	varve_tombs_close(t);
	t = load(false);
	ck_assert_uint_eq(varve_tombs_count(t), n);
	check_removed(t);
	/* What is there already costs nothing. */
	size = file_size();
	ck_assert_int_eq(REMOVE(t, "nginx/access.log"), 0);
	ck_assert_int_eq(file_size(), size);
	ck_assert_uint_eq(varve_tombs_count(t), n);
	ck_assert_int_eq(varve_tombs_sync(t), 0);
	varve_tombs_close(t);
	ck_assert_int_eq(varve_tombs_remove(dir.fd, BUCKET), 0);
	ck_assert_int_eq(file_size(), -1);
	ck_assert_int_eq(varve_tombs_remove(dir.fd, BUCKET), 0);
}
END_TEST

/* docs/format.md: a store written by this version is read by every later one. */
START_TEST(test_golden)
{
	static const char golden[] = "VARVTMB1"
				     "\x17\0\0\0"     /* length of what follows */
				     "\x07\x01\x03\0" /* of class, tablet, path */
				     "default0a/b"
				     "\x5a\x14\xe7\xf3\x1f\x7e\xc5\x07"; /* XXH3-64 of it */
	const size_t golden_len = sizeof(golden) - 1;
	struct varve_tombs *t = load(false);
	size_t len;

	ck_assert_int_eq(REMOVE(t, "a/b"), 0);
	varve_tombs_close(t);
	{
		cleanup_free char *text = file_bytes(&len);

		ck_assert_uint_eq(len, golden_len);
		ck_assert_mem_eq(text, golden, golden_len);
	}
	write_file(dir.fd, BUCKET, golden, golden_len);
	t = load(false);
	ck_assert(HAS(t, "a/b"));
	ck_assert_uint_eq(varve_tombs_count(t), 1);
	varve_tombs_close(t);
}
END_TEST

START_TEST(test_lengths)
{
	struct varve_tombs *t = load(false);
	cleanup_free char *path = long_path(VARVE_PATH_BYTES_MAX, 255);
	cleanup_free char *longer = long_path(VARVE_PATH_BYTES_MAX + 1, 255);
	char name[300];

	memset(name, 'n', sizeof(name));
	name[256] = '\0';
	ck_assert_int_eq(REMOVE(t, path), 0);
	ck_assert_int_eq(REMOVE(t, longer), -ENAMETOOLONG);
	ck_assert_int_eq(varve_tombs_add(t, name, "0", "a", 1), -ENAMETOOLONG);
	ck_assert_int_eq(varve_tombs_add(t, "default", name, "a", 1), -ENAMETOOLONG);
	name[255] = '\0';
	ck_assert_int_eq(varve_tombs_add(t, name, name, path, strlen(path)), 0);
	ck_assert_uint_eq(varve_tombs_count(t), 2);
	varve_tombs_close(t);
	t = load(false);
	ck_assert(HAS(t, path));
	ck_assert(!HAS(t, longer));
	ck_assert(varve_tombs_has(t, name, name, path, strlen(path)));
	varve_tombs_close(t);
}
END_TEST

/* Five records; record i ends at ends[i]. */
#define N_RECORDS 5
static const char *const paths[N_RECORDS] = {"a", "bb/ccc", "", "a longer name of a file.log", "z"};

static void write_five(size_t ends[N_RECORDS])
{
	struct varve_tombs *t = load(false);

	for (size_t i = 0; i < N_RECORDS; i++) {
		ck_assert_int_eq(REMOVE(t, paths[i]), 0);
		ends[i] = (size_t)file_size();
	}
	varve_tombs_close(t);
}

/* Adds one more, and wants it and what was there before after a reload. */
static void add_one_more(bool want[N_RECORDS])
{
	struct varve_tombs *t = load(false);
	size_t n = varve_tombs_count(t);

	ck_assert_int_eq(REMOVE(t, "one more"), 0);
	ck_assert_int_eq(varve_tombs_sync(t), 0);
	varve_tombs_close(t);
	t = load(true);
	ck_assert_uint_eq(varve_tombs_count(t), n + 1);
	ck_assert(HAS(t, "one more"));
	for (size_t i = 0; i < N_RECORDS; i++)
		ck_assert_int_eq(HAS(t, paths[i]), want[i]);
	varve_tombs_close(t);
}

/* A crash can end an append after any byte. */
START_TEST(test_torn_everywhere)
{
	size_t ends[N_RECORDS], len, one_more;
	cleanup_free char *text = NULL;

	write_five(ends);
	text = file_bytes(&len);
	ck_assert_uint_eq(len, ends[N_RECORDS - 1]);
	one_more = 4 + 4 + strlen("default") + 1 + strlen("one more") + 8;
	for (size_t cut = 0; cut <= len; cut++) {
		bool want[N_RECORDS];
		size_t n = 0, whole = 8;
		struct varve_tombs *t;

		write_file(dir.fd, BUCKET, text, cut);
		t = load(true);
		for (size_t i = 0; i < N_RECORDS; i++) {
			want[i] = cut >= ends[i];
			if (want[i])
				whole = ends[i];
			n += want[i];
			ck_assert_msg(HAS(t, paths[i]) == want[i], "cut at %zu, record %zu", cut,
				      i);
		}
		ck_assert_uint_eq(varve_tombs_count(t), n);
		varve_tombs_close(t);
		ck_assert_int_eq(file_size(), (off_t)cut); /* read-only leaves it alone */
		add_one_more(want);
		ck_assert_int_eq(file_size(),
				 (off_t)(whole + one_more)); /* the torn tail is gone */
	}
}
END_TEST

/* After a power loss a file may have its length but not its last bytes. */
START_TEST(test_zeroed_tail)
{
	size_t ends[N_RECORDS], len;
	cleanup_free char *text = NULL;

	write_five(ends);
	text = file_bytes(&len);
	for (size_t cut = len; cut-- > 0;) {
		bool want[N_RECORDS];
		struct varve_tombs *t = NULL;
		int r;

		text[cut] = '\0';
		write_file(dir.fd, BUCKET, text, len);
		r = varve_tombs_open(dir.fd, BUCKET, true, &t, NULL);
		if (cut > 0 && cut < 8) { /* half a magic is no torn write: it is one sector */
			ck_assert_int_eq(r, -EBADMSG);
			continue;
		}
		ck_assert_int_eq(r, 0);
		for (size_t i = 0; i < N_RECORDS; i++) {
			want[i] = cut >= ends[i];
			ck_assert_msg(HAS(t, paths[i]) == want[i], "zeros from %zu, record %zu",
				      cut, i);
		}
		varve_tombs_close(t);
		add_one_more(want);
	}
}
END_TEST

/* One damaged record must not bring back what the others removed. */
START_TEST(test_damage_everywhere)
{
	size_t ends[N_RECORDS], len;
	cleanup_free char *text = NULL;

	write_five(ends);
	text = file_bytes(&len);
	for (size_t at = 0; at < len; at++) {
		bool want[N_RECORDS];
		struct varve_tombs *t = NULL;
		int r;

		write_file(dir.fd, BUCKET, text, len);
		flip(dir.fd, BUCKET, at);
		r = varve_tombs_open(dir.fd, BUCKET, false, &t, NULL);
		if (at < 8) {
			ck_assert_int_eq(r, -EBADMSG);
			continue;
		}
		ck_assert_int_eq(r, 0);
		for (size_t i = 0; i < N_RECORDS; i++) {
			want[i] = at >= ends[i] || at < (i ? ends[i - 1] : 8);
			ck_assert_msg(HAS(t, paths[i]) == want[i], "flip at %zu, record %zu", at,
				      i);
		}
		varve_tombs_close(t);
		add_one_more(want);
	}
}
END_TEST

START_TEST(test_read_only)
{
	struct varve_tombs *t = load(true), *writer = load(false);

	ck_assert_int_eq(REMOVE(t, "a"), -EROFS);
	ck_assert_int_eq(varve_tombs_sync(t), 0);
	ck_assert_int_eq(file_size(), -1);
	varve_tombs_close(t);
	ck_assert_int_eq(REMOVE(writer, "a"), 0);
	t = load(true);
	ck_assert(HAS(t, "a"));
	ck_assert_int_eq(varve_tombs_sync(t), 0);
	varve_tombs_close(t);
	varve_tombs_close(writer);
}
END_TEST

START_TEST(test_not_a_file)
{
	struct varve_tombs *t = NULL;
	struct varve_err err = {.msg = ""};

	write_file(dir.fd, BUCKET, "something else", 14);
	ck_assert_int_eq(varve_tombs_open(dir.fd, BUCKET, false, &t, &err), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(err.msg, BUCKET));
	ck_assert_int_eq(unlinkat(dir.fd, BUCKET, 0), 0);
	ck_assert_int_eq(mkdirat(dir.fd, BUCKET, 0700), 0);
	err.msg[0] = '\0';
	ck_assert_int_eq(varve_tombs_open(dir.fd, BUCKET, false, &t, &err), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(err.msg, BUCKET));
	ck_assert_int_eq(unlinkat(dir.fd, BUCKET, AT_REMOVEDIR), 0);
	ck_assert_int_eq(symlinkat("/etc/passwd", dir.fd, BUCKET), 0);
	ck_assert_int_eq(varve_tombs_open(dir.fd, BUCKET, false, &t, &err), -ELOOP);
	ck_assert_ptr_null(t);
}
END_TEST

/* A daemon that was killed before its sync: the next one's sync covers what it finds. That the disk
 * is really asked can't be seen from here; that it is not taken for a reason to fail, can. */
START_TEST(test_sync_after_load)
{
	struct varve_tombs *t = load(false);

	ck_assert_int_eq(REMOVE(t, "a"), 0);
	varve_tombs_close(t);
	t = load(false);
	ck_assert_int_eq(varve_tombs_sync(t), 0);
	varve_tombs_close(t);
	/* It went with its bucket: neither made anew nor an error. */
	t = load(false);
	ck_assert_int_eq(varve_tombs_remove(dir.fd, BUCKET), 0);
	ck_assert_int_eq(varve_tombs_sync(t), 0);
	ck_assert_int_eq(REMOVE(t, "b"), -ENOENT);
	ck_assert(!HAS(t, "b"));
	ck_assert_int_eq(file_size(), -1);
	varve_tombs_close(t);
}
END_TEST

static void fill_disk(void)
{
	int fd = openat(dir.fd, "filler", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	static const char block[4096];

	ck_assert_int_ge(fd, 0);
	while (write(fd, block, sizeof(block)) > 0)
		;
	ck_assert_int_eq(errno, ENOSPC);
	ck_assert_int_eq(close(fd), 0);
}

/* A disk that fills up in the middle of a record: what was added stays, what failed never was. */
START_TEST(test_disk_full)
{
	struct varve_tombs *t;
	size_t n = 0, again;
	char path[64];
	off_t size;
	int r = 0;

	ck_assert_int_eq(mount("tmpfs", dir.path, "tmpfs", 0, "size=64k"), 0);
	(void)close(dir.fd);
	dir.fd = open(dir.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	t = load(false);
	ck_assert_int_eq(REMOVE(t, "before"), 0);
	fill_disk();
	while (r == 0) {
		(void)snprintf(path, sizeof(path), "a file with some name %zu", n);
		size = file_size();
		r = REMOVE(t, path);
		n += r == 0;
	}
	ck_assert_int_eq(r, -ENOSPC);
	ck_assert_uint_gt(n, 10); /* the rest of the page had room */
	ck_assert_int_eq(file_size(), size);
	ck_assert(!HAS(t, path));
	ck_assert_uint_eq(varve_tombs_count(t), n + 1);
	ck_assert_int_eq(varve_tombs_sync(t), 0);
	varve_tombs_close(t);
	t = load(false);
	ck_assert_uint_eq(varve_tombs_count(t), n + 1);
	ck_assert_int_eq(unlinkat(dir.fd, "filler", 0), 0);
	ck_assert_int_eq(REMOVE(t, path), 0);
	varve_tombs_close(t);
	t = load(true);
	again = varve_tombs_count(t);
	varve_tombs_close(t);
	(void)close(dir.fd);
	ck_assert_int_eq(umount(dir.path), 0);
	dir.fd = open(dir.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_uint_eq(again, n + 2);
}
END_TEST

/* Not even room for the file itself. */
START_TEST(test_disk_full_at_first)
{
	struct varve_tombs *t;
	int r;

	ck_assert_int_eq(mount("tmpfs", dir.path, "tmpfs", 0, "size=64k"), 0);
	(void)close(dir.fd);
	dir.fd = open(dir.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	t = load(false);
	fill_disk();
	r = REMOVE(t, "a");
	ck_assert_int_eq(unlinkat(dir.fd, "filler", 0), 0);
	ck_assert_int_eq(r, -ENOSPC);
	ck_assert_uint_eq(varve_tombs_count(t), 0);
	ck_assert_int_eq(REMOVE(t, "a"), 0);
	varve_tombs_close(t);
	t = load(true);
	ck_assert(HAS(t, "a"));
	varve_tombs_close(t);
	(void)close(dir.fd);
	ck_assert_int_eq(umount(dir.path), 0);
	dir.fd = open(dir.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}
END_TEST

START_TEST(test_many)
{
	struct varve_tombs *t = load(false);
	char path[64];

	for (int i = 0; i < 50000; i++) {
		(void)snprintf(path, sizeof(path), "dir%d/file-%d.log", i % 100, i);
		ck_assert_int_eq(REMOVE(t, path), 0);
	}
	varve_tombs_close(t);
	t = load(true);
	ck_assert_uint_eq(varve_tombs_count(t), 50000);
	for (int i = 0; i < 50000; i++) {
		(void)snprintf(path, sizeof(path), "dir%d/file-%d.log", i % 100, i);
		ck_assert(HAS(t, path));
		path[0] = 'D';
		ck_assert(!HAS(t, path));
	}
	varve_tombs_close(t);
}
END_TEST

struct adder {
	struct varve_tombs *t;
	int k;
	int r;
};

static void *add_some(void *arg)
{
	struct adder *a = arg;
	char path[32];

	for (int i = 0; i < 500 && a->r == 0; i++) {
		(void)snprintf(path, sizeof(path), "%d/%d", a->k, i);
		a->r = REMOVE(a->t, path);
		if (a->r == 0 && !HAS(a->t, path))
			a->r = -EBADMSG;
		if (a->r == 0 && i % 50 == a->k)
			a->r = varve_tombs_sync(a->t);
	}
	return NULL;
}

START_TEST(test_threads)
{
	struct varve_tombs *t = load(false);
	struct adder adders[4];
	pthread_t threads[4];

	for (int k = 0; k < 4; k++) {
		adders[k] = (struct adder){.t = t, .k = k};
		ck_assert_int_eq(pthread_create(&threads[k], NULL, add_some, &adders[k]), 0);
	}
	for (int k = 0; k < 4; k++) {
		ck_assert_int_eq(pthread_join(threads[k], NULL), 0);
		ck_assert_int_eq(adders[k].r, 0);
	}
	varve_tombs_close(t);
	t = load(true);
	ck_assert_uint_eq(varve_tombs_count(t), 2000);
	varve_tombs_close(t);
}
END_TEST

T_MAIN("tombs", 60)
{
	varve_log_init("test_tombs", 0, VARVE_LOG_ERROR);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_nothing);
	tcase_add_test(tc, test_add_and_load);
	tcase_add_test(tc, test_golden);
	tcase_add_test(tc, test_lengths);
	tcase_add_test(tc, test_torn_everywhere);
	tcase_add_test(tc, test_zeroed_tail);
	tcase_add_test(tc, test_damage_everywhere);
	tcase_add_test(tc, test_read_only);
	tcase_add_test(tc, test_not_a_file);
	tcase_add_test(tc, test_sync_after_load);
	tcase_add_test(tc, test_disk_full);
	tcase_add_test(tc, test_disk_full_at_first);
	tcase_add_test(tc, test_many);
	tcase_add_test(tc, test_threads);
}
