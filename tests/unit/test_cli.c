/* What `varve` is made of, without a mount: instants, stores, plain parts on disk, tables. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/unit.h"
#include "base/clock.h"
#include "base/sys.h"
#include "cli/cli.h"
#include "cli/disk.h"
#include "cli/table.h"
#include "cli/target.h"

#define NOW (INT64_C(1796090584) * VARVE_NS_PER_S) /* 2026-12-01T02:03:04Z */

static const struct {
	const char *text;
	int64_t seconds; /* -1: refused */
} instants[] = {
	{"1970-01-01", 0},
	{"2026-12-01", 1796083200},
	{"2026-12-01T02:03", 1796090580},
	{"2026-12-01T02:03:04", 1796090584},
	{"2026-12-01T02:03:04Z", 1796090584},
	{"2024-02-29", 1709164800},
	{"24h", 1796090584 - 86400},
	{"0", 1796090584},
	{"2026-02-29", -1},
	{"2026-13-01", -1},
	{"2026-00-10", -1},
	{"2026-12-1", -1},
	{"2026-12-01T24:00", -1},
	{"2026-12-01T02:60", -1},
	{"2026-12-01T02:03:04+01", -1},
	{"2026-12-01 02:03", -1},
	{"2026-12-01Z", -1},
	{"1969-12-31", -1},
	{"yesterday", -1},
	{"-1h", -1},
	{"200y", -1},
	{"", -1},
};

START_TEST(test_instant)
{
	struct varve_err err = {""};
	int64_t ns = -1;
	int r = varve_cli_parse_time(instants[_i].text, NOW, &ns, &err);

	if (instants[_i].seconds < 0) {
		ck_assert_int_eq(r, -EINVAL);
		ck_assert_ptr_nonnull(strstr(err.msg, "give a date"));
	} else {
		ck_assert_int_eq(r, 0);
		ck_assert_int_eq(ns, instants[_i].seconds * VARVE_NS_PER_S);
	}
}
END_TEST

/* -- a store made by hand -- */

static char dir[64];
static int dir_fd;

