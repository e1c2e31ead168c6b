#include "base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/civil.h"
#include "base/clock.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))
#define MS (VARVE_NS_PER_S / 1000)
#define MINUTE (60 * VARVE_NS_PER_S)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define SHARE_STEPS 100000 /* a share is kept in thousandths of a percent */

/* Reads the digits that text begins with; -EINVAL when there are none, -ERANGE above 64 bits. */
static int number_parse(const char *text, uint64_t *ret, const char **ret_rest)
{
	uint64_t n = 0;
	const char *p = text;

	for (; *p >= '0' && *p <= '9'; p++) {
		if (__builtin_mul_overflow(n, 10, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n))
			return -ERANGE;
	}
	if (p == text)
		return -EINVAL;
	*ret = n;
	*ret_rest = p;
	return 0;
}

static int bad(const char *text, int code, const char *what, const char *example,
	       struct varve_err *err)
{
	if (code == -ERANGE)
		return varve_err_set(err, code, "'%.64s' is too large for a %s; example: %s", text,
				     what, example);
	return varve_err_set(err, code, "'%.64s' is not a %s; example: %s", text, what, example);
}

static int duration_read(const char *text, int64_t *ret_ns)
{
	static const struct {
		const char *unit;
		int64_t ns;
	} units[] = {{"ms", MS}, {"s", VARVE_NS_PER_S}, {"m", MINUTE},    {"h", HOUR},
		     {"d", DAY}, {"w", 7 * DAY},        {"mo", 30 * DAY}, {"y", 365 * DAY}};
	const char *unit;
	uint64_t n;
	int r;

	if (strcmp(text, "0") == 0 || strcmp(text, "off") == 0) {
		*ret_ns = 0;
		return 0;
	}
	r = number_parse(text, &n, &unit);
	if (r < 0)
		return r;
	for (size_t i = 0; i < N(units); i++) {
		if (strcmp(unit, units[i].unit) != 0)
			continue;
		if (n > (uint64_t)(INT64_MAX / units[i].ns))
			return -ERANGE;
		*ret_ns = (int64_t)n * units[i].ns;
		return 0;
	}
	return -EINVAL;
}

int varve_duration_parse(const char *text, int64_t *ret_ns, struct varve_err *err)
{
	int r = duration_read(text, ret_ns);

	return r < 0 ? bad(text, r, "duration", "30d", err) : 0;
}

/* How far to shift for "K", "k", "KB", "KiB" and so on; -1 for anything else. */
static int size_shift(const char *unit)
{
	static const char letters[] = "KMGTP";
	const char *at;

	if (*unit == '\0' || strcasecmp(unit, "B") == 0)
		return 0;
	at = strchr(letters, *unit == 'k' ? 'K' : *unit);
	if (!at)
		return -1;
	unit++;
	if (*unit != '\0' && strcmp(unit, "B") != 0 && strcmp(unit, "iB") != 0)
		return -1;
	return 10 * (int)(at - letters + 1);
}

static int size_read(const char *text, uint64_t *ret_bytes)
{
	const char *unit;
	uint64_t n;
	int shift, r;

	if (strcmp(text, "off") == 0) {
		*ret_bytes = 0;
		return 0;
	}
	r = number_parse(text, &n, &unit);
	if (r < 0)
		return r;
	shift = size_shift(unit);
	if (shift < 0)
		return -EINVAL;
	if (n > UINT64_MAX >> shift)
		return -ERANGE;
	*ret_bytes = n << shift;
	return 0;
}

int varve_size_parse(const char *text, uint64_t *ret_bytes, struct varve_err *err)
{
	int r = size_read(text, ret_bytes);

	return r < 0 ? bad(text, r, "size", "200G", err) : 0;
}

/* "2.5%" in thousandths of a percent. Not strtod: it follows the locale and takes "inf". */
static int percent_read(const char *text, uint64_t *ret)
{
	const char *rest;
	uint64_t n, scale = SHARE_STEPS / 100;
	int r = number_parse(text, &n, &rest);

	if (r < 0)
		return r;
	if (n > 99)
		return -ERANGE;
	n *= scale;
	if (*rest == '.') {
		for (rest++; *rest >= '0' && *rest <= '9' && scale > 1; rest++) {
			scale /= 10;
			n += scale * (uint64_t)(*rest - '0');
		}
		if (rest[-1] == '.')
			return -EINVAL;
	}
	if (strcmp(rest, "%") != 0)
		return -EINVAL;
	if (n > 99 * (SHARE_STEPS / 100))
		return -ERANGE;
	*ret = n;
	return 0;
}

int varve_share_parse(const char *text, double *ret_fraction, uint64_t *ret_bytes,
		      struct varve_err *err)
{
	size_t len = strlen(text);
	bool percent = len > 0 && text[len - 1] == '%';
	uint64_t n;
	int r = percent ? percent_read(text, &n) : size_read(text, &n);

	if (r < 0)
		return bad(text, r, percent ? "share (0% to 99%)" : "share or size", "5%", err);
	*ret_fraction = percent ? (double)n / SHARE_STEPS : 0;
	*ret_bytes = percent ? 0 : n;
	return 0;
}

