#include "store/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

struct varve_bucket *varve_bucket_new(const char *name, int64_t start_ns, int64_t end_ns,
				      uint64_t ino)
{
	struct varve_bucket *b = calloc(1, sizeof(*b));
	pthread_rwlockattr_t prefer;

	if (!b)
		return NULL;
	(void)strncpy(b->name, name, sizeof(b->name) - 1);
	b->start_ns = start_ns;
	b->end_ns = end_ns;
	b->ino = ino;
	b->refs = 1;
	b->files = b->bytes = UINT64_MAX;
	/* Shutting the gate goes first: late writers must not hold it off. It is never taken twice. */
	(void)pthread_rwlockattr_init(&prefer);
	(void)pthread_rwlockattr_setkind_np(&prefer, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	(void)pthread_rwlock_init(&b->gate, &prefer);
	(void)pthread_rwlockattr_destroy(&prefer);
	(void)pthread_mutex_init(&b->shelf, NULL);
	return b;
}

struct varve_bucket *varve_bucket_ref(struct varve_bucket *b)
{
	b->refs++;
	return b;
}

void varve_bucket_unref(struct varve_store *s, struct varve_bucket *b)
{
	if (!b || --b->refs)
		return;
	for (uint32_t i = 0; i < b->n_tabs; i++)
		varve_segment_unref(b->tabs[i].seg);
	free(b->tabs);
	varve_tombs_close(b->tombs);
	(void)pthread_rwlock_destroy(&b->gate);
	(void)pthread_mutex_destroy(&b->shelf);
	free(b);
	(void)s;
}

static int compare(const struct varve_bucket *a, const struct varve_bucket *b)
{
	if (a->start_ns != b->start_ns)
		return a->start_ns < b->start_ns ? -1 : 1;
	return strcmp(a->name, b->name);
}

int varve_bucket_list(struct varve_store *s, struct varve_bucket *b)
{
	uint32_t i = s->n_buckets;

	if (s->n_buckets == s->buckets_size) {
		uint32_t size = s->buckets_size ? 2 * s->buckets_size : 64;
		struct varve_bucket **more = realloc(s->buckets, size * sizeof(*more));

		if (!more)
			return -ENOMEM;
		s->buckets = more;
		s->buckets_size = size;
	}
	while (i > 0 && compare(b, s->buckets[i - 1]) < 0)
		i--;
	memmove(&s->buckets[i + 1], &s->buckets[i], (s->n_buckets - i) * sizeof(*s->buckets));
	s->buckets[i] = varve_bucket_ref(b);
	s->n_buckets++;
	return 0;
}

void varve_bucket_unlist(struct varve_store *s, struct varve_bucket *b)
{
	for (uint32_t i = 0; i < s->n_buckets; i++) {
		if (s->buckets[i] != b)
			continue;
		s->n_buckets--;
		memmove(&s->buckets[i], &s->buckets[i + 1],
			(s->n_buckets - i) * sizeof(*s->buckets));
		varve_bucket_unref(s, b);
		return;
	}
}

struct varve_bucket *varve_bucket_find(struct varve_store *s, const char *name)
{
	int64_t start, end;
	uint32_t lo = 0, hi = s->n_buckets;

	/* A name tells its start, which is what the list is sorted by. */
	if (varve_name_parse(name, &start, &end) < 0)
		return NULL;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (s->buckets[mid]->start_ns < start)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < s->n_buckets && s->buckets[lo]->start_ns == start; lo++)
		if (!strcmp(s->buckets[lo]->name, name))
			return s->buckets[lo];
	return NULL;
}

int varve_bucket_root(struct varve_store *s, struct varve_bucket *b)
{
	struct varve_node *root = varve_node_new(s, VARVE_KIND_DDIR, b->ino);

	if (!root)
		return -ENOMEM;
	root->bucket = varve_bucket_ref(b);
	root->attr = s->current_dir->attr;
	root->attr.st_ino = b->ino;
	root->linked = true;
	root->sdir = varve_node_ref(s->current_dir);
	b->root = root;
	return 0;
}

int64_t varve_believed_now(struct varve_store *s)
{
	int64_t window = s->current ? s->current->end_ns - s->current->start_ns
				    : INT64_C(86400) * VARVE_NS_PER_S;

	return varve_timekeeper_read(&s->time, window, varve_clock_realtime(s->clock),
				     varve_clock_boottime(s->clock),
				     s->clock->synchronised(s->clock->ctx));
}

int varve_bucket_note(int parent_fd, const char *name, const struct varve_bucket_facts *facts)
{
	cleanup_close int fd = varve_openat(parent_fd, name, O_RDONLY | O_DIRECTORY, 0);
	char text[128];
	int n;

	if (fd < 0)
		return fd;
	n = snprintf(text, sizeof(text), "%llu %lld %lld", (unsigned long long)facts->ino,
		     (long long)facts->start_ns, (long long)facts->end_ns);
	if (facts->files != UINT64_MAX)
		n += snprintf(text + n, sizeof(text) - (size_t)n, " %llu %llu",
			      (unsigned long long)facts->files, (unsigned long long)facts->bytes);
	return fsetxattr(fd, VARVE_XATTR_BUCKET, text, (size_t)n, 0) < 0 ? -errno : 0;
}

/* 0 when the text is what varve_bucket_note writes and agrees with the name. */
static int parse_facts(const char *text, struct varve_bucket_facts *f)
{
	unsigned long long ino, files = UINT64_MAX, bytes = UINT64_MAX;
	long long start, end;
	int n = sscanf(text, "%llu %lld %lld %llu %llu", &ino, &start, &end, &files, &bytes);

	if (n != 3 && n != 5)
		return -EBADMSG;
	if (ino < VARVE_FIRST_INO || ino >= VARVE_INO_LIMIT || start != f->start_ns ||
	    end <= start || end - start > 32 * INT64_C(86400) * VARVE_NS_PER_S)
		return -EBADMSG;
	*f = (struct varve_bucket_facts){.ino = ino, .files = files, .bytes = bytes,
					 .start_ns = start, .end_ns = end};
	return 0;
}

int varve_bucket_facts(struct varve_store *s, int parent_fd, const char *name,
		       struct varve_bucket_facts *ret)
{
	cleanup_close int fd = -1;
	char text[128];
	ssize_t n;
	int r;

	(void)s;
	*ret = (struct varve_bucket_facts){.ino = 0, .files = UINT64_MAX, .bytes = UINT64_MAX};
	r = varve_name_parse(name, &ret->start_ns, &ret->end_ns);
	if (r < 0)
		return r;
	fd = varve_openat(parent_fd, name, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	n = fgetxattr(fd, VARVE_XATTR_BUCKET, text, sizeof(text) - 1);
	if (n < 0)
		return 0;
	text[n] = '\0';
	(void)parse_facts(text, ret);
	return 0;
}

int varve_bucket_written(struct varve_store *s, struct varve_bucket *b,
			 bool (*wanted)(const struct varve_node *f), struct varve_node ***ret_list, size_t *ret_n)
{
	size_t size = 0;

	*ret_list = NULL;
	*ret_n = 0;
	guard(&s->ns);
	for (struct varve_node *f = b->written; f; f = f->next_written)
		size += wanted(f);
	if (!size)
		return 0;
	*ret_list = malloc(size * sizeof(**ret_list));
	if (!*ret_list)
		return -ENOMEM;
	for (struct varve_node *f = b->written; f; f = f->next_written)
		if (wanted(f))
			(*ret_list)[(*ret_n)++] = varve_node_ref(f);
	return 0;
}
