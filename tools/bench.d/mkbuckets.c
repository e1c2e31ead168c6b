/*
 * Makes many sealed buckets at once, for the benchmarks: what a store holds after years, in seconds.
 *
 *   mkbuckets STORE COUNT FILES BYTES
 *
 * STORE is one that varvefs made and that is not mounted. It gets COUNT daily buckets that end
 * yesterday, each one segment with FILES small files of BYTES bytes in ten directories. Nothing is
 * fsynced. Segments and facts are what the sealer would write, so that `varve verify` finds nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "format/segment_enc.h"

#define DAY_S 86400
#define DIRS 10u
#define FIRST_INO (UINT64_C(1) << 40) /* beyond all that the store has given out */

struct bucket {
	int fd; /* the segment */
	char name[32];
	int64_t start_s;
	uint64_t ino; /* the next number */
	unsigned files, bytes;
};

/* Lines that differ from file to file and compress like a log's. */
static ssize_t read_content(void *ctx, void *buf, size_t len, uint64_t off)
{
	const uint64_t *seed = ctx;
	char line[65];

	for (size_t i = 0; i < len; i++) {
		uint64_t at = off + i, row = *seed * 1000 + at / 64;

		if (i == 0 || at % 64 == 0)
			(void)snprintf(line, sizeof(line), "%016llx GET /item/%llu 200 %-27llu\n",
				       (unsigned long long)(row * UINT64_C(0x9e3779b97f4a7c15)),
				       (unsigned long long)row, (unsigned long long)(row * 37 % 5000));
		((char *)buf)[i] = line[at % 64];
	}
	return (ssize_t)len;
}

static int sink(void *ctx, const void *data, size_t len)
{
	const int *fd = ctx;

	return write(*fd, data, len) == (ssize_t)len ? 0 : -EIO;
}

static int add(struct varve_segment_enc *enc, struct bucket *b, const char *path, uint32_t mode,
	       struct varve_err *err)
{
	struct varve_extent whole = {.offset = 0, .length = b->bytes};
	struct varve_member m = {.path = path,
				 .path_len = (uint32_t)strlen(path),
				 .mode = mode,
				 .mtime_sec = b->start_s + 3600,
				 .ino = b->ino++};
	uint64_t seed = m.ino;

	if (S_ISREG(mode)) {
		m.size = b->bytes;
		m.extents = &whole;
		m.n_extents = b->bytes > 0;
	}
	return varve_segment_enc_add(enc, &m, S_ISREG(mode) ? read_content : NULL, &seed, NULL, err);
}

static int fill_segment(struct bucket *b, struct varve_segment_totals *ret, struct varve_err *err)
{
	const struct varve_segment_params params = {.level = 1,
						    .threads = 1,
						    .bucket = b->name,
						    .class_name = "default",
						    .tablet = "0",
						    .start_ns = b->start_s * INT64_C(1000000000),
						    .end_ns = (b->start_s + DAY_S) *
							      INT64_C(1000000000)};
	struct varve_segment_enc *enc = NULL;
	unsigned in_dir = (b->files + DIRS - 1) / DIRS, made = 0;
	char path[64];
	int r = varve_segment_enc_new(&params, sink, &b->fd, &enc, err);

	if (r == 0)
		r = add(enc, b, "", S_IFDIR | 0755, err);
	for (unsigned d = 0; r == 0 && d < DIRS && made < b->files; d++) {
		(void)snprintf(path, sizeof(path), "host=%u", d);
		r = add(enc, b, path, S_IFDIR | 0755, err);
		for (unsigned i = 0; r == 0 && i < in_dir && made < b->files; i++, made++) {
			(void)snprintf(path, sizeof(path), "host=%u/app%05u.log", d, i);
			r = add(enc, b, path, S_IFREG | 0644, err);
		}
	}
	if (r == 0)
		r = varve_segment_enc_finish(enc, ret, err);
	varve_segment_enc_free(enc);
	return r;
}

static int make_bucket(int sealed_fd, struct bucket *b, struct varve_err *err)
{
	struct varve_segment_totals totals = {0};
	uint64_t ino = b->ino;
	char path[64], facts[128];
	time_t start = (time_t)b->start_s;
	struct tm tm;
	int dir, len, r;

	(void)gmtime_r(&start, &tm);
	(void)strftime(b->name, sizeof(b->name), "%Y-%m-%d", &tm);
	(void)snprintf(path, sizeof(path), "%s/default", b->name);
	if (mkdirat(sealed_fd, b->name, 0700) < 0 || mkdirat(sealed_fd, path, 0700) < 0)
		return varve_err_set(err, -errno, "'sealed/%s': %s", path, strerror(errno));
	(void)snprintf(path, sizeof(path), "%s/default/0.tar.zst", b->name);
	b->fd = openat(sealed_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (b->fd < 0)
		return varve_err_set(err, -errno, "'sealed/%s': %s", path, strerror(errno));
	r = fill_segment(b, &totals, err);
	(void)close(b->fd);
	if (r < 0)
		return r;
	len = snprintf(facts, sizeof(facts), "%llu %lld %lld %llu %llu", (unsigned long long)ino,
		       (long long)b->start_s * 1000000000, (long long)(b->start_s + DAY_S) * 1000000000,
		       (unsigned long long)totals.files, (unsigned long long)totals.content_bytes);
	dir = openat(sealed_fd, b->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || fsetxattr(dir, "user.varve.bucket", facts, (size_t)len, 0) < 0)
		r = varve_err_set(err, -errno, "'sealed/%s': %s", b->name, strerror(errno));
	if (dir >= 0)
		(void)close(dir);
	return r;
}

int main(int argc, char **argv)
{
	struct varve_err err = {.msg = ""};
	int64_t today = (int64_t)time(NULL) / DAY_S * DAY_S;
	struct bucket b = {.ino = FIRST_INO};
	char path[4096];
	int sealed, r = 0;
	long count;

	if (argc != 5) {
		(void)fprintf(stderr, "usage: mkbuckets STORE COUNT FILES BYTES\n");
		return 2;
	}
	count = strtol(argv[2], NULL, 10);
	b.files = (unsigned)strtoul(argv[3], NULL, 10);
	b.bytes = (unsigned)strtoul(argv[4], NULL, 10);
	(void)snprintf(path, sizeof(path), "%s/sealed", argv[1]);
	sealed = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (sealed < 0) {
		(void)fprintf(stderr, "mkbuckets: '%s': %s\n", path, strerror(errno));
		return 1;
	}
	for (long i = count; r == 0 && i > 0; i--) {
		b.start_s = today - i * DAY_S;
		r = make_bucket(sealed, &b, &err);
	}
	(void)close(sealed);
	if (r < 0)
		(void)fprintf(stderr, "mkbuckets: %s\n", err.msg);
	return r < 0;
}
