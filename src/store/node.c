#include "store/core.h"

#include <errno.h>
#include <string.h>

#include "base/thread.h"
#include "store/native.h"

static uint32_t hash_name(const char *name)
{
	uint32_t h = 2166136261u;

	for (const unsigned char *p = (const unsigned char *)name; *p; p++)
		h = (h ^ *p) * 16777619u;
	return h;
}

static uint32_t id_slot(const struct varve_store *s, uint64_t ino)
{
	return (uint32_t)(ino * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (s->n_id_chains - 1);
}

/* Doubling at a load of one keeps chains short; when there is no memory the old table does. */
static void grow_ids(struct varve_store *s)
{
	uint32_t old_n = s->n_id_chains, n = old_n ? 2 * old_n : 256;
	struct varve_node **old = s->id_chains, **chains;

	if (s->n_ids < old_n)
		return;
	chains = calloc(n, sizeof(*chains));
	if (!chains)
		return;
	s->id_chains = chains;
	s->n_id_chains = n;
	for (uint32_t i = 0; i < old_n; i++)
		while (old[i]) {
			struct varve_node *m = old[i];
			uint32_t slot = id_slot(s, m->ino);

			old[i] = m->id_next;
			m->id_next = chains[slot];
			chains[slot] = m;
		}
	free(old);
}

void varve_node_prepare(struct varve_store *s, uint32_t count)
{
	struct varve_node *list = NULL, **end = &list, *old;
	struct varve_pace pace = {0};

	for (uint32_t i = 0; i < count; i++) {
		*end = calloc(1, sizeof(**end));
		if (!*end)
			break;
		end = &(*end)->id_next;
		varve_thread_pace(&pace);
	}
	{
		guard(&s->ns);
		old = s->spare;
		s->spare = list;
	}
	while (old) {
		struct varve_node *next = old->id_next;

		free(old);
		old = next;
	}
}

static struct varve_node *take_spare(struct varve_store *s)
{
	struct varve_node *n = s->spare;

	if (!n)
		return calloc(1, sizeof(*n));
	s->spare = n->id_next;
	n->id_next = NULL;
	return n;
}

struct varve_node *varve_node_new(struct varve_store *s, enum varve_kind kind, uint64_t ino)
{
	struct varve_node *n = take_spare(s);

	if (!n)
		return NULL;
	n->kind = kind;
	n->ino = ino;
	n->refs = 1;
	n->last = -1;
	n->attr.st_ino = ino;
	n->attr.st_nlink = 1;
	(void)pthread_mutex_init(&n->lock, NULL);
	if (kind == VARVE_KIND_STREAM)
		return n;
	grow_ids(s);
	if (!s->n_id_chains) {
		free(n);
		return NULL;
	}
	n->id_next = s->id_chains[id_slot(s, ino)];
	s->id_chains[id_slot(s, ino)] = n;
	s->n_ids++;
	return n;
}

struct varve_node *varve_node_ref(struct varve_node *n)
{
	n->refs++;
	return n;
}

static void forget_id(struct varve_store *s, struct varve_node *n)
{
	struct varve_node **p;

	if (n->kind == VARVE_KIND_STREAM)
		return;
	for (p = &s->id_chains[id_slot(s, n->ino)]; *p; p = &(*p)->id_next)
		if (*p == n) {
			*p = n->id_next;
			s->n_ids--;
			return;
		}
}

void varve_node_unref(struct varve_store *s, struct varve_node *n)
{
	/* A chain of successors can be long: no recursion along it. A linked node has a reference
	 * from its parent, so that what gets here is nobody's child. */
	while (n && --n->refs == 0) {
		struct varve_node *succ = n->succ;

		forget_id(s, n);
		if (n->sdir) {
			if (n->sdir->ddir == n)
				n->sdir->ddir = NULL;
			varve_node_unref(s, n->sdir);
		}
		varve_bucket_unref(s, n->bucket);
		varve_native_free(s, n);
		(void)pthread_mutex_destroy(&n->lock);
		free(n->chains);
		free(n->name);
		free(n);
		n = succ;
	}
}

static void grow_children(struct varve_node *dir)
{
	uint32_t old_n = dir->n_chains, n = old_n ? 2 * old_n : 8;
	struct varve_node **old = dir->chains, **chains;

	if (dir->n_children < old_n)
		return;
	chains = calloc(n, sizeof(*chains));
	if (!chains)
		return;
	for (uint32_t i = 0; i < old_n; i++)
		while (old[i]) {
			struct varve_node *c = old[i];

			old[i] = c->sibling;
			c->sibling = chains[c->name_hash & (n - 1)];
			chains[c->name_hash & (n - 1)] = c;
		}
	free(old);
	dir->chains = chains;
	dir->n_chains = n;
}

int varve_node_link(struct varve_node *parent, struct varve_node *n, const char *name)
{
	char *copy = strdup(name);

	if (!copy)
		return -ENOMEM;
	grow_children(parent);
	if (!parent->n_chains) {
		free(copy);
		return -ENOMEM;
	}
	free(n->name);
	n->name = copy;
	n->name_hash = hash_name(name);
	n->parent = varve_node_ref(parent);
	n->sibling = parent->chains[n->name_hash & (parent->n_chains - 1)];
	parent->chains[n->name_hash & (parent->n_chains - 1)] = n;
	parent->n_children++;
	n->linked = true;
	(void)varve_node_ref(n);
	return 0;
}

void varve_node_unlink(struct varve_store *s, struct varve_node *n)
{
	struct varve_node *parent = n->parent, **p;

	if (!n->linked)
		return;
	p = &parent->chains[n->name_hash & (parent->n_chains - 1)];
	while (*p != n)
		p = &(*p)->sibling;
	*p = n->sibling;
	n->sibling = NULL;
	parent->n_children--;
	n->linked = false;
	n->parent = NULL;
	varve_node_unref(s, parent);
	varve_node_unref(s, n);
}

struct varve_node *varve_node_child(const struct varve_node *dir, const char *name)
{
	uint32_t hash = hash_name(name);
	struct varve_node *c;

	if (!dir->n_chains)
		return NULL;
	for (c = dir->chains[hash & (dir->n_chains - 1)]; c; c = c->sibling)
		if (c->name_hash == hash && !strcmp(c->name, name))
			return c;
	return NULL;
}

struct varve_node *varve_node_by_id(struct varve_store *s, uint64_t id)
{
	uint64_t ino = id & ~VARVE_ID_DATED;
	struct varve_node *n;

	for (n = s->id_chains[id_slot(s, ino)]; n; n = n->id_next)
		if (n->ino == ino)
			return n;
	return NULL;
}

void varve_node_each(const struct varve_node *dir, void (*cb)(void *ctx, struct varve_node *n),
		     void *ctx)
{
	for (uint32_t i = 0; i < dir->n_chains; i++)
		for (struct varve_node *c = dir->chains[i], *next; c; c = next) {
			next = c->sibling;
			cb(ctx, c);
		}
}

char *varve_node_path(const struct varve_node *n, const char *extra)
{
	size_t extra_len = extra ? strlen(extra) : 0, len = extra_len;
	char *path, *p;

	for (const struct varve_node *m = n; m->parent; m = m->parent)
		len += strlen(m->name) + 1;
	path = malloc(len + 2);
	if (!path)
		return NULL;
	p = path + len + 1;
	*p = '\0';
	if (extra) {
		p -= extra_len;
		memcpy(p, extra, extra_len);
	}
	for (const struct varve_node *m = n; m->parent; m = m->parent) {
		size_t k = strlen(m->name);

		if (*p)
			*--p = '/';
		p -= k;
		memcpy(p, m->name, k);
	}
	memmove(path, p, strlen(p) + 1);
	return path;
}
