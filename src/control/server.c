#include "control/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/json.h"
#include "base/json_parse.h"
#include "base/log.h"
#include "base/sync.h"
#include "base/sys.h"
#include "control/protocol.h"
#include "control/status_json.h"

#define CONNECTIONS_MAX 16
#define SEAL_STEP_NS (INT64_C(200) * 1000000) /* how long a seal waits before it looks around */

struct varve_control {
	/* -- immutable after start -- */
	struct varve_store *store;
	int listen_fd;
	int stop_fd; /* an eventfd that wakes the accepting thread */
	uid_t owner; /* of the store's folder */
	pthread_t thread;

	atomic_bool stop;
	pthread_mutex_t lock;     /* "control", a leaf */
	pthread_cond_t idle;      /* a connection has ended */
	int fds[CONNECTIONS_MAX]; /* of the connections, -1: free; guarded by lock */
	unsigned n_connections;   /* guarded by lock */
};

struct connection {
	struct varve_control *control;
	int fd;
	unsigned slot;
	struct varve_caller caller;
};

/* -- answers -- */

static void begin_answer(struct varve_json *j, bool ok)
{
	varve_json_open(j, NULL, '{');
	varve_json_int(j, "version", VARVE_CONTROL_VERSION);
	varve_json_bool(j, "ok", ok);
}

static void refuse(struct varve_json *j, int r, const struct varve_err *err)
{
	begin_answer(j, false);
	varve_json_int(j, "errno", -varve_store_errno(r));
	varve_json_string(j, "error", err->msg[0] ? err->msg : strerror(-r));
	varve_json_close(j, '}');
}

static void send_answer(int fd, const struct varve_json *j)
{
	if (!j->failed)
		/* A client that has gone away is no fault of the daemon's. */
		(void)!varve_message_send(fd, j->text, j->len, VARVE_CONTROL_TIMEOUT_NS);
}

static void send_refusal(int fd, int r, const char *text)
{
	struct varve_json j = VARVE_JSON_INIT;
	struct varve_err err;

	(void)varve_err_set(&err, r, "%s", text);
	refuse(&j, r, &err);
	send_answer(fd, &j);
	varve_json_done(&j);
}

/* -- commands -- */

typedef int command_fn(struct connection *c, const struct varve_json_value *request,
		       struct varve_json *ret_result, struct varve_err *err);

static int do_status(struct connection *c, const struct varve_json_value *request,
		     struct varve_json *ret_result, struct varve_err *err)
{
	cleanup_free char *text = NULL;
	struct varve_status st;
	int r = varve_store_status(c->control->store, &st);

	(void)request;
	if (r < 0)
		return varve_err_wrap(err, r, "read the store's status");
	r = varve_status_json(&st, &text);
	varve_status_done(&st);
	if (r == 0)
		varve_json_raw(ret_result, text);
	return r;
}

static int need_bucket(const struct varve_json_value *request, const char **ret,
		       struct varve_err *err)
{
	*ret = varve_json_get_string(request, "bucket", NULL);
	return *ret ? 0 : varve_err_set(err, -EINVAL, "the request names no bucket");
}

static int do_drop(struct connection *c, const struct varve_json_value *request,
		   struct varve_json *ret_result, struct varve_err *err)
{
	const char *bucket;
	int r = need_bucket(request, &bucket, err);

	(void)ret_result;
	return r < 0 ? r : varve_store_drop(c->control->store, &c->caller, bucket, err);
}

static int do_undrop(struct connection *c, const struct varve_json_value *request,
		     struct varve_json *ret_result, struct varve_err *err)
{
	const char *bucket;
	int r = need_bucket(request, &bucket, err);

	(void)ret_result;
	return r < 0 ? r : varve_store_undrop(c->control->store, &c->caller, bucket, err);
}

static int do_hold(struct connection *c, const struct varve_json_value *request,
		   struct varve_json *ret_result, struct varve_err *err)
{
	const char *bucket;
	int r = need_bucket(request, &bucket, err);

