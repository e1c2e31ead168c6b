#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../lib/unit.h"
#include "base/civil.h"
#include "base/clock.h"
#include "format/names.h"

#define DAY INT64_C(86400)
#define N(a) (sizeof(a) / sizeof((a)[0]))

static const struct varve_length week = {.unit = VARVE_UNIT_WEEK};
static const struct varve_length month = {.unit = VARVE_UNIT_MONTH};
static const struct varve_length day = {.unit = VARVE_UNIT_SECONDS, .seconds = 86400};

static int64_t utc(int y, int mo, int d, int h, int mi, int s)
{
	return varve_days_from_date(&(struct varve_date){y, mo, d}) * DAY + h * 3600 + mi * 60 + s;
}

static struct varve_length length(const char *text)
{
	struct varve_length len;
	struct varve_err err = {0};

	ck_assert_msg(varve_length_parse(text, &len, &err) == 0, "%s: %s", text, err.msg);
	return len;
}

static const struct {
	int when[6];
	const char *length;
	const char *name;
	int start[6];
	int end[6];
} windows[] = {
	/* leap days */
	{{2024, 2, 29, 12, 0, 0}, "1d", "2024-02-29", {2024, 2, 29}, {2024, 3, 1}},
	{{2023, 2, 28, 23, 59, 59}, "1d", "2023-02-28", {2023, 2, 28}, {2023, 3, 1}},
	{{2000, 2, 29, 0, 0, 0}, "1d", "2000-02-29", {2000, 2, 29}, {2000, 3, 1}},
	{{2100, 2, 28, 23, 59, 59}, "1d", "2100-02-28", {2100, 2, 28}, {2100, 3, 1}},
	{{2100, 3, 1, 0, 0, 0}, "1d", "2100-03-01", {2100, 3, 1}, {2100, 3, 2}},
	/* month ends */
	{{2024, 2, 29, 23, 59, 59}, "1mo", "2024-02", {2024, 2, 1}, {2024, 3, 1}},
	{{2100, 2, 1, 0, 0, 0}, "1mo", "2100-02", {2100, 2, 1}, {2100, 3, 1}},
	{{2026, 12, 31, 23, 59, 59}, "1mo", "2026-12", {2026, 12, 1}, {2027, 1, 1}},
	{{2026, 4, 30, 23, 59, 59}, "1mo", "2026-04", {2026, 4, 1}, {2026, 5, 1}},
	{{2026, 5, 1, 0, 0, 0}, "1mo", "2026-05", {2026, 5, 1}, {2026, 6, 1}},
	/* ISO weeks across years */
	{{2026, 11, 30, 0, 0, 0}, "1w", "2026-W49", {2026, 11, 30}, {2026, 12, 7}},
	{{2026, 11, 29, 23, 59, 59}, "1w", "2026-W48", {2026, 11, 23}, {2026, 11, 30}},
	{{2026, 12, 31, 0, 0, 0}, "1w", "2026-W53", {2026, 12, 28}, {2027, 1, 4}},
	{{2027, 1, 3, 23, 59, 59}, "1w", "2026-W53", {2026, 12, 28}, {2027, 1, 4}},
	{{2027, 1, 4, 0, 0, 0}, "1w", "2027-W01", {2027, 1, 4}, {2027, 1, 11}},
	{{2021, 1, 3, 0, 0, 0}, "1w", "2020-W53", {2020, 12, 28}, {2021, 1, 4}},
	{{2018, 12, 31, 0, 0, 0}, "1w", "2019-W01", {2018, 12, 31}, {2019, 1, 7}},
	{{2024, 12, 30, 0, 0, 0}, "1w", "2025-W01", {2024, 12, 30}, {2025, 1, 6}},
	{{2022, 1, 1, 0, 0, 0}, "1w", "2021-W52", {2021, 12, 27}, {2022, 1, 3}},
	{{1970, 1, 1, 0, 0, 0}, "1w", "1970-W01", {1969, 12, 29}, {1970, 1, 5}},
	/* 2038 and the ends */
	{{2038, 1, 19, 3, 14, 8},
	 "1s",
	 "2038-01-19T031408Z",
	 {2038, 1, 19, 3, 14, 8},
	 {2038, 1, 19, 3, 14, 9}},
	{{2106, 2, 7, 6, 28, 16}, "1h", "2106-02-07T06Z", {2106, 2, 7, 6}, {2106, 2, 7, 7}},
	{{1970, 1, 1, 0, 0, 0}, "1d", "1970-01-01", {1970, 1, 1}, {1970, 1, 2}},
	{{1970, 1, 31, 0, 0, 0}, "1mo", "1970-01", {1970, 1, 1}, {1970, 2, 1}},
	{{2262, 4, 10, 23, 59, 59}, "1d", "2262-04-10", {2262, 4, 10}, {2262, 4, 11}},
	/* forms below a day */
	{{2026, 11, 30, 14, 17, 31},
	 "1h",
	 "2026-11-30T14Z",
	 {2026, 11, 30, 14},
	 {2026, 11, 30, 15}},
	{{2026, 11, 30, 14, 17, 31},
	 "6h",
	 "2026-11-30T12Z",
	 {2026, 11, 30, 12},
	 {2026, 11, 30, 18}},
	{{2026, 11, 30, 23, 59, 59}, "12h", "2026-11-30T12Z", {2026, 11, 30, 12}, {2026, 12, 1}},
	{{2026, 11, 30, 14, 17, 31},
	 "15m",
	 "2026-11-30T1415Z",
	 {2026, 11, 30, 14, 15},
	 {2026, 11, 30, 14, 30}},
	{{2026, 11, 30, 1, 29, 59},
	 "90m",
	 "2026-11-30T0000Z",
	 {2026, 11, 30},
	 {2026, 11, 30, 1, 30}},
	{{2026, 11, 30, 14, 17, 31},
	 "1m",
	 "2026-11-30T1417Z",
	 {2026, 11, 30, 14, 17},
	 {2026, 11, 30, 14, 18}},
	{{2026, 11, 30, 14, 17, 31},
	 "10s",
	 "2026-11-30T141730Z",
	 {2026, 11, 30, 14, 17, 30},
	 {2026, 11, 30, 14, 17, 40}},
	{{2026, 12, 31, 23, 59, 59},
	 "1s",
	 "2026-12-31T235959Z",
	 {2026, 12, 31, 23, 59, 59},
	 {2027, 1, 1}},
	{{2026, 11, 30, 0, 1, 31},
	 "90s",
	 "2026-11-30T000130Z",
	 {2026, 11, 30, 0, 1, 30},
	 {2026, 11, 30, 0, 3, 0}},
};

