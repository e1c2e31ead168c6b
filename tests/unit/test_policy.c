#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../lib/unit.h"
#include "base/clock.h"
#include "store/policy.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))
#define S VARVE_NS_PER_S
#define H (3600 * S)
#define D (24 * H)

static struct varve_policy fresh(void)
{
	struct varve_policy p;

	/* So that structs of the same values also have the same bytes. */
	memset(&p, 0, sizeof(p));
	varve_policy_init(&p);
	return p;
}

static void set(struct varve_policy *p, const char *name, const char *value)
{
	struct varve_err err = {0};
	int r = varve_policy_set(p, name, value, &err);

	ck_assert_msg(r == 0, "%s=%s: %s", name, value ? value : "(alone)", err.msg);
}

static void check_same(const struct varve_policy *a, const struct varve_policy *b)
{
	ck_assert_int_eq(a->bucket.unit, b->bucket.unit);
	ck_assert_uint_eq(a->bucket.seconds, b->bucket.seconds);
	ck_assert_int_eq(a->grace_ns, b->grace_ns);
	ck_assert_int_eq(a->keep_ns, b->keep_ns);
	ck_assert_int_eq(a->keep_min_ns, b->keep_min_ns);
	ck_assert_uint_eq(a->max_size, b->max_size);
	ck_assert_uint_eq(a->max_buckets, b->max_buckets);
	ck_assert(a->min_free_fraction == b->min_free_fraction);
	ck_assert_uint_eq(a->min_free_bytes, b->min_free_bytes);
	ck_assert_int_eq(a->undrop_ns, b->undrop_ns);
	ck_assert_int_eq(a->clock_trust_ns, b->clock_trust_ns);
	ck_assert_int_eq(a->seal_level, b->seal_level);
	ck_assert_uint_eq(a->seal_threads, b->seal_threads);
	ck_assert_uint_eq(a->cache_bytes, b->cache_bytes);
	ck_assert_int_eq(a->worm, b->worm);
	ck_assert_int_eq(a->rmdir_posix, b->rmdir_posix);
	ck_assert_int_eq(a->passthrough, b->passthrough);
	ck_assert_uint_eq(a->uid, b->uid);
	ck_assert_uint_eq(a->gid, b->gid);
	ck_assert_uint_eq(a->mode, b->mode);
}

START_TEST(defaults)
{
	struct varve_policy p = fresh();

	ck_assert_int_eq(p.bucket.unit, VARVE_UNIT_SECONDS);
	ck_assert_uint_eq(p.bucket.seconds, 86400);
	ck_assert_int_eq(p.grace_ns, VARVE_GRACE_AUTO);
	ck_assert_int_eq(p.keep_ns, 0);
	ck_assert(p.min_free_fraction == 0.05);
	ck_assert_int_eq(p.undrop_ns, 600 * S);
	ck_assert_int_eq(p.clock_trust_ns, H);
	ck_assert_int_eq(p.seal_level, 9);
	ck_assert_uint_eq(p.cache_bytes, 64 << 20);
	ck_assert(p.passthrough && !p.worm && !p.rmdir_posix);
	ck_assert(p.uid == (uid_t)-1 && p.gid == (gid_t)-1 && p.mode == (mode_t)-1);
	ck_assert_int_eq(varve_policy_check(&p, NULL), 0);
}
END_TEST

/* One option each: what it was given, and the same read from a field. */
#define FIELD_OF(type, field)                                                                      \
	static uint64_t get_##field(const struct varve_policy *p)                                  \
	{                                                                                          \
		return (uint64_t)p->field;                                                         \
	}
FIELD_OF(int64_t, grace_ns)
FIELD_OF(int64_t, keep_ns)
FIELD_OF(int64_t, keep_min_ns)
FIELD_OF(uint64_t, max_size)
FIELD_OF(uint32_t, max_buckets)
FIELD_OF(uint64_t, min_free_bytes)
FIELD_OF(int64_t, undrop_ns)
FIELD_OF(int64_t, clock_trust_ns)
FIELD_OF(int, seal_level)
FIELD_OF(uint32_t, seal_threads)
FIELD_OF(uint64_t, cache_bytes)
FIELD_OF(bool, worm)
FIELD_OF(bool, rmdir_posix)
FIELD_OF(bool, passthrough)
FIELD_OF(uid_t, uid)
FIELD_OF(gid_t, gid)
FIELD_OF(mode_t, mode)

