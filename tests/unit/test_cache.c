#include "store_segment_util.h"

#include <pthread.h>
#include <stdatomic.h>

#include "store/cache_private.h"

#define FRAMES 12 /* at least; of one file */
#define FILE_BYTES (FRAMES * (uint64_t)VARVE_FRAME_BYTES)

/* A segment with one file, and the cache's view of it. */
struct fixture {
	struct varve_frame_source src;
	struct test_dir dir;
	struct varve_index *ix;
	const unsigned char *tar; /* the tar stream, as it should be */
	atomic_int failed, gone;
	atomic_uint last_failed;
	atomic_int last_error;
};

static struct varve_buf segment; /* made once; the tests' processes inherit it */
static const unsigned char *tar_stream;

static void on_failed(struct varve_frame_source *src, uint32_t k, int error)
{
	struct fixture *x = (struct fixture *)src;

	(void)atomic_fetch_add(&x->failed, 1);
	atomic_store(&x->last_failed, k);
	atomic_store(&x->last_error, error);
}

static void on_gone(struct varve_frame_source *src)
{
	(void)atomic_fetch_add(&((struct fixture *)src)->gone, 1);
}

static void make_segment(void)
{
	struct spec s = {.path = "f", .mode = FILE_MODE, .size = FILE_BYTES, .seed = 3};
	struct varve_segment_params params = test_params();
	struct varve_segment_totals totals;
	struct varve_err err = {.msg = ""};
	struct memory m = {.fail_after = 0};
	struct varve_source src;
	struct varve_index *ix;

	params.level = 1;
	ck_assert_int_eq(encode(&s, 1, &params, &m, &totals, &err), 0);
	segment = m.buf;
	src = memory_source(&segment);
	ck_assert_int_eq(varve_index_open(&src, &ix, &err), 0);
	ck_assert_uint_ge(varve_index_frames(ix), FRAMES);
	tar_stream = decode_tar(ix, &segment);
	ck_assert_ptr_nonnull(tar_stream);
	varve_index_free(ix);
}

static void free_segment(void)
{
	varve_buf_done(&segment);
	free((void *)tar_stream);
}

static void set_up(struct fixture *x, size_t max, unsigned threads)
{
	struct varve_source from = memory_source(&segment);
	struct varve_err err;

	*x = (struct fixture){.dir = make_dir(), .tar = tar_stream};
	write_file(x->dir.fd, "s", segment.p, segment.len);
	ck_assert_int_eq(varve_index_open(&from, &x->ix, &err), 0);
	x->src.index = x->ix;
	x->src.fd = openat(x->dir.fd, "s", O_RDONLY | O_CLOEXEC);
	x->src.failed = on_failed;
	x->src.gone = on_gone;
	ck_assert_int_eq(varve_cache_new(max, threads, &x->src.cache), 0);
	ck_assert_int_eq(varve_cache_attach(&x->src), 0);
}

static void tear_down(struct fixture *x)
{
	varve_cache_detach(&x->src, false);
	varve_cache_free(x->src.cache);
	ck_assert_int_eq(atomic_load(&x->gone), 1);
	varve_index_free(x->ix);
	(void)close(x->src.fd);
	drop_dir(&x->dir);
}

/* What one load takes at most. */
static size_t one_load(const struct fixture *x)
{
	size_t most = 0;

	for (uint32_t k = 0; k < varve_index_frames(x->ix); k++) {
		struct varve_frame_info f;

		varve_index_frame(x->ix, k, &f);
		if (f.raw_size + f.comp_size > most)
			most = f.raw_size + f.comp_size;
	}
	return most + 256 * 1024;
}

static void get_right(struct fixture *x, uint32_t k)
{
	struct varve_frame_info info;
	struct varve_frame *f;

	varve_index_frame(x->ix, k, &info);
	ck_assert_int_eq(varve_cache_get(&x->src, k, &f), 0);
	ck_assert_int_eq(memcmp(varve_frame_bytes(f), x->tar + info.raw_offset, info.raw_size), 0);
	varve_cache_put(f, 0);
}

static struct varve_cache_stats stats_of(struct fixture *x)
{
	struct varve_cache_stats st;

	varve_cache_stats(x->src.cache, &st);
	return st;
}

/* -- what is kept -- */