static int64_t utc_ns(const int t[6])
{
	return utc(t[0], t[1], t[2], t[3], t[4], t[5]) * VARVE_NS_PER_S;
}

START_TEST(window_of_instant)
{
	struct varve_length len = length(windows[_i].length);
	struct varve_window w;
	int64_t start, end;

	ck_assert_int_eq(varve_window_at(&len, utc_ns(windows[_i].when) + 999999999, &w), 0);
	ck_assert_str_eq(w.name, windows[_i].name);
	ck_assert_int_eq(w.start_ns, utc_ns(windows[_i].start));
	ck_assert_int_eq(w.end_ns, utc_ns(windows[_i].end));
	ck_assert_int_eq(varve_name_parse(w.name, &start, &end), 0);
	ck_assert_int_eq(start, w.start_ns);
	ck_assert_int_le(end, w.end_ns);
}
END_TEST

static const char *const lengths_good[][2] = {
	{"1s", "1s"},     {"10s", "10s"},  {"1m", "1m"},     {"60s", "1m"},  {"15m", "15m"},
	{"900s", "15m"},  {"1h", "1h"},    {"60m", "1h"},    {"90m", "90m"}, {"6h", "6h"},
	{"24h", "1d"},    {"1d", "1d"},    {"86400s", "1d"}, {"1w", "1w"},   {"1mo", "1mo"},
	{"675s", "675s"}, {"1440m", "1d"}, {"128s", "128s"},
};

