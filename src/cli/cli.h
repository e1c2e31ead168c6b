/*
 * The commands of `varve`: one file each, all described by one table entry, from which the command
 * line is parsed and --help is printed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json_parse.h"

#define VARVE_EXIT_FAILED 1
#define VARVE_EXIT_MISUSED 2
#define VARVE_CLI_OPTIONS_MAX 6

struct varve_cli_option {
	const char *name;  /* without dashes; NULL ends the list */
	char letter;       /* short form; 0: none */
	const char *value; /* what its value is called; NULL: takes none */
	const char *help;
};

struct varve_cli;

struct varve_cli_command {
	const char *name;               /* one word, or two: "clock accept" */
	const char *operands;           /* behind STORE, for the usage line: "BUCKET..." */
	int min_operands, max_operands; /* behind STORE; max -1: any number */
	const char *summary;            /* one line */
	const char *details;            /* paragraphs, each line ends in a newline */
	const char *example;            /* lines */
	struct varve_cli_option options[VARVE_CLI_OPTIONS_MAX];
	int (*run)(struct varve_cli *cli); /* returns the exit status */
};

/* What a command is run with. */
struct varve_cli {
	const struct varve_cli_command *command;
	const char *given; /* STORE, as it was given: a store's folder or a mountpoint */
	char *store;       /* the store's folder */
	int n_operands;
	char **operands;
	const char *option_values[VARVE_CLI_OPTIONS_MAX]; /* NULL: not given; "" for one without
							     value */
};

/* The option's value ("" when it takes none), NULL when it was not given. */
const char *varve_cli_get(const struct varve_cli *cli, const char *option);

/* Says on stderr what went wrong ("varve drop: ..."); control characters are shown as '?'. Returns
 * VARVE_EXIT_FAILED or VARVE_EXIT_MISUSED; the latter adds where help is to be had. */
int varve_cli_fail(const struct varve_cli *cli, const char *fmt, ...) varve_printf(2, 3);
int varve_cli_misuse(const struct varve_cli *cli, const char *fmt, ...) varve_printf(2, 3);

/* Flushes stdout; VARVE_EXIT_FAILED with a message when what was printed could not be written. */
int varve_cli_finish(const struct varve_cli *cli, int status);

/* A command that is nothing but a request for each operand (or one, when there is none). For each
 * that worked prints `done` with the operand in it (NULL: nothing). Returns the exit status. */
int varve_cli_request_each(struct varve_cli *cli, const char *request, const char *done);

struct varve_answer;

/* Asks the daemon; bucket may be NULL. 0, or the errno with err filled in. */
int varve_cli_request(const struct varve_cli *cli, const char *request, const char *bucket,
		      int64_t timeout_ns, struct varve_answer **ret, struct varve_err *err);

/* The store's status (control/status_json.h), from its daemon, or worked out when there is none.
 * The caller frees doc, then text. 0, or the errno with err filled in. */
struct varve_cli_state {
	char *text;
	struct varve_json_doc *doc;
};
int varve_cli_read_state(const struct varve_cli *cli, struct varve_cli_state *ret,
			 struct varve_err *err) varve_must_check;
void varve_cli_state_done(struct varve_cli_state *state);

/* Prints a name (any bytes) to stdout; on a terminal control characters are shown as '?'. */
void varve_cli_print_name(const char *name, size_t len);

/* "2026-12-01 02:03:04" (UTC). buf holds at least 40 bytes. */
void varve_cli_format_time(int64_t ns, char *buf, size_t size);

/* An instant as people give it: 2026-11-28, 2026-11-28T14:05, 2026-11-28T14:05:06Z (UTC all), or
 * how long ago: 24h. -EINVAL. */
int varve_cli_parse_time(const char *text, int64_t now_ns, int64_t *ret_ns,
			 struct varve_err *err) varve_must_check;

int64_t varve_cli_now_ns(void); /* the wall clock */

extern const struct varve_cli_command varve_cli_status, varve_cli_seal, varve_cli_drop,
	varve_cli_undrop, varve_cli_hold, varve_cli_unhold, varve_cli_retention, varve_cli_verify,
	varve_cli_ls, varve_cli_cat, varve_cli_audit, varve_cli_clock_accept;
