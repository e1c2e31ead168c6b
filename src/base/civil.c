#include "base/civil.h"

/* Years are counted from 1 March, so that the leap day is a year's last, in eras of 400 years. */
#define DAYS_PER_ERA 146097
#define DAYS_TO_1970 719468 /* from 0000-03-01 */

int64_t varve_days_from_date(const struct varve_date *date)
{
	int64_t year = date->year - (date->month <= 2);
	int64_t era = varve_floor_div(year, 400);
	int64_t year_of_era = year - era * 400;
	int64_t month = date->month + (date->month > 2 ? -3 : 9);
	int64_t day_of_year = (153 * month + 2) / 5 + date->day - 1;

	return era * DAYS_PER_ERA + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 +
	       day_of_year - DAYS_TO_1970;
}

struct varve_date varve_date_from_days(int64_t days)
{
	int64_t era = varve_floor_div(days + DAYS_TO_1970, DAYS_PER_ERA);
	int64_t day = days + DAYS_TO_1970 - era * DAYS_PER_ERA;
	int64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
	int64_t month;

	day -= 365 * year + year / 4 - year / 100;
	month = (5 * day + 2) / 153;
	return (struct varve_date){
		.year = year + era * 400 + (month >= 10),
		.month = (int)(month + (month < 10 ? 3 : -9)),
		.day = (int)(day - (153 * month + 2) / 5 + 1),
	};
}
