/* Listing directories while names come and go; buckets as directories: rmdir, rm -r, undrop. */
#include "store_names_util.h"

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

/* The kernel keeps what one handle has read of a sealed directory, and goes on with another. */
START_TEST(test_a_sealed_cookie_is_the_same_for_every_handle)
{
	struct tlist first = {.most = 9}, rest = {.most = 512};
	struct varve_entry e;
	uint64_t live, a, b;
	char path[64];

	for (int i = 0; i < 40; i++) {
		(void)snprintf(path, sizeof(path), "current/e/f%02d", i);
		if (i % 2 == 0)
			ck_assert_int_eq(t_try_mkdir(t, path, 0755), 0);
		if (i % 2 == 0)
			(void)strcat(path, "/g");
		t_append(t, path, "x\n");
	}
	ck_assert_int_eq(t_walk(t, "current/e", &e), 0);
	ck_assert_int_eq(varve_store_opendir(t->s, e.id, &live), 0);
	ck_assert(!varve_store_dir_is_final(t->s, live));
	varve_store_releasedir(t->s, live);
	t_forget_dir(t, &e);
	t_boundary(t);
	t_seal(t);
	ck_assert_int_eq(t_walk(t, C "/e", &e), 0);
	ck_assert_int_eq(varve_store_opendir(t->s, e.id, &a), 0);
	ck_assert(varve_store_dir_is_final(t->s, a));
	ck_assert_int_eq(varve_store_readdir(t->s, a, 0, false, t_list_one, &first), 0);
	ck_assert_uint_eq(first.n, 9);
	for (int i = 1; i < 20; i += 2) {
		(void)snprintf(path, sizeof(path), C "/e/f%02d", i);
		ck_assert_int_eq(t_unlink(t, path), 0);
	}
	ck_assert_int_eq(varve_store_opendir(t->s, e.id, &b), 0);
	ck_assert_int_eq(varve_store_readdir(t->s, b, first.next[8], false, t_list_one, &rest), 0);
	/* Behind "." to "f06": of 33, f07 to f19 have lost seven. */
	ck_assert_uint_eq(rest.n, 26);
	ck_assert_str_eq(first.names[8], "f06");
	ck_assert_str_eq(rest.names[0], "f08");
	ck_assert_str_eq(rest.names[25], "f39");
	t_list_done(&first);
	t_list_done(&rest);
	/* A place between two names, which no cookie means: no path with a '/' comes of it. */
	ck_assert_int_eq(varve_store_readdir(t->s, b, first.next[2] - 1, false, t_list_one, &rest), 0);
	for (size_t i = 0; i < rest.n; i++)
		ck_assert_ptr_null(strchr(rest.names[i], '/'));
	t_list_done(&rest);
	varve_store_releasedir(t->s, a);
	varve_store_releasedir(t->s, b);
	t_forget_dir(t, &e);
}
END_TEST

/* Whoever is in the middle of a directory when its bucket is dropped meets its end. */
START_TEST(test_listing_a_dropped_bucket_ends)
{
	struct tlist l = {.most = 3};
	struct varve_entry e;
	uint64_t dh;
	char path[64];

	for (int i = 0; i < 10; i++) {
		(void)snprintf(path, sizeof(path), "current/e/f%d", i);
		t_append(t, path, "x\n");
	}
	t_boundary(t);
	t_seal(t);
	ck_assert_int_eq(t_walk(t, C "/e", &e), 0);
	ck_assert_int_eq(varve_store_opendir(t->s, e.id, &dh), 0);
	ck_assert_int_eq(varve_store_readdir(t->s, dh, 0, false, t_list_one, &l), 0);
	ck_assert_int_eq(t_rmdir(t, C), 0);
	ck_assert_int_eq(varve_store_readdir(t->s, dh, l.next[2], false, t_list_one, &l), -ENOENT);
	t_list_done(&l);
	varve_store_releasedir(t->s, dh);
	t_forget_dir(t, &e);
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

	static const char *const pairs[][2] = {{"current", "current/d"},
					       {".staging", ".staging/d"},
					       {A, A "/d"},
					       {B, B "/d"},
					       {"", "current"},
					       {"", A},
					       {"", B},
					       {"", ".staging"}};
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

T_MAIN("store_listing", 60)
{
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(tc, test_listing_while_names_go, 0, 3);
	tcase_add_test(tc, test_a_sealed_cookie_is_the_same_for_every_handle);
	tcase_add_test(tc, test_listing_a_dropped_bucket_ends);
	tcase_add_test(tc, test_listing_while_names_come);
	tcase_add_test(tc, test_listing_plus);
	tcase_add_test(tc, test_dots);
	tcase_add_test(tc, test_the_link_to_current);
	tcase_add_test(tc, test_rm_r);
	tcase_add_test(tc, test_rmdir_as_posix_has_it);
	tcase_add_test(tc, test_drop_and_undrop);
	tcase_add_test(tc, test_undrop_while_it_is_known);
}