static uint64_t get_bucket(const struct varve_policy *p)
{
	return p->bucket.unit * UINT64_C(1000000) + p->bucket.seconds;
}

static uint64_t get_min_free_ppm(const struct varve_policy *p)
{
	return (uint64_t)(p->min_free_fraction * 1e6 + 0.5);
}

static const struct {
	const char *name;
	const char *value;
	uint64_t (*get)(const struct varve_policy *p);
	uint64_t want;
} good[] = {
	{"bucket", "1h", get_bucket, 3600},
	{"bucket", "1w", get_bucket, VARVE_UNIT_WEEK * 1000000},
	{"bucket", "1mo", get_bucket, VARVE_UNIT_MONTH * 1000000},
	{"grace", "30s", get_grace_ns, 30 * S},
	{"grace", "0", get_grace_ns, 0},
	{"grace", "off", get_grace_ns, 0},
	{"grace", "auto", get_grace_ns, (uint64_t)VARVE_GRACE_AUTO},
	{"keep", "30d", get_keep_ns, 30 * D},
	{"keep", "off", get_keep_ns, 0},
	{"keep-min", "7d", get_keep_min_ns, 7 * D},
	{"max-size", "200G", get_max_size, UINT64_C(200) << 30},
	{"max-size", "off", get_max_size, 0},
	{"max-buckets", "400", get_max_buckets, 400},
	{"max-buckets", "4294967295", get_max_buckets, UINT32_MAX},
	{"max-buckets", "off", get_max_buckets, 0},
	{"max-buckets", "0", get_max_buckets, 0},
	{"min-free", "7.5%", get_min_free_ppm, 75000},
	{"min-free", "10G", get_min_free_bytes, UINT64_C(10) << 30},
	{"min-free", "10G", get_min_free_ppm, 0},
	{"min-free", "off", get_min_free_ppm, 0},
	{"undrop", "0", get_undrop_ns, 0},
	{"undrop", "1h", get_undrop_ns, H},
	{"clock-trust", "5m", get_clock_trust_ns, 300 * S},
	{"seal-level", "1", get_seal_level, 1},
	{"seal-level", "19", get_seal_level, 19},
	{"seal-threads", "2", get_seal_threads, 2},
	{"seal-threads", "1", get_seal_threads, 1},
	{"seal-threads", "auto", get_seal_threads, 0},
	{"cache", "16M", get_cache_bytes, 16 << 20},
	{"cache", "1G", get_cache_bytes, 1 << 30},
	{"worm", NULL, get_worm, true},
	{"worm", "yes", get_worm, true},
	{"worm", "no", get_worm, false},
	{"rmdir", "posix", get_rmdir_posix, true},
	{"rmdir", "drop", get_rmdir_posix, false},
	{"uid", "0", get_uid, 0},
	{"uid", "4294967294", get_uid, UINT32_MAX - 1},
	{"uid", "root", get_uid, 0},
	{"gid", "1000", get_gid, 1000},
	{"gid", "root", get_gid, 0},
	{"mode", "0755", get_mode, 0755},
	{"mode", "700", get_mode, 0700},
	{"mode", "1777", get_mode, 01777},
	{"passthrough", "no", get_passthrough, false},
	{"passthrough", "yes", get_passthrough, true},
	{"passthrough", NULL, get_passthrough, true},
};

START_TEST(set_good)
{
	struct varve_policy p = fresh();

	set(&p, good[_i].name, good[_i].value);
	ck_assert_uint_eq(good[_i].get(&p), good[_i].want);
}
END_TEST

