#include "store/policy.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/units.h"

#define MIN_FREE_LEAST (UINT64_C(1) << 20)
#define CACHE_MIN (UINT64_C(16) << 20)
#define SEAL_THREADS_MAX 1024
#define MODE_MAX 01777 /* no setuid, no setgid */
#define TEXT_MAX 64    /* a value as text */

/* -- One kind of value each: how it is read and written -- */

struct option;

/* Reads the value into *p. Returns 0 or a negative errno, and in *ret_why what is wrong with it
 * ("is not a duration"). */
typedef int (*parse_fn)(const struct option *o, const char *value, struct varve_policy *p,
			const char **ret_why);
/* Writes the value so that parse_fn reads it again; "" for what can't be written. */
typedef void (*text_fn)(const struct option *o, const struct varve_policy *p, char *buf,
			size_t size);

struct option {
	parse_fn parse;
	text_fn text;
	size_t offset;  /* of the field in struct varve_policy */
	uint64_t most;  /* for numbers */
	bool alone;     /* may come without a value */
	bool per_class; /* may stand under [class default] */
};

#define FIELD(p, o, type) ((type *)(void *)((char *)(p) + (o)->offset))
#define CONST_FIELD(p, o, type) ((const type *)(const void *)((const char *)(p) + (o)->offset))

static int length_parse(const struct option *o, const char *value, struct varve_policy *p,
			const char **ret_why)
{
	*ret_why = "is not a bucket length (1mo, 1w, or a time that divides a day)";
	return varve_length_parse(value, FIELD(p, o, struct varve_length), NULL);
}

static void length_text(const struct option *o, const struct varve_policy *p, char *buf,
			size_t size)
{
	varve_length_format(CONST_FIELD(p, o, struct varve_length), buf, size);
}

static int duration_parse(const struct option *o, const char *value, struct varve_policy *p,
			  const char **ret_why)
{
	int r = varve_duration_parse(value, FIELD(p, o, int64_t), NULL);

	*ret_why = r == -ERANGE ? "is too long" : "is not a duration";
	return r;
}

static void duration_text(const struct option *o, const struct varve_policy *p, char *buf,
			  size_t size)
{
	varve_duration_text(*CONST_FIELD(p, o, int64_t), buf, size);
}

static int grace_parse(const struct option *o, const char *value, struct varve_policy *p,
		       const char **ret_why)
{
	if (strcmp(value, "auto") != 0)
		return duration_parse(o, value, p, ret_why);
	p->grace_ns = VARVE_GRACE_AUTO;
	return 0;
}

static void grace_text(const struct option *o, const struct varve_policy *p, char *buf, size_t size)
{
	if (p->grace_ns == VARVE_GRACE_AUTO)
		(void)snprintf(buf, size, "auto");
	else
		duration_text(o, p, buf, size);
}

static int size_parse(const struct option *o, const char *value, struct varve_policy *p,
		      const char **ret_why)
{
	int r = varve_size_parse(value, FIELD(p, o, uint64_t), NULL);

	*ret_why = r == -ERANGE ? "is too large" : "is not a size";
	return r;
}

static void size_text(const struct option *o, const struct varve_policy *p, char *buf, size_t size)
{
	varve_size_text(*CONST_FIELD(p, o, uint64_t), buf, size);
}

static int cache_parse(const struct option *o, const char *value, struct varve_policy *p,
		       const char **ret_why)
{
	int r = size_parse(o, value, p, ret_why);

	if (r < 0 || p->cache_bytes >= CACHE_MIN)
		return r;
	*ret_why = "is too small (at least 16M)";
	return -ERANGE;
}

static int share_parse(const struct option *o, const char *value, struct varve_policy *p,
		       const char **ret_why)
{
	int r = varve_share_parse(value, &p->min_free_fraction, &p->min_free_bytes, NULL);

	(void)o;
	*ret_why = r == -ERANGE ? "is too large (at most 99%)" : "is not a share or a size";
	/* A forgotten % must not turn the guard against a full disk off. */
	if (r == 0 && p->min_free_bytes && p->min_free_bytes < MIN_FREE_LEAST) {
		*ret_why = "is less than 1M, too little to be of use (a share has a %)";
		return -ERANGE;
	}
	return r;
}

