/* What the tests of the range record begin with: a record that holds a little of everything. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../lib/unit.h"
#include "format/segment.h"
#include "store/ranges.h"

#define A "2026-12-01T10Z"
#define B "2026-12-01T11Z"
#define C "2026-12-01T12Z"

static struct varve_ranges list;

T_FN void set_up(void)
{
	varve_ranges_init(&list);
}

T_FN void tear_down(void)
{
	varve_ranges_done(&list);
}

T_FN struct varve_range entry(const char *bucket, uint64_t part, uint64_t head, uint64_t end)
{
	struct varve_range e = {.class_name = "default", .tablet = "0", .part = part, .ino = part + 7,
				.head = head, .end = end, .mode = 0640, .uid = 3, .gid = 4,
				.mtime_ns = 1764580000123456789, .path = (char *)(uintptr_t)"nginx/access.log"};

	(void)snprintf(e.bucket, sizeof(e.bucket), "%s", bucket);
	return e;
}

T_FN void add(const struct varve_range *e)
{
	ck_assert_int_eq(varve_ranges_add(&list, e), 0);
}

T_FN void put(const char *bucket, uint64_t part, uint64_t head, uint64_t end)
{
	struct varve_range e = entry(bucket, part, head, end);

	add(&e);
}

T_FN size_t pack(unsigned char *buf, size_t size)
{
	size_t len = 0;

	ck_assert_int_eq(varve_xattr_put(buf, size, &len, "user.a", "one", 3), 0);
	ck_assert_int_eq(varve_xattr_put(buf, size, &len, "user.b", "", 0), 0);
	return len;
}

/* Three buckets on two parts, with everything that an entry may have. */
T_FN void fill(void)
{
	unsigned char xattrs[64];
	struct varve_range e = entry(A, 2000, 0, 100);

	e.xattrs = xattrs;
	e.xattrs_len = pack(xattrs, sizeof(xattrs));
	e.mtime_ns = -1500000000;
	add(&e);
	e = entry(B, 2000, 100, 5000);
	e.end_pending = true;
	e.begun = true;
	e.mode = 07777;
	add(&e);
	e = entry(C, 2000, 5000, UINT64_MAX);
	e.head_pending = true;
	e.path = (char *)(uintptr_t)"moved/\xff\xfe.log";
	add(&e);
	e = entry(C, 3000, 0, UINT64_MAX);
	e.uid = UINT32_MAX;
	e.head = INT64_MAX;
	add(&e);
	(void)strcpy(list.links_bucket, C);
	list.links_done = false;
}

/* One assertion for all of it: each is a message to Check's own process, and there are many entries. */
T_FN void expect_same(const struct varve_range *a, const struct varve_range *b)
{
	const char *what = strcmp(a->bucket, b->bucket) != 0			? "bucket"
			   : strcmp(a->class_name, b->class_name) != 0		? "class"
			   : strcmp(a->tablet, b->tablet) != 0			? "tablet"
			   : a->part != b->part					? "part"
			   : a->ino != b->ino					? "number"
			   : a->head != b->head || a->end != b->end		? "range"
			   : a->head_pending != b->head_pending			? "head's pending"
			   : a->end_pending != b->end_pending			? "end's pending"
			   : a->begun != b->begun				? "begun"
			   : a->mode != b->mode					? "mode"
			   : a->uid != b->uid || a->gid != b->gid		? "owner"
			   : a->mtime_ns != b->mtime_ns				? "time"
			   : strcmp(a->path, b->path) != 0			? "path"
			   : a->xattrs_len != b->xattrs_len ||
				     (a->xattrs_len && memcmp(a->xattrs, b->xattrs, a->xattrs_len) != 0) ? "attributes"
													 : NULL;

	ck_assert_msg(what == NULL, "the %s of '%s' in %s differs", what, a->path, a->bucket);
}

/* Each entry of x is in y, and there are no others. */
T_FN void expect_equal(const struct varve_ranges *x, struct varve_ranges *y)
{
	ck_assert_uint_eq(x->n, y->n);
	ck_assert_str_eq(x->links_bucket, y->links_bucket);
	ck_assert_int_eq(x->links_done, y->links_done);
	for (size_t i = 0; i < x->n; i++) {
		const struct varve_range *e = varve_ranges_find(y, x->list[i].bucket, x->list[i].part);

		ck_assert_msg(e != NULL, "'%s' of %s is missing", x->list[i].path, x->list[i].bucket);
		expect_same(&x->list[i], e);
	}
}
