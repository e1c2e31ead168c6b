#include "seal_util.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mount.h>

/* -- what goes wrong -- */

START_TEST(test_leftover)
{
	struct varve_err err = {.msg = ""};
	struct varve_segment_totals totals;
	struct tree t;
	char *text;
	size_t len;

	make_file("a", "x", 1);
	t = whole_tree();
	write_file(seg, SEG, "half of an earlier try", 22);
	seal_and_compare(&t);
	ck_assert_int_eq(unlinkat(seg, SEG, 0), 0);
	write_file(dir.fd, "kept", "kept", 4);
	ck_assert_int_eq(symlinkat("../kept", seg, SEG), 0);
	seal_and_compare(&t);
	ck_assert_int_eq(varve_read_file(dir.fd, "kept", 100, &text, &len), 0);
	ck_assert_str_eq(text, "kept");
	free(text);
	ck_assert_int_eq(unlinkat(seg, SEG, 0), 0);
	ck_assert_int_eq(mkdirat(seg, SEG, 0700), 0);
	ck_assert_int_eq(seal(&t, NULL, &totals, &err), -EISDIR);
	ck_assert_ptr_nonnull(strstr(err.msg, SEG));
	ck_assert_int_eq(seal(&t, NULL, &totals, NULL), -EISDIR);
	tree_done(&t);
}
END_TEST

