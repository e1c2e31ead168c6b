/* The daemon: options -> policy -> store -> mount, and the way back. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "control/server.h"
#include "fuse/daemonize.h"
#include "fuse/mountpoint.h"
#include "fuse/options.h"
#include "fuse/session.h"
#include "store/store.h"

enum { EXIT_OK, EXIT_FAILED, EXIT_MISUSED };

/* How long a store that is still being closed (umount returned just now) is waited for. */
#define BUSY_WAIT_MS 2000
#define BUSY_STEP_MS 50

static void print_usage(FILE *to)
{
	(void)fputs("usage: varvefs [-f] [-d] [-o OPTION[=VALUE],...] STORE MOUNTPOINT\n"
		    "       mount -t fuse.varvefs STORE MOUNTPOINT [-o ...]\n",
		    to);
}

static void print_help(void)
{
	print_usage(stdout);
	(void)puts("\nMounts STORE, a folder that is made if it is not there, so that "
		   "MOUNTPOINT/current\n"
		   "can be appended to, and each time window becomes a folder of its own.\n"
		   "\n"
		   "  -f            stay in the foreground; log to stderr instead of syslog\n"
		   "  -d            print every request, too; in the foreground\n"
		   "  -o OPTIONS    see below; the same names can be set in STORE/varve.conf\n"
		   "  --help        this text\n"
		   "  --version     which version this is\n"
		   "\n"
		   "options of the store:");
	for (const struct varve_option_help *h = varve_policy_help(); h->name; h++) {
		char left[64];

		(void)snprintf(left, sizeof(left), "%s%s%s", h->name, h->value ? "=" : "",
			       h->value ? h->value : "");
		(void)printf("  %-24s %s (e.g. %s)\n", left, h->help, h->example);
	}
	(void)puts("options of the mount:");
	for (const struct varve_fuse_option_help *h = varve_options_fuse_help(); h->name; h++)
		(void)printf("  %-24s %s\n", h->name, h->help);
	(void)puts("\nexample: varvefs -o bucket=1h,keep=30d /var/lib/varve /mnt/varve\n"
		   "to unmount: umount MOUNTPOINT, or end the daemon by SIGTERM");
}

static int fail(const struct varve_err *err, int r, const char *what)
{
	if (err->msg[0])
		(void)fprintf(stderr, "varvefs: %s\n", err->msg);
	else
		(void)fprintf(stderr, "varvefs: %s: %s\n", what, strerror(-r));
	return EXIT_FAILED;
}

static int misused(const struct varve_err *err, int r)
{
	(void)fail(err, r, "command line");
	print_usage(stderr);
	(void)fputs("varvefs --help lists the options\n", stderr);
	return EXIT_MISUSED;
}

/* Whether each option that is not FUSE's is one of ours, and well set; and whether they go
 * together, as far as that does not hang on what varve.conf says. */
static int check_store_options(const struct varve_options *o, struct varve_err *err)
{
	struct varve_policy policy;
	bool bucket = false;

	varve_policy_init(&policy);
	for (unsigned i = 0; i < o->n_options; i++) {
		int r = varve_policy_set(&policy, o->names[i], o->values[i], err);

		if (r < 0)
			return r;
		bucket |= strcmp(o->names[i], "bucket") == 0;
	}
	if (!bucket)
		policy.grace_ns = VARVE_GRACE_AUTO;
	return varve_policy_check(&policy, err);
}

static int open_store(const struct varve_options *o, const char *path, struct varve_store **ret,
		      struct varve_err *err)
{
	const struct varve_store_params params = {
		.path = path,
		.option_names = (const char *const *)o->names,
		.option_values = (const char *const *)o->values,
		.n_options = o->n_options,
		.clock = varve_clock_system(),
	};
	const struct timespec step = {.tv_nsec = BUSY_STEP_MS * 1000L * 1000L};
	int r;

	for (unsigned waited = 0;; waited += BUSY_STEP_MS) {
		*err = (struct varve_err){0};
		r = varve_store_open(&params, ret, err);
		if (r != -EBUSY || waited >= BUSY_WAIT_MS)
			return r;
		(void)nanosleep(&step, NULL);
	}
}

static void log_mounted(struct varve_store *store, const char *path, const char *mountpoint)
{
	struct varve_status status;

	if (varve_store_status(store, &status) < 0) {
		varve_info("mounted %s on %s", path, mountpoint);
		return;
	}
	varve_info("mounted %s on %s: bucket %s, %u bucket%s, clock %s", path, mountpoint,
		   status.bucket_length, status.n_buckets, status.n_buckets == 1 ? "" : "s",
		   status.clock);
	varve_status_done(&status);
}

