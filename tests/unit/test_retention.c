#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../lib/unit.h"
#include "base/clock.h"
#include "store/retention.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))
#define D (86400 * VARVE_NS_PER_S)
#define G (UINT64_C(1) << 30)
#define NOW (20000 * D + D / 2) /* noon: a bucket that ended n days ago did so n + 1/2 days ago */
#define ITEMS_MAX 12

/* A store in letters, oldest first, one bucket a day, 10 GiB each, the last one open:
 * s sealed, c closing, o open, d dropped, S and C the same on hold. */
static size_t items_of(const char *letters, struct varve_retention_item items[ITEMS_MAX])
{
	size_t n = strlen(letters);

	ck_assert_uint_le(n, ITEMS_MAX);
	for (size_t i = 0; i < n; i++) {
		int64_t end = 20000 * D + D - (int64_t)(n - 1 - i) * D;
		char c = letters[i];

		items[i] = (struct varve_retention_item){
			.name = "x",
			.start_ns = end - D,
			.end_ns = end,
			.state = c == 'o'               ? VARVE_BUCKET_OPEN
				 : c == 'd'             ? VARVE_BUCKET_DROPPED
				 : c == 'c' || c == 'C' ? VARVE_BUCKET_CLOSING
							: VARVE_BUCKET_SEALED,
			.held = c == 'S' || c == 'C',
			.allocated = 10 * G,
			/* what an earlier plan left must not matter */
			.cause = VARVE_CAUSE_HAND,
			.when_ns = 77,
		};
	}
	return n;
}

/* The plan in letters: k keep, z max-size, n max-buckets, f min-free, - stays. */
static void causes_of(const struct varve_retention_item *items, size_t n, char *ret)
{
	for (size_t i = 0; i < n; i++) {
		switch (items[i].cause) {
		case VARVE_CAUSE_NONE:
			ret[i] = '-';
			break;
		case VARVE_CAUSE_KEEP:
			ret[i] = 'k';
			break;
		case VARVE_CAUSE_MAX_SIZE:
			ret[i] = 'z';
			break;
		case VARVE_CAUSE_MAX_BUCKETS:
			ret[i] = 'n';
			break;
		case VARVE_CAUSE_MIN_FREE:
			ret[i] = 'f';
			break;
		case VARVE_CAUSE_HAND:
	case VARVE_CAUSE_SEALED:
			ret[i] = 'h';
			break;
		}
	}
	ret[n] = '\0';
}

static struct varve_policy policy_of(const char *conf)
{
	struct varve_policy p;
	struct varve_err err = {0};

	varve_policy_init(&p);
	ck_assert_int_eq(varve_policy_set(&p, "min-free", "off", NULL), 0);
	ck_assert_msg(varve_policy_parse_conf(&p, conf, strlen(conf), &err) == 0, "%s", err.msg);
	return p;
}

