/* Civil dates (proleptic Gregorian) to days since 1970-01-01 and back. Pure; no libc, no locale. */
#pragma once

#include <stdint.h>

struct varve_date {
	int64_t year;
	int month; /* 1 to 12 */
	int day;   /* 1 to 31 */
};

/* Days from 1970-01-01 to the date. A month or day out of range gives some number, not a fault. */
int64_t varve_days_from_date(const struct varve_date *date);

/* The date that is this many days after 1970-01-01. */
struct varve_date varve_date_from_days(int64_t days);

/* a / b rounded down, b > 0. */
static inline int64_t varve_floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b < 0);
}
