#include "fuse/passthrough.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdint.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sync.h"

/* As in the kernel's include/uapi/linux/fuse.h, which older headers lack. */
struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define BACKING_OPEN _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

/* The kernel writes with the credentials that it is told of a part with. They must not be root's: the blocks that the
 * backing filesystem keeps for root are not for those who append. */
#define WRITER_ID 65534

static int register_part(void *ctx, int fd)
{
	struct varve_passthrough *p = ctx;
	struct backing_map map = {.fd = fd};
	guard(&p->lock);
	uid_t uid = (uid_t)setfsuid(WRITER_ID);
	int r = p->se ? ioctl(fuse_session_fd(p->se), BACKING_OPEN, &map) : -1;

	if (r <= 0)
		r = !p->se ? -ENOTCONN : r < 0 ? -errno : -EIO;
	(void)setfsuid(uid);
	return r;
}

static void forget_part(void *ctx, int backing)
{
	struct varve_passthrough *p = ctx;
	uint32_t id = (uint32_t)backing;

	guard(&p->lock);
	if (p->se)
		(void)ioctl(fuse_session_fd(p->se), BACKING_CLOSE, &id);
}

void varve_passthrough_end(struct varve_passthrough *p)
{
	guard(&p->lock);
	p->se = NULL;
}

struct varve_store_kernel varve_passthrough_kernel(struct varve_passthrough *p)
{
	if (!VARVE_FUSE_CAP_PASSTHROUGH)
		return (struct varve_store_kernel){NULL, NULL, NULL};
	return (struct varve_store_kernel){register_part, forget_part, p};
}

static bool may_register(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	return syscall(SYS_capget, &head, data) == 0 &&
	       data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN);
}

void varve_passthrough_init(struct varve_passthrough *p, struct fuse_conn_info *conn)
{
	const struct varve_policy *policy = varve_store_policy(p->store);

	if (!VARVE_FUSE_CAP_PASSTHROUGH || !policy->passthrough || policy->worm)
		return;
	if (!may_register()) {
		varve_store_kernel_off(p->store, "CAP_SYS_ADMIN is missing");
		return;
	}
	p->offered = varve_fuse_want(conn, VARVE_FUSE_CAP_PASSTHROUGH);
	if (!p->offered)
		varve_store_kernel_off(p->store, "the kernel has no passthrough (it came with Linux 6.9)");
}

static const char *reason(int r)
{
	switch (r) {
	case -EPERM:
		return "the kernel does not let it";
	case -ELOOP:
		return "the store is on a stacked filesystem";
	case -EOPNOTSUPP:
	case -ENOTTY:
	case -EINVAL:
		return "the kernel or the store's filesystem does not take it";
	default:
		return strerror(-r);
	}
}

void varve_passthrough_try(struct varve_passthrough *p)
{
	const struct varve_policy *policy = varve_store_policy(p->store);
	cleanup_close int fd = -1;
	int r;

	if (!p->offered || !policy->passthrough || policy->worm)
		return;
	fd = openat(varve_store_dirfd(p->store), "lock", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	r = fd < 0 ? -errno : register_part(p, fd);
	/* INIT is being answered by another thread: until the kernel has the answer it refuses. */
	for (int tries = 0; r == -EPERM && tries < 1000; tries++) {
		const struct timespec step = {.tv_nsec = 1000000};

		(void)nanosleep(&step, NULL);
		r = register_part(p, fd);
	}
	if (r > 0)
		forget_part(p, r);
	else
		varve_store_kernel_off(p->store, reason(r));
}
