/*
 * Names through the facade: what is answered in each kind of directory, streams and objects when they
 * are removed and renamed, publishing, renames of directories, listing while names come and go,
 * modes of what is new, drops by rmdir.
 */
#include "../lib/storetest.h"

#define A "2026-12-01T10Z" /* sealed, */
#define B "2026-12-01T11Z" /* closing, */
#define C "2026-12-01T12Z" /* and current, where a test does not say otherwise */
#define D "2026-12-01T13Z"

static struct tstore *t;

/* d/f, e/, o (an object), s (a stream), l (a link) */
static void fill(const char *dir)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/d", dir);
	ck_assert_int_eq(t_try_mkdir(t, path, 0755), 0);
	(void)snprintf(path, sizeof(path), "%s/e", dir);
	ck_assert_int_eq(t_try_mkdir(t, path, 0755), 0);
	(void)snprintf(path, sizeof(path), "%s/l", dir);
	ck_assert_int_eq(t_symlink(t, "d/f", path), 0);
}

static void fill_files(const char *dir)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/d/f", dir);
	t_append(t, path, "f\n");
	(void)snprintf(path, sizeof(path), "%s/o", dir);
	t_put(t, path, "o\n");
	(void)snprintf(path, sizeof(path), "%s/s", dir);
	t_append(t, path, "s\n");
}

static void empty_set_up(void)
{
	t = t_new(A);
	t_open(t);
}

static void set_up(void)
{
	empty_set_up();
	fill("current");
	fill_files("current");
	fill(".staging");
	fill_files(".staging");
	t_boundary(t);
	ck_assert_int_eq(t_symlink(t, "d/f", "current/l"), 0);
	fill_files("current");
	ck_assert_int_eq(t_try_mkdir(t, "current/e/x", 0755), 0);
	ck_assert_int_eq(t_rmdir(t, "current/e/x"), 0);
	t_boundary(t);
	ck_assert_int_eq(t_symlink(t, "d/f", "current/l"), 0);
	fill_files("current");
	ck_assert_int_eq(t_seal_one(t, t_find(t, A)), 0);
}

static void tear_down(void)
{
	t_free(t);
}

static void expect_all(void)
{
	static const char *const dirs[] = {A, B, "current", ".staging"};
	char path[64];

	t_expect_list(t, "", ".staging " A " " B " " C " current");
	for (int i = 0; i < 4; i++) {
		t_expect_list(t, dirs[i], "d e l o s");
		(void)snprintf(path, sizeof(path), "%s/d", dirs[i]);
		t_expect_list(t, path, "f");
		(void)snprintf(path, sizeof(path), "%s/e", dirs[i]);
		t_expect_list(t, path, "");
		(void)snprintf(path, sizeof(path), "%s/s", dirs[i]);
		t_expect(t, path, "s\n");
		(void)snprintf(path, sizeof(path), "%s/o", dirs[i]);
		t_expect(t, path, "o\n");
		(void)snprintf(path, sizeof(path), "%s/d/f", dirs[i]);
		t_expect(t, path, "f\n");
	}
}

/* -- what is answered -- */

enum op { CREATE, EXCL, MKDIR, SYMLINK, FIFO, UNLINK, RMDIR, MOVE, NOREPLACE, EXCHANGE, LOOKUP };

static int act(enum op op, const char *path, const char *to)
{
	struct varve_entry dir, e;
	struct tfile f;
	const char *name;
	int r;

	switch (op) {
	case CREATE:
	case EXCL:
		r = t_try_file(t, path, O_WRONLY | O_CREAT | (op == EXCL ? O_EXCL : 0), 0644, &f);
		if (r == 0)
			t_file_close(t, &f);
		return r;
	case MKDIR:
		return t_try_mkdir(t, path, 0755);
	case SYMLINK:
		return t_symlink(t, "somewhere", path);
	case FIFO:
		name = t_parent(t, path, &dir);
		r = varve_store_mknod(t->s, &t_root, dir.id, name, S_IFIFO | 0644, &e);
		t_forget_dir(t, &dir);
		return r;
	case UNLINK:
		return t_unlink(t, path);
	case RMDIR:
		return t_rmdir(t, path);
	case MOVE:
		return t_move(t, path, to, 0);
	case NOREPLACE:
		return t_move(t, path, to, RENAME_NOREPLACE);
	case EXCHANGE:
		return t_move(t, path, to, RENAME_EXCHANGE);
	case LOOKUP:
		r = t_walk(t, path, &e);
		if (r == 0)
			t_forget_dir(t, &e);
		return r;
	}
	return -ENOSYS;
}

static const struct refused {
	enum op op;
	const char *path, *to;
	int want;
} refused[] = {
	/* The root is the store's. */
	{CREATE, "x", NULL, -EPERM},
	{MKDIR, "x", NULL, -EPERM},
	{MKDIR, "2026-12-02", NULL, -EPERM},
	{SYMLINK, "x", NULL, -EPERM},
	{FIFO, "x", NULL, -EPERM},
	{UNLINK, C, NULL, -EBUSY},
	{RMDIR, "current", NULL, -EBUSY},
	{RMDIR, ".staging", NULL, -EBUSY},
	{RMDIR, C, NULL, -ENOTDIR},
	{RMDIR, "x", NULL, -ENOENT},
	{RMDIR, "2026-12-02", NULL, -ENOENT},
	{MOVE, A, "x", -EPERM},
	{MOVE, "current", "x", -EPERM},
	{MOVE, "current/o", "x", -EPERM},
	{MOVE, A, "current/x", -EPERM},
	{MOVE, ".staging", "current/x", -EPERM},
	{LOOKUP, "x", NULL, -ENOENT},
	{LOOKUP, "2026-12-02", NULL, -ENOENT},
	{LOOKUP, ".varve", NULL, -ENOENT},

	/* What is sealed changes only by what goes. */
	{CREATE, A "/x", NULL, -EROFS},
	{MKDIR, A "/x", NULL, -EROFS},
	{MKDIR, A "/d/x", NULL, -EROFS},
	{SYMLINK, A "/x", NULL, -EROFS},
	{FIFO, A "/x", NULL, -EPERM},
	{UNLINK, A "/d", NULL, -EISDIR},
	{UNLINK, A "/x", NULL, -ENOENT},
	{RMDIR, A "/d", NULL, -ENOTEMPTY},
	{RMDIR, A "/s", NULL, -ENOTDIR},
	{RMDIR, A "/x", NULL, -ENOENT},
	{MOVE, A "/s", A "/x", -EROFS},
	{MOVE, A "/s", A "/o", -EROFS},
	{MOVE, A "/s", "current/x", -EXDEV},
	{MOVE, A "/s", ".staging/x", -EXDEV},
	{MOVE, A "/s", B "/x", -EXDEV},
	{MOVE, "current/s", A "/x", -EROFS},
	{MOVE, ".staging/s", A "/x", -EROFS},
	{MOVE, B "/s", A "/x", -EROFS},
	{LOOKUP, A "/x", NULL, -ENOENT},
	{LOOKUP, A "/s/x", NULL, -ENOENT},

	/* A closing bucket takes what is late, but nothing that has a bucket of its own. */
	{EXCL, B "/s", NULL, -EEXIST},
	{MKDIR, B "/s", NULL, -EEXIST},
	{MKDIR, B "/d", NULL, -EEXIST},
	{FIFO, B "/x", NULL, -EPERM},
	{SYMLINK, B "/l", NULL, -EEXIST},
	{UNLINK, B "/d", NULL, -EISDIR},
	{UNLINK, B "/x", NULL, -ENOENT},
	{RMDIR, B "/d", NULL, -ENOTEMPTY},
	{RMDIR, B "/s", NULL, -ENOTDIR},
	{RMDIR, B "/x", NULL, -ENOENT},
	{MOVE, B "/s", "current/x", -EXDEV},
	{MOVE, B "/d", "current/x", -EXDEV},
	{MOVE, B "/s", ".staging/x", -EXDEV},
	{MOVE, "current/s", B "/x", -EXDEV},
	{MOVE, ".staging/s", B "/x", -EXDEV},
	{MOVE, B "/s", B "/d", -EISDIR},
	{MOVE, B "/d", B "/s", -ENOTDIR},
	{MOVE, B "/e", B "/d", -ENOTEMPTY},
	{MOVE, B "/x", B "/y", -ENOENT},
	{NOREPLACE, B "/s", B "/o", -EEXIST},

	/* current/ and .staging/ are as any filesystem, within themselves. */
	{EXCL, "current/s", NULL, -EEXIST},
	{EXCL, "current/d", NULL, -EEXIST},
	{CREATE, "current/d", NULL, -EISDIR},
	{MKDIR, "current/s", NULL, -EEXIST},
	{MKDIR, "current/d", NULL, -EEXIST},
	{FIFO, "current/x", NULL, -EPERM},
	{SYMLINK, "current/o", NULL, -EEXIST},
	{UNLINK, "current/d", NULL, -EISDIR},
	{UNLINK, "current/x", NULL, -ENOENT},
	{RMDIR, "current/d", NULL, -ENOTEMPTY},
	{RMDIR, "current/s", NULL, -ENOTDIR},
	{RMDIR, "current/l", NULL, -ENOTDIR},
	{RMDIR, "current/x", NULL, -ENOENT},
	{MOVE, "current/s", "current/d", -EISDIR},
	{MOVE, "current/d", "current/s", -ENOTDIR},
	{MOVE, "current/d", "current/l", -ENOTDIR},
	{MOVE, "current/e", "current/d", -ENOTEMPTY},
	{MOVE, "current/x", "current/y", -ENOENT},
	{MOVE, "current/s", ".staging/x", -EXDEV},
	{MOVE, "current/d", ".staging/x", -EXDEV},
	{NOREPLACE, "current/s", "current/o", -EEXIST},
	{NOREPLACE, "current/d", "current/e", -EEXIST},
	{EXCHANGE, "current/s", "current/o", -EINVAL},
	{MOVE, "current/o", "current/o", 0},
	{MOVE, "current/d", "current/d", 0},

	{EXCL, ".staging/s", NULL, -EEXIST},
	{MKDIR, ".staging/d", NULL, -EEXIST},
	{FIFO, ".staging/x", NULL, -EPERM},
	{UNLINK, ".staging/d", NULL, -EISDIR},
	{UNLINK, ".staging/x", NULL, -ENOENT},
	{RMDIR, ".staging/d", NULL, -ENOTEMPTY},
	{RMDIR, ".staging/o", NULL, -ENOTDIR},
	{RMDIR, ".staging/x", NULL, -ENOENT},
	{MOVE, ".staging/s", ".staging/d", -EISDIR},
	{MOVE, ".staging/d", ".staging/s", -ENOTDIR},
	{MOVE, ".staging/e", ".staging/d", -ENOTEMPTY},
	{MOVE, ".staging/x", "current/x", -ENOENT},
	{MOVE, ".staging/e", "current/d", -ENOTEMPTY},
	{MOVE, ".staging/d", "current/s", -ENOTDIR},
	{MOVE, ".staging/s", "current/d", -EISDIR},
	{NOREPLACE, ".staging/s", "current/s", -EEXIST},
	{NOREPLACE, ".staging/d", "current/e", -EEXIST},
	{EXCHANGE, ".staging/s", "current/s", -EINVAL},
};

