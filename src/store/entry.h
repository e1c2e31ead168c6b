/* What the facade hands out of nodes, and how a directory's place on disk is found. Private to store/. */
#pragma once

#include "store/core.h"

/* Fills *ret for n with one lookup reference; ns held. by_current: it was reached below current/: then its
 * id is without VARVE_ID_DATED, also when a boundary has passed meanwhile. For a FILE the attributes are those cached:
 * the caller refreshes them with varve_file_stat afterwards where a part may be open. */
void varve_entry_fill(struct varve_store *s, struct varve_node *n, bool by_current,
		      struct varve_entry *ret);

/* Until when names under current/ may be cached, ns from now; ns held. */
int64_t varve_name_valid_ns(struct varve_store *s);

/* n's attributes right now, and how long they may be cached (by_current: for its id without
 * VARVE_ID_DATED); ns not held. */
int varve_node_stat(struct varve_store *s, struct varve_node *n, bool by_current, struct stat *ret,
		    int64_t *ret_valid_ns);

/* The node of an id, referenced. ns not held. */
struct varve_node *varve_node_get(struct varve_store *s, uint64_t id);
void varve_node_put(struct varve_store *s, struct varve_node *n);

/* Cleanup for a node that was got; needs `s` in scope at the place of declaration. */
struct varve_held {
	struct varve_store *s;
	struct varve_node *n;
};
static inline void varve_held_done(struct varve_held *h)
{
	if (h->n)
		varve_node_put(h->s, h->n);
}
#define held_node __attribute__((cleanup(varve_held_done))) struct varve_held

/* Where a FILE, DDIR or XDIR (or a new child `extra` of a directory) is on disk, for a place: a path
 * below *ret_fd, malloc'ed; NULL: no memory. ns held. */
char *varve_node_where(struct varve_store *s, const struct varve_node *n, const char *extra,
		       unsigned place, int *ret_fd);
/* The skeleton's path of a DDIR's or SDIR's child, below tree_fd. ns held. */
char *varve_tree_where(const struct varve_node *dir, const char *extra);

/* Whether a node of a closing bucket's tree is there for those who look: what holds nothing is not. */
bool varve_dated_visible(const struct varve_node *n);

/* Names that a directory may hold. 0, -EINVAL or -ENAMETOOLONG. */
int varve_name_check(const char *name);

/* Sets a directory's mtime and ctime in memory to now; ns held. */
void varve_dir_touch(struct varve_node *dir);

/* An xattr's value as getxattr(2) gives it: size 0 asks for the length. */
ssize_t varve_give_value(const void *value, size_t len, void *buf, size_t size);

/* Takes the whole tree below (and with) n apart; ns held. */
void varve_tree_drop(struct varve_store *s, struct varve_node *n);
