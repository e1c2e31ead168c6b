/*
 * The full check of what is sealed: needs no mount and no daemon, writes nothing.
 *
 * Of a segment: that its index and seek table make sense (format/segment_dec.h); every frame's hash;
 * every file's digest; that each member's tar headers are, byte by byte, those that belong to what the
 * index says of it and stand where the index implies; that all bytes between and behind are zeros. So
 * no byte of the tar stream goes unlooked at, and what `tar x` restores is what the index describes.
 * The page cache is dropped first as far as may be: it is the disk that is asked.
 *
 * Memory is bounded: at most 256 MiB of frames (some tens of MiB for what varvefs wrote), and the
 * index.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum varve_verify_kind {
	VARVE_VERIFY_FILE,    /* bytes of a file can't be read or are not those that were sealed */
	VARVE_VERIFY_HEADER,  /* a member's tar headers or padding are wrong; its content may be right */
	VARVE_VERIFY_FRAME,   /* a frame is damaged, and no file's content is in it */
	VARVE_VERIFY_SEGMENT, /* the segment as a whole: no index, or that of another bucket */
	VARVE_VERIFY_RECORD,  /* one of the store's own records, in meta/ */
	VARVE_VERIFY_NOTE,    /* nothing is lost: a stray or left-over file */
};

struct varve_verify_finding {
	enum varve_verify_kind kind;
	const char *segment; /* its path, as given, or below the store's sealed/; of a note the path of
			      * what it is about; of a record its path in the store */
	const char *path;    /* of the member, path_len bytes (any); NULL: not about one */
	size_t path_len;
	uint64_t offset; /* FILE: the bytes of the file that it is about */
	uint64_t length;
	const char *what; /* one line; may hold bytes from disk */
};

struct varve_verify_counts {
	uint64_t segments, frames, members, files; /* looked at */
	uint64_t segment_bytes;			   /* on disk */
	uint64_t content_bytes;			   /* of all files, holes included */
	uint64_t bad_segments, bad_frames, bad_headers, bad_files, bad_records;
	uint64_t notes;
};

static inline bool varve_verify_clean(const struct varve_verify_counts *c)
{
	return c->bad_segments + c->bad_frames + c->bad_headers + c->bad_files + c->bad_records == 0;
}

struct varve_verify_job {
	unsigned threads; /* that decompress; 0: one per core */
	/* Compressed bytes done so far, and in all; called often. Not 0 ends it with -ECANCELED. NULL
	 * is fine. */
	int (*progress)(void *ctx, uint64_t done, uint64_t total);
	/* One finding, valid during the call. NULL is fine. */
	void (*report)(void *ctx, const struct varve_verify_finding *f);
	void *ctx; /* of both; both are called in the caller's thread, no lock held */
	const char *const *buckets; /* varve_verify_store: only these; all when n_buckets is 0 */
	size_t n_buckets;
};

/* Checks the segment file dirfd/path, to which findings refer by the same path. 0 when it was looked
 * at, whatever was found: ret (added to) says. -ENOENT and the like; -EBADMSG: no regular file;
 * -ECANCELED; -ENOMEM; -EAGAIN: no threads. Errors while reading are findings. Blocks. */
int varve_verify_segment(int dirfd, const char *path, const struct varve_verify_job *job,
			 struct varve_verify_counts *ret, struct varve_err *err) varve_must_check;

/* Checks every segment of the store (sealed/BUCKET/CLASS/TABLET.tar.zst), oldest bucket first, that
 * each is the one its path says, and notes what else lies there; and the range record, meta/ranges, unless
 * buckets are named. The store may be mounted: what is dropped meanwhile is passed over. -ENOENT: no store,
 * or a bucket of job that is not sealed; else as above. ret is set. */
int varve_verify_store(int store_fd, const struct varve_verify_job *job,
		       struct varve_verify_counts *ret, struct varve_err *err) varve_must_check;
