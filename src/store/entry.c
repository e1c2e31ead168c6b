#include "store/entry.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "store/content.h"
#include "store/native.h"
#include "store/opened.h"
#include "store/part.h"

#define DIR_VALID_NS VARVE_NS_PER_S
#define DATED_VALID_NS (10 * VARVE_NS_PER_S)

int64_t varve_name_valid_ns(struct varve_store *s)
{
	int64_t left = s->current->end_ns - varve_believed_now(s);

	/* While the clock is not followed the boundary may come at any moment. */
	if (left <= 0 || s->time.state != VARVE_TIME_GOOD || varve_clock_is_moved())
		return 0;
	s->current->promise_boot_ns = varve_clock_boottime(s->clock) + left;
	return left;
}

/* The kernel takes a cached name along when it is renamed, also into current/. */
static int64_t staging_valid_ns(struct varve_store *s)
{
	int64_t valid = varve_name_valid_ns(s);

	return valid < DATED_VALID_NS ? valid : DATED_VALID_NS;
}

void varve_entry_fill(struct varve_store *s, struct varve_node *n, bool by_current,
		      struct varve_entry *ret)
{
	bool dated = n->bucket && !by_current;

	*ret = (struct varve_entry){.id = n->ino, .attr = n->attr};
	/* rmdir(2) left the kernel's inode of a bucket's directory dead. */
	if (n->bucket && n->ino == n->bucket->ino)
		ret->generation = n->bucket->generation;
	if (n->nlookup++ == 0)
		(void)varve_node_ref(n);
	switch (n->kind) {
	case VARVE_KIND_ROOT:
		ret->attr_valid_ns = DIR_VALID_NS;
		break;
	case VARVE_KIND_SDIR:
		ret->attr_valid_ns = DIR_VALID_NS;
		ret->entry_valid_ns = n == s->current_dir ? INT64_MAX : varve_name_valid_ns(s);
		break;
	case VARVE_KIND_XDIR:
		ret->attr_valid_ns = DIR_VALID_NS;
		ret->entry_valid_ns = staging_valid_ns(s);
		break;
	case VARVE_KIND_OPEN_LINK:
		ret->attr_valid_ns = ret->entry_valid_ns = varve_name_valid_ns(s);
		break;
	case VARVE_KIND_FILE:
		if (dated)
			ret->id |= VARVE_ID_DATED;
		if (dated)
			ret->entry_valid_ns = DATED_VALID_NS;
		else if (!n->bucket)
			ret->entry_valid_ns = staging_valid_ns(s);
		else if (n->bucket == s->current)
			ret->entry_valid_ns = varve_name_valid_ns(s);
		if (!dated && n->bucket && varve_native_attr_is_exact(s, n))
			ret->attr_valid_ns = ret->entry_valid_ns;
		break;
	case VARVE_KIND_DDIR:
		ret->id |= VARVE_ID_DATED;
		ret->entry_valid_ns = DATED_VALID_NS;
		break;
	case VARVE_KIND_SEALED:
		if (by_current)
			break; /* sealed while it was being looked up: look again */
		ret->id |= VARVE_ID_DATED;
		ret->entry_valid_ns = ret->attr_valid_ns = INT64_MAX;
		break;
	case VARVE_KIND_STREAM:
		break;
	}
}

int varve_node_stat(struct varve_store *s, struct varve_node *n, bool by_current, struct stat *ret,
		    int64_t *ret_valid_ns)
{
	enum varve_kind kind;

	{
		guard(&s->ns);
		kind = n->kind;
		*ret = n->attr;
		*ret_valid_ns = 0;
		if (kind == VARVE_KIND_OPEN_LINK)
			*ret_valid_ns = varve_name_valid_ns(s);
		if (varve_node_is_dir(n) && kind != VARVE_KIND_SEALED)
			*ret_valid_ns = DIR_VALID_NS;
		if (by_current && kind == VARVE_KIND_FILE && n->bucket &&
		    varve_native_attr_is_exact(s, n))
			*ret_valid_ns = varve_name_valid_ns(s);
	}
	if (kind == VARVE_KIND_SEALED) {
		*ret_valid_ns = INT64_MAX;
		return varve_sealed_stat(s, n, ret);
	}
	return kind == VARVE_KIND_FILE ? varve_file_stat(s, n, ret) : 0;
}

struct varve_node *varve_node_get(struct varve_store *s, uint64_t id)
{
	struct varve_node *n;

	guard(&s->ns);
	n = varve_node_by_id(s, id);
	return n ? varve_node_ref(n) : NULL;
}

void varve_node_put(struct varve_store *s, struct varve_node *n)
{
	guard(&s->ns);
	varve_node_unref(s, n);
}

char *varve_node_where(struct varve_store *s, const struct varve_node *n, const char *extra,
		       unsigned place, int *ret_fd)
{
	cleanup_free char *path = varve_node_path(n, extra);

	if (!path)
		return NULL;
	if (!n->bucket) {
		*ret_fd = s->staging_fd;
		return steal_ptr(&path);
	}
	*ret_fd = s->open_fd;
	return varve_part_path(s, n->bucket, place, path);
}

char *varve_tree_where(const struct varve_node *dir, const char *extra)
{
	const struct varve_node *sdir = dir->kind == VARVE_KIND_DDIR ? dir->sdir : dir;

	return varve_node_path(sdir, extra);
}

bool varve_dated_visible(const struct varve_node *n)
{
	const struct varve_native *nat = n->native;

	if (n->kind != VARVE_KIND_FILE)
		return n->on_disk != 0 && (!n->opened || varve_opened_holds(n));
	/* A part that only came by, or was only opened, without a byte for this bucket. */
	if (nat && (nat->head || nat->opened) && !nat->begun && !nat->late && (nat->end || !nat->by_kernel) &&
	    varve_content_guess(n) == 0)
		return false;
	return n->has_part || (nat && nat->to_link);
}

int varve_name_check(const char *name)
{
	size_t len = strlen(name);

	if (len > NAME_MAX)
		return -ENAMETOOLONG;
	return len == 0 || !strcmp(name, ".") || !strcmp(name, "..") || strchr(name, '/') ? -EINVAL
											   : 0;
}

void varve_dir_touch(struct varve_node *dir)
{
	(void)clock_gettime(CLOCK_REALTIME, &dir->attr.st_mtim);
	dir->attr.st_ctim = dir->attr.st_mtim;
}

void varve_tree_drop(struct varve_store *s, struct varve_node *n)
{
	/* Down to a childless node, take it off, go on from its parent: no recursion. */
	struct varve_node *at = varve_node_ref(n);

	while (at->n_children || at != n) {
		struct varve_node *next = NULL;

		for (uint32_t i = 0; at->n_children && i < at->n_chains && !next; i++)
			next = at->chains[i];
		if (next) {
			next = varve_node_ref(next);
		} else {
			next = varve_node_ref(at->parent);
			varve_node_unlink(s, at);
		}
		varve_node_unref(s, at);
		at = next;
	}
	varve_node_unlink(s, n);
	varve_node_unref(s, n);
}
