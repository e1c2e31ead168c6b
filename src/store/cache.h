/*
 * Frames, decompressed, shared by all readers: bounded in bytes, least recently used goes first.
 * A frame that several readers want is decompressed once; sequential readers have the next frames
 * decompressed ahead by a pool of threads.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

struct varve_cache;

/* max_bytes bounds what is kept (and what is in work: a frame larger than it is read alone); threads
 * do read-ahead (0: one per core). They start on first use and end after 10 s without work, so that an
 * idle daemon has none to wake. 0 or -ENOMEM. */
int varve_cache_new(size_t max_bytes, unsigned threads, struct varve_cache **ret) varve_must_check;
/* NULL is fine. All segments must be gone: the last reference to each was given back. */
void varve_cache_free(struct varve_cache *cache);

struct varve_cache_stats {
	uint64_t hits, misses; /* frames asked for: served from memory (also: from another's work); not */
	uint64_t ahead;	       /* frames decompressed before they were asked for */
	uint64_t bad;	       /* frames that could not be read or failed their check, each once */
	size_t bytes;	       /* kept and in work now */
	size_t peak;	       /* the most that it ever was; above max_bytes only by one frame, alone */
};
void varve_cache_stats(struct varve_cache *cache, struct varve_cache_stats *ret);
