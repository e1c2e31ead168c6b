/*
 * Reading and writing open files, and where a write goes when a boundary has passed.
 *
 * A handle that came by current/ writes to its file until the boundary gives that file a successor.
 * Then what completes an unfinished line (at most VARVE_LINE_MAX bytes, and only until the older
 * bucket's gate is shut) still goes to the older file, and the handle moves on with the rest.
 */
#include "store/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "store/carry.h"
#include "store/content.h"
#include "store/entry.h"
#include "store/native.h"
#include "store/part.h"

/* -- reading -- */

/* To the page cache a short answer is the file's end, or zeros: it gets all of what it asks for (and is
 * there), or an error, upon which it asks again page by page. A read(2) may be short before a damaged
 * frame; its next one gets the error. */
static ssize_t read_sealed(struct varve_segment *seg, uint32_t member, void *buf, size_t size,
			   uint64_t off, bool whole)
{
	size_t done = 0;

	do {
		ssize_t n = varve_segment_pread(seg, member, (char *)buf + done, size - done,
						off + done);

		if (n < 0 && (whole || !done))
			return n;
		if (n <= 0)
			break;
		done += (size_t)n;
	} while (whole && done < size);
	return (ssize_t)done;
}

ssize_t varve_store_read(struct varve_store *s, uint64_t fh, void *buf, size_t size, uint64_t off,
			 bool page_cache)
{
	struct varve_handle *h = varve_handle_get(s, fh);
	struct varve_part *part = NULL;
	struct varve_segment *seg = NULL;
	held_node f = {s, NULL};
	enum varve_kind kind = VARVE_KIND_FILE;
	uint32_t member = 0;
	ssize_t n = 0;

	if (!h)
		return -EBADF;
	if (h->is_dir) {
		n = -EISDIR;
	} else if (!h->readable) {
		n = -EBADF;
	} else {
		guard(&s->ns);
		if (h->seg) {
			seg = varve_segment_ref(h->seg);
			member = h->member;
		} else if (page_cache && h->file->bucket) {
			/* The page cache is not told of what is appended behind its back: it would
			 * give NULs. Callers of sendfile and splice fall back to read(2) on this. */
			n = -EINVAL;
		} else {
			f.n = varve_node_ref(h->file);
			kind = f.n->kind;
			member = f.n->member;
		}
	}
again:
	if (f.n && kind != VARVE_KIND_SEALED) {
		n = varve_file_part(s, f.n, &part);
		if (n == -ENODATA || n == -ENOENT) {
			/* It holds nothing yet; or it was sealed in this moment. */
			guard(&s->ns);
			kind = f.n->kind;
			member = f.n->member;
			n = n == -ENODATA || kind == VARVE_KIND_SEALED ? 0 : n;
		}
	}
	if (f.n && n == 0 && kind == VARVE_KIND_SEALED) {
		n = varve_sealed_segment(s, f.n->bucket, f.n->tab, &seg);
		if (n == -ESTALE) {
			/* Its bucket was dropped in this moment, and left the segment to the handle. */
			guard(&s->ns);
			seg = h->seg ? varve_segment_ref(h->seg) : NULL;
			n = seg ? 0 : n;
		}
	}
	if (n == 0 && seg)
		n = read_sealed(seg, member, buf, size, off, page_cache);
	if (n == 0 && part) {
		n = varve_content_read(f.n, part, buf, size, off);
		{
			/* Once its bucket is sealed a range is given back: what was read may have been a hole. */
			guard(&s->ns);
			kind = f.n->kind;
			member = f.n->member;
		}
		varve_part_unref(part);
		part = NULL;
		if (kind == VARVE_KIND_SEALED && n >= 0) {
			n = 0;
			goto again;
		}
	}
	varve_segment_unref(seg);
	varve_part_unref(part);
	varve_handle_put(s, h);
	return n;
}

/* The segment, referenced, and the member that the handle reads; NULL: it is not sealed. */
static struct varve_segment *sealed_of(struct varve_store *s, uint64_t fh, uint32_t *ret_member)
{
	struct varve_handle *h = varve_handle_get(s, fh);
	struct varve_segment *seg = NULL;

	if (!h)
		return NULL;
	if (!h->is_dir && h->readable) {
		guard(&s->ns);
		if (h->seg) {
			seg = varve_segment_ref(h->seg);
			*ret_member = h->member;
		}
	}
	varve_handle_put(s, h);
	return seg;
}

ssize_t varve_store_view(struct varve_store *s, uint64_t fh, size_t size, uint64_t off,
			 struct varve_view *ret)
{
	uint32_t member;
	struct varve_segment *seg = sealed_of(s, fh, &member);
	ssize_t n = seg ? varve_segment_view(seg, member, size, off, ret) : -EAGAIN;