	(void)ret_result;
	return r < 0 ? r : varve_store_hold(c->control->store, &c->caller, bucket, true, err);
}

static int do_unhold(struct connection *c, const struct varve_json_value *request,
		     struct varve_json *ret_result, struct varve_err *err)
{
	const char *bucket;
	int r = need_bucket(request, &bucket, err);

	(void)ret_result;
	return r < 0 ? r : varve_store_hold(c->control->store, &c->caller, bucket, false, err);
}

static int do_clock_accept(struct connection *c, const struct varve_json_value *request,
			   struct varve_json *ret_result, struct varve_err *err)
{
	(void)request;
	(void)ret_result;
	return varve_store_clock_accept(c->control->store, &c->caller, err);
}

static bool peer_gone(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

/* Waits in short steps, so that neither the end of the daemon nor a client that has given up waits
 * for a seal. left_ns is shared by all buckets of a request; below 0: no end. */
static int seal_one(struct connection *c, const char *bucket, int64_t *left_ns,
		    struct varve_err *err)
{
	for (;;) {
		int64_t step = *left_ns >= 0 && *left_ns < SEAL_STEP_NS ? *left_ns : SEAL_STEP_NS;
		int r = varve_store_seal(c->control->store, bucket, step, err);

		if (r != -ETIMEDOUT)
			return r;
		if (*left_ns >= 0 && (*left_ns -= step) <= 0)
			return varve_err_set(err, r, "'%s' is not sealed yet; it goes on", bucket);
		if (atomic_load(&c->control->stop))
			return varve_err_set(err, -ECANCELED, "the daemon is ending");
		if (peer_gone(c->fd))
			return -ECANCELED;
	}
}

static int do_seal(struct connection *c, const struct varve_json_value *request,
		   struct varve_json *ret_result, struct varve_err *err)
{
	int64_t left_ns = varve_json_get_int(request, "timeout_ns", -1);
	const char *bucket = varve_json_get_string(request, "bucket", NULL);
	struct varve_status st;
	int r, n = 0;

	if (bucket) {
		r = seal_one(c, bucket, &left_ns, err);
		if (r == 0)
			varve_json_int(ret_result, NULL, 1);
		return r;
	}
	/* Those that are closing now: with short buckets new ones join for ever. */
	r = varve_store_status(c->control->store, &st);
	if (r < 0)
		return varve_err_wrap(err, r, "read the store's status");
	for (unsigned i = 0; i < st.n_buckets && r == 0; i++) {
		if (st.buckets[i].state != VARVE_BUCKET_CLOSING)
			continue;
		r = seal_one(c, st.buckets[i].name, &left_ns, err);
		n += r == 0;
		if (r == -ENOENT) /* dropped meanwhile */
			r = 0;
	}
	varve_status_done(&st);
	if (r == 0)
		varve_json_int(ret_result, NULL, n);
	return r;
}

static const struct {
	const char *name;
	command_fn *run;
} commands[] = {
	{"status", do_status},
	{"drop", do_drop},
	{"undrop", do_undrop},
	{"hold", do_hold},
	{"unhold", do_unhold},
	{"seal", do_seal},
	{"clock-accept", do_clock_accept},
};

static int run_command(struct connection *c, const struct varve_json_value *request,
		       struct varve_json *ret_result, struct varve_err *err)
{
	const char *name = varve_json_get_string(request, "command", "");

	if (varve_json_get_int(request, "version", 0) != VARVE_CONTROL_VERSION)
		return varve_err_set(
			err, -EPROTONOSUPPORT,
			"the daemon and the program that asks are of different versions");
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(commands[i].name, name))
			return commands[i].run(c, request, ret_result, err);
	return varve_err_set(err, -ENOSYS, "the daemon knows no command '%s'", name);
}

/* -- connections -- */