static const struct {
	const char *name;
	const char *value;
	const char *msg;
} refused[] = {
	{"keep", "30 parsecs", "option 'keep': '30 parsecs' is not a duration; example: keep=30d"},
	{"keep", "", "option 'keep': '' is not a duration; example: keep=30d"},
	{"keep", "-1d", "option 'keep': '-1d' is not a duration; example: keep=30d"},
	{"keep", "300y", "option 'keep': '300y' is too long; example: keep=30d"},
	{"keep", "auto", "option 'keep': 'auto' is not a duration; example: keep=30d"},
	{"keep", NULL, "option 'keep' needs a value; example: keep=30d"},
	{"keep-min", "7", "option 'keep-min': '7' is not a duration; example: keep-min=7d"},
	{"bucket", "7h",
	 "option 'bucket': '7h' is not a bucket length (1mo, 1w, or a time that divides a day); "
	 "example: bucket=1d"},
	{"bucket", NULL, "option 'bucket' needs a value; example: bucket=1d"},
	{"grace", "soon", "option 'grace': 'soon' is not a duration; example: grace=30s"},
	{"max-size", "lots", "option 'max-size': 'lots' is not a size; example: max-size=200G"},
	{"max-size", "99999P", "option 'max-size': '99999P' is too large; example: max-size=200G"},
	{"max-size", "5%", "option 'max-size': '5%' is not a size; example: max-size=200G"},
	{"max-buckets", "-3",
	 "option 'max-buckets': '-3' is not a number; example: max-buckets=400"},
	{"max-buckets", "4294967296",
	 "option 'max-buckets': '4294967296' is too large; example: max-buckets=400"},
	{"max-buckets", "36893488147419103232",
	 "option 'max-buckets': '36893488147419103232' is too large; example: max-buckets=400"},
	{"min-free", "100%",
	 "option 'min-free': '100%' is too large (at most 99%); example: min-free=5%"},
	{"min-free", "5",
	 "option 'min-free': '5' is less than 1M, too little to be of use (a share has a %); example: "
	 "min-free=5%"},
	{"min-free", "some",
	 "option 'min-free': 'some' is not a share or a size; example: min-free=5%"},
	{"undrop", "ten", "option 'undrop': 'ten' is not a duration; example: undrop=10m"},
	{"clock-trust", "x",
	 "option 'clock-trust': 'x' is not a duration; example: clock-trust=1h"},
	{"seal-level", "0",
	 "option 'seal-level': '0' is not a level from 1 to 19; example: seal-level=9"},
	{"seal-level", "20",
	 "option 'seal-level': '20' is not a level from 1 to 19; example: seal-level=9"},
	{"seal-threads", "1025",
	 "option 'seal-threads': '1025' is too large; example: seal-threads=2"},
	{"cache", "15M", "option 'cache': '15M' is too small (at least 16M); example: cache=64M"},
	{"cache", "off", "option 'cache': 'off' is too small (at least 16M); example: cache=64M"},
	{"worm", "maybe", "option 'worm': 'maybe' is neither yes nor no; example: worm=yes"},
	{"rmdir", "hard", "option 'rmdir': 'hard' is neither drop nor posix; example: rmdir=drop"},
	{"uid", "no-such-user",
	 "option 'uid': 'no-such-user' is not a user of this system; example: uid=root"},
	{"uid", "4294967295",
	 "option 'uid': '4294967295' is not a user of this system; example: uid=root"},
	{"uid", "-1", "option 'uid': '-1' is not a user of this system; example: uid=root"},
	{"gid", "no-such-group",
	 "option 'gid': 'no-such-group' is not a group of this system; example: gid=root"},
	{"mode", "0788",
	 "option 'mode': '0788' is not a mode (octal, at most 1777); example: mode=0755"},
	{"mode", "4755",
	 "option 'mode': '4755' is not a mode (octal, at most 1777); example: mode=0755"},
	{"mode", "2000",
	 "option 'mode': '2000' is not a mode (octal, at most 1777); example: mode=0755"},
	{"mode", "", "option 'mode': '' is not a mode (octal, at most 1777); example: mode=0755"},
	{"max-buckets", "", "option 'max-buckets': '' is not a number; example: max-buckets=400"},
	{"mode", "rwx",
	 "option 'mode': 'rwx' is not a mode (octal, at most 1777); example: mode=0755"},
	{"passthrough", "off ",
	 "option 'passthrough': 'off ' is neither yes nor no; example: passthrough=no"},
};

START_TEST(set_refused)
{
	struct varve_policy p = fresh(), before = fresh();
	struct varve_err err = {0};

	ck_assert_int_eq(varve_policy_set(&p, refused[_i].name, refused[_i].value, &err), -EINVAL);
	ck_assert_str_eq(err.msg, refused[_i].msg);
	check_same(&p, &before);
	ck_assert_int_eq(varve_policy_set(&p, refused[_i].name, refused[_i].value, NULL), -EINVAL);
}
END_TEST

static const struct {
	const char *name;
	const char *nearest;
} unknown[] = {
	{"kep", "keep"},          {"kepe", "keep"},
	{"max_size", "max-size"}, {"maxbuckets", "max-buckets"},
	{"minfree", "min-free"},  {"Bucket", "bucket"},
	{"buckets", "bucket"},    {"seal-thread", "seal-threads"},
	{"read-only", NULL},      {"", NULL},
	{"grace ", "grace"},      {"a-buckets", "max-buckets"},
	{"-size", "max-size"},    {"ach", "cache"},
	{"gid-all", "gid"},       {"moed", "mode"},
};

