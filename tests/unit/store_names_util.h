/* What the tests of names share: the same few names in a sealed, a closing and the current bucket,
 * and in .staging/. */
#pragma once

#include "../lib/storetest.h"

#define A "2026-12-01T10Z" /* sealed, */
#define B "2026-12-01T11Z" /* closing, */
#define C "2026-12-01T12Z" /* and current, where a test does not say otherwise */
#define D "2026-12-01T13Z"

static struct tstore *t;

/* d/f, e/, o (an object), s (a stream), l (a link) */
T_FN void fill(const char *dir)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/d", dir);
	ck_assert_int_eq(t_try_mkdir(t, path, 0755), 0);
	(void)snprintf(path, sizeof(path), "%s/e", dir);
	ck_assert_int_eq(t_try_mkdir(t, path, 0755), 0);
	(void)snprintf(path, sizeof(path), "%s/l", dir);
	ck_assert_int_eq(t_symlink(t, "d/f", path), 0);
}

T_FN void fill_files(const char *dir)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/d/f", dir);
	t_append(t, path, "f\n");
	(void)snprintf(path, sizeof(path), "%s/o", dir);
	t_put(t, path, "o\n");
	(void)snprintf(path, sizeof(path), "%s/s", dir);
	t_append(t, path, "s\n");
}

T_FN void empty_set_up(void)
{
	t = t_new(A);
	t_open(t);
}

T_FN void set_up(void)
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

T_FN void tear_down(void)
{
	t_free(t);
}

T_FN void expect_all(void)
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

enum op { CREATE, EXCL, MKDIR, SYMLINK, FIFO, UNLINK, RMDIR, MOVE, NOREPLACE, EXCHANGE, LOOKUP };

T_FN int act(enum op op, const char *path, const char *to)
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
