/* What the tests of content share: an empty store, buckets A, B and C in a row. */
#pragma once

#include "../lib/storetest.h"

#define A "2026-12-01T10Z"
#define B "2026-12-01T11Z"
#define C "2026-12-01T12Z"

#define APPEND (O_WRONLY | O_APPEND | O_CREAT)
#define CREATE (O_WRONLY | O_TRUNC | O_CREAT)

static struct tstore *t;

T_FN void set_up(void)
{
	t = t_new(A);
	t_open(t);
}

T_FN void tear_down(void)
{
	t_free(t);
}

T_FN void reopen(void)
{
	t_close(t);
	t_open(t);
}

/* As many bytes of 'x'. */
T_FN char *xs(size_t n)
{
	char *p = malloc(n + 1);

	ck_assert_ptr_nonnull(p);
	memset(p, 'x', n);
	p[n] = '\0';
	return p;
}

T_FN ssize_t write_at(struct tfile *f, const char *text, uint64_t off, int flags)
{
	return varve_store_write(t->s, f->fh, text, strlen(text), off, flags);
}