START_TEST(test_refused)
{
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		const struct refused *c = &refused[i];
		int r = act(c->op, c->path, c->to);

		ck_assert_msg(r == c->want, "case %zu: operation %d of '%s' ('%s'): %d, not %d", i,
			      c->op, c->path, c->to ? c->to : "", r, c->want);
	}
	expect_all();
	/* A stream that nothing was written to yet counts as much. */
	t_boundary(t);
	ck_assert_int_eq(t_try_mkdir(t, "current/s", 0755), -EEXIST);
	ck_assert_int_eq(t_rmdir(t, "current/d"), -ENOTEMPTY);
	ck_assert_int_eq(t_move(t, "current/e", "current/d", 0), -ENOTEMPTY);
	ck_assert_int_eq(t_move(t, "current/d", "current/s", 0), -ENOTDIR);
	t_expect_list(t, "current", "d e s");
}
END_TEST

static const struct refused allowed[] = {
	{UNLINK, A "/s", NULL, 0},	     {UNLINK, A "/l", NULL, 0},
	{UNLINK, A "/d/f", NULL, 0},	     {RMDIR, A "/e", NULL, 0},
	{RMDIR, A, NULL, 0},		     {RMDIR, B, NULL, 0},
	{CREATE, B "/x", NULL, 0},	     {MKDIR, B "/x", NULL, 0},
	{SYMLINK, B "/x", NULL, 0},	     {UNLINK, B "/s", NULL, 0},
	{UNLINK, B "/l", NULL, 0},	     {RMDIR, B "/e", NULL, 0},
	{MOVE, B "/s", B "/x", 0},	     {MOVE, B "/s", B "/o", 0},
	{MOVE, B "/s", B "/d/x", 0},	     {MOVE, B "/d", B "/x", 0},
	{MOVE, B "/d", B "/e", 0},	     {MOVE, B "/d", B "/e/x", 0},
	{CREATE, "current/x", NULL, 0},	     {MKDIR, "current/x", NULL, 0},
	{SYMLINK, "current/x", NULL, 0},     {UNLINK, "current/s", NULL, 0},
	{UNLINK, "current/l", NULL, 0},	     {UNLINK, "current/d/f", NULL, 0},
	{RMDIR, "current/e", NULL, 0},	     {MOVE, "current/s", "current/x", 0},
	{MOVE, "current/s", "current/o", 0}, {MOVE, "current/o", "current/s", 0},
	{MOVE, "current/l", "current/s", 0}, {MOVE, "current/s", "current/l", 0},
	{MOVE, "current/d", "current/x", 0}, {MOVE, "current/d", "current/e", 0},
	{MOVE, "current/d", "current/e/x", 0}, {MOVE, "current/e", "current/d/e", 0},
	{MOVE, "current/s", "current/d/x", 0}, {MOVE, "current/d/f", "current/s", 0},
	{NOREPLACE, "current/d", "current/x", 0}, {NOREPLACE, "current/s", "current/x", 0},
	{CREATE, ".staging/x", NULL, 0},     {MKDIR, ".staging/x", NULL, 0},
	{SYMLINK, ".staging/x", NULL, 0},    {UNLINK, ".staging/s", NULL, 0},
	{RMDIR, ".staging/e", NULL, 0},	     {MOVE, ".staging/s", ".staging/o", 0},
	{MOVE, ".staging/d", ".staging/e", 0}, {MOVE, ".staging/s", "current/x", 0},
	{MOVE, ".staging/s", "current/s", 0}, {MOVE, ".staging/l", "current/x", 0},
	{MOVE, ".staging/l", "current/s", 0}, {MOVE, ".staging/s", "current/l", 0},
	{MOVE, ".staging/d", "current/x", 0}, {MOVE, ".staging/d", "current/e", 0},
	{MOVE, ".staging/e", "current/e", 0}, {MOVE, ".staging/d", "current/d/x", 0},
	{NOREPLACE, ".staging/d", "current/x", 0},
};

/* Each in a store of its own, and again what is on disk: a remount, a boundary and a seal show the
 * same names. */
START_TEST(test_allowed)
{
	const struct refused *c = &allowed[_i];
	struct tlist before = {.most = 512}, after = {.most = 512};
	uint64_t dh;
	int r = act(c->op, c->path, c->to);

	ck_assert_msg(r == 0, "operation %d of '%s' ('%s'): %d", c->op, c->path, c->to ? c->to : "", r);
	t_check(t);
	for (int i = 0; i < 2; i++) {
		struct tlist *l = i ? &after : &before;

		for (int k = 0; k < 4; k++) {
			static const char *const dirs[] = {"current", "current/e", "current/d", B};
			struct varve_entry e;

			if (t_walk(t, dirs[k], &e) < 0)
				continue;
			ck_assert_int_eq(varve_store_opendir(t->s, e.id, &dh), 0);
			ck_assert_int_eq(varve_store_readdir(t->s, dh, 0, false, t_list_one, l), 0);
			varve_store_releasedir(t->s, dh);
			t_forget(t, &e);
		}
		if (!i) {
			t_close(t);
			t_open(t);
		}
	}
	ck_assert_uint_eq(before.n, after.n);
	for (size_t i = 0; i < before.n; i++) {
		ck_assert_str_eq(before.names[i], after.names[i]);
		ck_assert_uint_eq(before.types[i], after.types[i]);
	}
	t_list_done(&before);
	t_list_done(&after);
	t_boundary(t);
	t_seal(t);
}
END_TEST