START_TEST(set_unknown)
{
	struct varve_policy p = fresh(), before = fresh();
	struct varve_err err = {0};
	char want[128];

	ck_assert_int_eq(varve_policy_set(&p, unknown[_i].name, "1d", &err), -ENOENT);
	(void)snprintf(want, sizeof(want), "unknown option '%s'; the nearest is '%s",
		       unknown[_i].name, unknown[_i].nearest ? unknown[_i].nearest : "");
	ck_assert_msg(strncmp(err.msg, want, strlen(want)) == 0, "%s", err.msg);
	ck_assert_ptr_nonnull(strstr(err.msg, "; example: "));
	check_same(&p, &before);
}
END_TEST

START_TEST(set_hostile)
{
	struct varve_policy p = fresh();
	struct varve_err err = {0};
	char *big = malloc(100000);

	ck_assert_ptr_nonnull(big);
	memset(big, 'k', 99999);
	big[99999] = '\0';
	ck_assert_int_eq(varve_policy_set(&p, big, "1d", &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.msg, "example: "));
	ck_assert_int_eq(varve_policy_set(&p, "keep", big, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.msg, "example: keep=30d"));
	ck_assert_int_eq(varve_policy_set(&p, "uid", big, &err), -EINVAL);
	free(big);
}
END_TEST

/* Each option's example is one that it takes, and each option is in the help. */
START_TEST(help_is_true)
{
	static const char *const names[] = {
		"bucket",   "grace",  "keep",        "keep-min",   "max-size",     "max-buckets",
		"min-free", "undrop", "clock-trust", "seal-level", "seal-threads", "cache",
		"worm",     "rmdir",  "uid",         "gid",        "mode",         "passthrough",
		"cut"};
	const struct varve_option_help *h = varve_policy_help();
	size_t n = 0;

	for (; h->name; h++, n++) {
		struct varve_policy p = fresh();

		ck_assert_uint_lt(n, N(names));
		ck_assert_str_eq(h->name, names[n]);
		ck_assert_uint_gt(strlen(h->help), 0);
		set(&p, h->name, h->example);
		ck_assert_int_eq(varve_policy_check(&p, NULL), 0);
		if (!h->value)
			set(&p, h->name, NULL);
	}
	ck_assert_uint_eq(n, N(names));
}
END_TEST

static const struct {
	const char *options[3][2];
	const char *msg; /* NULL: fine */
} together[] = {
	{{{"keep", "30d"}, {"keep-min", "7d"}}, NULL},
	{{{"keep", "7d"}, {"keep-min", "7d"}}, NULL},
	{{{"keep", "off"}, {"keep-min", "7d"}}, NULL},
	{{{"keep", "6d"}, {"keep-min", "7d"}},
	 "option 'keep': '6d' is shorter than keep-min, '7d'; example: keep=30d,keep-min=7d"},
	{{{"bucket", "1h"}, {"grace", "1h"}}, NULL},
	{{{"bucket", "1h"}, {"grace", "61m"}},
	 "option 'grace': '61m' is longer than a bucket, '1h'; example: grace=30s"},
	{{{"bucket", "1w"}, {"grace", "7d"}}, NULL},
	{{{"bucket", "1w"}, {"grace", "8d"}},
	 "option 'grace': '8d' is longer than a bucket, '1w'; example: grace=30s"},
	{{{"bucket", "1mo"}, {"grace", "28d"}}, NULL},
	{{{"bucket", "1mo"}, {"grace", "29d"}},
	 "option 'grace': '29d' is longer than a bucket, '1mo'; example: grace=30s"},
	{{{"bucket", "1s"}}, NULL},
};

START_TEST(check_together)
{
	struct varve_policy p = fresh();
	struct varve_err err = {0};
	int r;

	for (int i = 0; i < 3 && together[_i].options[i][0]; i++)
		set(&p, together[_i].options[i][0], together[_i].options[i][1]);
	r = varve_policy_check(&p, &err);
	ck_assert_int_eq(r, together[_i].msg ? -EINVAL : 0);
	ck_assert_str_eq(err.msg, together[_i].msg ? together[_i].msg : "");
}
END_TEST

