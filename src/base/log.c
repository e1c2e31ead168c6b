#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

static const char *log_program = "varvefs";
static int log_syslog;
static enum varve_log_level log_most = VARVE_LOG_INFO;

void varve_log_init(const char *program, int to_syslog, enum varve_log_level most)
{
	log_program = program;
	log_syslog = to_syslog;
	log_most = most;
	if (to_syslog)
		openlog(program, LOG_PID | LOG_NDELAY, LOG_DAEMON);
}

static int syslog_priority(enum varve_log_level level)
{
	static const int map[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};

	return map[level];
}

void varve_log(enum varve_log_level level, const char *fmt, ...)
{
	static const char *const word[] = {"error: ", "warning: ", "", "debug: "};
	char text[1024];
	char line[1200];
	va_list ap;
	int n;

	if (level > log_most)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* File names are the users': they must not be able to forge a second log line. */
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	if (log_syslog) {
		syslog(syslog_priority(level), "%s%s", word[level], text);
		return;
	}
	n = snprintf(line, sizeof(line), "%s: %s%s\n", log_program, word[level], text);
	if (n > 0)
		/* One write, so that lines of several threads do not mix; nobody to tell if it fails. */
		(void)!write(STDERR_FILENO, line, strnlen(line, sizeof(line)));
}
