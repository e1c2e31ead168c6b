/*
 * Names through the facade: what is answered in each kind of directory, odd and bad names, streams
 * and objects when they are removed and renamed. Directories: test_store_dirs.c.
 */
#include "store_names_util.h"

/* -- what is answered -- */

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
	{UNLINK, A "/s", NULL, 0},
	{UNLINK, A "/l", NULL, 0},
	{UNLINK, A "/d/f", NULL, 0},
	{RMDIR, A "/e", NULL, 0},
	{RMDIR, A, NULL, 0},
	{RMDIR, B, NULL, 0},
	{CREATE, B "/x", NULL, 0},
	{MKDIR, B "/x", NULL, 0},
	{SYMLINK, B "/x", NULL, 0},
	{UNLINK, B "/s", NULL, 0},
	{UNLINK, B "/l", NULL, 0},
	{RMDIR, B "/e", NULL, 0},
	{MOVE, B "/s", B "/x", 0},
	{MOVE, B "/s", B "/o", 0},
	{MOVE, B "/s", B "/d/x", 0},
	{MOVE, B "/d", B "/x", 0},
	{MOVE, B "/d", B "/e", 0},
	{MOVE, B "/d", B "/e/x", 0},
	{CREATE, "current/x", NULL, 0},
	{MKDIR, "current/x", NULL, 0},
	{SYMLINK, "current/x", NULL, 0},
	{UNLINK, "current/s", NULL, 0},
	{UNLINK, "current/l", NULL, 0},
	{UNLINK, "current/d/f", NULL, 0},
	{RMDIR, "current/e", NULL, 0},
	{MOVE, "current/s", "current/x", 0},
	{MOVE, "current/s", "current/o", 0},
	{MOVE, "current/o", "current/s", 0},
	{MOVE, "current/l", "current/s", 0},
	{MOVE, "current/s", "current/l", 0},
	{MOVE, "current/d", "current/x", 0},
	{MOVE, "current/d", "current/e", 0},
	{MOVE, "current/d", "current/e/x", 0},
	{MOVE, "current/e", "current/d/e", 0},
	{MOVE, "current/s", "current/d/x", 0},
	{MOVE, "current/d/f", "current/s", 0},
	{NOREPLACE, "current/d", "current/x", 0},
	{NOREPLACE, "current/s", "current/x", 0},
	{CREATE, ".staging/x", NULL, 0},
	{MKDIR, ".staging/x", NULL, 0},
	{SYMLINK, ".staging/x", NULL, 0},
	{UNLINK, ".staging/s", NULL, 0},
	{RMDIR, ".staging/e", NULL, 0},
	{MOVE, ".staging/s", ".staging/o", 0},
	{MOVE, ".staging/d", ".staging/e", 0},
	{MOVE, ".staging/s", "current/x", 0},
	{MOVE, ".staging/s", "current/s", 0},
	{MOVE, ".staging/l", "current/x", 0},
	{MOVE, ".staging/l", "current/s", 0},
	{MOVE, ".staging/s", "current/l", 0},
	{MOVE, ".staging/d", "current/x", 0},
	{MOVE, ".staging/d", "current/e", 0},
	{MOVE, ".staging/e", "current/e", 0},
	{MOVE, ".staging/d", "current/d/x", 0},
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

	ck_assert_msg(r == 0, "operation %d of '%s' ('%s'): %d", c->op, c->path, c->to ? c->to : "",
		      r);
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
	ck_assert_int_eq(varve_store_rename(t->s, 99999999, "x", VARVE_ID_CURRENT, "x", 0),
			 -ESTALE);
	ck_assert_int_eq(varve_store_rename(t->s, VARVE_ID_CURRENT, "s", 99999999, "x", 0),
			 -ESTALE);
	t_expect(t, "current/s", "s\n");
}
END_TEST

/* -- names -- */

START_TEST(test_odd_names)
{
	static const char *const names[] = {"*.example.com.log",
					    "with blank",
					    "new\nline",
					    "\x80\xff",
					    "...",
					    ".hidden",
					    "-rf",
					    "a:b",
					    "CON",
					    "user.varve.ino",
					    "gone,x",
					    ".tmp",
					    "2026-12-01T10Z",
					    "0.tar.zst"};
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
	ck_assert_int_eq(varve_store_mkdir(t->s, &t_root, VARVE_ID_CURRENT, ".", 0755, &e),
			 -EINVAL);
	ck_assert_int_eq(varve_store_mkdir(t->s, &t_root, VARVE_ID_CURRENT, "..", 0755, &e),
			 -EINVAL);
	ck_assert_int_eq(varve_store_mkdir(t->s, &t_root, VARVE_ID_CURRENT, "a/b", 0755, &e),
			 -EINVAL);
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
			(void)snprintf(from, sizeof(from), i > 1 ? "current/s.%d" : "current/s",
				       i - 1);
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
	return t_main(make_suite());
}
