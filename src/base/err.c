#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int varve_err_set(struct varve_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return code;
	va_start(ap, fmt);
	(void)vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	return code;
}

int varve_err_wrap(struct varve_err *err, int code, const char *fmt, ...)
{
	struct varve_err inner;
	va_list ap;
	int n;

	if (!err)
		return code;
	inner = *err;
	va_start(ap, fmt);
	n = vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	/* Too long a text is cut: the context is what matters most. */
	if (n >= 0 && (size_t)n < sizeof(err->msg))
		(void)!snprintf(err->msg + n, sizeof(err->msg) - (size_t)n, ": %.400s",
				inner.msg[0] ? inner.msg : strerror(-code));
	return code;
}
