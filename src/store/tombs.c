#include "store/tombs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/sync.h"
#include "base/sys.h"
#include "format/digest.h"
#include "format/segment.h"
#include "store/policy.h"

/*
 * A record, little-endian: length of what follows (u32), class length (u8), tablet length (u8),
 * path length (u16), class, tablet, path, XXH3-64 of all before it in the record. The file begins
 * with the magic. What does not make sense is passed over: at the end it is an append that was
 * torn, before the end it is damage, and must not bring back what the records behind it removed.
 * The two zeros in every length keep a path, which has no NUL, from being taken for a record.
 */
#define MAGIC "VARVTMB1"
#define MAGIC_BYTES 8
#define HEAD_BYTES 8
#define HASH_BYTES 8
#define FILE_BYTES_MAX ((size_t)1 << 31)

struct tomb {
	struct tomb *next;
	uint64_t hash;
	size_t len;
	char key[]; /* class '/' tablet '/' path: no class or tablet holds a '/' */
};

struct varve_tombs {
	pthread_mutex_t lock; /* "tombs": all below */
	int dirfd;            /* the caller's */
	char *name;
	bool read_only;
	int fd;       /* for appending; -1: not opened yet */
	uint64_t end; /* of the last whole record; 0: no file, or a torn one without any */
	uint64_t added, synced; /* a sync is due when they differ */
	bool new_file;          /* the directory may not have been synced since it was made */
	struct tomb **chains;
	size_t n_chains, n;
};

static char *make_key(const char *class_name, const char *tablet, const char *path, size_t len,
		      size_t *ret_len)
{
	size_t c = strlen(class_name), t = strlen(tablet);
	char *key = malloc(c + t + len + 3);

	if (!key)
		return NULL;
	memcpy(key, class_name, c);
	key[c] = '/';
	memcpy(key + c + 1, tablet, t);
	key[c + 1 + t] = '/';
	memcpy(key + c + t + 2, path, len);
	*ret_len = c + t + len + 2;
	return key;
}

static void grow(struct varve_tombs *t)
{
	size_t n = t->n_chains ? 2 * t->n_chains : 64;
	struct tomb **chains;

	if (t->n < t->n_chains)
		return;
	chains = calloc(n, sizeof(*chains));
	if (!chains)
		return;
	for (size_t i = 0; i < t->n_chains; i++)
		while (t->chains[i]) {
			struct tomb *x = t->chains[i];

			t->chains[i] = x->next;
			x->next = chains[x->hash & (n - 1)];
			chains[x->hash & (n - 1)] = x;
		}
	free(t->chains);
	t->chains = chains;
	t->n_chains = n;
}

static struct tomb *find(const struct varve_tombs *t, const char *key, size_t len, uint64_t hash)
{
	struct tomb *x = t->n_chains ? t->chains[hash & (t->n_chains - 1)] : NULL;

	while (x && (x->hash != hash || x->len != len || memcmp(x->key, key, len) != 0))
		x = x->next;
	return x;
}

static int insert(struct varve_tombs *t, const char *key, size_t len)
{
	uint64_t hash = varve_hash64(key, len);
	struct tomb *x;

	if (find(t, key, len, hash))
		return 0;
	grow(t);
	x = t->n_chains ? malloc(sizeof(*x) + len) : NULL;
	if (!x)
		return -ENOMEM;
	x->hash = hash;
	x->len = len;
	memcpy(x->key, key, len);
	x->next = t->chains[hash & (t->n_chains - 1)];
	t->chains[hash & (t->n_chains - 1)] = x;
	t->n++;
	return 0;
}

/* One record at p: its whole length, or 0 when it is torn or makes no sense. */
static size_t parse_record(struct varve_tombs *t, const unsigned char *p, size_t left, int *ret_r)
{
	size_t body, c, tab, path;
	char class_name[256], tablet[256];
	char *key;
	size_t len;

	if (left < HEAD_BYTES + HASH_BYTES)
		return 0;
	body = varve_get_le32(p);
	c = p[4];
	tab = p[5];
	path = varve_get_le16(p + 6);
	if (body != HEAD_BYTES - 4 + c + tab + path + HASH_BYTES || body > left - 4)
		return 0;
	if (varve_get_le64(p + 4 + body - HASH_BYTES) != varve_hash64(p, 4 + body - HASH_BYTES))
		return 0;
	memcpy(class_name, p + 8, c);
	class_name[c] = '\0';
	memcpy(tablet, p + 8 + c, tab);
	tablet[tab] = '\0';
	key = make_key(class_name, tablet, (const char *)p + 8 + c + tab, path, &len);
	*ret_r = key ? insert(t, key, len) : -ENOMEM;
	free(key);
	return 4 + body;
}

static int parse_records(struct varve_tombs *t, const unsigned char *p, size_t len)
{
	size_t whole = MAGIC_BYTES, bad = 0;
	int r = 0;

	for (size_t at = MAGIC_BYTES; r == 0 && at < len;) {
		size_t n = parse_record(t, p + at, len - at, &r);

		if (!n) {
			at++;
			continue;
		}
		bad += at - whole;
		at += n;
		whole = at;
	}
	if (bad)
		varve_warning("'meta/tombs/%s' is damaged: %zu bytes of it are passed over, and "
			      "files that were removed may be back",
			      t->name, bad);
	t->end = t->n ? whole : 0;
	return r;
}

