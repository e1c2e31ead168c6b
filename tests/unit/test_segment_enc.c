#include "segment_util.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))
#define GIB (UINT64_C(1) << 30)

/* -- what is refused -- */

static const struct {
	const char *paths[4]; /* behind the bucket's directory; a trailing '/' makes a directory */
	int good;             /* how many are taken before the next is refused */
} orders[] = {
	{{"a", "b", "c", NULL}, 3},
	{{"b", "a", NULL}, 1},
	{{"a", "a", NULL}, 1},
	{{"a/b", NULL}, 0},
	{{"a/", "a/b", "a/c", NULL}, 3},
	{{"a/", "a/b/c", NULL}, 1},
	{{"a", "a/b", NULL}, 1},
	{{"a/", "b", "a/c", NULL}, 2},
	{{"a/", "a-/", "a/b", NULL}, 2},
	{{"a/", "ab/c", NULL}, 1},
	{{"", NULL}, 0},
	{{"a/b/", NULL}, 0},
	{{"a/", "a/b/", "a/b/c", NULL}, 3},
};

START_TEST(order_of_members)
{
	struct varve_segment_params params = test_params();
	struct varve_segment_enc *enc;
	struct varve_err err = {0};
	struct memory to = {0};
	struct spec root = {.path = "", .mode = DIR_MODE};
	int n;

	ck_assert_int_eq(varve_segment_enc_new(&params, memory_sink, &to, &enc, &err), 0);
	ck_assert_int_eq(add_spec(enc, &root, 1, &err), 0);
	for (n = 0; orders[_i].paths[n]; n++) {
		char path[16];
		struct spec s = {.path = path, .mode = FILE_MODE};
		size_t len = strlen(strcpy(path, orders[_i].paths[n]));
		int r;

		if (len > 0 && path[len - 1] == '/') {
			path[len - 1] = '\0';
			s.mode = DIR_MODE;
		}
		r = add_spec(enc, &s, 2, &err);
		ck_assert_int_eq(r, n < orders[_i].good ? 0 : -EINVAL);
		if (r < 0)
			break;
	}
	ck_assert_int_eq(n, orders[_i].good);
	varve_segment_enc_free(enc);
	varve_buf_done(&to.buf);
}
END_TEST

START_TEST(first_member)
{
	static const struct spec firsts[] = {{.path = "a", .mode = DIR_MODE},
					     {.path = "", .mode = FILE_MODE}};
	struct varve_segment_params params = test_params();
	struct varve_segment_totals totals;
	struct varve_segment_enc *enc;
	struct varve_err err = {0};
	struct memory to = {0};

	for (size_t i = 0; i < 2; i++) {
		ck_assert_int_eq(varve_segment_enc_new(&params, memory_sink, &to, &enc, &err), 0);
		ck_assert_int_eq(add_spec(enc, &firsts[i], 1, &err), -EINVAL);
		/* an error stays */
		ck_assert_int_eq(varve_segment_enc_finish(enc, &totals, &err), -EINVAL);
		varve_segment_enc_free(enc);
	}
	ck_assert_int_eq(varve_segment_enc_new(&params, memory_sink, &to, &enc, &err), 0);
	ck_assert_int_eq(varve_segment_enc_finish(enc, &totals, &err), -EINVAL);
	varve_segment_enc_free(enc);
	varve_segment_enc_free(NULL);
}
END_TEST

START_TEST(nothing_after_the_end)
{
	static const struct spec root = {.path = "", .mode = DIR_MODE},
				 file = {.path = "f", .mode = FILE_MODE};
	struct varve_segment_params params = test_params();
	struct varve_segment_totals totals;
	struct varve_segment_enc *enc;
	struct varve_err err = {0};
	struct memory to = {0};
	size_t len;

	ck_assert_int_eq(varve_segment_enc_new(&params, memory_sink, &to, &enc, &err), 0);
	ck_assert_int_eq(add_spec(enc, &root, 1, &err), 0);
	ck_assert_int_eq(varve_segment_enc_finish(enc, &totals, &err), 0);
	len = to.buf.len;
	ck_assert_int_eq(add_spec(enc, &file, 2, &err), -EINVAL);
	ck_assert_int_eq(varve_segment_enc_finish(enc, &totals, &err), -EINVAL);
	varve_segment_enc_free(enc);
	ck_assert_uint_eq(to.buf.len, len);
	compare_segment(&to.buf, NULL, 0);
	varve_buf_done(&to.buf);
}
END_TEST

