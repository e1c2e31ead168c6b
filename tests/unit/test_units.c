#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../lib/unit.h"
#include "base/civil.h"
#include "base/clock.h"
#include "base/units.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))
#define S VARVE_NS_PER_S
#define D (86400 * S)

static const struct {
	const char *text;
	int64_t ns;
	const char *again; /* as varve_duration_text writes it */
} durations[] = {
	{"0", 0, "off"},
	{"off", 0, "off"},
	{"0s", 0, "off"},
	{"1ms", S / 1000, "1ms"},
	{"500ms", S / 2, "500ms"},
	{"1000ms", S, "1s"},
	{"10s", 10 * S, "10s"},
	{"90s", 90 * S, "90s"},
	{"15m", 900 * S, "15m"},
	{"90m", 5400 * S, "90m"},
	{"6h", 6 * 3600 * S, "6h"},
	{"36h", 36 * 3600 * S, "36h"},
	{"1d", D, "1d"},
	{"30d", 30 * D, "30d"},
	{"007d", 7 * D, "7d"},
	{"2w", 14 * D, "14d"},
	{"1mo", 30 * D, "30d"},
	{"1y", 365 * D, "365d"},
	{"292y", 292 * 365 * D, "106580d"},
	{"9223372036854ms", INT64_C(9223372036854) * 1000000, "9223372036854ms"},
};

START_TEST(duration_good)
{
	struct varve_err err = {0};
	char buf[32];
	int64_t ns = -1, again = -1;

	ck_assert_int_eq(varve_duration_parse(durations[_i].text, &ns, &err), 0);
	ck_assert_int_eq(ns, durations[_i].ns);
	ck_assert_str_eq(err.msg, "");
	varve_duration_text(ns, buf, sizeof(buf));
	ck_assert_str_eq(buf, durations[_i].again);
	ck_assert_int_eq(varve_duration_parse(buf, &again, NULL), 0);
	ck_assert_int_eq(again, ns);
}
END_TEST

static const struct {
	const char *text;
	int code;
} durations_bad[] = {
	{"", -EINVAL},
	{"30", -EINVAL},
	{"1", -EINVAL},
	{"d", -EINVAL},
	{"-1d", -EINVAL},
	{"+1d", -EINVAL},
	{" 1d", -EINVAL},
	{"1d ", -EINVAL},
	{"1 d", -EINVAL},
	{"1.5h", -EINVAL},
	{"1h30m", -EINVAL},
	{"30 parsecs", -EINVAL},
	{"1D", -EINVAL},
	{"1M", -EINVAL},
	{"1MS", -EINVAL},
	{"1us", -EINVAL},
	{"0x1d", -EINVAL},
	{"infd", -EINVAL},
	{"OFF", -EINVAL},
	{"no", -EINVAL},
	{"1days", -EINVAL},
	{"293y", -ERANGE},
	{"106752d", -ERANGE},
	{"9223372036855ms", -ERANGE},
	{"18446744073709551616s", -ERANGE},
	{"99999999999999999999999999d", -ERANGE},
	{"18446744073709551615s", -ERANGE},
};

START_TEST(duration_bad)
{
	struct varve_err err = {0};
	int64_t ns = 77;

	ck_assert_int_eq(varve_duration_parse(durations_bad[_i].text, &ns, &err),
			 durations_bad[_i].code);
	ck_assert_int_eq(ns, 77);
	ck_assert_ptr_nonnull(strstr(err.msg, durations_bad[_i].text));
	ck_assert_ptr_nonnull(strstr(err.msg, "duration; example: 30d"));
}
END_TEST

