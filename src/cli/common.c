#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/civil.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/offline.h"
#include "control/client.h"
#include "control/protocol.h"

#define ANSWER_TIMEOUT_NS (INT64_C(60) * VARVE_NS_PER_S)

const char *varve_cli_get(const struct varve_cli *cli, const char *option)
{
	const struct varve_cli_option *o = cli->command->options;

	for (int i = 0; i < VARVE_CLI_OPTIONS_MAX && o[i].name; i++)
		if (!strcmp(o[i].name, option))
			return cli->option_values[i];
	return NULL;
}

static void complain(const struct varve_cli *cli, const char *fmt, va_list ap)
{
	char text[2048];

	(void)vsnprintf(text, sizeof(text), fmt, ap);
	/* File names are the users': no escape sequence of theirs reaches the terminal. */
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	(void)fflush(stdout);
	if (cli->command)
		(void)fprintf(stderr, "varve %s: %s\n", cli->command->name, text);
	else
		(void)fprintf(stderr, "varve: %s\n", text);
}

int varve_cli_fail(const struct varve_cli *cli, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(cli, fmt, ap);
	va_end(ap);
	return VARVE_EXIT_FAILED;
}

int varve_cli_misuse(const struct varve_cli *cli, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(cli, fmt, ap);
	va_end(ap);
	(void)fprintf(stderr, "Try: varve %s%s--help\n", cli->command ? cli->command->name : "",
		      cli->command ? " " : "");
	return VARVE_EXIT_MISUSED;
}

int varve_cli_finish(const struct varve_cli *cli, int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	/* `varve ls | head`: whoever read has had enough. */
	if (errno == EPIPE)
		return status ? status : VARVE_EXIT_FAILED;
	return varve_cli_fail(cli, "write to standard output: %s", strerror(errno));
}

int varve_cli_request(const struct varve_cli *cli, const char *request, const char *bucket,
		      int64_t timeout_ns, struct varve_answer **ret, struct varve_err *err)
{
	struct varve_json j = VARVE_JSON_INIT;
	int r = -ENOMEM;

	varve_json_open(&j, NULL, '{');
	varve_json_int(&j, "version", VARVE_CONTROL_VERSION);
	varve_json_string(&j, "command", request);
	if (bucket)
		varve_json_string(&j, "bucket", bucket);
	if (timeout_ns >= 0)
		varve_json_int(&j, "timeout_ns", timeout_ns);
	varve_json_close(&j, '}');
	if (!j.failed)
		/* What waits in the daemon is ended there; we wait a little longer for its answer.
		 */
		r = varve_client_call(cli->store, j.text,
				      strcmp(request, "seal") ? ANSWER_TIMEOUT_NS : -1, ret, err);
	varve_json_done(&j);
	return r;
}

int varve_cli_request_each(struct varve_cli *cli, const char *request, const char *done)
{
	int status = 0;

	for (int i = 0; i < (cli->n_operands ? cli->n_operands : 1); i++) {
		const char *bucket = cli->n_operands ? cli->operands[i] : NULL;
		struct varve_answer *answer = NULL;
		struct varve_err err = {""};
		int r = varve_cli_request(cli, request, bucket, -1, &answer, &err);

		varve_answer_free(answer);
		if (r < 0)
			status = varve_cli_fail(cli, "%s", err.msg);
		else if (done && bucket)
			(void)printf("%s: %s\n", bucket, done);
		else if (done)
			(void)printf("%s\n", done);
		if (r == -ENOTCONN)
			break;
	}
	return varve_cli_finish(cli, status);
}

static int ask_for_state(const struct varve_cli *cli, char **ret, struct varve_err *err)
{
	struct varve_answer *answer = NULL;
	const struct varve_json_value *v;
	int r = varve_cli_request(cli, "status", NULL, -1, &answer, err);

	if (r < 0)
		return r;
	v = varve_answer_result(answer);
	*ret = v ? strndup(v->raw, v->raw_len) : NULL;
	varve_answer_free(answer);
	return *ret ? 0 : varve_err_set(err, -EPROTO, "the daemon told no status");
}

int varve_cli_read_state(const struct varve_cli *cli, struct varve_cli_state *ret,
			 struct varve_err *err)
{
	int r;

	*ret = (struct varve_cli_state){0};
	r = ask_for_state(cli, &ret->text, err);
	if (r == -ENOTCONN) {
		err->msg[0] = '\0';
		r = varve_offline_status(cli->store, &ret->text, err);
	}
	if (r == 0) {
		r = varve_json_parse(ret->text, strlen(ret->text), &ret->doc);
		if (r < 0)
			(void)varve_err_wrap(err, r, "read the status");
	}
	if (r < 0)
		varve_cli_state_done(ret);
	return r;
}

void varve_cli_state_done(struct varve_cli_state *state)
{
	varve_json_free(state->doc);
	free(state->text);
}

void varve_cli_print_name(const char *name, size_t len)
{
	static int terminal = -1;

	if (terminal < 0)
		terminal = isatty(STDOUT_FILENO);
	if (!terminal) {
		(void)fwrite(name, 1, len, stdout);
		return;
	}
	for (size_t i = 0; i < len; i++)
		(void)putchar((unsigned char)name[i] < 0x20 || name[i] == 0x7f ? '?' : name[i]);
}

void varve_cli_format_time(int64_t ns, char *buf, size_t size)
{
	char text[40];

	varve_time_format(ns, text, sizeof(text));
	(void)snprintf(buf, size, "%.10s %.8s", text, text + 11);
}

int64_t varve_cli_now_ns(void)
{
	return varve_clock_realtime(varve_clock_system());
}

/* "THH:MM[:SS]" and an optional Z, up to the end of the text. */
static bool parse_clock(const char *text, int *h, int *m, int *s)
{
	int n = 0;

	if (sscanf(text, "T%2d:%2d%n", h, m, &n) != 2)
		return false;
	text += n;
	if (*text == ':') {
		if (sscanf(text, ":%2d%n", s, &n) != 1)
			return false;
		text += n;
	}
	if (*text == 'Z')
		text++;
	return !*text && *h >= 0 && *h < 24 && *m >= 0 && *m < 60 && *s >= 0 && *s < 60;
}

static bool parse_date_time(const char *text, int64_t *ret_ns)
{
	struct varve_date d = {0};
	int year, h = 0, m = 0, s = 0, n = 0;

	if (strlen(text) < 10 || sscanf(text, "%4d-%2d-%2d%n", &year, &d.month, &d.day, &n) != 3 ||
	    n != 10 || year < 1970)
		return false;
	d.year = year;
	if (text[10] && !parse_clock(text + 10, &h, &m, &s))
		return false;
	*ret_ns = (varve_days_from_date(&d) * 86400 + h * 3600 + m * 60 + s) * VARVE_NS_PER_S;
	d = varve_date_from_days(varve_days_from_date(&d));
	/* Turned back, 2026-02-30 is another day. */
	return d.year == year && atoi(text + 5) == d.month && atoi(text + 8) == d.day;
}

int varve_cli_parse_time(const char *text, int64_t now_ns, int64_t *ret_ns, struct varve_err *err)
{
	int64_t ago_ns;

	if (parse_date_time(text, ret_ns))
		return 0;
	if (varve_duration_parse(text, &ago_ns, NULL) < 0 || ago_ns > now_ns)
		return varve_err_set(err, -EINVAL,
				     "'%s' is no instant: give a date (2026-11-28), a time in UTC "
				     "(2026-11-28T14:05) or how long ago (24h)",
				     text);
	*ret_ns = now_ns - ago_ns;
	return 0;
}