static void share_text(const struct option *o, const struct varve_policy *p, char *buf, size_t size)
{
	(void)o;
	varve_share_text(p->min_free_fraction, p->min_free_bytes, buf, size);
}

/* Digits of the base only; -ERANGE above most. */
static int number_parse(const char *text, unsigned base, uint64_t most, uint64_t *ret)
{
	uint64_t n = 0;

	if (*text == '\0')
		return -EINVAL;
	for (; *text; text++) {
		if (*text < '0' || *text >= (char)('0' + base))
			return -EINVAL;
		if (n <= most) /* what is beyond stays beyond, and never overflows */
			n = n * base + (uint64_t)(*text - '0');
	}
	if (n > most)
		return -ERANGE;
	*ret = n;
	return 0;
}

static int count_parse(const struct option *o, const char *value, struct varve_policy *p,
		       const char **ret_why)
{
	uint64_t n = 0;
	int r = 0;

	if (strcmp(value, "off") != 0)
		r = number_parse(value, 10, o->most, &n);
	*ret_why = r == -ERANGE ? "is too large" : "is not a number";
	if (r == 0)
		*FIELD(p, o, uint32_t) = (uint32_t)n;
	return r;
}

static void count_text(const struct option *o, const struct varve_policy *p, char *buf, size_t size)
{
	uint32_t n = *CONST_FIELD(p, o, uint32_t);

	if (n == 0)
		(void)snprintf(buf, size, "off");
	else
		(void)snprintf(buf, size, "%" PRIu32, n);
}

static int threads_parse(const struct option *o, const char *value, struct varve_policy *p,
			 const char **ret_why)
{
	return count_parse(o, strcmp(value, "auto") == 0 ? "off" : value, p, ret_why);
}

static void threads_text(const struct option *o, const struct varve_policy *p, char *buf,
			 size_t size)
{
	if (p->seal_threads == 0)
		(void)snprintf(buf, size, "auto");
	else
		count_text(o, p, buf, size);
}

static int level_parse(const struct option *o, const char *value, struct varve_policy *p,
		       const char **ret_why)
{
	uint64_t n;

	*ret_why = "is not a level from 1 to 19";
	if (number_parse(value, 10, o->most, &n) < 0 || n == 0)
		return -EINVAL;
	p->seal_level = (int)n;
	return 0;
}

static void level_text(const struct option *o, const struct varve_policy *p, char *buf, size_t size)
{
	(void)o;
	(void)snprintf(buf, size, "%d", p->seal_level);
}

static int bool_parse(const struct option *o, const char *value, struct varve_policy *p,
		      const char **ret_why)
{
	bool yes = strcmp(value, "yes") == 0 || strcmp(value, "on") == 0;

	*ret_why = "is neither yes nor no";
	if (!yes && strcmp(value, "no") != 0 && strcmp(value, "off") != 0)
		return -EINVAL;
	*FIELD(p, o, bool) = yes;
	return 0;
}

static void bool_text(const struct option *o, const struct varve_policy *p, char *buf, size_t size)
{
	(void)snprintf(buf, size, "%s", *CONST_FIELD(p, o, bool) ? "yes" : "no");
}

static int rmdir_parse(const struct option *o, const char *value, struct varve_policy *p,
		       const char **ret_why)
{
	bool posix = strcmp(value, "posix") == 0;

	(void)o;
	*ret_why = "is neither drop nor posix";
	if (!posix && strcmp(value, "drop") != 0)
		return -EINVAL;
	p->rmdir_posix = posix;
	return 0;
}

static void rmdir_text(const struct option *o, const struct varve_policy *p, char *buf, size_t size)
{
	(void)o;
	(void)snprintf(buf, size, "%s", p->rmdir_posix ? "posix" : "drop");
}

