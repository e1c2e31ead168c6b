/* The control socket, with a store that is made up here: only what the server asks of it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../lib/unit.h"
#include "base/bytes.h"
#include "base/sync.h"
#include "control/client.h"
#include "control/protocol.h"
#include "control/server.h"

#define NOBODY 65534

struct varve_store {
	int dirfd;
	pthread_mutex_t lock;       /* over the next two */
	char last[64];              /* what was asked last */
	struct varve_caller caller; /* by whom */
	atomic_bool sealed;
	atomic_int seal_calls;
};

static struct varve_store store;
static struct varve_control *control;
static char dir[160];

int varve_store_dirfd(const struct varve_store *s)
{
	return s->dirfd;
}

int varve_store_errno(int r)
{
	return r;
}

int varve_store_status(struct varve_store *s, struct varve_status *ret)
{
	(void)s;
	*ret = (struct varve_status){.clock = "good", .n_buckets = 2};
	ret->buckets = calloc(2, sizeof(*ret->buckets));
	strcpy(ret->buckets[0].name, "2026-11-28");
	ret->buckets[0].state = VARVE_BUCKET_SEALED;
	strcpy(ret->buckets[1].name, "2026-11-29");
	ret->buckets[1].state = VARVE_BUCKET_CLOSING;
	return 0;
}

void varve_status_done(struct varve_status *st)
{
	free(st->buckets);
}

static const char *last_asked(char buf[64], struct varve_caller *ret_caller)
{
	guard(&store.lock);
	memcpy(buf, store.last, 64);
	if (ret_caller)
		*ret_caller = store.caller;
	return buf;
}

static int note(struct varve_store *s, const struct varve_caller *who, const char *what,
		const char *bucket, struct varve_err *err)
{
	guard(&s->lock);
	(void)snprintf(s->last, sizeof(s->last), "%s %s", what, bucket);
	s->caller = *who;
	if (!strcmp(bucket, "bad"))
		return varve_err_set(err, -EBUSY, "'%s' is on hold", bucket);
	return 0;
}

int varve_store_drop(struct varve_store *s, const struct varve_caller *who, const char *bucket,
		     struct varve_err *err)
{
	return note(s, who, "drop", bucket, err);
}

int varve_store_undrop(struct varve_store *s, const struct varve_caller *who, const char *bucket,
		       struct varve_err *err)
{
	return note(s, who, "undrop", bucket, err);
}

int varve_store_hold(struct varve_store *s, const struct varve_caller *who, const char *bucket,
		     bool on, struct varve_err *err)
{
	return note(s, who, on ? "hold" : "unhold", bucket, err);
}

int varve_store_clock_accept(struct varve_store *s, const struct varve_caller *who,
			     struct varve_err *err)
{
	return note(s, who, "clock-accept", "", err);
}

int varve_store_seal(struct varve_store *s, const char *bucket, int64_t timeout_ns,
		     struct varve_err *err)
{
	const struct timespec step = {.tv_nsec = timeout_ns > 0 ? 1000000 : 0};

	{
		guard(&s->lock);
		(void)snprintf(s->last, sizeof(s->last), "seal %s", bucket);
	}
	(void)atomic_fetch_add(&s->seal_calls, 1);
	if (atomic_load(&s->sealed))
		return 0;
	(void)nanosleep(&step, NULL);
	return varve_err_set(err, -ETIMEDOUT, "'%s' is not sealed yet", bucket);
}

