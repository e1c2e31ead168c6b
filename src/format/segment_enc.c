#include "format/segment_enc.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "format/buf.h"
#include "format/digest.h"
#include "format/index_build.h"
#include "format/layout.h"
#include "format/pax.h"
#include "format/segment_pipe.h"

struct varve_segment_enc {
	varve_segment_sink *sink;
	void *sink_ctx;
	int level;
	struct varve_pipe *pipe;
	struct varve_digest *digest;
	struct varve_index_build index;
	struct varve_buf header;  /* of the member being added */
	struct varve_buf extents; /* its extents, aligned */
	uint64_t tar_offset;      /* bytes of the tar stream so far */
	uint64_t written;         /* bytes that went to the sink */
	int error;                /* the first, which stays */
	bool finished;
};

static int to_sink(struct varve_segment_enc *enc, const void *data, size_t len)
{
	int r = enc->sink(enc->sink_ctx, data, len);

	if (r < 0)
		return r;
	enc->written += len;
	return 0;
}

static int emit_frame(void *ctx, const struct varve_pipe_frame *f)
{
	struct varve_segment_enc *enc = ctx;
	int r = to_sink(enc, f->comp, f->comp_size);

	return r < 0 ? r : varve_index_build_frame(&enc->index, f);
}

int varve_segment_enc_new(const struct varve_segment_params *params, varve_segment_sink *sink,
			  void *sink_ctx, struct varve_segment_enc **ret, struct varve_err *err)
{
	struct varve_segment_enc *enc;
	int r;

	if (params->level < 1 || params->level > 19)
		return varve_err_set(err, -EINVAL, "compression level %d is not 1 to 19",
				     params->level);
	enc = calloc(1, sizeof(*enc));
	if (!enc)
		return -ENOMEM;
	enc->sink = sink;
	enc->sink_ctx = sink_ctx;
	enc->level = params->level;
	r = varve_index_build_init(&enc->index, params);
	if (r < 0) {
		free(enc);
		return varve_err_wrap(err, r, "name of bucket, class or tablet");
	}
	enc->digest = varve_digest_new();
	r = enc->digest ? varve_pipe_new(params->level, params->threads, params->cancel, emit_frame,
					 enc, &enc->pipe)
			: -ENOMEM;
	if (r < 0) {
		varve_segment_enc_free(enc);
		return varve_err_wrap(err, r, "start compressors");
	}
	*ret = enc;
	return 0;
}

void varve_segment_enc_free(struct varve_segment_enc *enc)
{
	if (!enc)
		return;
	varve_pipe_free(enc->pipe);
	varve_digest_free(enc->digest);
	varve_index_build_done(&enc->index);
	varve_buf_done(&enc->header);
	varve_buf_done(&enc->extents);
	free(enc);
}

/* Puts len bytes into the tar stream; zeros when data is NULL. */
static int to_stream(struct varve_segment_enc *enc, const unsigned char *data, size_t len)
{
	while (len > 0) {
		unsigned char *room;
		size_t n;
		int r = varve_pipe_space(enc->pipe, &room, &n);

		if (r < 0)
			return r;
		if (n > len)
			n = len;
		if (data) {
			memcpy(room, data, n);
			data += n;
		} else {
			memset(room, 0, n);
		}
		varve_pipe_filled(enc->pipe, n);
		enc->tar_offset += n;
		len -= n;
	}
	return 0;
}

/* Reads one extent straight into the frame being filled. */
static int copy_extent(struct varve_segment_enc *enc, const struct varve_extent *x,
		       varve_segment_read *read, void *read_ctx, struct varve_err *err)
{
	varve_digest_extent(enc->digest, x);
	for (uint64_t done = 0; done < x->length;) {
		uint64_t left = x->length - done;
		unsigned char *room;
		size_t n;
		ssize_t got;
		int r = varve_pipe_space(enc->pipe, &room, &n);

		if (r < 0)
			return r;
		if (n > left)
			n = (size_t)left;
		got = read(read_ctx, room, n, x->offset + done);
		if (got < 0)
			return varve_err_wrap(err, (int)got, "read");
		if (got == 0 || (size_t)got > n)
			return varve_err_set(err, -EBADMSG, "became shorter while it was read");
		varve_digest_data(enc->digest, room, (size_t)got);
		varve_pipe_filled(enc->pipe, (size_t)got);
		enc->tar_offset += (uint64_t)got;
		done += (uint64_t)got;
	}
	return 0;
}

