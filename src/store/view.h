/* A stretch of a sealed file where it is in memory, lent to whoever answers a read with it. */
#pragma once

#include <sys/uio.h>

struct varve_segment;
struct varve_frame;

/* In one frame, or two that follow each other. */
struct varve_view {
	struct varve_segment *seg; /* referenced */
	unsigned n;
	struct iovec piece[2];
	struct varve_frame *frame[2]; /* held */
};

/* Gives it back. Any thread; no lock need be held. */
void varve_view_done(struct varve_view *v);
