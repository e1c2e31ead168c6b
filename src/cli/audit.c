#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "base/sys.h"
#include "base/units.h"

struct reading {
	struct varve_cli *cli;
	const char *since; /* RFC 3339, as the lines have it: they compare as text; NULL: all */
	uint64_t number;   /* of the line */
	int status;
};

static void print_count(const struct varve_json_value *v, const char *key, const char *one,
			const char *many, const char **separator)
{
	int64_t n = varve_json_get_int(v, key, -1);

	if (n < 0)
		return;
	(void)printf("%s%" PRId64 " %s", *separator, n, n == 1 ? one : many);
	*separator = ", ";
}

static void print_bytes(const struct varve_json_value *v, const char *key, const char *what,
			const char **separator)
{
	int64_t n = varve_json_get_int(v, key, -1);
	char buf[32];

	if (n < 0)
		return;
	varve_size_format((uint64_t)n, buf, sizeof(buf));
	(void)printf("%s%s%s", *separator, buf, what);
	*separator = ", ";
}

static void print_who(const struct varve_json_value *v, const char *gap)
{
	const char *cause = varve_json_get_string(v, "cause", NULL);
	int64_t uid = varve_json_get_int(v, "uid", -1), pid = varve_json_get_int(v, "pid", -1);
	const struct passwd *pw = uid >= 0 ? getpwuid((uid_t)uid) : NULL;

	if (cause && uid < 0)
		(void)printf("%sby %s", gap, cause);
	if (uid < 0)
		return;
	if (pw)
		(void)printf("%sby %s", gap, pw->pw_name);
	else
		(void)printf("%sby uid %" PRId64, gap, uid);
	if (pid > 0)
		(void)printf(" (pid %" PRId64 ")", pid);
	if (cause && strcmp(cause, "hand") != 0)
		(void)printf(", %s", cause);
}

static void print_line(const struct varve_json_value *v)
{
	const char *time = varve_json_get_string(v, "time", "");
	const char *cutoff = varve_json_get_string(v, "cutoff", NULL);
	const char *bucket = varve_json_get_string(v, "bucket", "");
	const char *cls = varve_json_get_string(v, "class", NULL);
	const char *event = varve_json_get_string(v, "event", "?");
	const char *separator = ": ";

	(void)printf("%.10s %.8s  %-6s  ", time, strlen(time) > 11 ? time + 11 : "", event);
	varve_cli_print_name(bucket, strlen(bucket));
	if (cls && strcmp(cls, "default") != 0)
		(void)printf(" (class %s)", cls);
	print_who(v, bucket[0] ? "  " : "");
	if (cutoff)
		(void)printf(", what ended before %.10s %.8s", cutoff,
			     strlen(cutoff) > 11 ? cutoff + 11 : "");
	if (varve_json_get_int(v, "buckets", 1) != 1)
		print_count(v, "buckets", "bucket", "buckets", &separator);
	print_count(v, "files", "file", "files", &separator);
	print_bytes(v, "bytes", "", &separator);
	print_bytes(v, "segment_bytes", " on disk", &separator);
	(void)putchar('\n');
}

static void take_line(struct reading *rd, const char *line, size_t len)
{
	struct varve_json_doc *doc = NULL;
	const char *time;

	rd->number++;
	if (varve_json_parse(line, len, &doc) < 0 ||
	    !*(time = varve_json_get_string(varve_json_root(doc), "time", ""))) {
		rd->status = varve_cli_fail(rd->cli, "line %" PRIu64 " of audit.jsonl is damaged",
					    rd->number);
	} else if (!rd->since || strcmp(time, rd->since) >= 0) {
		if (varve_cli_get(rd->cli, "json"))
			(void)fwrite(line, 1, len, stdout);
		else
			print_line(varve_json_root(doc));
	}
	varve_json_free(doc);
}

static FILE *open_trail(const char *store, struct varve_err *err)
{
	cleanup_close int dirfd = open(store, O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_close int fd = dirfd < 0 ? -errno : varve_openat(dirfd, "audit.jsonl", O_RDONLY, 0);
	FILE *f;

	if (fd < 0) {
		(void)varve_err_wrap(err, fd, "open the audit trail of '%s'", store);
		return NULL;
	}
	f = fdopen(fd, "r");
	if (f)
		(void)steal_fd(&fd);
	return f;
}

static int run(struct varve_cli *cli)
{
	const char *since = varve_cli_get(cli, "since");
	struct reading rd = {.cli = cli};
	cleanup_free char *line = NULL;
	struct varve_err err = {""};
	char since_text[40];
	int64_t since_ns;
	size_t size = 0;
	ssize_t n;
	FILE *f;

	if (since) {
		if (varve_cli_parse_time(since, varve_cli_now_ns(), &since_ns, &err) < 0)
			return varve_cli_misuse(cli, "--since: %s", err.msg);
		varve_time_format(since_ns, since_text, sizeof(since_text));
		rd.since = since_text;
	}
	f = open_trail(cli->store, &err);
	if (!f)
		return varve_cli_fail(cli, "%s", err.msg);
	/* A last line without its end is being written, or was torn and will be written anew. */
	while ((n = getline(&line, &size, f)) > 0 && line[n - 1] == '\n')
		take_line(&rd, line, (size_t)n);
	if (ferror(f))
		rd.status = varve_cli_fail(cli, "read the audit trail: %s", strerror(errno));
	(void)fclose(f);
	return varve_cli_finish(cli, rd.status);
}

const struct varve_cli_command varve_cli_audit = {
	.name = "audit",
	.summary = "show every seal, drop, expiry and hold: when, why, by whom, how much",
	.details = "Reads the store's audit.jsonl, oldest first; the store need not be\n"
		   "mounted. Times are UTC.\n",
	.example = "varve audit --since 24h /mnt/varve\n"
		   "varve audit --json /mnt/varve | jq 'select(.event == \"expire\")'\n",
	.options = {{"since", 's', "WHEN",
		     "only from then on: 2026-11-28, 2026-11-28T14:05 (UTC), or 24h (ago)"},
		    {"json", 0, NULL, "print the lines as they are: a JSON object each"}},
	.run = run,
};