START_TEST(parameters)
{
	struct varve_segment_params good = test_params(),
				    bad[] = {good, good, good, good, good, good};
	struct varve_segment_enc *enc;
	struct memory to = {0};

	bad[0].level = 0;
	bad[1].level = 20;
	bad[2].bucket = NULL;
	bad[3].class_name = "";
	bad[4].tablet = "a/b";
	bad[5].bucket = "..";
	for (size_t i = 0; i < 6; i++) {
		struct varve_err err = {0};

		ck_assert_int_eq(varve_segment_enc_new(&bad[i], memory_sink, &to, &enc, &err),
				 -EINVAL);
		ck_assert_str_ne(err.msg, "");
	}
}
END_TEST

/* -- errors from outside -- */

START_TEST(sink_fails)
{
	struct spec s = {.path = "f", .mode = FILE_MODE, .size = 5 * VARVE_FRAME_BYTES + 77};
	struct varve_segment_params params = test_params();
	struct varve_segment_totals totals;
	struct memory whole = {0};
	struct varve_err err = {0};

	params.level = 1;
	ck_assert_int_eq(encode(&s, 1, &params, &whole, &totals, &err), 0);
	for (unsigned threads = 1; threads <= 3; threads += 2)
		for (size_t part = 0; part < 7; part++) {
			struct memory m = {.fail_after = part * whole.buf.len / 7 + 1,
					   .fail_with = -ENOSPC};

			params.threads = threads;
			ck_assert_int_eq(encode(&s, 1, &params, &m, &totals, &err), -ENOSPC);
			varve_buf_done(&m.buf);
		}
	/* the very last write is the one of index and seek table */
	whole.fail_after = whole.buf.len - 1;
	whole.fail_with = -EIO;
	whole.buf.len = 0;
	ck_assert_int_eq(encode(&s, 1, &params, &whole, &totals, &err), -EIO);
	varve_buf_done(&whole.buf);
}
END_TEST

/* A file that is not what was said, or can't be read. */
struct odd_file {
	uint64_t size;  /* what there is */
	uint64_t asked; /* the end of what was asked for */
	size_t most;    /* bytes given in one call */
	int error;      /* given where the bytes end */
	int cancel_at;  /* sets cancel at this call */
	int calls;
	volatile int cancel;
};

static ssize_t read_odd(void *ctx, void *buf, size_t len, uint64_t off)
{
	static const struct spec s = {.size = UINT64_MAX, .seed = 9};
	struct odd_file *f = ctx;

	if (++f->calls == f->cancel_at)
		__atomic_store_n(&f->cancel, 1, __ATOMIC_RELAXED);
	if (off + len > f->asked)
		f->asked = off + len;
	if (off >= f->size)
		return f->error;
	if (len > f->most)
		len = f->most;
	if (len > f->size - off)
		len = (size_t)(f->size - off);
	return read_spec((void *)&s, buf, len, off);
}

static int encode_odd(struct odd_file *f, uint64_t size, struct memory *to, struct varve_err *err)
{
	static const struct spec root = {.path = "", .mode = DIR_MODE, .mtime_sec = 1796000001};
	struct spec s = {.path = "f", .mode = FILE_MODE, .size = size, .seed = 9};
	struct varve_segment_params params = test_params();
	struct varve_extent whole;
	struct varve_member m = spec_member(&s, 2, &whole);
	struct varve_segment_totals totals;
	struct varve_segment_enc *enc;
	int r;

	params.cancel = &f->cancel;
	ck_assert_int_eq(varve_segment_enc_new(&params, memory_sink, to, &enc, err), 0);
	ck_assert_int_eq(add_spec(enc, &root, 1, err), 0);
	r = varve_segment_enc_add(enc, &m, read_odd, f, NULL, err);
	if (r == 0)
		r = varve_segment_enc_finish(enc, &totals, err);
	else
		ck_assert_int_eq(varve_segment_enc_finish(enc, &totals, err), r);
	varve_segment_enc_free(enc);
	return r;
}