static void fill_disk(int at, size_t leave)
{
	int fd = openat(at, "filler", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	static const char block[4096];
	off_t size = 0;

	ck_assert_int_ge(fd, 0);
	while (write(fd, block, sizeof(block)) > 0)
		size += (off_t)sizeof(block);
	ck_assert_int_eq(errno, ENOSPC);
	ck_assert_int_eq(ftruncate(fd, size > (off_t)leave ? size - (off_t)leave : 0), 0);
	ck_assert_int_eq(close(fd), 0);
}

/* A disk that is full from the start, or becomes so at any point of the segment: tried again with a
 * page more each time, until it fits. */
START_TEST(test_disk_full)
{
	struct varve_segment_totals totals = {.members = 77};
	struct varve_err err = {.msg = ""};
	struct tree t;
	int failures = 0, wrong = 0, left = 0, r = -ENOSPC;

	make_content("noise", 200000, 1, true);
	make_file("z", "x", 1);
	t = whole_tree();
	ck_assert_int_eq(fchdir(seg), 0);
	ck_assert_int_eq(mount("tmpfs", ".", "tmpfs", 0, "size=1m"), 0);
	(void)close(seg);
	seg = openat(dir.fd, "seg", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t pages = 0; r == -ENOSPC && pages < 200; pages++) {
		fill_disk(seg, pages * 4096);
		r = seal(&t, NULL, &totals, &err);
		failures += r == -ENOSPC;
		wrong += r == -ENOSPC && (totals.members != 77 || !err.msg[0]);
		left += entries(seg) - (r == 0) != 1;
	}
	if (r == 0) {
		struct opened o = open_segment();

		same_tree(&o, &t);
		opened_done(&o);
	}
	(void)close(seg);
	ck_assert_int_eq(chdir("/"), 0);
	(void)snprintf(err.msg, sizeof(err.msg), "%s/seg", dir.path);
	ck_assert_int_eq(umount(err.msg), 0);
	seg = openat(dir.fd, "seg", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(r, 0);
	ck_assert_int_gt(failures, 40);
	ck_assert_int_eq(wrong, 0);
	ck_assert_int_eq(left, 0);
	tree_done(&t);
}
END_TEST

static int refuse_at(struct tree *t, size_t i, int *fd)
{
	(void)fd;
	return !strcmp(t->list[i].path, "b") ? -EACCES : 0;
}

static int give_write_only(struct tree *t, size_t i, int *fd)
{
	if (!strcmp(t->list[i].path, "b"))
		*fd = openat(parts, "b", O_WRONLY | O_CLOEXEC);
	return 0;
}

static int give_path_only(struct tree *t, size_t i, int *fd)
{
	if (!strcmp(t->list[i].path, "b"))
		*fd = openat(parts, "b", O_PATH | O_CLOEXEC);
	return 0;
}

static int give_pipe(struct tree *t, size_t i, int *fd)
{
	int ends[2];

	if (strcmp(t->list[i].path, "b") != 0)
		return 0;
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	ck_assert_int_eq(close(ends[1]), 0);
	*fd = ends[0];
	return 0;
}

static int give_directory(struct tree *t, size_t i, int *fd)
{
	if (!strcmp(t->list[i].path, "b"))
		*fd = openat(parts, ".", O_RDONLY | O_CLOEXEC);
	return 0;
}

START_TEST(test_unreadable)
{
	struct tree t;

	make_file("a", "x", 1);
	make_content("b", 100, 1, false);
	make_file("c", "x", 1);
	t = whole_tree();
	t.hook = refuse_at;
	want_failure(&t, NULL, -EACCES, "'b'");
	t.hook = give_write_only;
	want_failure(&t, NULL, -EBADF, "'b'");
	t.hook = give_path_only;
	want_failure(&t, NULL, -EBADF, "'b'");
	t.hook = give_pipe;
	want_failure(&t, NULL, -EBADMSG, "'b'");
	t.list[2].link = true;
	t.hook = give_directory;
	want_failure(&t, NULL, -EBADMSG, "'b'");
	t.hook = NULL;
	seal_and_compare(&t);
	tree_done(&t);
}
END_TEST

START_TEST(test_refused)
{
	struct varve_segment_totals totals;
	struct varve_seal_job job = {.params = test_params(), .next = next};
	struct varve_err err = {.msg = ""};
	struct tree t;
	struct item swap;

	make_content("link-long", VARVE_PATH_BYTES_MAX + 1, 1, false);
	make_file("link-empty", "", 0);
	make_file("a", "x", 1);
	make_file("b", "x", 1);
	t = whole_tree();
	want_failure(&t, NULL, -EINVAL, "'link-empty'");
	make_file("link-empty", "not so", 6);
	want_failure(&t, NULL, -EBADMSG, "'link-long'");
	make_content("link-long", VARVE_PATH_BYTES_MAX, 1, false);
	seal_and_compare(&t);
	ck_assert_int_eq(unlinkat(seg, SEG, 0), 0);
	swap = t.list[1];
	t.list[1] = t.list[2];
	t.list[2] = swap;
	want_failure(&t, NULL, -EINVAL, "'a'");
	job.ctx = &t;
	ck_assert_int_eq(varve_seal_segment(seg, SEG, &job, &totals, &err), -EINVAL);
	job.params.level = 77;
	job.n = t.n;
	ck_assert_int_eq(varve_seal_segment(seg, SEG, &job, &totals, &err), -EINVAL);
	job.params.level = 3;
	ck_assert_int_eq(varve_seal_segment(seg, "none/" SEG, &job, &totals, &err), -ENOENT);
	ck_assert_int_eq(entries(seg), 0);
	tree_done(&t);
}
END_TEST

/* -- parts that change -- */

struct changer {
	pthread_t thread;
	int fd;
	atomic_bool stop, changed;
	void (*change)(int fd, uint64_t k);
};

static void *keep_changing(void *arg)
{
	struct changer *c = arg;

	for (uint64_t k = 0; !atomic_load(&c->stop); k++) {
		c->change(c->fd, k);
		atomic_store(&c->changed, true);
		(void)usleep(200);
	}
	return NULL;
}

static int start_changing(struct tree *t, size_t i, int *fd)
{
	struct changer *c = t->arg;

	(void)fd;
	if (strcmp(t->list[i].path, "b") != 0)
		return 0;
	ck_assert_int_eq(pthread_create(&c->thread, NULL, keep_changing, c), 0);
	return 0;
}

static void grow_it(int fd, uint64_t k)
{
	ck_assert_int_eq(pwrite(fd, "more", 4, (off_t)(16 * MIB + 4 * k)), 4);
}

static void shrink_it(int fd, uint64_t k)
{
	ck_assert_int_eq(ftruncate(fd, k < 1600 ? (off_t)(16 * MIB - k * 10000) : 0), 0);
}

static void overwrite_it(int fd, uint64_t k)
{
	ck_assert_int_eq(pwrite(fd, "else", 4, (off_t)(k * 5000 % (15 * MIB))), 4);
}

static void (*const changes[])(int fd, uint64_t k) = {grow_it, shrink_it, overwrite_it};

START_TEST(test_changes)
{
	struct changer c = {.change = changes[_i]};
	struct tree t;

	make_file("a", "x", 1);
	make_content("b", 16 * MIB, 1, true);
	c.fd = openat(parts, "b", O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(c.fd, 0);
	t = whole_tree();
	t.hook = start_changing;
	t.arg = &c;
	want_failure(&t, NULL, -EAGAIN, "'b' changed");
	atomic_store(&c.stop, true);
	ck_assert_int_eq(pthread_join(c.thread, NULL), 0);
	ck_assert_int_eq(close(c.fd), 0);
	ck_assert(atomic_load(&c.changed));
	/* It holds still now. */
	t.hook = NULL;
	seal_and_compare(&t);
	tree_done(&t);
}
END_TEST

/* -- calling it off -- */

static int cancel_flag;

static int cancel_at(struct tree *t, size_t i, int *fd)
{
	(void)fd;
	if (!strcmp(t->list[i].path, t->arg))
		__atomic_store_n(&cancel_flag, 1, __ATOMIC_RELAXED);
	return 0;
}

START_TEST(test_cancel)
{
	struct tree t;

	make_file("a", "x", 1);
	make_content("b", 16 * MIB, 1, true);
	make_file("c", "x", 1);
	t = whole_tree();
	t.hook = cancel_at;
	for (size_t i = 0; i < t.n; i++) {
		cancel_flag = 0;
		t.arg = t.list[i].path;
		want_failure(&t, &cancel_flag, -ECANCELED, NULL);
	}
	cancel_flag = 1;
	want_failure(&t, &cancel_flag, -ECANCELED, NULL);
	tree_done(&t);
}
END_TEST

static void *cancel_later(void *arg)
{
	(void)usleep(*(useconds_t *)arg);
	__atomic_store_n(&cancel_flag, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* At any time, also while it is being read back: it ends, soon, and all or nothing is there. */
START_TEST(test_cancel_any_time)
{
	struct varve_segment_totals totals;
	useconds_t delay = 100;
	struct tree t;
	int r = -ECANCELED, n = 0;

	make_content("b", 12 * MIB, 1, true);
	t = whole_tree();
	for (; r == -ECANCELED && delay < 8000000; delay += delay / 4) {
		pthread_t thread;

		cancel_flag = 0;
		ck_assert_int_eq(pthread_create(&thread, NULL, cancel_later, &delay), 0);
		r = seal(&t, &cancel_flag, &totals, NULL);
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
		ck_assert_int_eq(entries(seg), r == 0);
		n++;
	}
	ck_assert_int_eq(r, 0);
	ck_assert_int_gt(n, 3);
	tree_done(&t);
}
END_TEST

/* -- a disk that does not keep what it was given -- */

static void damage_bit(int fd)
{
	unsigned char b;

	ck_assert_int_eq(varve_pread_full(fd, &b, 1, 1 * MIB), 0);
	b ^= 1;
	ck_assert_int_eq(varve_pwrite_full(fd, &b, 1, 1 * MIB), 0);
}

static void damage_sector(int fd)
{
	static const char zeros[4096];

	ck_assert_int_eq(varve_pwrite_full(fd, zeros, sizeof(zeros), 0), 0);
}

static void damage_lost(int fd)
{
	ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 65536, 65536),
			 0);
}

static void (*const damages[])(int fd) = {damage_bit, damage_sector, damage_lost};

/* Frames that were written already are damaged before the last member comes. */
static int damage_at_last(struct tree *t, size_t i, int *fd)
{
	void (*const *damage)(int) = t->arg;
	cleanup_close int out = -1;
	struct stat st;

	(void)fd;
	if (i + 1 < t->n)
		return 0;
	out = openat(seg, SEG, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(out, 0);
	ck_assert_int_eq(fstat(out, &st), 0);
	ck_assert_int_gt(st.st_size, (off_t)(2 * MIB));
	(*damage)(out);
	return 0;
}

START_TEST(test_damaged_when_read_back)
{
	struct tree t;

	make_content("b", 12 * MIB, 1, true);
	make_file("last", "x", 1);
	t = whole_tree();
	t.hook = damage_at_last;
	t.arg = (void *)&damages[_i];
	want_failure(&t, NULL, -EBADMSG, "'b'");
	t.hook = NULL;
	seal_and_compare(&t);
	tree_done(&t);
}
END_TEST

T_MAIN("seal_faults", 100)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_leftover);
	tcase_add_test(tc, test_disk_full);
	tcase_add_test(tc, test_unreadable);
	tcase_add_test(tc, test_refused);
	tcase_add_loop_test(tc, test_changes, 0, 3);
	tcase_add_test(tc, test_cancel);
	tcase_add_test(tc, test_cancel_any_time);
	tcase_add_loop_test(tc, test_damaged_when_read_back, 0, 3);
}