START_TEST(test_wrong_parents)
{
	struct varve_entry file, gone, e;
	struct varve_opened how;

	ck_assert_int_eq(t_walk(t, "current/s", &file), 0);
	ck_assert_int_eq(varve_store_lookup(t->s, file.id, "x", &e), -ENOTDIR);
	ck_assert_int_eq(varve_store_mkdir(t->s, &t_root, file.id, "x", 0755, &e), -ENOTDIR);
	ck_assert_int_eq(varve_store_unlink(t->s, &t_root, file.id, "x"), -ENOTDIR);
	ck_assert_int_eq(varve_store_rmdir(t->s, &t_root, file.id, "x"), -ENOTDIR);
	t_forget(t, &file);
	/* A directory that is removed while it is somebody's working directory. */
	ck_assert_int_eq(t_walk(t, "current/e", &gone), 0);
	ck_assert_int_eq(t_rmdir(t, "current/e"), 0);
	ck_assert_int_eq(varve_store_lookup(t->s, gone.id, "x", &e), -ENOENT);
	ck_assert_int_eq(varve_store_create(t->s, &t_root, gone.id, "x", 0644, O_WRONLY, &e, &how),
			 -ENOENT);
	ck_assert_int_eq(varve_store_mkdir(t->s, &t_root, gone.id, "x", 0755, &e), -ENOENT);
	ck_assert_int_eq(varve_store_rename(t->s, VARVE_ID_CURRENT, "s", gone.id, "s", 0), -ENOENT);
	t_forget(t, &gone);
	/* Ids that are none. */
	ck_assert_int_eq(varve_store_lookup(t->s, 99999999, "x", &e), -ESTALE);
	ck_assert_int_eq(varve_store_create(t->s, &t_root, 99999999, "x", 0644, O_WRONLY, &e, &how),
			 -ESTALE);
	ck_assert_int_eq(varve_store_mkdir(t->s, &t_root, 99999999, "x", 0755, &e), -ESTALE);
	ck_assert_int_eq(varve_store_symlink(t->s, &t_root, "y", 99999999, "x", &e), -ESTALE);
	ck_assert_int_eq(varve_store_unlink(t->s, &t_root, 99999999, "x"), -ESTALE);
	ck_assert_int_eq(varve_store_rmdir(t->s, &t_root, 99999999, "x"), -ESTALE);
	ck_assert_int_eq(varve_store_rename(t->s, 99999999, "x", VARVE_ID_CURRENT, "x", 0), -ESTALE);
	ck_assert_int_eq(varve_store_rename(t->s, VARVE_ID_CURRENT, "s", 99999999, "x", 0), -ESTALE);
	t_expect(t, "current/s", "s\n");
}
END_TEST

/* -- names -- */

START_TEST(test_odd_names)
{
	static const char *const names[] = {"*.example.com.log", "with blank", "new\nline", "\x80\xff",
					    "...", ".hidden", "-rf", "a:b", "CON", "user.varve.ino",
					    "gone,x", ".tmp", "2026-12-01T10Z", "0.tar.zst"};
	char path[T_PATH], longest[256];

	memset(longest, 'n', 255);
	longest[255] = '\0';
	for (int b = 0; b < 2; b++) {
		for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
			(void)snprintf(path, sizeof(path), "current/%s", names[i]);
			t_append(t, path, names[i]);
			(void)snprintf(path, sizeof(path), "%s/%s", b ? B : "current", names[i]);
			t_expect(t, path, names[i]);
		}
		(void)snprintf(path, sizeof(path), "current/%s", longest);
		t_append(t, path, "long\n");
		t_boundary(t);
		t_seal(t);
		t_close(t);
		t_open(t);
		for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
			(void)snprintf(path, sizeof(path), "%s/%s", b ? B : A, names[i]);
			t_expect(t, path, names[i]);
		}
		(void)snprintf(path, sizeof(path), "%s/%s", b ? B : A, longest);
		t_expect(t, path, "long\n");
		if (!b)
			break;
	}
}
END_TEST

START_TEST(test_bad_names)
{
	char name[300];
	struct varve_entry e;

	memset(name, 'n', 256);
	name[256] = '\0';
	ck_assert_int_eq(varve_store_mkdir(t->s, &t_root, VARVE_ID_CURRENT, name, 0755, &e),
			 -ENAMETOOLONG);
	ck_assert_int_eq(varve_store_lookup(t->s, VARVE_ID_CURRENT, name, &e), -ENAMETOOLONG);
	ck_assert_int_eq(varve_store_rename(t->s, VARVE_ID_CURRENT, "s", VARVE_ID_CURRENT, name, 0),
			 -ENAMETOOLONG);
	ck_assert_int_eq(varve_store_mkdir(t->s, &t_root, VARVE_ID_CURRENT, "", 0755, &e), -EINVAL);
	ck_assert_int_eq(varve_store_mkdir(t->s, &t_root, VARVE_ID_CURRENT, ".", 0755, &e), -EINVAL);
	ck_assert_int_eq(varve_store_mkdir(t->s, &t_root, VARVE_ID_CURRENT, "..", 0755, &e), -EINVAL);
	ck_assert_int_eq(varve_store_mkdir(t->s, &t_root, VARVE_ID_CURRENT, "a/b", 0755, &e), -EINVAL);
	ck_assert_int_eq(varve_store_rename(t->s, VARVE_ID_CURRENT, "s", VARVE_ID_CURRENT, "..", 0),
			 -EINVAL);
	expect_all();
}
END_TEST

/* A path that no segment could hold is not made in the first place. */
START_TEST(test_long_paths)
{
	char path[T_PATH] = "current", up[T_PATH] = "current", from[512], longest[256];
	int r = 0, depth = 0;

	memset(longest, 'n', 200);
	longest[200] = '\0';
	while (r == 0) {
		(void)snprintf(path + strlen(path), sizeof(path) - strlen(path), "/%s", longest);
		r = t_try_mkdir(t, path, 0755);
		depth++;
	}
	ck_assert_int_eq(r, -ENAMETOOLONG);
	ck_assert_int_ge(depth, 18);
	*strrchr(path, '/') = '\0';
	(void)strcat(path, "/f");
	t_append(t, path, "deep\n");
	t_expect(t, path, "deep\n");
	/* Nor by renaming what is above it. */
	memset(longest, 'u', 200);
	for (int i = 0; i < 3; i++) {
		(void)snprintf(up + strlen(up), sizeof(up) - strlen(up), "/%s", longest);
		ck_assert_int_eq(t_try_mkdir(t, up, 0755), 0);
	}
	(void)strcat(up, "/x");
	memset(longest, 'n', 200);
	(void)snprintf(from, sizeof(from), "current/%s", longest);
	r = t_move(t, from, up, 0);
	/* Whatever the answer is, what is there can be sealed and read. */
	t_boundary(t);
	t_seal(t);
	ck_assert_int_eq(t_find(t, A)->state, VARVE_BUCKET_SEALED);
	if (r < 0) {
		(void)memmove(path + strlen(A), path + strlen("current"),
			      strlen(path) - strlen("current") + 1);
		memcpy(path, A, strlen(A));
		t_expect(t, path, "deep\n");
	}
	ck_assert_int_eq(r, -ENAMETOOLONG);
}
END_TEST

/* -- streams and objects -- */

START_TEST(test_removed_streams)
{
	/* With and without a part in this bucket. */
	ck_assert_int_eq(t_unlink(t, "current/s"), 0);
	t_expect_list(t, "current", "d e l o");
	t_boundary(t);
	t_expect_list(t, "current", "d e");
	t_expect_list(t, "current/d", "f");
	ck_assert_int_eq(t_unlink(t, "current/d/f"), 0);
	t_expect_list(t, "current/d", "");
	t_boundary(t);
	t_seal(t);
	t_expect_list(t, "current/d", "");
	/* The older buckets have what they had. */
	t_expect(t, A "/s", "s\n");
	t_expect(t, B "/s", "s\n");
	t_expect_r(t, C "/s", -ENOENT);
	t_expect(t, C "/d/f", "f\n");
	/* In its place something else may be. */
	ck_assert_int_eq(t_try_mkdir(t, "current/s", 0755), 0);
	t_put(t, "current/d/f", "object\n");
	t_boundary(t);
	t_expect_list(t, "current", "d e s");
	t_expect_list(t, "current/d", "");
}
END_TEST