START_TEST(file_became_shorter)
{
	static const uint64_t sizes[] = {0, 1, VARVE_FRAME_BYTES - 1024, 3 * VARVE_FRAME_BYTES + 1};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct odd_file f = {.size = sizes[i], .most = SIZE_MAX};
		struct varve_err err = {0};
		struct memory to = {0};

		ck_assert_int_eq(encode_odd(&f, sizes[i] + 1, &to, &err), -EBADMSG);
		ck_assert_ptr_nonnull(strstr(err.msg, "'f'"));
		ck_assert_ptr_nonnull(strstr(err.msg, "shorter"));
		varve_buf_done(&to.buf);
	}
}
END_TEST

START_TEST(file_cannot_be_read)
{
	struct odd_file f = {.size = VARVE_FRAME_BYTES + 5, .most = SIZE_MAX, .error = -EIO};
	struct varve_err err = {0};
	struct memory to = {0};

	ck_assert_int_eq(encode_odd(&f, 9 * VARVE_FRAME_BYTES, &to, &err), -EIO);
	ck_assert_ptr_nonnull(strstr(err.msg, "'f'"));
	varve_buf_done(&to.buf);
}
END_TEST

START_TEST(file_grew_or_comes_in_pieces)
{
	static const uint64_t size = VARVE_FRAME_BYTES + 12345;
	struct spec s = {.path = "f", .mode = FILE_MODE, .size = size, .seed = 9};
	static const size_t most[] = {SIZE_MAX, 1000, 4096, 65537};

	for (size_t i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
		struct odd_file f = {.size = 2 * size, .most = most[i]};
		struct varve_err err = {0};
		struct memory to = {0};

		ck_assert_int_eq(encode_odd(&f, size, &to, &err), 0);
		ck_assert_uint_eq(f.asked, size);
		compare_segment(&to.buf, &s, 1);
		varve_buf_done(&to.buf);
	}
}
END_TEST

START_TEST(cancelled_while_reading)
{
	for (int at = 1; at < 12; at++) {
		struct odd_file f = {
			.size = UINT64_MAX, .most = VARVE_FRAME_BYTES, .cancel_at = at};
		struct varve_err err = {0};
		struct memory to = {0};

		ck_assert_int_eq(encode_odd(&f, 50 * (uint64_t)VARVE_FRAME_BYTES, &to, &err),
				 -ECANCELED);
		ck_assert_int_eq(f.calls, at);
		varve_buf_done(&to.buf);
	}
}
END_TEST

