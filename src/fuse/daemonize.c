#include "fuse/daemonize.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

/* The parent's part: waits for the child's byte, else for its end. */
static _Noreturn void wait_for_child(pid_t child, int fd)
{
	char byte;
	ssize_t n;
	int status;

	do
		n = read(fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n == 1)
		_exit(0);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			_exit(1);
	if (WIFSIGNALED(status))
		varve_error("the daemon was killed by signal %d", WTERMSIG(status));
	_exit(WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : 1);
}

int varve_daemon_fork(int *ret_ready_fd, struct varve_err *err)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return varve_err_wrap(err, -errno, "going into the background");
	(void)fflush(NULL);
	pid = fork();
	if (pid < 0) {
		int r = -errno;

		(void)close(fds[0]);
		(void)close(fds[1]);
		return varve_err_wrap(err, r, "going into the background");
	}
	if (pid > 0) {
		(void)close(fds[1]);
		wait_for_child(pid, fds[0]);
	}
	(void)close(fds[0]);
	(void)setsid();
	*ret_ready_fd = fds[1];
	return 0;
}

/* sd_notify(3), without its library. */
static void notify_manager(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	size_t len = path ? strlen(path) : 0;
	int fd;

	if (len < 2 || len >= sizeof(addr.sun_path) || (path[0] != '/' && path[0] != '@'))
		return;
	memcpy(addr.sun_path, path, len);
	if (addr.sun_path[0] == '@')
		addr.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	(void)sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&addr,
		     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
	(void)close(fd);
}

static void to_dev_null(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int i = 0; fd >= 0 && i < 3; i++)
		if (i != fd)
			(void)dup2(fd, i);
	if (fd > 2)
		(void)close(fd);
}

void varve_daemon_ready(int ready_fd)
{
	char state[64];

	if (ready_fd >= 0) {
		to_dev_null();
		(void)!write(ready_fd, "", 1);
		(void)close(ready_fd);
	}
	(void)snprintf(state, sizeof(state), "READY=1\nMAINPID=%ld\n", (long)getpid());
	notify_manager(state);
}

void varve_daemon_stopping(void)
{
	notify_manager("STOPPING=1\n");
}

void varve_daemon_clean_fds(void)
{
	int fd;

	(void)close_range(STDERR_FILENO + 1, UINT_MAX, 0);
	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		(void)close(fd);
}

void varve_daemon_raise_nofile(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0 || lim.rlim_cur == lim.rlim_max)
		return;
	lim.rlim_cur = lim.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &lim);
}

void varve_daemon_spare_reserve(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	const uint32_t bit = UINT32_C(1) << CAP_SYS_RESOURCE;

	/* A daemon that has no capabilities has none to give up; there is nobody to tell of a failure. */
	if (syscall(SYS_capget, &head, data) < 0 || !(data[0].permitted & bit))
		return;
	data[0].effective &= ~bit;
	data[0].permitted &= ~bit;
	data[0].inheritable &= ~bit;
	(void)syscall(SYS_capset, &head, data);
}
