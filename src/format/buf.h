/* A growing byte buffer, reused from one member to the next. */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

struct varve_buf {
	unsigned char *p; /* malloc'ed; its owner frees it with varve_buf_done */
	size_t len;       /* bytes in use */
	size_t size;      /* bytes allocated */
};

static inline void varve_buf_done(struct varve_buf *b)
{
	free(b->p);
	*b = (struct varve_buf){0};
}

/* Room for n more bytes: 0 or -ENOMEM. */
static inline varve_must_check int varve_buf_reserve(struct varve_buf *b, size_t n)
{
	size_t want, size;
	void *p;

	if (__builtin_add_overflow(b->len, n, &want))
		return -ENOMEM;
	if (want <= b->size)
		return 0;
	size = b->size > want / 2 ? b->size * 2 : want < 64 ? 64 : want;
	p = realloc(b->p, size);
	if (!p)
		return -ENOMEM;
	b->p = p;
	b->size = size;
	return 0;
}

static inline varve_must_check int varve_buf_add(struct varve_buf *b, const void *data, size_t n)
{
	int r = varve_buf_reserve(b, n);

	if (r < 0)
		return r;
	if (n > 0)
		memcpy(b->p + b->len, data, n);
	b->len += n;
	return 0;
}

/* n bytes of zeros. */
static inline varve_must_check int varve_buf_add_zeros(struct varve_buf *b, size_t n)
{
	int r = varve_buf_reserve(b, n);

	if (r < 0)
		return r;
	if (n > 0)
		memset(b->p + b->len, 0, n);
	b->len += n;
	return 0;
}