static int cut_parse(const struct option *o, const char *value, struct varve_policy *p,
		     const char **ret_why)
{
	bool byte = strcmp(value, "byte") == 0;

	(void)o;
	*ret_why = "is neither line nor byte";
	if (!byte && strcmp(value, "line") != 0)
		return -EINVAL;
	p->cut_byte = byte;
	return 0;
}

static void cut_text(const struct option *o, const struct varve_policy *p, char *buf, size_t size)
{
	(void)o;
	(void)snprintf(buf, size, "%s", p->cut_byte ? "byte" : "line");
}

/* The user's or the group's number; -ENOENT when there is no such name. */
static int name_to_id(const char *name, bool group, uint32_t *ret)
{
	for (size_t size = 1024; size <= 1024 * 1024; size *= 4) {
		cleanup_free char *buf = malloc(size);
		struct passwd pw, *user = NULL;
		struct group gr, *grp = NULL;
		int r;

		if (!buf)
			return -ENOMEM;
		r = group ? getgrnam_r(name, &gr, buf, size, &grp)
			  : getpwnam_r(name, &pw, buf, size, &user);
		if (r == ERANGE)
			continue;
		if (!user && !grp)
			return -ENOENT;
		*ret = group ? grp->gr_gid : user->pw_uid;
		return 0;
	}
	return -ENOENT;
}

static int id_parse(const char *value, bool group, uint32_t *ret)
{
	uint64_t n;
	int r = number_parse(value, 10, UINT32_MAX - 1, &n);

	if (r == 0)
		*ret = (uint32_t)n;
	return r == -EINVAL ? name_to_id(value, group, ret) : r;
}

static int uid_parse(const struct option *o, const char *value, struct varve_policy *p,
		     const char **ret_why)
{
	(void)o;
	*ret_why = "is not a user of this system";
	return id_parse(value, false, &p->uid);
}

static int gid_parse(const struct option *o, const char *value, struct varve_policy *p,
		     const char **ret_why)
{
	(void)o;
	*ret_why = "is not a group of this system";
	return id_parse(value, true, &p->gid);
}

static void id_text(const struct option *o, const struct varve_policy *p, char *buf, size_t size)
{
	uint32_t id = *CONST_FIELD(p, o, uint32_t);

	buf[0] = '\0';
	if (id != UINT32_MAX)
		(void)snprintf(buf, size, "%" PRIu32, id);
}

static int mode_parse(const struct option *o, const char *value, struct varve_policy *p,
		      const char **ret_why)
{
	uint64_t n;
	int r = number_parse(value, 8, o->most, &n);

	*ret_why = "is not a mode (octal, at most 1777)";
	if (r == 0)
		p->mode = (mode_t)n;
	return r;
}

static void mode_text(const struct option *o, const struct varve_policy *p, char *buf, size_t size)
{
	(void)o;
	buf[0] = '\0';
	if (p->mode != (mode_t)-1)
		(void)snprintf(buf, size, "%04o", (unsigned)p->mode);
}

/* -- The options -- */

enum option_id {
	BUCKET,
	GRACE,
	KEEP,
	KEEP_MIN,
	MAX_SIZE,
	MAX_BUCKETS,
	MIN_FREE,
	UNDROP,
	CLOCK_TRUST,
	SEAL_LEVEL,
	SEAL_THREADS,
	CACHE,
	WORM,
	RMDIR,
	UID,
	GID,
	MODE,
	PASSTHROUGH,
	CUT,
	N_OPTIONS,
};

