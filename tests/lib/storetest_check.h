/* What holds of a store at any time: memory, disk and the counts agree. See storetest.h. */
#pragma once

#include "storetest_base.h"

struct tcount {
	struct varve_store *s;
	uint64_t nodes;       /* that have an id */
	uint64_t parts, dirs; /* files and directories on disk, below one base */
	uint64_t allocated;
};

T_FN void t_disk_one(struct tcount *c, int fd)
{
	DIR *dir = fdopendir(fd);
	struct dirent *e;

	ck_assert_ptr_nonnull(dir);
	while ((e = readdir(dir))) {
		struct stat st;

		/* Late data is no part: it is looked at with the file that it belongs to. */
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || !strcmp(e->d_name, ".late"))
			continue;
		ck_assert_int_eq(fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
		if (S_ISDIR(st.st_mode)) {
			int sub = openat(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

			ck_assert_int_ge(sub, 0);
			c->dirs++;
			t_disk_one(c, sub);
		} else {
			c->parts++;
		}
	}
	(void)closedir(dir);
}

/* Counts what is on disk below base/path. */
T_FN struct tcount t_disk(int base, const char *path)
{
	struct tcount c = {0};
	int fd = openat(base, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		t_disk_one(&c, fd);
	return c;
}

/* One node of a tree: it is on disk where it says, with its number. */
T_FN void t_check_node(void *ctx, struct varve_node *n)
{
	struct tcount *c = ctx;
	cleanup_free char *path = NULL;
	struct stat st;
	uint64_t ino = 0, want;
	int base, fd;

	ck_assert(n->linked);
	ck_assert_ptr_nonnull(n->parent);
	if (n->kind != VARVE_KIND_STREAM) {
		c->nodes++;
		ck_assert_ptr_eq(varve_node_by_id(c->s, n->ino), n);
	}
	switch (n->kind) {
	case VARVE_KIND_STREAM:
		path = varve_node_path(n, NULL);
		ck_assert_int_eq(fstatat(c->s->tree_fd, path, &st, AT_SYMLINK_NOFOLLOW), 0);
		ck_assert(S_ISREG(st.st_mode));
		ck_assert_uint_eq(st.st_mode & 0777, n->attr.st_mode & 0777);
		c->parts++;
		return;
	case VARVE_KIND_SDIR:
		path = varve_node_path(n, NULL);
		fd = varve_openat(c->s->tree_fd, path, O_RDONLY | O_DIRECTORY, 0);
		ck_assert_msg(fd >= 0, "tree/%s: %d", path, fd);
		ck_assert_int_eq(varve_ino_read_xattr(fd, &ino), 0);
		ck_assert_msg(ino == n->ino, "tree/%s: %llu, not %llu", path,
			      (unsigned long long)ino, (unsigned long long)n->ino);
		ck_assert_int_eq(fstat(fd, &st), 0);
		ck_assert_msg((st.st_mode & 01777) == (n->attr.st_mode & 01777),
			      "tree/%s: %o, not %o", path, st.st_mode, n->attr.st_mode);
		(void)close(fd);
		c->dirs++;
		break;
	case VARVE_KIND_FILE:
		if (!n->has_part)
			return;
		path = varve_node_where(c->s, n, NULL, n->place, &base);
		fd = varve_part_open(base, path);
		ck_assert_msg(fd >= 0, "part %s: %d", path, fd);
		ck_assert_int_eq(varve_ino_read_xattr(fd, &ino), 0);
		/* A carried part bears the number of its first file. */
		want = n->native && n->native->number ? n->native->number : n->ino;
		ck_assert_msg(ino == want, "%s: %llu, not %llu", path, (unsigned long long)ino,
			      (unsigned long long)want);
		ck_assert_int_eq(fstat(fd, &st), 0);
		/* What is behind its end is of no interest to it. */
		ck_assert_msg((n->native && (n->native->by_kernel || n->native->end)) ||
				      (uint64_t)st.st_size == n->size,
			      "%s: size %lld, not %llu", path, (long long)st.st_size,
			      (unsigned long long)n->size);
		(void)close(fd);
		c->parts++;
		/* No more than what is there; less where it has holes. */
		ck_assert_uint_le(n->counted,
				  (uint64_t)st.st_blocks * 512 > varve_blocks_of(n->size)
					  ? (uint64_t)st.st_blocks * 512
					  : varve_blocks_of(n->size));
		c->allocated += n->counted;
		if (n->native && n->native->late)
			c->allocated += varve_blocks_of(n->native->late_size);
		return;
	case VARVE_KIND_DDIR:
	case VARVE_KIND_XDIR:
		if (n->kind == VARVE_KIND_XDIR)
			c->dirs++;
		for (unsigned p = 0; p < 32; p++)
			if (n->on_disk & (1u << p)) {
				cleanup_free char *where =
					varve_node_where(c->s, n, NULL, p, &base);

				ck_assert_int_eq(fstatat(base, where, &st, AT_SYMLINK_NOFOLLOW), 0);
				ck_assert(S_ISDIR(st.st_mode));
				c->dirs++;
			}
		break;
	default:
		ck_abort_msg("a node of kind %d in a tree", n->kind);
	}
	varve_node_each(n, t_check_node, ctx);
}

/* Directories of current/ that were removed, while one of an older bucket still leads to them. */
T_FN uint64_t t_count_removed(struct varve_store *s)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < s->n_id_chains; i++)
		for (struct varve_node *n = s->id_chains[i]; n; n = n->id_next) {
			bool held = false;

			if (n->kind != VARVE_KIND_SDIR || n->linked)
				continue;
			for (uint32_t k = 0; k < s->n_id_chains; k++)
				for (struct varve_node *d = s->id_chains[k]; d; d = d->id_next)
					held = held || d->sdir == n;
			count += held;
		}
	return count;
}

