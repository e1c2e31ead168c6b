#include "store/retention.h"

const char *varve_cause_name(enum varve_drop_cause cause)
{
	switch (cause) {
	case VARVE_CAUSE_NONE:
		return "none";
	case VARVE_CAUSE_KEEP:
		return "keep";
	case VARVE_CAUSE_MAX_SIZE:
		return "max-size";
	case VARVE_CAUSE_MAX_BUCKETS:
		return "max-buckets";
	case VARVE_CAUSE_MIN_FREE:
		return "min-free";
	case VARVE_CAUSE_HAND:
		return "hand";
	case VARVE_CAUSE_SEALED:
		return "sealed";
	}
	return "?";
}

const char *varve_bucket_state_name(enum varve_bucket_state state)
{
	switch (state) {
	case VARVE_BUCKET_OPEN:
		return "open";
	case VARVE_BUCKET_CLOSING:
		return "closing";
	case VARVE_BUCKET_SEALED:
		return "sealed";
	case VARVE_BUCKET_DROPPED:
		return "dropped";
	}
	return "?";
}

/* What is being planned: the totals as they are once all that was taken so far is gone. */
struct plan {
	const struct varve_policy *policy;
	const struct varve_retention_input *in;
	struct varve_retention_item *items;
	size_t n;
	uint64_t used; /* with the metadata */
	uint64_t available;
	size_t buckets;
	size_t taken;
};

/* Sizes come from stat(2) of many files: a sum that is too large stays at the largest. */
static uint64_t add_capped(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static int64_t later(int64_t t, int64_t span)
{
	int64_t sum;

	return __builtin_add_overflow(t, span, &sum) ? INT64_MAX : sum;
}

/* When age alone would take the item; INT64_MAX: never. */
static int64_t due(const struct varve_policy *policy, const struct varve_retention_item *it)
{
	if (policy->keep_ns == 0 || it->held || it->state == VARVE_BUCKET_DROPPED)
		return INT64_MAX;
	return later(it->end_ns,
		     policy->keep_ns > policy->keep_min_ns ? policy->keep_ns : policy->keep_min_ns);
}

static bool may_go(const struct plan *p, const struct varve_retention_item *it)
{
	if (it->cause != VARVE_CAUSE_NONE || it->held)
		return false;
	if (it->state != VARVE_BUCKET_SEALED && it->state != VARVE_BUCKET_CLOSING)
		return false;
	return p->policy->keep_min_ns == 0 ||
	       later(it->end_ns, p->policy->keep_min_ns) <= p->in->now_ns;
}

static void take(struct plan *p, struct varve_retention_item *it, enum varve_drop_cause cause,
		 int64_t when_ns)
{
	it->cause = cause;
	it->when_ns = when_ns;
	p->used -= it->allocated < p->used ? it->allocated : p->used;
	p->available = add_capped(p->available, it->allocated);
	p->buckets--;
	p->taken++;
}

static void take_aged(struct plan *p)
{
	for (size_t i = 0; i < p->n; i++) {
		struct varve_retention_item *it = &p->items[i];

		if (may_go(p, it) && it->when_ns <= p->in->now_ns)
			take(p, it, VARVE_CAUSE_KEEP, it->when_ns);
	}
}

static bool too_large(const struct plan *p)
{
	return p->policy->max_size != 0 && p->used > p->policy->max_size;
}

static bool too_many(const struct plan *p)
{
	return p->policy->max_buckets != 0 && p->buckets > p->policy->max_buckets;
}

static bool too_little_free(const struct plan *p)
{
	if (p->policy->min_free_bytes != 0)
		return p->available < p->policy->min_free_bytes;
	return (double)p->available < p->policy->min_free_fraction * (double)p->in->volume_bytes;
}

/* Takes the oldest while the rule is broken, first of what is sealed, then of what is closing. */
static void take_while(struct plan *p, bool (*broken)(const struct plan *p),
		       enum varve_drop_cause cause)
{
	static const enum varve_bucket_state order[] = {VARVE_BUCKET_SEALED, VARVE_BUCKET_CLOSING};

	for (size_t s = 0; s < sizeof(order) / sizeof(order[0]); s++) {
		for (size_t i = 0; i < p->n && broken(p); i++) {
			if (p->items[i].state == order[s] && may_go(p, &p->items[i]))
				take(p, &p->items[i], cause, p->in->now_ns);
		}
	}
}

size_t varve_retention_plan(const struct varve_policy *policy,
			    const struct varve_retention_input *in,
			    struct varve_retention_item *items, size_t n)
{
	struct plan p = {
		.policy = policy,
		.in = in,
		.items = items,
		.n = n,
		.used = in->meta_bytes,
		.available = in->free_bytes,
	};

	for (size_t i = 0; i < n; i++) {
		items[i].cause = VARVE_CAUSE_NONE;
		items[i].when_ns = due(policy, &items[i]);
		if (items[i].state == VARVE_BUCKET_DROPPED)
			continue;
		p.used = add_capped(p.used, items[i].allocated);
		p.buckets++;
	}
	if (in->time_trusted)
		take_aged(&p);
	take_while(&p, too_large, VARVE_CAUSE_MAX_SIZE);
	if (in->time_trusted)
		take_while(&p, too_many, VARVE_CAUSE_MAX_BUCKETS);
	take_while(&p, too_little_free, VARVE_CAUSE_MIN_FREE);
	return p.taken;
}
