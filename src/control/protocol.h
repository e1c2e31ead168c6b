/*
 * What goes over STORE/control.sock. A connection carries one request and one answer, each a header
 * of 8 bytes (the magic "VRV1", then the length of what follows, u32 little-endian) and that many
 * bytes of JSON.
 *
 *   request: {"version":1,"command":"drop","bucket":"2026-11-28"}
 *   answer:  {"version":1,"ok":true} with "result":... where the command has one, or
 *            {"version":1,"ok":false,"errno":16,"error":"..."}
 *
 * Commands: status, drop, undrop, hold, unhold, seal ("bucket" may be left out: all that are
 * closing; "timeout_ns"), clock-accept.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define VARVE_CONTROL_NAME "control.sock"
#define VARVE_CONTROL_VERSION 1
#define VARVE_REQUEST_BYTES_MAX ((size_t)16 << 10)
#define VARVE_ANSWER_BYTES_MAX ((size_t)256 << 20)
#define VARVE_CONTROL_TIMEOUT_NS (INT64_C(10) * 1000000000) /* for a whole message to get through  \
							     */

struct sockaddr_un;

/* The socket's address by way of the store's descriptor: however long STORE is, it fits. */
void varve_control_address(int store_dirfd, struct sockaddr_un *ret);

/* Sends one message. timeout_ns is for all of it: -ETIMEDOUT. No SIGPIPE: -EPIPE. */
int varve_message_send(int fd, const void *data, size_t len, int64_t timeout_ns) varve_must_check;

/* Receives one message of at most max bytes (-EMSGSIZE beyond, before anything is allocated), NUL
 * put behind it; the caller frees. timeout_ns is for all of it, -1: no end. -EPROTO: not our
 * protocol, -EPIPE: the peer hung up in the middle. */
int varve_message_receive(int fd, size_t max, int64_t timeout_ns, char **ret,
			  size_t *ret_len) varve_must_check;
