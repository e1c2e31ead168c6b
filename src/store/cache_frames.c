#include "store/cache_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/sys.h"
#include "format/frame.h"

#define HUGE_PAGE (UINT32_C(2) << 20)
#define WORK_OVERHEAD (128 * 1024) /* about what a decompression context takes */
/* Spent frames that stay for requests that come out of order, or for what was left of them. */
#define SPENT_KEPT 4
#define SPENT_SHARE(size) ((size) - (size) / 8)
/* How far in front of the decompression the disk reads. */
#define DISK_AHEAD_FRAMES 4

/* -- room -- */

static size_t frame_cost(uint32_t raw_size)
{
	return raw_size + sizeof(struct varve_frame);
}

static void unlist(struct varve_cache *c, struct varve_frame *f)
{
	if (f->spent) {
		c->n_spent--;
		if (c->last_spent == f)
			c->last_spent = f->older;
	}
	*(f->older ? &f->older->newer : &c->oldest) = f->newer;
	*(f->newer ? &f->newer->older : &c->newest) = f->older;
	f->older = f->newer = NULL;
}

static void enlist(struct varve_cache *c, struct varve_frame *f)
{
	f->older = c->newest;
	f->newer = NULL;
	*(c->newest ? &c->newest->newer : &c->oldest) = f;
	c->newest = f;
}

/* Behind the last of the spent ones. */
static void enlist_spent(struct varve_cache *c, struct varve_frame *f)
{
	f->older = c->last_spent;
	f->newer = f->older ? f->older->newer : c->oldest;
	*(f->older ? &f->older->newer : &c->oldest) = f;
	*(f->newer ? &f->newer->older : &c->newest) = f;
	c->last_spent = f;
	c->n_spent++;
}

static void not_ahead_any_more(struct varve_cache *c, struct varve_frame *f)
{
	if (f->ahead)
		c->ahead_bytes -= f->size;
	f->ahead = false;
}

static void charge(struct varve_cache *c, size_t bytes)
{
	c->stats.bytes += bytes;
	if (c->stats.bytes > c->stats.peak)
		c->stats.peak = c->stats.bytes;
}

void varve_frames_evict(struct varve_cache *c, struct varve_frame *f, struct varve_frame **victims)
{
	unlist(c, f);
	not_ahead_any_more(c, f);
	f->src->slots[f->number] = NULL;
	c->stats.bytes -= frame_cost(f->size);
	f->older = *victims;
	*victims = f;
}

/* Of whole huge pages, if the kernel gives any: a frame takes one instead of 512 faults and as many
 * entries of what the processor remembers of the page tables. */
static unsigned char *new_raw(size_t size)
{
	void *p;

	if (size % HUGE_PAGE != 0)
		return malloc(size);
	if (posix_memalign(&p, HUGE_PAGE, size) != 0)
		return NULL;
	(void)madvise(p, size, MADV_HUGEPAGE);
	return p;
}

static void free_frame(struct varve_frame *f)
{
	(void)pthread_cond_destroy(&f->loaded);
	free(f->raw);
	free(f);
}

void varve_frames_free(struct varve_frame *f)
{
	while (f) {
		struct varve_frame *next = f->older;

		free_frame(f);
		f = next;
	}
}

static void free_work(struct work *w)
{
	if (!w)
		return;
	varve_frame_dctx_free(w->dctx);
	free(w->comp);
	free(w);
}

static struct work *pop_work(struct varve_cache *c)
{
	struct work *w = c->idle_work;

	if (w) {
		c->idle_work = w->next;
		c->n_idle_work--;
	}
	return w;
}

void varve_frames_drop_work(struct varve_cache *c)
{
	struct work *w = pop_work(c);

	c->stats.bytes -= w->size + WORK_OVERHEAD;
	free_work(w);
}

/* The compressed size; 0 when it is more than any encoder makes of that many bytes: a number that
 * means nothing gets no memory. */
static size_t comp_room(const struct varve_frame_info *info)
{
	return info->comp_size <= varve_frame_bound(info->raw_size) ? info->comp_size : 0;
}

/* What loading it adds to the bytes, given the work buffer that would be taken. */
static size_t load_cost(const struct varve_cache *c, const struct varve_frame_info *info)
{
	const struct work *w = c->idle_work;
	size_t cost = frame_cost(info->raw_size), room = comp_room(info);

	if (!w)
		return cost + room + WORK_OVERHEAD;
	return cost + (room > w->size ? room - w->size : 0);
}

bool varve_frames_make_room(struct varve_cache *c, const struct varve_frame_info *info,
			    struct varve_frame **victims)
{
	/* A buffer that was just read from is still in the processor's cache; a new one is not even
	 * in memory. */
	if (c->n_spent > SPENT_KEPT)
		varve_frames_evict(c, c->oldest, victims);
	while (c->stats.bytes + load_cost(c, info) > c->max) {
		if (c->oldest)
			varve_frames_evict(c, c->oldest, victims);
		else if (c->idle_work)
			varve_frames_drop_work(c);
		else
			return c->busy == 0;
	}
	return true;
}

