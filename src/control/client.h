/* `varve`'s end of the control socket. */
#pragma once

#include "base/err.h"
#include "base/json_parse.h"

struct varve_answer;

/* Sends the request (JSON, see protocol.h) to the daemon of the store in folder `store` and waits
 * for the answer, at most timeout_ns (-1: for ever). 0 when the daemon did it; else a negative
 * errno and err says what went wrong and what to do: -ENOTCONN  no daemon has this store mounted,
 *  -ENOENT    there is no such folder,
 *  others as the daemon gave them. */
int varve_client_call(const char *store, const char *request, int64_t timeout_ns,
		      struct varve_answer **ret, struct varve_err *err) varve_must_check;

/* What the command brought, NULL when it brings nothing; lives as long as the answer. */
const struct varve_json_value *varve_answer_result(const struct varve_answer *answer);
void varve_answer_free(struct varve_answer *answer); /* NULL is fine */
