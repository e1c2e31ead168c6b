/* FILE nodes: their parts, attributes, opening. Reading and writing: io.c; truncation and durability:
 * truncate.c, durable.c. */
#include "store/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "store/carry.h"
#include "store/content.h"
#include "store/entry.h"
#include "store/native.h"
#include "store/opened.h"
#include "store/part.h"

uint64_t varve_blocks_of(uint64_t size)
{
	return (size + 4095) & ~UINT64_C(4095);
}

void varve_file_count(struct varve_store *s, struct varve_node *f, uint64_t bytes)
{
	(void)atomic_fetch_add(f->bucket ? &f->bucket->allocated : &s->staging_allocated,
			       bytes - f->counted);
	f->counted = bytes;
}

void varve_file_count_part(struct varve_store *s, struct varve_node *f, const struct stat *st)
{
	const struct varve_native *nat = f->native;
	uint64_t bytes = (uint64_t)st->st_blocks * 512, own;
	bool pending;

	if (nat && (nat->head || nat->end)) {
		uint64_t head = nat->head ? varve_mark_at(nat->head, &pending) : 0;
		uint64_t end = nat->end ? varve_mark_at(nat->end, &pending) : (uint64_t)st->st_size;

		own = varve_blocks_of(end > head ? end - head : 0);
		if (own < bytes)
			bytes = own;
	}
	varve_file_count(s, f, bytes);
}

/* One try: the path may change while it is opened. */
static int open_once(struct varve_store *s, struct varve_node *f, struct varve_part **ret)
{
	cleanup_free char *path = NULL;
	struct varve_part *part;
	int base, fd;

	{
		guard(&s->ns);
		if (f->part) {
			*ret = varve_part_ref(f->part);
			return 0;
		}
		if (f->native && f->native->pin) {
			*ret = varve_part_ref(f->native->pin);
			if (f->handles && f->has_part)
				f->part = varve_part_ref(*ret);
			return 0;
		}
		if (!f->has_part)
			return -ENODATA;
		/* A rename links it anew in one go: what is not linked has no name any more. */
		if (!f->linked)
			return -ESTALE;
		path = varve_node_where(s, f, NULL, f->place, &base);
	}
	if (!path)
		return -ENOMEM;
	fd = varve_part_open(base, path);
	if (fd < 0)
		return fd;
	part = varve_part_new(fd);
	if (!part)
		return -ENOMEM;
	guard(&s->ns);
	if (f->part) {
		varve_part_unref(part);
		part = varve_part_ref(f->part);
	} else if (f->handles) {
		f->part = varve_part_ref(part);
	}
	*ret = part;
	return 0;
}

int varve_file_part_named(struct varve_store *s, struct varve_node *f, struct varve_part **ret)
{
	return open_once(s, f, ret);
}

int varve_file_part(struct varve_store *s, struct varve_node *f, struct varve_part **ret)
{
	int r = open_once(s, f, ret);

	if (r != -ENOENT && r != -EAGAIN)
		return r;
	/* It was being renamed, or asked for its writers: once no name changes, the path is right. */
	guard(&s->mutate);
	return open_once(s, f, ret);
}

/* What its readers were given a number for, as long as it has no part: that becomes the part; referenced. ns held. */
static struct varve_part *given_part(const struct varve_node *f)
{
	struct varve_part *part = f->native && !f->has_part ? f->native->backing_part : NULL;

	return part ? varve_part_ref(part) : NULL;
}

int varve_file_make_nameless(struct varve_store *s, struct varve_node *f)
{
	struct varve_part *part;
	int fd;

	guard(&f->lock);
	{
		guard(&s->ns);
		part = given_part(f);
	}
	if (!part) {
		fd = varve_part_unnamed(s->meta_fd);
		if (fd < 0)
			return fd;
		part = varve_part_new(fd);
		if (!part)
			return -ENOMEM;
	}
	{
		guard(&s->ns);
		if (!f->part && f->handles) {
			f->part = varve_part_ref(part);
			f->has_part = true;
			f->size = 0;
			f->last = '\n';
		}
	}
	varve_part_unref(part);
	return 0;
}

/* The part's file with its name: the one that readers have been given, or a new one. */
static int make_on_disk(struct varve_store *s, int base, const char *path, const struct varve_part_spec *spec,
			struct varve_part **part)
{
	int fd;

