/* Extended attributes of what is sealed: those that the files had, and user.varve.digest and ratio. */
#include "store/entry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "store/xattrs.h"

static int member_of(struct varve_store *s, struct varve_node *n, struct varve_segment **ret_seg,
		     struct varve_member *ret)
{
	int r = varve_sealed_segment(s, n->bucket, n->tab, ret_seg);

	if (r == 0)
		varve_index_member(varve_segment_index(*ret_seg), n->member, ret);
	return r;
}

static ssize_t own_xattr(struct varve_node *n, struct varve_segment *seg,
			 const struct varve_member *m, const char *name, void *buf, size_t size)
{
	char text[64];
	int len = -1;

	if (!strcmp(name, "user.varve.digest") && S_ISREG(m->mode)) {
		len = 0;
		for (int i = 0; i < 16; i++)
			len += snprintf(text + len, sizeof(text) - (size_t)len, "%02x", m->digest[i]);
	} else if (!strcmp(name, "user.varve.ratio")) {
		struct varve_segment_params about;
		struct varve_segment_totals totals;
		uint64_t share = varve_segment_share(seg, n->member), bytes = m->size;

		if (n->tab_none) {
			varve_index_about(varve_segment_index(seg), &about, &totals);
			bytes = totals.content_bytes;
			share = totals.segment_bytes;
		}
		if (share)
			len = snprintf(text, sizeof(text), "%.2f", (double)bytes / (double)share);
	}
	return len < 0 ? -ENODATA : varve_give_value(text, (size_t)len, buf, size);
}

/* Whether it is a bucket's directory that is known to have none; ls -l asks of each for an ACL. */
static bool has_none(struct varve_store *s, const struct varve_node *n)
{
	guard(&s->ns);
	return n->tab_none && n->bucket->dir_attr.st_mode;
}

ssize_t varve_sealed_getxattr(struct varve_store *s, struct varve_node *n, const char *name,
			      void *buf, size_t size)
{
	struct varve_segment *seg;
	struct varve_member m;
	ssize_t r;

	if (strncmp(name, "user.varve.", 11) != 0 && has_none(s, n))
		return -ENODATA;
	r = member_of(s, n, &seg, &m);
	if (r < 0)
		return n->tab_none ? -ENODATA : r;
	if (!strncmp(name, "user.varve.", 11))
		r = own_xattr(n, seg, &m, name, buf, size);
	else
		r = varve_xattrs_get(m.xattrs, m.xattrs_len, name, buf, size);
	varve_segment_unref(seg);
	return r;
}

ssize_t varve_sealed_listxattr(struct varve_store *s, struct varve_node *n, char *buf, size_t size)
{
	struct varve_segment *seg;
	struct varve_member m;
	ssize_t r;

	if (has_none(s, n))
		return 0;
	r = member_of(s, n, &seg, &m);
	if (r < 0)
		return n->tab_none ? 0 : r;
	r = varve_xattrs_list(m.xattrs, m.xattrs_len, buf, size);
	varve_segment_unref(seg);
	return r;
}