START_TEST(length_text)
{
	struct varve_length len = length(lengths_good[_i][0]);
	char buf[16];

	varve_length_format(&len, buf, sizeof(buf));
	ck_assert_str_eq(buf, lengths_good[_i][1]);
}
END_TEST

static const char *const lengths_bad[] = {
	"",
	"0",
	"0s",
	"1",
	"86400",
	"7s",
	"7h",
	"5h",
	"2d",
	"7d",
	"2w",
	"0w",
	"2mo",
	"1M",
	"1 h",
	" 1h",
	"1h ",
	"-1h",
	"+1h",
	"1.5h",
	"1h30m",
	"0x1h",
	"s",
	"d",
	"500ms",
	"1y",
	"86401s",
	"25h",
	"1W",
	"1H",
	"w",
	"mo",
	"99999999999999999999s",
	"18446744073709551617s",
	"184467440737095517s",
};

START_TEST(length_refused)
{
	struct varve_length len = {VARVE_UNIT_WEEK, 77};
	struct varve_err err = {0};

	ck_assert_int_eq(varve_length_parse(lengths_bad[_i], &len, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.msg, "example: 1d"));
	ck_assert_int_eq(len.seconds, 77);
}
END_TEST

static const char *const names_bad[] = {
	"",
	"x",
	"current",
	".staging",
	".varve",
	/* not in the calendar */
	"2026-02-29",
	"2100-02-29",
	"2026-04-31",
	"2026-11-00",
	"2026-13-01",
	"2026-00-01",
	"2026-11-32",
	"2026-00",
	"2026-13",
	"2026-W00",
	"2026-W54",
	"2025-W53",
	"2020-W54",
	"2027-W53",
	"2026-11-30T24Z",
	"2026-11-30T1460Z",
	"2026-11-30T141560Z",
	"2026-11-30T2400Z",
	"2026-02-29T14Z",
	/* out of range */
	"1969-12-31",
	"1969-12",
	"1969-W52",
	"0000-01-01",
	"9999-12-31",
	"2262-04-11",
	"2262-04",
	"2262-04-12T00Z",
	"2262-04-11T234716Z",
	"2263-01",
	"9999-W01",
	/* another form than ours */
	"2026-11-30T14",
	"2026-11-30T14z",
	"2026-11-30t14Z",
	"2026-11-30 14Z",
	"2026-11-30T14:15Z",
	"2026-11-30T1Z",
	"2026-11-30T141Z",
	"2026-11-30T14153Z",
	"2026-11-30T141530",
	"2026-11-3",
	"2026-1-30",
	"26-11-30",
	"2026-w49",
	"2026-W9",
	"2026W49",
	"20261130",
	"2026-11-30Z",
	"+026-11-30",
	" 2026-11-30",
	"2026-11-30 ",
	"2026-11-30\n",
	"2026-11-30/",
	"2026/11/30",
	"2026-11-30.tmp",
	"2026-11-30T141530.5Z",
	"12026-11-30",
	"2026- 1-30",
	"-026-11-30",
	"2026-W49-1",
	"2026-334",
	"2026-11-30T14Z2026-11-30T14Z2026-11-30T14Z",
};

START_TEST(name_refused)
{
	int64_t start = 77, end = 78;

	ck_assert_msg(varve_name_parse(names_bad[_i], &start, &end) == -EINVAL, "'%s'",
		      names_bad[_i]);
	ck_assert_int_eq(start, 77);
	ck_assert_int_eq(end, 78);
}
END_TEST

static const struct {
	const char *name;
	int64_t seconds; /* from start to the end that the name tells */
} spans[] = {
	{"2026-11-30", DAY},      {"2026-W49", 7 * DAY},     {"2026-11", 30 * DAY},
	{"2024-02", 29 * DAY},    {"2026-02", 28 * DAY},     {"2026-11-30T14Z", 3600},
	{"2026-11-30T1400Z", 60}, {"2026-11-30T1415Z", 60},  {"2026-11-30T140000Z", 1},
	{"2262-04-11T22Z", 3600}, {"2262-04-11T234715Z", 1}, {"1970-W01", 7 * DAY},
};