static const struct {
	const char *policy;
	const char *items;
	const char *plan;
	uint64_t free_g; /* of 1000 */
	uint64_t meta_g;
	bool untrusted;
} plans[] = {
	/* nothing set, nothing goes */
	{"", "ssssso", "------", 0, 0, false},
	{"", "", "", 0, 0, false},
	/* keep: by the age of the end; the bucket before the open one ended half a day ago */
	{"keep=3d", "ssssso", "kk----", 500, 0, false},
	{"keep=60h", "ssssso", "kkk---", 500, 0, false},
	{"keep=12h", "ssssso", "kkkkk-", 500, 0, false},
	{"keep=13h", "ssssso", "kkkk--", 500, 0, false},
	{"keep=1ms", "sssso", "kkkk-", 500, 0, false},
	{"keep=3d", "sSsSso", "k-----", 500, 0, false},
	{"keep=3d", "dsssso", "-k----", 500, 0, false},
	{"keep=12h", "ssssco", "kkkkk-", 500, 0, false},
	{"keep=12h", "ssssCo", "kkkk--", 500, 0, false},
	{"keep=1d", "cccsso", "kkkk--", 500, 0, false},
	/* keep-min is under all of them */
	{"keep=3d\nkeep-min=3d", "ssssso", "kk----", 500, 0, false},
	{"keep=2d\nkeep-min=3d", "ssssso", "kk----", 500, 0, false},
	{"max-size=1G\nkeep-min=3d", "ssssso", "zz----", 500, 0, false},
	{"max-buckets=1\nkeep-min=3d", "ssssso", "nn----", 500, 0, false},
	{"min-free=99%\nkeep-min=3d", "ssssso", "ff----", 500, 0, false},
	{"max-size=1G\nkeep-min=60h", "ssssso", "zzz---", 500, 0, false},
	{"max-size=1G\nkeep-min=30d", "ssssco", "------", 500, 0, false},
	/* max-size: the open bucket, what is held and the metadata count */
	{"max-size=60G", "ssssso", "------", 500, 0, false},
	{"max-size=59G", "ssssso", "z-----", 500, 0, false},
	{"max-size=60G", "ssssso", "z-----", 500, 1, false},
	{"max-size=60G", "ssssso", "zz----", 500, 11, false},
	{"max-size=30G", "ssssso", "zzz---", 500, 0, false},
	{"max-size=30G", "SsSsso", "-z-zz-", 500, 0, false},
	{"max-size=30G", "dsssso", "-zz---", 500, 0, false},
	{"max-size=1G", "ssssso", "zzzzz-", 500, 0, false},
	{"max-size=1G", "o", "-", 500, 0, false},
	{"max-size=1G", "SSSSSo", "------", 500, 0, false},
	/* closing ones only when no sealed one is left to take, also when they are older */
	{"max-size=20G", "ssscco", "zzzz--", 500, 0, false},
	{"max-size=30G", "ssscco", "zzz---", 500, 0, false},
	{"max-size=30G", "ccssso", "--zzz-", 500, 0, false},
	{"max-size=20G", "ccssso", "z-zzz-", 500, 0, false},
	{"max-size=10G", "ccSsso", "zz-zz-", 500, 0, false},
	{"max-size=10G", "CcSsso", "-z-zz-", 500, 0, false},
	/* max-buckets: all that are there, the open one included */
	{"max-buckets=6", "ssssso", "------", 500, 0, false},
	{"max-buckets=5", "ssssso", "n-----", 500, 0, false},
	{"max-buckets=1", "ssssso", "nnnnn-", 500, 0, false},
	{"max-buckets=3", "sSssso", "n-nn--", 500, 0, false},
	{"max-buckets=3", "ddssso", "--n---", 500, 0, false},
	{"max-buckets=2", "sscsco", "nnnn--", 500, 0, false},
	{"max-buckets=3", "sscsco", "nn-n--", 500, 0, false},
	/* min-free: a share of the volume of 1000 GiB, or bytes */
	{"min-free=5%", "ssssso", "------", 50, 0, false},
	{"min-free=5%", "ssssso", "f-----", 49, 0, false},
	{"min-free=5%", "ssssso", "fffff-", 0, 0, false},
	{"min-free=5%", "ssssso", "f-----", 40, 0, false},
	{"min-free=5%", "ssssso", "ff----", 39, 0, false},
	{"min-free=50G", "ssssso", "------", 50, 0, false},
	{"min-free=50G", "ssssso", "ff----", 30, 0, false},
	{"min-free=50G", "Ssssco", "-ff---", 30, 0, false},
	{"min-free=50G", "SsCsco", "-f-ff-", 15, 0, false},
	{"min-free=50G", "dsssso", "-ff---", 30, 0, false},
	/* together: each rule is asked about what those before it left */
	{"keep=3d\nmax-size=40G", "ssssso", "kk----", 500, 0, false},
	{"keep=3d\nmax-size=30G", "ssssso", "kkz---", 500, 0, false},
	{"keep=3d\nmax-size=30G\nmax-buckets=2", "ssssso", "kkzn--", 500, 0, false},
	{"keep=3d\nmax-size=30G\nmax-buckets=2\nmin-free=50G", "ssssso", "kkznf-", 9, 0, false},
	{"keep=3d\nmax-size=30G\nmax-buckets=2\nmin-free=50G", "ssssso", "kkzn--", 10, 0, false},
	{"keep=3d\nmin-free=50G", "ssssso", "kk----", 30, 0, false},
	{"max-size=40G\nmin-free=50G", "ssssso", "zzf---", 25, 0, false},
	{"max-size=50G\nmax-buckets=4\nkeep-min=3d", "ssssso", "zn----", 500, 0, false},
	{"max-size=50G\nmax-buckets=3\nkeep-min=3d", "ssssso", "zn----", 500, 0, false},
	/* untrusted time: only what does not ask for the time */
	{"keep=3d", "ssssso", "------", 500, 0, true},
	{"max-buckets=2", "ssssso", "------", 500, 0, true},
	{"max-size=40G", "ssssso", "zz----", 500, 0, true},
	{"min-free=50G", "ssssso", "ff----", 30, 0, true},
	{"keep=3d\nmax-size=40G\nmax-buckets=1\nmin-free=50G", "ssssso", "zzf---", 25, 0, true},
	{"max-size=1G\nkeep-min=3d", "ssssso", "zz----", 500, 0, true},
};