START_TEST(least_recently_used_goes_first)
{
	struct fixture x;

	set_up(&x, 3 * (VARVE_FRAME_BYTES + 4096) + (2 << 20) - 65536, 1);
	get_right(&x, 0);
	get_right(&x, 1);
	get_right(&x, 0);
	get_right(&x, 2);
	ck_assert_uint_eq(stats_of(&x).misses, 3);
	get_right(&x, 3); /* 1 goes */
	get_right(&x, 0);
	get_right(&x, 2);
	ck_assert_uint_eq(stats_of(&x).misses, 4);
	get_right(&x, 1);
	ck_assert_uint_eq(stats_of(&x).misses, 5);
	ck_assert_uint_eq(stats_of(&x).hits, 3);
	ck_assert_uint_eq(stats_of(&x).ahead, 0);
	tear_down(&x);
}
END_TEST

/* Frame k is read from, by pieces of this many bytes. */
static void get_bytes(struct fixture *x, uint32_t k, size_t piece)
{
	struct varve_frame_info info;
	struct varve_frame *f;

	varve_index_frame(x->ix, k, &info);
	for (size_t at = 0; at < info.raw_size; at += piece) {
		ck_assert_int_eq(varve_cache_get(&x->src, k, &f), 0);
		varve_cache_put(f, piece);
	}
}

START_TEST(what_was_read_whole_goes_first)
{
	struct fixture x;
	uint32_t n;

	set_up(&x, 64 << 20, 1);
	n = varve_index_frames(x.ix);
	ck_assert_uint_gt(n, 8);
	/* One who reads at random, and one who reads all in order: the bound is far, and yet few of
	 * his frames stay. */
	get_right(&x, n - 1);
	for (uint32_t k = 0; k < n - 1; k++)
		get_bytes(&x, k, 512 * 1024);
	ck_assert_uint_eq(stats_of(&x).misses, n);
	ck_assert_uint_le(stats_of(&x).bytes, 7 * (VARVE_FRAME_BYTES + (1 << 20)));
	/* The other's stays, and so do the last ones, for who comes a little late. */
	get_right(&x, n - 1);
	get_right(&x, n - 2);
	get_right(&x, n - 5);
	ck_assert_uint_eq(stats_of(&x).misses, n);
	/* The first is gone; read in part only, it stays as any other. */
	get_right(&x, 0);
	ck_assert_uint_eq(stats_of(&x).misses, n + 1);
	for (uint32_t k = 1; k < n - 5; k++)
		get_bytes(&x, k, 512 * 1024);
	get_right(&x, 0);
	ck_assert_uint_eq(stats_of(&x).misses, n + 1 + n - 6);
	tear_down(&x);
}
END_TEST

START_TEST(all_is_kept_when_it_fits)
{
	struct fixture x;
	uint32_t n;

	set_up(&x, 64 << 20, 2);
	n = varve_index_frames(x.ix);
	for (int round = 0; round < 3; round++)
		for (uint32_t k = 0; k < n; k++)
			get_right(&x, k);
	ck_assert_uint_eq(stats_of(&x).misses, n);
	ck_assert_uint_eq(stats_of(&x).hits, 2 * n);
	ck_assert_uint_ge(stats_of(&x).bytes, FILE_BYTES);
	tear_down(&x);
}
END_TEST

struct reader {
	struct fixture *x;
	pthread_barrier_t *start;
	pthread_t id;
	uint64_t seed;
	int rounds;
	uint32_t only; /* this frame; UINT32_MAX: any */
	int error;     /* of the last one */
};

static void *read_frames(void *arg)
{
	struct reader *r = arg;

	(void)pthread_barrier_wait(r->start);
	for (int i = 0; i < r->rounds; i++) {
		uint32_t n = varve_index_frames(r->x->ix);
		uint32_t k =
			r->only != UINT32_MAX ? r->only : (uint32_t)(next_random(&r->seed) % n);
		struct varve_frame_info info;
		struct varve_frame *f;

		if (r->only == UINT32_MAX && r->seed % 5 == 0)
			varve_cache_ahead(&r->x->src, k, k + 3 < n ? k + 3 : n - 1);
		varve_index_frame(r->x->ix, k, &info);
		r->error = varve_cache_get(&r->x->src, k, &f);
		if (r->error < 0)
			continue;
		if (memcmp(varve_frame_bytes(f), r->x->tar + info.raw_offset, info.raw_size) != 0)
			r->error = -EILSEQ;
		varve_cache_put(f, 0);
		if (r->error < 0)
			break;
	}
	return NULL;
}

static void run_readers(struct fixture *x, struct reader *readers, unsigned n, int rounds,
			uint32_t only)
{
	pthread_barrier_t start;

	ck_assert_int_eq(pthread_barrier_init(&start, NULL, n), 0);
	for (unsigned i = 0; i < n; i++) {
		readers[i] = (struct reader){
			.x = x, .start = &start, .seed = i + 1, .rounds = rounds, .only = only};
		ck_assert_int_eq(pthread_create(&readers[i].id, NULL, read_frames, &readers[i]), 0);
	}
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(pthread_join(readers[i].id, NULL), 0);
	(void)pthread_barrier_destroy(&start);
}

