#include "store/ranges.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "format/buf.h"
#include "format/segment.h"

#define FILE_NAME "ranges"
#define FIRST_BYTES ((size_t)64 << 10) /* of a slot, at first */

#define HEAD_PENDING 1u
#define END_PENDING 2u
#define BEGUN 4u
#define LINKS_DONE 1u

void varve_ranges_init(struct varve_ranges *l)
{
	*l = (struct varve_ranges){.links_done = true};
}

static void entry_done(struct varve_range *e)
{
	free(e->path);
	free(e->xattrs);
}

void varve_ranges_done(struct varve_ranges *l)
{
	for (size_t i = 0; i < l->n; i++)
		entry_done(&l->list[i]);
	free(l->list);
	varve_ranges_init(l);
}

int varve_ranges_add(struct varve_ranges *l, const struct varve_range *e)
{
	struct varve_range copy = *e;

	if (l->n == l->size) {
		size_t size = l->size ? 2 * l->size : 64;
		struct varve_range *more = realloc(l->list, size * sizeof(*more));

		if (!more)
			return -ENOMEM;
		l->list = more;
		l->size = size;
	}
	copy.path = strdup(e->path ? e->path : "");
	copy.xattrs = e->xattrs_len ? malloc(e->xattrs_len) : NULL;
	if (!copy.path || (e->xattrs_len && !copy.xattrs)) {
		entry_done(&copy);
		return -ENOMEM;
	}
	if (e->xattrs_len)
		memcpy(copy.xattrs, e->xattrs, e->xattrs_len);
	l->list[l->n++] = copy;
	l->sorted = false;
	return 0;
}

static int by_key(const void *a, const void *b)
{
	const struct varve_range *x = a, *y = b;

	if (x->part != y->part)
		return x->part < y->part ? -1 : 1;
	return strcmp(x->bucket, y->bucket);
}

static void sort(struct varve_ranges *l)
{
	if (!l->sorted && l->n)
		qsort(l->list, l->n, sizeof(*l->list), by_key);
	l->sorted = true;
}

const struct varve_range *varve_ranges_find(struct varve_ranges *l, const char *bucket, uint64_t part)
{
	struct varve_range key = {.part = part};

	if (!l->n || strlen(bucket) >= sizeof(key.bucket))
		return NULL;
	sort(l);
	(void)strcpy(key.bucket, bucket);
	return bsearch(&key, l->list, l->n, sizeof(*l->list), by_key);
}

size_t varve_ranges_keep(struct varve_ranges *l, bool (*wanted)(void *ctx, const struct varve_range *e), void *ctx)
{
	size_t kept = 0, before = l->n;

	for (size_t i = 0; i < l->n; i++) {
		if (wanted(ctx, &l->list[i]))
			l->list[kept++] = l->list[i];
		else
			entry_done(&l->list[i]);
	}
	l->n = kept;
	return before - kept;
}

static bool is_of_another(void *bucket, const struct varve_range *e)
{
	return strcmp(e->bucket, bucket) != 0;
}

size_t varve_ranges_remove_bucket(struct varve_ranges *l, const char *bucket)
{
	return varve_ranges_keep(l, is_of_another, (void *)(uintptr_t)bucket);
}

