/*
 * Error context: what happened, to what, and what to do, for the one place that prints it.
 * Functions return 0 or a negative errno; the text travels beside it in a struct varve_err.
 */
#pragma once

#include "base/cleanup.h"

struct varve_err {
	char msg[512]; /* one line, without a newline; empty: nothing was said */
};

/* Writes the message and returns code (a negative errno), so that callers can
 * `return varve_err_set(err, -EINVAL, "...")`. err may be NULL. */
int varve_err_set(struct varve_err *err, int code, const char *fmt, ...) varve_printf(3, 4);

/* Puts "CONTEXT: " before what err says already; when it says nothing yet, the errno's text is
 * put behind it. Returns code. err may be NULL. */
int varve_err_wrap(struct varve_err *err, int code, const char *fmt, ...) varve_printf(3, 4);