static const struct {
	const char *text;
	uint64_t bytes;
	const char *again;
} sizes[] = {
	{"0", 0, "off"},
	{"off", 0, "off"},
	{"1", 1, "1"},
	{"4096", 4096, "4K"},
	{"4097B", 4097, "4097"},
	{"64K", 65536, "64K"},
	{"64k", 65536, "64K"},
	{"64KB", 65536, "64K"},
	{"64KiB", 65536, "64K"},
	{"64kiB", 65536, "64K"},
	{"10M", UINT64_C(10) << 20, "10M"},
	{"1536M", UINT64_C(1536) << 20, "1536M"},
	{"1024M", UINT64_C(1) << 30, "1G"},
	{"200G", UINT64_C(200) << 30, "200G"},
	{"200GB", UINT64_C(200) << 30, "200G"},
	{"2T", UINT64_C(2) << 40, "2T"},
	{"2TiB", UINT64_C(2) << 40, "2T"},
	{"1024P", UINT64_C(1) << 60, "1024P"},
	{"16383P", UINT64_C(16383) << 50, "16383P"},
	{"18446744073709551615", UINT64_MAX, "18446744073709551615"},
};

START_TEST(size_good)
{
	struct varve_err err = {0};
	char buf[32];
	uint64_t bytes = 77, again = 77;

	ck_assert_int_eq(varve_size_parse(sizes[_i].text, &bytes, &err), 0);
	ck_assert_uint_eq(bytes, sizes[_i].bytes);
	ck_assert_str_eq(err.msg, "");
	varve_size_text(bytes, buf, sizeof(buf));
	ck_assert_str_eq(buf, sizes[_i].again);
	ck_assert_int_eq(varve_size_parse(buf, &again, NULL), 0);
	ck_assert_uint_eq(again, bytes);
}
END_TEST

static const struct {
	const char *text;
	int code;
} sizes_bad[] = {
	{"", -EINVAL},
	{"G", -EINVAL},
	{"-1", -EINVAL},
	{"+1", -EINVAL},
	{" 1", -EINVAL},
	{"1 ", -EINVAL},
	{"1 G", -EINVAL},
	{"1.5G", -EINVAL},
	{"1g", -EINVAL},
	{"1KIB", -EINVAL},
	{"1Ki", -EINVAL},
	{"1Kb", -EINVAL},
	{"1GG", -EINVAL},
	{"1X", -EINVAL},
	{"0x10", -EINVAL},
	{"5%", -EINVAL},
	{"1iB", -EINVAL},
	{"much", -EINVAL},
	{"16384P", -ERANGE},
	{"17179869184G", -ERANGE},
	{"18446744073709551616", -ERANGE},
	{"99999999999999999999999T", -ERANGE},
};

START_TEST(size_bad)
{
	struct varve_err err = {0};
	uint64_t bytes = 77;

	ck_assert_int_eq(varve_size_parse(sizes_bad[_i].text, &bytes, &err), sizes_bad[_i].code);
	ck_assert_uint_eq(bytes, 77);
	ck_assert_ptr_nonnull(strstr(err.msg, sizes_bad[_i].text));
	ck_assert_ptr_nonnull(strstr(err.msg, "size; example: 200G"));
}
END_TEST

static const struct {
	const char *text;
	double fraction;
	uint64_t bytes;
	const char *again;
} shares[] = {
	{"0", 0, 0, "off"},
	{"off", 0, 0, "off"},
	{"0%", 0, 0, "off"},
	{"5%", 0.05, 0, "5%"},
	{"99%", 0.99, 0, "99%"},
	{"2.5%", 0.025, 0, "2.5%"},
	{"0.001%", 0.00001, 0, "0.001%"},
	{"10G", 0, UINT64_C(10) << 30, "10G"},
	{"512", 0, 512, "512"},
};

START_TEST(share_good)
{
	struct varve_err err = {0};
	char buf[32];
	double fraction = 7, fraction_again = 7;
	uint64_t bytes = 77, bytes_again = 77;

	ck_assert_int_eq(varve_share_parse(shares[_i].text, &fraction, &bytes, &err), 0);
	ck_assert_double_eq_tol(fraction, shares[_i].fraction, 1e-12);
	ck_assert_uint_eq(bytes, shares[_i].bytes);
	varve_share_text(fraction, bytes, buf, sizeof(buf));
	ck_assert_str_eq(buf, shares[_i].again);
	ck_assert_int_eq(varve_share_parse(buf, &fraction_again, &bytes_again, NULL), 0);
	ck_assert(fraction_again == fraction);
	ck_assert_uint_eq(bytes_again, bytes);
}
END_TEST

