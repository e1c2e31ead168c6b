/*
 * The insides of the cache, for cache.c (the whole, its pool of threads) and cache_frames.c (room,
 * loading, sharing) alone. Functions here are called with the lock held, but for the last.
 */
#pragma once

#include <pthread.h>

#include "base/sync.h"
#include "store/cache_private.h"

#define CACHE_QUEUE_MAX 64
#define CACHE_THREADS_MAX 16

enum frame_state { FRAME_LOADING, FRAME_READY, FRAME_FAILED };

struct varve_frame {
	/* -- immutable once ready -- */
	struct varve_frame_source *src;
	uint32_t number;
	uint32_t size;
	unsigned char *raw;

	/* -- protected by the cache's lock -- */
	enum frame_state state;
	int error;     /* when failed */
	bool ahead;    /* came by read-ahead and nobody has asked for it yet */
	bool spent;    /* was given out about whole: its readers have it, so it goes first */
	size_t taken;  /* bytes that were given out */
	uint64_t lent; /* the last lender's mark, see varve_cache_lend */
	uint32_t refs; /* readers, and who loads it */
	struct varve_frame *older, *newer; /* in the list of unused frames; refs is 0 */
	pthread_cond_t loaded;
};

/* What decompressing takes besides the frame; used by one thread at a time, then again. */
struct work {
	struct work *next;
	struct varve_frame_dctx *dctx;
	void *comp;
	size_t size; /* of comp, and charged to the cache */
};

struct request {
	struct varve_frame_source *src;
	uint32_t number;
};

enum thread_state { THREAD_NONE, THREAD_RUNNING, THREAD_ENDED };

struct varve_cache {
	/* -- immutable after new -- */
	size_t max;
	unsigned threads;
	unsigned linger_ms;

	pthread_mutex_t lock; /* "cache": all below */
	struct varve_cache_stats stats; /* bytes: frames, and work buffers, idle or not */
	/* Ready and unused: the spent ones, then the others, each in the order of their last use. */
	struct varve_frame *oldest, *newest;
	struct varve_frame *last_spent; /* NULL: none is */
	unsigned n_spent;
	struct work *idle_work;
	unsigned n_idle_work;
	uint32_t busy;	    /* frames in use or in work */
	uint32_t waiting;   /* for room */
	size_t ahead_bytes; /* frames that read-ahead brought or brings and nobody asked for yet */
	pthread_cond_t room;

	struct request queue[CACHE_QUEUE_MAX];
	unsigned n_queue;
	struct varve_frame_source *ending; /* to be told that they are gone */
	pthread_cond_t work;
	unsigned idle_threads, running;
	bool stop;
	struct {
		pthread_t id;
		enum thread_state state;
	} pool[CACHE_THREADS_MAX];
};

/* Makes room for loading a frame. False when there is none until somebody gives a frame back. What had
 * to go is put in front of *victims. */
bool varve_frames_make_room(struct varve_cache *c, const struct varve_frame_info *info,
			    struct varve_frame **victims);
void varve_frames_wake(struct varve_cache *c); /* those who wait for room */

/* Loads frame k, for which there is room, and gives it to all who wait for it. The lock is given up
 * meanwhile; consumes victims. The caller gets a reference, also to a frame that failed; NULL when there
 * is no memory. */
int varve_frames_load(struct varve_cache *c, struct varve_frame_source *src, uint32_t k,
		      const struct varve_frame_info *info, bool ahead, struct varve_frame *victims,
		      struct varve_frame **ret);
void varve_frames_put(struct varve_cache *c, struct varve_frame *f, struct varve_frame **victims);

/* Takes an unused frame out of the cache and puts it in front of the victims (linked by `older`). */
void varve_frames_evict(struct varve_cache *c, struct varve_frame *f, struct varve_frame **victims);
void varve_frames_drop_work(struct varve_cache *c); /* one idle work buffer; there is one */

void varve_frames_free(struct varve_frame *victims); /* no lock needed */