START_TEST(plan)
{
	struct varve_retention_item items[ITEMS_MAX];
	struct varve_policy policy = policy_of(plans[_i].policy);
	struct varve_retention_input in = {
		.now_ns = NOW,
		.time_trusted = !plans[_i].untrusted,
		.meta_bytes = plans[_i].meta_g * G,
		.volume_bytes = 1000 * G,
		.free_bytes = plans[_i].free_g * G,
	};
	size_t n = items_of(plans[_i].items, items), taken, want = 0;
	char got[ITEMS_MAX + 1];

	taken = varve_retention_plan(&policy, &in, items, n);
	causes_of(items, n, got);
	ck_assert_msg(strcmp(got, plans[_i].plan) == 0, "%s of %s: %s, not %s", plans[_i].policy,
		      plans[_i].items, got, plans[_i].plan);
	for (const char *c = got; *c; c++)
		want += *c != '-';
	ck_assert_uint_eq(taken, want);
}
END_TEST

START_TEST(when)
{
	struct varve_retention_item items[ITEMS_MAX];
	struct varve_retention_input in = {.now_ns = NOW, .time_trusted = true};
	struct varve_policy policy = policy_of("keep=3d\nmax-size=20G");
	size_t n = items_of("ssScsso", items);

	/* kk-?zz-: aged ones when they were due, those over the limit now, the rest when due */
	varve_retention_plan(&policy, &in, items, n);
	ck_assert_int_eq(items[0].cause, VARVE_CAUSE_KEEP);
	ck_assert_int_eq(items[0].when_ns, items[0].end_ns + 3 * D);
	ck_assert_int_eq(items[2].when_ns, INT64_MAX);
	ck_assert_int_eq(items[4].cause, VARVE_CAUSE_MAX_SIZE);
	ck_assert_int_eq(items[4].when_ns, NOW);
	ck_assert_int_eq(items[6].cause, VARVE_CAUSE_NONE);
	ck_assert_int_eq(items[6].when_ns, items[6].end_ns + 3 * D);

	/* by the floor when that is later; never when nothing goes by age */
	policy = policy_of("keep=3d\nkeep-min=5d");
	n = items_of("sssdo", items);
	varve_retention_plan(&policy, &in, items, n);
	ck_assert_int_eq(items[2].when_ns, items[2].end_ns + 5 * D);
	ck_assert_int_eq(items[3].when_ns, INT64_MAX);
	policy = policy_of("");
	varve_retention_plan(&policy, &in, items, n);
	ck_assert_int_eq(items[0].when_ns, INT64_MAX);

	/* only untrusted time is in the way: due, but it stays */
	policy = policy_of("keep=3d");
	n = items_of("ssssso", items);
	in.time_trusted = false;
	ck_assert_uint_eq(varve_retention_plan(&policy, &in, items, n), 0);
	ck_assert_int_eq(items[0].cause, VARVE_CAUSE_NONE);
	ck_assert_int_eq(items[0].when_ns, items[0].end_ns + 3 * D);
}
END_TEST

