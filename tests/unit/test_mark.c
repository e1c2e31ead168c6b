/* Marks: where a boundary falls in a part, and where an unfinished line ends. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../lib/unit.h"
#include "base/sys.h"
#include "store/mark.h"

static int fd;

static void set_up(void)
{
	fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
}

static void tear_down(void)
{
	(void)close(fd);
}

static void add(const char *text)
{
	size_t len = strlen(text);
	off_t at = lseek(fd, 0, SEEK_END);

	ck_assert_int_eq(varve_pwrite_full(fd, text, len, (uint64_t)at), 0);
}

static void add_xs(size_t n)
{
	char *text = malloc(n + 1);

	ck_assert_ptr_nonnull(text);
	memset(text, 'x', n);
	text[n] = '\0';
	add(text);
	free(text);
}

/* Where it is now, and whether it stands; the same by both ways of asking. */
static void expect(struct varve_mark *m, uint64_t want, bool want_pending)
{
	bool pending = !want_pending;
	uint64_t at = varve_mark_now(m, fd, &pending);

	ck_assert_uint_eq(at, want);
	ck_assert_int_eq(pending, want_pending);
	ck_assert_uint_eq(varve_mark_now(m, fd, NULL), want);
	at = varve_mark_at(m, &pending);
	ck_assert_int_eq(pending, want_pending);
	if (!want_pending)
		ck_assert_uint_eq(at, want);
}

START_TEST(test_settled)
{
	struct varve_mark *m = varve_mark_new(4, false);

	add("one\n");
	expect(m, 4, false);
	add("two\nthree");
	expect(m, 4, false);
	/* Nothing is read for it. */
	ck_assert_uint_eq(varve_mark_now(m, -1, NULL), 4);
	varve_mark_settle(m, fd);
	expect(m, 4, false);
	varve_mark_unref(m);
	m = varve_mark_new(0, false);
	expect(m, 0, false);
	varve_mark_unref(m);
}
END_TEST

/* What came after S, and where the mark is then; UINT64_MAX: pending. */
static const struct {
	const char *before, *after;
	uint64_t at;
} lines[] = {
	{"beg", "", UINT64_MAX},
	{"beg", "\n", 4},	/* the first byte at S */
	{"beg", "in\n", 6},
	{"beg", "in\nnext\nand", 6},
	{"beg", "\n\n", 4},
	{"one\nbeg", "in\n", 10}, /* newlines before S don't count */
	{"beg", "in", UINT64_MAX},
};

START_TEST(test_line)
{
	struct varve_mark *m = varve_mark_new(strlen(lines[_i].before), true);
	bool pending;

	add(lines[_i].before);
	expect(m, strlen(lines[_i].before), true);
	add(lines[_i].after);
	if (lines[_i].at != UINT64_MAX) {
		expect(m, lines[_i].at, false);
		add("later\n");
		expect(m, lines[_i].at, false);
	} else {
		expect(m, strlen(lines[_i].before) + strlen(lines[_i].after), true);
		/* For the record it is S until it stands: from S it can be worked out again. */
		ck_assert_uint_eq(varve_mark_at(m, &pending), strlen(lines[_i].before));
	}
	varve_mark_unref(m);
}
END_TEST

START_TEST(test_piece_by_piece)
{
	struct varve_mark *m = varve_mark_new(1, true);

	add("b");
	for (unsigned i = 0; i < 300; i++) {
		expect(m, 1 + i, true);
		add("x");
	}
	add("\nnext\n");
	expect(m, 302, false);
	varve_mark_unref(m);
}
END_TEST

/* The newline so many bytes behind S. 64 KiB are looked at, no more. */
static const struct {
	size_t behind;
	uint64_t more;
} far[] = {
	{4095, 4096},
	{4096, 4097},
	{VARVE_LINE_MAX - 2, VARVE_LINE_MAX - 1},
	{VARVE_LINE_MAX - 1, VARVE_LINE_MAX}, /* the last byte that may be the line's end */
	{VARVE_LINE_MAX, VARVE_LINE_MAX},
	{VARVE_LINE_MAX + 1, VARVE_LINE_MAX},
	{3 * VARVE_LINE_MAX, VARVE_LINE_MAX},
};