/* The first entry that may be the part's. */
static size_t first_of(const struct varve_ranges *l, uint64_t part)
{
	size_t low = 0, high = l->sorted ? l->n : 0;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (l->list[mid].part < part)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

bool varve_ranges_lowest_head(const struct varve_ranges *l, uint64_t part, uint64_t *ret)
{
	bool found = false;

	for (size_t i = first_of(l, part); i < l->n; i++) {
		if (l->sorted && l->list[i].part != part)
			break;
		if (l->list[i].part != part || (found && l->list[i].head >= *ret))
			continue;
		*ret = l->list[i].head;
		found = true;
	}
	return found;
}

/* -- the form on disk -- */

static int put(struct varve_buf *b, uint64_t v, unsigned bytes)
{
	unsigned char le[8];

	varve_put_le(le, v, bytes);
	return varve_buf_add(b, le, bytes);
}

static int put_text(struct varve_buf *b, const char *text)
{
	size_t len = strlen(text);
	int r = put(b, len, 2);

	return r < 0 ? r : varve_buf_add(b, text, len);
}

static int put_entry(struct varve_buf *b, const struct varve_range *e)
{
	const uint64_t words[] = {e->part, e->ino, e->head, e->end, (uint64_t)e->mtime_ns};
	int r = put(b, (e->head_pending ? HEAD_PENDING : 0) | (e->end_pending ? END_PENDING : 0) |
			       (e->begun ? BEGUN : 0), 4);

	for (size_t i = 0; r == 0 && i < sizeof(words) / sizeof(*words); i++)
		r = put(b, words[i], 8);
	if (r == 0)
		r = put(b, e->mode, 4);
	if (r == 0)
		r = put(b, e->uid, 4);
	if (r == 0)
		r = put(b, e->gid, 4);
	if (r == 0)
		r = put_text(b, e->bucket);
	if (r == 0)
		r = put_text(b, e->class_name);
	if (r == 0)
		r = put_text(b, e->tablet);
	if (r == 0)
		r = put_text(b, e->path);
	if (r == 0)
		r = put(b, e->xattrs_len, 4);
	return r < 0 ? r : varve_buf_add(b, e->xattrs, e->xattrs_len);
}

int varve_ranges_encode(const struct varve_ranges *l, unsigned char **ret, size_t *ret_len)
{
	struct varve_buf b = {0};
	int r = l->n > UINT32_MAX ? -EFBIG : put(&b, VARVE_RANGES_VERSION, 4);

	if (r == 0)
		r = put(&b, l->links_done ? LINKS_DONE : 0, 4);
	if (r == 0)
		r = put_text(&b, l->links_bucket);
	if (r == 0)
		r = put(&b, l->n, 4);
	for (size_t i = 0; r == 0 && i < l->n; i++)
		r = put_entry(&b, &l->list[i]);
	if (r < 0) {
		varve_buf_done(&b);
		return r;
	}
	*ret = b.p;
	*ret_len = b.len;
	return 0;
}

/* A text of at most size - 1 bytes, without NUL inside; "" and bad at any error. */
static void take_text(struct varve_cursor *c, char *buf, size_t size)
{
	size_t len = (size_t)varve_cursor_le(c, 2);
	const void *p = len < size ? varve_cursor_take(c, len) : NULL;

	buf[0] = '\0';
	if (!p || memchr(p, '\0', len)) {
		c->bad = true;
		return;
	}
	memcpy(buf, p, len);
	buf[len] = '\0';
}

static bool is_bucket(const char *name)
{
	int64_t start, end;

	return varve_name_parse(name, &start, &end) == 0;
}

/* A folder's name that stays inside its bucket. */
static bool is_folder(const char *name)
{
	return name[0] && name[0] != '.' && !strchr(name, '/');
}

static bool is_sound(const struct varve_range *e)
{
	struct varve_xattr x;
	uint32_t at = 0;
	int r;

	do
		r = varve_xattr_next(e->xattrs, (uint32_t)e->xattrs_len, &at, &x);
	while (r > 0);
	return r == 0 && is_bucket(e->bucket) && is_folder(e->class_name) && is_folder(e->tablet) &&
	       e->path[0] && varve_path_check(e->path, strlen(e->path)) == 0 && e->head <= e->end &&
	       e->part && e->ino && e->head <= INT64_MAX && (e->end <= INT64_MAX || e->end == UINT64_MAX) &&
	       !(e->end == UINT64_MAX && e->end_pending) && e->mode <= 07777;
}

static int take_entry(struct varve_cursor *c, char *path, struct varve_ranges *l)
{
	struct varve_range e = {.path = path};
	uint32_t flags = (uint32_t)varve_cursor_le(c, 4);
	const void *xattrs;

	e.head_pending = flags & HEAD_PENDING;
	e.end_pending = flags & END_PENDING;
	e.begun = flags & BEGUN;
	e.part = varve_cursor_le(c, 8);
	e.ino = varve_cursor_le(c, 8);
	e.head = varve_cursor_le(c, 8);
	e.end = varve_cursor_le(c, 8);
	e.mtime_ns = (int64_t)varve_cursor_le(c, 8);
	e.mode = (uint32_t)varve_cursor_le(c, 4);
	e.uid = (uint32_t)varve_cursor_le(c, 4);
	e.gid = (uint32_t)varve_cursor_le(c, 4);
	take_text(c, e.bucket, sizeof(e.bucket));
	take_text(c, e.class_name, sizeof(e.class_name));
	take_text(c, e.tablet, sizeof(e.tablet));
	take_text(c, path, VARVE_PATH_BYTES_MAX + 1);
	e.xattrs_len = (size_t)varve_cursor_le(c, 4);
	xattrs = varve_cursor_take(c, e.xattrs_len);
	if (c->bad || flags & ~(HEAD_PENDING | END_PENDING | BEGUN))
		return -EBADMSG;
	e.xattrs = (unsigned char *)(uintptr_t)xattrs;
	return is_sound(&e) ? varve_ranges_add(l, &e) : -EBADMSG;
}

static int decode(struct varve_cursor *c, struct varve_ranges *l)
{
	cleanup_free char *path = malloc(VARVE_PATH_BYTES_MAX + 1);
	uint64_t version = varve_cursor_le(c, 4), flags = varve_cursor_le(c, 4), n;
	int r = 0;

	if (!path)
		return -ENOMEM;
	if (!c->bad && version > VARVE_RANGES_VERSION)
		return -EPROTONOSUPPORT;
	take_text(c, l->links_bucket, sizeof(l->links_bucket));
	n = varve_cursor_le(c, 4);
	if (c->bad || version != VARVE_RANGES_VERSION || flags & ~(uint64_t)LINKS_DONE ||
	    (l->links_bucket[0] && !is_bucket(l->links_bucket)))
		return -EBADMSG;
	l->links_done = flags & LINKS_DONE;
	for (uint64_t i = 0; r == 0 && i < n; i++)
		r = take_entry(c, path, l);
	if (r == 0 && c->left)
		r = -EBADMSG;
	sort(l);
	for (size_t i = 1; r == 0 && i < l->n; i++)
		if (by_key(&l->list[i - 1], &l->list[i]) == 0)
			r = -EBADMSG;
	return r;
}

int varve_ranges_decode(const unsigned char *data, size_t len, struct varve_ranges *ret)
{
	struct varve_cursor c = {.p = data, .left = len};
	int r;

	varve_ranges_init(ret);
	r = decode(&c, ret);
	if (r < 0)
		varve_ranges_done(ret);
	return r;
}

/* -- the file -- */

static int load(struct varve_ranges *ret, struct varve_slots *slots)
{
	size_t len = varve_slots_payload_max(slots);
	cleanup_free unsigned char *data = malloc(len);
	int r;

	if (!data)
		return -ENOMEM;
	r = varve_slots_read(slots, data, &len);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : varve_ranges_decode(data, len, ret);
}

int varve_ranges_load(struct varve_ranges *ret, struct varve_slots **slots, int meta_fd,
		      struct varve_err *err)
{
	struct stat st;
	int r;

	varve_ranges_init(ret);
	if (fstatat(meta_fd, FILE_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0
				       : varve_err_set(err, -errno, "the range record 'meta/ranges' can't be "
						       "looked at: %s", strerror(errno));
	r = varve_slots_open(meta_fd, FILE_NAME, VARVE_RANGES_MAGIC, FIRST_BYTES, slots, err);
	if (r < 0)
		return r;
	r = load(ret, *slots);
	if (r == -EPROTONOSUPPORT)
		return varve_err_set(err, r, "the range record 'meta/ranges' was written by a later version of "
				     "varvefs: mount the store with that one");
	return r < 0 ? varve_err_set(err, r, "the range record 'meta/ranges' can't be read: %s", strerror(-r))
		     : 0;
}

int varve_ranges_peek(struct varve_ranges *ret, int meta_fd)
{
	cleanup_free void *data = NULL;
	size_t len;
	int r = varve_slots_peek(meta_fd, FILE_NAME, VARVE_RANGES_MAGIC, &data, &len);

	varve_ranges_init(ret);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : varve_ranges_decode(data, len, ret);
}

static int grow(struct varve_slots **slots, int meta_fd, size_t len)
{
	struct varve_err err = {.msg = ""};
	struct varve_slots *larger;
	size_t size = FIRST_BYTES;
	int r;

	if (len > VARVE_SLOTS_PAYLOAD_MAX)
		return -EFBIG;
	while (size < len + len / 2)
		size *= 2;
	if (size > VARVE_SLOTS_PAYLOAD_MAX)
		size = VARVE_SLOTS_PAYLOAD_MAX;
	r = varve_slots_open(meta_fd, FILE_NAME, VARVE_RANGES_MAGIC, size, &larger, &err);
	if (r < 0)
		return r;
	/* Not before: on a full disk what is smaller must still get through. */
	varve_slots_close(*slots);
	*slots = larger;
	return 0;
}

int varve_ranges_reserve(struct varve_slots **slots, int meta_fd)
{
	struct varve_err err = {.msg = ""};

	return *slots ? 0 : varve_slots_open(meta_fd, FILE_NAME, VARVE_RANGES_MAGIC, FIRST_BYTES, slots, &err);
}

int varve_ranges_save(const struct varve_ranges *l, struct varve_slots **slots, int meta_fd)
{
	cleanup_free unsigned char *data = NULL;
	size_t len;
	int r;

	if (!l->n && !*slots)
		return 0;
	r = varve_ranges_encode(l, &data, &len);
	if (r == 0 && (!*slots || len > varve_slots_payload_max(*slots)))
		r = grow(slots, meta_fd, len);
	return r < 0 ? r : varve_slots_write(*slots, data, len);
}