/* An instant either side of the moment a bucket is due. */
START_TEST(to_the_nanosecond)
{
	struct varve_retention_item items[ITEMS_MAX];
	struct varve_policy policy = policy_of("keep=2d");
	struct varve_retention_input in = {.time_trusted = true};
	size_t n = items_of("so", items);

	in.now_ns = items[0].end_ns + 2 * D - 1;
	ck_assert_uint_eq(varve_retention_plan(&policy, &in, items, n), 0);
	in.now_ns++;
	ck_assert_uint_eq(varve_retention_plan(&policy, &in, items, n), 1);
	policy = policy_of("max-size=1G\nkeep-min=2d");
	ck_assert_uint_eq(varve_retention_plan(&policy, &in, items, n), 1);
	in.now_ns--;
	ck_assert_uint_eq(varve_retention_plan(&policy, &in, items, n), 0);
}
END_TEST

START_TEST(large_numbers)
{
	struct varve_retention_item items[ITEMS_MAX];
	struct varve_policy policy = policy_of("keep=292y\nmax-size=1G\nmin-free=1G");
	struct varve_retention_input in = {.now_ns = INT64_MAX - 1,
					   .time_trusted = true,
					   .meta_bytes = UINT64_MAX,
					   .volume_bytes = UINT64_MAX,
					   .free_bytes = UINT64_MAX};
	size_t n = items_of("sso", items);

	items[0].allocated = items[1].allocated = UINT64_MAX;
	items[1].end_ns = INT64_MAX - 1;
	ck_assert_uint_eq(varve_retention_plan(&policy, &in, items, n), 1);
	ck_assert_int_eq(items[0].cause, VARVE_CAUSE_MAX_SIZE);
	ck_assert_int_eq(items[1].cause, VARVE_CAUSE_NONE);
}
END_TEST

START_TEST(names)
{
	static const char *const causes[] = {"none",        "keep",     "max-size",
					     "max-buckets", "min-free", "hand"};
	static const char *const states[] = {"open", "closing", "sealed", "dropped"};

	for (size_t i = 0; i < N(causes); i++)
		ck_assert_str_eq(varve_cause_name((enum varve_drop_cause)i), causes[i]);
	for (size_t i = 0; i < N(states); i++)
		ck_assert_str_eq(varve_bucket_state_name((enum varve_bucket_state)i), states[i]);
}
END_TEST

/* -- The rules restated without thought for cost: one victim at a time, all worked out anew -- */

struct naive {
	const struct varve_policy *policy;
	const struct varve_retention_input *in;
	const struct varve_retention_item *items;
	size_t n;
	enum varve_drop_cause gone[ITEMS_MAX];
};

static bool naive_there(const struct naive *v, size_t i)
{
	return v->gone[i] == VARVE_CAUSE_NONE && v->items[i].state != VARVE_BUCKET_DROPPED;
}

static bool naive_takeable(const struct naive *v, size_t i, enum varve_bucket_state state)
{
	const struct varve_retention_item *it = &v->items[i];

	return naive_there(v, i) && !it->held && it->state == state &&
	       (v->policy->keep_min_ns == 0 ||
		v->in->now_ns - it->end_ns >= v->policy->keep_min_ns);
}

static int naive_oldest(const struct naive *v)
{
	for (size_t i = 0; i < v->n; i++) {
		if (naive_takeable(v, i, VARVE_BUCKET_SEALED))
			return (int)i;
	}
	for (size_t i = 0; i < v->n; i++) {
		if (naive_takeable(v, i, VARVE_BUCKET_CLOSING))
			return (int)i;
	}
	return -1;
}

static int naive_aged(const struct naive *v)
{
	for (size_t i = 0; i < v->n; i++) {
		if ((naive_takeable(v, i, VARVE_BUCKET_SEALED) ||
		     naive_takeable(v, i, VARVE_BUCKET_CLOSING)) &&
		    v->in->now_ns - v->items[i].end_ns >= v->policy->keep_ns)
			return (int)i;
	}
	return -1;
}

static enum varve_drop_cause naive_broken(const struct naive *v)
{
	uint64_t used = v->in->meta_bytes, available = v->in->free_bytes;
	const struct varve_policy *p = v->policy;
	uint64_t need = p->min_free_bytes;
	size_t there = 0;

