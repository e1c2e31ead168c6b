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
	char context[sizeof(err->msg)];
	char whole[2 * sizeof(err->msg)];
	va_list ap;

	if (!err)
		return code;
	va_start(ap, fmt);
	(void)vsnprintf(context, sizeof(context), fmt, ap);
	va_end(ap);
	(void)snprintf(whole, sizeof(whole), "%s: %s", context,
		       err->msg[0] ? err->msg : strerror(-code));
	whole[sizeof(err->msg) - 1] = '\0';
	memcpy(err->msg, whole, sizeof(err->msg));
	return code;
}
