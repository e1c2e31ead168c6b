/* Retention's hand: what there is goes to store/retention, what that chooses is dropped. */
#include "store/core.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/log.h"
#include "store/part.h"
#include "store/trash.h"

/* So much free that nobody fills it before it is looked at again. */
#define PLENTY (UINT64_C(4) << 30)
#define ROOM_WAIT_S 5

static uint64_t meta_bytes(struct varve_store *s)
{
	struct stat st;
	uint64_t sum = atomic_load(&s->staging_allocated);

	if (fstatat(s->dirfd, "audit.jsonl", &st, 0) == 0)
		sum += (uint64_t)st.st_blocks * 512;
	if (fstatat(s->meta_fd, "ballast", &st, 0) == 0)
		sum += (uint64_t)st.st_blocks * 512;
	return sum;
}

/* What retention works on, buckets referenced. */
struct plan {
	struct varve_retention_input in;
	struct varve_retention_item *items;
	struct varve_bucket **buckets;
	size_t n;
};

static void plan_done(struct varve_store *s, struct plan *p)
{
	guard(&s->ns);
	for (size_t i = 0; i < p->n; i++)
		varve_bucket_unref(s, p->buckets[i]);
	free(p->items);
	free(p->buckets);
}

/* What a seal that is under way has written so far: either that or the parts will go, so it is no
 * reason to drop anything. */
static uint64_t sealing_bytes(struct varve_store *s)
{
	char tmp[VARVE_BUCKET_NAME_MAX + 8] = "";
	uint64_t bytes = 0;

	{
		guard(&s->ns);
		for (uint32_t i = 0; i < s->n_buckets; i++)
			if (s->buckets[i]->sealing)
				(void)snprintf(tmp, sizeof(tmp), ".%s.tmp", s->buckets[i]->name);
	}
	if (tmp[0])
		(void)!varve_tree_allocated(s->sealed_fd, tmp, &bytes);
	return bytes;
}

static int plan_make(struct varve_store *s, struct plan *p)
{
	struct statvfs vfs;

	if (fstatvfs(s->dirfd, &vfs) < 0)
		return -errno;
	p->in.meta_bytes = meta_bytes(s);
	p->in.volume_bytes = (uint64_t)vfs.f_blocks * vfs.f_frsize;
	p->in.free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize + atomic_load(&s->trash_allocated) +
			   sealing_bytes(s);
	guard(&s->ns);
	p->in.now_ns = varve_believed_now(s);
	p->in.time_trusted = s->time.state != VARVE_TIME_UNTRUSTED;
	p->items = calloc(s->n_buckets + 1, sizeof(*p->items));
	p->buckets = calloc(s->n_buckets + 1, sizeof(*p->buckets));
	if (!p->items || !p->buckets)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n_buckets; i++) {
		struct varve_bucket *b = s->buckets[i];

		p->buckets[p->n] = varve_bucket_ref(b);
		p->items[p->n++] = (struct varve_retention_item){
			.name = b->name, .start_ns = b->start_ns, .end_ns = b->end_ns,
			.state = b->state, .held = b->held || b->dropping,
			.allocated = varve_bucket_allocated(b)};
	}
	(void)varve_retention_plan(&s->policy, &p->in, p->items, p->n);
	return 0;
}

static uint64_t min_free(const struct varve_store *s, const struct plan *p)
{
	uint64_t want = s->policy.min_free_bytes;

	if (s->policy.min_free_fraction > 0)
		want = (uint64_t)(s->policy.min_free_fraction * (double)p->in.volume_bytes);
	return want;
}

/* When the volume runs short, what is in the trash goes first. */
static void watch_volume(struct varve_store *s, const struct plan *p)
{
	uint64_t trash = atomic_load(&s->trash_allocated);
	uint64_t left = p->in.free_bytes - trash;
	bool is_short = left < min_free(s, p);
	bool any = false;

	s->near_short = left < min_free(s, p) + min_free(s, p) / 2;
	varve_part_spare_reserve(left < PLENTY);

	for (size_t i = 0; i < p->n; i++)
		any = any || p->items[i].cause != VARVE_CAUSE_NONE;
	if (is_short && trash) {
		atomic_store(&s->purge, true);
		guard(&s->ns);
		(void)pthread_cond_signal(&s->wake_reaper);
	}
	if (is_short && !trash && !any && !s->short_logged) {
		s->short_logged = true;
		varve_warning("the volume runs short and policy leaves nothing to drop: writers will meet "
			      "'no space left'; free some room, or see 'varve retention'");
	}
	if (!is_short) {
		s->short_logged = false;
		(void)varve_ballast_make(s);
	}
}

