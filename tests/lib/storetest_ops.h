/* The facade by paths instead of ids: names, listing, content. See storetest.h. */
#pragma once

#include "storetest_base.h"

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

/* How many writers the file is taken to have. */
T_FN void t_expect_writers(struct tstore *t, const char *path, uint32_t want)
{
	uint64_t ino = t_ino(t, path);

	guard(&t->s->ns);
	ck_assert_uint_eq(varve_node_by_id(t->s, ino)->writers, want);
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
		ck_assert_msg(c.attr.st_ino == l.inos[i], "%s/%s: readdir says %llu, stat %llu",
			      path, l.names[i], (unsigned long long)l.inos[i],
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