/* The dated path of a closing bucket is about that bucket alone. */
START_TEST(test_removed_in_a_closing_bucket)
{
	ck_assert_int_eq(t_unlink(t, B "/s"), 0);
	ck_assert_int_eq(t_unlink(t, B "/d/f"), 0);
	ck_assert_int_eq(t_rmdir(t, B "/d"), 0);
	t_expect_list(t, B, "e l o");
	t_expect(t, "current/s", "s\n");
	t_expect(t, "current/d/f", "f\n");
	t_boundary(t);
	t_seal(t);
	t_expect_list(t, B, "e l o");
	t_expect_list(t, "current", "d e s");
	t_expect_list(t, "current/d", "f");
	/* All of it: the bucket with it. */
	t_boundary(t);
	t_append(t, "current/s", "x\n");
	t_boundary(t);
	ck_assert_int_eq(t_unlink(t, "2026-12-01T14Z/s"), 0);
	t_seal(t);
	t_expect_list(t, "current", "d e s");
}
END_TEST

START_TEST(test_renamed_streams)
{
	uint64_t ino = t_ino(t, "current/s");

	ck_assert_int_eq(t_move(t, "current/s", "current/s.1", 0), 0);
	ck_assert_uint_eq(t_ino(t, "current/s.1"), ino);
	t_expect_list(t, "current", "d e l o s.1");
	/* Nothing holds it: the new name is no stream, and the old one none any more. */
	t_boundary(t);
	t_expect_list(t, "current", "d e");
	t_seal(t);
	t_expect(t, C "/s.1", "s\n");
	ck_assert_uint_eq(t_ino(t, C "/s.1"), ino);
	t_append(t, "current/d/f", "");
	ck_assert_int_eq(t_move(t, "current/d/f", "current/g", 0), 0);
	t_append(t, "current/g", "g\n");
	t_boundary(t);
	t_expect_list(t, "current", "d e g");
	t_expect_list(t, "current/d", "");
}
END_TEST

/* The name of a stream is one whatever file is put there. */
START_TEST(test_renamed_over_a_stream)
{
	uint64_t ino = t_ino(t, "current/o");

	ck_assert_int_eq(t_chmod(t, "current/o", 0600), 0);
	ck_assert_int_eq(t_move(t, "current/o", "current/s", 0), 0);
	t_expect(t, "current/s", "o\n");
	ck_assert_uint_eq(t_ino(t, "current/s"), ino);
	t_expect_list(t, "current", "d e l s");
	t_boundary(t);
	t_expect_list(t, "current", "d e s");
	t_expect(t, "current/s", "");
	/* logrotate's create mode, sed -i: the new file's mode is the stream's. */
	ck_assert_int_eq(t_attr(t, "current/s").st_mode & 07777, 0600);
	t_seal(t);
	t_expect(t, C "/s", "o\n");
	t_put(t, ".staging/n", "new\n");
	ck_assert_int_eq(t_move(t, ".staging/n", "current/s", 0), 0);
	t_boundary(t);
	t_expect_list(t, "current", "d e s");
	t_seal(t);
	t_expect(t, D "/s", "new\n");
}
END_TEST

/* Case 20: people's own logrotate on current/. */
START_TEST(test_logrotate)
{
	struct tfile held = t_file_open(t, "current/s", O_WRONLY | O_APPEND);
	char from[64], to[64];

	for (int round = 0; round < 3; round++) {
		for (int i = 3; i > 0; i--) {
			(void)snprintf(from, sizeof(from), i > 1 ? "current/s.%d" : "current/s", i - 1);
			(void)snprintf(to, sizeof(to), "current/s.%d", i);
			if (act(LOOKUP, from, NULL) == 0)
				ck_assert_int_eq(t_move(t, from, to, 0), 0);
		}
		t_append(t, "current/s", "after rotation\n");
		t_puts(t, &held, "by the old descriptor\n");
		t_file_close(t, &held);
		held = t_file_open(t, "current/s", O_WRONLY | O_APPEND);
	}
	t_file_close(t, &held);
	t_expect_list(t, "current", "d e l o s s.1 s.2 s.3");
	t_expect(t, "current/s.3", "s\nby the old descriptor\n");
	t_expect(t, "current/s.1", "after rotation\nby the old descriptor\n");
	t_expect(t, "current/s", "after rotation\n");
	/* The rotated ones are of their bucket. */
	t_boundary(t);
	t_expect_list(t, "current", "d e s");
	/* copytruncate */
	t_append(t, "current/s", "line\n");
	t_put(t, "current/s.1", "line\n");
	ck_assert_int_eq(t_truncate(t, "current/s", 0), 0);
	t_append(t, "current/s", "next\n");
	t_boundary(t);
	t_seal(t);
	t_expect(t, D "/s", "next\n");
	t_expect(t, D "/s.1", "line\n");
	t_expect_list(t, "current", "d e s");
}
END_TEST

/* -- publishing -- */

START_TEST(test_publish_a_file)
{
	struct tfile f = t_file_open(t, ".staging/o", O_WRONLY), r = t_file_open(t, "current/s", O_RDONLY);
	uint64_t ino = t_ino(t, ".staging/o");

	ck_assert_int_eq(t_chmod(t, ".staging/o", 0604), 0);
	ck_assert_int_eq(t_setxattr(t, ".staging/o", "user.note", "kept"), 0);
	ck_assert_int_eq(t_move(t, ".staging/o", "current/s", 0), 0);
	t_expect_r(t, ".staging/o", -ENOENT);
	t_expect(t, "current/s", "o\n");
	/* Who had the old one open reads on in it. */
	t_expect_fh(t, r.fh, "s\n");
	t_file_close(t, &r);
	ck_assert_uint_eq(t_ino(t, "current/s"), ino);
	/* Its writer may only append now, and is one of the bucket's. */
	ck_assert_int_eq(varve_store_write(t->s, f.fh, "X", 1, 0, O_WRONLY), -EPERM);
	ck_assert_int_eq(varve_store_write(t->s, f.fh, "more\n", 5, 2, O_WRONLY), 5);
	t_check(t);
	t_boundary(t);
	t_puts(t, &(struct tfile){.fh = f.fh, .id = f.id, .flags = O_WRONLY, .pos = 7}, "next\n");
	t_file_close(t, &f);
	t_seal(t);
	{
		/* It stands at a stream's name: which of the two the line is in is the boundary's
		 * business, but it is in one. */
		off_t c = t_attr(t, C "/s").st_size, n = t_attr(t, "current/s").st_size;

		ck_assert_int_eq(c + n, 12);
	}
	ck_assert_uint_eq(t_ino(t, C "/s"), ino);
	ck_assert_int_eq(t_attr(t, C "/s").st_mode & 07777, 0604);
	t_expect_xattr(t, C "/s", "user.note", "kept");
}
END_TEST