static const struct {
	const char *grace;
	int64_t length_ns, want_ns;
} graces[] = {
	{"auto", S, S / 2},  {"auto", 2 * S, S / 2},   {"auto", 5 * S, S / 2},
	{"auto", 10 * S, S}, {"auto", 60 * S, 6 * S},  {"auto", 600 * S, 60 * S},
	{"auto", D, 60 * S}, {"auto", 31 * D, 60 * S}, {"auto", S / 10, S / 10},
	{"0", D, 0},         {"90s", D, 90 * S},       {"90s", 60 * S, 60 * S},
	{"1h", 31 * D, H},
};

START_TEST(grace_of_length)
{
	struct varve_policy p = fresh();

	set(&p, "grace", graces[_i].grace);
	ck_assert_int_eq(varve_policy_grace(&p, graces[_i].length_ns), graces[_i].want_ns);
}
END_TEST

static int conf(struct varve_policy *p, const char *text, struct varve_err *err)
{
	return varve_policy_parse_conf(p, text, strlen(text), err);
}

START_TEST(conf_good)
{
	struct varve_policy p = fresh(), before = fresh();
	struct varve_err err = {0};

	ck_assert_int_eq(conf(&p, "", &err), 0);
	ck_assert_int_eq(conf(&p, "\n\n  \t\n# only words = here\n   # and here\n", &err), 0);
	check_same(&p, &before);
	ck_assert_int_eq(conf(&p,
			      "keep = 30d\n"
			      "  keep-min=7d   # a week\n"
			      "\tworm\r\n"
			      "cache = 1G#x\n",
			      &err),
			 -EINVAL);
	check_same(&p, &before);
	ck_assert_int_eq(conf(&p,
			      "keep = 30d\n"
			      "  keep-min=7d   # a week\n"
			      "\tworm\r\n"
			      "[store]\n"
			      "bucket\t=\t1h\r\n"
			      "[class default]  # the only one\n"
			      "max-buckets = 3\n"
			      "max-buckets = 4\n"
			      "[store]\n"
			      "mode = 0700", /* no newline at the end */
			      &err),
			 0);
	ck_assert_int_eq(p.keep_ns, 30 * D);
	ck_assert_int_eq(p.keep_min_ns, 7 * D);
	ck_assert(p.worm);
	ck_assert_uint_eq(p.bucket.seconds, 3600);
	ck_assert_uint_eq(p.max_buckets, 4);
	ck_assert_uint_eq(p.mode, 0700);
}
END_TEST

static const struct {
	const char *text;
	const char *msg;
} confs_bad[] = {
	{"keep = 30 parsecs\n",
	 "line 1: option 'keep': '30 parsecs' is not a duration; example: keep=30d"},
	{"\n# x\nkepe = 30d\n",
	 "line 3: unknown option 'kepe'; the nearest is 'keep'; example: keep=30d"},
	{"keep = 30d\nkeep\n", "line 2: option 'keep' needs a value; example: keep=30d"},
	{"keep =\n", "line 1: option 'keep': '' is not a duration; example: keep=30d"},
	{"= 30d\n", "line 1: unknown option ''; the nearest is "},
	{"keep = 30d = 40d\n",
	 "line 1: option 'keep': '30d = 40d' is not a duration; example: keep=30d"},
	{"[class web]\nkeep = 1d\n",
	 "line 1: unknown section '[class web]'; example: [class default]"},
	{"[partition\n", "line 1: unknown section '[partition'; example: [class default]"},
	{"[class default]\nbucket = 1d\n",
	 "line 2: option 'bucket' is the whole store's, not a class's; put it under [store]"},
};

START_TEST(conf_refused)
{
	struct varve_policy p = fresh(), before = fresh();
	struct varve_err err = {0};

	ck_assert_int_eq(conf(&p, confs_bad[_i].text, &err), -EINVAL);
	ck_assert_msg(strncmp(err.msg, confs_bad[_i].msg, strlen(confs_bad[_i].msg)) == 0, "%s",
		      err.msg);
	check_same(&p, &before);
	ck_assert_int_eq(conf(&p, confs_bad[_i].text, NULL), -EINVAL);
}
END_TEST

