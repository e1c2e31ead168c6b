/* The records in meta/ at open: the clock's mark and the counter of file numbers. */
#include "store/recover.h"

#include <errno.h>
#include <fcntl.h>

#include "base/bytes.h"
#include "base/log.h"

/* -- the counter -- */

/* What is given out beyond the highest number that is seen when the counter is lost: nobody can
 * have taken so many that left no trace. */
#define LOST_MARGIN (UINT64_C(1) << 32)

struct highest {
	struct varve_store *s;
	uint64_t top;
};

static void see(struct highest *h, uint64_t ino)
{
	if (ino > h->top)
		h->top = ino;
}

static void see_segments(struct highest *h, const char *bucket)
{
	struct varve_bucket *b = varve_bucket_new(bucket, 0, 0, 0);

	if (!b)
		return;
	(void)varve_sealed_ready(h->s, b);
	for (uint32_t t = 0; t < b->n_tabs; t++) {
		struct varve_segment *seg;
		struct varve_member m;

		if (varve_sealed_segment(h->s, b, t, &seg) < 0)
			continue;
		for (uint32_t k = 0; k < varve_index_count(varve_segment_index(seg)); k++) {
			varve_index_member(varve_segment_index(seg), k, &m);
			see(h, m.ino);
		}
		varve_segment_unref(seg);
	}
	varve_bucket_unref(h->s, b);
}

static int see_sealed(void *ctx, int dir_fd, const char *name, const struct stat *st)
{
	struct highest *h = ctx;
	struct varve_bucket_facts facts;

	if (!S_ISDIR(st->st_mode) || varve_bucket_facts(h->s, dir_fd, name, &facts) < 0)
		return 0;
	see(h, facts.ino);
	see_segments(h, name);
	return 0;
}

/* Parts, directories and buckets that are not sealed: what is noted on them. */
static int see_noted(void *ctx, int dir_fd, const char *name, const struct stat *st)
{
	struct highest *h = ctx;
	struct varve_bucket_facts facts;
	uint64_t ino;

	if (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode)) {
		cleanup_close int fd =
			varve_openat(dir_fd, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0);

		if (fd >= 0 && varve_ino_read_xattr(fd, &ino) == 0)
			see(h, ino);
	}
	if (!S_ISDIR(st->st_mode))
		return 0;
	if (varve_bucket_facts(h->s, dir_fd, name, &facts) == 0)
		see(h, facts.ino);
	return varve_each_entry(dir_fd, name, see_noted, h);
}

static uint64_t highest_seen(struct varve_store *s)
{
	struct highest h = {.s = s, .top = s->serial_base + s->serial_n};
	const int noted[] = {s->open_fd, s->tree_fd, s->staging_fd, s->trash_fd};

	(void)varve_each_entry(s->sealed_fd, ".", see_sealed, &h);
	for (size_t i = 0; i < sizeof(noted) / sizeof(*noted); i++)
		(void)varve_each_entry(noted[i], ".", see_noted, &h);
	return h.top < VARVE_FIRST_INO ? VARVE_FIRST_INO : h.top;
}

static int one_entry(void *ctx, int dir_fd, const char *name, const struct stat *st)
{
	(void)ctx;
	(void)dir_fd;
	(void)name;
	(void)st;
	return 1;
}

static bool holds_anything(struct varve_store *s)
{
	const int fds[] = {s->sealed_fd, s->open_fd, s->tree_fd, s->staging_fd, s->trash_fd};

	for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
		if (varve_each_entry(fds[i], ".", one_entry, NULL) != 0)
			return true;
	return false;
}

int varve_recover_counter(struct varve_store *s, struct varve_err *err)
{
	unsigned char b[8];
	size_t len = sizeof(b);
	struct stat st;
	bool fresh = fstatat(s->meta_fd, "ino", &st, AT_SYMLINK_NOFOLLOW) < 0;
	uint64_t top = VARVE_FIRST_INO;
	int r = varve_slots_open(s->meta_fd, "ino", "VARVEINO", sizeof(b), &s->ino_slots, err);

	if (r < 0)
		return r;
	r = varve_slots_read(s->ino_slots, b, &len);
	if (r < 0 && r != -ENOENT && r != -EBADMSG)
		return varve_err_wrap(err, r, "meta/ino");
	if (r == 0 && len == sizeof(b)) {
		top = varve_get_le64(b);
	} else if (!fresh || holds_anything(s)) {
		top = highest_seen(s) + LOST_MARGIN;
		varve_warning("'meta/ino' is lost: file numbers go on at %llu",
			      (unsigned long long)top);
	}
	atomic_store(&s->next_ino, top);
	atomic_store(&s->reserved_ino, top);
	return varve_ino_ready(s);
}

/* -- the clock -- */

#define CLOCK_RECORD_BYTES 32

int varve_recover_clock(struct varve_store *s, int64_t *ret_start, struct varve_err *err)
{
	unsigned char b[CLOCK_RECORD_BYTES];
	size_t len = sizeof(b);
	int64_t mark = 0;
	int r = varve_slots_open(s->meta_fd, "clock", "VARVECLK", sizeof(b), &s->clock_slots, err);

	*ret_start = INT64_MIN;
	if (r < 0)
		return r;
	r = varve_slots_read(s->clock_slots, b, &len);
	if (r == 0 && len == sizeof(b)) {
		mark = (int64_t)varve_get_le64(b);
		*ret_start = (int64_t)varve_get_le64(b + 8);
		s->serial_base = varve_get_le64(b + 16);
		s->serial_n = varve_get_le64(b + 24);
	} else if (r == -EBADMSG) {
		varve_warning("'meta/clock' is damaged: the wall clock is believed as it is");
	} else if (r < 0 && r != -ENOENT) {
		return varve_err_wrap(err, r, "meta/clock");
	}
	varve_timekeeper_start(&s->time, mark, s->policy.clock_trust_ns,
			       varve_clock_realtime(s->clock), varve_clock_boottime(s->clock),
			       s->clock->synchronised(s->clock->ctx));
	if (s->time.state == VARVE_TIME_UNTRUSTED)
		varve_warning(
			"the clock is far ahead of when this store was last used and is not "
			"believed "
			"yet: nothing is cut and nothing expires; 'varve clock accept' ends that");
	else if (s->time.state == VARVE_TIME_BEHIND)
		varve_warning(
			"the clock is behind when this store was last used: the open bucket stays "
			"until it has caught up");
	return 0;
}