START_TEST(name_tells_span)
{
	int64_t start, end;

	ck_assert_int_eq(varve_name_parse(spans[_i].name, &start, &end), 0);
	ck_assert_int_eq(end - start, spans[_i].seconds * VARVE_NS_PER_S);
}
END_TEST

START_TEST(out_of_range)
{
	struct varve_length second = length("1s"), bad = {.unit = VARVE_UNIT_SECONDS};
	struct varve_window w = {.start_ns = 77};

	ck_assert_int_eq(varve_window_at(&day, -1, &w), -ERANGE);
	ck_assert_int_eq(varve_window_at(&week, -1, &w), -ERANGE);
	ck_assert_int_eq(varve_window_at(&month, INT64_MIN, &w), -ERANGE);
	ck_assert_int_eq(varve_window_at(&day, INT64_MAX, &w), -ERANGE);
	ck_assert_int_eq(varve_window_at(&week, INT64_MAX, &w), -ERANGE);
	ck_assert_int_eq(varve_window_at(&month, INT64_MAX, &w), -ERANGE);
	ck_assert_int_eq(varve_window_at(&second, INT64_MAX, &w), -ERANGE);
	ck_assert_int_eq(varve_window_at(&bad, 0, &w), -EINVAL);
	bad.seconds = 7;
	ck_assert_int_eq(varve_window_at(&bad, 0, &w), -EINVAL);
	ck_assert_int_eq(w.start_ns, 77);
	ck_assert_int_eq(varve_window_at(&second, INT64_MAX - VARVE_NS_PER_S, &w), 0);
}
END_TEST

/* What every window must keep to: it holds the instant, is found again by its name and from its
 * ends, and the next one begins where it ends, with a name that sorts behind. */
static void check_window(const struct varve_length *len, int64_t now_ns)
{
	struct varve_window w, next, again;
	int64_t start, end;

	if (varve_window_at(len, now_ns, &w) < 0)
		return;
	ck_assert_int_le(w.start_ns, now_ns);
	ck_assert_int_gt(w.end_ns, now_ns);
	ck_assert_int_ge(w.end_ns - w.start_ns, varve_length_min_ns(len));
	ck_assert_int_eq(varve_name_parse(w.name, &start, &end), 0);
	ck_assert_int_eq(start, w.start_ns);
	ck_assert_int_le(end, w.end_ns);
	if (len->unit != VARVE_UNIT_SECONDS || len->seconds == DAY)
		ck_assert_int_eq(end, w.end_ns);
	if (w.start_ns >= 0) {
		ck_assert_int_eq(varve_window_at(len, w.start_ns, &again), 0);
		ck_assert_str_eq(again.name, w.name);
	}
	ck_assert_int_eq(varve_window_at(len, w.end_ns - 1, &again), 0);
	ck_assert_str_eq(again.name, w.name);
	if (varve_window_at(len, w.end_ns, &next) < 0)
		return;
	ck_assert_int_eq(next.start_ns, w.end_ns);
	ck_assert_int_gt(strcmp(next.name, w.name), 0);
}

static int64_t random_instant(void)
{
	uint64_t r = ((uint64_t)random() << 32) ^ ((uint64_t)random() << 16) ^ (uint64_t)random();

	return (int64_t)(r & INT64_MAX);
}

START_TEST(every_divisor_of_a_day)
{
	int n = 0;

	srandom(1);
	for (uint32_t s = 1; s <= DAY; s++) {
		struct varve_length len = {.unit = VARVE_UNIT_SECONDS, .seconds = s}, back;
		char text[16];

		(void)snprintf(text, sizeof(text), "%" PRIu32 "s", s);
		if (DAY % s != 0) {
			ck_assert_int_eq(varve_length_parse(text, &back, NULL), -EINVAL);
			continue;
		}
		varve_length_format(&len, text, sizeof(text));
		back = length(text);
		ck_assert_int_eq(back.unit, VARVE_UNIT_SECONDS);
		ck_assert_uint_eq(back.seconds, s);
		for (int i = 0; i < 500; i += T_ONE_IN(10))
			check_window(&len, random_instant());
		n++;
	}
	ck_assert_int_eq(n, 96);
}
END_TEST