static const struct varve_option_help helps[N_OPTIONS + 1] = {
	[BUCKET] = {"bucket", "LENGTH",
		    "what one bucket covers: 1mo, 1w, or a time that divides a day, from 1s", "1d"},
	[GRACE] = {"grace", "TIME",
		   "how long a bucket takes late data after its end (auto: a tenth, up to 1m)",
		   "30s"},
	[KEEP] = {"keep", "TIME", "drop buckets whose end is longer ago than this", "30d"},
	[KEEP_MIN] = {"keep-min", "TIME", "never drop by policy what ended less than this ago",
		      "7d"},
	[MAX_SIZE] = {"max-size", "SIZE", "drop the oldest buckets above this much disk space",
		      "200G"},
	[MAX_BUCKETS] = {"max-buckets", "N",
			 "drop the oldest buckets above this many, the open one included", "400"},
	[MIN_FREE] = {"min-free", "SHARE",
		      "drop the oldest buckets while less than this is free on the volume", "5%"},
	[UNDROP] = {"undrop", "TIME", "how long a bucket dropped by hand can be taken back", "10m"},
	[CLOCK_TRUST] = {"clock-trust", "TIME",
			 "believe a clock that jumped ahead once it stayed there this long", "1h"},
	[SEAL_LEVEL] = {"seal-level", "N", "how hard sealing compresses, from 1 to 19", "9"},
	[SEAL_THREADS] = {"seal-threads", "N", "compressors at a time (auto: one per core)", "2"},
	[CACHE] = {"cache", "SIZE", "memory for what is read from sealed buckets, at least 16M",
		   "64M"},
	[WORM] = {"worm", NULL, "no truncation, unlinking or overwriting in current/", "yes"},
	[RMDIR] = {"rmdir", "drop|posix",
		   "drop: rmdir of a bucket drops it whole; posix: only an empty one", "drop"},
	[UID] = {"uid", "USER", "who owns current/ and .staging/", "root"},
	[GID] = {"gid", "GROUP", "the group of current/ and .staging/", "root"},
	[MODE] = {"mode", "MODE", "the permissions of current/ and .staging/, octal", "0755"},
	[PASSTHROUGH] = {"passthrough", "yes|no", "let the kernel write to files where it can",
			 "no"},
	[CUT] = {"cut", "line|byte",
		 "where a boundary cuts what is written across it: at a line's end, or at once", "byte"},
	[N_OPTIONS] = {NULL, NULL, NULL, NULL},
};

#define AT(field) .offset = offsetof(struct varve_policy, field)

static const struct option options[N_OPTIONS] = {
	[BUCKET] = {length_parse, length_text, AT(bucket)},
	[GRACE] = {grace_parse, grace_text, AT(grace_ns)},
	[KEEP] = {duration_parse, duration_text, AT(keep_ns), .per_class = true},
	[KEEP_MIN] = {duration_parse, duration_text, AT(keep_min_ns), .per_class = true},
	[MAX_SIZE] = {size_parse, size_text, AT(max_size), .per_class = true},
	[MAX_BUCKETS] = {count_parse, count_text, AT(max_buckets), .most = UINT32_MAX,
			 .per_class = true},
	[MIN_FREE] = {.parse = share_parse, .text = share_text},
	[UNDROP] = {duration_parse, duration_text, AT(undrop_ns)},
	[CLOCK_TRUST] = {duration_parse, duration_text, AT(clock_trust_ns)},
	[SEAL_LEVEL] = {level_parse, level_text, .most = 19},
	[SEAL_THREADS] = {threads_parse, threads_text, AT(seal_threads), .most = SEAL_THREADS_MAX},
	[CACHE] = {cache_parse, size_text, AT(cache_bytes)},
	[WORM] = {bool_parse, bool_text, AT(worm), .alone = true},
	[RMDIR] = {.parse = rmdir_parse, .text = rmdir_text},
	[UID] = {uid_parse, id_text, AT(uid)},
	[GID] = {gid_parse, id_text, AT(gid)},
	[MODE] = {mode_parse, mode_text, .most = MODE_MAX},
	[PASSTHROUGH] = {bool_parse, bool_text, AT(passthrough), .alone = true},
	[CUT] = {.parse = cut_parse, .text = cut_text},
};

const struct varve_option_help *varve_policy_help(void)
{
	return helps;
}

