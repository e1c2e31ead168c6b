#include "format/names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/civil.h"
#include "base/clock.h"

#define MINUTE 60
#define HOUR 3600
#define DAY 86400

static int length_bad(const char *text, struct varve_err *err)
{
	return varve_err_set(
		err, -EINVAL,
		"'%.64s' is not a bucket length (1mo, 1w, or a time that divides a day); "
		"example: 1d",
		text);
}

static int unit_seconds(const char *unit)
{
	static const struct {
		const char *unit;
		int seconds;
	} units[] = {{"s", 1}, {"m", MINUTE}, {"h", HOUR}, {"d", DAY}};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(unit, units[i].unit) == 0)
			return units[i].seconds;
	}
	return 0;
}

int varve_length_parse(const char *text, struct varve_length *ret, struct varve_err *err)
{
	const char *p = text;
	uint64_t seconds = 0;

	if (strcmp(text, "1w") == 0 || strcmp(text, "1mo") == 0) {
		*ret = (struct varve_length){
			.unit = text[1] == 'w' ? VARVE_UNIT_WEEK : VARVE_UNIT_MONTH,
		};
		return 0;
	}
	for (; *p >= '0' && *p <= '9' && seconds <= DAY; p++)
		seconds = seconds * 10 + (uint64_t)(*p - '0');
	seconds *= (uint64_t)unit_seconds(p);
	if (seconds == 0 || DAY % seconds != 0)
		return length_bad(text, err);
	*ret = (struct varve_length){.unit = VARVE_UNIT_SECONDS, .seconds = (uint32_t)seconds};
	return 0;
}

void varve_length_format(const struct varve_length *len, char *buf, size_t size)
{
	uint32_t s = len->seconds;

	if (len->unit == VARVE_UNIT_WEEK)
		(void)snprintf(buf, size, "1w");
	else if (len->unit == VARVE_UNIT_MONTH)
		(void)snprintf(buf, size, "1mo");
	else if (s % DAY == 0)
		(void)snprintf(buf, size, "%" PRIu32 "d", s / DAY);
	else if (s % HOUR == 0)
		(void)snprintf(buf, size, "%" PRIu32 "h", s / HOUR);
	else if (s % MINUTE == 0)
		(void)snprintf(buf, size, "%" PRIu32 "m", s / MINUTE);
	else
		(void)snprintf(buf, size, "%" PRIu32 "s", s);
}

int64_t varve_length_min_ns(const struct varve_length *len)
{
	switch (len->unit) {
	case VARVE_UNIT_WEEK:
		return 7 * DAY * VARVE_NS_PER_S;
	case VARVE_UNIT_MONTH:
		return 28 * DAY * VARVE_NS_PER_S;
	case VARVE_UNIT_SECONDS:
		break;
	}
	return len->seconds * VARVE_NS_PER_S;
}

/* Days from the Monday at or before this day. */
static int64_t weekday(int64_t days)
{
	return days + 3 - varve_floor_div(days + 3, 7) * 7;
}

static void name_week(int64_t monday, char name[VARVE_BUCKET_NAME_MAX])
{
	/* A week belongs to the year that its Thursday is in. */
	int64_t thursday = monday + 3;
	int64_t year = varve_date_from_days(thursday).year;
	int64_t new_year = varve_days_from_date(&(struct varve_date){year, 1, 1});

	(void)snprintf(name, VARVE_BUCKET_NAME_MAX, "%04" PRId64 "-W%02" PRId64, year,
		       (thursday - new_year) / 7 + 1);
}

static void name_seconds(int64_t start, uint32_t length, char name[VARVE_BUCKET_NAME_MAX])
{
	struct varve_date d = varve_date_from_days(start / DAY);
	int s = (int)(start % DAY);
	char date[VARVE_BUCKET_NAME_MAX - 8];

	(void)snprintf(date, sizeof(date), "%04" PRId64 "-%02d-%02d", d.year, d.month, d.day);
	if (length % DAY == 0)
		(void)snprintf(name, VARVE_BUCKET_NAME_MAX, "%s", date);
	else if (length % HOUR == 0)
		(void)snprintf(name, VARVE_BUCKET_NAME_MAX, "%.10sT%02dZ", date, s / HOUR);
	else if (length % MINUTE == 0)
		(void)snprintf(name, VARVE_BUCKET_NAME_MAX, "%.10sT%02d%02dZ", date, s / HOUR,
			       s / MINUTE % 60);
	else
		(void)snprintf(name, VARVE_BUCKET_NAME_MAX, "%.10sT%02d%02d%02dZ", date, s / HOUR,
			       s / MINUTE % 60, s % 60);
}