	varve_segment_unref(seg);
	return n;
}

ssize_t varve_store_view_around(struct varve_store *s, uint64_t fh, uint64_t off,
				struct varve_view *ret, uint64_t *ret_off)
{
	uint32_t member;
	struct varve_segment *seg = sealed_of(s, fh, &member);
	ssize_t n = seg ? varve_segment_view_around(seg, member, off, ret, ret_off) : -EAGAIN;

	varve_segment_unref(seg);
	return n;
}

enum varve_read_cost varve_store_read_cost(struct varve_store *s, uint64_t fh, size_t size,
					   uint64_t off)
{
	struct varve_handle *h = varve_handle_get(s, fh);
	enum varve_read_cost cost = VARVE_READ_IN_MEMORY;
	struct varve_segment *seg = NULL;
	uint32_t member = 0;

	if (!h)
		return cost;
	if (!h->is_dir) {
		guard(&s->ns);
		if (h->seg) {
			seg = varve_segment_ref(h->seg);
			member = h->member;
		} else {
			cost = h->file->kind == VARVE_KIND_SEALED ? VARVE_READ_DECOMPRESSES
								   : VARVE_READ_FROM_DISK;
		}
	}
	if (seg && !varve_segment_ready(seg, member, size, off))
		cost = VARVE_READ_DECOMPRESSES;
	varve_segment_unref(seg);
	varve_handle_put(s, h);
	return cost;
}

/* -- writing -- */

#define ROOM_TRIES 4

/* What is sealed is durable, and what has no name or no bucket any more needs not be. */
static void prune_unsynced(struct varve_store *s, struct varve_handle *h)
{
	uint32_t n = 0;

	guard(&s->ns);
	for (uint32_t i = 0; i < h->n_unsynced; i++) {
		struct varve_node *f = h->unsynced[i];

		if (f->kind == VARVE_KIND_SEALED || f->nameless ||
		    f->bucket->state == VARVE_BUCKET_DROPPED)
			varve_node_unref(s, f);
		else
			h->unsynced[n++] = f;
	}
	h->n_unsynced = n;
}

/* Moves the handle to its file's successor; handle.lock held. */
static int move_on(struct varve_store *s, struct varve_handle *h)
{
	struct varve_node **unsynced = NULL;
	struct varve_node *old = h->file;
	struct varve_segment *seg;
	struct varve_part *part;
	struct stat st;
	uint32_t seq;
	bool have = false;

	prune_unsynced(s, h);
	if (h->dirty) {
		unsynced = realloc(h->unsynced, (h->n_unsynced + 1) * sizeof(*unsynced));
		if (!unsynced)
			return -ENOMEM;
		h->unsynced = unsynced;
	}
	{
		guard(&s->ns);
		part = old->part ? varve_part_ref(old->part) : NULL;
		seq = old->attr_seq;
	}
	if (part)
		have = fstat(part->fd, &st) == 0;
	varve_part_unref(part);
	{
		guard(&s->ns);
		part = varve_file_drop_handle(s, old, false, have ? &st : NULL, seq);
		h->file = varve_node_ref(old->succ);
		h->file->handles++;
		varve_file_end_chain(s, old);
		if (unsynced)
			unsynced[h->n_unsynced++] = old;
		else
			varve_node_unref(s, old);
		seg = h->seg;
		h->seg = NULL;
	}
	varve_part_unref(part);
	varve_segment_unref(seg);
	h->dirty = false;
	return 0;
}

/* How many of len bytes still belong to the line that was unfinished when f's bucket ended; 0: the
 * line is whole, or has had its measure. f->lock held. */
static size_t line_rest(struct varve_node *f, struct varve_part *part, const char *buf, size_t len)
{
	size_t room = f->late < VARVE_LINE_MAX ? VARVE_LINE_MAX - f->late : 0;
	const char *nl;

	if (f->size == 0 || varve_content_last(f, part) == '\n')
		return 0;
	if (len > room)
		len = room;
	nl = memchr(buf, '\n', len);
	return nl ? (size_t)(nl - buf) + 1 : len;
}

/* The bytes go to the part; file.lock held. */
static ssize_t append_to_part(struct varve_store *s, struct varve_node *f, struct varve_part *part,
			      const char *buf, size_t len)
{
	ssize_t n;

	/* Where the kernel writes too, only the part itself knows where it ends. */
	if (f->native && f->native->by_kernel)
		return varve_part_append(part, buf, len);
	n = varve_part_write(part, buf, len, f->size);
	if (n <= 0)
		return n;
	if (!f->nameless)
		varve_file_count(s, f, f->counted + varve_blocks_of(f->size + (uint64_t)n) -
					       varve_blocks_of(f->size));
	f->size += (uint64_t)n;
	f->last = (unsigned char)buf[n - 1];
	return n;
}

