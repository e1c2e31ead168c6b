/*
 * Cuts a stream into frames, compresses them side by side and gives them back in order. One thread
 * feeds it, and in that thread the results come out; compressors are threads of their own at idle
 * priority, started with the first full frame: what fits into one frame is compressed by the
 * feeding thread itself, and so is everything when no thread can be had. A compressor that has been
 * waited for long is lifted to ordinary priority, where that is allowed, so that sealing goes on
 * on a machine that is never idle. A ring of slots (compressors + 2) bounds the memory.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct varve_pipe;

struct varve_pipe_frame {
	const void *comp;
	uint32_t comp_size;
	uint32_t raw_size;
	uint32_t check; /* low half of XXH64 of the raw bytes */
	uint64_t hash;  /* XXH3-64 of the raw bytes */
};

/* Takes the next frame; called from varve_pipe_space and varve_pipe_flush, no lock held. 0 or
 * -errno, which ends the pipe's work. */
typedef int varve_pipe_emit(void *ctx, const struct varve_pipe_frame *f);

/* threads 0: one per core. cancel may be NULL. -ENOMEM. The caller frees with varve_pipe_free. */
int varve_pipe_new(int level, unsigned threads, const volatile int *cancel, varve_pipe_emit *emit,
		   void *emit_ctx, struct varve_pipe **ret) varve_must_check;

/* Room for the next bytes of the stream: at least one byte, at most what the frame still takes.
 * Waits for a compressor when all slots are taken. 0, -ECANCELED, -ENOMEM or what emit said; an
 * error stays. */
int varve_pipe_space(struct varve_pipe *p, unsigned char **ret, size_t *ret_len) varve_must_check;

/* Says that the first n bytes of that room were filled. */
void varve_pipe_filled(struct varve_pipe *p, size_t n);

/* Ends the last frame and waits until all came out. Errors as varve_pipe_space. */
int varve_pipe_flush(struct varve_pipe *p) varve_must_check;

/* Stops the compressors, without waiting for queued frames, and frees all; NULL is fine. */
void varve_pipe_free(struct varve_pipe *p);