START_TEST(test_publish_a_directory)
{
	uint64_t d, f, g;
	struct tfile held;

	ck_assert_int_eq(t_try_mkdir(t, ".staging/d/sub", 0700), 0);
	ck_assert_int_eq(t_chmod(t, ".staging/d/sub", 0711), 0);
	t_put(t, ".staging/d/sub/g", "g\n");
	ck_assert_int_eq(t_symlink(t, "sub/g", ".staging/d/link"), 0);
	ck_assert_int_eq(t_setxattr(t, ".staging/d", "user.note", "kept"), 0);
	held = t_file_open(t, ".staging/d/f", O_RDWR);
	d = t_ino(t, ".staging/d");
	f = t_ino(t, ".staging/d/f");
	g = t_ino(t, ".staging/d/sub/g");
	/* To a new name, over an empty directory, into another. */
	{
		static const char *const to[] = {"current/new", "current/e", "current/d/new"};
		const char *at = to[_i];
		char path[64];

		ck_assert_int_eq(t_move(t, ".staging/d", at, 0), 0);
		t_check(t);
		t_expect_list(t, ".staging", "e l o s");
		t_expect_list(t, at, "f link sub");
		t_expect_xattr(t, at, "user.note", "kept");
		ck_assert_uint_eq(t_ino(t, at), d);
		(void)snprintf(path, sizeof(path), "%s/f", at);
		t_expect(t, path, "f\n");
		ck_assert_uint_eq(t_ino(t, path), f);
		(void)snprintf(path, sizeof(path), "%s/sub/g", at);
		t_expect(t, path, "g\n");
		ck_assert_uint_eq(t_ino(t, path), g);
		ck_assert_int_eq(varve_store_write(t->s, held.fh, "X", 1, 0, O_RDWR), -EPERM);
		ck_assert_int_eq(varve_store_write(t->s, held.fh, "more\n", 5, 2, O_RDWR), 5);
		t_file_close(t, &held);
		t_close(t);
		t_open(t);
		t_expect(t, path, "g\n");
		ck_assert_uint_eq(t_ino(t, path), g);
		(void)snprintf(path, sizeof(path), "%s/sub", at);
		ck_assert_int_eq(t_attr(t, path).st_mode & 07777, 0711);
		t_boundary(t);
		/* The directories stay, the objects do not. */
		t_expect_list(t, at, "sub");
		t_expect_list(t, path, "");
		ck_assert_uint_eq(t_ino(t, at), d);
		t_expect_xattr(t, at, "user.note", "kept");
		t_seal(t);
		(void)snprintf(path, sizeof(path), "%s%s/f", C, at + strlen("current"));
		t_expect(t, path, "f\nmore\n");
		ck_assert_uint_eq(t_ino(t, path), f);
		(void)snprintf(path, sizeof(path), "%s%s/sub/g", C, at + strlen("current"));
		t_expect(t, path, "g\n");
		ck_assert_uint_eq(t_ino(t, path), g);
		(void)snprintf(path, sizeof(path), "%s%s/sub", C, at + strlen("current"));
		ck_assert_int_eq(t_attr(t, path).st_mode & 07777, 0711);
	}
}
END_TEST

START_TEST(test_publish_many)
{
	char path[64];

	for (int i = 0; i < 50; i++) {
		(void)snprintf(path, sizeof(path), ".staging/d/x%d", i);
		ck_assert_int_eq(t_try_mkdir(t, path, 0755), 0);
		for (int k = 0; k < 5; k++) {
			(void)snprintf(path, sizeof(path), ".staging/d/x%d/f%d", i, k);
			t_put(t, path, path);
		}
	}
	t_close(t);
	t_open(t);
	ck_assert_int_eq(t_move(t, ".staging/d", "current/many", 0), 0);
	t_check(t);
	for (int i = 0; i < 50; i++)
		for (int k = 0; k < 5; k++) {
			char text[64];

			(void)snprintf(text, sizeof(text), ".staging/d/x%d/f%d", i, k);
			(void)snprintf(path, sizeof(path), "current/many/x%d/f%d", i, k);
			t_expect(t, path, text);
		}
	/* In and out again is not to be had, but within current/ it moves as a whole. */
	ck_assert_int_eq(t_move(t, "current/many", ".staging/back", 0), -EXDEV);
	ck_assert_int_eq(t_move(t, "current/many", "current/d/many", 0), 0);
	t_expect(t, "current/d/many/x49/f4", ".staging/d/x49/f4");
}
END_TEST

/* -- directories of current/ -- */

START_TEST(test_move_directory_with_parts)
{
	struct tfile f = t_file_open(t, "current/d/f", O_WRONLY | O_APPEND);
	uint64_t d = t_ino(t, "current/d");

	/* Parts in this bucket and in older ones; somebody writes. */
	ck_assert_int_eq(t_move(t, "current/d", "current/moved", 0), 0);
	t_puts(t, &f, "more\n");
	t_expect(t, "current/moved/f", "f\nmore\n");
	ck_assert_uint_eq(t_ino(t, "current/moved"), d);
	t_expect_r(t, "current/d", -ENOENT);
	t_expect(t, B "/d/f", "f\n");
	t_expect(t, A "/d/f", "f\n");
	t_boundary(t);
	t_puts(t, &f, "next\n");
	t_expect(t, "current/moved/f", "next\n");
	t_expect(t, C "/moved/f", "f\nmore\n");
	/* And again, right after the boundary; then back over an empty one. */
	ck_assert_int_eq(t_move(t, "current/moved", "current/e/deep", 0), 0);
	ck_assert_int_eq(t_try_mkdir(t, "current/d", 0755), 0);
	ck_assert_int_eq(t_move(t, "current/e/deep", "current/d", 0), 0);
	t_puts(t, &f, "last\n");
	t_file_close(t, &f);
	t_expect(t, "current/d/f", "next\nlast\n");
	ck_assert_uint_eq(t_ino(t, "current/d"), d);
	t_close(t);
	t_open(t);
	t_expect(t, "current/d/f", "next\nlast\n");
	t_expect_list(t, "current", "d e s");
	t_boundary(t);
	t_seal(t);
	t_expect(t, D "/d/f", "next\nlast\n");
	t_expect(t, C "/moved/f", "f\nmore\n");
	t_expect_list(t, "current/d", "f");
}
END_TEST

/* A directory that has no parts in this bucket at all. */
START_TEST(test_move_directory_without_parts)
{
	t_boundary(t);
	ck_assert_int_eq(t_move(t, "current/d", "current/e/d2", 0), 0);
	t_expect_list(t, "current/e", "d2");
	t_expect_list(t, "current/e/d2", "f");
	t_append(t, "current/e/d2/f", "x\n");
	t_boundary(t);
	t_expect_list(t, "current/e/d2", "f");
	t_seal(t);
	t_expect(t, D "/e/d2/f", "x\n");
	t_expect_r(t, D "/d", -ENOENT);
}
END_TEST

/* What the victim had in older buckets, and its streams, if any, are no hindrance; files are. */
START_TEST(test_move_over_directories)
{
	ck_assert_int_eq(t_try_mkdir(t, "current/v", 0755), 0);
	t_put(t, "current/v/f", "x");
	ck_assert_int_eq(t_move(t, "current/d", "current/v", 0), -ENOTEMPTY);
	ck_assert_int_eq(t_unlink(t, "current/v/f"), 0);
	ck_assert_int_eq(t_move(t, "current/d", "current/v", 0), 0);
	t_expect_list(t, "current", "e l o s v");
	t_expect_list(t, "current/v", "f");
	t_expect(t, "current/v/f", "f\n");
	/* An object of the older bucket: in this one the directory is empty. */
	ck_assert_int_eq(t_try_mkdir(t, "current/w", 0755), 0);
	t_put(t, "current/w/f", "x");
	t_boundary(t);
	ck_assert_int_eq(t_move(t, "current/v", "current/w", 0), 0);
	t_expect_list(t, "current/w", "f");
	t_seal(t);
	t_expect(t, C "/w/f", "x");
	t_expect(t, C "/v/f", "f\n");
}
END_TEST

START_TEST(test_remove_directories)
{
	/* Objects of older buckets do not keep a directory. */
	ck_assert_int_eq(t_try_mkdir(t, "current/w", 0755), 0);
	t_put(t, "current/w/f", "x");
	ck_assert_int_eq(t_rmdir(t, "current/w"), -ENOTEMPTY);
	t_boundary(t);
	ck_assert_int_eq(t_rmdir(t, "current/w"), 0);
	t_expect_list(t, "current", "d e s");
	t_expect(t, C "/w/f", "x");
	/* Made anew it is another. */
	ck_assert_int_eq(t_try_mkdir(t, "current/w", 0755), 0);
	t_put(t, "current/w/g", "y");
	t_seal(t);
	t_boundary(t);
	t_seal(t);
	t_expect_list(t, C "/w", "f");
	t_expect_list(t, D "/w", "g");
}
END_TEST

/* -- modes of what is new -- */