/* How much of buf goes to f itself; file.lock held. */
static size_t own_share(struct varve_store *s, struct varve_node *f, struct varve_part *part,
			bool rest_only, const char *buf, size_t len)
{
	/* Before the boundary, and in the moment between the mark and the new bucket: what comes behind the
	 * mark is the new one's. */
	if (!rest_only)
		return len;
	/* Its part goes on in the next bucket, and whoever writes goes on with it. */
	if (f->native && f->native->end)
		return 0;
	return s->policy.cut_byte ? 0 : line_rest(f, part, buf, len);
}

/* Appends under the bucket's gate; *ret_n: 0 and no error: the gate was shut, or nothing of the line
 * was left: find the way anew. */
static int append(struct varve_store *s, struct varve_node *f, struct varve_part *part, bool rest_only,
		  const char *buf, size_t len, size_t *ret_n)
{
	struct varve_bucket *b = f->bucket;
	ssize_t n = 0;

	*ret_n = 0;
	(void)pthread_rwlock_rdlock(&b->gate);
	if (!b->shut || f->nameless) {
		guard(&f->lock);
		len = own_share(s, f, part, rest_only, buf, len);
		n = len ? append_to_part(s, f, part, buf, len) : 0;
		if (n > 0 && rest_only)
			f->late += (uint32_t)n;
	}
	(void)pthread_rwlock_unlock(&b->gate);
	if (n < 0)
		return (int)n;
	*ret_n = (size_t)n;
	return 0;
}

/* The same by the dated path: behind what a writer may still finish, if there is such a one. */
static int append_dated(struct varve_store *s, struct varve_node *f, struct varve_part *part,
			const char *buf, size_t len, size_t *ret_n)
{
	struct varve_bucket *b = f->bucket;
	ssize_t n = -EAGAIN;

	*ret_n = 0;
	(void)pthread_rwlock_rdlock(&b->gate);
	if (!b->shut || f->nameless) {
		guard(&f->lock);
		if (!varve_content_needs_late(f, part))
			n = append_to_part(s, f, part, buf, len);
	}
	if (n == -EAGAIN && !b->shut)
		n = varve_content_append_late(s, f, buf, len);
	(void)pthread_rwlock_unlock(&b->gate);
	if (n < 0)
		return n == -EAGAIN ? 0 : (int)n;
	*ret_n = (size_t)n;
	return 0;
}

/* What the way of a write depends on, read in one go. */
struct way {
	struct varve_node *f;
	struct varve_node *succ;
	bool shut; /* no more bytes into f */
	bool part;
	bool nameless;
};

static struct way find_way(struct varve_store *s, struct varve_handle *h)
{
	struct way w = {.f = h->file};

	guard(&s->ns);
	w.succ = h->dated ? NULL : w.f->succ;
	w.shut = w.f->kind == VARVE_KIND_SEALED || (w.f->bucket->shut && !w.f->nameless);
	w.nameless = w.f->nameless;
	w.part = w.f->has_part;
	return w;
}

static int make_part(struct varve_store *s, struct varve_node *f)
{
	int r = varve_ino_ready(s);

	if (r < 0)
		return r;
	guard(&s->mutate);
	/* A boundary came first: the way is found anew, so that nothing empty is left behind here. */
	{
		guard(&s->ns);
		if (f->nameless || f->bucket->shut || f->succ)
			return 0;
	}
	return varve_file_make_part(s, f);
}

/* The gate was shut just now, and whoever did it is still giving successors: under mutate. */
static int await_successor(struct varve_store *s, struct varve_handle *h)
{
	bool found;

	guard(&s->mutate);
	guard(&s->ns);
	found = h->file->succ != NULL;
	return found ? 0 : -ESTALE;
}

/* One step of a write: writes some, moves on or makes the part. */
static int write_step(struct varve_store *s, struct varve_handle *h, const char *buf, size_t len,
		      size_t *ret_n)
{
	struct way w = find_way(s, h);
	struct varve_part *part;
	int r;

	*ret_n = 0;
	if (w.shut && !w.succ)
		return h->dated ? -EROFS : await_successor(s, h);
	if (w.succ && (w.shut || !w.part))
		return move_on(s, h);
	if (!w.part)
		return w.nameless ? varve_file_make_nameless(s, w.f) : make_part(s, w.f);
	r = varve_file_part(s, w.f, &part);
	/* -ENODATA: it was sealed just now. */
	if (r == -ENODATA)
		return 0;
	/* Others wrote to it, left it and removed it, while this handle was on its way here. */
	if (r == -ESTALE && w.nameless)
		return varve_file_make_nameless(s, w.f);
	if (r < 0)
		return r;
	if (h->dated)
		r = append_dated(s, w.f, part, buf, len, ret_n);
	else
		r = append(s, w.f, part, w.succ != NULL, buf, len, ret_n);
	varve_part_unref(part);
	if (r < 0)
		return r;
	if (*ret_n)
		h->dirty = true;
	else if (w.succ)
		return move_on(s, h);
	return 0;
}

