#include "fuse/uring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/cleanup.h"

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)

/* Of the library that runs: 3.18.3 is the first whose io_uring is without known faults. */
static bool library_is_new(void)
{
	int major, minor, hotfix;

	if (sscanf(fuse_pkgversion(), "%d.%d.%d", &major, &minor, &hotfix) != 3)
		return false;
	return FUSE_MAKE_VERSION(major, minor) > FUSE_MAKE_VERSION(3, 18) ||
	       (FUSE_MAKE_VERSION(major, minor) == FUSE_MAKE_VERSION(3, 18) && hotfix >= 3);
}

const char *varve_uring_obstacle(void)
{
	cleanup_close int fd =
		open("/sys/module/fuse/parameters/enable_uring", O_RDONLY | O_CLOEXEC);
	char on = 'N';

	if (!library_is_new())
		return "it takes libfuse 3.18.3 or newer";
	if (fd < 0)
		return "this kernel has it not for FUSE (Linux 6.14 has)";
	if (read(fd, &on, 1) != 1 || on != 'Y')
		return "the kernel's switch is off: "
		       "echo Y > /sys/module/fuse/parameters/enable_uring";
	return NULL;
}

bool varve_uring_offered(const struct fuse_conn_info *conn)
{
	return conn->capable_ext & FUSE_CAP_OVER_IO_URING;
}

#else

const char *varve_uring_obstacle(void)
{
	return "it takes libfuse 3.18.3 or newer";
}

bool varve_uring_offered(const struct fuse_conn_info *conn)
{
	(void)conn;
	return false;
}

#endif

/* Two threads are left with what does not come over the rings. */
#define LOOP_THREADS 2

int varve_uring_run(struct fuse_session *se)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	int r;

	if (!config)
		return -ENOMEM;
	fuse_loop_cfg_set_clone_fd(config, 0);
	fuse_loop_cfg_set_max_threads(config, LOOP_THREADS);
	r = fuse_session_loop_mt(se, config);
	fuse_loop_cfg_destroy(config);
	return r > 0 ? -r : r;
}