static void answer_request(struct connection *c, const char *text, size_t len)
{
	struct varve_json result = VARVE_JSON_INIT, answer = VARVE_JSON_INIT;
	struct varve_json_doc *doc = NULL;
	struct varve_err err = {""};
	int r = varve_json_parse(text, len, &doc);

	if (r < 0)
		(void)varve_err_set(&err, r, "the request is not JSON");
	else
		r = run_command(c, varve_json_root(doc), &result, &err);
	if (r == 0 && result.failed)
		r = -ENOMEM;
	if (r < 0) {
		refuse(&answer, r, &err);
	} else {
		begin_answer(&answer, true);
		if (result.len) {
			varve_json_raw(&answer, ",\"result\":");
			varve_json_raw(&answer, result.text);
		}
		varve_json_close(&answer, '}');
	}
	send_answer(c->fd, &answer);
	varve_json_free(doc);
	varve_json_done(&result);
	varve_json_done(&answer);
}

static void *serve_connection(void *arg)
{
	struct connection *c = arg;
	struct varve_control *control = c->control;
	cleanup_free char *text = NULL;
	size_t len;
	int r = varve_message_receive(c->fd, VARVE_REQUEST_BYTES_MAX, VARVE_CONTROL_TIMEOUT_NS,
				      &text, &len);

	if (r == 0)
		answer_request(c, text, len);
	else if (r == -EMSGSIZE || r == -EPROTO)
		send_refusal(c->fd, r, "the request is too long or not of this protocol");
	guard(&control->lock);
	(void)close(c->fd);
	control->fds[c->slot] = -1;
	control->n_connections--;
	free(c);
	(void)pthread_cond_signal(&control->idle);
	return NULL;
}

static int check_peer(const struct varve_control *control, int fd, struct varve_caller *ret)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return -errno;
	if (peer.uid != 0 && peer.uid != control->owner)
		return -EPERM;
	*ret = (struct varve_caller){
		.uid = peer.uid, .gid = peer.gid, .pid = peer.pid, .umask = 0077};
	return 0;
}

static int claim_slot(struct varve_control *control, int fd)
{
	guard(&control->lock);
	for (int i = 0; i < CONNECTIONS_MAX; i++) {
		if (control->fds[i] >= 0)
			continue;
		control->fds[i] = fd;
		control->n_connections++;
		return i;
	}
	return -EBUSY;
}

static void release_slot(struct varve_control *control, int slot)
{
	guard(&control->lock);
	control->fds[slot] = -1;
	control->n_connections--;
}

/* A thread that takes no signal: they are the main thread's. */
static int start_thread(pthread_t *ret, bool detached, void *(*run)(void *), void *arg)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int r;

	(void)sigfillset(&all);
	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setdetachstate(&attr, detached ? PTHREAD_CREATE_DETACHED
							  : PTHREAD_CREATE_JOINABLE);
	(void)pthread_sigmask(SIG_BLOCK, &all, &old);
	r = -pthread_create(ret, &attr, run, arg);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	return r;
}

static int start_connection(struct varve_control *control, int fd, const struct varve_caller *who)
{
	struct connection *c;
	pthread_t thread;
	int slot = claim_slot(control, fd);
	int r = -ENOMEM;

	if (slot < 0)
		return slot;
	c = malloc(sizeof(*c));
	if (c) {
		*c = (struct connection){
			.control = control, .fd = fd, .slot = (unsigned)slot, .caller = *who};
		r = start_thread(&thread, true, serve_connection, c);
	}
	if (r < 0) {
		free(c);
		release_slot(control, slot);
	}
	return r;
}

static void accept_one(struct varve_control *control)
{
	int fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct varve_caller who = {0};
	int r;

	if (fd < 0) {
		/* Out of descriptors or memory: the client waits in the backlog meanwhile. */
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			(void)poll(NULL, 0, 100);
		return;
	}
	r = check_peer(control, fd, &who);
	if (r == 0)
		r = start_connection(control, fd, &who);
	if (r == 0)
		return;
	/* A fresh socket's buffer takes this little without waiting. */
	send_refusal(fd, r,
		     r == -EPERM   ? "only root and the store's owner may do this"
		     : r == -EBUSY ? "the daemon is answering too many others; try again"
				   : strerror(-r));
	(void)close(fd);
}

