#include "cli/cli.h"

static int run_drop(struct varve_cli *cli)
{
	return varve_cli_request_each(cli, "drop", "dropped");
}

static int run_undrop(struct varve_cli *cli)
{
	return varve_cli_request_each(cli, "undrop", "is back");
}

const struct varve_cli_command varve_cli_drop = {
	.name = "drop",
	.operands = "BUCKET...",
	.min_operands = 1,
	.max_operands = -1,
	.summary = "drop buckets, each as a whole",
	.details = "As rmdir of the bucket's directory does: one step, however much it\n"
		   "holds. It stays in the trash for a while (option undrop, default\n"
		   "10 min), so that `varve undrop` can take it back, unless the\n"
		   "volume runs short. Who has a file of it open goes on reading. The\n"
		   "current bucket can't be dropped, nor one on hold.\n",
	.example = "varve drop /mnt/varve 2026-11-28\n",
	.run = run_drop,
};

const struct varve_cli_command varve_cli_undrop = {
	.name = "undrop",
	.operands = "BUCKET...",
	.min_operands = 1,
	.max_operands = -1,
	.summary = "take dropped buckets back out of the trash",
	.details = "Works as long as the bucket is in the trash (option undrop,\n"
		   "default 10 min) and was dropped by hand; what policy dropped is\n"
		   "gone.\n",
	.example = "varve undrop /mnt/varve 2026-11-28\n",
	.run = run_undrop,
};
