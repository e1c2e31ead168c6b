/* The only place that prints for the daemon: one line an event, to stderr or to syslog. */
#pragma once

#include "base/cleanup.h"

enum varve_log_level { VARVE_LOG_ERROR, VARVE_LOG_WARNING, VARVE_LOG_INFO, VARVE_LOG_DEBUG };

/* Chooses where lines go and the most talkative level that is printed. Call before threads start. */
void varve_log_init(const char *program, int to_syslog, enum varve_log_level most);

/* Prints one line; thread-safe. Control characters in the text are shown as '?'. */
void varve_log(enum varve_log_level level, const char *fmt, ...) varve_printf(2, 3);

#define varve_error(...) varve_log(VARVE_LOG_ERROR, __VA_ARGS__)
#define varve_warning(...) varve_log(VARVE_LOG_WARNING, __VA_ARGS__)
#define varve_info(...) varve_log(VARVE_LOG_INFO, __VA_ARGS__)
#define varve_debug(...) varve_log(VARVE_LOG_DEBUG, __VA_ARGS__)