void varve_frames_wake(struct varve_cache *c)
{
	if (c->waiting > 0)
		(void)pthread_cond_broadcast(&c->room);
}

/* -- loading -- */

/* A frame in work, with one reference, room for it charged; NULL: no memory. */
static struct varve_frame *begin_load(struct varve_cache *c, struct varve_frame_source *src,
				      uint32_t k, const struct varve_frame_info *info, bool ahead,
				      struct work **ret_work)
{
	struct varve_frame *f = calloc(1, sizeof(*f));
	struct work *w = c->idle_work ? c->idle_work : calloc(1, sizeof(*w));

	if (!f || !w) {
		free(f);
		if (w != c->idle_work)
			free(w);
		return NULL;
	}
	*f = (struct varve_frame){
		.src = src, .number = k, .size = info->raw_size, .refs = 1, .ahead = ahead};
	(void)pthread_cond_init(&f->loaded, NULL);
	charge(c, load_cost(c, info));
	if (w == c->idle_work)
		(void)pop_work(c);
	c->busy++;
	if (ahead)
		c->ahead_bytes += f->size;
	src->slots[k] = f;
	*ret_work = w;
	return f;
}

/* Reads and decompresses; no lock. The work's buffer has grown to what was charged, whatever
 * comes out. */
static int load(const struct varve_frame_source *src, const struct varve_frame_info *info,
		struct work *w, unsigned char *raw)
{
	size_t room = comp_room(info);
	int r;

	if (room == 0)
		return -EBADMSG;
	if (!w->dctx)
		w->dctx = varve_frame_dctx_new_for_hash();
	if (w->size < room) {
		free(w->comp);
		w->size = room;
		w->comp = NULL;
	}
	if (!w->comp)
		w->comp = malloc(w->size);
	if (!w->dctx || !w->comp || !raw)
		return -ENOMEM;
	r = varve_pread_full(src->fd, w->comp, info->comp_size, info->comp_offset);
	return r < 0 ? r : varve_frame_decode(w->dctx, info, w->comp, raw);
}

/* Who reads in order has the disk read on while this frame is decompressed. */
static void disk_ahead(const struct varve_frame_source *src, uint32_t k)
{
	uint32_t last = varve_index_frames(src->index) - 1;
	struct varve_frame_info from, to;

	if (k == last)
		return;
	if (last - k > DISK_AHEAD_FRAMES)
		last = k + DISK_AHEAD_FRAMES;
	varve_index_frame(src->index, k + 1, &from);
	varve_index_frame(src->index, last, &to);
	(void)posix_fadvise(src->fd, (off_t)from.comp_offset,
			    (off_t)(to.comp_offset + to.comp_size - from.comp_offset),
			    POSIX_FADV_WILLNEED);
}

static void end_work(struct varve_cache *c, struct work *w)
{
	w->next = c->idle_work;
	c->idle_work = w;
	/* A buffer that could not be had is no buffer to keep. */
	if (++c->n_idle_work > c->threads || !w->comp || !w->dctx)
		varve_frames_drop_work(c);
}

/* True when it is the first failure of that frame, not for want of memory. */
static bool note_failure(struct varve_cache *c, struct varve_frame_source *src, uint32_t k,
			 int error)
{
	unsigned char bit = (unsigned char)(1U << k % 8);

	if (error == -ENOMEM || (src->failed_bits[k / 8] & bit) != 0)
		return false;
	src->failed_bits[k / 8] |= bit;
	src->faults++;
	c->stats.bad++;
	return true;
}

/* The last reference to a frame goes. */
static void unuse(struct varve_cache *c, struct varve_frame *f, struct varve_frame **victims)
{
	c->busy--;
	if (f->state == FRAME_FAILED) {
		f->older = *victims;
		*victims = f;
	} else {
		f->spent = f->taken >= SPENT_SHARE(f->size);
		if (f->spent)
			enlist_spent(c, f);
		else
			enlist(c, f);
		/* Only after a frame that is larger than the whole bound. */
		while (c->stats.bytes > c->max && c->oldest)
			varve_frames_evict(c, c->oldest, victims);
	}
	varve_frames_wake(c);
}

/* Of the frames that made room, one of the same size lends its buffer. */
static unsigned char *raw_buffer(struct varve_frame *victims, uint32_t size)
{
	for (struct varve_frame *v = victims; v; v = v->older)
		if (v->raw && v->size == size)
			return steal_ptr(&v->raw);
	return new_raw(size);
}

