/*
 * File numbers: given out once, whatever happens in between. The store is opened and closed, and
 * its counter driven from several threads; a full disk stands in the way of a reservation.
 */
#include "../lib/storetest.h"

#include "base/bytes.h"

#define A "2026-12-01T10Z"

/* Cheap when it holds: for loops of many thousands. */
#define HOLDS(x)                                                                                   \
	do {                                                                                       \
		if (!(x))                                                                          \
			ck_abort_msg("%s", #x);                                                    \
	} while (0)

static struct tstore *t;

static void set_up(void)
{
	t = t_new(A);
	t_open(t);
}

static void tear_down(void)
{
	t_free(t);
}

static uint64_t next(void)
{
	uint64_t ino;

	HOLDS(varve_ino_next(t->s, &ino) == 0);
	HOLDS(ino >= VARVE_FIRST_INO && ino < VARVE_INO_LIMIT);
	return ino;
}

/* What meta/ino says is reserved. */
static uint64_t on_disk(void)
{
	unsigned char b[8];
	size_t len = sizeof(b);

	ck_assert_int_eq(varve_slots_read(t->s->ino_slots, b, &len), 0);
	ck_assert_uint_eq(len, 8);
	return varve_get_le64(b);
}

START_TEST(test_in_order)
{
	uint64_t last = next();

	/* Over several blocks; each is on disk before its first number is out. */
	for (int i = 0; i < 300000; i++) {
		uint64_t ino = next();

		HOLDS(ino == last + 1);
		last = ino;
		if (i % 10000 == 0)
			ck_assert_uint_gt(on_disk(), ino);
	}
	ck_assert_uint_gt(on_disk(), last);
}
END_TEST

START_TEST(test_reopened)
{
	uint64_t top = 0;

	for (int i = 0; i < 20; i++) {
		uint64_t ino = next();

		ck_assert_uint_gt(ino, top);
		for (int k = 0; k < i * 1000; k++)
			ino = next();
		top = ino;
		if (i % 2)
			t_close(t);
		else
			t_crash(t);
		t_open(t);
	}
}
END_TEST

/* What is taken without I/O runs out, and is there again once it was asked for. */
START_TEST(test_take)
{
	uint64_t ino, last = 0, n = 0;

	while ((ino = varve_ino_take(t->s))) {
		HOLDS(last == 0 || ino == last + 1);
		last = ino;
		n++;
	}
	ck_assert_uint_ge(n, 16384);
	ck_assert_uint_eq(varve_ino_take(t->s), 0);
	ck_assert_uint_eq(on_disk(), last + 1);
	ck_assert_int_eq(varve_ino_ready(t->s), 0);
	ck_assert_uint_eq(varve_ino_take(t->s), last + 1);
	ck_assert_uint_ge(on_disk() - last, 16384);
	/* With enough in hand nothing is written. */
	n = on_disk();
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(varve_ino_ready(t->s), 0);
	ck_assert_uint_eq(on_disk(), n);
}
END_TEST

START_TEST(test_streams)
{
	uint64_t base, n, base2, n2, ino;

	{
		guard(&t->s->mutate);
		ck_assert_int_eq(varve_ino_streams(t->s, &base, &n), 0);
		ck_assert_uint_ge(n, t->s->next_serial);
		/* None of the run is given out again. */
		ino = next();
		ck_assert_uint_ge(ino, base + n);
		t->s->next_serial += 200000;
		ck_assert_int_eq(varve_ino_streams(t->s, &base2, &n2), 0);
		t->s->next_serial -= 200000;
	}
	ck_assert_uint_gt(base2, ino);
	ck_assert_uint_ge(n2, 200000);
	/* More than a block: it is reserved all the same. */
	ck_assert_uint_ge(on_disk(), base2 + n2);
	ck_assert_uint_ge(next(), base2 + n2);
}
END_TEST

/* A stream's number in a bucket in which nothing was written to it: base and serial. */
START_TEST(test_serials)
{
	uint64_t inos[3][20], base;
	char path[64];

	for (int i = 0; i < 20; i++) {
		(void)snprintf(path, sizeof(path), "current/s%d", i);
		t_append(t, path, "");
	}
	for (int b = 0; b < 3; b++) {
		t_boundary(t);
		base = t->s->serial_base;
		for (int i = 0; i < 20; i++) {
			(void)snprintf(path, sizeof(path), "current/s%d", i);
			inos[b][i] = t_ino(t, path);
			ck_assert_uint_ge(inos[b][i], base);
			ck_assert_uint_lt(inos[b][i], base + t->s->serial_n);
			for (int k = 0; k < i; k++)
				ck_assert_uint_ne(inos[b][i], inos[b][k]);
		}
		/* In another order, after a remount or a crash. */
		if (b == 1)
			t_close(t);
		else
			t_crash(t);
		t_open(t);
		for (int i = 19; i >= 0; i--) {
			(void)snprintf(path, sizeof(path), "current/s%d", i);
			ck_assert_uint_eq(t_ino(t, path), inos[b][i]);
		}
	}
	for (int i = 0; i < 20; i++)
		ck_assert(inos[0][i] != inos[1][i] && inos[1][i] != inos[2][i] &&
			  inos[0][i] != inos[2][i]);
}
END_TEST

/* A serial is not given to another stream within a bucket in which its number was seen. */
START_TEST(test_serial_of_a_removed_stream)
{
	struct tfile f;
	uint64_t x, y;

	t_append(t, "current/a", "");
	t_append(t, "current/x", "");
	t_boundary(t);
	x = t_ino(t, "current/x");
	ck_assert_int_eq(t_unlink(t, "current/x"), 0);
	t_close(t);
	t_open(t);
	/* An object that is held over the boundary becomes a stream without a part. */
	f = t_file_open(t, "current/y", O_WRONLY | O_CREAT);
	t_puts(t, &f, "y\n");
	t_boundary(t);
	t_seal(t);
	y = t_ino(t, "current/y");
	ck_assert_uint_ne(y, x);
	t_file_close(t, &f);
	t_append(t, "current/z", "");
	ck_assert_uint_ne(t_ino(t, "current/z"), x);
	t_boundary(t);
	ck_assert_uint_ne(t_ino(t, "current/z"), x);
	ck_assert_uint_ne(t_ino(t, "current/z"), t_ino(t, "current/y"));
}
END_TEST

static const struct {
	const char *text;
	int want;
	uint64_t ino;
} notes[] = {
	{"1024", 0, 1024},
	{"9007199254740991", 0, VARVE_INO_LIMIT - 1},
	{"9007199254740992", -ENODATA, 0},
	{"1023", -ENODATA, 0},
	{"0", -ENODATA, 0},
	{"-5", -ENODATA, 0},
	{"", -ENODATA, 0},
	{"5000x", -ENODATA, 0},
	{"5000 ", -ENODATA, 0},
	{"18446744073709556616", -ENODATA, 0},
	{"0000000000000000000000000000000000000000005000", -ENODATA, 0},
};

START_TEST(test_notes)
{
	const char *path = t_at(t, "meta/note");
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	uint64_t ino = 77;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(varve_ino_read_xattr(fd, &ino), -ENODATA);
	ck_assert_int_eq(varve_ino_write_xattr(fd, 4711), 0);
	ck_assert_int_eq(varve_ino_read_xattr(fd, &ino), 0);
	ck_assert_uint_eq(ino, 4711);
	for (size_t i = 0; i < sizeof(notes) / sizeof(*notes); i++) {
		ino = 77;
		ck_assert_int_eq(
			fsetxattr(fd, VARVE_XATTR_INO, notes[i].text, strlen(notes[i].text), 0), 0);
		ck_assert_msg(varve_ino_read_xattr(fd, &ino) == notes[i].want, "'%s'",
			      notes[i].text);
		ck_assert_uint_eq(ino, notes[i].want ? 77 : notes[i].ino);
	}
	(void)close(fd);
}
END_TEST

/* At the end of all numbers none is given out twice. */
START_TEST(test_the_last_number)
{
	struct tfile f = t_file_open(t, "current/x", O_RDWR | O_APPEND | O_CREAT);
	uint64_t ino;
	int r;

	t_puts(t, &f, "one\n");
	atomic_store(&t->s->next_ino, VARVE_INO_LIMIT - 40000);
	atomic_store(&t->s->reserved_ino, VARVE_INO_LIMIT - 20000);
	for (int i = 0; i < 20000; i++)
		HOLDS(next() == VARVE_INO_LIMIT - 40000 + (unsigned)i);
	r = varve_ino_next(t->s, &ino);
	ck_assert_int_eq(r, -EOVERFLOW);
	ck_assert_int_eq(varve_store_errno(r), -ENOSPC);
	ck_assert_int_eq(t_try_mkdir(t, "current/d", 0755), -EOVERFLOW);
	/* Whoever has a file goes on. */
	t_puts(t, &f, "two\n");
	t_expect_fh(t, f.fh, "one\ntwo\n");
	t_file_close(t, &f);
}
END_TEST

#define THREADS 4
#define EACH 60000

static void *take_many(void *arg)
{
	uint64_t *mine = arg;

	for (int i = 0; i < EACH; i++)
		if (varve_ino_next(t->s, &mine[i]) < 0)
			return NULL;
	return mine;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

START_TEST(test_threads)
{
	uint64_t *all = malloc(THREADS * EACH * sizeof(*all)), base, n;
	pthread_t threads[THREADS];
	void *ok;

	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, take_many, all + i * EACH), 0);
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(varve_ino_streams(t->s, &base, &n), 0);
		ck_assert_uint_gt(n, 0);
	}
	for (int i = 0; i < THREADS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &ok), 0);
		ck_assert_ptr_nonnull(ok);
	}
	qsort(all, THREADS * EACH, sizeof(*all), compare);
	for (int i = 1; i < THREADS * EACH; i++)
		HOLDS(all[i - 1] < all[i]);
	ck_assert_uint_gt(on_disk(), all[THREADS * EACH - 1]);
	/* The last run is nobody else's. */
	for (int i = 0; i < THREADS * EACH; i++)
		HOLDS(all[i] < base || all[i] >= base + n);
	free(all);
}
END_TEST

/* The record needs no room: numbers go on on a full disk. */
START_TEST(test_full_disk)
{
	int fd;

	t_close(t);
	t_mount(t->path, "size=4m,mode=700");
	t_open(t);
	fd = open(t_at(t, "staging/filler"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	for (char page[4096] = {1}; write(fd, page, sizeof(page)) > 0;)
		;
	ck_assert_int_eq(errno, ENOSPC);
	(void)close(fd);
	for (int i = 0; i < 200000; i++)
		(void)next();
	ck_assert_int_eq(unlink(t_at(t, "staging/filler")), 0);
	t_close(t);
	ck_assert_int_eq(umount(t->path), 0);
}
END_TEST

T_MAIN("ino", 60)
{
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_in_order);
	tcase_add_test(tc, test_reopened);
	tcase_add_test(tc, test_take);
	tcase_add_test(tc, test_streams);
	tcase_add_test(tc, test_serials);
	tcase_add_test(tc, test_serial_of_a_removed_stream);
	tcase_add_test(tc, test_notes);
	tcase_add_test(tc, test_the_last_number);
	tcase_add_test(tc, test_threads);
	tcase_add_test(tc, test_full_disk);
}