static void put(const char *path, const char *text)
{
	cleanup_free char *folder = strdup(path);
	char *slash = strrchr(folder, '/');
	int fd;

	if (slash) {
		*slash = '\0';
		ck_assert_int_eq(varve_mkdir_p(dir_fd, folder, 0755), 0);
	}
	fd = openat(dir_fd, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	(void)close(fd);
}

static void setup(void)
{
	strcpy(dir, "/tmp/varve-cli-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	put("varve.conf", "");
	ck_assert_int_eq(mkdirat(dir_fd, "meta", 0700), 0);
	ck_assert_int_eq(mkdirat(dir_fd, "sealed", 0700), 0);
	put("tree/nginx/a.log", "");
	put("tree/nginx/idle.log", "");
	/* No clock is as late as the newest of these: it is the open one. */
	put("open/2200-12-30/default/0/nginx/a.log", "now\n");
	put("open/2020-01-02/default/0/nginx/a.log", "one\n");
	put("open/2020-01-02/cold/h3/nginx/b.log", "two\n");
	put("open/2020-01-02/cold/h3/nginx-x", "three\n");
	put("open/2020-01-02/cold/h3/nginx/c/d", "four\n");
	put("open/not-a-bucket/default/0/x", "never\n");
}

static int remove_all(const char *path)
{
	int fd = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = varve_remove_tree(fd, path + strlen("/tmp/"), false);

	(void)close(fd);
	return r;
}

static void teardown(void)
{
	(void)close(dir_fd);
	ck_assert_int_eq(remove_all(dir), 0);
}

static struct varve_disk *open_disk(void)
{
	struct varve_disk *d = NULL;
	struct varve_err err = {""};

	ck_assert_msg(varve_disk_open(dir, &d, &err) == 0, "%s", err.msg);
	return d;
}

START_TEST(test_buckets)
{
	struct varve_disk *d = open_disk();
	const struct varve_disk_bucket *b;

	ck_assert_uint_eq(varve_disk_buckets(d, &b), 2);
	ck_assert_str_eq(b[0].name, "2020-01-02");
	ck_assert_int_eq(b[0].state, VARVE_BUCKET_CLOSING);
	ck_assert_str_eq(b[1].name, "2200-12-30");
	ck_assert_int_eq(b[1].state, VARVE_BUCKET_OPEN);
	varve_disk_close(d);
}
END_TEST

static const struct {
	const char *place;
	bool recursive;
	int r;
	const char *paths; /* with a blank behind each */
} lists[] = {
	{"2020-01-02", false, 0, "nginx nginx-x "},
	{"2020-01-02/", true, 0, "nginx nginx/a.log nginx/b.log nginx/c nginx/c/d nginx-x "},
	{"2020-01-02/nginx", false, 0, "nginx/a.log nginx/b.log nginx/c "},
	{"2020-01-02//nginx/", false, 0, "nginx/a.log nginx/b.log nginx/c "},
	{"2020-01-02/nginx/b.log", true, 0, "nginx/b.log "},
	{"2020-01-02/nginx/idle.log", false, -ENOENT, ""},
	{"2020-01-02/nginx/b.log/x", false, -ENOENT, ""},
	{"2020-01-02/../2020-01-02", false, -EINVAL, ""},
	{"current", true, 0, "nginx nginx/a.log nginx/idle.log "},
	{"2200-12-30", true, 0, "nginx nginx/a.log nginx/idle.log "},
	{"2020-01-03", false, -ENOENT, ""},
	{"not-a-bucket", false, -ENOENT, ""},
	{"", false, -ENOENT, ""},
};

START_TEST(test_list)
{
	struct varve_disk *d = open_disk();
	struct varve_disk_list list;
	struct varve_err err = {""};
	char got[512] = "";
	int r = varve_disk_list(d, lists[_i].place, lists[_i].recursive, &list, &err);

	for (size_t i = 0; i < list.n; i++) {
		strcat(got, list.entries[i].path);
		strcat(got, " ");
	}
	ck_assert_int_eq(r, lists[_i].r);
	ck_assert_str_eq(got, lists[_i].paths);
	if (r < 0)
		ck_assert_msg(err.msg[0] != '\0', "nothing was said");
	varve_disk_list_done(&list);
	varve_disk_close(d);
}
END_TEST

static const struct {
	const char *place;
	int r;
	const char *text;
} cats[] = {
	{"2020-01-02/nginx/a.log", 0, "one\n"}, {"2020-01-02/nginx/b.log", 0, "two\n"},
	{"current/nginx/a.log", 0, "now\n"},    {"current/nginx/idle.log", 0, ""},
	{"2020-01-02/nginx", -EISDIR, ""},      {"2020-01-02", -EISDIR, ""},
	{"2020-01-02/nothing", -ENOENT, ""},    {"nothing/x", -ENOENT, ""},
};

START_TEST(test_cat)
{
	struct varve_disk *d = open_disk();
	struct varve_err err = {""};
	char got[64] = "";
	int fds[2];

	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_eq(varve_disk_cat(d, cats[_i].place, fds[1], &err), cats[_i].r);
	(void)close(fds[1]);
	ck_assert_int_eq(read(fds[0], got, sizeof(got) - 1), (ssize_t)strlen(cats[_i].text));
	(void)close(fds[0]);
	ck_assert_str_eq(got, cats[_i].text);
	if (cats[_i].r < 0)
		ck_assert_ptr_nonnull(strstr(err.msg, "'"));
	varve_disk_close(d);
}
END_TEST

/* A link that somebody put there is not followed, wherever it leads. */
START_TEST(test_no_escape)
{
	struct varve_disk *d = open_disk();
	struct varve_disk_list list;
	struct varve_err err = {""};

	ck_assert_int_eq(symlinkat("/etc/passwd", dir_fd, "open/2020-01-02/default/0/evil"), 0);
	ck_assert_int_eq(symlinkat("/etc", dir_fd, "open/2020-01-02/default/0/evil.d"), 0);
	ck_assert_int_eq(varve_disk_cat(d, "2020-01-02/evil", STDOUT_FILENO, &err), -ENOENT);
	ck_assert_int_eq(varve_disk_cat(d, "2020-01-02/evil.d/passwd", STDOUT_FILENO, &err),
			 -ENOENT);
	ck_assert_int_eq(varve_disk_list(d, "2020-01-02/evil.d", true, &list, &err), -ENOENT);
	varve_disk_list_done(&list);
	varve_disk_close(d);
}
END_TEST

START_TEST(test_resolve)
{
	cleanup_free char *store = NULL, *again = NULL, *other = NULL, *roundabout = NULL;
	struct varve_err err = {""};

	ck_assert_int_eq(varve_cli_resolve(dir, &store, &err), 0);
	ck_assert_str_eq(store, dir);
	ck_assert_int_ge(asprintf(&roundabout, "%s/meta/..//./", dir), 0);
	ck_assert_int_eq(varve_cli_resolve(roundabout, &again, &err), 0);
	ck_assert_str_eq(again, dir);
	ck_assert_int_eq(varve_cli_resolve("/tmp", &other, &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.msg, "neither a store nor a mountpoint"));
	ck_assert_int_eq(varve_cli_resolve("/nonexistent/x", &other, &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.msg, "/nonexistent/x"));
}
END_TEST

START_TEST(test_table)
{
	struct varve_table t = {
		.n_columns = 3, .titles = {"NAME", "N", "NOTE"}, .right = {[1] = true}};
	char got[256] = "";
	int fds[2], out = dup(STDOUT_FILENO);

	ck_assert_int_eq(pipe(fds), 0);
	(void)fflush(stdout);
	(void)dup2(fds[1], STDOUT_FILENO);
	for (int i = 0; i < 2; i++) {
		varve_table_add(&t, "%s", i ? "longer" : "a");
		varve_table_add(&t, "%d", i ? 7 : 12345);
		varve_table_add(&t, "%s", i ? "" : "x");
	}
	varve_table_print(&t);
	(void)fflush(stdout);
	(void)dup2(out, STDOUT_FILENO);
	ck_assert_int_gt(read(fds[0], got, sizeof(got) - 1), 0);
	ck_assert_str_eq(got, "NAME        N  NOTE\n"
			      "a       12345  x\n"
			      "longer      7\n");
	(void)close(fds[0]);
	(void)close(fds[1]);
	(void)close(out);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cli");
	TCase *pure = tcase_create("pure"), *disk = tcase_create("disk");

	tcase_add_loop_test(pure, test_instant, 0, (int)(sizeof(instants) / sizeof(instants[0])));
	tcase_add_test(pure, test_table);
	tcase_add_checked_fixture(disk, setup, teardown);
	tcase_add_test(disk, test_buckets);
	tcase_add_loop_test(disk, test_list, 0, (int)(sizeof(lists) / sizeof(lists[0])));
	tcase_add_loop_test(disk, test_cat, 0, (int)(sizeof(cats) / sizeof(cats[0])));
	tcase_add_test(disk, test_no_escape);
	tcase_add_test(disk, test_resolve);
	suite_add_tcase(s, pure);
	suite_add_tcase(s, disk);
	return t_main(s);
}