static int64_t cutoff_of(const struct varve_store *s, const struct varve_retention_item *it,
			 int64_t now)
{
	return it->cause == VARVE_CAUSE_KEEP ? now - s->policy.keep_ns : it->end_ns;
}

int varve_retention_step(struct varve_store *s)
{
	struct plan p = {0};
	int r = plan_make(s, &p);

	for (size_t i = 0; r == 0 && i < p.n; i++) {
		struct varve_err err = {.msg = ""};
		int d;

		if (p.items[i].cause == VARVE_CAUSE_NONE)
			continue;
		d = varve_drop_bucket(s, p.buckets[i], p.items[i].cause, NULL,
				      cutoff_of(s, &p.items[i], p.in.now_ns), &err);
		if (d < 0 && d != -EBUSY && d != -ENOENT)
			varve_error("%s", err.msg);
	}
	if (r == 0)
		watch_volume(s, &p);
	plan_done(s, &p);
	return r;
}

/* Calls a seal off that is under way: what it has written goes, its parts stay. ns held. */
static bool give_back_seal(struct varve_store *s, const struct timespec *until)
{
	bool any = false;

	for (uint32_t i = 0; i < s->n_buckets; i++)
		any = any || s->buckets[i]->sealing;
	if (!any)
		return false;
	atomic_store(&s->cancel_seal, 1);
	(void)pthread_cond_timedwait(&s->sealed_one, &s->ns, until);
	return true;
}

bool varve_make_room(struct varve_store *s)
{
	struct timespec until;
	uint64_t asked;
	bool any;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ROOM_WAIT_S;
	guard(&s->ns);
	/* Nobody would look: a mount on a full disk waits for nothing. */
	if (!s->threads_run)
		return false;
	any = atomic_load(&s->trash_allocated) > 0;
	asked = ++s->room_asked;
	atomic_store(&s->purge, true);
	(void)pthread_cond_signal(&s->wake_keeper);
	(void)pthread_cond_signal(&s->wake_reaper);
	while (s->room_looked < asked && !s->stopping)
		if (pthread_cond_timedwait(&s->made_room, &s->ns, &until) == ETIMEDOUT)
			break;
	any = any || atomic_load(&s->trash_allocated) > 0;
	/* The reaper gives it back in a moment, and says so. */
	while (atomic_load(&s->trash_allocated) > 0 && !s->stopping)
		if (pthread_cond_timedwait(&s->made_room, &s->ns, &until) == ETIMEDOUT)
			break;
	if (!any)
		any = give_back_seal(s, &until);
	return any && !s->stopping;
}

/* What status shows of the plan, into the n buckets of st in the same order. */
void varve_retention_show(struct varve_store *s, struct varve_status *st)
{
	struct plan p = {0};

	if (plan_make(s, &p) == 0) {
		st->volume_bytes = p.in.volume_bytes;
		st->free_bytes = p.in.free_bytes;
		st->store_bytes += p.in.meta_bytes;
		for (unsigned i = 0, k = 0; i < st->n_buckets; i++) {
			while (k < p.n && strcmp(p.items[k].name, st->buckets[i].name) != 0)
				k++;
			if (k == p.n)
				break;
			st->buckets[i].goes_by = p.items[k].cause != VARVE_CAUSE_NONE
							 ? p.items[k].cause
						 : p.items[k].when_ns != INT64_MAX ? VARVE_CAUSE_KEEP
										   : VARVE_CAUSE_NONE;
			st->buckets[i].goes_ns = p.items[k].when_ns;
		}
	}
	plan_done(s, &p);
}

