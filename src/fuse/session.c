#include "fuse/session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "fuse/handoff.h"
#include "fuse/loop.h"
#include "fuse/mountpoint.h"
#include "fuse/notify.h"
#include "fuse/ops.h"
#include "fuse/passthrough.h"
#include "fuse/uring.h"
#include "fuse/watcher.h"

#define READ_AHEAD_BYTES (1u << 20)
/* Two serve small appends best, also where there are more cores; see docs/performance.md. */
#define LOOP_THREADS_MIN 2
#define LOOP_THREADS_MAX 4
#define MAX_BACKGROUND 64

struct varve_session {
	/* -- immutable once it runs -- */
	struct varve_ll ll;
	struct fuse_session *se;
	struct varve_loop *loop;
	struct varve_notify *notify;
	struct varve_passthrough passthrough;
	char *mountpoint;
	dev_t dev; /* the mount's; 0: not mounted */
	bool auto_unmount;
	bool uring_asked, uring;     /* asked for; tried */
	const char *uring_obstacle; /* why it is not had; known at INIT at the latest */
	int watcher_fd; /* what the watcher waits on; -1: there is none */
	pthread_t signal_thread, settle_thread;
	void (*ready)(void *ctx);
	void *ready_ctx;
	int signal_fd; /* signalfd of what is blocked */
	int ended_fd;  /* eventfd: readable when the loop has returned */
	int inited_fd; /* eventfd: readable when the kernel's INIT has come */
};

/* -- libfuse -- */

static void log_libfuse(enum fuse_log_level level, const char *fmt, va_list ap)
{
	char text[1024];
	size_t len;

	(void)vsnprintf(text, sizeof(text), fmt, ap);
	len = strlen(text);
	while (len && text[len - 1] == '\n')
		text[--len] = '\0';
	if (!len)
		return;
	if (level <= FUSE_LOG_ERR)
		varve_error("%s", text);
	else if (level == FUSE_LOG_WARNING)
		varve_warning("%s", text);
	else
		varve_debug("%s", text);
}

static void want(struct fuse_conn_info *conn)
{
	static const uint64_t caps[] = {
		FUSE_CAP_ASYNC_READ,
		FUSE_CAP_ATOMIC_O_TRUNC,
		FUSE_CAP_DONT_MASK,
		FUSE_CAP_POSIX_ACL,
		FUSE_CAP_PARALLEL_DIROPS,
		FUSE_CAP_READDIRPLUS,
		FUSE_CAP_READDIRPLUS_AUTO,
		FUSE_CAP_EXPLICIT_INVAL_DATA,
		/* Without it every append asks for security.capability first. */
		VARVE_FUSE_CAP_KILLPRIV_V2,
	};

	for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++)
		if (caps[i])
			(void)varve_fuse_want(conn, caps[i]);
}

static void unwant(struct fuse_conn_info *conn)
{
	static const uint64_t caps[] = {
		FUSE_CAP_AUTO_INVAL_DATA, /* each append's new mtime would drop the page cache */
		FUSE_CAP_ASYNC_DIO,       /* the chunks of a large write come in order */
		FUSE_CAP_WRITEBACK_CACHE, /* would lose what the daemon has not seen */
		FUSE_CAP_SPLICE_READ,     /* small appends cost twice with these */
		FUSE_CAP_SPLICE_WRITE,    FUSE_CAP_SPLICE_MOVE,
	};

	for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++)
		varve_fuse_unwant(conn, caps[i]);
}

static void on_init(void *userdata, struct fuse_conn_info *conn)
{
	const struct varve_ll *ll = userdata;
	struct varve_session *s =
		(struct varve_session *)((uintptr_t)ll - offsetof(struct varve_session, ll));
	const uint64_t one = 1;

	want(conn);
	unwant(conn);
	varve_passthrough_init(&s->passthrough, conn);
	varve_fuse_no_interrupt(conn);
	conn->max_background = MAX_BACKGROUND;
	conn->max_readahead = READ_AHEAD_BYTES;
	conn->time_gran = 1;
	if (ll->max_read)
		conn->max_read = ll->max_read;
	if (s->uring && !varve_uring_offered(conn))
		s->uring_obstacle = "the kernel does not offer it for this mount";
	(void)!write(s->inited_fd, &one, sizeof(one));
}

/* Left out on purpose: flush (nothing to do at close), access (default_permissions), locks (kernel-
 * local ones work), write_buf (splice is slower for us), copy_file_range and lseek (the kernel's
 * own ways do), poll, ioctl. */