START_TEST(conf_not_text)
{
	static const char nul[] = "keep = 30d\n\0worm\n";
	struct varve_policy p = fresh(), before = fresh();
	struct varve_err err = {0};
	char lines[600];

	ck_assert_int_eq(varve_policy_parse_conf(&p, nul, sizeof(nul) - 1, &err), -EINVAL);
	ck_assert_str_eq(err.msg, "line 2: is too long or not text");
	memset(lines, '#', sizeof(lines));
	ck_assert_int_eq(varve_policy_parse_conf(&p, lines, sizeof(lines), &err), -EINVAL);
	ck_assert_str_eq(err.msg, "line 1: is too long or not text");
	check_same(&p, &before);
	/* 511 bytes are a line, 512 are not */
	lines[511] = '\n';
	ck_assert_int_eq(varve_policy_parse_conf(&p, lines, sizeof(lines), &err), 0);
	lines[511] = '#';
	lines[512] = '\n';
	ck_assert_int_eq(varve_policy_parse_conf(&p, lines, sizeof(lines), &err), -EINVAL);
	lines[500] = '\n';
	ck_assert_int_eq(varve_policy_parse_conf(&p, lines, sizeof(lines), &err), 0);
}
END_TEST

static void check_round_trip(const struct varve_policy *p)
{
	struct varve_policy back = fresh();
	struct varve_err err = {0};
	char *text = varve_policy_conf_text(p);

	ck_assert_ptr_nonnull(text);
	ck_assert_msg(conf(&back, text, &err) == 0, "%s\n%s", err.msg, text);
	check_same(&back, p);
	free(text);
}

START_TEST(conf_round_trip)
{
	struct varve_policy p = fresh();

	set(&p, good[_i].name, good[_i].value);
	check_round_trip(&p);
}
END_TEST

START_TEST(conf_round_trip_all)
{
	struct varve_policy p = fresh();

	for (size_t i = 0; i < N(good); i++) {
		set(&p, good[i].name, good[i].value);
		check_round_trip(&p);
	}
}
END_TEST

START_TEST(conf_text_shows_all)
{
	struct varve_policy p = fresh();
	const struct varve_option_help *h = varve_policy_help();
	char *text;

	set(&p, "keep", "30d");
	set(&p, "min-free", "2.5%");
	text = varve_policy_conf_text(&p);
	ck_assert_ptr_nonnull(text);
	ck_assert_ptr_nonnull(strstr(text, "\nkeep = 30d\n"));
	ck_assert_ptr_nonnull(strstr(text, "\nmin-free = 2.5%\n"));
	ck_assert_ptr_nonnull(strstr(text, "\n#bucket = 1d\n"));
	ck_assert_ptr_nonnull(strstr(text, "\n#keep-min = off\n"));
	ck_assert_ptr_nonnull(strstr(text, "\n#clock-trust = 1h\n"));
	ck_assert_ptr_nonnull(strstr(text, "\n#undrop = 10m\n"));
	ck_assert_ptr_nonnull(strstr(text, "\n#cache = 64M\n"));
	ck_assert_ptr_nonnull(strstr(text, "\n#seal-threads = auto\n"));
	ck_assert_ptr_nonnull(strstr(text, "\n#uid = (as it is)\n"));
	for (; h->name; h++) {
		char line[64];

		(void)snprintf(line, sizeof(line), "%s = ", h->name);
		ck_assert_ptr_nonnull(strstr(text, line));
		ck_assert_ptr_nonnull(strstr(text, h->help));
	}
	free(text);
}
END_TEST

/* The command line wins: it is applied after the file. */
START_TEST(later_wins)
{
	struct varve_policy p = fresh();

	ck_assert_int_eq(conf(&p, "keep = 30d\nworm\nmin-free = 10G\n", NULL), 0);
	set(&p, "keep", "off");
	set(&p, "worm", "no");
	set(&p, "min-free", "5%");
	ck_assert_int_eq(p.keep_ns, 0);
	ck_assert(!p.worm);
	ck_assert_uint_eq(p.min_free_bytes, 0);
}
END_TEST

T_MAIN("policy", 60)
{
	tcase_add_test(tc, defaults);
	tcase_add_loop_test(tc, set_good, 0, (int)N(good));
	tcase_add_loop_test(tc, set_refused, 0, (int)N(refused));
	tcase_add_loop_test(tc, set_unknown, 0, (int)N(unknown));
	tcase_add_test(tc, set_hostile);
	tcase_add_test(tc, help_is_true);
	tcase_add_loop_test(tc, check_together, 0, (int)N(together));
	tcase_add_loop_test(tc, grace_of_length, 0, (int)N(graces));
	tcase_add_test(tc, conf_good);
	tcase_add_loop_test(tc, conf_refused, 0, (int)N(confs_bad));
	tcase_add_test(tc, conf_not_text);
	tcase_add_loop_test(tc, conf_round_trip, 0, (int)N(good));
	tcase_add_test(tc, conf_round_trip_all);
	tcase_add_test(tc, conf_text_shows_all);
	tcase_add_test(tc, later_wins);
}