	/* meta/ has no default ACL: what the stream had is taken from its marker. */
	if (*part)
		return varve_part_name((*part)->fd, s->meta_fd, base, path, spec);
	fd = varve_part_create(s->meta_fd, base, path, spec, NULL, 0);
	if (fd < 0)
		return fd;
	*part = varve_part_new(fd);
	return *part ? 0 : -ENOMEM;
}

/* A stream's part is made: mutate and file.lock held. */
static int make_part(struct varve_store *s, struct varve_node *f, unsigned place, bool opening)
{
	struct varve_part_spec spec = {.opened = opening};
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};
	cleanup_close int marker = -1;
	cleanup_free char *path = NULL;
	cleanup_free char *tree_path = NULL;
	struct varve_part *part;
	struct stat st;
	int base, r;

	{
		guard(&s->ns);
		/* Before it is there: what can't be had in memory makes nothing on disk. */
		if (opening && !varve_native_of(f))
			return -ENOMEM;
		tree_path = varve_tree_where(f->parent, f->name);
		path = varve_node_where(s, f, NULL, place, &base);
		spec.mode = f->attr.st_mode;
		spec.uid = f->attr.st_uid;
		spec.gid = f->attr.st_gid;
		spec.ino = f->ino;
		times[1] = f->attr.st_mtim;
		part = given_part(f);
	}
	if (path && tree_path)
		marker = varve_openat(s->tree_fd, tree_path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	spec.template_fd = marker;
	r = path && tree_path ? make_on_disk(s, base, path, &spec, &part) : -ENOMEM;
	if (r == 0) {
		/* Nothing was written yet: an open alone changes no time. */
		(void)futimens(part->fd, times);
		r = varve_mode_stat(part->fd, &st);
	}
	if (r >= 0) {
		guard(&s->ns);
		f->lifted = r > 0;
		f->has_part = true;
		f->place = (uint16_t)place;
		f->attr = st;
		f->attr.st_ino = f->ino;
		f->size = 0;
		f->last = '\n';
		if (opening)
			f->native->opened = true;
		if (f->handles)
			f->part = varve_part_ref(part);
		r = 0;
	}
	varve_part_unref(part);
	return r;
}

static int part_for(struct varve_store *s, struct varve_node *f, bool opening)
{
	cleanup_free char *path = NULL;
	struct varve_node *dir;
	bool there, waits;
	unsigned place;
	int r;

	{
		guard(&s->ns);
		there = f->has_part;
		if (!there && !f->linked)
			return -ESTALE;
		waits = f->native && f->native->to_link;
		path = there ? NULL : varve_node_path(f, NULL);
		dir = f->parent;
	}
	if (there)
		return opening ? 0 : varve_opened_mean(s, f);
	if (waits)
		return varve_carry_link(s, f);
	if (!path)
		return -ENOMEM;
	place = (unsigned)varve_place_for(s, path);
	r = opening ? varve_ddir_for_open(s, dir, place) : varve_ddir_on_disk(s, dir, place);
	if (r < 0)
		return r;
	/* Against those who are given a number for what is to become the part. */
	guard(&f->lock);
	return make_part(s, f, place, opening);
}

int varve_file_make_part(struct varve_store *s, struct varve_node *f)
{
	return part_for(s, f, false);
}

int varve_file_open_part(struct varve_store *s, struct varve_node *f)
{
	return part_for(s, f, true);
}

struct varve_node *varve_file_newest(struct varve_node *f)
{
	while (f->succ)
		f = f->succ;
	return f;
}

uint64_t varve_file_size(struct varve_store *s, struct varve_node *f)
{
	struct varve_part *part = NULL;
	uint64_t size;

	{
		guard(&s->ns);
		if (f->kind != VARVE_KIND_FILE)
			return (uint64_t)f->attr.st_size;
		part = f->part ? f->part : f->native ? f->native->pin : NULL;
		if (part)
			(void)varve_part_ref(part);
	}
	size = varve_content_size(f, part);
	varve_part_unref(part);
	return size;
}

/* Of a file that is a range of a part: what is behind or before it is not its own. */
static void ranged_stat(const struct varve_node *f, uint64_t size, struct stat *ret)
{
	if (f->native->end) {
		*ret = f->attr;
		ret->st_mode |= S_IFREG;
	}
	ret->st_size = (off_t)size;
	ret->st_blocks = (blkcnt_t)(varve_blocks_of(size) / 512);
}