/* Append-only: see design, section 3. */
static bool may_write(struct varve_store *s, struct varve_handle *h, uint64_t off, int flags)
{
	struct varve_node *newest;
	bool ok;

	if ((flags & O_APPEND) || off == h->next_off)
		return true;
	{
		guard(&s->ns);
		newest = varve_node_ref(h->dated ? h->file : varve_file_newest(h->file));
	}
	ok = off == varve_file_size(s, h->file) || off == varve_file_size(s, newest);
	varve_node_put(s, newest);
	return ok;
}

int varve_handle_grow(struct varve_store *s, struct varve_handle *h, uint64_t size)
{
	struct varve_node *f = h->file, *c;
	struct varve_part *part;
	bool object;
	int r;

	{
		guard(&s->ns);
		c = f->linked && f->parent && f->parent->sdir
			    ? varve_node_child(f->parent->sdir, f->name)
			    : NULL;
		object = f->kind == VARVE_KIND_FILE && f->bucket && !f->appended && !f->succ && !c &&
			 !(f->native && (f->native->head || f->native->by_kernel));
	}
	if (!object || !h->from_start || !h->writable)
		return -EPERM;
	r = varve_file_part(s, f, &part);
	if (r < 0)
		return r == -ENODATA ? -EPERM : r;
	(void)pthread_rwlock_rdlock(&f->bucket->gate);
	{
		guard(&f->lock);
		uint64_t old = f->size;

		/* Its own end is the file's: nobody else wrote, nothing was truncated. */
		if ((f->bucket->shut && !f->nameless) || h->next_off != old || size <= old)
			r = -EPERM;
		else if (ftruncate(part->fd, (off_t)size) < 0)
			r = -errno;
		if (r == 0) {
			/* A hole takes no room. */
			f->size = size;
			f->last = 0;
			h->next_off = size;
			h->dirty = true;
		}
	}
	(void)pthread_rwlock_unlock(&f->bucket->gate);
	varve_part_unref(part);
	return r;
}

/* .staging/ is an ordinary read-write area. */
static ssize_t write_staging(struct varve_store *s, struct varve_handle *h, const void *buf,
			     size_t size, uint64_t off, int flags)
{
	struct varve_node *f = h->file;
	struct varve_part *part;
	int r = varve_file_part(s, f, &part);
	ssize_t n;

	if (r < 0)
		return r;
	{
		guard(&f->lock);
		struct stat st;

		if (fstat(part->fd, &st) == 0)
			f->size = (uint64_t)st.st_size;
		n = varve_part_write(part, buf, size, flags & O_APPEND ? f->size : off);
		if (n > 0 && fstat(part->fd, &st) == 0) {
			if (!f->nameless)
				varve_file_count(s, f, (uint64_t)st.st_blocks * 512);
			f->size = (uint64_t)st.st_size;
			f->last = -1;
			h->dirty = true;
		}
	}
	varve_part_unref(part);
	return n;
}

ssize_t varve_store_write(struct varve_store *s, uint64_t fh, const void *buf, size_t size,
			  uint64_t off, int flags)
{
	struct varve_handle *h = varve_handle_get(s, fh);
	size_t done = 0;
	bool staging;
	int r = 0, tries = 0;

	if (!h)
		return -EBADF;
	if (!h->writable || h->is_dir) {
		varve_handle_put(s, h);
		return -EBADF;
	}
	(void)pthread_mutex_lock(&h->lock);
	{
		guard(&s->ns);
		staging = !h->file->bucket;
	}
	if (staging) {
		ssize_t n = write_staging(s, h, buf, size, off, flags);

		r = n < 0 ? (int)n : 0;
		done = n < 0 ? 0 : (size_t)n;
	} else if (!may_write(s, h, off, flags)) {
		r = varve_handle_grow(s, h, off);
	}
	while (r == 0 && !staging && done < size) {
		size_t n;

		r = write_step(s, h, (const char *)buf + done, size - done, &n);
		done += n;
		/* Policy may drop something before the writer hears of a full disk. */
		if (r == -ENOSPC && !done && ++tries < ROOM_TRIES && varve_make_room(s))
			r = 0;
	}
	/* What was taken counts even if the rest was not: the caller is told by a short write. */
	if (done) {
		h->next_off = off + done;
		h->wrote = true;
		r = 0;
	}
	(void)pthread_mutex_unlock(&h->lock);
	varve_handle_put(s, h);
	return r < 0 ? r : (ssize_t)done;
}
