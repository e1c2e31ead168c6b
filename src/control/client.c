#include "control/client.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "control/protocol.h"

struct varve_answer {
	char *text;
	struct varve_json_doc *doc; /* points into text */
};

static int connect_error(const char *store, int r, struct varve_err *err)
{
	switch (r) {
	case -ENOENT:
	case -ECONNREFUSED:
		return varve_err_set(
			err, -ENOTCONN,
			"the store '%s' is not mounted; mount it first: varvefs %s MOUNTPOINT",
			store, store);
	case -EACCES:
	case -EPERM:
		return varve_err_set(err, r, "the store '%s' is for root and its owner only",
				     store);
	default:
		return varve_err_wrap(err, r, "reach the daemon of '%s'", store);
	}
}

static int open_store(const char *store, struct varve_err *err)
{
	int fd = open(store, O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? varve_err_wrap(err, -errno, "open the store '%s'", store) : fd;
}

static int connect_to(const char *store, struct varve_err *err)
{
	cleanup_close int dirfd = open_store(store, err);
	cleanup_close int fd = -1;
	struct sockaddr_un address;

	if (dirfd < 0)
		return dirfd;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return connect_error(store, -errno, err);
	varve_control_address(dirfd, &address);
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return connect_error(store, -errno, err);
	return steal_fd(&fd);
}

void varve_answer_free(struct varve_answer *answer)
{
	if (!answer)
		return;
	varve_json_free(answer->doc);
	free(answer->text);
	free(answer);
}

const struct varve_json_value *varve_answer_result(const struct varve_answer *answer)
{
	return varve_json_get(varve_json_root(answer->doc), "result");
}

/* What the daemon made of it: 0, or its errno with its words in err. */
static int outcome(const struct varve_json_value *v, struct varve_err *err)
{
	int64_t code = varve_json_get_int(v, "errno", EIO);

	if (varve_json_get_int(v, "version", 0) != VARVE_CONTROL_VERSION)
		return varve_err_set(err, -EPROTO,
				     "the daemon and this program are of different versions");
	if (varve_json_get_bool(v, "ok", false))
		return 0;
	if (code <= 0 || code > 4095)
		code = EIO;
	return varve_err_set(err, (int)-code, "%s",
			     varve_json_get_string(v, "error", strerror((int)code)));
}

static int read_answer(int fd, int64_t timeout_ns, struct varve_answer *answer,
		       struct varve_err *err)
{
	size_t len = 0;
	int r = varve_message_receive(fd, VARVE_ANSWER_BYTES_MAX, timeout_ns, &answer->text, &len);

	if (r == -EPIPE || r == -ECONNRESET)
		return varve_err_set(err, r, "the daemon hung up without an answer");
	if (r == 0)
		r = varve_json_parse(answer->text, len, &answer->doc);
	if (r < 0)
		return varve_err_wrap(err, r, "read the daemon's answer");
	return outcome(varve_json_root(answer->doc), err);
}

int varve_client_call(const char *store, const char *request, int64_t timeout_ns,
		      struct varve_answer **ret, struct varve_err *err)
{
	cleanup_close int fd = connect_to(store, err);
	struct varve_answer *answer;
	int r;

	if (fd < 0)
		return fd;
	/* A daemon that refuses us answers before it has read: what it says counts, not the EPIPE.
	 */
	r = varve_message_send(fd, request, strlen(request), VARVE_CONTROL_TIMEOUT_NS);
	if (r < 0 && r != -EPIPE)
		return varve_err_wrap(err, r, "ask the daemon of '%s'", store);
	answer = calloc(1, sizeof(*answer));
	if (!answer)
		return varve_err_wrap(err, -ENOMEM, "ask the daemon of '%s'", store);
	r = read_answer(fd, timeout_ns, answer, err);
	if (r < 0) {
		varve_answer_free(answer);
		return r;
	}
	*ret = answer;
	return 0;
}