START_TEST(test_modes)
{
	static const struct varve_caller who = {.uid = 5, .gid = 6, .pid = 1, .umask = 027};
	struct varve_entry e, d;
	struct varve_opened how;

	for (int i = 0; i < 2; i++) {
		uint64_t in = i ? VARVE_ID_STAGING : VARVE_ID_CURRENT;

		ck_assert_int_eq(varve_store_create(t->s, &who, in, "new", 0666, O_WRONLY, &e, &how), 0);
		varve_store_release(t->s, how.fh);
		ck_assert_int_eq(e.attr.st_mode, S_IFREG | 0640);
		ck_assert_int_eq(e.attr.st_uid, 5);
		ck_assert_int_eq(e.attr.st_gid, 6);
		t_forget(t, &e);
		ck_assert_int_eq(varve_store_mknod(t->s, &who, in, "node", S_IFREG | 0600, &e), 0);
		ck_assert_int_eq(e.attr.st_mode, S_IFREG | 0600);
		t_forget(t, &e);
		/* setuid and setgid are never kept on files. */
		ck_assert_int_eq(varve_store_mknod(t->s, &who, in, "suid", S_IFREG | 06755, &e), 0);
		ck_assert_int_eq(e.attr.st_mode, S_IFREG | 0750);
		t_forget(t, &e);
		ck_assert_int_eq(varve_store_mkdir(t->s, &who, in, "dir", 0777, &d), 0);
		ck_assert_int_eq(d.attr.st_mode, S_IFDIR | 0750);
		ck_assert_int_eq(d.attr.st_uid, 5);
		/* The group of a setgid directory goes down. */
		ck_assert_int_eq(t_setattr(t, i ? ".staging/dir" : "current/dir",
					   &(struct stat){.st_gid = 77}, VARVE_SET_GID), 0);
		ck_assert_int_eq(varve_store_symlink(t->s, &who, "x", d.id, "link", &e), 0);
		ck_assert_int_eq(e.attr.st_mode, S_IFLNK | 0777);
		ck_assert_int_eq(e.attr.st_uid, 5);
		t_forget(t, &e);
		t_forget(t, &d);
	}
	ck_assert_int_eq(t_chmod(t, "current/new", 06755), 0);
	ck_assert_int_eq(t_attr(t, "current/new").st_mode, S_IFREG | 0755);
}
END_TEST

static size_t put_acl(unsigned char *b, const unsigned e[][3], size_t n)
{
	varve_put_le32(b, 2);
	for (size_t i = 0; i < n; i++) {
		varve_put_le16(b + 4 + 8 * i, (uint16_t)e[i][0]);
		varve_put_le16(b + 6 + 8 * i, (uint16_t)e[i][1]);
		varve_put_le32(b + 8 + 8 * i, e[i][2]);
	}
	return 4 + 8 * n;
}

/* user::rwx user:33:rw- group::r-x mask::rwx other::--- */
static const unsigned acl[][3] = {
	{1, 7, ~0u}, {2, 6, 33}, {4, 5, ~0u}, {16, 7, ~0u}, {32, 0, ~0u}};

START_TEST(test_default_acl)
{
	static const struct varve_caller who = {.umask = 077};
	const char *dir = _i ? ".staging/e" : "current/e";
	unsigned char b[64], got[64];
	struct varve_entry d, e, sub;
	struct varve_opened how;
	size_t len = put_acl(b, acl, 5);

	ck_assert_int_eq(t_walk(t, dir, &d), 0);
	ck_assert_int_eq(varve_store_setxattr(t->s, &t_root, d.id, "system.posix_acl_default", b, len,
					      0), 0);
	ck_assert_int_eq(varve_store_create(t->s, &who, d.id, "f", 0666, O_WRONLY | O_APPEND, &e, &how),
			 0);
	varve_store_release(t->s, how.fh);
	/* The umask has no say; the mask stands for the group. */
	ck_assert_int_eq(e.attr.st_mode, S_IFREG | 0660);
	ck_assert_int_gt(varve_store_getxattr(t->s, e.id, "system.posix_acl_access", got, sizeof(got)),
			 0);
	ck_assert_uint_eq(varve_get_le32(got + 4 + 8 + 4), 33);
	t_forget(t, &e);
	ck_assert_int_eq(varve_store_mkdir(t->s, &who, d.id, "sub", 0777, &sub), 0);
	ck_assert_msg(sub.attr.st_mode == (S_IFDIR | 0770), "mkdir: %o", sub.attr.st_mode);
	ck_assert_int_eq(varve_store_getxattr(t->s, sub.id, "system.posix_acl_default", got,
					      sizeof(got)), (ssize_t)len);
	ck_assert_int_eq(memcmp(got, b, len), 0);
	ck_assert_int_gt(varve_store_getxattr(t->s, sub.id, "system.posix_acl_access", got,
					      sizeof(got)), 0);
	t_forget(t, &sub);
	/* Less is asked for: less it is. */
	ck_assert_int_eq(varve_store_mkdir(t->s, &who, d.id, "less", 0500, &sub), 0);
	ck_assert_msg(sub.attr.st_mode == (S_IFDIR | 0500), "mkdir: %o", sub.attr.st_mode);
	t_forget(t, &sub);
	t_forget(t, &d);
	if (_i)
		return;
	/* The stream comes back with it. */
	t_boundary(t);
	ck_assert_int_eq(t_attr(t, "current/e/f").st_mode, S_IFREG | 0660);
	ck_assert_int_eq(t_walk(t, "current/e/f", &e), 0);
	ck_assert_int_gt(varve_store_getxattr(t->s, e.id, "system.posix_acl_access", got, sizeof(got)),
			 0);
	t_forget(t, &e);
	t_append(t, "current/e/f", "x\n");
	ck_assert_int_eq(t_walk(t, "current/e/f", &e), 0);
	ck_assert_int_eq(e.attr.st_mode, S_IFREG | 0660);
	ck_assert_int_gt(varve_store_getxattr(t->s, e.id, "system.posix_acl_access", got, sizeof(got)),
			 0);
	t_forget(t, &e);
	ck_assert_int_eq(t_attr(t, "current/e/sub").st_mode, S_IFDIR | 0770);
	t_seal(t);
	ck_assert_int_eq(t_attr(t, C "/e/f").st_mode, S_IFREG | 0660);
	ck_assert_int_eq(t_attr(t, C "/e/sub").st_mode, S_IFDIR | 0770);
}
END_TEST

START_TEST(test_xattrs)
{
	static const char *const paths[] = {"current/s", "current/d", ".staging/o", ".staging/d", B "/s"};
	char list[256];
	struct varve_entry e;

	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		ck_assert_int_eq(t_setxattr(t, paths[i], "user.a", "one"), 0);
		ck_assert_int_eq(t_setxattr(t, paths[i], "user.b", "two"), 0);
		t_expect_xattr(t, paths[i], "user.a", "one");
		ck_assert_int_eq(t_setxattr(t, paths[i], "user.b", NULL), 0);
		t_expect_xattr(t, paths[i], "user.b", NULL);
		ck_assert_int_eq(t_setxattr(t, paths[i], "user.b", NULL), -ENODATA);
		ck_assert_int_eq(t_setxattr(t, paths[i], "trusted.a", "x"), -EOPNOTSUPP);
		ck_assert_int_eq(t_setxattr(t, paths[i], "security.capability", "x"), -EOPNOTSUPP);
		/* The store's own are not for writing, and not listed. */
		ck_assert_int_eq(t_setxattr(t, paths[i], "user.varve.ino", "7"), -EPERM);
		ck_assert_int_eq(t_setxattr(t, paths[i], "user.varve.state", "x"), -EPERM);
		ck_assert_int_eq(t_walk(t, paths[i], &e), 0);
		ck_assert_int_eq(varve_store_listxattr(t->s, e.id, list, sizeof(list)), 7);
		ck_assert_str_eq(list, "user.a");
		ck_assert_int_eq(varve_store_listxattr(t->s, e.id, NULL, 0), 7);
		ck_assert_int_eq(varve_store_listxattr(t->s, e.id, list, 6), -ERANGE);
		ck_assert_int_eq(varve_store_getxattr(t->s, e.id, "user.a", NULL, 0), 3);
		ck_assert_int_eq(varve_store_getxattr(t->s, e.id, "user.a", list, 2), -ERANGE);
		ck_assert_int_eq(varve_store_setxattr(t->s, &t_root, e.id, "user.a", "x", 1,
						      XATTR_CREATE), -EEXIST);
		ck_assert_int_eq(varve_store_setxattr(t->s, &t_root, e.id, "user.c", "x", 1,
						      XATTR_REPLACE), -ENODATA);
		t_forget(t, &e);
	}
	t_seal(t);
	t_expect_xattr(t, B "/s", "user.a", "one");
	t_expect_xattr(t, A "/s", "user.a", NULL);
	t_expect_xattr(t, A, "user.varve.state", "sealed");
	ck_assert_int_eq(t_setxattr(t, A, "user.varve.hold", "1"), 0);
	t_expect_xattr(t, A, "user.varve.hold", "1");
	ck_assert_int_eq(t_rmdir(t, A), -EBUSY);
	ck_assert_int_eq(t_setxattr(t, A, "user.varve.hold", NULL), 0);
	ck_assert_int_eq(t_rmdir(t, A), 0);
}
END_TEST

