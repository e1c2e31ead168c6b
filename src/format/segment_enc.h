/*
 * Writes one segment: a tar stream (pax) cut into independent zstd frames, compressed side by side,
 * then the index and the seek table. Knows nothing of stores; bytes go to a sink.
 */
#pragma once

#include "base/err.h"
#include "format/segment.h"

struct varve_segment_enc;

/* Takes the next bytes of the segment, in order, called from one thread at a time. 0 or -errno,
 * which ends the encoding. */
typedef int varve_segment_sink(void *ctx, const void *data, size_t len);

/* Reads content of the member being added: up to len bytes at off into buf; returns the bytes read
 * (short only when the file has become shorter: an error for the encoder, -EBADMSG) or -errno. */
typedef ssize_t varve_segment_read(void *ctx, void *buf, size_t len, uint64_t off);

struct varve_segment_params {
	int level;          /* zstd's, 1 to 19 */
	unsigned threads;   /* compressors; 0: one per core */
	const char *bucket; /* its name, kept in the index */
	const char *class_name;
	const char *tablet;
	int64_t start_ns; /* the window, UTC */
	int64_t end_ns;
	const volatile int *cancel; /* may be NULL; becomes non-zero from elsewhere: -ECANCELED */
};

struct varve_segment_totals {
	uint64_t files;         /* regular files */
	uint64_t members;       /* all, the bucket's own directory included */
	uint64_t content_bytes; /* sum of the files' sizes */
	uint64_t tar_bytes;     /* of the tar stream */
	uint64_t segment_bytes; /* of the whole segment */
};

/* Compressor threads (idle CPU priority) start when there is more than one frame for them; sink and
 * read are called in the caller's thread only. The caller frees with _free. */
int varve_segment_enc_new(const struct varve_segment_params *params, varve_segment_sink *sink,
			  void *sink_ctx, struct varve_segment_enc **ret,
			  struct varve_err *err) varve_must_check;

/* Adds the next member; `m` is in index order behind the last (-EINVAL otherwise), the first is the
 * bucket's own directory. For a file, content is read through `read` by extents. digest in m is
 * ignored; the digest worked out is returned in ret_digest when that is not NULL. */
int varve_segment_enc_add(struct varve_segment_enc *enc, const struct varve_member *m,
			  varve_segment_read *read, void *read_ctx, unsigned char ret_digest[16],
			  struct varve_err *err) varve_must_check;

/* Ends the tar stream, writes index and seek table, gives the totals. */
int varve_segment_enc_finish(struct varve_segment_enc *enc, struct varve_segment_totals *ret,
			     struct varve_err *err) varve_must_check;

/* Stops the threads and frees all; NULL is fine. May come at any time, also after an error. */
void varve_segment_enc_free(struct varve_segment_enc *enc);

/* Gives the calling thread idle CPU and I/O priority, as the compressors have; for the thread that
 * reads parts and writes segments. Where that is refused, it stays as it was. */
void varve_segment_idle_thread(void);