static const struct fuse_lowlevel_ops ops = {
	.init = on_init,
	.lookup = varve_op_lookup,
	.forget = varve_op_forget,
	.forget_multi = varve_op_forget_multi,
	.mkdir = varve_via_mkdir,
	.mknod = varve_via_mknod,
	.symlink = varve_via_symlink,
	.link = varve_op_link,
	.unlink = varve_via_unlink,
	.rmdir = varve_via_rmdir,
	.rename = varve_via_rename,
	.readlink = varve_op_readlink,
	.getattr = varve_op_getattr,
	.setattr = varve_via_setattr,
	.getxattr = varve_op_getxattr,
	.listxattr = varve_op_listxattr,
	.setxattr = varve_via_setxattr,
	.removexattr = varve_via_removexattr,
	.statfs = varve_op_statfs,
	.open = varve_via_open,
	.create = varve_via_create,
	.read = varve_via_read,
	.write = varve_op_write,
	.fsync = varve_via_fsync,
	.fallocate = varve_via_fallocate,
	.release = varve_op_release,
	.opendir = varve_op_opendir,
	.readdir = varve_via_readdir,
	.readdirplus = varve_via_readdirplus,
	.releasedir = varve_op_releasedir,
	.fsyncdir = varve_via_fsyncdir,
};

static int new_fuse_session(struct varve_session *s, const struct varve_session_params *params)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);

	fuse_set_log_func(log_libfuse);
	if (fuse_opt_add_arg(&args, "varvefs") == 0 && fuse_opt_add_arg(&args, "-o") == 0 &&
	    fuse_opt_add_arg(&args, params->fuse_options) == 0 &&
	    (!s->uring || (fuse_opt_add_arg(&args, "-o") == 0 &&
			   fuse_opt_add_arg(&args, "io_uring") == 0)) &&
	    (!params->debug || fuse_opt_add_arg(&args, "-d") == 0))
		s->se = fuse_session_new(&args, &ops, sizeof(ops), &s->ll);
	fuse_opt_free_args(&args);
	return s->se ? 0 : -EINVAL;
}

/* -- signals -- */

static void signal_set(sigset_t *set)
{
	(void)sigemptyset(set);
	(void)sigaddset(set, SIGTERM);
	(void)sigaddset(set, SIGINT);
	(void)sigaddset(set, SIGHUP);
}

void varve_session_block_signals(void)
{
	sigset_t set;

	signal_set(&set);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGIO, SIG_IGN); /* of a lease that was asked for: see varve_part_has_writer */
}

/* SIGUSR1 does nothing but interrupt the loop's threads. */
static void on_wake(int sig)
{
	(void)sig;
}

static void catch_wake(void)
{
	struct sigaction sa = {.sa_handler = on_wake};

	(void)sigaction(SIGUSR1, &sa, NULL);
}

/* Waits for a signal or the loop's end, at most timeout_ms (-1: no limit). Returns the signal; 0:
 * the loop has ended; -ETIMEDOUT. */
