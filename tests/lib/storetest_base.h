/* A test's store: its clock, its folder, the files in there, opening it. See storetest.h. */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "unit.h"
#include "base/bytes.h"
#include "format/segment.h"
#include "store/core.h"
#include "store/entry.h"
#include "store/file.h"
#include "store/part.h"

#define T_PATH 4600
#define T_SECOND VARVE_NS_PER_S
#define T_MINUTE (60 * T_SECOND)
#define T_HOUR (60 * T_MINUTE)
#define T_DAY (24 * T_HOUR)

struct tclock {
	atomic_llong wall, boot;
	atomic_bool sync;
	struct varve_clock clock;
};

struct tstore {
	char dir[64];  /* holds `path`, copies and the log */
	char path[80]; /* STORE */
	struct tclock clock;
	struct varve_store *s; /* NULL: not open */
	const char *names[16], *values[16];
	unsigned n_options;
	pthread_mutex_t lock; /* gone */
	char gone[1024];      /* entry_gone: "NAME NAME " */
	unsigned changed;     /* inode_changed: how often */
};

T_FN const struct varve_caller t_root = {.uid = 0, .gid = 0, .pid = 4242, .umask = 022};

/* -- the clock -- */

T_FN int64_t t_wall(void *ctx)
{
	return atomic_load(&((struct tclock *)ctx)->wall);
}

T_FN int64_t t_boot(void *ctx)
{
	return atomic_load(&((struct tclock *)ctx)->boot);
}

T_FN bool t_sync(void *ctx)
{
	return atomic_load(&((struct tclock *)ctx)->sync);
}

/* The start of the bucket of this name. */
T_FN int64_t t_start_of(const char *bucket)
{
	int64_t start, end;

	ck_assert_int_eq(varve_name_parse(bucket, &start, &end), 0);
	return start;
}

/* Time passes, for both clocks. */
T_FN void t_pass(struct tstore *t, int64_t ns)
{
	(void)atomic_fetch_add(&t->clock.wall, ns);
	(void)atomic_fetch_add(&t->clock.boot, ns);
}

/* The wall clock is set; no time passes. */
T_FN void t_set_wall(struct tstore *t, int64_t ns)
{
	atomic_store(&t->clock.wall, ns);
}

T_FN int64_t t_now(struct tstore *t)
{
	return atomic_load(&t->clock.wall);
}

/* -- files of the folder itself -- */

__attribute__((format(printf, 2, 3))) T_FN const char *t_at(struct tstore *t, const char *fmt, ...)
{
	/* Several may be in use in one statement. */
	static char ring[4][T_PATH];
	static unsigned next;
	char *buf = ring[next++ % 4];
	int n = snprintf(buf, T_PATH, "%s/", t->path);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(buf + n, T_PATH - (size_t)n, fmt, ap);
	va_end(ap);
	return buf;
}

T_FN bool t_exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

T_FN void t_run(const char *const argv[])
{
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(status == 0, "%s %s: status %d", argv[0], argv[1], status);
}

T_FN void t_copy(const char *from, const char *to)
{
	t_run((const char *const[]){"cp", "-dR", "--sparse=always",
				    "--preserve=mode,ownership,timestamps,xattr", from, to, NULL});
}

T_FN void t_remove(const char *path)
{
	t_run((const char *const[]){"rm", "-rf", path, NULL});
}

T_FN void t_rename(const char *from, const char *to)
{
	ck_assert_msg(rename(from, to) == 0, "rename %s %s: %s", from, to, strerror(errno));
}

T_FN void t_mkdir(const char *path)
{
	ck_assert_msg(mkdir(path, 0700) == 0, "mkdir %s: %s", path, strerror(errno));
}

T_FN void t_file(const char *path, const void *data, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
	ck_assert_int_eq(varve_pwrite_full(fd, data, len, 0), 0);
	ck_assert_int_eq(close(fd), 0);
}

/* A small file's text; the caller frees. */
T_FN char *t_text(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *text;

	ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
	ck_assert_int_eq(fstat(fd, &st), 0);
	text = malloc((size_t)st.st_size + 1);
	ck_assert_ptr_nonnull(text);
	ck_assert_int_eq(varve_pread_full(fd, text, (size_t)st.st_size, 0), 0);
	text[st.st_size] = '\0';
	(void)close(fd);
	return text;
}

/* Overwrites n bytes at off (negative: from the end) with what they were not. */
T_FN void t_damage(const char *path, off_t off, size_t n)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	unsigned char b;

	ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
	if (off < 0)
		off += lseek(fd, 0, SEEK_END);
	for (size_t i = 0; i < n; i++) {
		ck_assert_int_eq(varve_pread_full(fd, &b, 1, (uint64_t)off + i), 0);
		b ^= 0x5a;
		ck_assert_int_eq(varve_pwrite_full(fd, &b, 1, (uint64_t)off + i), 0);
	}
	ck_assert_int_eq(close(fd), 0);
}

T_FN int t_compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Joins names, sorted, with blanks; frees them. */
T_FN void t_join(char **names, size_t n, char *buf, size_t size)
{
	size_t at = 0;

	if (n)
		qsort(names, n, sizeof(*names), t_compare_names);
	buf[0] = '\0';
	for (size_t i = 0; i < n; i++) {
		at += (size_t)snprintf(buf + at, size - at, "%s%s", i ? " " : "", names[i]);
		ck_assert_uint_lt(at, size);
		free(names[i]);
	}
}