static void month_bounds(int64_t days, int64_t *ret_start, int64_t *ret_end,
			 char name[VARVE_BUCKET_NAME_MAX])
{
	struct varve_date d = varve_date_from_days(days);

	(void)snprintf(name, VARVE_BUCKET_NAME_MAX, "%04" PRId64 "-%02d", d.year, d.month);
	d.day = 1;
	*ret_start = varve_days_from_date(&d) * DAY;
	d.year += d.month == 12;
	d.month = d.month % 12 + 1;
	*ret_end = varve_days_from_date(&d) * DAY;
}

int varve_window_at(const struct varve_length *len, int64_t now_ns, struct varve_window *ret)
{
	int64_t now = now_ns / VARVE_NS_PER_S;
	struct varve_window w = {0};
	int64_t start, end;

	if (now_ns < 0)
		return -ERANGE;
	switch (len->unit) {
	case VARVE_UNIT_WEEK:
		start = (now / DAY - weekday(now / DAY)) * DAY;
		end = start + 7 * DAY;
		name_week(start / DAY, w.name);
		break;
	case VARVE_UNIT_MONTH:
		month_bounds(now / DAY, &start, &end, w.name);
		break;
	case VARVE_UNIT_SECONDS:
		if (len->seconds == 0 || DAY % len->seconds != 0)
			return -EINVAL;
		start = now - now % len->seconds;
		end = start + len->seconds;
		name_seconds(start, len->seconds, w.name);
		break;
	default:
		return -EINVAL;
	}
	if (end > INT64_MAX / VARVE_NS_PER_S)
		return -ERANGE;
	w.start_ns = start * VARVE_NS_PER_S;
	w.end_ns = end * VARVE_NS_PER_S;
	*ret = w;
	return 0;
}

/* The numbers in a name, as its form has them. */
struct fields {
	struct varve_date date;
	int week, hour, minute, second;
};

static int *field_of(struct fields *f, char letter, int *year)
{
	switch (letter) {
	case 'Y':
		return year;
	case 'M':
		return &f->date.month;
	case 'D':
		return &f->date.day;
	case 'w':
		return &f->week;
	case 'h':
		return &f->hour;
	case 'm':
		return &f->minute;
	case 's':
		return &f->second;
	default:
		return NULL;
	}
}

static bool form_match(const char *form, const char *name, struct fields *ret)
{
	struct fields f = {.date = {.month = 1, .day = 1}};
	int year = 0;
	char last = '\0';

	for (; *form; form++, name++) {
		int *field = field_of(&f, *form, &year);

		if (!field && *name != *form)
			return false;
		if (field && (*name < '0' || *name > '9'))
			return false;
		if (field)
			*field = (*form == last ? *field * 10 : 0) + (*name - '0');
		last = *form;
	}
	f.date.year = year;
	*ret = f;
	return *name == '\0';
}

/* An instant in the window that the fields name, in s. */
static int64_t fields_instant(const struct fields *f, enum varve_unit unit)
{
	int64_t days = varve_days_from_date(&f->date);

	if (unit == VARVE_UNIT_WEEK) {
		days += 3; /* 4 January is in week 1; its Thursday is in the year that the name has
			    */
		days += 3 - weekday(days) + (f->week - 1) * INT64_C(7);
	}
	return days * DAY + f->hour * HOUR + f->minute * MINUTE + f->second;
}

int varve_name_parse(const char *name, int64_t *ret_start_ns, int64_t *ret_min_end_ns)
{
	static const struct {
		const char *form;
		struct varve_length shortest;
	} forms[] = {
		{"YYYY-MM", {VARVE_UNIT_MONTH, 0}},
		{"YYYY-Www", {VARVE_UNIT_WEEK, 0}},
		{"YYYY-MM-DD", {VARVE_UNIT_SECONDS, DAY}},
		{"YYYY-MM-DDThhZ", {VARVE_UNIT_SECONDS, HOUR}},
		{"YYYY-MM-DDThhmmZ", {VARVE_UNIT_SECONDS, MINUTE}},
		{"YYYY-MM-DDThhmmssZ", {VARVE_UNIT_SECONDS, 1}},
	};

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		struct fields f;
		struct varve_window w;
		int64_t s;

		if (!form_match(forms[i].form, name, &f))
			continue;
		s = fields_instant(&f, forms[i].shortest.unit);
		/* A day 31 of April, an hour 24 or a week 53 of a year with 52 gives another name.
		 */
		if (s < 0 || s > INT64_MAX / VARVE_NS_PER_S ||
		    varve_window_at(&forms[i].shortest, s * VARVE_NS_PER_S, &w) < 0 ||
		    strcmp(w.name, name) != 0)
			return -EINVAL;
		*ret_start_ns = w.start_ns;
		*ret_min_end_ns = w.end_ns;
		return 0;
	}
	return -EINVAL;
}
