#include "fuse/mountpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "fuse/mountinfo.h"

/* Deeper than this no path goes; stacked higher than this nobody mounts. */
#define WALK_MAX PATH_MAX
#define DEAD_MAX 32

static void cleanup_fclose_p(FILE **f)
{
	if (*f)
		(void)fclose(*f);
}

/* The topmost mount at path: the last one in the list. *ret_fuse: whether it is a FUSE mount. */
static int find_mount(const char *path, dev_t *ret_dev, bool *ret_fuse)
{
	__attribute__((cleanup(cleanup_fclose_p))) FILE *f = fopen("/proc/self/mountinfo", "re");
	cleanup_free char *line = NULL;
	size_t size = 0;
	bool found = false;

	if (!f)
		return -errno;
	while (getline(&line, &size, f) >= 0) {
		struct varve_mountinfo info;

		if (!varve_mountinfo_parse(line, &info) || strcmp(info.path, path) != 0)
			continue;
		found = true;
		*ret_dev = info.dev;
		*ret_fuse = strncmp(info.type, "fuse", 4) == 0;
	}
	return found ? 0 : -ENOENT;
}

int varve_mountpoint_device(const char *mountpoint, dev_t *ret)
{
	bool fuse;
	dev_t dev;
	int r = find_mount(mountpoint, &dev, &fuse);

	if (r == 0)
		*ret = dev;
	return r;
}

/* fusermount3 -u -z: how an ordinary user's mount goes. */
static int detach_by_helper(const char *mountpoint)
{
	char *argv[] = {(char *)"fusermount3", (char *)"-u",       (char *)"-z",
			(char *)"--",          (char *)mountpoint, NULL};
	pid_t pid;
	int status;
	int r = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);

	if (r > 0)
		return -r;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

int varve_mountpoint_detach(const char *mountpoint, struct varve_err *err)
{
	int r = 0;

	if (umount2(mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
		r = -errno;
	if (r == -EPERM)
		r = detach_by_helper(mountpoint);
	if (r < 0)
		return varve_err_wrap(err, r, "unmounting '%s'", mountpoint);
	return 0;
}

/* realpath(3) without trailing slashes, which would make it look into a dead mount. */
static int real_path(const char *path, char **ret)
{
	cleanup_free char *copy = strdup(path);
	size_t len;

	if (!copy)
		return -ENOMEM;
	len = strlen(copy);
	while (len > 1 && copy[len - 1] == '/')
		copy[--len] = '\0';
	*ret = realpath(copy, NULL);
	return *ret ? 0 : -errno;
}

/* stat(2) that also asks whoever serves the folder: what the kernel has cached of a dead mount's
 * root still answers the one, but never statfs(2). */
static int stat_served(const char *path, struct stat *ret)
{
	struct statfs fs;

	return stat(path, ret) < 0 || statfs(path, &fs) < 0 ? -errno : 0;
}

static int detach_dead(const char *path, struct varve_err *err)
{
	bool fuse = false;
	struct stat st;
	dev_t dev;
	int r = find_mount(path, &dev, &fuse);

	/* Somebody else (its watcher) was quicker. */
	if (r == -ENOENT && stat_served(path, &st) == 0)
		return 0;
	if (r < 0 || !fuse)
		return varve_err_set(
			err, -ENOTCONN,
			"'%s' lies in a mount that does not answer; unmount that first", path);
	r = varve_mountpoint_detach(path, err);
	if (r == 0)
		varve_info("detached a dead mount from '%s'", path);
	return r;
}

int varve_mountpoint_prepare(const char *path, char **ret, struct varve_err *err)
{
	cleanup_free char *real = NULL;
	struct stat st;
	int r = real_path(path, &real);

	if (r == -ENOENT)
		return varve_err_set(err, r,
				     "the mountpoint '%s' does not exist; make it: mkdir -p '%s'",
				     path, path);
	if (r < 0)
		return varve_err_wrap(err, r, "mountpoint '%s'", path);
	for (unsigned i = 0; (r = stat_served(real, &st)) < 0; i++) {
		if ((r != -ENOTCONN && r != -ECONNABORTED) || i == DEAD_MAX)
			return varve_err_wrap(err, r, "mountpoint '%s'", real);
		r = detach_dead(real, err);
		if (r < 0)
			return r;
	}
	if (!S_ISDIR(st.st_mode))
		return varve_err_set(err, -ENOTDIR, "the mountpoint '%s' is not a directory", real);
	*ret = steal_ptr(&real);
	return 0;
}

/* The real path of path, of which the end need not exist; the real part of it alone into
 * *ret_there. */
static int future_path(const char *path, char **ret, char **ret_there)
{
	cleanup_free char *there = strdup(path);
	cleanup_free char *real = NULL;
	char *full;
	size_t len;
	int r;

	if (!there)
		return -ENOMEM;
	len = strlen(there);
	while ((r = real_path(len ? there : ".", &real)) == -ENOENT && len) {
		while (len && there[len - 1] == '/')
			there[--len] = '\0';
		while (len && there[len - 1] != '/')
			there[--len] = '\0';
	}
	if (r < 0)
		return r;
	while (path[len] == '/')
		len++;
	if (asprintf(&full, "%s%s%s", real, path[len] && real[1] ? "/" : "", path + len) < 0)
		return -ENOMEM;
	*ret = full;
	*ret_there = steal_ptr(&real);
	return 0;
}

/* Whether path is dir or lies in it, by their names. */
static bool path_within(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	if (len == 1) /* "/" */
		return true;
	return strncmp(path, dir, len) == 0 && (path[len] == '/' || !path[len]);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Whether going up from path by ".." leads through dir. What can't be walked is not. */
static bool walk_within(const char *path, const struct stat *dir)
{
	cleanup_close int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat last = {0};
	struct stat st;

	for (unsigned i = 0; fd >= 0 && i < WALK_MAX; i++) {
		int up;

		if (fstat(fd, &st) < 0)
			return false;
		if (same_file(&st, dir))
			return true;
		if (i && same_file(&st, &last))
			return false;
		last = st;
		up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		(void)close(fd);
		fd = up;
	}
	return false;
}

int varve_mountpoint_check_store(const char *store, const char *mountpoint, char **ret_store,
				 struct varve_err *err)
{
	cleanup_free char *full = NULL;
	cleanup_free char *there = NULL;
	struct stat store_st;
	struct stat mount_st;
	int r = future_path(store, &full, &there);

	if (r < 0)
		return varve_err_wrap(err, r, "store '%s'", store);
	if (stat(mountpoint, &mount_st) < 0)
		return varve_err_wrap(err, -errno, "mountpoint '%s'", mountpoint);
	if (path_within(full, mountpoint) || walk_within(there, &mount_st))
		return varve_err_set(
			err, -EINVAL,
			"the store '%s' is inside the mountpoint '%s'; keep them apart, "
			"for example /var/lib/varve and /mnt/varve",
			full, mountpoint);
	if (path_within(mountpoint, full) ||
	    (stat(full, &store_st) == 0 && walk_within(mountpoint, &store_st)))
		return varve_err_set(
			err, -EINVAL,
			"the mountpoint '%s' is inside the store '%s'; keep them apart, "
			"for example /mnt/varve and /var/lib/varve",
			mountpoint, full);
	*ret_store = steal_ptr(&full);
	return 0;
}
