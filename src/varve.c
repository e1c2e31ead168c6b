/* varve: looks after stores of varvefs. The command line, and nothing else; commands are in cli/.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/target.h"

#define OPTION_BASE 256 /* getopt's number of a command's first option */
#define OPTION_HELP 'h'

static const struct varve_cli_command *const commands[] = {
	&varve_cli_status, &varve_cli_ls,     &varve_cli_cat,    &varve_cli_drop,
	&varve_cli_undrop, &varve_cli_hold,   &varve_cli_unhold, &varve_cli_retention,
	&varve_cli_seal,   &varve_cli_verify, &varve_cli_audit,  &varve_cli_clock_accept,
};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_overview(FILE *to)
{
	(void)fprintf(to, "Usage: varve COMMAND [OPTIONS] STORE [ARGUMENTS]\n"
			  "Looks after stores of varvefs. STORE is a store's folder, or the place "
			  "where it is "
			  "mounted.\n\n");
	for (size_t i = 0; i < N_COMMANDS; i++)
		(void)fprintf(to, "  %-13s %s\n", commands[i]->name, commands[i]->summary);
	(void)fprintf(to, "\n  varve COMMAND --help tells more of a command\n"
			  "  varve --version  tells the version\n\n"
			  "Exit status: 0 done, 1 failed, 2 misused.\n\n"
			  "Example:\n  varve status /mnt/varve\n");
}

static void print_help(const struct varve_cli_command *c)
{
	const char *line = c->example;

	(void)printf("Usage: varve %s %sSTORE%s%s\n", c->name,
		     c->options[0].name ? "[OPTIONS] " : "", c->operands ? " " : "",
		     c->operands ? c->operands : "");
	(void)printf("%c%s.\n\n%s", c->summary[0] - 'a' + 'A', c->summary + 1, c->details);
	(void)printf(
		"\nSTORE is a store's folder, or the place where it is mounted.\n\nOptions:\n");
	for (int i = 0; i < VARVE_CLI_OPTIONS_MAX && c->options[i].name; i++) {
		const struct varve_cli_option *o = &c->options[i];
		char left[48], letter[8] = "    ";

		if (o->letter)
			(void)snprintf(letter, sizeof(letter), "-%c, ", o->letter);
		(void)snprintf(left, sizeof(left), "%s--%s%s%s", letter, o->name,
			       o->value ? "=" : "", o->value ? o->value : "");
		(void)printf("  %-24s %s\n", left, o->help);
	}
	(void)printf("  %-24s %s\n\nExample:\n", "-h, --help", "show this");
	while (*line) {
		int n = (int)strcspn(line, "\n");

		(void)printf("  %.*s\n", n, line);
		line += n + (line[n] == '\n');
	}
}

/* The command that argv begins with; *used is how many words its name takes. */
static const struct varve_cli_command *find_command(int argc, char **argv, int *used)
{
	for (size_t i = 0; i < N_COMMANDS; i++) {
		const char *name = commands[i]->name, *space = strchr(name, ' ');
		size_t n = space ? (size_t)(space - name) : strlen(name);

		if (strlen(argv[0]) != n || strncmp(argv[0], name, n) != 0)
			continue;
		if (space && (argc < 2 || strcmp(argv[1], space + 1) != 0))
			continue;
		*used = space ? 2 : 1;
		return commands[i];
	}
	return NULL;
}

/* getopt's own tables, made of the command's. */
static void make_options(const struct varve_cli_command *c, struct option *longs, char *shorts)
{
	int n = 0;

	*shorts++ = ':';
	*shorts++ = OPTION_HELP;
	for (; n < VARVE_CLI_OPTIONS_MAX && c->options[n].name; n++) {
		const struct varve_cli_option *o = &c->options[n];

		longs[n] = (struct option){.name = o->name,
					   .has_arg = o->value ? required_argument : no_argument,
					   .val = OPTION_BASE + n};
		if (o->letter)
			*shorts++ = o->letter;
		if (o->letter && o->value)
			*shorts++ = ':';
	}
	longs[n++] = (struct option){.name = "help", .has_arg = no_argument, .val = OPTION_HELP};
	longs[n] = (struct option){0};
	*shorts = '\0';
}