static void *serve(void *arg)
{
	struct varve_control *control = arg;
	struct pollfd p[2] = {
		{.fd = control->listen_fd, .events = POLLIN},
		{.fd = control->stop_fd, .events = POLLIN},
	};

	while (!atomic_load(&control->stop)) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			break;
		if (p[0].revents)
			accept_one(control);
	}
	return NULL;
}

/* -- start and stop -- */

/* The lock on the store is held: a socket that is there already was left by a dead daemon. */
static int make_socket(int store_dirfd)
{
	cleanup_close int fd = -1;
	struct sockaddr_un address;
	struct stat st;

	if (fstatat(store_dirfd, VARVE_CONTROL_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISSOCK(st.st_mode) && unlinkat(store_dirfd, VARVE_CONTROL_NAME, 0) < 0)
		return -errno;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	varve_control_address(store_dirfd, &address);
	/* bind gives the name the socket's own mode: it is never there with a wider one. */
	if (fchmod(fd, 0600) < 0 ||
	    bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, CONNECTIONS_MAX) < 0)
		return -errno;
	return steal_fd(&fd);
}

static void control_free(struct varve_control *control)
{
	if (control->listen_fd >= 0)
		(void)close(control->listen_fd);
	if (control->stop_fd >= 0)
		(void)close(control->stop_fd);
	(void)pthread_mutex_destroy(&control->lock);
	(void)pthread_cond_destroy(&control->idle);
	free(control);
}

static int control_start(struct varve_control *control)
{
	int dirfd = varve_store_dirfd(control->store);
	struct stat st;
	int r;

	if (fstatat(dirfd, "", &st, AT_EMPTY_PATH) < 0)
		return -errno;
	control->owner = st.st_uid;
	control->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (control->stop_fd < 0)
		return -errno;
	r = control->listen_fd = make_socket(dirfd);
	if (r < 0)
		return r;
	r = start_thread(&control->thread, false, serve, control);
	if (r < 0)
		(void)unlinkat(dirfd, VARVE_CONTROL_NAME, 0);
	return r;
}

int varve_control_start(struct varve_store *store, struct varve_control **ret,
			struct varve_err *err)
{
	struct varve_control *control = calloc(1, sizeof(*control));
	int r;

	if (!control)
		return varve_err_wrap(err, -ENOMEM, "start the control socket");
	control->store = store;
	control->listen_fd = control->stop_fd = -1;
	for (int i = 0; i < CONNECTIONS_MAX; i++)
		control->fds[i] = -1;
	(void)pthread_mutex_init(&control->lock, NULL);
	(void)pthread_cond_init(&control->idle, NULL);
	r = control_start(control);
	if (r < 0) {
		control_free(control);
		return varve_err_wrap(err, r, "start the control socket '%s'", VARVE_CONTROL_NAME);
	}
	*ret = control;
	return 0;
}

void varve_control_stop(struct varve_control *control)
{
	static const uint64_t one = 1;

	if (!control)
		return;
	atomic_store(&control->stop, true);
	(void)!write(control->stop_fd, &one, sizeof(one));
	(void)pthread_join(control->thread, NULL);
	(void)unlinkat(varve_store_dirfd(control->store), VARVE_CONTROL_NAME, 0);
	{
		guard(&control->lock);
		/* Requests in work end with an answer; only those still to come are cut short. */
		for (int i = 0; i < CONNECTIONS_MAX; i++)
			if (control->fds[i] >= 0)
				(void)shutdown(control->fds[i], SHUT_RD);
		while (control->n_connections)
			(void)pthread_cond_wait(&control->idle, &control->lock);
	}
	control_free(control);
}
