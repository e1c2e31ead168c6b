#include "store/known.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/log.h"
#include "format/digest.h"
#include "store/core.h"

/*
 * Little-endian: the magic; the number of buckets (u64); per bucket the length of its name (u8), the
 * name, seven numbers (u64) and mtime's seconds (i64) and, of mode, owner, group and mtime's
 * nanoseconds, four (u32), all in the order of varve_known_bucket; XXH3-64 of all before it.
 */
#define FILE_NAME "sealed"
#define MAGIC "VARVSEA1"
#define MAGIC_BYTES 8
#define HEAD_BYTES (MAGIC_BYTES + 8)
#define NUMBERS_BYTES (7 * 8 + 3 * 4 + 8 + 4)
#define RECORD_MAX (1 + VARVE_BUCKET_NAME_MAX + NUMBERS_BYTES)
#define HASH_BYTES 8
#define FILE_BYTES_MAX ((size_t)1 << 30)

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct varve_known_bucket *)a)->name,
		      ((const struct varve_known_bucket *)b)->name);
}

/* The record at p: its length, or 0 when it makes no sense. */
static size_t parse_record(const unsigned char *p, size_t left, struct varve_known_bucket *ret)
{
	size_t len = left > 0 ? p[0] : 0;
	int64_t start, end;

	if (len == 0 || len >= VARVE_BUCKET_NAME_MAX || left < 1 + len + NUMBERS_BYTES)
		return 0;
	*ret = (struct varve_known_bucket){.dir_ino = 0};
	memcpy(ret->name, p + 1, len);
	p += 1 + len;
	ret->dir_ino = varve_get_le64(p);
	ret->ino = varve_get_le64(p + 8);
	ret->files = varve_get_le64(p + 16);
	ret->bytes = varve_get_le64(p + 24);
	ret->allocated = varve_get_le64(p + 32);
	ret->start_ns = (int64_t)varve_get_le64(p + 40);
	ret->end_ns = (int64_t)varve_get_le64(p + 48);
	ret->mode = varve_get_le32(p + 56);
	ret->uid = varve_get_le32(p + 60);
	ret->gid = varve_get_le32(p + 64);
	ret->mtime_sec = (int64_t)varve_get_le64(p + 68);
	ret->mtime_nsec = varve_get_le32(p + 76);
	if (varve_name_parse(ret->name, &start, &end) < 0 || start != ret->start_ns ||
	    ret->end_ns <= start || (ret->mode && !S_ISDIR(ret->mode)) ||
	    ret->mtime_nsec >= 1000000000 || ret->ino < VARVE_FIRST_INO || ret->ino >= VARVE_INO_LIMIT)
		return 0;
	return 1 + len + NUMBERS_BYTES;
}

static int parse(const unsigned char *p, size_t len, struct varve_known_bucket **ret, size_t *ret_n)
{
	struct varve_known_bucket *list;
	size_t at = HEAD_BYTES, end = len - HASH_BYTES;
	uint64_t n;

	if (len < HEAD_BYTES + HASH_BYTES || memcmp(p, MAGIC, MAGIC_BYTES) != 0 ||
	    varve_get_le64(p + end) != varve_hash64(p, end))
		return -EBADMSG;
	n = varve_get_le64(p + MAGIC_BYTES);
	if (n > (end - at) / (1 + NUMBERS_BYTES))
		return -EBADMSG;
	list = calloc(n + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++) {
		size_t used = parse_record(p + at, end - at, &list[i]);

		if (!used || (i > 0 && by_name(&list[i - 1], &list[i]) >= 0)) {
			free(list);
			return -EBADMSG;
		}
		at += used;
	}
	if (at != end) {
		free(list);
		return -EBADMSG;
	}
	*ret = list;
	*ret_n = (size_t)n;
	return 0;
}

int varve_known_read(int meta_fd, struct varve_known_bucket **ret, size_t *ret_n)
{
	cleanup_free char *text = NULL;
	size_t len;
	int r = varve_read_file(meta_fd, FILE_NAME, FILE_BYTES_MAX, &text, &len);

	return r < 0 ? r : parse((const unsigned char *)text, len, ret, ret_n);
}

