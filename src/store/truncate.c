/* Truncation and allocation of files. */
#include "store/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>

#include "base/sys.h"
#include "store/carry.h"
#include "store/content.h"
#include "store/opened.h"
#include "store/part.h"

#define PUNCH_STEP (UINT64_C(64) << 20)

/* A carried file begins anew: its head moves to where the part ends. What it leaves behind, from *ret_from to *ret_upto,
 * is nobody's any more; nothing, while its head is pending. */
static int move_head(struct varve_store *s, struct varve_node *f, struct varve_part *part, uint64_t *ret_from,
		     uint64_t *ret_upto)
{
	struct varve_content c;
	struct varve_mark *mark;

	guard(&f->lock);
	varve_content_now(f, part, &c);
	*ret_from = *ret_upto = c.head;
	/* What is there belongs to the older bucket still; or it is empty as it is, and has not begun by that. */
	if (c.pending || c.end == c.head)
		return 0;
	if (!c.open_ended)
		return -EPERM;
	mark = varve_mark_new(c.end, false);
	if (!mark)
		return -ENOMEM;
	guard(&s->ns);
	varve_mark_unref(f->native->head);
	f->native->head = mark;
	f->native->begun = true;
	s->ranges_wanted++;
	*ret_upto = c.end;
	return 0;
}

static int truncate_carried(struct varve_store *s, struct varve_node *f, struct varve_part *part,
			    uint64_t size)
{
	uint64_t from, upto;
	int r;

	if (size != 0)
		return size == varve_content_size(f, part) ? 0 : -EPERM;
	varve_pause_point("truncate.carried");
	r = move_head(s, f, part, &from, &upto);
	if (r == 0)
		r = varve_carry_save(s);
	/* Nobody's any more; in steps, since others append meanwhile. */
	while (r == 0 && from < upto) {
		uint64_t len = upto - from < PUNCH_STEP ? upto - from : PUNCH_STEP;

		if (fallocate(part->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
			      (off_t)len) < 0)
			break;
		from += len;
	}
	return r;
}

/* -EAGAIN: a boundary was quicker, and others have a share in the part. */
static int truncate_part(struct varve_store *s, struct varve_node *f, struct varve_part *part,
			 uint64_t size)
{
	struct stat st;
	int r = 0;

	varve_pause_point("truncate.part");
	{
		guard(&f->lock);
		struct varve_content c;
		uint64_t old;

		if (f->native && (f->native->head || f->native->end))
			return -EAGAIN;
		varve_content_now(f, part, &c);
		old = c.end;
		if (f->bucket && size != 0 && size != old)
			return -EPERM;
		if (size == old && f->bucket)
			return 0;
		if (ftruncate(part->fd, (off_t)size) < 0)
			return -errno;
		f->size = size;
		f->last = size ? -1 : '\n';
		if (fstat(part->fd, &st) < 0)
			r = -errno;
		else if (!f->nameless)
			varve_file_count(s, f, (uint64_t)st.st_blocks * 512);
	}
	guard(&s->ns);
	if (r == 0) {
		varve_file_stat_from(f, &st, &f->attr);
		f->attr_seq++;
	}
	return r;
}

/* f has its mark, and the new bucket is not there yet. */
static bool is_between(struct varve_store *s, const struct varve_node *f)
{
	guard(&s->ns);
	return f->native && f->native->end && f->bucket == s->current && !f->succ && f->linked;
}

static bool is_opened(struct varve_store *s, const struct varve_node *f)
{
	guard(&s->ns);
	return f->linked && (f->parent->opened || (f->native && f->native->opened));
}