static int option_number(const struct varve_cli_command *c, int got)
{
	if (got >= OPTION_BASE)
		return got - OPTION_BASE;
	for (int i = 0; i < VARVE_CLI_OPTIONS_MAX && c->options[i].name; i++)
		if (c->options[i].letter == got)
			return i;
	return -1;
}

/* 0: go on; else the exit status plus one, as --help ends well. */
static int parse_options(struct varve_cli *cli, int argc, char **argv)
{
	struct option longs[VARVE_CLI_OPTIONS_MAX + 2];
	char shorts[2 * VARVE_CLI_OPTIONS_MAX + 4];
	int got;

	make_options(cli->command, longs, shorts);
	optind = 1;
	opterr = 0;
	while ((got = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		int i = option_number(cli->command, got);

		if (got == OPTION_HELP && i < 0) {
			print_help(cli->command);
			return varve_cli_finish(cli, 0) + 1;
		}
		if (got == ':')
			return varve_cli_misuse(cli, "option '%s' needs a value",
						argv[optind - 1]) +
			       1;
		if (i < 0 && optopt && optopt < OPTION_BASE)
			return varve_cli_misuse(cli, "there is no option '-%c'", optopt) + 1;
		if (i < 0)
			return varve_cli_misuse(cli, "there is no option '%s'", argv[optind - 1]) +
			       1;
		cli->option_values[i] = optarg ? optarg : "";
	}
	return 0;
}

static int take_operands(struct varve_cli *cli, int argc, char **argv)
{
	const struct varve_cli_command *c = cli->command;

	if (optind >= argc)
		return varve_cli_misuse(cli, "no STORE was given");
	cli->given = argv[optind];
	cli->operands = argv + optind + 1;
	cli->n_operands = argc - optind - 1;
	if (cli->n_operands < c->min_operands)
		return varve_cli_misuse(cli, "give %s behind STORE", c->operands);
	if (c->max_operands >= 0 && cli->n_operands > c->max_operands)
		return varve_cli_misuse(cli, "'%s' is one argument too many",
					cli->operands[c->max_operands]);
	return 0;
}

static int run_command(struct varve_cli *cli, int argc, char **argv)
{
	struct varve_err err = {""};
	int r = parse_options(cli, argc, argv);

	if (r)
		return r - 1;
	r = take_operands(cli, argc, argv);
	if (r)
		return r;
	if (varve_cli_resolve(cli->given, &cli->store, &err) < 0)
		return varve_cli_fail(cli, "%s", err.msg);
	r = cli->command->run(cli);
	free(cli->store);
	return r;
}

int main(int argc, char **argv)
{
	struct varve_cli cli = {0};
	int used = 0;

	varve_log_init("varve", 0, VARVE_LOG_ERROR);
	/* A reader that has had enough is told of by write(2). */
	(void)signal(SIGPIPE, SIG_IGN);
	if (argc < 2) {
		print_overview(stderr);
		return VARVE_EXIT_MISUSED;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		print_overview(stdout);
		return varve_cli_finish(&cli, 0);
	}
	if (!strcmp(argv[1], "--version")) {
		(void)printf("varve %s\n", VARVE_VERSION);
		return varve_cli_finish(&cli, 0);
	}
	cli.command = find_command(argc - 1, argv + 1, &used);
	if (!cli.command && !strcmp(argv[1], "clock"))
		return varve_cli_misuse(&cli, "'clock' is followed by 'accept'");
	if (!cli.command)
		return varve_cli_misuse(&cli, "there is no command '%s'", argv[1]);
	return run_command(&cli, argc - used, argv + used);
}