/* -- listing -- */

/* Reads a few, removes what was read, reads on: each of the rest comes once, none is missed. */
static void list_and_remove(const char *dir, unsigned n_files)
{
	struct varve_entry e;
	uint64_t dh, off = 0;
	unsigned seen = 0;
	char path[128];

	ck_assert_int_eq(t_walk(t, dir, &e), 0);
	ck_assert_int_eq(varve_store_opendir(t->s, e.id, &dh), 0);
	for (;;) {
		struct tlist l = {.most = 7};

		ck_assert_int_eq(varve_store_readdir(t->s, dh, off, seen % 2, t_list_one, &l), 0);
		if (!l.n)
			break;
		off = l.next[l.n - 1];
		for (size_t i = 0; i < l.n; i++) {
			if (l.names[i][0] == '.')
				continue;
			(void)snprintf(path, sizeof(path), "%s/%s", dir, l.names[i]);
			if (seen % 2 && l.inos[i])
				varve_store_forget(t->s, l.inos[i], 1);
			ck_assert_int_eq(t_unlink(t, path), 0);
			seen++;
		}
		t_list_done(&l);
	}
	ck_assert_uint_eq(seen, n_files);
	/* rewinddir(3) sees what is so now. */
	{
		struct tlist l = {.most = 512};

		ck_assert_int_eq(varve_store_readdir(t->s, dh, 0, false, t_list_one, &l), 0);
		ck_assert_uint_eq(l.n, 2);
		t_list_done(&l);
	}
	varve_store_releasedir(t->s, dh);
	t_forget_dir(t, &e);
	t_expect_list(t, dir, "");
}

START_TEST(test_listing_while_names_go)
{
	char path[64];

	for (int i = 0; i < 200; i++) {
		(void)snprintf(path, sizeof(path), i % 2 ? "current/e/f%d" : ".staging/e/f%d", i);
		t_append(t, path, "x\n");
	}
	list_and_remove(".staging/e", 100);
	switch (_i) {
	case 0:
		list_and_remove("current/e", 100);
		break;
	case 1:
		t_boundary(t);
		list_and_remove(C "/e", 100);
		/* Streams without a part. */
		list_and_remove("current/e", 100);
		break;
	case 2:
		t_boundary(t);
		t_seal(t);
		list_and_remove(C "/e", 100);
		break;
	}
}
END_TEST

START_TEST(test_listing_while_names_come)
{
	struct tlist l = {.most = 4}, rest = {.most = 512};
	char path[64];
	struct varve_entry e;
	uint64_t dh;

	for (int i = 0; i < 20; i++) {
		(void)snprintf(path, sizeof(path), "current/e/f%d", i);
		t_append(t, path, "");
	}
	ck_assert_int_eq(t_walk(t, "current/e", &e), 0);
	ck_assert_int_eq(varve_store_opendir(t->s, e.id, &dh), 0);
	ck_assert_int_eq(varve_store_readdir(t->s, dh, 0, false, t_list_one, &l), 0);
	for (int i = 0; i < 20; i++) {
		(void)snprintf(path, sizeof(path), "current/e/a%d", i);
		t_append(t, path, "");
	}
	ck_assert_int_eq(varve_store_readdir(t->s, dh, l.next[3], false, t_list_one, &rest), 0);
	ck_assert_uint_eq(l.n + rest.n, 22);
	for (size_t i = 0; i < l.n; i++)
		for (size_t k = 0; k < rest.n; k++)
			ck_assert_str_ne(l.names[i], rest.names[k]);
	t_list_done(&rest);
	/* An offset beyond the end is the end. */
	ck_assert_int_eq(varve_store_readdir(t->s, dh, 4711, false, t_list_one, &rest), 0);
	ck_assert_int_eq(varve_store_readdir(t->s, dh, INT64_MAX, false, t_list_one, &rest), 0);
	ck_assert_uint_eq(rest.n, 0);
	/* The same handle over a boundary, and when the directory is gone. */
	t_boundary(t);
	ck_assert_int_eq(varve_store_readdir(t->s, dh, 0, false, t_list_one, &rest), 0);
	ck_assert_uint_eq(rest.n, 42);
	t_list_done(&rest);
	t_list_done(&l);
	varve_store_releasedir(t->s, dh);
	t_forget(t, &e);
}
END_TEST

struct plus {
	uint64_t ids[64];
	size_t n, most;
};

static bool take_plus(void *ctx, const char *name, const struct varve_entry *entry, uint64_t next)
{
	struct plus *p = ctx;

	(void)next;
	if (p->n == p->most)
		return false;
	if (!strcmp(name, ".") || !strcmp(name, "..")) {
		ck_assert_uint_eq(entry->id, 0);
		return true;
	}
	ck_assert_uint_ne(entry->id, 0);
	ck_assert_uint_ne(entry->attr.st_mode & S_IFMT, 0);
	p->ids[p->n++] = entry->id;
	return true;
}

/* readdirplus hands out one reference each, and none for what was not taken. */
START_TEST(test_listing_plus)
{
	static const char *const dirs[] = {"", "current", ".staging", A, B, A "/d", "current/d"};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++)
		for (size_t most = 0; most < 7; most++) {
			struct plus p = {.most = most};
			struct varve_entry e;
			uint64_t dh;

			ck_assert_int_eq(t_walk(t, dirs[i], &e), 0);
			ck_assert_int_eq(varve_store_opendir(t->s, e.id, &dh), 0);
			ck_assert_int_eq(varve_store_readdir(t->s, dh, 0, true, take_plus, &p), 0);
			varve_store_releasedir(t->s, dh);
			for (size_t k = 0; k < p.n; k++)
				varve_store_forget(t->s, p.ids[k], 1);
			t_forget_dir(t, &e);
			t_check(t);
		}
	expect_all();
}
END_TEST

START_TEST(test_dots)
{
	struct tlist l = {.most = 512};
	struct varve_entry up, e;
	uint64_t dh;

	static const char *const pairs[][2] = {{"current", "current/d"}, {".staging", ".staging/d"},
					       {A, A "/d"}, {B, B "/d"}, {"", "current"}, {"", A},
					       {"", B}, {"", ".staging"}};
	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
		ck_assert_int_eq(t_walk(t, pairs[i][0], &up), 0);
		ck_assert_int_eq(t_walk(t, pairs[i][1], &e), 0);
		ck_assert_int_eq(varve_store_opendir(t->s, e.id, &dh), 0);
		ck_assert_int_eq(varve_store_readdir(t->s, dh, 0, false, t_list_one, &l), 0);
		for (size_t k = 0; k < l.n; k++) {
			if (!strcmp(l.names[k], "."))
				ck_assert_uint_eq(l.inos[k], e.attr.st_ino);
			if (!strcmp(l.names[k], ".."))
				ck_assert_msg(l.inos[k] == (i < 4 ? up.attr.st_ino : VARVE_ID_ROOT),
					      "%s/..: %llu", pairs[i][1],
					      (unsigned long long)l.inos[k]);
		}
		t_list_done(&l);
		varve_store_releasedir(t->s, dh);
		t_forget(t, &e);
		t_forget_dir(t, &up);
	}
}
END_TEST

START_TEST(test_the_link_to_current)
{
	struct varve_entry e;
	char target[32];

	ck_assert_int_eq(t_walk(t, C, &e), 0);
	ck_assert(S_ISLNK(e.attr.st_mode));
	ck_assert_int_eq(e.attr.st_size, 7);
	ck_assert_int_eq(varve_store_readlink(t->s, e.id, target, sizeof(target)), 0);
	ck_assert_str_eq(target, "current");
	/* Its name may be cached until the boundary, and not a moment longer. */
	ck_assert_int_eq(e.entry_valid_ns, t->s->current->end_ns - t_now(t));
	t_forget(t, &e);
	t_boundary(t);
	ck_assert_int_eq(t_walk(t, C, &e), 0);
	ck_assert(S_ISDIR(e.attr.st_mode));
	ck_assert_int_eq(varve_store_readlink(t->s, e.id, target, sizeof(target)), -EINVAL);
	t_forget(t, &e);
	ck_assert_int_eq(t_walk(t, A "/l", &e), 0);
	ck_assert_int_eq(varve_store_readlink(t->s, e.id, target, 3), 0);
	ck_assert_str_eq(target, "d/");
	t_forget(t, &e);
}
END_TEST