static int wait_signal(const struct varve_session *s, int timeout_ms)
{
	struct pollfd fds[] = {
		{.fd = s->ended_fd, .events = POLLIN},
		{.fd = s->signal_fd, .events = POLLIN},
	};
	struct signalfd_siginfo info;
	int n = poll(fds, 2, timeout_ms);

	if (n == 0)
		return -ETIMEDOUT;
	if (n < 0 || fds[0].revents)
		return n < 0 ? -errno : 0;
	if (read(s->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return -EINTR;
	return (int)info.ssi_signo;
}

static int64_t now_ms(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Waits for the loop's end until the grace is over or a second signal comes. Whether it ended. */
static bool wait_closed(const struct varve_session *s)
{
	int64_t deadline = now_ms() + VARVE_SESSION_GRACE_S * 1000;
	int64_t left;

	while ((left = deadline - now_ms()) > 0) {
		int sig = wait_signal(s, (int)left);

		if (sig == 0)
			return true;
		if (sig == SIGTERM || sig == SIGINT)
			break;
	}
	return false;
}

/* Detaches our mount, unless another one lies on it. */
static int detach(const struct varve_session *s, struct varve_err *err)
{
	dev_t top;
	int r = varve_mountpoint_device(s->mountpoint, &top);

	if (r == -ENOENT)
		return 0; /* somebody was faster */
	if (r == 0 && top != s->dev)
		return varve_err_set(err, -EBUSY, "something else is mounted on '%s'",
				     s->mountpoint);
	return varve_mountpoint_detach(s->mountpoint, err);
}

static void end_by_signal(struct varve_session *s, int sig)
{
	struct varve_err err = {0};

	varve_info("SIG%s: unmounting '%s'", sigabbrev_np(sig), s->mountpoint);
	if (detach(s, &err) < 0)
		varve_warning("%s", err.msg);
	if (wait_closed(s))
		return;
	varve_info("'%s' is still in use: what is open there ends now", s->mountpoint);
	/* While the loop still answers what the message under way may wait for. */
	varve_notify_stop(s->notify);
	if (s->uring)
		fuse_session_exit(s->se);
	else
		varve_loop_stop(s->loop);
	while (wait_signal(s, -1) != 0)
		;
}

static void *signal_thread(void *arg)
{
	struct varve_session *s = arg;
	int sig;

	while ((sig = wait_signal(s, -1)) != 0) {
		if (sig == SIGHUP)
			varve_info("SIGHUP: nothing to reload, ignored");
		if (sig == SIGTERM || sig == SIGINT) {
			end_by_signal(s, sig);
			break;
		}
	}
	return NULL;
}

/* -- the start -- */

static unsigned loop_threads(void)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (cores > LOOP_THREADS_MAX)
		return LOOP_THREADS_MAX;
	return cores > LOOP_THREADS_MIN ? (unsigned)cores : LOOP_THREADS_MIN;
}

/* INIT can only lower the backing device's read-ahead, so it is raised here, where root may. */
static void raise_read_ahead(dev_t dev)
{
	char path[80];
	char text[16];
	cleanup_close int fd = -1;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev),
		       minor(dev));
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return;
	text[n] = '\0';
	if (strtoul(text, NULL, 10) >= READ_AHEAD_BYTES / 1024)
		return;
	n = snprintf(text, sizeof(text), "%u", READ_AHEAD_BYTES / 1024);
	(void)!pwrite(fd, text, (size_t)n, 0);
}

/* Says that the mount answers: once the kernel's INIT is being answered, whoever comes is served. The
 * mount itself is never asked from here: a daemon that is killed while it waits for its own answer
 * could not die. */
static void *settle_thread(void *arg)
{
	struct varve_session *s = arg;
	struct pollfd fds[] = {
		{.fd = s->inited_fd, .events = POLLIN},
		{.fd = s->ended_fd, .events = POLLIN},
	};

	char mode[128];

	while (poll(fds, 2, -1) < 0 && errno == EINTR)
		;
	if (!(fds[0].revents & POLLIN))
		return NULL;
	raise_read_ahead(s->dev);
	varve_passthrough_try(&s->passthrough);
	varve_store_mode(s->ll.store, mode, sizeof(mode));
	varve_info("writes to '%s': %s", s->mountpoint, mode);
	if (s->uring_obstacle)
		varve_info("without io_uring: %s", s->uring_obstacle);
	else if (s->uring)
		varve_info("requests come over io_uring");
	s->ready(s->ready_ctx);
	return NULL;
}

int varve_session_new(const struct varve_session_params *params, struct varve_session **ret,
		      struct varve_err *err)
{
	struct varve_session *s = calloc(1, sizeof(*s));
	sigset_t set;
	int r = -ENOMEM;

