#include "cli/cli.h"

static int run_hold(struct varve_cli *cli)
{
	return varve_cli_request_each(cli, "hold", "on hold");
}

static int run_unhold(struct varve_cli *cli)
{
	return varve_cli_request_each(cli, "unhold", "no longer on hold");
}

const struct varve_cli_command varve_cli_hold = {
	.name = "hold",
	.operands = "BUCKET...",
	.min_operands = 1,
	.max_operands = -1,
	.summary = "keep buckets from being dropped, whatever policy says",
	.details = "Neither policy nor rmdir nor `varve drop` takes a bucket on hold.\n"
		   "It still counts against max-size, max-buckets and min-free: others\n"
		   "go in its place.\n",
	.example = "varve hold /mnt/varve 2026-11-28\n",
	.run = run_hold,
};

const struct varve_cli_command varve_cli_unhold = {
	.name = "unhold",
	.operands = "BUCKET...",
	.min_operands = 1,
	.max_operands = -1,
	.summary = "end the hold on buckets",
	.details = "Policy may take the bucket at once, if one of its rules reaches\n"
		   "it.\n",
	.example = "varve unhold /mnt/varve 2026-11-28\n",
	.run = run_unhold,
};