/* Every share that can be written comes back the same. */
START_TEST(share_all)
{
	for (int i = 0; i <= 99000; i++) {
		char text[32], buf[32];
		double fraction, again;
		uint64_t bytes;

		(void)snprintf(text, sizeof(text), "%d.%03d%%", i / 1000, i % 1000);
		ck_assert_int_eq(varve_share_parse(text, &fraction, &bytes, NULL), 0);
		varve_share_text(fraction, bytes, buf, sizeof(buf));
		ck_assert_int_eq(varve_share_parse(buf, &again, &bytes, NULL), 0);
		ck_assert(again == fraction);
	}
}
END_TEST

static const struct {
	const char *text;
	int code;
} shares_bad[] = {
	{"", -EINVAL},
	{"%", -EINVAL},
	{"-5%", -EINVAL},
	{"100%", -ERANGE},
	{"99.001%", -ERANGE},
	{"5 %", -EINVAL},
	{"5%%", -EINVAL},
	{".5%", -EINVAL},
	{"5.%", -EINVAL},
	{"2.5555%", -EINVAL},
	{"1e1%", -EINVAL},
	{"nan%", -EINVAL},
	{"5,5%", -EINVAL},
	{"0.05", -EINVAL},
	{"half", -EINVAL},
	{"5%x", -EINVAL},
	{"99999999999999999999%", -ERANGE},
};

START_TEST(share_bad)
{
	struct varve_err err = {0};
	double fraction = 7;
	uint64_t bytes = 77;

	ck_assert_int_eq(varve_share_parse(shares_bad[_i].text, &fraction, &bytes, &err),
			 shares_bad[_i].code);
	ck_assert(fraction == 7);
	ck_assert_uint_eq(bytes, 77);
	ck_assert_ptr_nonnull(strstr(err.msg, "example: 5%"));
}
END_TEST

static const struct {
	uint64_t bytes;
	const char *text;
} size_texts[] = {
	{0, "0 B"},
	{312, "312 B"},
	{1023, "1023 B"},
	{1024, "1.0 KiB"},
	{1536, "1.5 KiB"},
	{1048524, "1023.9 KiB"},
	{1048525, "1.0 MiB"},
	{UINT64_C(1503238554), "1.4 GiB"},
	{UINT64_C(1) << 40, "1.0 TiB"},
	{UINT64_C(1) << 50, "1.0 PiB"},
	{(UINT64_C(1) << 60) - 1, "1.0 EiB"},
	{UINT64_C(1) << 60, "1.0 EiB"},
	{UINT64_MAX, "16.0 EiB"},
};

START_TEST(size_for_people)
{
	char buf[32];

	varve_size_format(size_texts[_i].bytes, buf, sizeof(buf));
	ck_assert_str_eq(buf, size_texts[_i].text);
}
END_TEST

static const struct {
	int64_t ns;
	const char *text;
} duration_texts[] = {
	{0, "0 s"},
	{350 * 1000, "350 us"},
	{12 * S / 1000, "12 ms"},
	{S - 1, "999 ms"},
	{S, "1.0 s"},
	{S + S / 2, "1.5 s"},
	{60 * S - 1, "59.9 s"},
	{60 * S, "1m"},
	{310 * S, "5m 10s"},
	{3600 * S, "1h"},
	{3660 * S, "1h 1m"},
	{D - 1, "23h 59m"},
	{D, "1d"},
	{2 * D + 3 * 3600 * S, "2d 3h"},
	{400 * D, "400d"},
	{-(S + S / 2), "-1.5 s"},
	{-D, "-1d"},
	{INT64_MAX, "106751d 23h"},
	{INT64_MIN, "-106751d 23h"},
};

START_TEST(duration_for_people)
{
	char buf[32];

	varve_duration_format(duration_texts[_i].ns, buf, sizeof(buf));
	ck_assert_str_eq(buf, duration_texts[_i].text);
}
END_TEST