/* -- dropping by name -- */

static void remove_all(const char *dir)
{
	static const char *const files[] = {"d/f", "l", "o", "s"};
	char path[64];

	for (int i = 0; i < 4; i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
		ck_assert_int_eq(t_unlink(t, path), 0);
		ck_assert_int_eq(t_unlink(t, path), -ENOENT);
		t_expect_r(t, path, -ENOENT);
	}
	(void)snprintf(path, sizeof(path), "%s/d", dir);
	ck_assert_int_eq(t_rmdir(t, path), 0);
	(void)snprintf(path, sizeof(path), "%s/e", dir);
	ck_assert_int_eq(t_rmdir(t, path), 0);
	t_expect_list(t, dir, "");
}

START_TEST(test_rm_r)
{
	remove_all(A);
	t_close(t);
	t_open(t);
	t_expect_list(t, A, "");
	ck_assert_int_eq(t_rmdir(t, A), 0);
	t_expect_r(t, A, -ENOENT);
	ck_assert_uint_eq(t_audited(t, "drop", A), 1);
	remove_all(B);
	ck_assert_int_eq(t_rmdir(t, B), 0);
	t_expect_list(t, "", ".staging " C " current");
	t_expect_list(t, "current", "d e l o s");
	ck_assert_msg(strstr(t->gone, A " ") && strstr(t->gone, B " "), "%s", t->gone);
	t_pass(t, T_HOUR / 4);
	t_reap(t);
	t_expect_dir(t_at(t, "meta/tombs"), "");
	t_expect_dir(t_at(t, "trash"), "");
}
END_TEST

START_TEST(test_rmdir_as_posix_has_it)
{
	t_close(t);
	t_option(t, "rmdir", "posix");
	t_open(t);
	ck_assert_int_eq(t_rmdir(t, A), -ENOTEMPTY);
	ck_assert_int_eq(t_rmdir(t, B), -ENOTEMPTY);
	expect_all();
	remove_all(A);
	remove_all(B);
	ck_assert_int_eq(t_rmdir(t, A), 0);
	ck_assert_int_eq(t_rmdir(t, B), 0);
	t_expect_list(t, "", ".staging " C " current");
}
END_TEST

START_TEST(test_drop_and_undrop)
{
	struct varve_err err;
	uint64_t s = t_ino(t, A "/s"), f = t_ino(t, B "/d/f"), a = t_ino(t, A);

	ck_assert_int_eq(t_drop(t, C), -EBUSY);
	ck_assert_int_eq(t_drop(t, "2026-12-02"), -ENOENT);
	ck_assert_int_eq(t_drop(t, "nonsense"), -ENOENT);
	ck_assert_int_eq(varve_store_undrop(t->s, &t_root, A, &err), -ENOENT);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(t_rmdir(t, A), 0);
		ck_assert_int_eq(t_rmdir(t, B), 0);
		t_expect_list(t, "", ".staging " C " current");
		/* Also after a remount. */
		if (i == 1) {
			t_close(t);
			t_open(t);
		}
		t_reap(t);
		ck_assert_int_eq(varve_store_undrop(t->s, &t_root, A, &err), 0);
		ck_assert_int_eq(varve_store_undrop(t->s, &t_root, B, &err), 0);
		ck_assert_int_eq(varve_store_undrop(t->s, &t_root, A, &err), -ENOENT);
		expect_all();
		ck_assert_uint_eq(t_ino(t, A "/s"), s);
		ck_assert_uint_eq(t_ino(t, B "/d/f"), f);
		ck_assert_uint_eq(t_ino(t, A), a);
	}
	/* A tombstone stays one. */
	ck_assert_int_eq(t_unlink(t, A "/o"), 0);
	ck_assert_int_eq(t_rmdir(t, A), 0);
	ck_assert_int_eq(varve_store_undrop(t->s, &t_root, A, &err), 0);
	t_expect_list(t, A, "d e l s");
	/* Its time is over. */
	ck_assert_int_eq(t_rmdir(t, A), 0);
	t_pass(t, 11 * T_MINUTE);
	t_reap(t);
	ck_assert_int_eq(varve_store_undrop(t->s, &t_root, A, &err), -ENOENT);
	ck_assert_uint_eq(t_audited(t, "drop", A), 5);
	ck_assert_uint_eq(t_audited(t, "undrop", A), 4);
	t_seal(t);
	t_expect_list(t, B, "d e l o s");
	ck_assert_uint_eq(t_ino(t, B "/d/f"), f);
}
END_TEST

/* Somebody stands in the directories of a bucket while it comes back. */
START_TEST(test_undrop_while_it_is_known)
{
	struct varve_entry a, b, as, bs, e;
	struct varve_err err;

	ck_assert_int_eq(t_walk(t, A "/d", &a), 0);
	ck_assert_int_eq(t_walk(t, B "/d", &b), 0);
	ck_assert_int_eq(t_walk(t, A "/s", &as), 0);
	ck_assert_int_eq(t_walk(t, B "/s", &bs), 0);
	ck_assert_int_eq(t_rmdir(t, A), 0);
	ck_assert_int_eq(t_rmdir(t, B), 0);
	ck_assert_int_ne(varve_store_lookup(t->s, a.id, "f", &e), 0);
	ck_assert_int_eq(varve_store_undrop(t->s, &t_root, A, &err), 0);
	ck_assert_int_eq(varve_store_undrop(t->s, &t_root, B, &err), 0);
	ck_assert_int_eq(varve_store_lookup(t->s, a.id, "f", &e), 0);
	t_forget(t, &e);
	ck_assert_int_eq(varve_store_lookup(t->s, b.id, "f", &e), 0);
	t_forget(t, &e);
	expect_all();
	/* One number, one node. */
	ck_assert_int_eq(t_walk(t, A "/s", &e), 0);
	ck_assert_uint_eq(e.id, as.id);
	t_forget(t, &e);
	ck_assert_int_eq(t_walk(t, B "/s", &e), 0);
	ck_assert_uint_eq(e.id, bs.id);
	t_forget(t, &e);
	t_forget(t, &a);
	t_forget(t, &b);
	t_forget(t, &as);
	t_forget(t, &bs);
	t_seal(t);
	expect_all();
}
END_TEST

static Suite *make_suite(void)
{
	Suite *s = suite_create("store_names");
	TCase *c = tcase_create("store_names"), *e = tcase_create("empty");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_refused);
	tcase_add_loop_test(c, test_allowed, 0, (int)(sizeof(allowed) / sizeof(*allowed)));
	tcase_add_test(c, test_wrong_parents);
	tcase_add_test(c, test_bad_names);
	tcase_add_test(c, test_removed_streams);
	tcase_add_test(c, test_removed_in_a_closing_bucket);
	tcase_add_test(c, test_renamed_streams);
	tcase_add_test(c, test_renamed_over_a_stream);
	tcase_add_test(c, test_logrotate);
	tcase_add_test(c, test_publish_a_file);
	tcase_add_loop_test(c, test_publish_a_directory, 0, 3);
	tcase_add_test(c, test_publish_many);
	tcase_add_test(c, test_move_directory_with_parts);
	tcase_add_test(c, test_move_directory_without_parts);
	tcase_add_test(c, test_move_over_directories);
	tcase_add_test(c, test_remove_directories);
	tcase_add_test(c, test_modes);
	tcase_add_loop_test(c, test_default_acl, 0, 2);
	tcase_add_test(c, test_xattrs);
	tcase_add_loop_test(c, test_listing_while_names_go, 0, 3);
	tcase_add_test(c, test_listing_while_names_come);
	tcase_add_test(c, test_listing_plus);
	tcase_add_test(c, test_dots);
	tcase_add_test(c, test_the_link_to_current);
	tcase_add_test(c, test_rm_r);
	tcase_add_test(c, test_rmdir_as_posix_has_it);
	tcase_add_test(c, test_drop_and_undrop);
	tcase_add_test(c, test_undrop_while_it_is_known);
	suite_add_tcase(s, c);
	tcase_add_checked_fixture(e, empty_set_up, tear_down);
	tcase_set_timeout(e, 60);
	tcase_add_test(e, test_odd_names);
	tcase_add_test(e, test_long_paths);
	suite_add_tcase(s, e);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(make_suite());
	int failed;

	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