	if (!s)
		return -ENOMEM;
	signal_set(&set);
	(void)pthread_mutex_init(&s->passthrough.lock, NULL);
	s->ll.store = params->store;
	s->ll.max_read = params->max_read;
	s->auto_unmount = params->auto_unmount;
	s->uring_asked = params->io_uring;
	if (s->uring_asked)
		s->uring_obstacle = varve_uring_obstacle();
	s->uring = s->uring_asked && !s->uring_obstacle;
	s->watcher_fd = -1;
	s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	s->ended_fd = eventfd(0, EFD_CLOEXEC);
	s->inited_fd = eventfd(0, EFD_CLOEXEC);
	s->mountpoint = strdup(params->mountpoint);
	if (s->signal_fd < 0 || s->ended_fd < 0 || s->inited_fd < 0)
		r = varve_err_set(err, -EMFILE, "no file descriptors are left");
	else if (s->mountpoint)
		r = varve_views_new(params->store, &s->ll.views);
	if (r == 0)
		r = varve_notify_new(params->store, &s->notify);
	s->ll.notify = s->notify;
	if (r == 0) {
		r = new_fuse_session(s, params);
		s->passthrough.se = s->se;
		s->passthrough.store = params->store;
		if (r < 0)
			(void)varve_err_set(err, r, "libfuse does not take the options '%s'",
					    params->fuse_options);
	}
	if (r == 0)
		r = varve_loop_new(s->se, loop_threads(), &s->loop);
	if (r == 0)
		r = varve_handoff_new(s->uring ? NULL : s->loop, &s->ll.handoff);
	if (r < 0) {
		varve_session_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

static void on_entry_gone(void *ctx, uint64_t parent_id, const char *name)
{
	struct varve_session *s = ctx;

	varve_notify_entry_gone(s->notify, parent_id, name);
}

static void on_inode_changed(void *ctx, uint64_t id)
{
	struct varve_session *s = ctx;

	varve_notify_inode_changed(s->notify, id);
}

struct varve_store_kernel varve_session_kernel(struct varve_session *s)
{
	return varve_passthrough_kernel(&s->passthrough);
}

struct varve_store_events varve_session_events(struct varve_session *s)
{
	return (struct varve_store_events){
		.entry_gone = on_entry_gone,
		.inode_changed = on_inode_changed,
		.ctx = s,
	};
}

int varve_session_mount(struct varve_session *s, struct varve_err *err)
{
	int r;

	/* libfuse has said why. */
	if (fuse_session_mount(s->se, s->mountpoint) != 0)
		return varve_err_set(err, -EIO, "mounting on '%s' failed", s->mountpoint);
	r = varve_mountpoint_device(s->mountpoint, &s->dev);
	if (r < 0)
		return varve_err_wrap(err, r, "looking for the mount on '%s'", s->mountpoint);
	if (s->auto_unmount) {
		r = varve_watcher_start(s->mountpoint, s->dev, &s->watcher_fd, err);
		if (r < 0)
			varve_session_unmount(s);
	}
	return r;
}

void varve_session_unmount(struct varve_session *s)
{
	struct varve_err err = {0};

	if (s->dev && detach(s, &err) < 0)
		varve_warning("%s", err.msg);
	s->dev = 0;
}

/* Closes the connection, which sets free whoever still waits in the mount. */
static void disconnect(struct varve_session *s)
{
	varve_passthrough_end(&s->passthrough);
	fuse_session_destroy(s->se);
	s->se = NULL;
}

int varve_session_run(struct varve_session *s, void (*ready)(void *ctx), void *ctx,
		      struct varve_err *err)
{
	const uint64_t one = 1;
	bool signals = false;
	bool settle = false;
	int r;

	s->ready = ready;
	s->ready_ctx = ctx;
	catch_wake();
	r = varve_notify_start(s->notify, s->se, err);
	if (r == 0) {
		r = -pthread_create(&s->signal_thread, NULL, signal_thread, s);
		signals = r == 0;
	}
	if (r == 0) {
		r = -pthread_create(&s->settle_thread, NULL, settle_thread, s);
		settle = r == 0;
	}
	if (r == 0)
		r = s->uring ? varve_uring_run(s->se) : varve_loop_run(s->loop);
	if (r < 0)
		(void)varve_err_wrap(err, r, "serving '%s'", s->mountpoint);
	(void)!write(s->ended_fd, &one, sizeof(one));
	if (signals)
		(void)pthread_join(s->signal_thread, NULL);
	if (r < 0)
		varve_session_unmount(s);
	varve_notify_stop(s->notify);
	varve_handoff_stop(s->ll.handoff);
	disconnect(s);
	if (settle)
		(void)pthread_join(s->settle_thread, NULL);
	return r;
}

void varve_session_free(struct varve_session *s)
{
	if (!s)
		return;
	if (s->se)
		disconnect(s);
	if (s->signal_fd >= 0)
		(void)close(s->signal_fd);
	if (s->ended_fd >= 0)
		(void)close(s->ended_fd);
	if (s->inited_fd >= 0)
		(void)close(s->inited_fd);
	if (s->watcher_fd >= 0)
		(void)close(s->watcher_fd);
	varve_handoff_free(s->ll.handoff);
	varve_loop_free(s->loop);
	varve_notify_free(s->notify);
	varve_views_free(s->ll.views);
	free(s->mountpoint);
	free(s);
}
