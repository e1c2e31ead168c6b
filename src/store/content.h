/*
 * What bytes a FILE of a bucket has: a range of its part, from its head to its end, and behind it the
 * late part. For a file that only the daemon writes to, that is simply its part.
 */
#pragma once

#include "store/core.h"

/* A FILE's range in its part at one moment. */
struct varve_content {
	uint64_t head, end; /* offsets in the part */
	uint64_t late;	    /* bytes of the late part that are seen behind it */
	bool open_ended;    /* no boundary has passed: the end is the part's */
	bool pending;	    /* its head is: nothing of it is to be seen yet */
};

/* As it is now; part NULL: it has none that is open. file.lock held, ns not. */
void varve_content_now(struct varve_node *f, struct varve_part *part, struct varve_content *ret);

/* The file's size as its readers see it. Takes file.lock. */
uint64_t varve_content_size(struct varve_node *f, struct varve_part *part);

/* Reads as pread(2) does, clamped to the range: what a boundary has cut off is not seen, also when it comes
 * in this moment. Takes file.lock. */
ssize_t varve_content_read(struct varve_node *f, struct varve_part *part, void *buf, size_t size,
			   uint64_t off);

/* About how many bytes f has, without asking its part: for counting; ns held. */
uint64_t varve_content_guess(const struct varve_node *f);

/* Whether what comes by the dated path has to go behind what a writer by current/ may still finish; file.lock
 * held. */
bool varve_content_needs_late(struct varve_node *f, struct varve_part *part);

/* Appends late data; makes the late part when there is none. The bucket's gate is held shared, by the caller;
 * takes file.lock. Bytes written or -errno. */
ssize_t varve_content_append_late(struct varve_store *s, struct varve_node *f, const void *buf,
				  size_t size);

/* Whether the bucket open/NAME has late parts at all. */
bool varve_content_has_late(struct varve_store *s, const char *name);
/* Opens the late part that recovery found for f, if there is one. Alone. */
int varve_content_load_late(struct varve_store *s, struct varve_node *f);

/* A descriptor with all of f's bytes from offset 0, for the sealer, where they are not one range of one
 * file; or -errno. The gate is shut. */
int varve_content_copy(struct varve_store *s, struct varve_node *f, struct varve_part *part);

/* f's last byte is known, or read now; file.lock held, f is not written to by the kernel. */
int varve_content_last(struct varve_node *f, struct varve_part *part);
