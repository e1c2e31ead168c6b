#include "fuse/views.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "control/status_json.h"
#include "fuse/metrics.h"

/* One open file: what it said when it was opened. */
struct view_handle {
	struct view_handle *next;
	uint64_t fh;
	uint64_t id;
	char *text;
	size_t len;
};

struct varve_views {
	/* -- immutable after new -- */
	struct varve_store *store;
	uid_t uid; /* the store's owner */
	gid_t gid;
	struct timespec born;
	/* -- protected by lock -- */
	pthread_mutex_t lock;
	uint64_t last_fh;
	struct view_handle *handles;
};

static const struct view {
	const char *name;
	int (*make)(const struct varve_status *, char **ret); /* NUL-terminated text, malloc'ed */
} views[] = {
	{"status.json", varve_status_json},
	{"metrics", varve_metrics_text},
};

#define N_VIEWS (sizeof(views) / sizeof(views[0]))
#define ID_DIR VARVE_ID_VIEW
#define ID_FILE(i) (VARVE_ID_VIEW + 1 + (i))

int varve_views_new(struct varve_store *store, struct varve_views **ret)
{
	struct varve_views *v;
	struct stat st;

	if (fstat(varve_store_dirfd(store), &st) < 0)
		return -errno;
	v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	v->store = store;
	v->uid = st.st_uid;
	v->gid = st.st_gid;
	(void)clock_gettime(CLOCK_REALTIME, &v->born);
	(void)pthread_mutex_init(&v->lock, NULL);
	*ret = v;
	return 0;
}

static void handle_free(struct view_handle *h)
{
	free(h->text);
	free(h);
}

void varve_views_free(struct varve_views *v)
{
	struct view_handle *next;

	if (!v)
		return;
	for (struct view_handle *h = v->handles; h; h = next) {
		next = h->next;
		handle_free(h);
	}
	(void)pthread_mutex_destroy(&v->lock);
	free(v);
}

static const struct view *view_by_id(uint64_t id)
{
	uint64_t i = id - ID_FILE(0);

	return i < N_VIEWS ? &views[i] : NULL;
}

/* What the file says now. */
static int make_text(const struct varve_views *v, const struct view *view, char **ret)
{
	struct varve_status status;
	int r = varve_store_status(v->store, &status);

	if (r < 0)
		return r;
	r = view->make(&status, ret);
	varve_status_done(&status);
	return r;
}

static void fill_attr(const struct varve_views *v, uint64_t id, size_t size, struct stat *ret)
{
	*ret = (struct stat){
		.st_ino = id,
		.st_mode = id == ID_DIR ? S_IFDIR | 0500 : S_IFREG | 0400,
		.st_nlink = id == ID_DIR ? 2 : 1,
		.st_uid = v->uid,
		.st_gid = v->gid,
		.st_size = (off_t)size,
		.st_blksize = 4096,
		.st_atim = v->born,
		.st_mtim = v->born,
		.st_ctim = v->born,
	};
	if (id != ID_DIR) {
		(void)clock_gettime(CLOCK_REALTIME, &ret->st_mtim);
		ret->st_ctim = ret->st_mtim;
	}
}

bool varve_views_covers(uint64_t parent, const char *name)
{
	return varve_views_is(parent) ||
	       (parent == VARVE_ID_ROOT && strcmp(name, VARVE_VIEWS_NAME) == 0);
}

static uint64_t id_of(uint64_t parent, const char *name)
{
	if (parent == VARVE_ID_ROOT)
		return ID_DIR;
	for (size_t i = 0; parent == ID_DIR && i < N_VIEWS; i++)
		if (strcmp(name, views[i].name) == 0)
			return ID_FILE(i);
	return 0;
}

int varve_views_lookup(struct varve_views *v, uint64_t parent, const char *name,
		       struct varve_entry *ret)
{
	uint64_t id = id_of(parent, name);
	int r;

	if (!id)
		return -ENOENT;
	*ret = (struct varve_entry){.id = id, .entry_valid_ns = INT64_MAX};
	r = varve_views_getattr(v, id, 0, &ret->attr);
	return r;
}

static struct view_handle *find_locked(const struct varve_views *v, uint64_t fh)
{
	struct view_handle *h = v->handles;

	while (h && h->fh != fh)
		h = h->next;
	return h;
}

int varve_views_getattr(struct varve_views *v, uint64_t id, uint64_t fh, struct stat *ret)
{
	const struct view *view = view_by_id(id);
	const struct view_handle *h = NULL;
	char *text;
	size_t size = 0;
	int r;

	if (!view) {
		fill_attr(v, ID_DIR, 0, ret);
		return 0;
	}
	if (fh) {
		(void)pthread_mutex_lock(&v->lock);
		h = find_locked(v, fh);
		size = h ? h->len : 0;
		(void)pthread_mutex_unlock(&v->lock);
	}
	if (!h) {
		r = make_text(v, view, &text);
		if (r < 0)
			return r;
		size = strlen(text);
		free(text);
	}
	fill_attr(v, id, size, ret);
	return 0;
}

int varve_views_open(struct varve_views *v, uint64_t id, int flags, uint64_t *ret_fh)
{
	const struct view *view = view_by_id(id);
	struct view_handle *h;
	int r;

	if (!view)
		return -EISDIR;
	if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC))
		return -EROFS;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->id = id;
	r = make_text(v, view, &h->text);
	if (r < 0) {
		handle_free(h);
		return r;
	}
	h->len = strlen(h->text);
	(void)pthread_mutex_lock(&v->lock);
	h->fh = ++v->last_fh;
	h->next = v->handles;
	v->handles = h;
	*ret_fh = h->fh;
	(void)pthread_mutex_unlock(&v->lock);
	return 0;
}

ssize_t varve_views_read(struct varve_views *v, uint64_t fh, void *buf, size_t size, uint64_t off)
{
	const struct view_handle *h;
	ssize_t n = -EBADF;

	(void)pthread_mutex_lock(&v->lock);
	h = find_locked(v, fh);
	if (h) {
		size_t left = off < h->len ? h->len - (size_t)off : 0;

		if (size > left)
			size = left;
		if (size)
			memcpy(buf, h->text + off, size);
		n = (ssize_t)size;
	}
	(void)pthread_mutex_unlock(&v->lock);
	return n;
}

void varve_views_release(struct varve_views *v, uint64_t fh)
{
	struct view_handle *h = NULL;

	(void)pthread_mutex_lock(&v->lock);
	for (struct view_handle **p = &v->handles; *p; p = &(*p)->next)
		if ((*p)->fh == fh) {
			h = *p;
			*p = h->next;
			break;
		}
	(void)pthread_mutex_unlock(&v->lock);
	if (h)
		handle_free(h);
}

int varve_views_readdir(struct varve_views *v, uint64_t off, varve_readdir_cb *cb, void *ctx)
{
	/* Cookies: 1 and 2 behind the dots, 3 + i behind view i. */
	for (uint64_t at = off; at < N_VIEWS + 2; at++) {
		uint64_t id = at < 2 ? ID_DIR : ID_FILE(at - 2);
		const char *name = at == 0 ? "." : at == 1 ? ".." : views[at - 2].name;
		struct varve_entry entry = {.id = id, .entry_valid_ns = INT64_MAX};
		int r = varve_views_getattr(v, id, 0, &entry.attr);

		if (r < 0)
			return r;
		if (at == 1)
			entry.attr.st_ino = VARVE_ID_ROOT;
		if (!cb(ctx, name, &entry, at + 1))
			break;
	}
	return 0;
}