static int truncate_once(struct varve_store *s, struct varve_node *f, uint64_t size)
{
	struct varve_part *part;
	struct varve_bucket *b;
	uint64_t now;
	bool current;
	/* Before the gate: it may have to wait for a rename. */
	int r = varve_file_part(s, f, &part);

	if (r == -ENODATA || r == -ESTALE)
		return size == 0 ? 0 : -EPERM;
	if (r < 0)
		return r;
	/* A boundary is passing: what is truncated is what the name means behind it. */
	if (is_between(s, f)) {
		const struct timespec step = {.tv_nsec = 1000000};

		varve_part_unref(part);
		(void)nanosleep(&step, NULL);
		return -EAGAIN;
	}
	{
		guard(&s->ns);
		b = f->bucket;
		current = b == s->current;
	}
	now = varve_content_size(f, part);
	/* What held something is there, also when it holds nothing. */
	if (b && current && size == 0 && now != 0 && is_opened(s, f)) {
		guard(&s->mutate);
		r = varve_opened_mean_used(s, f);
	}
	if (r < 0) {
		varve_part_unref(part);
		return r;
	}
	if (b && s->policy.worm && size == 0 && now != 0) {
		r = -EPERM;
	} else if (b && !current && !f->nameless && size != now) {
		/* A closing bucket takes late data, but gives nothing back. */
		r = -EPERM;
	} else if (b) {
		(void)pthread_rwlock_rdlock(&b->gate);
		if (b->shut && !f->nameless)
			r = -EROFS;
		else if (f->native && (f->native->head || f->native->end))
			r = f->native->end ? size == now ? 0 : -EPERM
					   : truncate_carried(s, f, part, size);
		else
			r = truncate_part(s, f, part, size);
		(void)pthread_rwlock_unlock(&b->gate);
	} else {
		r = truncate_part(s, f, part, size);
	}
	varve_part_unref(part);
	return r;
}

int varve_file_truncate(struct varve_store *s, struct varve_node *f, uint64_t size)
{
	int r;

	do
		r = truncate_once(s, f, size);
	while (r == -EAGAIN);
	return r;
}

int varve_file_truncate_newest(struct varve_store *s, struct varve_node *f, uint64_t size)
{
	struct varve_node *n;
	bool moved;
	int r;

	do {
		{
			guard(&s->ns);
			n = varve_node_ref(varve_file_newest(f));
		}
		r = n->kind == VARVE_KIND_FILE ? varve_file_truncate(s, n, size) : -ESTALE;
		guard(&s->ns);
		moved = varve_file_newest(f) != n;
		varve_node_unref(s, n);
	} while (r < 0 && moved);
	return r;
}

int varve_store_fallocate(struct varve_store *s, uint64_t fh, int mode, uint64_t off, uint64_t len)
{
	struct varve_handle *h = varve_handle_get(s, fh);
	struct varve_node *f;
	struct varve_part *part = NULL;
	struct stat st;
	int r;

	if (!h)
		return -EBADF;
	guard(&h->lock);
	{
		/* The kernel's writer is wherever its part has got to. */
		guard(&s->ns);
		f = h->kernel_part ? varve_file_newest(h->file) : h->file;
	}
	r = !h->writable ? -EBADF : varve_file_part(s, f, &part);
	if (r == -ENODATA || r == 0) {
		uint64_t size = part && fstat(part->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
		bool pending;

		/* What is allocated beyond the end is beyond the end for all who share the part. */
		if (f->native && f->native->head)
			off += varve_mark_at(f->native->head, &pending);

		r = 0;
		if (f->bucket && mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) && off >= size)
			mode = -1; /* there is nothing to be taken away */
		else if (f->bucket && mode & ~FALLOC_FL_KEEP_SIZE)
			r = -EPERM;
		else if (f->bucket && !(mode & FALLOC_FL_KEEP_SIZE) && off + len > size)
			r = -EPERM;
		else if (mode >= 0 && part)
			r = varve_part_reserve(part, mode, (off_t)off, (off_t)len);
		if (r == 0 && part && !f->bucket && fstat(part->fd, &st) == 0) {
			guard(&f->lock);
			if (!f->nameless)
				varve_file_count(s, f, (uint64_t)st.st_blocks * 512);
			f->size = (uint64_t)st.st_size;
		}
	}
	varve_part_unref(part);
	varve_handle_put(s, h);
	return r;
}