void varve_file_stat_from(const struct varve_node *f, const struct stat *st, struct stat *ret)
{
	mode_t shown = f->attr.st_mode & 07777; /* before ret, which may be the same */

	/* As of the boundary, and kept so. */
	if (f->native && f->native->end)
		return;
	*ret = *st;
	ret->st_ino = f->ino;
	ret->st_nlink = f->linked ? 1 : 0;
	if (f->lifted)
		ret->st_mode = (st->st_mode & S_IFMT) | shown;
	if (f->is_link)
		ret->st_mode = S_IFLNK | 0777;
}

/* What came late has a part of its own, and changes the file all the same. */
static void late_stat(struct varve_store *s, const struct varve_node *f, struct stat *ret)
{
	struct varve_part *late;
	struct stat st;

	{
		guard(&s->ns);
		/* Of a file that has its end what is in memory says it. */
		late = f->native && !f->native->end ? f->native->late : NULL;
		if (late)
			(void)varve_part_ref(late);
	}
	if (late && fstat(late->fd, &st) == 0 &&
	    (st.st_mtim.tv_sec > ret->st_mtim.tv_sec ||
	     (st.st_mtim.tv_sec == ret->st_mtim.tv_sec && st.st_mtim.tv_nsec > ret->st_mtim.tv_nsec)))
		ret->st_mtim = st.st_mtim;
	varve_part_unref(late);
}

int varve_file_stat(struct varve_store *s, struct varve_node *f, struct stat *ret)
{
	struct varve_part *part;
	struct stat st;
	bool ranged;
	int r = 0;

	{
		guard(&s->ns);
		*ret = f->attr;
		part = f->part ? f->part : f->native ? f->native->pin : NULL;
		if (part)
			(void)varve_part_ref(part);
		ranged = f->native && (f->native->head || f->native->end || f->native->late);
	}
	if (part && fstat(part->fd, &st) < 0)
		r = -errno;
	if (part && r == 0) {
		guard(&s->ns);
		varve_file_stat_from(f, &st, ret);
		ranged = ranged || (f->native && f->native->end);
	}
	if (ranged && r == 0) {
		uint64_t size = varve_content_size(f, part);

		late_stat(s, f, ret);
		guard(&s->ns);
		if (f->kind == VARVE_KIND_FILE)
			ranged_stat(f, size, ret);
	}
	varve_part_unref(part);
	return r;
}

/* -- opening -- */

