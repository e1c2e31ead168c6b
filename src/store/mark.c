#include "store/mark.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sync.h"

struct varve_mark {
	atomic_uint refs;
	atomic_uint_fast64_t state; /* twice the offset, plus one while it is pending: changes once, in one go */
	pthread_mutex_t lock; /* "mark": what follows, and the settling */
	uint64_t seen;	      /* up to here there is no newline */
};

struct varve_mark *varve_mark_new(uint64_t at, bool pending)
{
	struct varve_mark *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	atomic_init(&m->refs, 1);
	atomic_init(&m->state, at << 1 | pending);
	m->seen = at;
	(void)pthread_mutex_init(&m->lock, NULL);
	return m;
}

struct varve_mark *varve_mark_ref(struct varve_mark *m)
{
	(void)atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
	return m;
}

void varve_mark_unref(struct varve_mark *m)
{
	if (m && atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) == 1) {
		(void)pthread_mutex_destroy(&m->lock);
		free(m);
	}
}

static void settle_at(struct varve_mark *m, uint64_t at)
{
	atomic_store(&m->state, at << 1);
}

static bool is_pending(const struct varve_mark *m)
{
	return atomic_load(&m->state) & 1;
}

/* Looks at what came since the last time; lock held. */
static void look(struct varve_mark *m, int fd)
{
	const uint64_t limit = (atomic_load(&m->state) >> 1) + VARVE_LINE_MAX;
	char buf[4096];

	while (m->seen < limit) {
		size_t want = limit - m->seen < sizeof(buf) ? (size_t)(limit - m->seen) : sizeof(buf);
		ssize_t n = pread(fd, buf, want, (off_t)m->seen);
		const char *nl;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		nl = memchr(buf, '\n', (size_t)n);
		if (nl) {
			settle_at(m, m->seen + (uint64_t)(nl - buf) + 1);
			return;
		}
		m->seen += (uint64_t)n;
	}
	settle_at(m, limit);
}

uint64_t varve_mark_now(struct varve_mark *m, int fd, bool *ret_pending)
{
	uint64_t state = atomic_load(&m->state), now = state >> 1;
	bool pending = state & 1;

	if (pending) {
		guard(&m->lock);
		if (is_pending(m))
			look(m, fd);
		pending = is_pending(m);
		now = pending ? m->seen : atomic_load(&m->state) >> 1;
	}
	if (ret_pending)
		*ret_pending = pending;
	return now;
}

void varve_mark_settle(struct varve_mark *m, int fd)
{
	guard(&m->lock);
	if (is_pending(m) && fd >= 0)
		look(m, fd);
	if (is_pending(m))
		settle_at(m, m->seen);
}

uint64_t varve_mark_at(struct varve_mark *m, bool *ret_pending)
{
	uint64_t state = atomic_load(&m->state);

	*ret_pending = state & 1;
	return state >> 1;
}
