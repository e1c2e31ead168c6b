/*
 * A store of a test's own, driven by the facade without FUSE: a temporary folder, a clock that the
 * test moves, and paths instead of ids. No thread of the store runs unless the test starts them: the
 * steps of the keeper and of the sealer are taken by t_boundary, t_seal and so on, so that a test
 * knows at which instant the folder is looked at, copied or damaged.
 *
 * Every t_close() ends with t_check(): memory, disk and the counts agree.
 */
#pragma once

#include <check.h>

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

/* tests/lib is for several binaries, each of which uses a part of it. */
#define T_FN __attribute__((unused)) static

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

	ck_assert_uint_eq(parent, VARVE_ID_ROOT);
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
	t->clock.clock = (struct varve_clock){
		.realtime_ns = t_wall, .boottime_ns = t_boot, .synchronised = t_sync,
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

/* A filesystem of the test's own at path, as tmpfs's options have it: nobody else sees it, and it goes
 * with the process. */
T_FN void t_mount(const char *path, const char *options)
{
	ck_assert_msg(unshare(CLONE_NEWNS) == 0, "unshare: %s", strerror(errno));
	ck_assert_int_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	ck_assert_msg(mount("none", path, "tmpfs", 0, options) == 0, "mount: %s", strerror(errno));
}

T_FN int t_try_open(struct tstore *t, struct varve_err *err)
{
	struct varve_store_params p = {
		.path = t->path, .option_names = t->names, .option_values = t->values,
		.n_options = t->n_options, .clock = &t->clock.clock,
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

/* -- invariants -- */

struct tcount {
	struct varve_store *s;
	uint64_t nodes;	    /* that have an id */
	uint64_t parts, dirs; /* files and directories on disk, below one base */
	uint64_t allocated;
};

T_FN void t_disk_one(struct tcount *c, int fd)
{
	DIR *dir = fdopendir(fd);
	struct dirent *e;

	ck_assert_ptr_nonnull(dir);
	while ((e = readdir(dir))) {
		struct stat st;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		ck_assert_int_eq(fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
		if (S_ISDIR(st.st_mode)) {
			int sub = openat(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

			ck_assert_int_ge(sub, 0);
			c->dirs++;
			t_disk_one(c, sub);
		} else {
			c->parts++;
		}
	}
	(void)closedir(dir);
}

/* Counts what is on disk below base/path. */
T_FN struct tcount t_disk(int base, const char *path)
{
	struct tcount c = {0};
	int fd = openat(base, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		t_disk_one(&c, fd);
	return c;
}

/* One node of a tree: it is on disk where it says, with its number. */
T_FN void t_check_node(void *ctx, struct varve_node *n)
{
	struct tcount *c = ctx;
	cleanup_free char *path = NULL;
	struct stat st;
	uint64_t ino = 0;
	int base, fd;

	ck_assert(n->linked);
	ck_assert_ptr_nonnull(n->parent);
	if (n->kind != VARVE_KIND_STREAM) {
		c->nodes++;
		ck_assert_ptr_eq(varve_node_by_id(c->s, n->ino), n);
	}
	switch (n->kind) {
	case VARVE_KIND_STREAM:
		path = varve_node_path(n, NULL);
		ck_assert_int_eq(fstatat(c->s->tree_fd, path, &st, AT_SYMLINK_NOFOLLOW), 0);
		ck_assert(S_ISREG(st.st_mode));
		ck_assert_uint_eq(st.st_mode & 0777, n->attr.st_mode & 0777);
		c->parts++;
		return;
	case VARVE_KIND_SDIR:
		path = varve_node_path(n, NULL);
		fd = varve_openat(c->s->tree_fd, path, O_RDONLY | O_DIRECTORY, 0);
		ck_assert_msg(fd >= 0, "tree/%s: %d", path, fd);
		ck_assert_int_eq(varve_ino_read_xattr(fd, &ino), 0);
		ck_assert_msg(ino == n->ino, "tree/%s: %llu, not %llu", path, (unsigned long long)ino,
			      (unsigned long long)n->ino);
		ck_assert_int_eq(fstat(fd, &st), 0);
		ck_assert_msg((st.st_mode & 01777) == (n->attr.st_mode & 01777), "tree/%s: %o, not %o",
			      path, st.st_mode, n->attr.st_mode);
		(void)close(fd);
		c->dirs++;
		break;
	case VARVE_KIND_FILE:
		if (!n->has_part)
			return;
		path = varve_node_where(c->s, n, NULL, n->place, &base);
		fd = varve_part_open(base, path);
		ck_assert_msg(fd >= 0, "part %s: %d", path, fd);
		ck_assert_int_eq(varve_ino_read_xattr(fd, &ino), 0);
		ck_assert_msg(ino == n->ino, "%s: %llu, not %llu", path, (unsigned long long)ino,
			      (unsigned long long)n->ino);
		ck_assert_int_eq(fstat(fd, &st), 0);
		ck_assert_msg((uint64_t)st.st_size == n->size, "%s: size %lld, not %llu", path,
			      (long long)st.st_size, (unsigned long long)n->size);
		(void)close(fd);
		c->parts++;
		c->allocated += varve_blocks_of(n->size);
		return;
	case VARVE_KIND_DDIR:
	case VARVE_KIND_XDIR:
		if (n->kind == VARVE_KIND_XDIR)
			c->dirs++;
		for (unsigned p = 0; p < 32; p++)
			if (n->on_disk & (1u << p)) {
				cleanup_free char *where = varve_node_where(c->s, n, NULL, p, &base);

				ck_assert_int_eq(fstatat(base, where, &st, AT_SYMLINK_NOFOLLOW), 0);
				ck_assert(S_ISDIR(st.st_mode));
				c->dirs++;
			}
		break;
	default:
		ck_abort_msg("a node of kind %d in a tree", n->kind);
	}
	varve_node_each(n, t_check_node, ctx);
}

/* Directories of current/ that were removed, while one of an older bucket still leads to them. */
T_FN uint64_t t_count_removed(struct varve_store *s)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < s->n_id_chains; i++)
		for (struct varve_node *n = s->id_chains[i]; n; n = n->id_next) {
			bool held = false;

			if (n->kind != VARVE_KIND_SDIR || n->linked)
				continue;
			for (uint32_t k = 0; k < s->n_id_chains; k++)
				for (struct varve_node *d = s->id_chains[k]; d; d = d->id_next)
					held = held || d->sdir == n;
			count += held;
		}
	return count;
}

T_FN void t_count_node(void *ctx, struct varve_node *n)
{
	++*(uint64_t *)ctx;
	varve_node_each(n, t_count_node, ctx);
}

T_FN struct tcount t_check_tree(struct varve_store *s, struct varve_node *root)
{
	struct tcount c = {.s = s};

	varve_node_each(root, t_check_node, &c);
	return c;
}

/* Memory, disk and the counts agree, and with nothing looked up or open no node is left over. No
 * thread of the store may run. */
T_FN void t_check(struct tstore *t)
{
	struct varve_store *s = t->s;
	struct tcount c = t_check_tree(s, s->current_dir), d = t_disk(s->tree_fd, ".");
	uint64_t nodes = 4 + c.nodes;
	bool busy = false;

	guard(&s->ns);
	ck_assert_uint_eq(c.parts, d.parts);
	ck_assert_uint_eq(c.dirs, d.dirs);
	c = t_check_tree(s, s->staging_dir);
	d = t_disk(s->staging_fd, ".");
	nodes += c.nodes;
	ck_assert_uint_eq(c.parts, d.parts);
	ck_assert_uint_eq(c.dirs, d.dirs);
	ck_assert_uint_eq(c.allocated, s->staging_allocated);
	for (uint32_t i = 0; i < s->n_buckets; i++) {
		struct varve_bucket *b = s->buckets[i];

		ck_assert(i == 0 || s->buckets[i - 1]->start_ns <= b->start_ns);
		ck_assert((b == s->current) == (b->state == VARVE_BUCKET_OPEN));
		if (!b->root) {
			ck_assert_int_eq(b->state, VARVE_BUCKET_SEALED);
			continue;
		}
		c = t_check_tree(s, b->root);
		d = t_disk(s->open_fd, b->name);
		nodes += 1 + c.nodes;
		ck_assert_msg(c.parts == d.parts, "open/%s: %llu parts on disk, %llu known", b->name,
			      (unsigned long long)d.parts, (unsigned long long)c.parts);
		ck_assert_msg(c.allocated == b->allocated, "open/%s: %llu allocated, %llu counted",
			      b->name, (unsigned long long)b->allocated,
			      (unsigned long long)c.allocated);
		for (struct varve_node *f = b->written; f; f = f->next_written)
			nodes += !f->linked;
	}
	nodes += t_count_removed(s);
	/* What can come back keeps its tree. */
	for (uint32_t i = 0; i < s->n_dropped; i++)
		if (s->dropped[i]->root) {
			nodes++;
			varve_node_each(s->dropped[i]->root, t_count_node, &nodes);
		}
	for (uint32_t i = 0; i < s->n_handles; i++)
		busy = busy || s->handles[i];
	for (uint32_t i = 0; i < s->n_id_chains; i++)
		for (struct varve_node *n = s->id_chains[i]; n; n = n->id_next)
			busy = busy || n->nlookup;
	if (!busy && s->n_ids != nodes) {
		for (uint32_t i = 0; i < s->n_id_chains; i++)
			for (struct varve_node *n = s->id_chains[i]; n; n = n->id_next)
				(void)fprintf(stderr, "kind %d, '%s' of '%s', %u references%s\n",
					      n->kind, n->name ? n->name : "",
					      n->bucket ? n->bucket->name : "", n->refs,
					      n->linked ? "" : ", not linked");
		ck_abort_msg("%u nodes, %llu of them linked", s->n_ids, (unsigned long long)nodes);
	}
}

/* -- ends -- */

T_FN void t_close(struct tstore *t)
{
	if (!t->s->threads_run)
		t_check(t);
	varve_store_close(t->s);
	t->s = NULL;
}

/* As kill -9 at this instant would leave the folder: what follows in this process never was. */
T_FN void t_crash(struct tstore *t)
{
	char copy[96];

	(void)snprintf(copy, sizeof(copy), "%s/copy", t->dir);
	t_copy(t->path, copy);
	varve_store_close(t->s);
	t->s = NULL;
	t_remove(t->path);
	t_rename(copy, t->path);
}

T_FN void t_free(struct tstore *t)
{
	if (t->s)
		t_close(t);
	t_remove(t->dir);
	(void)pthread_mutex_destroy(&t->lock);
	free(t);
}

/* -- names -- */

T_FN void t_forget(struct tstore *t, const struct varve_entry *e)
{
	varve_store_forget(t->s, e->id, 1);
}

/* Looks a path up as the kernel does; *ret is referenced (also the root). */
T_FN int t_walk(struct tstore *t, const char *path, struct varve_entry *ret)
{
	char copy[T_PATH], *save = NULL;
	struct varve_entry at = {.id = VARVE_ID_ROOT}, next;
	bool first = true;
	int r = 0;

	ck_assert_uint_lt(strlen(path), sizeof(copy));
	(void)strcpy(copy, path);
	for (char *c = strtok_r(copy, "/", &save); r == 0 && c; c = strtok_r(NULL, "/", &save)) {
		r = varve_store_lookup(t->s, at.id, c, &next);
		if (!first)
			t_forget(t, &at);
		first = false;
		at = next;
	}
	if (r == 0)
		*ret = at;
	return r;
}

/* The parent of a path, referenced, and the last component. */
T_FN const char *t_parent(struct tstore *t, const char *path, struct varve_entry *ret)
{
	const char *slash = strrchr(path, '/');
	char dir[T_PATH];
	int r;

	(void)snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) : 0, path);
	r = t_walk(t, dir, ret);
	ck_assert_msg(r == 0, "%s: %d", dir, r);
	return slash ? slash + 1 : path;
}

T_FN void t_forget_dir(struct tstore *t, const struct varve_entry *e)
{
	if (e->id != VARVE_ID_ROOT)
		t_forget(t, e);
}

T_FN int t_stat(struct tstore *t, const char *path, struct stat *ret)
{
	struct varve_entry e;
	int64_t valid;
	int r = t_walk(t, path, &e);

	if (r < 0)
		return r;
	r = varve_store_getattr(t->s, e.id, 0, ret, &valid);
	ck_assert_int_eq(r, 0);
	if (e.id != VARVE_ID_ROOT)
		ck_assert_uint_eq(ret->st_ino, e.attr.st_ino);
	t_forget_dir(t, &e);
	return r;
}

T_FN struct stat t_attr(struct tstore *t, const char *path)
{
	struct stat st;
	int r = t_stat(t, path, &st);

	ck_assert_msg(r == 0, "%s: %d", path, r);
	return st;
}

T_FN uint64_t t_ino(struct tstore *t, const char *path)
{
	return t_attr(t, path).st_ino;
}

T_FN int t_try_mkdir(struct tstore *t, const char *path, mode_t mode)
{
	struct varve_entry dir, e;
	const char *name = t_parent(t, path, &dir);
	int r = varve_store_mkdir(t->s, &t_root, dir.id, name, mode, &e);

	if (r == 0)
		t_forget(t, &e);
	t_forget_dir(t, &dir);
	return r;
}

T_FN int t_unlink(struct tstore *t, const char *path)
{
	struct varve_entry dir;
	const char *name = t_parent(t, path, &dir);
	int r = varve_store_unlink(t->s, &t_root, dir.id, name);

	t_forget_dir(t, &dir);
	return r;
}

T_FN int t_rmdir(struct tstore *t, const char *path)
{
	struct varve_entry dir;
	const char *name = t_parent(t, path, &dir);
	int r = varve_store_rmdir(t->s, &t_root, dir.id, name);

	t_forget_dir(t, &dir);
	return r;
}

T_FN int t_symlink(struct tstore *t, const char *target, const char *path)
{
	struct varve_entry dir, e;
	const char *name = t_parent(t, path, &dir);
	int r = varve_store_symlink(t->s, &t_root, target, dir.id, name, &e);

	if (r == 0)
		t_forget(t, &e);
	t_forget_dir(t, &dir);
	return r;
}

T_FN int t_move(struct tstore *t, const char *from, const char *to, unsigned flags)
{
	struct varve_entry a, b;
	const char *name = t_parent(t, from, &a), *new_name = t_parent(t, to, &b);
	int r = varve_store_rename(t->s, a.id, name, b.id, new_name, flags);

	t_forget_dir(t, &a);
	t_forget_dir(t, &b);
	return r;
}

T_FN int t_setattr(struct tstore *t, const char *path, const struct stat *attr, unsigned set)
{
	struct varve_entry e;
	struct stat st;
	int64_t valid;
	int r = t_walk(t, path, &e);

	if (r < 0)
		return r;
	r = varve_store_setattr(t->s, e.id, 0, attr, set, &st, &valid);
	t_forget(t, &e);
	return r;
}

T_FN int t_chmod(struct tstore *t, const char *path, mode_t mode)
{
	return t_setattr(t, path, &(struct stat){.st_mode = mode}, VARVE_SET_MODE);
}

T_FN int t_truncate(struct tstore *t, const char *path, off_t size)
{
	return t_setattr(t, path, &(struct stat){.st_size = size}, VARVE_SET_SIZE);
}

T_FN int t_setxattr(struct tstore *t, const char *path, const char *name, const char *value)
{
	struct varve_entry e;
	int r = t_walk(t, path, &e);

	if (r < 0)
		return r;
	r = value ? varve_store_setxattr(t->s, &t_root, e.id, name, value, strlen(value), 0)
		  : varve_store_removexattr(t->s, &t_root, e.id, name);
	t_forget(t, &e);
	return r;
}

/* The attribute is this text; NULL: it is not there. */
T_FN void t_expect_xattr(struct tstore *t, const char *path, const char *name, const char *want)
{
	struct varve_entry e;
	char buf[256];
	ssize_t n;

	ck_assert_int_eq(t_walk(t, path, &e), 0);
	n = varve_store_getxattr(t->s, e.id, name, buf, sizeof(buf) - 1);
	t_forget(t, &e);
	if (!want) {
		ck_assert_int_eq(n, -ENODATA);
		return;
	}
	ck_assert_msg(n >= 0, "%s of %s: %zd", name, path, n);
	buf[n] = '\0';
	ck_assert_str_eq(buf, want);
}

/* -- listing -- */

struct tlist {
	char *names[512];
	uint64_t inos[512], next[512];
	mode_t types[512];
	size_t n, most;
};

T_FN bool t_list_one(void *ctx, const char *name, const struct varve_entry *entry, uint64_t next)
{
	struct tlist *l = ctx;

	if (l->n == l->most)
		return false;
	ck_assert_uint_lt(l->n, 512);
	l->names[l->n] = strdup(name);
	l->inos[l->n] = entry->attr.st_ino;
	l->types[l->n] = entry->attr.st_mode & S_IFMT;
	l->next[l->n++] = next;
	return true;
}

T_FN void t_list_done(struct tlist *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->names[i]);
	l->n = 0;
}

/* A directory lists these names ("a b c"), each with the number that stat gives. */
T_FN void t_expect_list(struct tstore *t, const char *path, const char *want)
{
	struct tlist l = {.most = 512};
	struct varve_entry e;
	char *names[512], got[8192];
	uint64_t dh;
	size_t n = 0;
	int r = t_walk(t, path, &e);

	ck_assert_msg(r == 0, "%s: %d", path, r);
	r = varve_store_opendir(t->s, e.id, &dh);
	ck_assert_msg(r == 0, "opendir %s: %d", path, r);
	ck_assert_int_eq(varve_store_readdir(t->s, dh, 0, false, t_list_one, &l), 0);
	for (size_t i = 0; i < l.n; i++) {
		struct varve_entry c;

		if (!strcmp(l.names[i], ".")) {
			ck_assert_uint_eq(l.inos[i], e.id == VARVE_ID_ROOT ? 1 : e.attr.st_ino);
			continue;
		}
		if (!strcmp(l.names[i], ".."))
			continue;
		names[n++] = strdup(l.names[i]);
		r = varve_store_lookup(t->s, e.id, l.names[i], &c);
		ck_assert_msg(r == 0, "%s in %s: %d", l.names[i], path, r);
		ck_assert_msg(c.attr.st_ino == l.inos[i], "%s/%s: readdir says %llu, stat %llu", path,
			      l.names[i], (unsigned long long)l.inos[i],
			      (unsigned long long)c.attr.st_ino);
		ck_assert_uint_eq(c.attr.st_mode & S_IFMT, l.types[i]);
		t_forget(t, &c);
	}
	varve_store_releasedir(t->s, dh);
	t_list_done(&l);
	t_forget_dir(t, &e);
	t_join(names, n, got, sizeof(got));
	ck_assert_msg(!strcmp(got, want), "%s lists '%s', not '%s'", path, got, want);
}

/* -- content -- */

/* An open file as a program has it: with an offset of its own. */
struct tfile {
	uint64_t fh, id;
	int flags;
	uint64_t pos;
	struct varve_opened how;
};

T_FN int t_try_file_once(struct tstore *t, const char *path, int flags, mode_t mode,
			 struct tfile *ret)
{
	struct varve_entry dir, e = {.id = 0};
	const char *name = t_parent(t, path, &dir);
	int r = varve_store_lookup(t->s, dir.id, name, &e);

	if (r == 0 && (flags & O_CREAT) && (flags & O_EXCL)) {
		t_forget(t, &e);
		r = -EEXIST;
	} else if (r == 0) {
		r = varve_store_open_file(t->s, e.id, flags, &ret->how);
		if (r < 0)
			t_forget(t, &e);
	} else if (r == -ENOENT && (flags & O_CREAT)) {
		r = varve_store_create(t->s, &t_root, dir.id, name, S_IFREG | mode, flags, &e,
				       &ret->how);
	}
	t_forget_dir(t, &dir);
	if (r == 0) {
		ret->fh = ret->how.fh;
		ret->id = e.id;
		ret->flags = flags;
		ret->pos = 0;
	}
	return r;
}

/* open(2): O_CREAT makes it when it is not there. On ESTALE the kernel looks the path up again. */
T_FN int t_try_file(struct tstore *t, const char *path, int flags, mode_t mode, struct tfile *ret)
{
	int r = -ESTALE;

	for (int i = 0; i < 3 && r == -ESTALE; i++)
		r = t_try_file_once(t, path, flags, mode, ret);
	return r;
}

T_FN struct tfile t_file_open(struct tstore *t, const char *path, int flags)
{
	struct tfile f;
	int r = t_try_file(t, path, flags, 0644, &f);

	ck_assert_msg(r == 0, "open %s: %d", path, r);
	return f;
}

T_FN void t_file_close(struct tstore *t, struct tfile *f)
{
	varve_store_release(t->s, f->fh);
	varve_store_forget(t->s, f->id, 1);
}

/* write(2), as the kernel passes it on: with O_APPEND at what it takes for the file's end. */
T_FN ssize_t t_write(struct tstore *t, struct tfile *f, const void *data, size_t len)
{
	struct stat st;
	int64_t valid;
	ssize_t n;

	if (f->flags & O_APPEND) {
		ck_assert_int_eq(varve_store_getattr(t->s, f->id, f->fh, &st, &valid), 0);
		f->pos = (uint64_t)st.st_size;
	}
	n = varve_store_write(t->s, f->fh, data, len, f->pos, f->flags);
	if (n > 0)
		f->pos += (uint64_t)n;
	return n;
}

/* Writes all of a text. */
T_FN void t_puts(struct tstore *t, struct tfile *f, const char *text)
{
	ssize_t n = t_write(t, f, text, strlen(text));

	ck_assert_msg(n == (ssize_t)strlen(text), "write '%.40s': %zd", text, n);
}

T_FN void t_put_flags(struct tstore *t, const char *path, int flags, const char *text)
{
	struct tfile f = t_file_open(t, path, flags);

	if (*text)
		t_puts(t, &f, text);
	t_file_close(t, &f);
}

/* echo TEXT >> PATH: a stream. */
T_FN void t_append(struct tstore *t, const char *path, const char *text)
{
	t_put_flags(t, path, O_WRONLY | O_APPEND | O_CREAT, text);
}

/* echo TEXT > PATH: an object where it is new. */
T_FN void t_put(struct tstore *t, const char *path, const char *text)
{
	t_put_flags(t, path, O_WRONLY | O_TRUNC | O_CREAT, text);
}

/* All of it, NUL-terminated; the caller frees. Negative *ret_len: the error of the read. */
T_FN char *t_get_fh(struct tstore *t, uint64_t fh, ssize_t *ret_len)
{
	size_t size = 1 << 16, len = 0;
	char *buf = malloc(size + 1);

	for (;;) {
		ssize_t n = varve_store_read(t->s, fh, buf + len, size - len, len, false);

		if (n <= 0) {
			*ret_len = n < 0 ? n : (ssize_t)len;
			buf[len] = '\0';
			return buf;
		}
		len += (size_t)n;
		if (len == size) {
			size *= 2;
			buf = realloc(buf, size + 1);
		}
	}
}

T_FN void t_expect_fh(struct tstore *t, uint64_t fh, const char *want)
{
	ssize_t len;
	char *got = t_get_fh(t, fh, &len);

	ck_assert_msg(len == (ssize_t)strlen(want) && !memcmp(got, want, strlen(want)),
		      "it reads (%zd) '%.200s', not '%.200s'", len, got, want);
	free(got);
}

/* The file holds this text, and stat says so. */
T_FN void t_expect(struct tstore *t, const char *path, const char *want)
{
	struct tfile f = t_file_open(t, path, O_RDONLY);
	ssize_t len;
	char *got = t_get_fh(t, f.fh, &len);

	ck_assert_msg(len == (ssize_t)strlen(want) && !memcmp(got, want, strlen(want)),
		      "%s reads (%zd) '%.200s', not '%.200s'", path, len, got, want);
	free(got);
	t_file_close(t, &f);
	ck_assert_msg(t_attr(t, path).st_size == (off_t)strlen(want), "%s: stat says %lld, not %zu",
		      path, (long long)t_attr(t, path).st_size, strlen(want));
}

/* Looking it up is answered so. */
T_FN void t_expect_r(struct tstore *t, const char *path, int want)
{
	struct varve_entry e;
	int r = t_walk(t, path, &e);

	if (r == 0)
		t_forget_dir(t, &e);
	ck_assert_msg(r == want, "%s: %d, not %d", path, r, want);
}

/* -- the life cycle, step by step -- */

T_FN const char *t_bucket(struct tstore *t)
{
	return t->s->current->name;
}

T_FN struct varve_bucket *t_find(struct tstore *t, const char *name)
{
	struct varve_bucket *b = varve_bucket_find(t->s, name);

	ck_assert_msg(b != NULL, "there is no bucket '%s'", name);
	return b;
}

/* What the keeper does at each tick: the boundary, if it is time. Whether it was. */
T_FN bool t_tick(struct tstore *t)
{
	int64_t now;

	{
		guard(&t->s->ns);
		now = varve_believed_now(t->s);
	}
	if (now < t->s->current->end_ns)
		return false;
	guard(&t->s->mutate);
	ck_assert_int_eq(varve_boundary_step(t->s, now), 0);
	return true;
}

/* Time passes to the end of the current bucket, and the boundary comes. */
T_FN void t_boundary(struct tstore *t)
{
	t_pass(t, t->s->current->end_ns - t_now(t) + T_SECOND / 1000);
	ck_assert(t_tick(t));
}

T_FN int t_seal_one(struct tstore *t, struct varve_bucket *b)
{
	int r;

	{
		guard(&t->s->ns);
		(void)varve_bucket_ref(b);
	}
	r = varve_seal_bucket(t->s, b);
	guard(&t->s->ns);
	varve_bucket_unref(t->s, b);
	return r;
}

/* Seals every closing bucket, the graces being over. */
T_FN void t_seal(struct tstore *t)
{
	for (uint32_t i = 0; i < t->s->n_buckets;) {
		struct varve_bucket *b = t->s->buckets[i];
		uint32_t n = t->s->n_buckets;

		if (b->state == VARVE_BUCKET_CLOSING)
			ck_assert_int_eq(t_seal_one(t, b), 0);
		/* An empty one vanishes. */
		if (t->s->n_buckets == n)
			i++;
	}
}

T_FN int t_drop(struct tstore *t, const char *bucket)
{
	struct varve_err err;

	return varve_store_drop(t->s, &t_root, bucket, &err);
}

/* As retention does, once it has chosen. */
T_FN int t_expire(struct tstore *t, const char *bucket)
{
	struct varve_bucket *b = t_find(t, bucket);
	struct varve_err err = {.msg = ""};
	int r;

	{
		guard(&t->s->ns);
		(void)varve_bucket_ref(b);
	}
	r = varve_drop_bucket(t->s, b, VARVE_CAUSE_KEEP, NULL, 1, &err);
	guard(&t->s->ns);
	varve_bucket_unref(t->s, b);
	return r;
}

T_FN void t_reap(struct tstore *t)
{
	bool more = true;

	while (more)
		ck_assert_int_eq(varve_reaper_step(t->s, &more), 0);
}

/* Runs fn in a process of its own, which is to end at the crash point (NAME[:N]). Needs test_hooks.
 * The store must not be open. */
T_FN void t_die_at(struct tstore *t, const char *point, void (*fn)(struct tstore *t))
{
	int status;
	pid_t pid = fork();

	ck_assert_ptr_null(t->s);
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		(void)setenv("VARVE_TEST_CRASH", point, 1);
		fn(t);
		_exit(1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 86,
		      "'%s' was not reached: status %x", point, status);
}
