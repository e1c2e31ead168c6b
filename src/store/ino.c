/*
 * st_ino: a 64-bit counter below 2^53, never used again.
 *
 * Numbers are handed out in blocks that are durable before the first of them is used: what a crash
 * leaves of a block is lost, and nothing is written for most files.
 *
 * A stream that nothing was written to in the current bucket is seen as an empty file there, which
 * needs a number that stays the same over a remount though there is no part to note it on. So each
 * stream has a serial (noted once, on its marker in tree/), and each bucket takes a run of numbers for
 * the serials there are when it opens, and some more (noted in the clock record): number = base + serial.
 */
#include "store/core.h"

#include <errno.h>
#include <stdio.h>
#include <sys/xattr.h>

#include "base/bytes.h"

#define INO_BLOCK UINT64_C(65536)
#define INO_LOW UINT64_C(16384)

uint64_t varve_ino_take(struct varve_store *s)
{
	uint64_t next = atomic_load(&s->next_ino);

	do
		if (next >= atomic_load(&s->reserved_ino))
			return 0;
	while (!atomic_compare_exchange_weak(&s->next_ino, &next, next + 1));
	return next;
}

/* Reserves so that at least `want` are there; inos held. */
static int reserve(struct varve_store *s, uint64_t want)
{
	unsigned char b[8];
	uint64_t top = atomic_load(&s->next_ino) + want + INO_BLOCK;
	int r;

	if (top > VARVE_INO_LIMIT)
		return -EOVERFLOW;
	varve_put_le64(b, top);
	r = varve_slots_write(s->ino_slots, b, sizeof(b));
	if (r == 0)
		atomic_store(&s->reserved_ino, top);
	return r;
}

int varve_ino_ready(struct varve_store *s)
{
	if (atomic_load(&s->reserved_ino) >= atomic_load(&s->next_ino) + INO_LOW)
		return 0;
	guard(&s->inos);
	if (atomic_load(&s->reserved_ino) >= atomic_load(&s->next_ino) + INO_LOW)
		return 0;
	return reserve(s, 0);
}

int varve_ino_next(struct varve_store *s, uint64_t *ret)
{
	for (;;) {
		uint64_t ino = varve_ino_take(s);
		int r;

		if (ino) {
			*ret = ino;
			return 0;
		}
		r = varve_ino_ready(s);
		if (r < 0)
			return r;
	}
}

void varve_ino_beyond(struct varve_store *s, uint64_t ino)
{
	uint64_t next = atomic_load(&s->next_ino);

	/* Past what is reserved, the next take finds none and reserves anew. */
	while (next <= ino && ino < VARVE_INO_LIMIT &&
	       !atomic_compare_exchange_weak(&s->next_ino, &next, ino + 1))
		;
}

int varve_ino_streams(struct varve_store *s, uint64_t *ret_base, uint64_t *ret_n)
{
	uint64_t n, base;

	{
		guard(&s->ns);
		n = s->next_serial + VARVE_NEW_STREAMS;
	}
	guard(&s->inos);
	base = atomic_load(&s->next_ino);
	do
		if (atomic_load(&s->reserved_ino) < base + n) {
			int r = reserve(s, n);

			if (r < 0)
				return r;
		}
	while (!atomic_compare_exchange_weak(&s->next_ino, &base, base + n));
	*ret_base = base;
	*ret_n = n;
	return 0;
}

int varve_ino_read_xattr(int fd, uint64_t *ret)
{
	char text[32];
	char *end;
	ssize_t n = fgetxattr(fd, VARVE_XATTR_INO, text, sizeof(text) - 1);
	unsigned long long v;

	if (n < 0)
		return errno == ERANGE ? -ENODATA : -errno;
	text[n] = '\0';
	errno = 0;
	v = strtoull(text, &end, 10);
	/* A number that can't have been given out is as good as none. */
	if (n == 0 || *end || errno || v < VARVE_FIRST_INO || v >= VARVE_INO_LIMIT)
		return -ENODATA;
	*ret = v;
	return 0;
}

int varve_ino_write_xattr(int fd, uint64_t ino)
{
	char text[32];
	int n = snprintf(text, sizeof(text), "%llu", (unsigned long long)ino);

	return fsetxattr(fd, VARVE_XATTR_INO, text, (size_t)n, 0) < 0 ? -errno : 0;
}
