#include "control/protocol.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "base/clock.h"
#include "base/bytes.h"

#define HEADER_BYTES 8
static const char magic[4] = {'V', 'R', 'V', '1'};

/* The instant until which to wait; -1: for ever. */
static int64_t deadline_in(int64_t timeout_ns)
{
	return timeout_ns < 0 ? -1 : varve_clock_monotonic_ns() + timeout_ns;
}

static int wait_for(int fd, short events, int64_t deadline_ns)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = events};
		int64_t left = deadline_ns < 0 ? -1 : deadline_ns - varve_clock_monotonic_ns();
		int n;

		if (deadline_ns >= 0 && left <= 0)
			return -ETIMEDOUT;
		n = poll(&p, 1,
			 left < 0 || left > INT64_C(60000000000) ? 60000
								 : (int)(left / 1000000) + 1);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

void varve_control_address(int store_dirfd, struct sockaddr_un *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->sun_family = AF_UNIX;
	(void)snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s", store_dirfd,
		       VARVE_CONTROL_NAME);
}

static int send_all(int fd, const char *p, size_t len, int64_t deadline_ns)
{
	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN) {
			int r = wait_for(fd, POLLOUT, deadline_ns);

			if (r < 0)
				return r;
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int varve_message_send(int fd, const void *data, size_t len, int64_t timeout_ns)
{
	int64_t deadline_ns = deadline_in(timeout_ns);
	char header[HEADER_BYTES];
	int r;

	if (len > VARVE_ANSWER_BYTES_MAX)
		return -EMSGSIZE;
	memcpy(header, magic, sizeof(magic));
	varve_put_le32(header + 4, (uint32_t)len);
	r = send_all(fd, header, sizeof(header), deadline_ns);
	return r < 0 ? r : send_all(fd, data, len, deadline_ns);
}

static int receive_all(int fd, char *p, size_t len, int64_t deadline_ns)
{
	while (len) {
		ssize_t n = recv(fd, p, len, MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN) {
			int r = wait_for(fd, POLLIN, deadline_ns);

			if (r < 0)
				return r;
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EPIPE;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int varve_message_receive(int fd, size_t max, int64_t timeout_ns, char **ret, size_t *ret_len)
{
	int64_t deadline_ns = deadline_in(timeout_ns);
	cleanup_free char *text = NULL;
	char header[HEADER_BYTES];
	size_t len;
	int r;

	r = receive_all(fd, header, sizeof(header), deadline_ns);
	if (r < 0)
		return r;
	if (memcmp(header, magic, sizeof(magic)) != 0)
		return -EPROTO;
	len = varve_get_le32(header + 4);
	if (len > max)
		return -EMSGSIZE;
	text = malloc(len + 1);
	if (!text)
		return -ENOMEM;
	r = receive_all(fd, text, len, deadline_ns);
	if (r < 0)
		return r;
	text[len] = '\0';
	*ret_len = len;
	*ret = steal_ptr(&text);
	return 0;
}
