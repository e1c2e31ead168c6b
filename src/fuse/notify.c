#include "fuse/notify.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/sync.h"
#include "fuse/compat.h"
#include "store/view.h"
#include "store/store.h"

#define QUEUE_MAX (1u << 18)
#define AROUND_MAX 8

struct message {
	struct message *next;
	uint64_t id; /* the parent's, when there is a name */
	bool named;
	bool around; /* not gone: to be kept; by fh, around off */
	uint64_t fh, off;
	char name[]; /* NUL-terminated */
};

struct varve_notify {
	struct varve_store *store; /* immutable */
	/* -- set by start, then immutable -- */
	struct fuse_session *se;
	pthread_t thread;
	/* -- protected by lock -- */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct message *first, **last; /* the queue */
	unsigned n_queued;
	unsigned n_around; /* of them */
	bool started, stop;
	bool lost; /* it was logged that messages were lost */
};

int varve_notify_new(struct varve_store *store, struct varve_notify **ret)
{
	struct varve_notify *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	n->store = store;
	n->last = &n->first;
	(void)pthread_mutex_init(&n->lock, NULL);
	(void)pthread_cond_init(&n->wake, NULL);
	*ret = n;
	return 0;
}

/* The kernel may wait meanwhile for pages that a read waits for: the view holds nothing that a read
 * could need. */
static int give_around(struct varve_notify *n, const struct message *m)
{
	struct fuse_bufvec buf = FUSE_BUFVEC_INIT(0);
	struct varve_view view;
	uint64_t from;
	int r;

	if (varve_store_view_around(n->store, m->fh, m->off, &view, &from) < 0)
		return 0;
	buf.buf[0].mem = view.piece[0].iov_base;
	buf.buf[0].size = view.piece[0].iov_len;
	r = fuse_lowlevel_notify_store(n->se, m->id, (off_t)from, &buf, 0);
	varve_view_done(&view);
	return r;
}

static void tell_kernel(struct varve_notify *n, const struct message *m)
{
	struct fuse_session *se = n->se;
	int r;

	if (m->around)
		r = give_around(n, m);
	else if (m->named)
		r = fuse_lowlevel_notify_inval_entry(se, m->id, m->name, strlen(m->name));
	else
		r = fuse_lowlevel_notify_inval_inode(se, m->id, 0, 0);
	/* ENOENT: it has nothing cached of it. ENODEV, ENOTCONN: the mount is going. */
	if (r < 0 && r != -ENOENT && r != -ENODEV && r != -ENOTCONN)
		varve_debug("invalidating %llu '%s': %s", (unsigned long long)m->id, m->name,
			    strerror(-r));
}

static void *notify_thread(void *arg)
{
	struct varve_notify *n = arg;

	(void)pthread_mutex_lock(&n->lock);
	while (!n->stop) {
		struct message *m = n->first;

		if (!m) {
			(void)pthread_cond_wait(&n->wake, &n->lock);
			continue;
		}
		n->first = m->next;
		if (!n->first)
			n->last = &n->first;
		n->n_queued--;
		n->n_around -= m->around;
		(void)pthread_mutex_unlock(&n->lock);
		tell_kernel(n, m);
		free(m);
		(void)pthread_mutex_lock(&n->lock);
	}
	(void)pthread_mutex_unlock(&n->lock);
	return NULL;
}

int varve_notify_start(struct varve_notify *n, struct fuse_session *se, struct varve_err *err)
{
	int r;

	n->se = se;
	r = -pthread_create(&n->thread, NULL, notify_thread, n);
	if (r < 0)
		return varve_err_wrap(err, r, "starting the notify thread");
	(void)pthread_mutex_lock(&n->lock);
	n->started = true;
	(void)pthread_mutex_unlock(&n->lock);
	return 0;
}

/* Takes m over; NULL: there was no memory for it. */
static void enqueue(struct varve_notify *n, struct message *m)
{
	bool warn = false;

	(void)pthread_mutex_lock(&n->lock);
	if (m && !n->stop && n->n_queued < QUEUE_MAX) {
		*n->last = m;
		n->last = &m->next;
		n->n_queued++;
		m = NULL;
		(void)pthread_cond_signal(&n->wake);
	} else if (!n->stop) {
		warn = !n->lost;
		n->lost = true;
	}
	(void)pthread_mutex_unlock(&n->lock);
	free(m);
	if (warn)
		varve_warning("too many names changed at once: some may be seen a while longer");
}

void varve_notify_entry_gone(struct varve_notify *n, uint64_t parent_id, const char *name)
{
	size_t size = strlen(name) + 1;
	struct message *m = calloc(1, sizeof(*m) + size);

	if (m) {
		m->id = parent_id;
		m->named = true;
		memcpy(m->name, name, size);
	}
	enqueue(n, m);
}

void varve_notify_inode_changed(struct varve_notify *n, uint64_t id)
{
	struct message *m = calloc(1, sizeof(*m) + 1);

	if (m)
		m->id = id;
	enqueue(n, m);
}

void varve_notify_read(struct varve_notify *n, uint64_t id, uint64_t fh, uint64_t off)
{
	struct message *m = calloc(1, sizeof(*m) + 1);

	if (!m)
		return;
	*m = (struct message){.id = id, .around = true, .fh = fh, .off = off};
	guard(&n->lock);
	if (n->stop || n->n_around == AROUND_MAX || n->n_queued >= QUEUE_MAX) {
		free(m);
		return;
	}
	*n->last = m;
	n->last = &m->next;
	n->n_queued++;
	n->n_around++;
	(void)pthread_cond_signal(&n->wake);
}

void varve_notify_stop(struct varve_notify *n)
{
	bool join;

	(void)pthread_mutex_lock(&n->lock);
	n->stop = true;
	join = n->started;
	n->started = false;
	(void)pthread_cond_signal(&n->wake);
	(void)pthread_mutex_unlock(&n->lock);
	if (join)
		(void)pthread_join(n->thread, NULL);
}

void varve_notify_free(struct varve_notify *n)
{
	struct message *next;

	if (!n)
		return;
	for (struct message *m = n->first; m; m = next) {
		next = m->next;
		free(m);
	}
	(void)pthread_cond_destroy(&n->wake);
	(void)pthread_mutex_destroy(&n->lock);
	free(n);
}
