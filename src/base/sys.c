#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/log.h"

#define STEP_BYTES (INT64_C(64) << 20)

int varve_openat(int dirfd, const char *path, int flags, mode_t mode)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
		.mode = (flags & (O_CREAT | O_TMPFILE)) ? mode : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	long fd;

	do
		fd = syscall(SYS_openat2, dirfd, path[0] ? path : ".", &how, sizeof(how));
	while (fd < 0 && (errno == EINTR || errno == EAGAIN));
	return fd < 0 ? -errno : (int)fd;
}

int varve_pread_full(int fd, void *buf, size_t len, uint64_t off)
{
	char *p = buf;

	while (len) {
		ssize_t n = pread(fd, p, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EBADMSG;
		p += n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	return 0;
}

int varve_pwrite_full(int fd, const void *buf, size_t len, uint64_t off)
{
	const char *p = buf;

	while (len) {
		ssize_t n = pwrite(fd, p, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	return 0;
}

int varve_read_file(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len)
{
	cleanup_close int fd = varve_openat(dirfd, path, O_RDONLY | O_NONBLOCK, 0);
	cleanup_free char *buf = NULL;
	struct stat st;
	int r;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	if ((uint64_t)st.st_size > max)
		return -EFBIG;
	buf = malloc((size_t)st.st_size + 1);
	if (!buf)
		return -ENOMEM;
	r = varve_pread_full(fd, buf, (size_t)st.st_size, 0);
	if (r < 0)
		return r;
	buf[st.st_size] = '\0';
	*ret_len = (size_t)st.st_size;
	*ret = steal_ptr(&buf);
	return 0;
}

int varve_fsync_dir(int dirfd, const char *path)
{
	cleanup_close int fd = varve_openat(dirfd, path, O_RDONLY | O_DIRECTORY, 0);

	if (fd < 0)
		return fd;
	return fsync(fd) < 0 ? -errno : 0;
}

int varve_publish_file(int dirfd, const char *name, const void *data, size_t len, mode_t mode)
{
	char tmp[NAME_MAX + 1];
	cleanup_close int fd = -1;
	int r;

	if (snprintf(tmp, sizeof(tmp), ".%s.tmp", name) >= (int)sizeof(tmp))
		return -ENAMETOOLONG;
	if (unlinkat(dirfd, tmp, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = varve_openat(dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL, mode);
	if (fd < 0)
		return fd;
	r = varve_pwrite_full(fd, data, len, 0);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r == 0 && renameat(dirfd, tmp, dirfd, name) < 0)
		r = -errno;
	if (r < 0) {
		(void)unlinkat(dirfd, tmp, 0);
		return r;
	}
	return varve_fsync_dir(dirfd, ".");
}

int varve_mkdir_p(int dirfd, const char *path, mode_t mode)
{
	cleanup_free char *copy = strdup(path);
	cleanup_close int at = -1;
	char *save = NULL;

	if (!copy)
		return -ENOMEM;
	at = varve_openat(dirfd, ".", O_PATH | O_DIRECTORY, 0);
	if (at < 0)
		return at;
	for (char *c = strtok_r(copy, "/", &save); c; c = strtok_r(NULL, "/", &save)) {
		int next;

		if (mkdirat(at, c, mode) < 0 && errno != EEXIST)
			return -errno;
		next = varve_openat(at, c, O_PATH | O_DIRECTORY, 0);
		if (next < 0)
			return next;
		(void)close(at);
		at = next;
	}
	return 0;
}

int varve_each_name(int dirfd_, const char *path, varve_name_cb *cb, void *ctx)
{
	cleanup_closedir DIR *dir = NULL;
	struct dirent *e;
	int fd = varve_openat(dirfd_, path, O_RDONLY | O_DIRECTORY, 0);

	if (fd < 0)
		return fd;
	dir = fdopendir(fd);
	if (!dir) {
		int r = -errno;

		(void)close(fd);
		return r;
	}
	while ((errno = 0, e = readdir(dir))) {
		int r;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		r = cb(ctx, dirfd(dir), e->d_name);
		if (r != 0)
			return r;
	}
	return -errno;
}

struct entries {
	varve_entry_cb *cb;
	void *ctx;
};

static int with_stat(void *ctx, int dir_fd, const char *name)
{
	const struct entries *en = ctx;
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	return en->cb(en->ctx, dir_fd, name, &st);
}

int varve_each_entry(int dirfd, const char *path, varve_entry_cb *cb, void *ctx)
{
	return varve_each_name(dirfd, path, with_stat, &(struct entries){cb, ctx});
}

static int remove_file(int dirfd, const char *name, bool in_steps)
{
	struct stat st;

	if (in_steps && fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISREG(st.st_mode) && st.st_nlink == 1 && st.st_size > STEP_BYTES) {
		cleanup_close int fd = varve_openat(dirfd, name, O_WRONLY | O_NONBLOCK, 0);

		for (off_t size = st.st_size; fd >= 0 && size > STEP_BYTES; size -= STEP_BYTES)
			if (ftruncate(fd, size - STEP_BYTES) < 0)
				break;
	}
	return unlinkat(dirfd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int remove_children(int fd, bool in_steps)
{
	cleanup_closedir DIR *dir = NULL;
	struct dirent *e;
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (copy < 0)
		return -errno;
	dir = fdopendir(copy);
	if (!dir) {
		(void)close(copy);
		return -errno;
	}
	while ((errno = 0, e = readdir(dir))) {
		int r;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		r = varve_remove_tree(dirfd(dir), e->d_name, in_steps);
		if (r < 0)
			return r;
	}
	return -errno;
}

int varve_remove_tree(int dirfd, const char *name, bool in_steps)
{
	cleanup_close int fd = varve_openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	int r;

	if (fd == -ENOTDIR || fd == -ELOOP)
		return remove_file(dirfd, name, in_steps);
	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return fd;
	r = remove_children(fd, in_steps);
	if (r < 0)
		return r;
	return unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

#ifdef VARVE_TEST_HOOKS
void varve_crash_point(const char *name)
{
	static int left = -1;
	const char *want = getenv("VARVE_TEST_CRASH");
	const char *colon;
	size_t n;

	if (!want)
		return;
	colon = strchr(want, ':');
	n = colon ? (size_t)(colon - want) : strlen(want);
	if (strlen(name) != n || strncmp(name, want, n) != 0)
		return;
	if (__atomic_load_n(&left, __ATOMIC_RELAXED) < 0) {
		int expect = -1;

		(void)__atomic_compare_exchange_n(&left, &expect, colon ? atoi(colon + 1) : 1, 0,
						  __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	}
	if (__atomic_sub_fetch(&left, 1, __ATOMIC_RELAXED) == 0) {
		varve_info("test: exits at crash point '%s'", name);
		_exit(86);
	}
}

void varve_pause_point(const char *name)
{
	const char *want = getenv("VARVE_TEST_PAUSE");
	const struct timespec step = {.tv_nsec = 1000000};
	size_t n = strlen(name);
	char there[4096];

	if (!want || strncmp(want, name, n) != 0 || want[n] != ':')
		return;
	if (access(want + n + 1, F_OK) < 0)
		return;
	(void)snprintf(there, sizeof(there), "%s.there", want + n + 1);
	(void)close(open(there, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	while (access(want + n + 1, F_OK) == 0)
		(void)nanosleep(&step, NULL);
}
#endif