void varve_duration_text(int64_t ns, char *buf, size_t size)
{
	static const struct {
		const char *unit;
		int64_t ns;
	} units[] = {{"d", DAY}, {"h", HOUR}, {"m", MINUTE}, {"s", VARVE_NS_PER_S}, {"ms", MS}};
	size_t i = 0;

	if (ns == 0) {
		(void)snprintf(buf, size, "off");
		return;
	}
	while (i < N(units) - 1 && ns % units[i].ns != 0)
		i++;
	(void)snprintf(buf, size, "%" PRId64 "%s", ns / units[i].ns, units[i].unit);
}

void varve_size_text(uint64_t bytes, char *buf, size_t size)
{
	static const char *const units[] = {"", "K", "M", "G", "T", "P"};
	size_t i = 0;

	if (bytes == 0) {
		(void)snprintf(buf, size, "off");
		return;
	}
	for (; i < N(units) - 1 && bytes % 1024 == 0; i++)
		bytes /= 1024;
	(void)snprintf(buf, size, "%" PRIu64 "%s", bytes, units[i]);
}

void varve_share_text(double fraction, uint64_t bytes, char *buf, size_t size)
{
	unsigned steps = (unsigned)(fraction * SHARE_STEPS + 0.5);
	unsigned whole = steps / 1000, rest = steps % 1000;

	if (steps == 0)
		varve_size_text(bytes, buf, size);
	else if (rest == 0)
		(void)snprintf(buf, size, "%u%%", whole);
	else if (rest % 100 == 0)
		(void)snprintf(buf, size, "%u.%u%%", whole, rest / 100);
	else
		(void)snprintf(buf, size, "%u.%03u%%", whole, rest);
}

void varve_size_format(uint64_t bytes, char *buf, size_t size)
{
	static const char letters[] = "KMGTPE";
	size_t i = 0;
	uint64_t unit = 1024, tenths;

	if (bytes < unit) {
		(void)snprintf(buf, size, "%" PRIu64 " B", bytes);
		return;
	}
	for (; letters[i + 1] && bytes / unit >= 1024; i++)
		unit *= 1024;
	tenths = bytes / unit * 10 + (bytes % unit * 10 + unit / 2) / unit;
	if (tenths >= 10240 && letters[i + 1]) { /* rounded up to the next unit */
		tenths = 10;
		i++;
	}
	(void)snprintf(buf, size, "%" PRIu64 ".%" PRIu64 " %ciB", tenths / 10, tenths % 10,
		       letters[i]);
}

void varve_duration_format(int64_t ns, char *buf, size_t size)
{
	static const struct {
		int64_t whole, part;
		char whole_unit, part_unit;
	} pairs[] = {{DAY, HOUR, 'd', 'h'},
		     {HOUR, MINUTE, 'h', 'm'},
		     {MINUTE, VARVE_NS_PER_S, 'm', 's'}};
	const char *sign = ns < 0 ? "-" : "";
	uint64_t t = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;

	for (size_t i = 0; i < N(pairs); i++) {
		uint64_t whole = t / (uint64_t)pairs[i].whole;
		uint64_t part = t % (uint64_t)pairs[i].whole / (uint64_t)pairs[i].part;

		if (whole == 0)
			continue;
		if (part)
			(void)snprintf(buf, size, "%s%" PRIu64 "%c %" PRIu64 "%c", sign, whole,
				       pairs[i].whole_unit, part, pairs[i].part_unit);
		else
			(void)snprintf(buf, size, "%s%" PRIu64 "%c", sign, whole,
				       pairs[i].whole_unit);
		return;
	}
	if (t >= VARVE_NS_PER_S)
		(void)snprintf(buf, size, "%s%" PRIu64 ".%" PRIu64 " s", sign, t / VARVE_NS_PER_S,
			       t % VARVE_NS_PER_S / (VARVE_NS_PER_S / 10));
	else if (t >= MS)
		(void)snprintf(buf, size, "%s%" PRIu64 " ms", sign, t / MS);
	else if (t > 0)
		(void)snprintf(buf, size, "%s%" PRIu64 " us", sign, t / 1000);
	else
		(void)snprintf(buf, size, "0 s");
}

void varve_time_format(int64_t ns, char *buf, size_t size)
{
	int64_t s = varve_floor_div(ns, VARVE_NS_PER_S);
	int64_t days = varve_floor_div(s, 86400);
	int of_day = (int)(s - days * 86400);
	int64_t rest = ns % VARVE_NS_PER_S; /* of the same sign as ns */
	struct varve_date d = varve_date_from_days(days);

	(void)snprintf(buf, size, "%04" PRId64 "-%02d-%02dT%02d:%02d:%02d.%03dZ", d.year, d.month,
		       d.day, of_day / 3600, of_day / 60 % 60, of_day % 60,
		       (int)((rest < 0 ? rest + VARVE_NS_PER_S : rest) / MS));
}