static void on_ready(void *ctx)
{
	const int *ready_fd = ctx;

	varve_daemon_ready(*ready_fd);
}

/* From the mount to its end. */
static int serve(const struct varve_options *o, struct varve_store *store,
		 struct varve_session *session, const char *path, const char *mountpoint,
		 int ready_fd, struct varve_err *err)
{
	struct varve_store_events events = varve_session_events(session);
	struct varve_store_kernel kernel = varve_session_kernel(session);
	struct varve_control *control = NULL;
	struct varve_err control_err = {0};
	int r = varve_session_mount(session, err);

	if (r < 0)
		return r;
	/* What libfuse had to say about the mount went to the terminal; from here on it is the log.
	 */
	varve_log_init("varvefs", !o->foreground, o->debug ? VARVE_LOG_DEBUG : VARVE_LOG_INFO);
	varve_store_set_events(store, &events);
	varve_store_set_kernel(store, &kernel);
	r = varve_store_start(store, err);
	if (r < 0) {
		varve_session_unmount(session);
		return r;
	}
	if (varve_control_start(store, &control, &control_err) < 0)
		varve_warning("varve can't talk to this daemon: %s", control_err.msg);
	log_mounted(store, path, mountpoint);
	r = varve_session_run(session, on_ready, &ready_fd, err);
	varve_daemon_stopping();
	varve_control_stop(control);
	return r;
}

static int run(const struct varve_options *o, struct varve_store *store, const char *path,
	       const char *mountpoint)
{
	cleanup_free char *fuse_options = varve_options_fuse(o, path, geteuid() == 0);
	struct varve_session *session = NULL;
	struct varve_err err = {0};
	const struct varve_session_params params = {
		.store = store,
		.mountpoint = mountpoint,
		.fuse_options = fuse_options,
		.max_read = o->max_read,
		.debug = o->debug,
		.auto_unmount = o->auto_unmount,
		.io_uring = o->io_uring,
	};
	int ready_fd = -1;
	int r = fuse_options ? 0 : -ENOMEM;

	if (r == 0 && !o->foreground)
		r = varve_daemon_fork(&ready_fd, &err);
	if (r == 0 && chdir("/") < 0)
		r = varve_err_wrap(&err, -errno, "/");
	varve_session_block_signals();
	if (r == 0)
		r = varve_session_new(&params, &session, &err);
	if (r == 0)
		r = serve(o, store, session, path, mountpoint, ready_fd, &err);
	varve_store_close(store);
	varve_session_free(session);
	if (r < 0) {
		if (!o->foreground) {
			varve_log_init("varvefs", 1, VARVE_LOG_INFO);
			varve_error("%s", err.msg[0] ? err.msg : strerror(-r));
		}
		/* Whoever still waits for the mount has the terminal. */
		return fail(&err, r, "mounting");
	}
	varve_info("unmounted %s", mountpoint);
	return EXIT_OK;
}

/* What a good command line asks for. */
static int mount_store(const struct varve_options *o)
{
	cleanup_free char *mountpoint = NULL;
	cleanup_free char *path = NULL;
	struct varve_store *store;
	struct varve_err err = {0};
	int r = varve_mountpoint_prepare(o->mountpoint, &mountpoint, &err);

	if (r == 0)
		r = varve_mountpoint_check_store(o->store, mountpoint, &path, &err);
	if (r < 0)
		return fail(&err, r, o->mountpoint);
	if (o->fake)
		return EXIT_OK;
	r = open_store(o, path, &store, &err);
	if (r < 0) {
		(void)fail(&err, r, path);
		/* Of varve.conf, or of options that do not go together with it. */
		return r == -EINVAL ? EXIT_MISUSED : EXIT_FAILED;
	}
	return run(o, store, path, mountpoint);
}

int main(int argc, char *argv[])
{
	struct varve_options o;
	struct varve_err err = {0};
	int status = EXIT_OK;
	int r;

	varve_daemon_clean_fds();
	varve_log_init("varvefs", 0, VARVE_LOG_INFO);
	(void)umask(0); /* modes are the callers' business */
	varve_daemon_raise_nofile();
	varve_daemon_spare_reserve();
	r = varve_options_parse(argc, argv, &o, &err);
	if (r == 0 && !o.help && !o.version)
		r = check_store_options(&o, &err);
	if (r < 0)
		status = misused(&err, r);
	else if (o.help)
		print_help();
	else if (o.version)
		(void)puts("varvefs " VARVE_VERSION);
	else
		status = mount_store(&o);
	varve_options_done(&o);
	return status;
}