static void setup(void)
{
	struct varve_err err = {""};

	/* Longer than an address of a socket can be. */
	strcpy(dir, "/tmp/varve-control-"
		    "a-long-name-a-long-name-a-long-name-a-long-name-a-long-name-a-long-name-"
		    "a-long-name-a-long-name-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	memset(&store, 0, sizeof(store));
	(void)pthread_mutex_init(&store.lock, NULL);
	store.dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	ck_assert_msg(varve_control_start(&store, &control, &err) == 0, "%s", err.msg);
}

static void teardown(void)
{
	varve_control_stop(control);
	(void)close(store.dirfd);
	ck_assert_int_eq(rmdir(dir), 0); /* the socket is gone */
}

static int call(const char *request, struct varve_err *err)
{
	struct varve_answer *answer = NULL;
	int r = varve_client_call(dir, request, INT64_C(10000000000), &answer, err);

	varve_answer_free(answer);
	return r;
}

static const struct {
	const char *request;
	int r;
	const char *last; /* what the store was asked; NULL: nothing */
	const char *says;
} requests[] = {
	{"{\"version\":1,\"command\":\"drop\",\"bucket\":\"2026-11-28\"}", 0, "drop 2026-11-28",
	 ""},
	{"{\"version\":1,\"command\":\"undrop\",\"bucket\":\"b\"}", 0, "undrop b", ""},
	{"{\"version\":1,\"command\":\"hold\",\"bucket\":\"b\"}", 0, "hold b", ""},
	{"{\"version\":1,\"command\":\"unhold\",\"bucket\":\"b\"}", 0, "unhold b", ""},
	{"{\"version\":1,\"command\":\"clock-accept\"}", 0, "clock-accept ", ""},
	{"{\"version\":1,\"command\":\"drop\",\"bucket\":\"bad\"}", -EBUSY, "drop bad", "on hold"},
	{"{\"version\":1,\"command\":\"drop\"}", -EINVAL, NULL, "names no bucket"},
	{"{\"version\":1,\"command\":\"drop\",\"bucket\":7}", -EINVAL, NULL, "names no bucket"},
	{"{\"version\":1,\"command\":\"drop\",\"bucket\":\"a\\u0000b\"}", -EINVAL, NULL,
	 "names no"},
	{"{\"version\":1,\"command\":\"format\"}", -ENOSYS, NULL, "no command 'format'"},
	{"{\"version\":1}", -ENOSYS, NULL, "no command ''"},
	{"{\"version\":2,\"command\":\"status\"}", -EPROTONOSUPPORT, NULL, "versions"},
	{"{\"command\":\"status\"}", -EPROTONOSUPPORT, NULL, "versions"},
	{"[]", -EPROTONOSUPPORT, NULL, "versions"},
	{"{\"version\":1,", -EBADMSG, NULL, "not JSON"},
	{"", -EBADMSG, NULL, "not JSON"},
};

START_TEST(test_requests)
{
	struct varve_err err = {""};
	struct varve_caller who;
	char last[64];

	ck_assert_int_eq(call(requests[_i].request, &err), requests[_i].r);
	ck_assert_msg(strstr(err.msg, requests[_i].says) != NULL, "%s", err.msg);
	ck_assert_str_eq(last_asked(last, &who), requests[_i].last ? requests[_i].last : "");
	if (requests[_i].last) {
		ck_assert_uint_eq(who.uid, getuid());
		ck_assert_int_eq(who.pid, getpid());
	}
}
END_TEST

START_TEST(test_status)
{
	struct varve_answer *answer;
	struct varve_err err = {""};
	const struct varve_json_value *v;

	ck_assert_int_eq(varve_client_call(dir, "{\"version\":1,\"command\":\"status\"}",
					   INT64_C(10000000000), &answer, &err),
			 0);
	v = varve_answer_result(answer);
	ck_assert_str_eq(varve_json_get_string(v, "clock", ""), "good");
	v = varve_json_get(v, "buckets");
	ck_assert_str_eq(varve_json_get_string(v->first, "name", ""), "2026-11-28");
	varve_answer_free(answer);
}
END_TEST

START_TEST(test_socket_mode)
{
	struct stat st;

	ck_assert_int_eq(fstatat(store.dirfd, VARVE_CONTROL_NAME, &st, 0), 0);
	ck_assert_uint_eq(st.st_mode, S_IFSOCK | 0600);
}
END_TEST

static int connect_raw(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un address;

	varve_control_address(store.dirfd, &address);
	ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* What is not of the protocol is refused without being read, and harms nobody. */
START_TEST(test_hostile)
{
	static const char *const headers[] = {"VRV1\xff\xff\xff\xff", "VRV1\x01\x40\0\0",
					      "GET / HTTP/1.0\r\n\r\n", "VRV2\2\0\0\0{}"};
	struct varve_err err = {""};
	int hung_up;

	for (size_t i = 0; i < 4; i++) {
		cleanup_close int fd = connect_raw();
		cleanup_free char *text = NULL;
		size_t len = i == 2 ? 18 : i == 3 ? 10 : 8;

		ck_assert_int_eq(send(fd, headers[i], len, 0), (ssize_t)len);
		ck_assert_int_eq(varve_message_receive(fd, 4096, INT64_C(10000000000), &text, &len),
				 0);
		ck_assert_ptr_nonnull(strstr(text, "\"ok\":false"));
	}
	hung_up = connect_raw();
	(void)!send(hung_up, "VRV1\x10\0\0\0{", 9, 0);
	(void)close(hung_up);
	ck_assert_int_eq(call(requests[0].request, &err), 0);
}
END_TEST

/* However many connect and say nothing, the server refuses and goes on once they are gone. */
START_TEST(test_too_many)
{
	struct varve_err err = {""};
	int fds[16], r;

	for (int i = 0; i < 16; i++)
		fds[i] = connect_raw();
	ck_assert_int_eq(call(requests[0].request, &err), -EBUSY);
	ck_assert_ptr_nonnull(strstr(err.msg, "try again"));
	for (int i = 0; i < 16; i++)
		(void)close(fds[i]);
	for (int i = 0; (r = call(requests[0].request, &err)) == -EBUSY && i < 1000; i++)
		(void)poll(NULL, 0, 10);
	ck_assert_int_eq(r, 0);
}
END_TEST

struct sealing {
	const char *request;
	int r;
	int64_t result;
	struct varve_err err;
};

static void *seal(void *arg)
{
	struct sealing *s = arg;
	struct varve_answer *answer = NULL;

	s->r = varve_client_call(dir, s->request, -1, &answer, &s->err);
	if (s->r == 0)
		s->result = varve_answer_result(answer)->integer;
	varve_answer_free(answer);
	return NULL;
}

static void wait_for_seal(void)
{
	for (int i = 0; atomic_load(&store.seal_calls) < 3 && i < 1000; i++)
		(void)poll(NULL, 0, 10);
	ck_assert_int_ge(atomic_load(&store.seal_calls), 3);
}

/* A seal that waits holds up nobody else, and ends when the bucket is sealed. */
START_TEST(test_seal_waits)
{
	struct sealing s = {.request = "{\"version\":1,\"command\":\"seal\"}"};
	struct varve_err err = {""};
	char last[64];
	pthread_t t;

	ck_assert_int_eq(pthread_create(&t, NULL, seal, &s), 0);
	wait_for_seal();
	ck_assert_str_eq(last_asked(last, NULL), "seal 2026-11-29"); /* the one that is closing */
	ck_assert_int_eq(call("{\"version\":1,\"command\":\"status\"}", &err), 0);
	atomic_store(&store.sealed, true);
	(void)pthread_join(t, NULL);
	ck_assert_msg(s.r == 0, "%s", s.err.msg);
	ck_assert_int_eq(s.result, 1);
}
END_TEST

START_TEST(test_seal_times_out)
{
	struct varve_err err = {""};

	ck_assert_int_eq(
		call("{\"version\":1,\"command\":\"seal\",\"bucket\":\"x\",\"timeout_ns\":1}",
		     &err),
		-ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(err.msg, "'x' is not sealed yet"));
}
END_TEST

/* The daemon's end does not wait for a seal. */
START_TEST(test_stop_ends_seal)
{
	struct sealing s = {.request = "{\"version\":1,\"command\":\"seal\",\"bucket\":\"x\"}"};
	struct varve_err err = {""};
	pthread_t t;

	ck_assert_int_eq(pthread_create(&t, NULL, seal, &s), 0);
	wait_for_seal();
	varve_control_stop(control);
	control = NULL;
	(void)pthread_join(t, NULL);
	ck_assert_int_eq(s.r, -ECANCELED);
	ck_assert_ptr_nonnull(strstr(s.err.msg, "daemon is ending"));
	ck_assert_int_eq(call(requests[0].request, &err), -ENOTCONN);
	ck_assert_ptr_nonnull(strstr(err.msg, "is not mounted"));
}
END_TEST

/* A client that is killed ends its seal in the daemon. */
START_TEST(test_client_gone)
{
	static const char request[] = "{\"version\":1,\"command\":\"seal\",\"bucket\":\"x\"}";
	int fd = connect_raw(), before;

	ck_assert_int_eq(varve_message_send(fd, request, strlen(request), -1), 0);
	wait_for_seal();
	(void)close(fd);
	do {
		before = atomic_load(&store.seal_calls);
		(void)poll(NULL, 0, 50);
	} while (atomic_load(&store.seal_calls) != before);
}
END_TEST

START_TEST(test_stale_socket)
{
	struct varve_err err = {""};
	struct stat before, after;

	/* As after a daemon that was killed: the socket's name is there, nobody listens. */
	ck_assert_int_eq(fstatat(store.dirfd, VARVE_CONTROL_NAME, &before, 0), 0);
	ck_assert_int_eq(linkat(store.dirfd, VARVE_CONTROL_NAME, store.dirfd, "kept", 0), 0);
	varve_control_stop(control);
	ck_assert_int_eq(renameat(store.dirfd, "kept", store.dirfd, VARVE_CONTROL_NAME), 0);
	ck_assert_int_eq(call(requests[0].request, &err), -ENOTCONN);
	ck_assert_int_eq(varve_control_start(&store, &control, &err), 0);
	ck_assert_int_eq(call(requests[0].request, &err), 0);
	ck_assert_int_eq(fstatat(store.dirfd, VARVE_CONTROL_NAME, &after, 0), 0);
	ck_assert_uint_eq(after.st_mode, S_IFSOCK | 0600);
}
END_TEST

/* The name is taken by something that is not a socket: it is left alone. */
START_TEST(test_name_taken)
{
	struct varve_err err = {""};
	int r;

	varve_control_stop(control);
	control = NULL;
	ck_assert_int_eq(mkdirat(store.dirfd, VARVE_CONTROL_NAME, 0700), 0);
	r = varve_control_start(&store, &control, &err);
	ck_assert_int_eq(unlinkat(store.dirfd, VARVE_CONTROL_NAME, AT_REMOVEDIR), 0);
	ck_assert_int_eq(r, -EADDRINUSE);
	ck_assert_ptr_nonnull(strstr(err.msg, VARVE_CONTROL_NAME));
}
END_TEST

START_TEST(test_no_store)
{
	struct varve_answer *answer;
	struct varve_err err = {""};

	ck_assert_int_eq(varve_client_call("/nonexistent/x", "{}", 0, &answer, &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.msg, "/nonexistent/x"));
}
END_TEST

/* Another user is turned away even if the folder and the socket let him in. Needs root to become
 * one. */
static int call_as(uid_t uid)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct varve_err err = {""};

		if (setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
			_exit(99);
		_exit(-call(requests[0].request, &err));
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

START_TEST(test_peer)
{
	struct varve_caller who;
	char last[64];

	ck_assert_msg(geteuid() == 0, "this test needs root");
	ck_assert_int_eq(chmod(dir, 0777), 0);
	ck_assert_int_eq(fchmodat(store.dirfd, VARVE_CONTROL_NAME, 0777, 0), 0);
	ck_assert_int_eq(call_as(NOBODY), EPERM);
	ck_assert_str_eq(last_asked(last, NULL), "");
	/* Once the folder is his, he may. */
	varve_control_stop(control);
	ck_assert_int_eq(chown(dir, NOBODY, NOBODY), 0);
	ck_assert_int_eq(varve_control_start(&store, &control, NULL), 0);
	ck_assert_int_eq(fchmodat(store.dirfd, VARVE_CONTROL_NAME, 0777, 0), 0);
	ck_assert_int_eq(call_as(NOBODY), 0);
	(void)last_asked(last, &who);
	ck_assert_uint_eq(who.uid, NOBODY);
	ck_assert_int_eq(call_as(NOBODY - 1), EPERM);
}
END_TEST

T_MAIN("control", 60)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_requests, 0, (int)(sizeof(requests) / sizeof(requests[0])));
	tcase_add_test(tc, test_status);
	tcase_add_test(tc, test_socket_mode);
	tcase_add_test(tc, test_hostile);
	tcase_add_test(tc, test_too_many);
	tcase_add_test(tc, test_seal_waits);
	tcase_add_test(tc, test_seal_times_out);
	tcase_add_test(tc, test_stop_ends_seal);
	tcase_add_test(tc, test_client_gone);
	tcase_add_test(tc, test_stale_socket);
	tcase_add_test(tc, test_name_taken);
	tcase_add_test(tc, test_no_store);
	tcase_add_test(tc, test_peer);
}
