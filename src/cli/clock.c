#include "cli/cli.h"

static int run(struct varve_cli *cli)
{
	return varve_cli_request_each(cli, "clock-accept", "the clock is believed as it is");
}

const struct varve_cli_command varve_cli_clock_accept = {
	.name = "clock accept",
	.summary = "believe a clock that jumped ahead",
	.details = "A clock that jumps ahead by more than a bucket is not believed for\n"
		   "a while (option clock-trust, default 1 h): nothing is cut and\n"
		   "nothing expires. When the new time is right, this ends the wait.\n"
		   "Buckets that are older than `keep` by the new time go at once.\n",
	.example = "date -u && varve clock accept /mnt/varve\n",
	.run = run,
};
