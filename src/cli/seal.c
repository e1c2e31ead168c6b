#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/units.h"
#include "control/client.h"

static int run(struct varve_cli *cli)
{
	const char *bucket = cli->n_operands ? cli->operands[0] : NULL;
	const char *timeout = varve_cli_get(cli, "timeout");
	struct varve_answer *answer = NULL;
	struct varve_err err = {""};
	int64_t timeout_ns = -1;
	const struct varve_json_value *n;

	if (timeout && varve_duration_parse(timeout, &timeout_ns, &err) < 0)
		return varve_cli_misuse(cli, "--timeout: %s", err.msg);
	if (varve_cli_request(cli, "seal", bucket, timeout_ns, &answer, &err) < 0)
		return varve_cli_fail(cli, "%s", err.msg);
	n = varve_answer_result(answer);
	if (bucket)
		(void)printf("%s: sealed\n", bucket);
	else if (n && n->integer)
		(void)printf("%" PRId64 " %s sealed\n", n->integer,
			     n->integer == 1 ? "bucket" : "buckets");
	else
		(void)printf("nothing to seal: no bucket is closing\n");
	varve_answer_free(answer);
	return varve_cli_finish(cli, 0);
}

const struct varve_cli_command varve_cli_seal = {
	.name = "seal",
	.operands = "[BUCKET]",
	.max_operands = 1,
	.summary = "seal a closing bucket now, without waiting for its grace to end",
	.details = "Waits until the bucket (or every bucket that is closing now) is\n"
		   "sealed. From then on nothing more can be added to it by its dated\n"
		   "path. The current bucket can't be sealed: its window has not\n"
		   "passed.\n",
	.example = "varve seal /mnt/varve 2026-11-29\n"
		   "varve seal --timeout 10m /mnt/varve\n",
	.options = {{"timeout", 't', "DURATION",
		     "stop waiting after this long (it goes on being sealed)"}},
	.run = run,
};
