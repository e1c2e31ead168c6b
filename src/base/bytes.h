/*
 * Little-endian fields and overflow-checked bounds for everything that is parsed from disk or from
 * a peer. A cursor never runs past its end: after the first short read it is `bad` and yields zeros.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct varve_cursor {
	const unsigned char *p; /* next byte */
	size_t left;		/* bytes that remain */
	bool bad;		/* something was asked for that was not there */
};

static inline uint64_t varve_get_le(const void *from, unsigned bytes)
{
	const unsigned char *b = from;
	uint64_t v = 0;

	for (unsigned i = 0; i < bytes; i++)
		v |= (uint64_t)b[i] << (8 * i);
	return v;
}

static inline void varve_put_le(void *to, uint64_t v, unsigned bytes)
{
	unsigned char *b = to;

	for (unsigned i = 0; i < bytes; i++)
		b[i] = (unsigned char)(v >> (8 * i));
}

static inline uint16_t varve_get_le16(const void *p)
{
	return (uint16_t)varve_get_le(p, 2);
}

static inline uint32_t varve_get_le32(const void *p)
{
	return (uint32_t)varve_get_le(p, 4);
}

static inline uint64_t varve_get_le64(const void *p)
{
	return varve_get_le(p, 8);
}

static inline void varve_put_le16(void *p, uint16_t v)
{
	varve_put_le(p, v, 2);
}

static inline void varve_put_le32(void *p, uint32_t v)
{
	varve_put_le(p, v, 4);
}

static inline void varve_put_le64(void *p, uint64_t v)
{
	varve_put_le(p, v, 8);
}

/* The next n bytes, or NULL (and bad) when fewer remain. */
static inline const void *varve_cursor_take(struct varve_cursor *c, size_t n)
{
	const void *p = c->p;

	if (c->bad || n > c->left) {
		c->bad = true;
		return NULL;
	}
	c->p += n;
	c->left -= n;
	return p;
}

static inline uint64_t varve_cursor_le(struct varve_cursor *c, unsigned bytes)
{
	const void *p = varve_cursor_take(c, bytes);

	return p ? varve_get_le(p, bytes) : 0;
}

/* a + b into *ret; false on overflow. */
static inline bool varve_add_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
	return !__builtin_add_overflow(a, b, ret);
}

static inline bool varve_mul_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
	return !__builtin_mul_overflow(a, b, ret);
}