int varve_frames_load(struct varve_cache *c, struct varve_frame_source *src, uint32_t k,
		      const struct varve_frame_info *info, bool ahead, struct varve_frame *victims,
		      struct varve_frame **ret)
{
	struct work *w = NULL;
	struct varve_frame *f = begin_load(c, src, k, info, ahead, &w);
	bool first = false;
	int r = f ? 0 : -ENOMEM;

	(void)pthread_mutex_unlock(&c->lock);
	if (f) {
		f->raw = raw_buffer(victims, f->size);
		if (ahead)
			disk_ahead(src, k);
		r = load(src, info, w, f->raw);
	}
	varve_frames_free(victims);
	(void)pthread_mutex_lock(&c->lock);
	if (!f)
		return r;
	end_work(c, w);
	f->state = r < 0 ? FRAME_FAILED : FRAME_READY;
	f->error = r;
	if (r < 0) {
		not_ahead_any_more(c, f);
		src->slots[k] = NULL;
		c->stats.bytes -= frame_cost(f->size);
		first = note_failure(c, src, k, r);
	}
	(void)pthread_cond_broadcast(&f->loaded);
	varve_frames_wake(c);
	if (first) {
		(void)pthread_mutex_unlock(&c->lock);
		src->failed(src, k, r);
		(void)pthread_mutex_lock(&c->lock);
	}
	*ret = f;
	return r;
}

void varve_frames_put(struct varve_cache *c, struct varve_frame *f, struct varve_frame **victims)
{
	if (--f->refs == 0)
		unuse(c, f, victims);
}

/* A reference to a frame that is there or in work by another, once it is ready. */
static int share_locked(struct varve_cache *c, struct varve_frame *f)
{
	if (f->refs++ == 0) {
		unlist(c, f);
		c->busy++;
		/* Asked for again, it is worth keeping again. */
		if (f->taken >= f->size)
			f->taken = 0;
		f->spent = false;
	}
	not_ahead_any_more(c, f);
	while (f->state == FRAME_LOADING)
		(void)pthread_cond_wait(&f->loaded, &c->lock);
	if (f->state == FRAME_READY)
		c->stats.hits++;
	return f->error;
}

static int get(struct varve_frame_source *src, uint32_t k, bool wait, struct varve_frame **ret)
{
	struct varve_cache *c = src->cache;
	struct varve_frame *f = NULL, *victims = NULL;
	struct varve_frame_info info;
	bool room = true;
	int r;

	varve_index_frame(src->index, k, &info);
	(void)pthread_mutex_lock(&c->lock);
	while (!src->slots[k]) {
		room = varve_frames_make_room(c, &info, &victims);
		if (room || !wait)
			break;
		varve_frames_free(steal_ptr(&victims));
		c->waiting++;
		(void)pthread_cond_wait(&c->room, &c->lock);
		c->waiting--;
	}
	f = src->slots[k];
	if (f) {
		r = share_locked(c, f);
	} else if (!room) {
		r = -EAGAIN;
	} else {
		c->stats.misses++;
		r = varve_frames_load(c, src, k, &info, false, steal_ptr(&victims), &f);
	}
	if (r < 0 && f)
		varve_frames_put(c, f, &victims);
	(void)pthread_mutex_unlock(&c->lock);
	varve_frames_free(victims);
	if (r < 0)
		return r;
	*ret = f;
	return 0;
}

int varve_cache_get(struct varve_frame_source *src, uint32_t k, struct varve_frame **ret)
{
	return get(src, k, true, ret);
}

int varve_cache_get_another(struct varve_frame_source *src, uint32_t k, struct varve_frame **ret)
{
	return get(src, k, false, ret);
}

int varve_cache_lend(struct varve_frame_source *src, uint32_t k, uint64_t mark,
		     struct varve_frame **ret)
{
	struct varve_frame *f;

	guard(&src->cache->lock);
	f = src->slots[k];
	/* The borrower may be long about it. With frames of ordinary size one that is held keeps nobody
	 * from having room; one that is read alone would wait for it. */
	if (!f || f->state != FRAME_READY || f->lent == mark || src->largest > src->cache->max / 4)
		return -EAGAIN;
	f->lent = mark;
	*ret = f;
	return share_locked(src->cache, f);
}

void varve_cache_put(struct varve_frame *f, size_t taken)
{
	struct varve_cache *c = f->src->cache;
	struct varve_frame *victims = NULL;

	{
		guard(&c->lock);
		f->taken += taken;
		varve_frames_put(c, f, &victims);
	}
	varve_frames_free(victims);
}

bool varve_cache_has(struct varve_frame_source *src, uint32_t k)
{
	guard(&src->cache->lock);
	return src->slots[k] && src->slots[k]->state == FRAME_READY;
}

const unsigned char *varve_frame_bytes(const struct varve_frame *f)
{
	return f->raw;
}