START_TEST(random_weeks_and_months)
{
	srandom(2);
	for (int i = 0; i < 50000; i += T_ONE_IN(10)) {
		check_window(&week, random_instant());
		check_window(&month, random_instant());
	}
}
END_TEST

/* Every day up to the end against libc's calendar. */
START_TEST(against_libc)
{
	static const struct varve_length *const lens[] = {&day, &week, &month};

	for (int64_t d = 0; d * DAY < utc(2262, 3, 31, 0, 0, 0); d += T_ONE_IN(11)) {
		time_t t = d * DAY + DAY - 1;
		char want[3][VARVE_BUCKET_NAME_MAX];
		struct tm tm;

		ck_assert_ptr_nonnull(gmtime_r(&t, &tm));
		ck_assert_uint_gt(strftime(want[0], sizeof(want[0]), "%Y-%m-%d", &tm), 0);
		ck_assert_uint_gt(strftime(want[1], sizeof(want[1]), "%G-W%V", &tm), 0);
		ck_assert_uint_gt(strftime(want[2], sizeof(want[2]), "%Y-%m", &tm), 0);
		for (size_t i = 0; i < N(lens); i++) {
			struct varve_window w;
			int64_t start, end;

			ck_assert_int_eq(varve_window_at(lens[i], t * VARVE_NS_PER_S, &w), 0);
			ck_assert_str_eq(w.name, want[i]);
			ck_assert_int_eq(varve_name_parse(want[i], &start, &end), 0);
			ck_assert_int_eq(start, w.start_ns);
			ck_assert_int_eq(end, w.end_ns);
		}
	}
}
END_TEST

/* What parses is what some length writes: any name changed in one byte either fails or is the name
 * of another window in full. */
START_TEST(changed_names)
{
	static const char *const names[] = {
		"2026-11",        "2026-W49",         "2026-11-30",        "2024-02-29",
		"2026-11-30T14Z", "2026-11-30T1415Z", "2026-11-30T141530Z"};
	static const struct varve_length lens[] = {
		{VARVE_UNIT_MONTH, 0},      {VARVE_UNIT_WEEK, 0},     {VARVE_UNIT_SECONDS, 86400},
		{VARVE_UNIT_SECONDS, 3600}, {VARVE_UNIT_SECONDS, 60}, {VARVE_UNIT_SECONDS, 1}};

	for (size_t i = 0; i < N(names); i++) {
		for (size_t at = 0; at < strlen(names[i]); at++) {
			for (int c = 1; c < 256; c++) {
				char name[VARVE_BUCKET_NAME_MAX];
				struct varve_window w;
				int64_t start, end;
				bool written = false;

				(void)snprintf(name, sizeof(name), "%s", names[i]);
				name[at] = (char)c;
				if (varve_name_parse(name, &start, &end) < 0)
					continue;
				for (size_t l = 0; l < N(lens) && !written; l++)
					written = varve_window_at(&lens[l], end - 1, &w) == 0 &&
						  w.start_ns == start && strcmp(w.name, name) == 0;
				ck_assert_msg(written, "'%s'", name);
			}
		}
	}
}
END_TEST

T_MAIN("names", 60)
{
	tcase_add_loop_test(tc, window_of_instant, 0, (int)N(windows));
	tcase_add_loop_test(tc, length_text, 0, (int)N(lengths_good));
	tcase_add_loop_test(tc, length_refused, 0, (int)N(lengths_bad));
	tcase_add_loop_test(tc, name_refused, 0, (int)N(names_bad));
	tcase_add_loop_test(tc, name_tells_span, 0, (int)N(spans));
	tcase_add_test(tc, out_of_range);
	tcase_add_test(tc, every_divisor_of_a_day);
	tcase_add_test(tc, random_weeks_and_months);
	tcase_add_test(tc, against_libc);
	tcase_add_test(tc, changed_names);
}
