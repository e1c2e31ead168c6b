#include "store/opened.h"

#include <errno.h>
#include <sys/xattr.h>

#include "store/content.h"
#include "store/entry.h"
#include "store/part.h"

int varve_opened_note(int fd)
{
	return fsetxattr(fd, VARVE_XATTR_OPENED, "1", 1, 0) < 0 ? -errno : 0;
}

bool varve_opened_is_noted(int fd)
{
	return fgetxattr(fd, VARVE_XATTR_OPENED, NULL, 0) >= 0;
}

int varve_opened_mean(struct varve_store *s, struct varve_node *f)
{
	struct varve_part *part = NULL;
	struct varve_node *dir = NULL;
	unsigned place;
	bool opened;
	int r = 0;

	{
		guard(&s->ns);
		if (f->kind != VARVE_KIND_FILE || !f->linked || !f->has_part)
			return 0;
		if (f->parent->kind == VARVE_KIND_DDIR && f->parent->opened)
			dir = varve_node_ref(f->parent);
		place = f->place;
		/* What is shared with another bucket keeps its mark: there it may hold nothing. */
		opened = f->native && f->native->opened && !f->native->head && !f->native->end;
	}
	if (dir) {
		r = varve_ddir_on_disk(s, dir, place);
		varve_node_put(s, dir);
	}
	if (r == 0 && opened)
		r = varve_file_part_named(s, f, &part);
	if (r < 0 || !opened)
		return r;
	if (fremovexattr(part->fd, VARVE_XATTR_OPENED) < 0 && errno != ENODATA)
		r = -errno;
	varve_part_unref(part);
	if (r < 0)
		return r;
	guard(&f->lock);
	guard(&s->ns);
	f->native->opened = false;
	return 0;
}

int varve_opened_mean_used(struct varve_store *s, struct varve_node *f)
{
	struct varve_part *part;
	uint64_t size;

	{
		guard(&s->ns);
		if (f->kind != VARVE_KIND_FILE || !f->linked || !f->has_part || f->parent->kind != VARVE_KIND_DDIR ||
		    !(f->parent->opened || (f->native && f->native->opened)))
			return 0;
	}
	if (varve_file_part_named(s, f, &part) < 0)
		return 0;
	size = varve_content_size(f, part);
	varve_part_unref(part);
	return size ? varve_opened_mean(s, f) : 0;
}

bool varve_opened_holds(const struct varve_node *dir)
{
	for (uint32_t i = 0; i < dir->n_chains; i++)
		for (const struct varve_node *c = dir->chains[i]; c; c = c->sibling)
			if (varve_dated_visible(c))
				return true;
	return false;
}

bool varve_opened_bucket(const struct varve_bucket *b)
{
	return (b->dir_made && !b->root->opened) || varve_opened_holds(b->root);
}
