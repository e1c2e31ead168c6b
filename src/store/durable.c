/* fsync: what was written to a file, and its name. */
#include "store/file.h"

#include <errno.h>
#include <string.h>

#include "store/carry.h"
#include "store/entry.h"
#include "store/part.h"

/* fsyncs the directories from the part's own up to the base, so that its name survives too. */
static int sync_dirs(int base, const char *path)
{
	cleanup_free char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	for (char *slash = strrchr(copy, '/'); slash; slash = strrchr(copy, '/')) {
		int r;

		*slash = '\0';
		r = varve_fsync_dir(base, copy);
		if (r < 0)
			return r;
	}
	return varve_fsync_dir(base, ".");
}

/* The name: the part's folders, the stream's marker, and of a carried file what the range record tells. */
static int sync_names(struct varve_store *s, struct varve_node *f)
{
	cleanup_free char *path = NULL;
	cleanup_free char *tree_path = NULL;
	bool ranged, to_link;
	int base = -1, r = 0;

	{
		guard(&s->ns);
		ranged = f->native && (f->native->head || f->native->end);
		to_link = f->native && f->native->to_link;
	}
	if (to_link) {
		guard(&s->mutate);
		r = varve_carry_link(s, f);
	}
	if (r == 0 && ranged)
		r = varve_carry_save(s);
	if (r < 0 || atomic_load(&f->linked_durably))
		return r;
	{
		guard(&s->ns);
		if (!f->linked || f->kind != VARVE_KIND_FILE)
			return 0;
		path = varve_node_where(s, f, NULL, f->place, &base);
		if (f->bucket && f->parent->sdir)
			tree_path = varve_tree_where(f->parent, f->name);
	}
	if (!path)
		return -ENOMEM;
	r = sync_dirs(base, path);
	if (r == 0 && tree_path)
		r = sync_dirs(s->tree_fd, tree_path);
	/* ENOENT: it was renamed or sealed meanwhile, and whoever did that made it durable or will be
	 * asked to by the next fsync. */
	if (r == -ENOENT)
		return 0;
	if (r == 0)
		atomic_store(&f->linked_durably, true);
	return r;
}

static int sync_file(struct varve_store *s, struct varve_node *f)
{
	struct varve_part *part;
	int r = varve_file_part(s, f, &part);

	/* Without a part there is nothing; a sealed one's segment is durable; what has lost its name
	 * while nobody had it open is gone. */
	if (r == -ENODATA || r == -ENOENT || r == -ESTALE)
		return 0;
	if (r < 0)
		return r;
	r = fdatasync(part->fd) < 0 ? -errno : 0;
	varve_part_unref(part);
	if (r == 0 && f->native && f->native->late)
		r = fdatasync(f->native->late->fd) < 0 ? -errno : 0;
	return r < 0 ? r : sync_names(s, f);
}

/* What the kernel wrote for this handle is in the part, wherever that has got to by now. */
static int sync_kernel_part(struct varve_store *s, struct varve_handle *h)
{
	struct varve_node *f;
	int r;

	if (fdatasync(h->kernel_part->fd) < 0)
		return -errno;
	{
		guard(&s->ns);
		f = varve_node_ref(varve_file_newest(h->file));
	}
	r = f->kind == VARVE_KIND_FILE ? sync_names(s, f) : 0;
	varve_node_put(s, f);
	return r;
}

int varve_handle_fsync(struct varve_store *s, struct varve_handle *h)
{
	int r = 0;

	while (h->n_unsynced) {
		struct varve_node *f = h->unsynced[h->n_unsynced - 1];

		r = sync_file(s, f);
		if (r < 0)
			return r;
		h->n_unsynced--;
		guard(&s->ns);
		varve_node_unref(s, f);
	}
	if (h->kernel_part)
		r = sync_kernel_part(s, h);
	else if (h->file->kind == VARVE_KIND_FILE)
		r = sync_file(s, h->file);
	if (r == 0)
		h->dirty = false;
	return r;
}

int varve_store_fsync(struct varve_store *s, uint64_t fh)
{
	struct varve_handle *h = varve_handle_get(s, fh);
	int r;

	if (!h)
		return -EBADF;
	{
		guard(&h->lock);
		r = h->file ? varve_handle_fsync(s, h) : 0;
	}
	varve_handle_put(s, h);
	return r;
}