void varve_policy_init(struct varve_policy *p)
{
	*p = (struct varve_policy){
		.bucket = {.unit = VARVE_UNIT_SECONDS, .seconds = 86400},
		.grace_ns = VARVE_GRACE_AUTO,
		.min_free_fraction = 0.05,
		.undrop_ns = 600 * VARVE_NS_PER_S,
		.clock_trust_ns = 3600 * VARVE_NS_PER_S,
		.seal_level = 9,
		.cache_bytes = UINT64_C(64) << 20,
		.passthrough = true,
		.uid = (uid_t)-1,
		.gid = (gid_t)-1,
		.mode = (mode_t)-1,
	};
}

/* How many letters must be put in, taken out or changed to get from a to b. */
static size_t edit_distance(const char *a, const char *b)
{
	size_t row[TEXT_MAX + 1];
	size_t b_len = strlen(b);

	for (size_t j = 0; j <= b_len; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= b_len; j++) {
			size_t best = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[b_len];
}

static int unknown_option(const char *name, struct varve_err *err)
{
	char shown[TEXT_MAX];
	size_t nearest = 0, distance = SIZE_MAX;

	(void)snprintf(shown, sizeof(shown), "%s", name);
	for (size_t i = 0; i < N_OPTIONS; i++) {
		size_t d = edit_distance(shown, helps[i].name);

		if (d < distance) {
			distance = d;
			nearest = i;
		}
	}
	return varve_err_set(err, -ENOENT,
			     "unknown option '%s'; the nearest is '%s'; example: %s=%s", shown,
			     helps[nearest].name, helps[nearest].name, helps[nearest].example);
}

static int find_option(const char *name)
{
	for (int i = 0; i < N_OPTIONS; i++) {
		if (strcmp(name, helps[i].name) == 0)
			return i;
	}
	return -ENOENT;
}

int varve_policy_set(struct varve_policy *p, const char *name, const char *value,
		     struct varve_err *err)
{
	struct varve_policy changed = *p;
	const char *given = value ? value : "yes";
	const char *why = NULL;
	int i = find_option(name);

	if (i < 0)
		return unknown_option(name, err);
	if (!value && !options[i].alone)
		return varve_err_set(err, -EINVAL, "option '%s' needs a value; example: %s=%s",
				     name, name, helps[i].example);
	if (options[i].parse(&options[i], given, &changed, &why) < 0)
		return varve_err_set(err, -EINVAL, "option '%s': '%.64s' %s; example: %s=%s", name,
				     given, why, name, helps[i].example);
	*p = changed;
	return 0;
}

/* -- Several at once -- */

static int check_keep(const struct varve_policy *p, struct varve_err *err)
{
	char keep[TEXT_MAX], keep_min[TEXT_MAX];

	if (p->keep_ns == 0 || p->keep_ns >= p->keep_min_ns)
		return 0;
	varve_duration_text(p->keep_ns, keep, sizeof(keep));
	varve_duration_text(p->keep_min_ns, keep_min, sizeof(keep_min));
	return varve_err_set(err, -EINVAL,
			     "option 'keep': '%s' is shorter than keep-min, '%s'; "
			     "example: keep=30d,keep-min=7d",
			     keep, keep_min);
}

static int check_grace(const struct varve_policy *p, struct varve_err *err)
{
	char grace[TEXT_MAX], bucket[TEXT_MAX];

	if (p->grace_ns <= varve_length_min_ns(&p->bucket))
		return 0;
	varve_duration_text(p->grace_ns, grace, sizeof(grace));
	varve_length_format(&p->bucket, bucket, sizeof(bucket));
	return varve_err_set(err, -EINVAL,
			     "option 'grace': '%s' is longer than a bucket, '%s'; "
			     "example: grace=30s",
			     grace, bucket);
}

int varve_policy_check(const struct varve_policy *p, struct varve_err *err)
{
	int r = check_keep(p, err);

	return r < 0 ? r : check_grace(p, err);
}

int64_t varve_policy_grace(const struct varve_policy *p, int64_t length_ns)
{
	const int64_t least = VARVE_NS_PER_S / 2, most = 60 * VARVE_NS_PER_S;
	int64_t grace = p->grace_ns;

	if (grace == VARVE_GRACE_AUTO) {
		grace = length_ns / 10;
		if (grace < least)
			grace = least;
		if (grace > most)
			grace = most;
	}
	return grace < length_ns ? grace : length_ns;
}

/* -- varve.conf -- */

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts the blanks around a string, in place. */
static char *trim(char *s)
{
	size_t len;

	while (is_blank(*s))
		s++;
	len = strlen(s);
	while (len > 0 && is_blank(s[len - 1]))
		len--;
	s[len] = '\0';
	return s;
}

static void cut_comment(char *line)
{
	for (char *c = line; *c; c++) {
		if (*c == '#' && (c == line || is_blank(c[-1]))) {
			*c = '\0';
			return;
		}
	}
}

static int conf_section(const char *line, bool *ret_class, struct varve_err *err)
{
	if (strcmp(line, "[store]") == 0)
		*ret_class = false;
	else if (strcmp(line, "[class default]") == 0)
		*ret_class = true;
	else
		return varve_err_set(err, -EINVAL,
				     "unknown section '%.64s'; example: [class default]", line);
	return 0;
}

static int conf_line(struct varve_policy *p, char *line, bool *class_section, struct varve_err *err)
{
	char *value, *name;
	int i;

	cut_comment(line);
	name = trim(line);
	if (*name == '\0')
		return 0;
	if (*name == '[')
		return conf_section(name, class_section, err);
	value = strchr(name, '=');
	if (value) {
		*value = '\0';
		value = trim(value + 1);
		name = trim(name);
	}
	i = find_option(name);
	if (i >= 0 && *class_section && !options[i].per_class)
		return varve_err_set(err, -EINVAL,
				     "option '%s' is the whole store's, not a class's; "
				     "put it under [store]",
				     name);
	return varve_policy_set(p, name, value, err);
}

int varve_policy_parse_conf(struct varve_policy *p, const char *text, size_t len,
			    struct varve_err *err)
{
	struct varve_policy changed = *p;
	bool class_section = false;
	size_t line_no = 1;

	for (const char *at = text, *end = text + len; at < end; line_no++) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		size_t line_len = (size_t)((newline ? newline : end) - at);
		char line[512];
		int r;

		if (line_len >= sizeof(line) || memchr(at, '\0', line_len))
			return varve_err_set(err, -EINVAL, "line %zu: is too long or not text",
					     line_no);
		memcpy(line, at, line_len);
		line[line_len] = '\0';
		r = conf_line(&changed, line, &class_section, err);
		if (r < 0)
			return varve_err_wrap(err, -EINVAL, "line %zu", line_no);
		at = newline ? newline + 1 : end;
	}
	*p = changed;
	return 0;
}

char *varve_policy_conf_text(const struct varve_policy *p)
{
	struct varve_policy defaults;
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	bool failed;

	if (!f)
		return NULL;
	varve_policy_init(&defaults);
	(void)fprintf(f,
		      "# varvefs: what holds for every mount of this store. The options of a mount "
		      "win over\n# this file. A line with a '#' in front is a default.\n");
	for (size_t i = 0; i < N_OPTIONS; i++) {
		char value[TEXT_MAX], by_default[TEXT_MAX];
		bool set;

		options[i].text(&options[i], p, value, sizeof(value));
		options[i].text(&options[i], &defaults, by_default, sizeof(by_default));
		set = strcmp(value, by_default) != 0;
		(void)fprintf(f, "\n# %s\n%s%s = %s\n", helps[i].help, set ? "" : "#",
			      helps[i].name, value[0] ? value : "(as it is)");
	}
	failed = ferror(f) != 0;
	if (fclose(f) != 0 || failed) {
		free(text);
		return NULL;
	}
	return text;
}