START_TEST(test_long_line)
{
	struct varve_mark *m = varve_mark_new(5, true);

	add("begin");
	if (_i % 2) {
		/* At once. */
		add_xs(far[_i / 2].behind);
		add("\n");
	} else {
		for (size_t at = 0; at < far[_i / 2].behind; at += 1000) {
			size_t n = far[_i / 2].behind - at;

			add_xs(n < 1000 ? n : 1000);
			(void)varve_mark_now(m, fd, NULL);
		}
		add("\n");
	}
	expect(m, 5 + far[_i / 2].more, false);
	varve_mark_unref(m);
}
END_TEST

/* Exactly as much as is let be added, without a newline: it stands, there is nothing to wait for. */
START_TEST(test_full_without_newline)
{
	struct varve_mark *m = varve_mark_new(0, true);

	add_xs(VARVE_LINE_MAX - 1);
	expect(m, VARVE_LINE_MAX - 1, true);
	add("x");
	expect(m, VARVE_LINE_MAX, false);
	varve_mark_unref(m);
}
END_TEST

START_TEST(test_settle)
{
	struct varve_mark *m = varve_mark_new(3, true);

	/* With a look at what is there by now... */
	add("beginn");
	varve_mark_settle(m, fd);
	expect(m, 6, false);
	add("ing\n");
	expect(m, 6, false);
	varve_mark_unref(m);
	/* ... which may have been the end of the line ... */
	m = varve_mark_new(3, true);
	varve_mark_settle(m, fd);
	expect(m, 10, false);
	varve_mark_unref(m);
	/* ... and without. */
	m = varve_mark_new(3, true);
	varve_mark_settle(m, -1);
	expect(m, 3, false);
	varve_mark_unref(m);
}
END_TEST

/* As seen last, also where the part can't be read at the end of the grace. */
START_TEST(test_settle_blind_after_a_look)
{
	struct varve_mark *m = varve_mark_new(3, true);

	add("beginning");
	expect(m, 9, true);
	varve_mark_settle(m, -1);
	expect(m, 9, false);
	varve_mark_unref(m);
}
END_TEST

/* Power loss may leave a part that is shorter than its mark: what is not there is not read, and what
 * comes to stand there counts from S on. */
START_TEST(test_part_shorter_than_the_mark)
{
	struct varve_mark *m = varve_mark_new(10, true), *stands = varve_mark_new(10, false);

	add("short");
	expect(m, 10, true);
	expect(stands, 10, false);
	add("er\n..");
	expect(m, 10, true);
	add("xx\n");
	expect(m, 13, false);
	expect(stands, 10, false);
	varve_mark_unref(m);
	varve_mark_unref(stands);
}
END_TEST

START_TEST(test_never_back)
{
	struct varve_mark *m = varve_mark_new(5, true);

	add("beginning of a line");
	expect(m, 19, true);
	/* Cut by a user while the line was being written: whoever has seen the end sees no less. */
	ck_assert_int_eq(ftruncate(fd, 8), 0);
	expect(m, 19, true);
	add("\n12345678901234\n");
	/* The newline at 8 was overwritten below what has been seen: not looked at again. */
	expect(m, 24, false);
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	expect(m, 24, false);
	varve_mark_unref(m);
}
END_TEST

START_TEST(test_unreadable)
{
	struct varve_mark *m = varve_mark_new(5, true);
	bool pending = false;

	ck_assert_uint_eq(varve_mark_now(m, -1, &pending), 5);
	ck_assert(pending);
	add("begin\n");
	expect(m, 6, false);
	varve_mark_unref(m);
}
END_TEST

/* A sanitizer would tell of a use after the end, or of a mark left over. */
START_TEST(test_references)
{
	struct varve_mark *m = varve_mark_new(7, false), *same = varve_mark_ref(m);

	ck_assert_ptr_eq(m, same);
	varve_mark_unref(m);
	expect(same, 7, false);
	for (int i = 0; i < 100; i++)
		(void)varve_mark_ref(same);
	for (int i = 0; i < 101; i++)
		varve_mark_unref(same);
	varve_mark_unref(NULL);
}
END_TEST

