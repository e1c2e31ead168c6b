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
	atomic_bool pending; /* changes once, to false, after at */
	atomic_uint_fast64_t at;
	pthread_mutex_t lock; /* "mark": what follows, and the settling */
	uint64_t seen;	      /* up to here there is no newline */
};

struct varve_mark *varve_mark_new(uint64_t at, bool pending)
{
	struct varve_mark *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	atomic_init(&m->refs, 1);
	atomic_init(&m->pending, pending);
	atomic_init(&m->at, at);
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
	atomic_store(&m->at, at);
	atomic_store(&m->pending, false);
}

/* Looks at what came since the last time; lock held. */
static void look(struct varve_mark *m, int fd)
{
	const uint64_t limit = m->at + VARVE_LINE_MAX;
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
	bool pending = atomic_load(&m->pending);
	uint64_t now;

	if (!pending) {
		now = atomic_load(&m->at);
	} else {
		guard(&m->lock);
		if (m->pending)
			look(m, fd);
		pending = m->pending;
		now = pending ? m->seen : m->at;
	}
	if (ret_pending)
		*ret_pending = pending;
	return now;
}

void varve_mark_settle(struct varve_mark *m, int fd)
{
	guard(&m->lock);
	if (m->pending && fd >= 0)
		look(m, fd);
	if (m->pending)
		settle_at(m, m->seen);
}

uint64_t varve_mark_at(struct varve_mark *m, bool *ret_pending)
{
	/* In this order: a mark that has been settled by then is read as it is. */
	*ret_pending = atomic_load(&m->pending);
	return atomic_load(&m->at);
}
