#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "cli/table.h"
#include "cli/target.h"

static const char *text(const struct varve_json_value *v, const char *key)
{
	return varve_json_get_string(v, key, "");
}

static uint64_t bytes_of(const struct varve_json_value *v, const char *key)
{
	int64_t n = varve_json_get_int(v, key, 0);

	return n < 0 ? 0 : (uint64_t)n;
}

static void add_size(struct varve_table *t, uint64_t bytes)
{
	char buf[32];

	varve_size_format(bytes, buf, sizeof(buf));
	varve_table_add(t, "%s", buf);
}

static void add_age(struct varve_table *t, const struct varve_json_value *b)
{
	double seconds = varve_json_get_double(b, "age_seconds", 0);
	char buf[32] = "";

	if (seconds > 0 && seconds < 9e9)
		varve_duration_format((int64_t)(seconds * 1e9), buf, sizeof(buf));
	varve_table_add(t, "%s", buf);
}

static void add_goes(struct varve_table *t, const struct varve_json_value *b, int64_t now_ns)
{
	int64_t left_ns = varve_json_get_int(b, "goes_ns", INT64_MAX);
	char buf[32];

	if (varve_json_get_bool(b, "held", false)) {
		varve_table_add(t, "on hold");
	} else if (left_ns == INT64_MAX) {
		varve_table_add(t, "%s", "");
	} else if (left_ns <= now_ns) {
		varve_table_add(t, "now (%s)", text(b, "goes_by"));
	} else {
		varve_duration_format(left_ns - now_ns, buf, sizeof(buf));
		varve_table_add(t, "in %s (%s)", buf, text(b, "goes_by"));
	}
}

static void add_bucket(struct varve_table *t, const struct varve_json_value *b, int64_t now_ns)
{
	double ratio = varve_json_get_double(b, "ratio", 0);

	varve_table_add(t, "%s", text(b, "name"));
	varve_table_add(t, "%s", text(b, "class"));
	varve_table_add(t, "%s", text(b, "state"));
	varve_table_add(t, "%" PRIu64, bytes_of(b, "files"));
	add_size(t, bytes_of(b, "bytes"));
	add_size(t, bytes_of(b, "allocated_bytes"));
	if (ratio > 0 && ratio < 0.1) /* next to nothing, in a block of its own */
		varve_table_add(t, "<0.1");
	else if (ratio > 0)
		varve_table_add(t, "%.1f", ratio);
	else
		varve_table_add(t, "%s", "");
	add_age(t, b);
	add_goes(t, b, now_ns);
	varve_table_add(t, "%s", varve_json_get_bool(b, "damaged", false) ? "DAMAGED" : "");
}

static void print_buckets(const struct varve_json_value *v)
{
	const struct varve_json_value *buckets = varve_json_get(v, "buckets");
	const struct varve_json_value *totals = varve_json_get(v, "totals");
	int64_t now_ns = varve_json_get_int(v, "time_ns", 0);
	struct varve_table t = {
		.n_columns = 10,
		.titles = {"BUCKET", "CLASS", "STATE", "FILES", "BYTES", "ON DISK", "RATIO", "AGE",
			   "GOES", ""},
		.right = {[3] = true, [4] = true, [5] = true, [6] = true, [7] = true},
	};

	for (const struct varve_json_value *b = buckets ? buckets->first : NULL; b; b = b->next)
		add_bucket(&t, b, now_ns);
	varve_table_add(&t, "total");
	varve_table_add(&t, "%s", "");
	varve_table_add(&t, "%" PRIu64 " in all", bytes_of(totals, "buckets"));
	varve_table_add(&t, "%" PRIu64, bytes_of(totals, "files"));
	add_size(&t, bytes_of(totals, "bytes"));
	add_size(&t, bytes_of(totals, "allocated_bytes"));
	for (int i = 0; i < 4; i++)
		varve_table_add(&t, "%s", "");
	varve_table_print(&t);
}

static const char *clock_words(const char *clock)
{
	if (!strcmp(clock, "behind"))
		return "behind: it was set back; the current bucket stays until it has caught up";
	if (!strcmp(clock, "untrusted"))
		return "untrusted: it jumped ahead; nothing is cut or expires until it has stayed "
		       "there, or: varve clock accept STORE";
	return clock;
}

static void print_head(const struct varve_cli *cli, const struct varve_json_value *v)
{
	cleanup_free char *mountpoint = varve_cli_mountpoint(cli->store);
	int64_t now_ns = varve_json_get_int(v, "time_ns", 0);
	int64_t next_ns = varve_json_get_int(v, "next_boundary_ns", 0);
	char a[40], b[40], c[40];

	(void)printf("store     %s", cli->store);
	if (mountpoint)
		(void)printf(", %s %s",
			     !strcmp(text(v, "mode"), "not mounted")
				     ? "whose daemon is gone: mount it again at"
				     : "mounted at",
			     mountpoint);
	(void)printf("\nwrites    %s\n", text(v, "mode"));
	varve_cli_format_time(now_ns, a, sizeof(a));
	(void)printf("clock     %s UTC, %s\n", a, clock_words(text(v, "clock")));
	if (next_ns > now_ns) {
		varve_duration_format(next_ns - now_ns, a, sizeof(a));
		(void)printf("buckets   of %s; the next begins in %s\n", text(v, "bucket_length"),
			     a);
	}
	varve_size_format(bytes_of(v, "store_bytes"), a, sizeof(a));
	varve_size_format(bytes_of(v, "free_bytes"), b, sizeof(b));
	varve_size_format(bytes_of(v, "volume_bytes"), c, sizeof(c));
	(void)printf("volume    the store takes %s; %s of %s are free\n", a, b, c);
	if (bytes_of(v, "trash_buckets")) {
		varve_size_format(bytes_of(v, "trash_bytes"), a, sizeof(a));
		(void)printf("trash     %s of %" PRIu64 " dropped buckets\n", a,
			     bytes_of(v, "trash_buckets"));
	}
	if (bytes_of(v, "faults"))
		(void)printf("faults    %" PRIu64 " found since the mount; see: varve verify %s\n",
			     bytes_of(v, "faults"), cli->given);
	(void)putchar('\n');
}

static int print_status(struct varve_cli *cli, const struct varve_json_value *v)
{
	if (varve_cli_get(cli, "json")) {
		(void)printf("%.*s\n", (int)v->raw_len, v->raw);
	} else {
		print_head(cli, v);
		print_buckets(v);
	}
	return varve_cli_finish(cli, 0);
}

static int run(struct varve_cli *cli)
{
	struct varve_cli_state state;
	struct varve_err err = {""};
	int status;

	if (varve_cli_read_state(cli, &state, &err) < 0)
		return varve_cli_fail(cli, "%s", err.msg);
	status = print_status(cli, varve_json_root(state.doc));
	varve_cli_state_done(&state);
	return status;
}

const struct varve_cli_command varve_cli_status = {
	.name = "status",
	.summary = "show the buckets, their sizes, and when each will go",
	.details = "A line for each bucket, oldest first: its state (open, closing,\n"
		   "sealed), the files in it, the bytes they hold and what they take\n"
		   "on disk, the ratio of the two, the age (since its window ended),\n"
		   "and when policy will take it, and by which rule. Of a store that\n"
		   "is not mounted it is worked out from the files.\n",
	.example = "varve status /mnt/varve\n"
		   "varve status --json /mnt/varve | jq '.buckets[] | select(.damaged).name'\n",
	.options = {{"json", 0, NULL, "print one JSON document, for programs"}},
	.run = run,
};