/* Two ask while a third writes: never back, never pending again, and both end with the same. */
struct asker {
	pthread_t thread;
	struct varve_mark *m;
	uint64_t last;
	unsigned long asked;
	bool went_back, woke_up;
};

static atomic_bool asking;

static void *ask(void *arg)
{
	struct asker *a = arg;
	bool stands = false;

	while (!stands || atomic_load(&asking)) {
		bool pending;
		uint64_t now = varve_mark_now(a->m, fd, &pending);

		a->went_back = a->went_back || now < a->last;
		a->woke_up = a->woke_up || (stands && (pending || now != a->last));
		a->last = now;
		stands = !pending;
		a->asked++;
	}
	varve_mark_unref(a->m);
	return NULL;
}

START_TEST(test_asked_while_written)
{
	/* With a newline at the end, at the limit without one, settled from outside. */
	for (int round = 0; round < 60; round++) {
		struct varve_mark *m = varve_mark_new(5, true);
		struct asker two[2] = {{.m = varve_mark_ref(m)}, {.m = varve_mark_ref(m)}};
		size_t n = round % 3 == 1 ? 2 * VARVE_LINE_MAX : 20000 + (size_t)round;

		ck_assert_int_eq(ftruncate(fd, 0), 0);
		add("begin");
		atomic_store(&asking, true);
		for (int i = 0; i < 2; i++)
			ck_assert_int_eq(pthread_create(&two[i].thread, NULL, ask, &two[i]), 0);
		for (size_t at = 0; at < n; at += 500)
			add_xs(n - at < 500 ? n - at : 500);
		if (round % 3 == 0)
			add("\nnext\n");
		else if (round % 3 == 2)
			varve_mark_settle(m, fd);
		add_xs(100);
		atomic_store(&asking, false);
		for (int i = 0; i < 2; i++) {
			ck_assert_int_eq(pthread_join(two[i].thread, NULL), 0);
			ck_assert(!two[i].went_back);
			ck_assert(!two[i].woke_up);
			ck_assert_uint_gt(two[i].asked, 0);
		}
		expect(m, 5 + (round % 3 == 0 ? n + 1 : round % 3 == 1 ? VARVE_LINE_MAX : n), false);
		ck_assert_uint_eq(two[0].last, two[1].last);
		varve_mark_unref(m);
	}
}
END_TEST

struct teller {
	struct varve_mark *m;
	pthread_t thread;
	bool mixed; /* it was told as pending, but not where the boundary fell */
};

static void *tell(void *arg)
{
	struct teller *t = arg;
	bool pending;

	do {
		uint64_t at = varve_mark_at(t->m, &pending);

		t->mixed = t->mixed || at != (pending ? 5 : 11);
	} while (pending);
	varve_mark_unref(t->m);
	return NULL;
}

/* What goes into the range record is either the pending mark or the settled one, never half of each. */
START_TEST(test_told_while_it_settles)
{
	add("begin line\nnext");
	for (int round = 0; round < 5000; round++) {
		struct varve_mark *m = varve_mark_new(5, true);
		struct teller t = {.m = varve_mark_ref(m)};

		ck_assert_int_eq(pthread_create(&t.thread, NULL, tell, &t), 0);
		varve_mark_settle(m, fd);
		ck_assert_int_eq(pthread_join(t.thread, NULL), 0);
		ck_assert_msg(!t.mixed, "round %d", round);
		varve_mark_unref(m);
	}
}
END_TEST

T_MAIN("mark", 60)
{
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_settled);
	tcase_add_loop_test(tc, test_line, 0, (int)(sizeof(lines) / sizeof(*lines)));
	tcase_add_test(tc, test_piece_by_piece);
	tcase_add_loop_test(tc, test_long_line, 0, 2 * (int)(sizeof(far) / sizeof(*far)));
	tcase_add_test(tc, test_full_without_newline);
	tcase_add_test(tc, test_settle);
	tcase_add_test(tc, test_settle_blind_after_a_look);
	tcase_add_test(tc, test_part_shorter_than_the_mark);
	tcase_add_test(tc, test_never_back);
	tcase_add_test(tc, test_unreadable);
	tcase_add_test(tc, test_references);
	tcase_add_test(tc, test_asked_while_written);
	tcase_add_test(tc, test_told_while_it_settles);
}