START_TEST(bounded_with_many_readers)
{
	static const size_t bounds[] = {0, 1, 1 << 20, 3 << 20, 5 << 20, 9 << 20, 20 << 20};
	size_t max = bounds[_i];
	struct reader readers[6];
	struct fixture x;
	size_t limit;

	set_up(&x, max, 2);
	limit = max > one_load(&x) ? max : one_load(&x);
	run_readers(&x, readers, 6, 40, UINT32_MAX);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(readers[i].error, 0);
	ck_assert_msg(stats_of(&x).peak <= limit, "%zu of %zu", stats_of(&x).peak, limit);
	ck_assert_uint_le(stats_of(&x).bytes, limit);
	ck_assert_uint_eq(stats_of(&x).hits + stats_of(&x).misses, 6 * 40);
	tear_down(&x);
}
END_TEST

START_TEST(wanted_by_many_decompressed_once)
{
	struct reader readers[8];
	struct fixture x;

	set_up(&x, 64 << 20, 2);
	for (uint32_t k = 0; k < 6; k++)
		run_readers(&x, readers, 8, 1, k);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(readers[i].error, 0);
	ck_assert_uint_eq(stats_of(&x).misses + stats_of(&x).ahead, 6);
	tear_down(&x);
}
END_TEST

/* -- ahead -- */

static bool is_quiet(void *ctx)
{
	struct fixture *x = ctx;

	return stats_of(x).ahead == 4;
}

START_TEST(frames_come_ahead)
{
	struct fixture x;

	set_up(&x, 64 << 20, 2);
	ck_assert_uint_eq(varve_cache_running(x.src.cache), 0);
	varve_cache_ahead(&x.src, 2, 5);
	varve_cache_ahead(&x.src, 2, 5);
	ck_assert(wait_until(is_quiet, &x));
	for (uint32_t k = 2; k <= 5; k++)
		get_right(&x, k);
	ck_assert_uint_eq(stats_of(&x).misses, 0);
	ck_assert_uint_eq(stats_of(&x).hits, 4);
	varve_cache_ahead(&x.src, 2, 5);
	get_right(&x, 2);
	ck_assert_uint_eq(stats_of(&x).ahead, 4);
	tear_down(&x);
}
END_TEST

static bool is_idle(void *ctx)
{
	return varve_cache_running(((struct fixture *)ctx)->src.cache) == 0;
}

START_TEST(ahead_takes_half_at_most)
{
	struct fixture x;

	set_up(&x, 12 << 20, 2);
	varve_cache_set_linger(x.src.cache, 1);
	varve_cache_ahead(&x.src, 0, FRAMES - 1);
	ck_assert(wait_until(is_idle, &x));
	ck_assert_uint_eq(stats_of(&x).ahead, 3);
	/* What was asked for makes room for more. */
	get_right(&x, 0);
	varve_cache_ahead(&x.src, 1, FRAMES - 1);
	ck_assert(wait_until(is_idle, &x));
	ck_assert_uint_eq(stats_of(&x).ahead, 4);
	ck_assert_uint_eq(stats_of(&x).misses, 0);
	tear_down(&x);
}
END_TEST

START_TEST(idle_threads_end)
{
	struct fixture x;

	set_up(&x, 64 << 20, 2);
	varve_cache_set_linger(x.src.cache, 20);
	for (uint32_t k = 0; k < 6; k++) {
		varve_cache_ahead(&x.src, k, k);
		ck_assert_uint_ge(varve_cache_running(x.src.cache), 1);
		ck_assert_uint_le(varve_cache_running(x.src.cache), 2);
		ck_assert(wait_until(is_idle, &x));
		ck_assert_uint_eq(stats_of(&x).ahead, k + 1);
	}
	tear_down(&x);
}
END_TEST

START_TEST(freed_in_full_work)
{
	struct fixture x;

	set_up(&x, 64 << 20, 2);
	varve_cache_ahead(&x.src, 0, FRAMES - 1);
	tear_down(&x);
	set_up(&x, 64 << 20, 2);
	varve_cache_ahead(&x.src, 0, FRAMES - 1);
	get_right(&x, FRAMES - 1);
	tear_down(&x);
}
END_TEST

static bool has_gone(void *ctx)
{
	return atomic_load(&((struct fixture *)ctx)->gone) == 1;
}