static const struct {
	int64_t ns;
	const char *text;
} times[] = {
	{0, "1970-01-01T00:00:00.000Z"},
	{3600 * S, "1970-01-01T01:00:00.000Z"},
	{-1, "1969-12-31T23:59:59.999Z"},
	{INT64_C(1796090584567999999), "2026-12-01T02:03:04.567Z"},
	{INT64_C(951782400) * S, "2000-02-29T00:00:00.000Z"},
	{INT64_C(2147483648) * S, "2038-01-19T03:14:08.000Z"},
	{INT64_MAX, "2262-04-11T23:47:16.854Z"},
	{INT64_MIN, "1677-09-21T00:12:43.145Z"},
};

START_TEST(instants)
{
	char buf[25];

	varve_time_format(times[_i].ns, buf, sizeof(buf));
	ck_assert_str_eq(buf, times[_i].text);
}
END_TEST

START_TEST(short_buffers)
{
	char buf[8];

	varve_time_format(0, buf, sizeof(buf));
	ck_assert_str_eq(buf, "1970-01");
	varve_duration_format(INT64_MAX, buf, sizeof(buf));
	ck_assert_str_eq(buf, "106751d");
	varve_size_format(1048524, buf, sizeof(buf));
	ck_assert_str_eq(buf, "1023.9 ");
}
END_TEST

/* Day by day over several eras, before and after 1970: each date is the one after the last. */
START_TEST(civil_dates)
{
	static const int month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	struct varve_date d = {-401, 1, 1};
	int64_t days = varve_days_from_date(&d);

	for (; d.year < 10000; days++) {
		struct varve_date got = varve_date_from_days(days);
		int leap = d.year % 4 == 0 && (d.year % 100 != 0 || d.year % 400 == 0);
		int last = month_days[d.month - 1] + (d.month == 2 && leap);

		if (got.year != d.year || got.month != d.month || got.day != d.day ||
		    varve_days_from_date(&got) != days)
			ck_abort_msg("day %" PRId64 " is not %" PRId64 "-%d-%d", days, d.year,
				     d.month, d.day);
		if (++d.day > last) {
			d.day = 1;
			d.month++;
		}
		if (d.month > 12) {
			d.month = 1;
			d.year++;
		}
	}
	ck_assert_int_eq(varve_days_from_date(&(struct varve_date){1970, 1, 1}), 0);
	ck_assert_int_eq(varve_days_from_date(&(struct varve_date){10000, 1, 1}), days);
}
END_TEST

START_TEST(floor_div)
{
	ck_assert_int_eq(varve_floor_div(7, 7), 1);
	ck_assert_int_eq(varve_floor_div(6, 7), 0);
	ck_assert_int_eq(varve_floor_div(0, 7), 0);
	ck_assert_int_eq(varve_floor_div(-1, 7), -1);
	ck_assert_int_eq(varve_floor_div(-7, 7), -1);
	ck_assert_int_eq(varve_floor_div(-8, 7), -2);
	ck_assert_int_eq(varve_floor_div(INT64_MIN, 1), INT64_MIN);
}
END_TEST

T_MAIN("units", 60)
{
	tcase_add_loop_test(tc, duration_good, 0, (int)N(durations));
	tcase_add_loop_test(tc, duration_bad, 0, (int)N(durations_bad));
	tcase_add_loop_test(tc, size_good, 0, (int)N(sizes));
	tcase_add_loop_test(tc, size_bad, 0, (int)N(sizes_bad));
	tcase_add_loop_test(tc, share_good, 0, (int)N(shares));
	tcase_add_test(tc, share_all);
	tcase_add_loop_test(tc, share_bad, 0, (int)N(shares_bad));
	tcase_add_loop_test(tc, size_for_people, 0, (int)N(size_texts));
	tcase_add_loop_test(tc, duration_for_people, 0, (int)N(duration_texts));
	tcase_add_loop_test(tc, instants, 0, (int)N(times));
	tcase_add_test(tc, short_buffers);
	tcase_add_test(tc, civil_dates);
	tcase_add_test(tc, floor_div);
}
