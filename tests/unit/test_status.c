/* The store's status as it is shown: the JSON document and the metrics. */
#include <stdlib.h>
#include <string.h>

#include "../lib/unit.h"
#include "base/json_parse.h"
#include "control/status_json.h"
#include "fuse/metrics.h"

static struct varve_bucket_status buckets[] = {
	{
		.name = "2026-11-29",
		.class_name = "default",
		.state = VARVE_BUCKET_SEALED,
		.held = true,
		.start_ns = INT64_C(1795910400000000000),
		.end_ns = INT64_C(1795996800000000000),
		.files = 3,
		.bytes = 4000,
		.allocated = 1000,
		.goes_by = VARVE_CAUSE_KEEP,
		.goes_ns = INT64_C(1796083200000000000),
	},
	{
		.name = "2026-11-30",
		.class_name = "a \"b\"",
		.state = VARVE_BUCKET_SEALED,
		.damaged = true,
		.files = 1,
		.bytes = 10,
		.allocated = 4096,
		.goes_ns = INT64_MAX,
	},
	{
		.name = "2026-12-01",
		.class_name = "default",
		.state = VARVE_BUCKET_OPEN,
		.start_ns = INT64_C(1796083200000000000),
		.end_ns = INT64_C(1796169600000000000),
		.files = 2,
		.bytes = 7,
		.goes_ns = INT64_MAX,
	},
};

static const struct varve_status status = {
	.now_ns = INT64_C(1796083201500000000),
	.wall_ns = INT64_C(1796083201500000000),
	.clock = "good",
	.bucket_length = "1d",
	.mode = "served by the daemon",
	.next_boundary_ns = INT64_C(1796169600000000000),
	.volume_bytes = UINT64_MAX,
	.store_bytes = 12345,
	.faults = 2,
	.n_buckets = 3,
	.buckets = buckets,
};

static void has(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part) != NULL, "'%s' is not in: %s", part, text);
}

START_TEST(status_as_json)
{
	struct varve_json_doc *doc;
	char *text;

	ck_assert_int_eq(varve_status_json(&status, &text), 0);
	ck_assert_int_eq(varve_json_parse(text, strlen(text), &doc), 0);
	varve_json_free(doc);
	ck_assert_int_eq(text[strlen(text) - 1], '\n');
	has(text, "\"time\":\"2026-12-01T00:00:01.500Z\",\"time_ns\":1796083201500000000,");
	has(text, "\"clock\":\"good\"");
	has(text, "\"bucket_length\":\"1d\"");
	has(text, "\"volume_bytes\":9223372036854775807");
	has(text, "\"totals\":{\"buckets\":3,\"files\":6,\"bytes\":4017,\"allocated_bytes\":5096}");
	has(text, "{\"name\":\"2026-11-29\",\"class\":\"default\",\"state\":\"sealed\","
		  "\"held\":true,\"damaged\":false,\"start\":\"2026-11-29T00:00:00.000Z\"");
	has(text, "\"ratio\":4,\"goes_by\":\"keep\",\"goes\":\"2026-12-01T00:00:00.000Z\"");
	has(text, "\"class\":\"a \\\"b\\\"\"");
	/* one bucket goes, one open bucket has no ratio */
	ck_assert_ptr_null(strstr(strstr(text, "\"goes_by\"") + 1, "\"goes_by\""));
	ck_assert_ptr_null(strstr(strstr(text, "2026-12-01\",\"class"), "\"ratio\""));
	free(text);
}
END_TEST

START_TEST(status_of_no_buckets)
{
	const struct varve_status none = {.clock = "good", .bucket_length = "1s", .mode = "x"};
	char *text;

	ck_assert_int_eq(varve_status_json(&none, &text), 0);
	has(text, "\"buckets\":[]}\n");
	free(text);
	ck_assert_int_eq(varve_metrics_text(&none, &text), 0);
	has(text, "\nvarvefs_buckets{state=\"sealed\"} 0\n");
	free(text);
}
END_TEST

START_TEST(status_as_metrics)
{
	char *text;

	ck_assert_int_eq(varve_metrics_text(&status, &text), 0);
	has(text, "# TYPE varvefs_buckets gauge\n");
	has(text, "\nvarvefs_buckets{state=\"open\"} 1\n");
	has(text, "\nvarvefs_buckets{state=\"closing\"} 0\n");
	has(text, "\nvarvefs_buckets{state=\"sealed\"} 2\n");
	has(text, "\nvarvefs_files{state=\"sealed\"} 4\n");
	has(text, "\nvarvefs_content_bytes{state=\"sealed\"} 4010\n");
	has(text, "\nvarvefs_allocated_bytes{state=\"sealed\"} 5096\n");
	has(text, "\nvarvefs_buckets_held 1\n");
	has(text, "\nvarvefs_buckets_damaged 1\n");
	has(text, "\nvarvefs_store_bytes 12345\n");
	has(text, "# TYPE varvefs_faults_total counter\nvarvefs_faults_total 2\n");
	has(text, "\nvarvefs_time_seconds 1796083201.500\n");
	has(text, "\nvarvefs_clock_good 1\n");
	free(text);
}
END_TEST

T_MAIN("status", 60)
{
	tcase_add_test(tc, status_as_json);
	tcase_add_test(tc, status_of_no_buckets);
	tcase_add_test(tc, status_as_metrics);
}
