#include "store/core.h"

#include <string.h>

#include "store/part.h"

struct varve_handle *varve_handle_new(struct varve_store *s, struct varve_node *file, int flags)
{
	struct varve_handle *h = calloc(1, sizeof(*h));
	uint32_t slot;

	if (!h)
		return NULL;
	(void)pthread_mutex_init(&h->lock, NULL);
	h->refs = 1;
	h->flags = flags;
	h->next_off = UINT64_MAX;
	guard(&s->ns);
	if (!s->n_free_handles && s->n_handles == s->handles_size) {
		uint32_t size = s->handles_size ? 2 * s->handles_size : 64;
		struct varve_handle **more = realloc(s->handles, size * sizeof(*more));
		uint32_t *frees;

		if (more)
			s->handles = more;
		frees = more ? realloc(s->free_handles, size * sizeof(*frees)) : NULL;
		if (!frees) {
			(void)pthread_mutex_destroy(&h->lock);
			free(h);
			return NULL;
		}
		s->free_handles = frees;
		s->handles_size = size;
	}
	slot = s->n_free_handles ? s->free_handles[--s->n_free_handles] : s->n_handles++;
	/* The upper half differs from use to use: a number that was released stays wrong. */
	h->fh = ((uint64_t)++s->handle_gen << 32) | slot;
	s->handles[slot] = h;
	if (file)
		h->file = varve_node_ref(file);
	return h;
}

struct varve_handle *varve_handle_get(struct varve_store *s, uint64_t fh)
{
	uint32_t slot = (uint32_t)fh;
	struct varve_handle *h;

	guard(&s->ns);
	h = slot < s->n_handles ? s->handles[slot] : NULL;
	if (!h || h->fh != fh)
		return NULL;
	h->refs++;
	return h;
}

static void destroy(struct varve_store *s, struct varve_handle *h)
{
	{
		guard(&s->ns);
		for (uint32_t i = 0; i < h->n_unsynced; i++)
			varve_node_unref(s, h->unsynced[i]);
		varve_node_unref(s, h->file);
		varve_node_unref(s, h->opened);
	}
	varve_segment_unref(h->seg);
	for (uint32_t i = 0; i < h->n_list; i++)
		free(h->list[i].name);
	free(h->list);
	free(h->unsynced);
	(void)pthread_mutex_destroy(&h->lock);
	free(h);
}

void varve_handle_put(struct varve_store *s, struct varve_handle *h)
{
	bool last;

	if (!h)
		return;
	{
		guard(&s->ns);
		last = --h->refs == 0;
		if (last) {
			s->handles[(uint32_t)h->fh] = NULL;
			s->free_handles[s->n_free_handles++] = (uint32_t)h->fh;
		}
	}
	if (last)
		destroy(s, h);
}
