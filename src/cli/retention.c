#include "cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/units.h"
#include "cli/table.h"

static int64_t goes_ns(const struct varve_json_value *b)
{
	return varve_json_get_int(b, "goes_ns", INT64_MAX);
}

static int compare(const void *a, const void *b)
{
	const struct varve_json_value *const *x = a, *const *y = b;
	int64_t gx = goes_ns(*x), gy = goes_ns(*y);

	if (gx != gy)
		return gx < gy ? -1 : 1;
	return strcmp(varve_json_get_string(*x, "name", ""), varve_json_get_string(*y, "name", ""));
}

/* The buckets that something will take, in the order in which they go. */
static const struct varve_json_value **plan(const struct varve_json_value *status, size_t *ret_n)
{
	const struct varve_json_value *buckets = varve_json_get(status, "buckets"), **list;
	size_t n = 0;

	for (const struct varve_json_value *b = buckets ? buckets->first : NULL; b; b = b->next)
		n++;
	list = calloc(n + 1, sizeof(*list));
	if (!list)
		return NULL;
	n = 0;
	for (const struct varve_json_value *b = buckets ? buckets->first : NULL; b; b = b->next)
		if (goes_ns(b) != INT64_MAX && !varve_json_get_bool(b, "held", false))
			list[n++] = b;
	qsort(list, n, sizeof(*list), compare);
	*ret_n = n;
	return list;
}

static const char *reason(const char *cause)
{
	static const struct {
		const char *cause, *words;
	} all[] = {
		{"keep", "older than keep"},
		{"max-size", "the store is larger than max-size"},
		{"max-buckets", "there are more than max-buckets"},
		{"min-free", "the volume has less than min-free"},
		{"hand", "dropped by hand"},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(all[i].cause, cause))
			return all[i].words;
	return cause;
}

static void add_row(struct varve_table *t, const struct varve_json_value *b, int64_t now_ns)
{
	int64_t when_ns = goes_ns(b), size = varve_json_get_int(b, "allocated_bytes", 0);
	char buf[40];

	varve_table_add(t, "%s", varve_json_get_string(b, "name", ""));
	varve_table_add(t, "%s", varve_json_get_string(b, "class", ""));
	if (when_ns <= now_ns) {
		varve_table_add(t, "now");
		varve_table_add(t, "%s", "");
	} else {
		varve_cli_format_time(when_ns, buf, sizeof(buf));
		varve_table_add(t, "%s", buf);
		varve_duration_format(when_ns - now_ns, buf, sizeof(buf));
		varve_table_add(t, "%s", buf);
	}
	varve_table_add(t, "%s", reason(varve_json_get_string(b, "goes_by", "")));
	varve_size_format(size < 0 ? 0 : (uint64_t)size, buf, sizeof(buf));
	varve_table_add(t, "%s", buf);
}

static void print_table(const struct varve_json_value **list, size_t n, int64_t now_ns)
{
	struct varve_table t = {
		.n_columns = 6,
		.titles = {"BUCKET", "CLASS", "GOES AT (UTC)", "IN", "WHY", "FREES"},
		.right = {[3] = true, [5] = true},
	};

	if (!n) {
		(void)printf("Nothing will go, as things are.\n");
		return;
	}
	for (size_t i = 0; i < n; i++)
		add_row(&t, list[i], now_ns);
	varve_table_print(&t);
}

static void print_json(const struct varve_json_value **list, size_t n)
{
	(void)putchar('[');
	for (size_t i = 0; i < n; i++)
		(void)printf("%s%.*s", i ? "," : "", (int)list[i]->raw_len, list[i]->raw);
	(void)printf("]\n");
}

static int run(struct varve_cli *cli)
{
	struct varve_cli_state state;
	struct varve_err err = {""};
	const struct varve_json_value *status;
	cleanup_free const struct varve_json_value **list = NULL;
	size_t n = 0;

	if (varve_cli_read_state(cli, &state, &err) < 0)
		return varve_cli_fail(cli, "%s", err.msg);
	status = varve_json_root(state.doc);
	list = plan(status, &n);
	if (list && varve_cli_get(cli, "json"))
		print_json(list, n);
	else if (list)
		print_table(list, n, varve_json_get_int(status, "time_ns", 0));
	varve_cli_state_done(&state);
	return varve_cli_finish(cli, list ? 0 : varve_cli_fail(cli, "no memory"));
}

const struct varve_cli_command varve_cli_retention = {
	.name = "retention",
	.summary = "show what policy will drop next, when and why",
	.details = "In the order in which the buckets go. Rules: keep, max-size,\n"
		   "max-buckets, min-free; keep-min is the floor under all of them.\n"
		   "Buckets on hold, and those that no rule reaches as things are, are\n"
		   "not listed. A flood of data, or of other files on the volume,\n"
		   "brings max-size and min-free forward.\n",
	.example = "varve retention /mnt/varve\n",
	.options = {{"json", 0, NULL,
		     "print the buckets as one JSON array, as `varve status --json` has them"}},
	.run = run,
};