/* The content, padded to whole blocks, and its digest into m. */
static int add_content(struct varve_segment_enc *enc, struct varve_member *m,
		       varve_segment_read *read, void *read_ctx, struct varve_err *err)
{
	varve_digest_begin(enc->digest, m->size, m->extents, m->n_extents);
	for (uint32_t i = 0; i < m->n_extents; i++) {
		int r = copy_extent(enc, &m->extents[i], read, read_ctx, err);

		if (r < 0)
			return r;
	}
	varve_digest_end(enc->digest, m->digest);
	return to_stream(enc, NULL, (size_t)((0 - enc->tar_offset) % VARVE_TAR_BLOCK));
}

/* A copy of m as it will stand in the index: extents aligned. */
static int prepare_member(struct varve_segment_enc *enc, const struct varve_member *m,
			  struct varve_member *ret, struct varve_err *err)
{
	int r = varve_member_check(m, err);

	if (r < 0)
		return r;
	if (varve_index_build_fits(&enc->index, m) < 0)
		return varve_err_set(err, -EINVAL, "not in order, or its directory is missing");
	enc->extents.len = 0;
	r = varve_buf_add(&enc->extents, m->extents, m->n_extents * sizeof(*m->extents));
	if (r < 0)
		return r;
	*ret = *m;
	ret->extents = (void *)enc->extents.p;
	ret->n_extents = varve_extents_align((void *)enc->extents.p, m->n_extents, m->size);
	memset(ret->digest, 0, sizeof(ret->digest));
	return 0;
}

static int add_member(struct varve_segment_enc *enc, const struct varve_member *in,
		      varve_segment_read *read, void *read_ctx, unsigned char ret_digest[16],
		      struct varve_err *err)
{
	struct varve_member m;
	uint64_t data_offset;
	int r = prepare_member(enc, in, &m, err);

	if (r < 0)
		return r;
	enc->header.len = 0;
	r = varve_pax_header(&enc->header, &m);
	if (r >= 0)
		r = to_stream(enc, enc->header.p, enc->header.len);
	if (r < 0)
		return r;
	data_offset = enc->tar_offset;
	if (S_ISREG(m.mode))
		r = add_content(enc, &m, read, read_ctx, err);
	else if (S_ISLNK(m.mode))
		varve_hash128(m.target, (size_t)m.size, m.digest);
	if (r >= 0)
		r = varve_index_build_member(&enc->index, &m, data_offset);
	if (r >= 0 && ret_digest)
		memcpy(ret_digest, m.digest, sizeof(m.digest));
	return r;
}

int varve_segment_enc_add(struct varve_segment_enc *enc, const struct varve_member *m,
			  varve_segment_read *read, void *read_ctx, unsigned char ret_digest[16],
			  struct varve_err *err)
{
	int shown = m->path_len < 200 ? (int)m->path_len : 200, r;

	if (enc->error < 0)
		return enc->error;
	if (enc->finished)
		return varve_err_set(err, -EINVAL, "the segment was finished before");
	r = add_member(enc, m, read, read_ctx, ret_digest, err);
	if (r < 0) {
		enc->error = r;
		return varve_err_wrap(err, r, "'%.*s'", shown, m->path);
	}
	return 0;
}

static int finish(struct varve_segment_enc *enc)
{
	int r = to_stream(enc, NULL, VARVE_TAR_TRAILER);

	if (r >= 0)
		r = varve_pipe_flush(enc->pipe);
	if (r < 0)
		return r;
	enc->header.len = 0;
	r = varve_index_build_finish(&enc->index, enc->level, &enc->header);
	return r < 0 ? r : to_sink(enc, enc->header.p, enc->header.len);
}

int varve_segment_enc_finish(struct varve_segment_enc *enc, struct varve_segment_totals *ret,
			     struct varve_err *err)
{
	if (enc->error < 0)
		return enc->error;
	if (enc->finished || enc->index.n_members == 0)
		return varve_err_set(err, -EINVAL, "nothing to finish");
	enc->error = finish(enc);
	if (enc->error < 0)
		return varve_err_wrap(err, enc->error, "end of segment");
	enc->finished = true;
	*ret = (struct varve_segment_totals){.files = enc->index.files,
					     .members = enc->index.n_members,
					     .content_bytes = enc->index.content_bytes,
					     .tar_bytes = enc->index.tar_bytes,
					     .segment_bytes = enc->written};
	return 0;
}
