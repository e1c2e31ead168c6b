#include "store/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/json.h"
#include "base/sys.h"
#include "base/units.h"

#define LOOK_BACK_BYTES ((uint64_t)4 << 20)
#define CHUNK_BYTES 4096

struct varve_audit {
	pthread_mutex_t
		lock; /* over the append: lines are whole, and cut off again when they fail */
	int fd;
};

static int file_size(int fd, uint64_t *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	*ret = (uint64_t)st.st_size;
	return 0;
}

/* Where the last whole line ends, at or before size. */
static int find_last_end(int fd, uint64_t size, uint64_t *ret)
{
	char chunk[CHUNK_BYTES];

	while (size) {
		size_t n = size < sizeof(chunk) ? (size_t)size : sizeof(chunk);
		const char *newline;
		int r = varve_pread_full(fd, chunk, n, size - n);

		if (r < 0)
			return r;
		newline = memrchr(chunk, '\n', n);
		if (newline) {
			*ret = size - n + (uint64_t)(newline - chunk) + 1;
			return 0;
		}
		size -= n;
	}
	*ret = 0;
	return 0;
}

/* A crash can leave the last line unfinished: what it told is written anew by recovery. */
static int cut_torn_line(int fd)
{
	uint64_t size = 0, end = 0;
	int r = file_size(fd, &size);

	if (r == 0)
		r = find_last_end(fd, size, &end);
	if (r < 0 || end == size)
		return r;
	if (ftruncate(fd, (off_t)end) < 0 || fdatasync(fd) < 0)
		return -errno;
	return 0;
}

static int open_file(int dirfd, const char *name)
{
	cleanup_close int fd = -1;
	int r;

	fd = varve_openat(dirfd, name, O_RDWR | O_APPEND | O_NONBLOCK, 0);
	if (fd == -ENOENT) {
		fd = varve_openat(dirfd, name, O_RDWR | O_APPEND | O_CREAT, 0600);
		r = fd < 0 ? fd : varve_fsync_dir(dirfd, ".");
	} else {
		r = fd < 0 ? fd : cut_torn_line(fd);
	}
	return r < 0 ? r : steal_fd(&fd);
}

int varve_audit_open(int dirfd, const char *name, struct varve_audit **ret, struct varve_err *err)
{
	int fd = open_file(dirfd, name);
	struct varve_audit *a;

	if (fd < 0)
		return varve_err_wrap(err, fd, "open the audit trail '%s'", name);
	a = calloc(1, sizeof(*a));
	if (!a) {
		(void)close(fd);
		return varve_err_wrap(err, -ENOMEM, "open the audit trail '%s'", name);
	}
	(void)pthread_mutex_init(&a->lock, NULL);
	a->fd = fd;
	*ret = a;
	return 0;
}

void varve_audit_close(struct varve_audit *a)
{
	if (!a)
		return;
	(void)close(a->fd);
	(void)pthread_mutex_destroy(&a->lock);
	free(a);
}

static void put_string(struct varve_json *j, const char *key, const char *value)
{
	if (value)
		varve_json_string(j, key, value);
}

static void put_count(struct varve_json *j, const char *key, int64_t value)
{
	if (value >= 0)
		varve_json_int(j, key, value);
}

static void put_time(struct varve_json *j, const char *key, int64_t ns)
{
	char text[40];

	varve_time_format(ns, text, sizeof(text));
	varve_json_string(j, key, text);
}

static void format_line(struct varve_json *j, const struct varve_audit_line *line)
{
	varve_json_open(j, NULL, '{');
	put_time(j, "time", line->time_ns);
	put_string(j, "event", line->event);
	put_string(j, "cause", line->cause);
	put_string(j, "bucket", line->bucket);
	put_string(j, "class", line->class_name);
	if (line->cutoff_ns)
		put_time(j, "cutoff", line->cutoff_ns);
	put_count(j, "buckets", line->buckets);
	put_count(j, "files", line->files);
	put_count(j, "bytes", line->bytes);
	put_count(j, "segment_bytes", line->segment_bytes);
	put_count(j, "uid", line->uid);
	put_count(j, "pid", line->pid);
	put_string(j, "id", line->id);
	varve_json_close(j, '}');
	varve_json_raw(j, "\n");
}

static int write_all(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t w = write(fd, p, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return -errno;
		p += w;
		n -= (size_t)w;
	}
	return fdatasync(fd) < 0 ? -errno : 0;
}

static int append_locked(struct varve_audit *a, const char *text, size_t len)
{
	uint64_t size = 0;
	int r = file_size(a->fd, &size);

	if (r < 0)
		return r;
	r = write_all(a->fd, text, len);
	if (r < 0)
		/* Should this fail as well, the next open cuts the line off. */
		(void)!ftruncate(a->fd, (off_t)size);
	return r;
}

int varve_audit_append(struct varve_audit *a, const struct varve_audit_line *line)
{
	struct varve_json j = VARVE_JSON_INIT;
	int r = -ENOMEM;

	format_line(&j, line);
	if (!j.failed) {
		(void)pthread_mutex_lock(&a->lock);
		r = append_locked(a, j.text, j.len);
		(void)pthread_mutex_unlock(&a->lock);
	}
	varve_json_done(&j);
	return r;
}

/* `"key":"value"` as a line has it. No string that holds it as content can look like it: the quotes
 * in there are escaped. */
static char *needle(const char *key, const char *value)
{
	struct varve_json j = VARVE_JSON_INIT;

	varve_json_string(&j, key, value);
	if (!j.failed)
		return j.text;
	varve_json_done(&j);
	return NULL;
}

static bool has_line(const char *text, size_t len, const char *event, const char *id)
{
	const char *end = text + len;

	while (text < end) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		size_t n = newline ? (size_t)(newline - text) : (size_t)(end - text);

		if (memmem(text, n, event, strlen(event)) && memmem(text, n, id, strlen(id)))
			return true;
		text += n + 1;
	}
	return false;
}

static int has_locked(struct varve_audit *a, const char *event, const char *id)
{
	cleanup_free char *text = NULL;
	uint64_t size = 0;
	size_t n;
	int r = file_size(a->fd, &size);

	if (r < 0)
		return r;
	n = (size_t)(size < LOOK_BACK_BYTES ? size : LOOK_BACK_BYTES);
	text = malloc(n + 1);
	if (!text)
		return -ENOMEM;
	r = varve_pread_full(a->fd, text, n, size - n);
	return r < 0 ? r : has_line(text, n, event, id);
}

int varve_audit_has(struct varve_audit *a, const char *event, const char *id)
{
	cleanup_free char *event_needle = needle("event", event);
	cleanup_free char *id_needle = needle("id", id);
	int r;

	if (!event_needle || !id_needle)
		return -ENOMEM;
	(void)pthread_mutex_lock(&a->lock);
	r = has_locked(a, event_needle, id_needle);
	(void)pthread_mutex_unlock(&a->lock);
	return r;
}