/* Sealed files that had a part after another one, which is unsealed still. */
T_FN uint64_t t_count_after(struct varve_store *s)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < s->n_id_chains; i++)
		for (struct varve_node *n = s->id_chains[i]; n; n = n->id_next) {
			bool held = false;

			if (n->kind != VARVE_KIND_SEALED || n->linked)
				continue;
			for (uint32_t k = 0; k < s->n_id_chains; k++)
				for (struct varve_node *d = s->id_chains[k]; d; d = d->id_next)
					held = held || (d->native && d->native->after == n);
			count += held;
		}
	return count;
}

T_FN void t_count_node(void *ctx, struct varve_node *n)
{
	++*(uint64_t *)ctx;
	varve_node_each(n, t_count_node, ctx);
}

T_FN struct tcount t_check_tree(struct varve_store *s, struct varve_node *root)
{
	struct tcount c = {.s = s};

	varve_node_each(root, t_check_node, &c);
	return c;
}

/* Memory, disk and the counts agree, and with nothing looked up or open no node is left over. No
 * thread of the store may run. */
T_FN void t_check(struct tstore *t)
{
	struct varve_store *s = t->s;
	struct tcount c = t_check_tree(s, s->current_dir), d = t_disk(s->tree_fd, ".");
	uint64_t nodes = 4 + c.nodes;
	bool busy;

	guard(&s->ns);
	/* What is to be given back keeps files until that is done. */
	busy = s->punches != NULL;
	ck_assert_uint_eq(c.parts, d.parts);
	ck_assert_uint_eq(c.dirs, d.dirs);
	c = t_check_tree(s, s->staging_dir);
	d = t_disk(s->staging_fd, ".");
	nodes += c.nodes;
	ck_assert_uint_eq(c.parts, d.parts);
	ck_assert_uint_eq(c.dirs, d.dirs);
	ck_assert_uint_eq(c.allocated, s->staging_allocated);
	for (uint32_t i = 0; i < s->n_buckets; i++) {
		struct varve_bucket *b = s->buckets[i];

		ck_assert(i == 0 || s->buckets[i - 1]->start_ns <= b->start_ns);
		ck_assert((b == s->current) == (b->state == VARVE_BUCKET_OPEN));
		if (!b->root) {
			ck_assert_int_eq(b->state, VARVE_BUCKET_SEALED);
			continue;
		}
		c = t_check_tree(s, b->root);
		d = t_disk(s->open_fd, b->name);
		nodes += 1 + c.nodes;
		ck_assert_msg(c.parts == d.parts, "open/%s: %llu parts on disk, %llu known",
			      b->name, (unsigned long long)d.parts, (unsigned long long)c.parts);
		ck_assert_msg(c.allocated == b->allocated, "open/%s: %llu allocated, %llu counted",
			      b->name, (unsigned long long)b->allocated,
			      (unsigned long long)c.allocated);
		for (struct varve_node *f = b->written; f; f = f->next_written)
			nodes += !f->linked;
	}
	nodes += t_count_removed(s) + t_count_after(s);
	/* What can come back keeps its tree. */
	for (uint32_t i = 0; i < s->n_dropped; i++)
		if (s->dropped[i]->root) {
			nodes++;
			varve_node_each(s->dropped[i]->root, t_count_node, &nodes);
		}
	for (uint32_t i = 0; i < s->n_handles; i++)
		busy = busy || s->handles[i];
	for (uint32_t i = 0; i < s->n_id_chains; i++)
		for (struct varve_node *n = s->id_chains[i]; n; n = n->id_next)
			busy = busy || n->nlookup;
	if (!busy && s->n_ids != nodes) {
		for (uint32_t i = 0; i < s->n_id_chains; i++)
			for (struct varve_node *n = s->id_chains[i]; n; n = n->id_next)
				(void)fprintf(stderr, "kind %d, '%s' of '%s', %u references%s\n",
					      n->kind, n->name ? n->name : "",
					      n->bucket ? n->bucket->name : "", n->refs,
					      n->linked ? "" : ", not linked");
		ck_abort_msg("%u nodes, %llu of them linked", s->n_ids, (unsigned long long)nodes);
	}
}
