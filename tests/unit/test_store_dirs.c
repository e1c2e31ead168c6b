/*
 * Directories through the facade: publishing, renames of directories, modes and ACLs of what is
 * new.
 */
#include "store_names_util.h"

/* -- publishing -- */

START_TEST(test_publish_a_file)
{
	struct tfile f = t_file_open(t, ".staging/o", O_WRONLY),
		     r = t_file_open(t, "current/s", O_RDONLY);
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

		ck_assert_int_eq(
			varve_store_create(t->s, &who, in, "new", 0666, O_WRONLY, &e, &how), 0);
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
					   &(struct stat){.st_gid = 77}, VARVE_SET_GID),
				 0);
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
static const unsigned acl[][3] = {{1, 7, ~0u}, {2, 6, 33}, {4, 5, ~0u}, {16, 7, ~0u}, {32, 0, ~0u}};

START_TEST(test_default_acl)
{
	static const struct varve_caller who = {.umask = 077};
	const char *dir = _i ? ".staging/e" : "current/e";
	unsigned char b[64], got[64];
	struct varve_entry d, e, sub;
	struct varve_opened how;
	size_t len = put_acl(b, acl, 5);

	ck_assert_int_eq(t_walk(t, dir, &d), 0);
	ck_assert_int_eq(
		varve_store_setxattr(t->s, &t_root, d.id, "system.posix_acl_default", b, len, 0),
		0);
	ck_assert_int_eq(
		varve_store_create(t->s, &who, d.id, "f", 0666, O_WRONLY | O_APPEND, &e, &how), 0);
	varve_store_release(t->s, how.fh);
	/* The umask has no say; the mask stands for the group. */
	ck_assert_int_eq(e.attr.st_mode, S_IFREG | 0660);
	ck_assert_int_gt(
		varve_store_getxattr(t->s, e.id, "system.posix_acl_access", got, sizeof(got)), 0);
	ck_assert_uint_eq(varve_get_le32(got + 4 + 8 + 4), 33);
	t_forget(t, &e);
	ck_assert_int_eq(varve_store_mkdir(t->s, &who, d.id, "sub", 0777, &sub), 0);
	ck_assert_msg(sub.attr.st_mode == (S_IFDIR | 0770), "mkdir: %o", sub.attr.st_mode);
	ck_assert_int_eq(
		varve_store_getxattr(t->s, sub.id, "system.posix_acl_default", got, sizeof(got)),
		(ssize_t)len);
	ck_assert_int_eq(memcmp(got, b, len), 0);
	ck_assert_int_gt(
		varve_store_getxattr(t->s, sub.id, "system.posix_acl_access", got, sizeof(got)), 0);
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
	ck_assert_int_gt(
		varve_store_getxattr(t->s, e.id, "system.posix_acl_access", got, sizeof(got)), 0);
	t_forget(t, &e);
	t_append(t, "current/e/f", "x\n");
	ck_assert_int_eq(t_walk(t, "current/e/f", &e), 0);
	ck_assert_int_eq(e.attr.st_mode, S_IFREG | 0660);
	ck_assert_int_gt(
		varve_store_getxattr(t->s, e.id, "system.posix_acl_access", got, sizeof(got)), 0);
	t_forget(t, &e);
	ck_assert_int_eq(t_attr(t, "current/e/sub").st_mode, S_IFDIR | 0770);
	t_seal(t);
	ck_assert_int_eq(t_attr(t, C "/e/f").st_mode, S_IFREG | 0660);
	ck_assert_int_eq(t_attr(t, C "/e/sub").st_mode, S_IFDIR | 0770);
}
END_TEST

START_TEST(test_xattrs)
{
	static const char *const paths[] = {"current/s", "current/d", ".staging/o", ".staging/d",
					    B "/s"};
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
		ck_assert_int_eq(
			varve_store_setxattr(t->s, &t_root, e.id, "user.a", "x", 1, XATTR_CREATE),
			-EEXIST);
		ck_assert_int_eq(
			varve_store_setxattr(t->s, &t_root, e.id, "user.c", "x", 1, XATTR_REPLACE),
			-ENODATA);
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

T_MAIN("store_dirs", 60)
{
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_publish_a_file);
	tcase_add_loop_test(tc, test_publish_a_directory, 0, 3);
	tcase_add_test(tc, test_publish_many);
	tcase_add_test(tc, test_move_directory_with_parts);
	tcase_add_test(tc, test_move_directory_without_parts);
	tcase_add_test(tc, test_move_over_directories);
	tcase_add_test(tc, test_remove_directories);
	tcase_add_test(tc, test_modes);
	tcase_add_loop_test(tc, test_default_acl, 0, 2);
	tcase_add_test(tc, test_xattrs);
}
