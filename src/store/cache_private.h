/*
 * The cache as store/segment and the tests see it: the frames of one source, by number.
 *
 * One lock, "cache", guards all of it; neither I/O nor decompression happens under it. Who waits
 * (for a frame that another decompresses, or for room) holds no frame, and a holder only copies out
 * of its frame: so room always comes, however small the bound is.
 */
#pragma once

#include <stdbool.h>

#include "format/segment_dec.h"
#include "store/cache.h"

struct varve_frame; /* decompressed bytes; immutable while held */

/* What frames come from: one open segment. It is part of its owner's memory. */
struct varve_frame_source {
	/* -- set by the owner before varve_cache_attach, then immutable -- */
	struct varve_cache *cache;
	const struct varve_index *index;
	int fd;
	/* Frame k failed, for the first time. No lock is held; may be called from any thread. */
	void (*failed)(struct varve_frame_source *src, uint32_t k, int error);
	/* Nothing uses it any more: the owner closes and frees. No lock is held, any thread. */
	void (*gone)(struct varve_frame_source *src);

	/* -- protected by the cache's lock -- */
	uint32_t largest;	    /* frame, in bytes; immutable once attached */
	struct varve_frame **slots; /* by frame number; NULL: not kept */
	unsigned char *failed_bits; /* frames that failed at least once */
	uint64_t faults;	    /* how many of them */
	uint32_t in_work;	    /* frames that the pool decompresses just now */
	bool detached;
	struct varve_frame *victims;	 /* evicted, to be freed with it */
	struct varve_frame_source *next; /* among those that the pool is to end */
};

/* 0 or -ENOMEM. */
int varve_cache_attach(struct varve_frame_source *src) varve_must_check;

/* The owner has no use for it any more and holds no frame of it: `gone` is called, at once or by the
 * pool (always when `later`, if the pool has a thread for it). src may be freed when this returns. */
void varve_cache_detach(struct varve_frame_source *src, bool later);

/* Frame k, held until varve_cache_put. Blocks on I/O; the caller holds no other frame. -EBADMSG: its
 * check failed, or it lies beyond the file's end; -EIO and the like from the disk; -ENOMEM. A frame
 * that failed is tried again when it is next asked for. */
int varve_cache_get(struct varve_frame_source *src, uint32_t k,
		    struct varve_frame **ret) varve_must_check;
/* The same for who holds a frame already: -EAGAIN where it would have to wait for room, which the one
 * that it holds may take up. */
int varve_cache_get_another(struct varve_frame_source *src, uint32_t k,
			    struct varve_frame **ret) varve_must_check;
/* Frame k as varve_cache_get, if it is there and this mark (not 0) was not the last to get it so: else
 * -EAGAIN. Never blocks, on I/O or on others. */
int varve_cache_lend(struct varve_frame_source *src, uint32_t k, uint64_t mark,
		     struct varve_frame **ret) varve_must_check;
/* taken: how many bytes of it were read. A frame that was read about whole by who reads in order is the
 * first to go: the kernel has its bytes. */
void varve_cache_put(struct varve_frame *f, size_t taken);
/* Whether frame k is there, decompressed, just now. */
bool varve_cache_has(struct varve_frame_source *src, uint32_t k);
const unsigned char *varve_frame_bytes(const struct varve_frame *f);

/* Has the frames first to last (included) decompressed ahead, as far as the pool and the bound let
 * it. Does not block. */
void varve_cache_ahead(struct varve_frame_source *src, uint32_t first, uint32_t last);

/* The pool's threads at most, at present, and how long one stays without work. */
unsigned varve_cache_threads(const struct varve_cache *cache);
unsigned varve_cache_running(struct varve_cache *cache);
void varve_cache_set_linger(struct varve_cache *cache, unsigned ms); /* before the first use */

uint64_t varve_cache_source_faults(struct varve_frame_source *src);