	if (p->min_free_fraction > 0)
		need = (uint64_t)(p->min_free_fraction * (double)v->in->volume_bytes);
	for (size_t i = 0; i < v->n; i++) {
		used += naive_there(v, i) ? v->items[i].allocated : 0;
		there += naive_there(v, i);
		available += v->gone[i] != VARVE_CAUSE_NONE ? v->items[i].allocated : 0;
	}
	if (p->max_size && used > p->max_size)
		return VARVE_CAUSE_MAX_SIZE;
	if (v->in->time_trusted && p->max_buckets && there > p->max_buckets)
		return VARVE_CAUSE_MAX_BUCKETS;
	if (available < need)
		return VARVE_CAUSE_MIN_FREE;
	return VARVE_CAUSE_NONE;
}

static size_t naive_plan(struct naive *v)
{
	size_t taken = 0;

	for (;;) {
		int victim = v->policy->keep_ns && v->in->time_trusted ? naive_aged(v) : -1;
		enum varve_drop_cause cause = VARVE_CAUSE_KEEP;

		if (victim < 0) {
			cause = naive_broken(v);
			victim = cause == VARVE_CAUSE_NONE ? -1 : naive_oldest(v);
		}
		if (victim < 0)
			return taken;
		v->gone[victim] = cause;
		taken++;
	}
}

static uint64_t any(uint64_t n)
{
	return (uint64_t)random() % n;
}

static void random_items(struct varve_retention_item *items, size_t n)
{
	int64_t end = NOW + D - (int64_t)any(5) * D;

	for (size_t i = n; i-- > 0; end -= (int64_t)(1 + any(3)) * D / 2)
		items[i] = (struct varve_retention_item){
			.start_ns = end - D,
			.end_ns = end,
			.state = i == n - 1 && any(8) ? VARVE_BUCKET_OPEN
				 : any(4)             ? VARVE_BUCKET_SEALED
				 : any(3)             ? VARVE_BUCKET_CLOSING
						      : VARVE_BUCKET_DROPPED,
			.held = any(5) == 0,
			.allocated = any(21) * G / 2,
		};
}

START_TEST(against_naive)
{
	static const char *const shares[] = {"off", "5%", "12.5%", "50%", "40G", "99%"};

	srandom(4);
	for (int round = 0; round < 200000; round += T_ONE_IN(10)) {
		struct varve_retention_item items[ITEMS_MAX];
		struct varve_policy policy = {0};
		struct varve_retention_input in = {
			.now_ns = NOW,
			.time_trusted = any(4) != 0,
			.meta_bytes = any(20) * G,
			.volume_bytes = 200 * G,
			.free_bytes = any(200) * G,
		};
		struct naive v = {&policy, &in, items, any(ITEMS_MAX + 1), {VARVE_CAUSE_NONE}};
		size_t want, got;

		policy.keep_ns = any(2) ? (int64_t)any(16) * D / 2 : 0;
		policy.keep_min_ns = any(2) ? (int64_t)any(16) * D / 2 : 0;
		policy.max_size = any(2) ? any(100) * G : 0;
		policy.max_buckets = any(2) ? (uint32_t)any(12) : 0;
		ck_assert_int_eq(
			varve_policy_set(&policy, "min-free", shares[any(N(shares))], NULL), 0);
		random_items(items, v.n);
		want = naive_plan(&v);
		got = varve_retention_plan(&policy, &in, items, v.n);
		ck_assert_uint_eq(got, want);
		for (size_t i = 0; i < v.n; i++) {
			ck_assert_msg(items[i].cause == v.gone[i], "round %d, item %zu: %s, not %s",
				      round, i, varve_cause_name(items[i].cause),
				      varve_cause_name(v.gone[i]));
			if (items[i].cause != VARVE_CAUSE_NONE)
				ck_assert_int_le(items[i].when_ns, NOW);
		}
	}
}
END_TEST

T_MAIN("retention", 60)
{
	tcase_add_loop_test(tc, plan, 0, (int)N(plans));
	tcase_add_test(tc, when);
	tcase_add_test(tc, to_the_nanosecond);
	tcase_add_test(tc, large_numbers);
	tcase_add_test(tc, names);
	tcase_add_test(tc, against_naive);
}
