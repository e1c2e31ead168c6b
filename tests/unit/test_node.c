/* Nodes: trees in memory, the table of ids, paths, references. No disk. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "../lib/unit.h"
#include "store/core.h"
#include "store/entry.h"

/* Cheap when it holds: for loops of many thousands. */
#define HOLDS(x)                                                                                   \
	do {                                                                                       \
		if (!(x))                                                                          \
			ck_abort_msg("%s", #x);                                                    \
	} while (0)

static struct varve_store *s;

static void set_up(void)
{
	s = calloc(1, sizeof(*s));
	ck_assert_ptr_nonnull(s);
	(void)pthread_mutex_init(&s->ns, NULL);
	s->root = varve_node_new(s, VARVE_KIND_SDIR, VARVE_ID_CURRENT);
	s->root->attr.st_mode = S_IFDIR | 0755;
}

static void tear_down(void)
{
	ck_assert_uint_eq(s->root->n_children, 0);
	varve_node_unref(s, s->root);
	ck_assert_uint_eq(s->n_ids, 0);
	free(s->id_chains);
	(void)pthread_mutex_destroy(&s->ns);
	free(s);
}

/* A child with a number, owned by its parent alone. */
static struct varve_node *child(struct varve_node *parent, const char *name, uint64_t ino)
{
	struct varve_node *n = varve_node_new(s, VARVE_KIND_FILE, ino);

	HOLDS(n);
	HOLDS(varve_node_link(parent, n, name) == 0);
	varve_node_unref(s, n);
	return n;
}

START_TEST(test_new)
{
	struct varve_node *n = varve_node_new(s, VARVE_KIND_FILE, 2000);

	ck_assert_uint_eq(n->refs, 1);
	ck_assert_uint_eq(n->attr.st_ino, 2000);
	ck_assert(!n->linked);
	ck_assert_ptr_eq(varve_node_by_id(s, 2000), n);
	ck_assert_ptr_eq(varve_node_by_id(s, 2000 | VARVE_ID_DATED), n);
	ck_assert_ptr_null(varve_node_by_id(s, 2001));
	ck_assert_ptr_null(varve_node_by_id(s, 0));
	ck_assert_ptr_null(varve_node_by_id(s, UINT64_MAX));
	ck_assert_ptr_eq(varve_node_ref(n), n);
	varve_node_unref(s, n);
	ck_assert_ptr_eq(varve_node_by_id(s, 2000), n);
	varve_node_unref(s, n);
	ck_assert_ptr_null(varve_node_by_id(s, 2000));
	varve_node_unref(s, NULL);
}
END_TEST

/* Markers have no id. */
/* What was made ahead is used up first, and is as good as new; what is left of it goes. */
START_TEST(test_made_ahead)
{
	struct varve_node *n[3], *ahead[2];

	varve_node_prepare(s, 2);
	ahead[0] = s->spare;
	ahead[1] = ahead[0]->id_next;
	ck_assert_ptr_null(ahead[1]->id_next);
	for (int i = 0; i < 3; i++) {
		n[i] = varve_node_new(s, VARVE_KIND_FILE, (uint64_t)(100 + i));
		ck_assert_ptr_nonnull(n[i]);
		ck_assert(i == 2 || n[i] == ahead[i]);
		ck_assert_ptr_eq(varve_node_by_id(s, (uint64_t)(100 + i)), n[i]);
		ck_assert_uint_eq(n[i]->attr.st_ino, (uint64_t)(100 + i));
	}
	for (int i = 0; i < 3; i++)
		varve_node_unref(s, n[i]);
	varve_node_prepare(s, 5);
	varve_node_prepare(s, 0);
	ck_assert_ptr_null(s->spare);
}
END_TEST

START_TEST(test_stream)
{
	struct varve_node *n = varve_node_new(s, VARVE_KIND_STREAM, 0);

	ck_assert_uint_eq(s->n_ids, 1);
	ck_assert_ptr_null(varve_node_by_id(s, 0));
	ck_assert_int_eq(varve_node_link(s->root, n, "s"), 0);
	varve_node_unref(s, n);
	ck_assert_ptr_eq(varve_node_child(s->root, "s"), n);
	varve_node_unlink(s, n);
	ck_assert_uint_eq(s->n_ids, 1);
}
END_TEST

START_TEST(test_link)
{
	struct varve_node *a = child(s->root, "a", 2000), *b = child(s->root, "b", 2001);

	ck_assert_uint_eq(s->root->n_children, 2);
	ck_assert_uint_eq(a->refs, 1);
	ck_assert_uint_eq(s->root->refs, 3);
	ck_assert(a->linked);
	ck_assert_ptr_eq(a->parent, s->root);
	ck_assert_str_eq(a->name, "a");
	ck_assert_ptr_eq(varve_node_child(s->root, "a"), a);
	ck_assert_ptr_eq(varve_node_child(s->root, "b"), b);
	ck_assert_ptr_null(varve_node_child(s->root, "c"));
	ck_assert_ptr_null(varve_node_child(a, "a"));
	/* Held while its name goes. */
	(void)varve_node_ref(a);
	varve_node_unlink(s, a);
	ck_assert(!a->linked);
	ck_assert_ptr_null(a->parent);
	ck_assert_ptr_null(varve_node_child(s->root, "a"));
	ck_assert_ptr_eq(varve_node_by_id(s, 2000), a);
	varve_node_unlink(s, a);
	ck_assert_uint_eq(s->root->n_children, 1);
	/* And put elsewhere, under another name. */
	ck_assert_int_eq(varve_node_link(b, a, "deep"), 0);
	varve_node_unref(s, a);
	ck_assert_ptr_eq(varve_node_child(b, "deep"), a);
	ck_assert_str_eq(a->name, "deep");
	varve_tree_drop(s, b);
	ck_assert_uint_eq(s->n_ids, 1);
}
END_TEST

static void count_one(void *ctx, struct varve_node *n)
{
	unsigned char *seen = ctx;

	HOLDS(n->ino >= 10000);
	seen[n->ino - 10000]++;
}

/* Tables grow, and whoever is in them is found all the way. */
START_TEST(test_many)
{
	enum { N = 20000 };
	unsigned char *seen = calloc(N, 1);
	char name[32];

	for (unsigned i = 0; i < N; i++) {
		(void)snprintf(name, sizeof(name), "file-%u", i);
		(void)child(s->root, name, 10000 + i);
		if ((i & (i - 1)) == 0)
			for (unsigned k = 0; k <= i; k++) {
				(void)snprintf(name, sizeof(name), "file-%u", k);
				HOLDS(varve_node_child(s->root, name)->ino == 10000 + k);
				HOLDS(varve_node_by_id(s, 10000 + k)->ino == 10000 + k);
			}
	}
	ck_assert_uint_eq(s->n_ids, N + 1);
	ck_assert_uint_eq(s->root->n_children, N);
	/* At a load of one at most. */
	ck_assert_uint_ge(s->n_id_chains, N);
	ck_assert_uint_ge(s->root->n_chains, N);
	varve_node_each(s->root, count_one, seen);
	for (unsigned i = 0; i < N; i++)
		HOLDS(seen[i] == 1);
	/* Every other goes, in an order of its own. */
	for (unsigned i = 0; i < N; i += 2) {
		unsigned k = (i * 7919u) % N & ~1u;
		struct varve_node *n;

		(void)snprintf(name, sizeof(name), "file-%u", k);
		n = varve_node_child(s->root, name);
		if (n)
			varve_node_unlink(s, n);
	}
	for (unsigned i = 1; i < N; i += 2) {
		(void)snprintf(name, sizeof(name), "file-%u", i);
		HOLDS(varve_node_child(s->root, name));
	}
	while (s->root->n_children)
		for (uint32_t c = 0; c < s->root->n_chains; c++)
			if (s->root->chains[c])
				varve_node_unlink(s, s->root->chains[c]);
	ck_assert_uint_eq(s->n_ids, 1);
	free(seen);
}
END_TEST

static void unlink_it(void *ctx, struct varve_node *n)
{
	(void)ctx;
	varve_node_unlink(s, n);
}

/* The one it is called for may go. */
START_TEST(test_each_takes_its_own_away)
{
	char name[32];

	for (unsigned i = 0; i < 100; i++) {
		(void)snprintf(name, sizeof(name), "%u", i);
		(void)child(s->root, name, 10000 + i);
	}
	varve_node_each(s->root, unlink_it, NULL);
	ck_assert_uint_eq(s->root->n_children, 0);
	ck_assert_uint_eq(s->n_ids, 1);
}
END_TEST

static void expect_path(const struct varve_node *n, const char *extra, const char *want)
{
	char *path = varve_node_path(n, extra);

	ck_assert_str_eq(path, want);
	free(path);
}

START_TEST(test_path)
{
	struct varve_node *a = child(s->root, "a", 2000), *b = child(a, "b with blank", 2001),
			  *c = child(b, "\xff", 2002);

	expect_path(s->root, NULL, "");
	expect_path(s->root, "x", "x");
	expect_path(a, NULL, "a");
	expect_path(a, "x", "a/x");
	expect_path(b, NULL, "a/b with blank");
	expect_path(c, NULL, "a/b with blank/\xff");
	expect_path(c, "long name here", "a/b with blank/\xff/long name here");
	/* A node without a parent is a root of its own. */
	(void)varve_node_ref(b);
	varve_node_unlink(s, b);
	expect_path(c, NULL, "\xff");
	varve_tree_drop(s, c);
	varve_node_unref(s, b);
	varve_node_unlink(s, a);
}
END_TEST

/* As deep as paths go: neither paths nor taking the tree apart recurse. */
START_TEST(test_deep)
{
	enum { DEPTH = 100000 };
	struct varve_node *n = s->root, *top = NULL;
	char *path;

	for (unsigned i = 0; i < DEPTH; i++) {
		n = child(n, "d", 10000 + i);
		top = top ? top : n;
	}
	path = varve_node_path(n, "f");
	ck_assert_uint_eq(strlen(path), 2 * DEPTH + 1);
	ck_assert_str_eq(path + 2 * DEPTH - 4, "d/d/f");
	free(path);
	varve_tree_drop(s, top);
	ck_assert_uint_eq(s->n_ids, 1);
}
END_TEST

START_TEST(test_tree_drop)
{
	struct varve_node *a = child(s->root, "a", 2000), *held = NULL;
	char name[32];

	for (unsigned i = 0; i < 50; i++) {
		struct varve_node *d;

		(void)snprintf(name, sizeof(name), "d%u", i);
		d = child(a, name, 3000 + 100 * i);
		for (unsigned k = 1; k < 50; k++) {
			(void)snprintf(name, sizeof(name), "f%u", k);
			(void)child(d, name, 3000 + 100 * i + k);
		}
		if (i == 25)
			held = varve_node_ref(varve_node_child(d, "f7"));
	}
	(void)child(s->root, "b", 2001);
	varve_tree_drop(s, a);
	ck_assert_uint_eq(s->root->n_children, 1);
	/* What somebody holds stays, nameless. */
	ck_assert_uint_eq(s->n_ids, 3);
	ck_assert(!held->linked);
	ck_assert_ptr_eq(varve_node_by_id(s, held->ino), held);
	varve_node_unref(s, held);
	varve_tree_drop(s, varve_node_child(s->root, "b"));
	ck_assert_uint_eq(s->n_ids, 1);
}
END_TEST

/* A chain of successors, however long, goes with its last holder. */
START_TEST(test_successors)
{
	enum { N = 100000 };
	struct varve_node *first = varve_node_new(s, VARVE_KIND_FILE, 10000), *n = first;

	for (unsigned i = 1; i < N; i++) {
		struct varve_node *next = varve_node_new(s, VARVE_KIND_FILE, 10000 + i);

		n->succ = next;
		n = next;
	}
	ck_assert_uint_eq(s->n_ids, N + 1);
	(void)varve_node_ref(n);
	varve_node_unref(s, first);
	ck_assert_uint_eq(s->n_ids, 2);
	varve_node_unref(s, n);
}
END_TEST

/* The skeleton's directory and the bucket's at its path know each other; neither dangles. */
START_TEST(test_twins)
{
	struct varve_node *sdir = varve_node_new(s, VARVE_KIND_SDIR, 2000),
			  *ddir = varve_node_new(s, VARVE_KIND_DDIR, 2001);

	ddir->sdir = varve_node_ref(sdir);
	sdir->ddir = ddir;
	varve_node_unref(s, sdir);
	ck_assert_ptr_eq(varve_node_by_id(s, 2000), sdir);
	(void)varve_node_ref(sdir);
	varve_node_unref(s, ddir);
	ck_assert_ptr_null(sdir->ddir);
	varve_node_unref(s, sdir);
	/* A later bucket's has taken its place: that link is left alone. */
	sdir = varve_node_new(s, VARVE_KIND_SDIR, 2000);
	ddir = varve_node_new(s, VARVE_KIND_DDIR, 2001);
	{
		struct varve_node *later = varve_node_new(s, VARVE_KIND_DDIR, 2002);

		ddir->sdir = varve_node_ref(sdir);
		later->sdir = varve_node_ref(sdir);
		sdir->ddir = later;
		varve_node_unref(s, ddir);
		ck_assert_ptr_eq(sdir->ddir, later);
		varve_node_unref(s, later);
		ck_assert_ptr_null(sdir->ddir);
	}
	varve_node_unref(s, sdir);
}
END_TEST

static const struct {
	const char *name;
	int want;
} names[] = {{"a", 0},      {"...", 0},     {".a", 0},       {"a b", 0},       {"\xff\x01", 0},
	     {"", -EINVAL}, {".", -EINVAL}, {"..", -EINVAL}, {"a/b", -EINVAL}, {"/", -EINVAL}};

START_TEST(test_name_check)
{
	char longest[257];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		ck_assert_int_eq(varve_name_check(names[i].name), names[i].want);
	memset(longest, 'x', 256);
	longest[256] = '\0';
	ck_assert_int_eq(varve_name_check(longest), -ENAMETOOLONG);
	longest[255] = '\0';
	ck_assert_int_eq(varve_name_check(longest), 0);
}
END_TEST

START_TEST(test_give_value)
{
	char buf[8] = "-------";

	ck_assert_int_eq(varve_give_value("abc", 3, NULL, 0), 3);
	ck_assert_int_eq(varve_give_value("abc", 3, buf, 2), -ERANGE);
	ck_assert_str_eq(buf, "-------");
	ck_assert_int_eq(varve_give_value("abc", 3, buf, 3), 3);
	ck_assert_str_eq(buf, "abc----");
	ck_assert_int_eq(varve_give_value("", 0, buf, 5), 0);
}
END_TEST

T_MAIN("node", 60)
{
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_new);
	tcase_add_test(tc, test_made_ahead);
	tcase_add_test(tc, test_stream);
	tcase_add_test(tc, test_link);
	tcase_add_test(tc, test_many);
	tcase_add_test(tc, test_each_takes_its_own_away);
	tcase_add_test(tc, test_path);
	tcase_add_test(tc, test_deep);
	tcase_add_test(tc, test_tree_drop);
	tcase_add_test(tc, test_successors);
	tcase_add_test(tc, test_twins);
	tcase_add_test(tc, test_name_check);
	tcase_add_test(tc, test_give_value);
}