static int load(struct varve_tombs *t, struct varve_err *err)
{
	static const char zeros[MAGIC_BYTES];
	cleanup_free char *text = NULL;
	size_t len;
	int r = varve_read_file(t->dirfd, t->name, FILE_BYTES_MAX, &text, &len);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return varve_err_wrap(err, r, "meta/tombs/%s", t->name);
	/* Shorter than its magic, or zeros: the very first write was torn. */
	if (len >= MAGIC_BYTES && memcmp(text, MAGIC, MAGIC_BYTES) != 0 &&
	    memcmp(text, zeros, MAGIC_BYTES) != 0)
		return varve_err_set(err, -EBADMSG, "'meta/tombs/%s' is not a file of tombstones",
				     t->name);
	r = parse_records(t, (const unsigned char *)text, len);
	/* An earlier daemon may have ended before it made them durable. */
	t->added = t->n;
	t->new_file = true;
	return r;
}

int varve_tombs_open(int dirfd, const char *bucket, bool read_only, struct varve_tombs **ret,
		     struct varve_err *err)
{
	struct varve_tombs *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	(void)pthread_mutex_init(&t->lock, NULL);
	t->dirfd = dirfd;
	t->fd = -1;
	t->read_only = read_only;
	t->name = strdup(bucket);
	r = t->name ? load(t, err) : -ENOMEM;
	if (r < 0) {
		varve_tombs_close(t);
		return r;
	}
	*ret = t;
	return 0;
}

void varve_tombs_close(struct varve_tombs *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n_chains; i++)
		while (t->chains[i]) {
			struct tomb *x = t->chains[i];

			t->chains[i] = x->next;
			free(x);
		}
	if (t->fd >= 0)
		(void)close(t->fd);
	(void)pthread_mutex_destroy(&t->lock);
	free(t->chains);
	free(t->name);
	free(t);
}

bool varve_tombs_has(struct varve_tombs *t, const char *class_name, const char *tablet,
		     const char *path, size_t len)
{
	size_t key_len;
	cleanup_free char *key = make_key(class_name, tablet, path, len, &key_len);

	/* Without memory nothing is shown that may have been removed. */
	if (!key)
		return true;
	guard(&t->lock);
	return find(t, key, key_len, varve_hash64(key, key_len)) != NULL;
}

size_t varve_tombs_count(struct varve_tombs *t)
{
	guard(&t->lock);
	return t->n;
}

static int begin_file(int fd, uint64_t end)
{
	int r = end == 0 ? varve_pwrite_full(fd, MAGIC, MAGIC_BYTES, 0) : 0;

	if (r < 0)
		return r;
	return ftruncate(fd, (off_t)(end ? end : MAGIC_BYTES)) < 0 ? -errno : 0;
}

/* Opens the file for appending; a torn tail is cut off before the first record goes behind it. lock
 * is held. -ENOENT: it was there, and was removed. */
static int open_file(struct varve_tombs *t)
{
	int fd, r;

	if (t->fd >= 0)
		return 0;
	fd = varve_openat(t->dirfd, t->name, O_WRONLY | (t->end ? 0 : O_CREAT) | O_NOFOLLOW, 0600);
	if (fd < 0)
		return fd;
	r = begin_file(fd, t->end);
	if (r < 0) {
		(void)close(fd);
		return r;
	}
	if (t->end == 0) {
		t->end = MAGIC_BYTES;
		t->new_file = true;
	}
	t->fd = fd;
	return 0;
}

int varve_tombs_add(struct varve_tombs *t, const char *class_name, const char *tablet,
		    const char *path, size_t len)
{
	unsigned char rec[HEAD_BYTES + 2 * 256 + VARVE_PATH_BYTES_MAX + HASH_BYTES];
	size_t c = strlen(class_name), tab = strlen(tablet), n = HEAD_BYTES, key_len;
	cleanup_free char *key = NULL;
	int r;

	if (t->read_only)
		return -EROFS;
	if (c > 255 || tab > 255 || len > VARVE_PATH_BYTES_MAX)
		return -ENAMETOOLONG;
	key = make_key(class_name, tablet, path, len, &key_len);
	if (!key)
		return -ENOMEM;
	varve_put_le32(rec, (uint32_t)(HEAD_BYTES - 4 + c + tab + len + HASH_BYTES));
	rec[4] = (unsigned char)c;
	rec[5] = (unsigned char)tab;
	varve_put_le16(rec + 6, (uint16_t)len);
	memcpy(rec + n, class_name, c);
	memcpy(rec + n + c, tablet, tab);
	memcpy(rec + n + c + tab, path, len);
	n += c + tab + len;
	varve_put_le64(rec + n, varve_hash64(rec, n));
	n += HASH_BYTES;
	guard(&t->lock);
	if (find(t, key, key_len, varve_hash64(key, key_len)))
		return 0;
	r = open_file(t);
	if (r == 0)
		r = varve_pwrite_full(t->fd, rec, n, t->end);
	if (r == 0)
		r = insert(t, key, key_len);
	if (r < 0) {
		/* What was half written must not be in the way of the next record. */
		if (t->fd >= 0)
			(void)!ftruncate(t->fd, (off_t)t->end);
		return r;
	}
	t->end += n;
	t->added++;
	return 0;
}

int varve_tombs_sync(struct varve_tombs *t)
{
	uint64_t added;
	bool new_file;
	int r, fd;

	{
		guard(&t->lock);
		if (t->synced == t->added || t->read_only)
			return 0;
		r = open_file(t);
		if (r < 0)
			return r == -ENOENT ? 0 : r; /* it went with its bucket */
		fd = t->fd;
		added = t->added;
		new_file = t->new_file;
	}
	/* Without the lock: lookups do not wait for the disk. */
	if (fdatasync(fd) < 0 || (new_file && fsync(t->dirfd) < 0))
		return -errno;
	guard(&t->lock);
	if (t->synced < added)
		t->synced = added;
	if (new_file)
		t->new_file = false;
	return 0;
}

int varve_tombs_remove(int dirfd, const char *bucket)
{
	return unlinkat(dirfd, bucket, 0) < 0 && errno != ENOENT ? -errno : 0;
}
