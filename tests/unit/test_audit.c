#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/unit.h"
#include "base/sys.h"
#include "store/audit.h"

static char dir[64];
static int dirfd_;

static const struct varve_audit_line drop_line = {
	.time_ns = INT64_C(1796090584567000000),
	.event = "drop",
	.cause = "hand",
	.bucket = "2026-11-28",
	.class_name = "default",
	.buckets = 1,
	.files = 3,
	.bytes = 12345,
	.segment_bytes = -1,
	.uid = 0,
	.pid = 42,
	.id = "t-17",
};

static void setup(void)
{
	strcpy(dir, "/tmp/varve-audit-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dirfd_, 0);
}

static void teardown(void)
{
	(void)unlinkat(dirfd_, "a", 0);
	(void)close(dirfd_);
	ck_assert_int_eq(rmdir(dir), 0);
}

static struct varve_audit *open_audit(void)
{
	struct varve_audit *a = NULL;
	struct varve_err err = {""};

	ck_assert_msg(varve_audit_open(dirfd_, "a", &a, &err) == 0, "%s", err.msg);
	return a;
}

static char *content(void)
{
	char *text;
	size_t len;

	ck_assert_int_eq(varve_read_file(dirfd_, "a", 64 << 20, &text, &len), 0);
	ck_assert_uint_eq(strlen(text), len);
	return text;
}

static void put(const char *bytes, size_t n)
{
	cleanup_close int fd = openat(dirfd_, "a", O_WRONLY | O_CREAT | O_APPEND, 0600);

	ck_assert_int_eq(write(fd, bytes, n), (ssize_t)n);
}

START_TEST(test_line)
{
	struct varve_audit *a = open_audit();
	struct varve_audit_line policy = drop_line;
	cleanup_free char *text = NULL;
	struct stat st;

	policy.event = "expire";
	policy.cause = "keep";
	policy.cutoff_ns = INT64_C(1796000000000000000);
	policy.segment_bytes = 99;
	policy.uid = policy.pid = -1;
	policy.id = NULL;
	ck_assert_int_eq(varve_audit_append(a, &drop_line), 0);
	ck_assert_int_eq(varve_audit_append(a, &policy), 0);
	varve_audit_close(a);
	text = content();
	ck_assert_str_eq(
		text,
		"{\"time\":\"2026-12-01T02:03:04.567Z\",\"event\":\"drop\",\"cause\":\"hand\","
		"\"bucket\":\"2026-11-28\",\"class\":\"default\",\"buckets\":1,\"files\":3,"
		"\"bytes\":12345,\"uid\":0,\"pid\":42,\"id\":\"t-17\"}\n"
		"{\"time\":\"2026-12-01T02:03:04.567Z\",\"event\":\"expire\",\"cause\":\"keep\","
		"\"bucket\":\"2026-11-28\",\"class\":\"default\","
		"\"cutoff\":\"2026-11-30T00:53:20.000Z\",\"buckets\":1,\"files\":3,"
		"\"bytes\":12345,\"segment_bytes\":99}\n");
	ck_assert_int_eq(fstatat(dirfd_, "a", &st, 0), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
}
END_TEST

START_TEST(test_has)
{
	struct varve_audit *a = open_audit();
	struct varve_audit_line line = drop_line;

	ck_assert_int_eq(varve_audit_has(a, "drop", "t-17"), 0);
	ck_assert_int_eq(varve_audit_append(a, &drop_line), 0);
	line.event = "seal";
	line.id = "odd \"id\":\"t-99\" \xff";
	ck_assert_int_eq(varve_audit_append(a, &line), 0);
	ck_assert_int_eq(varve_audit_has(a, "drop", "t-17"), 1);
	ck_assert_int_eq(varve_audit_has(a, "drop", "t-1"), 0);
	ck_assert_int_eq(varve_audit_has(a, "drop", "t-177"), 0);
	ck_assert_int_eq(varve_audit_has(a, "seal", "t-17"), 0);
	ck_assert_int_eq(varve_audit_has(a, "seal", "t-99"), 0);
	ck_assert_int_eq(varve_audit_has(a, "seal", line.id), 1);
	varve_audit_close(a);
}
END_TEST

/* Only the last 4 MiB are looked through, however long the trail. */
START_TEST(test_has_bounded)
{
	struct varve_audit *a = open_audit();
	char block[4096];

	ck_assert_int_eq(varve_audit_append(a, &drop_line), 0);
	memset(block, ' ', sizeof(block));
	block[sizeof(block) - 1] = '\n';
	for (int i = 0; i < 1024; i++) {
		if (i == 1000)
			ck_assert_int_eq(varve_audit_has(a, "drop", "t-17"), 1);
		put(block, sizeof(block));
	}
	ck_assert_int_eq(varve_audit_has(a, "drop", "t-17"), 0);
	ck_assert_int_eq(varve_audit_append(a, &drop_line), 0);
	ck_assert_int_eq(varve_audit_has(a, "drop", "t-17"), 1);
	varve_audit_close(a);
}
END_TEST

/* A crash can leave any part of the last line. */
START_TEST(test_torn)
{
	struct varve_audit *a = open_audit();
	cleanup_free char *one = NULL;
	size_t len;

	ck_assert_int_eq(varve_audit_append(a, &drop_line), 0);
	varve_audit_close(a);
	one = content();
	len = strlen(one);
	for (size_t cut = 0; cut < len; cut++) {
		cleanup_free char *after = NULL;

		put(one, cut);
		varve_audit_close(open_audit());
		after = content();
		ck_assert_str_eq(after, one);
	}
}
END_TEST

/* A torn tail longer than a read of it, and a file that is nothing but one. */
START_TEST(test_torn_long)
{
	char block[10000] = {0};
	cleanup_free char *text = NULL;

	put(block, sizeof(block));
	varve_audit_close(open_audit());
	text = content();
	ck_assert_str_eq(text, "");
	put("{}\n", 3);
	put(block, sizeof(block));
	varve_audit_close(open_audit());
	free(text);
	text = content();
	ck_assert_str_eq(text, "{}\n");
}
END_TEST

/* No space in the middle of a line: nothing of it stays. */
START_TEST(test_full)
{
	struct varve_audit *a = open_audit();
	struct rlimit limit = {.rlim_cur = 300, .rlim_max = RLIM_INFINITY};
	cleanup_free char *text = NULL;
	int r;

	(void)signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(varve_audit_append(a, &drop_line), 0);
	/* No assertion while the limit holds: it would meet Check's own files. */
	(void)setrlimit(RLIMIT_FSIZE, &limit);
	r = varve_audit_append(a, &drop_line);
	limit.rlim_cur = RLIM_INFINITY;
	(void)setrlimit(RLIMIT_FSIZE, &limit);
	ck_assert_int_eq(r, -EFBIG);
	text = content();
	ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
	ck_assert_int_eq(varve_audit_append(a, &drop_line), 0);
	varve_audit_close(a);
}
END_TEST

static void *append_many(void *audit)
{
	int *failed = NULL;
	static int some;

	for (int i = 0; i < 50; i++)
		if (varve_audit_append(audit, &drop_line) < 0)
			failed = &some;
	return failed;
}

START_TEST(test_threads)
{
	struct varve_audit *a = open_audit();
	cleanup_free char *text = NULL;
	pthread_t t[4];
	int lines = 0;

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, append_many, a), 0);
	for (int i = 0; i < 4; i++) {
		void *failed;

		(void)pthread_join(t[i], &failed);
		ck_assert_ptr_null(failed);
	}
	varve_audit_close(a);
	text = content();
	for (char *line = text, *end; *line; line = end + 1, lines++) {
		end = strchr(line, '\n');
		ck_assert_ptr_nonnull(end);
		ck_assert_int_eq(memcmp(line, "{\"time\"", 7), 0);
		ck_assert_int_eq(end[-1], '}');
	}
	ck_assert_int_eq(lines, 200);
}
END_TEST

T_MAIN("audit", 60)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_line);
	tcase_add_test(tc, test_has);
	tcase_add_test(tc, test_has_bounded);
	tcase_add_test(tc, test_torn);
	tcase_add_test(tc, test_torn_long);
	tcase_add_test(tc, test_full);
	tcase_add_test(tc, test_threads);
}