START_TEST(ended_by_the_pool)
{
	struct fixture x;

	set_up(&x, 64 << 20, 1);
	get_right(&x, 1);
	varve_cache_detach(&x.src, true);
	ck_assert(wait_until(has_gone, &x));
	ck_assert_uint_lt(stats_of(&x).bytes, VARVE_FRAME_BYTES);
	varve_cache_free(x.src.cache);
	varve_index_free(x.ix);
	(void)close(x.src.fd);
	drop_dir(&x.dir);
}
END_TEST

/* -- what fails -- */

static void damage(struct fixture *x, uint32_t k)
{
	struct varve_frame_info f;

	varve_index_frame(x->ix, k, &f);
	flip(x->dir.fd, "s", f.comp_offset + f.comp_size / 2);
}

START_TEST(bad_frame_alone_fails)
{
	struct reader readers[4];
	struct varve_frame *f;
	struct fixture x;

	set_up(&x, 8 << 20, 2);
	damage(&x, 5);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(varve_cache_get(&x.src, 5, &f), -EBADMSG);
	run_readers(&x, readers, 4, 5, 5);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(readers[i].error, -EBADMSG);
	for (uint32_t k = 0; k < varve_index_frames(x.ix); k++)
		if (k != 5)
			get_right(&x, k);
	ck_assert_int_eq(atomic_load(&x.failed), 1);
	ck_assert_uint_eq(atomic_load(&x.last_failed), 5);
	ck_assert_int_eq(atomic_load(&x.last_error), -EBADMSG);
	ck_assert_uint_eq(varve_cache_source_faults(&x.src), 1);
	ck_assert_uint_eq(stats_of(&x).bad, 1);

	damage(&x, 5); /* that is, mend it */
	get_right(&x, 5);
	ck_assert_int_eq(atomic_load(&x.failed), 1);
	tear_down(&x);
}
END_TEST

static bool has_failed(void *ctx)
{
	return atomic_load(&((struct fixture *)ctx)->failed) > 0;
}

START_TEST(bad_frame_ahead_fails)
{
	struct varve_frame *f;
	struct fixture x;

	set_up(&x, 64 << 20, 2);
	damage(&x, 3);
	varve_cache_ahead(&x.src, 2, 5);
	ck_assert(wait_until(is_quiet, &x));
	ck_assert(wait_until(has_failed, &x)); /* said by the pool, maybe after a reader had the error */
	ck_assert_int_eq(varve_cache_get(&x.src, 3, &f), -EBADMSG);
	get_right(&x, 2);
	get_right(&x, 4);
	ck_assert_int_eq(atomic_load(&x.failed), 1);
	tear_down(&x);
}
END_TEST

START_TEST(disk_errors_are_not_bad_bytes)
{
	struct varve_frame *f;
	struct fixture x;
	int fd;

	set_up(&x, 64 << 20, 2);
	fd = x.src.fd;
	x.src.fd = open(x.dir.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(varve_cache_get(&x.src, 0, &f), -EISDIR);
	ck_assert_int_eq(atomic_load(&x.last_error), -EISDIR);
	(void)close(x.src.fd);
	x.src.fd = fd;
	get_right(&x, 0);
	/* A file that became shorter. */
	fd = openat(x.dir.fd, "s", O_WRONLY | O_CLOEXEC);
	ck_assert_int_eq(ftruncate(fd, 1000), 0);
	(void)close(fd);
	ck_assert_int_eq(varve_cache_get(&x.src, 7, &f), -EBADMSG);
	get_right(&x, 0);
	ck_assert_uint_eq(varve_cache_source_faults(&x.src), 2);
	tear_down(&x);
}
END_TEST

T_MAIN("cache", 100)
{
	tcase_add_unchecked_fixture(tc, make_segment, free_segment);
	tcase_add_test(tc, least_recently_used_goes_first);
	tcase_add_test(tc, what_was_read_whole_goes_first);
	tcase_add_test(tc, all_is_kept_when_it_fits);
	tcase_add_loop_test(tc, bounded_with_many_readers, 0, 7);
	tcase_add_test(tc, wanted_by_many_decompressed_once);
	tcase_add_test(tc, frames_come_ahead);
	tcase_add_test(tc, ahead_takes_half_at_most);
	tcase_add_test(tc, idle_threads_end);
	tcase_add_test(tc, freed_in_full_work);
	tcase_add_test(tc, ended_by_the_pool);
	tcase_add_test(tc, bad_frame_alone_fails);
	tcase_add_test(tc, bad_frame_ahead_fails);
	tcase_add_test(tc, disk_errors_are_not_bad_bytes);
}
