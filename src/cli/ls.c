#include "cli/cli.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "cli/disk.h"
#include "cli/table.h"

static void list_buckets(const struct varve_cli *cli, const struct varve_disk *d)
{
	const struct varve_disk_bucket *buckets;
	size_t n = varve_disk_buckets(d, &buckets);
	struct varve_table t = {.n_columns = 3, .titles = {"BUCKET", "STATE", "FROM (UTC)"}};
	char from[40];

	for (size_t i = 0; i < n; i++) {
		if (!varve_cli_get(cli, "long")) {
			(void)printf("%s\n", buckets[i].name);
			continue;
		}
		varve_cli_format_time(buckets[i].start_ns, from, sizeof(from));
		varve_table_add(&t, "%s", buckets[i].name);
		varve_table_add(&t, "%s", varve_bucket_state_name(buckets[i].state));
		varve_table_add(&t, "%s", from);
	}
	if (varve_cli_get(cli, "long"))
		varve_table_print(&t);
}

static void format_mode(mode_t mode, char buf[11])
{
	static const char bits[] = "rwxrwxrwx";

	buf[0] = S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' : '-';
	for (int i = 0; i < 9; i++)
		buf[1 + i] = mode & (0400 >> i) ? bits[i] : '-';
	if (mode & S_ISVTX)
		buf[9] = mode & 01 ? 't' : 'T';
	buf[10] = '\0';
}

/* A name if the number has one, remembering the last: most files of a bucket have the same owner.
 */
static const char *user_name(uid_t uid)
{
	static char name[64];
	static uid_t last;
	const struct passwd *pw;

	if (name[0] && last == uid)
		return name;
	pw = getpwuid(uid);
	last = uid;
	if (pw)
		(void)snprintf(name, sizeof(name), "%s", pw->pw_name);
	else
		(void)snprintf(name, sizeof(name), "%u", uid);
	return name;
}

static const char *group_name(gid_t gid)
{
	static char name[64];
	static gid_t last;
	const struct group *gr;

	if (name[0] && last == gid)
		return name;
	gr = getgrgid(gid);
	last = gid;
	if (gr)
		(void)snprintf(name, sizeof(name), "%s", gr->gr_name);
	else
		(void)snprintf(name, sizeof(name), "%u", gid);
	return name;
}

/* bucket: its name goes before the path; NULL: not. */
static void print_entry(const struct varve_cli *cli, const struct varve_disk_entry *e, const char *bucket,
			size_t skip)
{
	if (varve_cli_get(cli, "long")) {
		char mode[11], when[40];

		format_mode(e->mode, mode);
		varve_cli_format_time(e->mtime_ns, when, sizeof(when));
		(void)printf("%s %-8s %-8s %12" PRIu64 " %s ", mode, user_name(e->uid),
			     group_name(e->gid), S_ISDIR(e->mode) ? 0 : e->size, when);
	}
	if (bucket)
		(void)printf("%s/", bucket);
	varve_cli_print_name(e->path + skip, e->path_len - skip);
	if (e->target && varve_cli_get(cli, "long")) {
		(void)fputs(" -> ", stdout);
		varve_cli_print_name(e->target, strlen(e->target));
	}
	(void)putchar(varve_cli_get(cli, "zero") ? '\0' : '\n');
}

/* How much of each path is what was asked for: names are printed from there on. */
static size_t skip_of(const char *place, const struct varve_disk_list *list)
{
	const char *path = strchrnul(place, '/');
	size_t n;

	path += strspn(path, "/");
	n = strlen(path);
	while (n && path[n - 1] == '/')
		n--;
	if (!n)
		return 0;
	if (list->n == 1 && list->entries[0].path_len == n) { /* a file: its last name */
		const char *slash = strrchr(list->entries[0].path, '/');

		return slash ? (size_t)(slash + 1 - list->entries[0].path) : 0;
	}
	return n + 1;
}

static int list_place(const struct varve_cli *cli, struct varve_disk *d, const char *place)
{
	struct varve_disk_list list;
	struct varve_err err = {""};
	int r = varve_disk_list(d, place, varve_cli_get(cli, "recursive") != NULL, &list, &err);
	size_t skip = skip_of(place, &list);

	for (size_t i = 0; i < list.n; i++)
		print_entry(cli, &list.entries[i], NULL, skip);
	varve_disk_list_done(&list);
	return r < 0 ? varve_cli_fail(cli, "%s", err.msg) : 0;
}

static int list_all(const struct varve_cli *cli, struct varve_disk *d)
{
	const struct varve_disk_bucket *buckets;
	size_t n = varve_disk_buckets(d, &buckets);
	char (*names)[VARVE_BUCKET_NAME_MAX] = calloc(n + 1, sizeof(*names));
	int status = 0;

	if (!names)
		return varve_cli_fail(cli, "no memory for the names of %zu buckets", n);
	/* A listing may have to look for the buckets anew. */
	for (size_t i = 0; i < n; i++)
		(void)strcpy(names[i], buckets[i].name);
	for (size_t i = 0; i < n; i++) {
		struct varve_disk_list list;
		struct varve_err err = {""};
		int r = varve_disk_list(d, names[i], true, &list, &err);

		for (size_t k = 0; k < list.n; k++)
			print_entry(cli, &list.entries[k], names[i], 0);
		varve_disk_list_done(&list);
		/* -ENOENT: it was dropped meanwhile. */
		if (r < 0 && r != -ENOENT)
			status = varve_cli_fail(cli, "%s", err.msg);
	}
	free(names);
	return status;
}

static int run(struct varve_cli *cli)
{
	struct varve_disk *d = NULL;
	struct varve_err err = {""};
	int status = 0;

	if (varve_disk_open(cli->store, &d, &err) < 0)
		return varve_cli_fail(cli, "%s", err.msg);
	if (!cli->n_operands && varve_cli_get(cli, "recursive"))
		status = list_all(cli, d);
	else if (!cli->n_operands)
		list_buckets(cli, d);
	for (int i = 0; i < cli->n_operands; i++)
		if (list_place(cli, d, cli->operands[i]) != 0)
			status = VARVE_EXIT_FAILED;
	varve_disk_close(d);
	return varve_cli_finish(cli, status);
}

const struct varve_cli_command varve_cli_ls = {
	.name = "ls",
	.operands = "[BUCKET[/PATH]...]",
	.max_operands = -1,
	.summary = "list buckets, or what is in one; the store need not be mounted",
	.details = "Without BUCKET the buckets, oldest first; with -R what is in all of\n"
		   "them, as BUCKET/PATH. BUCKET may be `current`.\n"
		   "Times are UTC.\n",
	.example = "varve ls /var/lib/varve\n"
		   "varve ls -lR /var/lib/varve 2026-11-28/nginx\n",
	.options = {{"long", 'l', NULL, "show mode, owner, size and time as well"},
		    {"recursive", 'R', NULL, "list all that is below, by path"},
		    {"zero", '0', NULL, "end each name with a NUL, not a newline (for xargs -0)"}},
	.run = run,
};
