#include "cli/cli.h"

#include <errno.h>

#include "cli/disk.h"

static int run(struct varve_cli *cli)
{
	struct varve_disk *d = NULL;
	struct varve_err err = {""};
	int status = 0;

	if (varve_disk_open(cli->store, &d, &err) < 0)
		return varve_cli_fail(cli, "%s", err.msg);
	for (int i = 0; i < cli->n_operands; i++) {
		int r;

		err.msg[0] = '\0';
		r = varve_disk_cat(d, cli->operands[i], STDOUT_FILENO, &err);
		if (r < 0)
			status = VARVE_EXIT_FAILED;
		if (r == -EPIPE)
			break;
		if (r < 0)
			(void)varve_cli_fail(cli, "%s", err.msg);
	}
	varve_disk_close(d);
	return status;
}

const struct varve_cli_command varve_cli_cat = {
	.name = "cat",
	.operands = "BUCKET/PATH...",
	.min_operands = 1,
	.max_operands = -1,
	.summary = "print files of buckets; the store need not be mounted",
	.details = "Whether a bucket is open, closing or sealed makes no difference.\n"
		   "BUCKET may be `current`. A damaged frame ends the file with an\n"
		   "error; what is printed before it is right.\n",
	.example = "varve cat /var/lib/varve 2026-11-28/nginx/access.log | grep ' 500 '\n",
	.run = run,
};