const struct varve_known_bucket *varve_known_find(const struct varve_known_bucket *list, size_t n,
						  const char *name, uint64_t dir_ino)
{
	struct varve_known_bucket key = {.dir_ino = dir_ino};
	const struct varve_known_bucket *k;

	if (!n || strlen(name) >= sizeof(key.name))
		return NULL;
	memcpy(key.name, name, strlen(name) + 1);
	k = bsearch(&key, list, n, sizeof(*list), by_name);
	return k && k->dir_ino == dir_ino ? k : NULL;
}

int varve_known_write(int meta_fd, struct varve_known_bucket *list, size_t n)
{
	cleanup_free unsigned char *text = malloc(HEAD_BYTES + n * RECORD_MAX + HASH_BYTES);
	unsigned char *p = text;

	if (!text)
		return -ENOMEM;
	if (n)
		qsort(list, n, sizeof(*list), by_name);
	memcpy(p, MAGIC, MAGIC_BYTES);
	varve_put_le64(p + MAGIC_BYTES, n);
	p += HEAD_BYTES;
	for (size_t i = 0; i < n; i++) {
		const struct varve_known_bucket *k = &list[i];
		const uint64_t numbers[] = {k->dir_ino,	  k->ino,
					    k->files,	  k->bytes,
					    k->allocated, (uint64_t)k->start_ns,
					    (uint64_t)k->end_ns};
		size_t len = strlen(k->name);

		*p = (unsigned char)len;
		memcpy(p + 1, k->name, len);
		p += 1 + len;
		for (size_t v = 0; v < 7; v++)
			varve_put_le64(p + 8 * v, numbers[v]);
		varve_put_le32(p + 56, k->mode);
		varve_put_le32(p + 60, k->uid);
		varve_put_le32(p + 64, k->gid);
		varve_put_le64(p + 68, (uint64_t)k->mtime_sec);
		varve_put_le32(p + 76, k->mtime_nsec);
		p += NUMBERS_BYTES;
	}
	varve_put_le64(p, varve_hash64(text, (size_t)(p - text)));
	p += HASH_BYTES;
	return varve_publish_file(meta_fd, FILE_NAME, text, (size_t)(p - text), 0600);
}

/* Only what can be told in full: the others are looked into by each mount. */
static bool is_tellable(const struct varve_bucket *b)
{
	return b->state == VARVE_BUCKET_SEALED && !b->damaged && !b->dropping && b->dir_ino &&
	       b->files != UINT64_MAX;
}

void varve_known_keep(struct varve_store *s)
{
	cleanup_free struct varve_known_bucket *list = NULL;
	unsigned changes;
	size_t n = 0;
	int r;

	changes = atomic_load(&s->known_changes);
	if (changes == 0)
		return;
	{
		guard(&s->ns);
		list = calloc((size_t)s->n_buckets + 1, sizeof(*list));
		for (uint32_t i = 0; list && i < s->n_buckets; i++) {
			struct varve_bucket *b = s->buckets[i];

			if (!is_tellable(b))
				continue;
			list[n] = (struct varve_known_bucket){
				.dir_ino = b->dir_ino, .ino = b->ino, .files = b->files,
				.bytes = b->bytes, .allocated = varve_bucket_allocated(b),
				.start_ns = b->start_ns, .end_ns = b->end_ns,
				.mode = b->dir_attr.st_mode, .uid = b->dir_attr.st_uid,
				.gid = b->dir_attr.st_gid,
				.mtime_sec = b->dir_attr.st_mtim.tv_sec,
				.mtime_nsec = (uint32_t)b->dir_attr.st_mtim.tv_nsec};
			memcpy(list[n++].name, b->name, sizeof(b->name));
		}
	}
	r = list ? varve_known_write(s->meta_fd, list, n) : -ENOMEM;
	/* After an error it is tried again when as much has changed anew, or at the end. */
	(void)atomic_fetch_sub(&s->known_changes, r == 0 ? changes : changes - 1);
	if (r < 0)
		varve_debug("'meta/sealed' can't be written: %s; the next mount takes longer",
			    strerror(-r));
}