/* The names in a folder on disk are these, sorted, with blanks between. */
T_FN void t_expect_dir(const char *path, const char *want)
{
	char *names[256], got[4096];
	size_t n = 0;
	DIR *dir = opendir(path);
	struct dirent *e;

	ck_assert_msg(dir != NULL, "%s: %s", path, strerror(errno));
	while ((e = readdir(dir)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
			ck_assert_uint_lt(n, 256);
			names[n++] = strdup(e->d_name);
		}
	(void)closedir(dir);
	t_join(names, n, got, sizeof(got));
	ck_assert_msg(!strcmp(got, want), "%s holds '%s', not '%s'", path, got, want);
}

/* How many lines of the audit trail tell of this event of this bucket. */
T_FN unsigned t_audited(struct tstore *t, const char *event, const char *bucket)
{
	char *text = t_text(t_at(t, "audit.jsonl")), *save = NULL, want_event[64], want_bucket[64];
	unsigned n = 0;

	(void)snprintf(want_event, sizeof(want_event), "\"event\":\"%s\"", event);
	(void)snprintf(want_bucket, sizeof(want_bucket), "\"bucket\":\"%s\"", bucket);
	for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save))
		n += strstr(l, want_event) && strstr(l, want_bucket);
	free(text);
	return n;
}

/* -- opening and closing -- */

T_FN void t_gone(void *ctx, uint64_t parent, const char *name)
{
	struct tstore *t = ctx;

	/* A boundary that comes early tells of names below current/ as well. */
	if (parent != VARVE_ID_ROOT)
		return;
	guard(&t->lock);
	ck_assert_uint_lt(strlen(t->gone) + strlen(name) + 2, sizeof(t->gone));
	(void)strcat(strcat(t->gone, name), " ");
}

T_FN void t_changed(void *ctx, uint64_t id)
{
	struct tstore *t = ctx;

	(void)id;
	guard(&t->lock);
	t->changed++;
}

/* Sets an option for the next open; value NULL: one that stands alone. */
T_FN void t_option(struct tstore *t, const char *name, const char *value)
{
	unsigned i = 0;

	while (i < t->n_options && strcmp(t->names[i], name) != 0)
		i++;
	ck_assert_uint_lt(i, 16);
	t->names[i] = name;
	t->values[i] = value;
	if (i == t->n_options)
		t->n_options++;
}

/* A store that is not made yet; its clock stands 5 s into the bucket of this name. */
T_FN struct tstore *t_new(const char *bucket)
{
	struct tstore *t = calloc(1, sizeof(*t));

	ck_assert_ptr_nonnull(t);
	(void)strcpy(t->dir, "/var/tmp/varve-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(t->dir));
	(void)snprintf(t->path, sizeof(t->path), "%s/store", t->dir);
	(void)pthread_mutex_init(&t->lock, NULL);
	t->clock.clock = (struct varve_clock){.realtime_ns = t_wall,
					      .boottime_ns = t_boot,
					      .synchronised = t_sync,
					      .ctx = &t->clock};
	t_set_wall(t, t_start_of(bucket) + 5 * T_SECOND);
	atomic_store(&t->clock.boot, 1000 * T_SECOND);
	t_option(t, "bucket", "1h");
	t_option(t, "min-free", "0");
	t_option(t, "seal-level", "1");
	t_option(t, "seal-threads", "1");
	t_option(t, "cache", "16M");
	return t;
}

/* A filesystem of the test's own at path, as tmpfs's options have it: nobody else sees it, and it
 * goes with the process. */
T_FN void t_mount(const char *path, const char *options)
{
	ck_assert_msg(unshare(CLONE_NEWNS) == 0, "unshare: %s", strerror(errno));
	ck_assert_int_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	ck_assert_msg(mount("none", path, "tmpfs", 0, options) == 0, "mount: %s", strerror(errno));
}

T_FN int t_try_open(struct tstore *t, struct varve_err *err)
{
	struct varve_store_params p = {
		.path = t->path,
		.option_names = t->names,
		.option_values = t->values,
		.n_options = t->n_options,
		.clock = &t->clock.clock,
		.events = {.entry_gone = t_gone, .inode_changed = t_changed, .ctx = t}};

	ck_assert_ptr_null(t->s);
	err->msg[0] = '\0';
	return varve_store_open(&p, &t->s, err);
}

T_FN void t_open(struct tstore *t)
{
	struct varve_err err;
	int r = t_try_open(t, &err);

	ck_assert_msg(r == 0, "open: %d %s", r, err.msg);
}

/* Opens, and gives what was logged meanwhile; the caller frees. */
T_FN char *t_open_logged(struct tstore *t)
{
	char log[96], *text;
	int saved = dup(STDERR_FILENO), fd;

	(void)snprintf(log, sizeof(log), "%s/log", t->dir);
	fd = open(log, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	(void)fflush(stderr);
	ck_assert_int_ge(dup2(fd, STDERR_FILENO), 0);
	t_open(t);
	(void)fflush(stderr);
	ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
	(void)close(saved);
	(void)close(fd);
	text = t_text(log);
	(void)fputs(text, stderr);
	return text;
}

T_FN void t_start(struct tstore *t)
{
	struct varve_err err = {.msg = ""};
	int r = varve_store_start(t->s, &err);

	ck_assert_msg(r == 0, "start: %d %s", r, err.msg);
}