static bool is_writable(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

/* Only what writers hold is in the list: it must not grow with what comes and goes. */
static void note_written(struct varve_store *s, struct varve_node *f)
{
	bool wanted = f->writers && f->bucket;

	if (wanted && !f->written_at) {
		f->written_at = &f->bucket->written;
		f->next_written = f->bucket->written;
		if (f->next_written)
			f->next_written->written_at = &f->next_written;
		f->bucket->written = varve_node_ref(f);
	} else if (!wanted && f->written_at) {
		*f->written_at = f->next_written;
		if (f->next_written)
			f->next_written->written_at = f->written_at;
		f->next_written = NULL;
		f->written_at = NULL;
		varve_node_unref(s, f);
	}
}

void varve_file_add_writers(struct varve_store *s, struct varve_node *f, uint32_t n)
{
	f->writers += n;
	note_written(s, f);
}

void varve_file_lend_writer(struct varve_store *s, struct varve_node *f)
{
	if (f->native->lent)
		return;
	f->native->lent = true;
	varve_file_add_writers(s, f, 1);
}

void varve_file_succeed(struct varve_store *s, struct varve_node *f, struct varve_node *succ)
{
	if (f->native && f->native->lent) {
		f->native->lent = false;
		f->writers--;
	}
	f->succ = varve_node_ref(succ);
	succ->appended |= f->appended;
	/* Also the writers that don't write: they must have a way on at the next boundary, too. */
	varve_file_add_writers(s, succ, f->writers);
	f->writers = 0;
	note_written(s, f);
}

void varve_file_end_chain(struct varve_store *s, struct varve_node *f)
{
	struct varve_node *succ = f->succ;

	if (!succ || f->handles || f->openers)
		return;
	f->succ = NULL;
	varve_node_unref(s, succ);
}

/* The file that an open by this id gets: reads stay where they are, writes by current/ go to where
 * writers went. ns held. */
static int open_target(struct varve_store *s, struct varve_node *n, bool dated, int flags, bool fresh,
		       struct varve_node **ret)
{
	if (n->kind != VARVE_KIND_FILE && n->kind != VARVE_KIND_SEALED)
		return varve_node_is_dir(n) ? -EISDIR : -EINVAL;
	if (is_writable(flags) && !dated)
		n = varve_file_newest(n);
	if (n->kind == VARVE_KIND_SEALED) {
		*ret = n;
		/* By current/ only an old descriptor's path gets here: look it up again. */
		if (is_writable(flags) || (flags & O_TRUNC))
			return dated ? -EROFS : -ESTALE;
		return 0;
	}
	if (n->is_link)
		return -ELOOP;
	if ((is_writable(flags) || (flags & O_TRUNC)) && n->bucket && n->bucket->shut &&
	    !n->nameless)
		return dated ? -EROFS : -ESTALE;
	/* A name of current/ that was looked up before the boundary and is opened behind it: the kernel
	 * looks it up again. What was made in this very call is opened, as a copy that runs over the
	 * boundary is. */
	if (is_writable(flags) && !dated && n->bucket && n->bucket != s->current && !n->nameless &&
	    !n->writers && (!fresh || flags & O_APPEND))
		return -ESTALE;
	*ret = n;
	return 0;
}

static int open_sealed(struct varve_store *s, struct varve_node *n, struct varve_handle *h)
{
	struct varve_segment *seg, *given;
	struct varve_member m;
	int r = varve_sealed_segment(s, n->bucket, n->tab, &seg);

	if (r < 0)
		return r;
	varve_index_member(varve_segment_index(seg), n->member, &m);
	{
		/* A drop may have been quicker, and given it one. */
		guard(&s->ns);
		given = h->seg;
		h->seg = seg;
		h->member = n->member;
		h->on_sealed = true;
	}
	varve_segment_unref(given);
	return S_ISREG(m.mode) ? 0 : S_ISDIR(m.mode) ? -EISDIR : -ELOOP;
}

/* What an O_APPEND open makes of its path; I/O only the first time. */
static int mark_stream(struct varve_store *s, struct varve_node *f)
{
	{
		guard(&s->ns);
		if (!f->linked || f->bucket != s->current || !f->bucket || !f->parent->sdir ||
		    varve_node_child(f->parent->sdir, f->name))
			return 0;
	}
	guard(&s->mutate);
	return varve_stream_mark(s, f);
}

/* The part of f, for the kernel to write to; made for an appender of a stream that has none yet. *ret
 * NULL: there is none. */
static int prepare_native(struct varve_store *s, const struct varve_handle *h, struct varve_node *n,
			  struct varve_node *f, struct varve_part **ret)
{
	bool make;
	int r;

	*ret = NULL;
	if (h->dated)
		return 0;
	{
		guard(&s->ns);
		make = !f->has_part && n == f && varve_native_is_on(s) && f->bucket == s->current &&
		       f->linked && !f->succ && (h->flags & O_ACCMODE) == O_WRONLY &&
		       h->flags & O_APPEND && !(f->native && f->native->head);
	}
	if (make) {
		guard(&s->mutate);
		r = varve_file_open_part(s, f);
		/* On a full disk the write will tell; it may have been removed, or a boundary passed. */
		if (r < 0)
			return 0;
	}
	r = varve_file_part(s, f, ret);
	return r == -ENODATA || r == -ESTALE || r == -ENOENT ? 0 : r;
}

int varve_store_open_file(struct varve_store *s, uint64_t id, int flags, struct varve_opened *ret)
{
	return varve_file_open(s, id, flags, false, ret);
}

int varve_file_open(struct varve_store *s, uint64_t id, int flags, bool fresh,
		    struct varve_opened *ret)
{
	held_node n = {s, varve_node_get(s, id)};
	struct varve_node *f = NULL;
	struct varve_part *part = NULL;
	struct varve_handle *h;
	uint64_t changed = 0;
	bool sealed = false;
	int r;

	if (!n.n)
		return -ESTALE;
	h = varve_handle_new(s, NULL, flags);
	if (!h)
		return -ENOMEM;
	h->dated = id & VARVE_ID_DATED;
	h->readable = (flags & O_ACCMODE) != O_WRONLY;
	h->writable = is_writable(flags);
	{
		guard(&s->ns);
		r = open_target(s, n.n, h->dated, flags, fresh, &f);
		sealed = r == 0 && f->kind == VARVE_KIND_SEALED;
		if (r == 0) {
			h->file = varve_node_ref(f);
			h->opened = varve_node_ref(n.n);
			n.n->openers++;
			if (!sealed) {
				f->handles++;
				if (h->writable && !h->dated) {
					varve_file_add_writers(s, f, 1);
					f->appended |= (flags & O_APPEND) != 0;
				} else if (h->writable) {
					changed = varve_native_attr_is_exact(s, f) ? f->ino : 0;
					f->dated_writers++;
				}
			}
		}
	}
	if (r < 0) {
		varve_handle_put(s, h);
		return r;
	}
	/* Its attributes were let be cached on the promise that only its own inode changes it. */
	if (changed && s->events.inode_changed)
		s->events.inode_changed(s->events.ctx, changed);
	if (sealed)
		r = open_sealed(s, f, h);
	else
		r = varve_file_part(s, f, &part);
	if (r == -ENODATA)
		r = 0;
	varve_part_unref(part);
	if (r == 0 && !sealed && h->writable && (flags & O_APPEND) && !h->dated)
		r = mark_stream(s, f);
	if (r == 0 && !sealed && (flags & O_TRUNC))
		r = h->dated ? varve_file_truncate(s, f, 0) : varve_file_truncate_newest(s, f, 0);
	if (r < 0) {
		varve_store_release(s, h->fh);
		return r;
	}
	*ret = (struct varve_opened){.fh = h->fh, .direct_io = !sealed, .keep_cache = sealed};
	if (!sealed && f->bucket) {
		struct varve_part *now = NULL;

		/* An empty stream gets its part now, so that the kernel can write to it. */
		r = prepare_native(s, h, n.n, f, &now);
		if (!now)
			varve_pause_point("open.without_part");
		if (r == 0)
			varve_native_open(s, h, n.n, f, now, ret);
		varve_part_unref(now);
		if (r == 0 && h->writable && !h->dated && n.n == f)
			varve_native_keep_warm(s, f);
	} else if (sealed && !h->dated) {
		varve_native_open(s, h, n.n, f, NULL, ret);
		ret->keep_cache = false;
	}
	if (r < 0) {
		varve_store_release(s, h->fh);
		return r;
	}
	if (!sealed) {
		/* Where the file ended when it was opened is where its first write is expected: two
		 * shells that both open it with `>` lose nothing. */
		h->next_off = varve_file_size(s, f);
		h->from_start = h->next_off == 0;
	}
	return 0;
}

/* One handle less on f; ns held. The part goes back to the caller for its last unref, outside. */
struct varve_part *varve_file_drop_handle(struct varve_store *s, struct varve_node *f, bool writer,
					  const struct stat *st, uint32_t seq)
{
	struct varve_part *part = NULL;

	if (writer) {
		struct varve_node *newest = varve_file_newest(f);

		newest->writers--;
		note_written(s, newest);
	}
	if (--f->handles == 0) {
		part = f->part;
		f->part = NULL;
		/* A sealed file's attributes are its index's; and what was set meanwhile (a close is
		 * told of later than a utimes that followed it) is newer than what was seen. */
		if (part && st && f->kind == VARVE_KIND_FILE && f->attr_seq == seq)
			varve_file_stat_from(f, st, &f->attr);
	}
	return part;
}

void varve_store_release(struct varve_store *s, uint64_t fh)
{
	struct varve_handle *h = varve_handle_get(s, fh);
	struct varve_part *part = NULL;
	struct varve_part *last = NULL;
	struct stat st;
	uint32_t seq = 0;
	bool have = false;

	if (!h)
		return;
	if (!h->is_dir) {
		struct varve_node *f;

		varve_native_release(s, h);
		guard(&h->lock);
		f = h->file;
		if (f && !h->on_sealed) {
			{
				guard(&s->ns);
				part = f->part ? varve_part_ref(f->part) : NULL;
				seq = f->attr_seq;
			}
			if (part)
				have = fstat(part->fd, &st) == 0;
			guard(&s->ns);
			if (h->writable && h->dated)
				f->dated_writers--;
			last = varve_file_drop_handle(s, f, h->writable && !h->dated,
						      have ? &st : NULL, seq);
		}
	}
	if (h->opened) {
		guard(&s->ns);
		h->opened->openers--;
		varve_file_end_chain(s, h->opened);
		varve_file_end_chain(s, h->file);
	}
	varve_part_unref(last);
	varve_part_unref(part);
	varve_handle_put(s, h);
	varve_handle_put(s, h);
}
