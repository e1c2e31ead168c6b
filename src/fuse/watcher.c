#include "fuse/watcher.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>

#include "fuse/mountpoint.h"

/* An open /dev/fuse in here would keep the connection alive, and the mount would hang instead of
 * being dead. */
static int close_all_but(int fd)
{
	if (dup2(fd, STDERR_FILENO + 1) < 0)
		return -errno;
	if (close_range(STDERR_FILENO + 2, UINT_MAX, 0) < 0)
		return -errno;
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++)
		(void)dup2(fd, i);
	return STDERR_FILENO + 1;
}

static _Noreturn void watch(const char *mountpoint, dev_t dev, int fd)
{
	char byte;
	dev_t top;

	(void)setsid();
	(void)signal(SIGTERM, SIG_IGN);
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	fd = close_all_but(fd);
	/* Nobody writes: the read ends when the daemon does. */
	while (fd >= 0 && read(fd, &byte, 1) < 0 && errno == EINTR)
		;
	if (fd >= 0 && varve_mountpoint_device(mountpoint, &top) == 0 && top == dev &&
	    varve_mountpoint_detach(mountpoint, NULL) < 0)
		_exit(1);
	_exit(0);
}

int varve_watcher_start(const char *mountpoint, dev_t dev, int *ret_fd, struct varve_err *err)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return varve_err_wrap(err, -errno, "auto_unmount");
	pid = fork();
	if (pid < 0) {
		int r = -errno;

		(void)close(fds[0]);
		(void)close(fds[1]);
		return varve_err_wrap(err, r, "auto_unmount");
	}
	if (pid == 0)
		watch(mountpoint, dev, fds[0]);
	(void)close(fds[0]);
	*ret_fd = fds[1];
	return 0;
}