static void *cancel_soon(void *arg)
{
	struct timespec t = {.tv_nsec = 100000000};

	(void)nanosleep(&t, NULL);
	__atomic_store_n((volatile int *)arg, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* The slowest level, and a feeding thread that waits for its compressors. */
START_TEST(cancelled_while_compressing)
{
	struct spec s = {.path = "f", .mode = FILE_MODE, .size = 64 * (uint64_t)VARVE_FRAME_BYTES};
	struct varve_segment_params params = test_params();
	struct varve_segment_totals totals;
	struct timespec from, to;
	struct memory m = {0};
	volatile int cancel = 0;
	pthread_t thread;

	params.level = 19;
	params.threads = 1;
	params.cancel = &cancel;
	(void)clock_gettime(CLOCK_MONOTONIC, &from);
	ck_assert_int_eq(pthread_create(&thread, NULL, cancel_soon, (void *)&cancel), 0);
	ck_assert_int_eq(encode(&s, 1, &params, &m, &totals, NULL), -ECANCELED);
	(void)clock_gettime(CLOCK_MONOTONIC, &to);
	(void)pthread_join(thread, NULL);
	ck_assert_int_lt(to.tv_sec - from.tv_sec, 30);
	varve_buf_done(&m.buf);
}
END_TEST

/* -- the pipeline -- */

START_TEST(same_bytes_with_any_number_of_threads)
{
	struct spec s[] = {{.path = "a", .mode = FILE_MODE, .size = 7 * VARVE_FRAME_BYTES + 1},
			   {.path = "b", .mode = FILE_MODE, .size = 1},
			   {.path = "c", .mode = FILE_MODE, .size = 2 * VARVE_FRAME_BYTES}};
	struct varve_segment_params params = test_params();
	struct varve_segment_totals totals;
	struct memory first = {0};

	params.threads = 1;
	ck_assert_int_eq(encode(s, 3, &params, &first, &totals, NULL), 0);
	ck_assert_uint_eq(totals.files, 3);
	ck_assert_uint_eq(totals.members, 4);
	ck_assert_uint_eq(totals.content_bytes, 9 * VARVE_FRAME_BYTES + 2);
	for (unsigned threads = 0; threads < 9; threads += 2) {
		struct memory m = {0};

		params.threads = threads;
		ck_assert_int_eq(encode(s, 3, &params, &m, &totals, NULL), 0);
		ck_assert_uint_eq(m.buf.len, first.buf.len);
		ck_assert_mem_eq(m.buf.p, first.buf.p, m.buf.len);
		varve_buf_done(&m.buf);
	}
	varve_buf_done(&first.buf);
}
END_TEST

struct balance {
	uint64_t read, written, most; /* frames that went in, came out, were inside */
};

static ssize_t read_counting(void *ctx, void *buf, size_t len, uint64_t off)
{
	struct balance *b = ctx;

	b->read = off / VARVE_FRAME_BYTES;
	if (b->read > b->written && b->read - b->written > b->most)
		b->most = b->read - b->written;
	memset(buf, 0, len);
	return (ssize_t)len;
}

static int sink_counting(void *ctx, const void *data, size_t len)
{
	struct balance *b = ctx;

	(void)data;
	(void)len;
	b->written++;
	return 0;
}

/* However large the bucket, no more frames are held than compressors and two. */
START_TEST(memory_is_bounded)
{
	static const struct spec root = {.path = "", .mode = DIR_MODE};
	struct spec s = {.path = "f", .mode = FILE_MODE, .size = 2 * GIB};
	struct varve_segment_params params = test_params();
	struct varve_segment_enc *enc;
	struct varve_segment_totals totals;
	struct balance b = {0};
	struct varve_extent whole;
	struct varve_member m = spec_member(&s, 2, &whole);

	params.threads = 2;
	params.level = 1;
	ck_assert_int_eq(varve_segment_enc_new(&params, sink_counting, &b, &enc, NULL), 0);
	ck_assert_int_eq(add_spec(enc, &root, 1, NULL), 0);
	ck_assert_int_eq(varve_segment_enc_add(enc, &m, read_counting, &b, NULL, NULL), 0);
	ck_assert_int_eq(varve_segment_enc_finish(enc, &totals, NULL), 0);
	varve_segment_enc_free(enc);
	ck_assert_uint_eq(b.written, 2 * GIB / VARVE_FRAME_BYTES + 1 + 1);
	ck_assert_uint_le(b.most, 2 + 2);
	ck_assert_uint_gt(b.most, 0);
}
END_TEST

/* How many threads of this process compress, and how many of them by this policy. */
static int count_compressors(int policy, int *ret_policy)
{
	cleanup_closedir DIR *d = opendir("/proc/self/task");
	const struct dirent *e;
	int n = 0;

	ck_assert_ptr_nonnull(d);
	*ret_policy = 0;
	while ((e = readdir(d))) {
		char path[300], name[32] = "";
		FILE *f;

		(void)snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fgets(name, sizeof(name), f) && strcmp(name, "varve-compress\n") == 0) {
			n++;
			*ret_policy += sched_getscheduler(atoi(e->d_name)) == policy;
		}
		(void)fclose(f);
	}
	return n;
}

/* An encoder that has begun: the bucket's directory and a file of more than one frame. */
static struct varve_segment_enc *begin(struct varve_segment_params *params, struct memory *to,
				       uint64_t frames)
{
	static const struct spec root = {.path = "", .mode = DIR_MODE};
	struct spec s = {.path = "f", .mode = FILE_MODE, .size = frames * VARVE_FRAME_BYTES};
	struct varve_segment_enc *enc = NULL;

	ck_assert_int_eq(varve_segment_enc_new(params, memory_sink, to, &enc, NULL), 0);
	ck_assert_int_eq(add_spec(enc, &root, 1, NULL), 0);
	if (frames > 0)
		ck_assert_int_eq(add_spec(enc, &s, 2, NULL), 0);
	return enc;
}

START_TEST(compressors_are_idle)
{
	struct varve_segment_params params = test_params();
	struct varve_segment_enc *enc;
	struct timespec from, now;
	struct memory to = {0};
	int n, idle;

	params.threads = 3;
	enc = begin(&params, &to, 2);
	(void)clock_gettime(CLOCK_MONOTONIC, &from);
	do {
		(void)sched_yield();
		n = count_compressors(SCHED_IDLE, &idle);
		(void)clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((n < 3 || idle < 3) && now.tv_sec - from.tv_sec < 60);
	ck_assert_int_eq(n, 3);
	ck_assert_int_eq(idle, 3);
	varve_segment_enc_free(enc);
	ck_assert_int_eq(count_compressors(SCHED_IDLE, &idle), 0);
	varve_buf_done(&to.buf);
	ck_assert_int_ne(sched_getscheduler(0), SCHED_IDLE);
	varve_segment_idle_thread();
	ck_assert_int_eq(sched_getscheduler(0), SCHED_IDLE);
}
END_TEST

START_TEST(no_thread_for_a_small_segment)
{
	struct varve_segment_params params = test_params();
	struct varve_segment_totals totals;
	struct varve_segment_enc *enc;
	struct memory to = {0};
	int idle;

	enc = begin(&params, &to, 0);
	ck_assert_int_eq(varve_segment_enc_finish(enc, &totals, NULL), 0);
	ck_assert_int_eq(count_compressors(SCHED_IDLE, &idle), 0);
	varve_segment_enc_free(enc);
	compare_segment(&to.buf, NULL, 0);
	varve_buf_done(&to.buf);
}
END_TEST

static void *spin(void *arg)
{
	/* Ordinary, also where the test itself was made nice: an idle thread would get a good share beside it. */
	(void)setpriority(PRIO_PROCESS, 0, 0);
	while (!__atomic_load_n((volatile int *)arg, __ATOMIC_RELAXED))
		;
	return NULL;
}

/* On a machine that is never idle an idle thread gets 0.3 % of a core: sealing would take a day.
 * Lifting the compressors needs a privilege; without it they go on as they are. */
START_TEST(sealing_goes_on_when_nothing_is_idle)
{
	struct varve_segment_params params = test_params();
	struct varve_segment_totals totals;
	struct varve_segment_enc *enc;
	struct memory to = {0};
	volatile int stop = 0;
	pthread_t spinner;
	cpu_set_t one;
	int lifted;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	ck_assert_int_eq(pthread_create(&spinner, NULL, spin, (void *)&stop), 0);
	params.level = geteuid() == 0 ? 13 : 1;
	params.threads = 1;
	enc = begin(&params, &to, 1);
	ck_assert_int_eq(varve_segment_enc_finish(enc, &totals, NULL), 0);
	ck_assert_int_eq(count_compressors(SCHED_BATCH, &lifted), 1);
	if (geteuid() == 0)
		ck_assert_int_eq(lifted, 1);
	varve_segment_enc_free(enc);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	(void)pthread_join(spinner, NULL);
	varve_buf_done(&to.buf);
}
END_TEST

T_MAIN("segment_enc", 100)
{
	tcase_add_loop_test(tc, order_of_members, 0, COUNT(orders));
	tcase_add_test(tc, first_member);
	tcase_add_test(tc, nothing_after_the_end);
	tcase_add_test(tc, parameters);
	tcase_add_test(tc, sink_fails);
	tcase_add_test(tc, file_became_shorter);
	tcase_add_test(tc, file_cannot_be_read);
	tcase_add_test(tc, file_grew_or_comes_in_pieces);
	tcase_add_test(tc, cancelled_while_reading);
	tcase_add_test(tc, cancelled_while_compressing);
	tcase_add_test(tc, same_bytes_with_any_number_of_threads);
	tcase_add_test(tc, memory_is_bounded);
	tcase_add_test(tc, compressors_are_idle);
	tcase_add_test(tc, no_thread_for_a_small_segment);
	tcase_add_test(tc, sealing_goes_on_when_nothing_is_idle);
}
