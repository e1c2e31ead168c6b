#include "store/carry.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/thread.h"
#include "store/content.h"
#include "store/entry.h"
#include "store/file.h"
#include "store/mappings.h"
#include "store/native.h"
#include "store/part.h"
#include "store/xattrs.h"

#define PUNCH_STEP (UINT64_C(64) << 20)
#define LINKS_AT_A_TIME 64

/* A range that is to be given back. */
struct varve_punch {
	struct varve_punch *next;
	struct varve_node *older; /* referenced; whose range it was */
	struct varve_node *newer; /* referenced; has the part, or those after it; NULL: not known */
	uint64_t number;	  /* the part's */
	uint64_t from, upto;
	uint64_t ino; /* of the older file */
	bool look;    /* it may be mapped still: by whom, must be looked for */
};

/* -- the list of files with a head or an end -- */

void varve_carry_list(struct varve_store *s, struct varve_node *f)
{
	struct varve_native *nat = f->native;
	struct varve_node **chain;

	s->ranges_wanted++;
	if (nat->ranged_at)
		return;
	nat->next_ranged = s->ranged;
	if (s->ranged)
		s->ranged->native->ranged_at = &nat->next_ranged;
	nat->ranged_at = &s->ranged;
	s->ranged = f;
	chain = &s->by_part[nat->number % VARVE_PART_CHAINS];
	nat->next_of_part = *chain;
	if (*chain)
		(*chain)->native->of_part_at = &nat->next_of_part;
	nat->of_part_at = chain;
	*chain = f;
}

void varve_carry_unlist(struct varve_node *f)
{
	struct varve_native *nat = f->native;

	if (!nat->ranged_at)
		return;
	*nat->ranged_at = nat->next_ranged;
	if (nat->next_ranged)
		nat->next_ranged->native->ranged_at = nat->ranged_at;
	nat->ranged_at = NULL;
	nat->next_ranged = NULL;
	*nat->of_part_at = nat->next_of_part;
	if (nat->next_of_part)
		nat->next_of_part->native->of_part_at = nat->of_part_at;
	nat->of_part_at = NULL;
	nat->next_of_part = NULL;
}

struct varve_node *varve_carry_next_of(struct varve_store *s, uint64_t number, struct varve_node *f)
{
	f = f ? f->native->next_of_part : s->by_part[number % VARVE_PART_CHAINS];
	while (f && f->native->number != number)
		f = f->native->next_of_part;
	return f;
}

/* -- marking -- */

bool varve_carry_is_due(const struct varve_node *f)
{
	return f->native && !f->native->end && f->linked && varve_native_is_written(f);
}

/* The mark for a boundary at `at`, or, UINT64_MAX, where the part ends now. file.lock held. */
static struct varve_mark *make_mark(struct varve_store *s, struct varve_node *f, struct varve_part *part,
				    uint64_t at)
{
	struct varve_content c;
	unsigned char last = '\n';

	/* What is still pending from the boundary before has had its time. */
	if (f->native->head)
		varve_mark_settle(f->native->head, part->fd);
	varve_content_now(f, part, &c);
	if (at == UINT64_MAX)
		at = c.end;
	if (!s->policy.cut_byte && at > c.head)
		(void)!varve_pread_full(part->fd, &last, 1, at - 1);
	return varve_mark_new(at, last != '\n');
}

/* The mark, and the attributes that a stat tells. */
static int set_end(struct varve_store *s, struct varve_node *f, uint64_t at)
{
	struct varve_part *part;
	struct varve_mark *mark;
	struct stat st;
	int r = varve_file_part_named(s, f, &part);

	if (r < 0)
		return r;
	{
		guard(&s->ns);
		if (!varve_native_of(f))
			r = -ENOMEM;
	}
	if (r == 0) {
		guard(&f->lock);
		mark = make_mark(s, f, part, at);
		r = !mark ? -ENOMEM : fstat(part->fd, &st) < 0 ? -errno : 0;
		guard(&s->ns);
		if (r == 0) {
			struct varve_native *nat = f->native;

			if (f->lifted)
				st.st_mode = (st.st_mode & S_IFMT) | (f->attr.st_mode & 07777);
			st.st_ino = f->ino;
			st.st_nlink = 1;
			f->attr = st;
			nat->end = varve_mark_ref(mark);
			/* What it has at this moment, wherever the part goes on. */
			if (!f->nameless)
				varve_file_count_part(s, f, &st);
			if (!nat->number)
				nat->number = f->ino;
			/* For the newer file, which has no name of its own yet, whoever lets go of it until then. */
			if (!nat->pin)
				nat->pin = varve_part_ref(part);
			varve_carry_list(s, f);
		}
		varve_mark_unref(mark);
	}
	varve_part_unref(part);
	return r;
}

/* The extended attributes, a moment later: the next bucket's must not be changed before. mutate held. */
static int keep_xattrs(struct varve_store *s, struct varve_node *f)
{
	unsigned char *xattrs = NULL;
	struct varve_part *part;
	size_t len;
	int r = varve_file_part_named(s, f, &part);

	if (r < 0)
		return r;
	r = varve_xattrs_pack(part->fd, &xattrs, &len);
	varve_part_unref(part);
	if (r < 0)
		return r;
	guard(&s->ns);
	free(f->native->xattrs);
	f->native->xattrs = xattrs;
	f->native->xattrs_len = len;
	return 0;
}

int varve_carry_mark_file(struct varve_store *s, struct varve_node *f, uint64_t at)
{
	int r = set_end(s, f, at);

	return r < 0 ? r : keep_xattrs(s, f);
}

/* All marks first: what the kernel writes meanwhile is the next bucket's. With pauses: the keeper comes before those
 * who write, and thousands of files may be held. */
static int mark_list(struct varve_store *s, struct varve_node **list, size_t n)
{
	struct varve_pace pace = {0};
	int r = 0;

	for (size_t i = 0; i < n; i++) {
		int one = set_end(s, list[i], UINT64_MAX);

		if (one < 0)
			r = one;
		varve_thread_pace(&pace);
	}
	for (size_t i = 0; i < n; i++) {
		int one = list[i]->native && list[i]->native->end ? keep_xattrs(s, list[i]) : 0;

		if (one < 0)
			varve_error("extended attributes of '%s' in bucket '%s' can't be kept as they are: %s",
				    list[i]->name, list[i]->bucket->name, strerror(-one));
		varve_thread_pace(&pace);
	}
	return r;
}

int varve_carry_mark(struct varve_store *s, struct varve_bucket *b)
{
	int r = 0;

	/* Those that come meanwhile have their turn; what can't be marked must not go on for ever. */
	while (r == 0) {
		cleanup_free struct varve_node **list = NULL;
		size_t n;

		r = varve_bucket_written(s, b, varve_carry_is_due, &list, &n);
		if (r < 0 || !n)
			break;
		r = mark_list(s, list, n);
		guard(&s->ns);
		for (size_t i = 0; i < n; i++)
			varve_node_unref(s, list[i]);
	}
	return r;
}

int varve_carry_share(struct varve_store *s, struct varve_node *f, struct varve_node *succ)
{
	struct varve_native *from = f->native, *to;
	struct varve_part *part = from->pin ? from->pin : f->part;

	if (succ->has_part || (succ->native && succ->native->head))
		return -EEXIST;
	to = varve_native_of(succ);
	if (!to)
		return -ENOMEM;
	if (!part)
		return -ENODATA;
	to->head = varve_mark_ref(from->end);
	to->pin = varve_part_ref(part);
	to->number = from->number;
	to->by_kernel = true;
	to->orphan = from->orphan;
	from->orphan = false;
	to->to_link = true;
	s->n_to_link++;
	from->after = varve_node_ref(succ);
	succ->bucket->carries = true;
	succ->place = f->place;
	succ->lifted = f->lifted;
	succ->attr.st_mode = f->attr.st_mode;
	succ->attr.st_uid = f->attr.st_uid;
	succ->attr.st_gid = f->attr.st_gid;
	varve_carry_list(s, succ);
	return 0;
}

/* -- links -- */

static int link_now(struct varve_store *s, struct varve_node *f, struct varve_part *part)
{
	cleanup_free char *path = NULL;
	struct varve_node *dir;
	struct stat a, b;
	int base, r;

	{
		guard(&s->ns);
		dir = f->parent;
		if (!f->linked)
			return -ESTALE;
	}
	r = varve_ddir_for_open(s, dir, f->place);
	if (r < 0)
		return r;
	{
		guard(&s->ns);
		path = varve_node_where(s, f, NULL, f->place, &base);
	}
	if (!path)
		return -ENOMEM;
	r = varve_part_link(part->fd, base, path);
	if (r != -EEXIST)
		return r;
	/* Made by an earlier try, or before a crash. */
	if (fstat(part->fd, &a) < 0 || fstatat(base, path, &b, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return a.st_ino == b.st_ino && a.st_dev == b.st_dev ? 0 : -EEXIST;
}

int varve_carry_link(struct varve_store *s, struct varve_node *f)
{
	struct varve_part *part = NULL;
	int r;

	{
		guard(&s->ns);
		if (f->native && f->native->to_link && f->native->pin)
			part = varve_part_ref(f->native->pin);
	}
	if (!part)
		return 0;
	/* A link that the record does not tell of would show all of the part. */
	r = varve_carry_save(s);
	if (r == 0)
		r = link_now(s, f, part);
	{
		guard(&f->lock);
		guard(&s->ns);
		if (r == 0 && f->native->to_link) {
			f->native->to_link = false;
			/* With the last of them the record changes: nothing is left to be linked. */
			if (--s->n_to_link == 0)
				s->ranges_wanted++;
			f->has_part = true;
			if (f->handles && !f->part)
				f->part = varve_part_ref(part);
		}
	}
	varve_part_unref(part);
	if (r == 0)
		varve_native_settle(s, f);
	return r;
}

/* Links what waits, LINKS_AT_A_TIME under one hold of mutate; true: some are left, or the record has to be written first:
 * what is linked must be in it. */
static bool link_some(struct varve_store *s, int *ret_r)
{
	struct varve_node *list[LINKS_AT_A_TIME];
	unsigned n = 0;
	bool more;

	{
		guard(&s->ns);
		if (!s->n_to_link)
			return false;
		if (s->ranges_wanted != atomic_load(&s->ranges_saved))
			return true;
		for (struct varve_node *f = s->ranged; f && n < LINKS_AT_A_TIME; f = f->native->next_ranged)
			if (f->native->to_link && f->linked)
				list[n++] = varve_node_ref(f);
	}
	for (unsigned i = 0; i < n; i++) {
		int r = varve_carry_link(s, list[i]);

		if (r < 0 && *ret_r == 0) {
			*ret_r = r;
			varve_error("'current/.../%s' can't be linked into bucket '%s': %s; it is tried "
				    "again", list[i]->name ? list[i]->name : "?", list[i]->bucket->name,
				    strerror(-r));
		}
	}
	guard(&s->ns);
	for (unsigned i = 0; i < n; i++)
		varve_node_unref(s, list[i]);
	more = n == LINKS_AT_A_TIME && s->n_to_link;
	return more && *ret_r == 0;
}

/* -- all of it -- */

int varve_carry_finish(struct varve_store *s, bool has_mutate)
{
	struct varve_pace pace = {0};
	bool more = true;
	int r = 0;

	while (more && r == 0) {
		if (!has_mutate)
			varve_thread_pace(&pace);
		r = varve_carry_save(s);
		if (r < 0)
			break;
		varve_crash_point("carry.saved");
		if (has_mutate) {
			more = link_some(s, &r);
		} else {
			guard(&s->mutate);
			more = link_some(s, &r);
		}
	}
	varve_crash_point("carry.linked");
	return r < 0 ? r : varve_carry_save(s);
}

int varve_carry_ready(struct varve_store *s)
{
	bool waits;

	{
		guard(&s->ns);
		waits = s->n_to_link != 0;
	}
	return waits ? varve_carry_finish(s, true) : 0;
}

void varve_carry_settle(struct varve_store *s, struct varve_bucket *b)
{
	for (;;) {
		struct varve_node *f;
		struct varve_part *part;
		bool pending;

		{
			guard(&s->ns);
			for (f = s->ranged; f; f = f->native->next_ranged) {
				if (f->bucket != b || !f->native->end)
					continue;
				(void)varve_mark_at(f->native->end, &pending);
				if (pending)
					break;
			}
			if (!f)
				return;
			s->ranges_wanted++;
			(void)varve_node_ref(f);
		}
		if (varve_file_part_named(s, f, &part) == 0) {
			varve_mark_settle(f->native->end, part->fd);
			varve_part_unref(part);
		} else {
			varve_mark_settle(f->native->end, -1);
		}
		varve_node_put(s, f);
	}
}

/* -- giving back -- */

/* Puts a range where the reaper finds it; ns held. NULL: no memory: it stays until the part goes, or the next mount gives it
 * back. */
static struct varve_punch *add_punch(struct varve_store *s, uint64_t number, uint64_t from, uint64_t upto)
{
	struct varve_punch *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->number = number;
	p->from = from;
	p->upto = upto;
	p->next = s->punches;
	s->punches = p;
	(void)pthread_cond_signal(&s->wake_reaper);
	return p;
}

void varve_carry_give_back(struct varve_store *s, struct varve_node *f)
{
	struct varve_native *nat = f->native;
	struct varve_punch *p;
	bool pending;

	if (!nat || !nat->ranged_at)
		return;
	varve_carry_unlist(f);
	s->ranges_wanted++;
	if (nat->to_link) {
		nat->to_link = false;
		s->n_to_link--;
	}
	if (!nat->end)
		return;
	varve_native_close_later(s, nat->pin);
	nat->pin = NULL;
	p = add_punch(s, nat->number, nat->head ? varve_mark_at(nat->head, &pending) : 0,
		      varve_mark_at(nat->end, &pending));
	if (!p)
		return;
	/* What nobody knows of need not be kept, with its number, until then. */
	if (f->handles || f->openers || f->nlookup || f->kind == VARVE_KIND_SEALED)
		p->older = varve_node_ref(f);
	p->newer = nat->after;
	p->ino = f->ino;
	p->look = nat->was_mappable;
	nat->after = NULL;
}

void varve_carry_give_below(struct varve_store *s, struct varve_node *f)
{
	bool pending;
	struct varve_punch *p = add_punch(s, f->native->number, 0, varve_mark_at(f->native->head, &pending));

	if (p)
		p->newer = varve_node_ref(f);
}

void varve_carry_give_range(struct varve_store *s, uint64_t number, uint64_t from, uint64_t upto)
{
	(void)add_punch(s, number, from, upto);
}

bool varve_carry_waits(const struct varve_store *s)
{
	return s->punches != NULL;
}

/* Nobody can read the range but through what is elsewhere by now: those who only write to the part do not
 * count; ns held. */
static bool is_free(const struct varve_store *s, const struct varve_node *older)
{
	if (!older)
		return true;
	if (older->native && older->native->mappable)
		return false;
	if (older->kind == VARVE_KIND_SEALED || !older->handles)
		return true;
	for (uint32_t i = 0; i < s->n_handles; i++)
		if (s->handles[i] && s->handles[i]->file == older && s->handles[i]->readable)
			return false;
	return true;
}

static bool is_there(const struct varve_node *f)
{
	return f->kind == VARVE_KIND_FILE && f->linked;
}

/* Whoever has the part now: the newer file, or, where that is sealed, those after it. Where buckets were sealed
 * in another order than theirs, or came back from the trash, that is looked for; ns held. */
static struct varve_node *holder(struct varve_store *s, const struct varve_punch *p)
{
	struct varve_node *f = p->newer;

	while (f && !is_there(f))
		f = f->native ? f->native->after : NULL;
	if (f)
		return f;
	for (f = s->ranged; f; f = f->native->next_ranged)
		if (f->native->number == p->number && is_there(f) && (f->has_part || f->native->pin))
			return f;
	return NULL;
}

/* The part's time of change is that of the newer file's last write, which giving back is not. */
static int punch_quietly(int fd, uint64_t from, uint64_t len)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
	struct stat before, after;

	if (fstat(fd, &before) < 0 ||
	    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)len) < 0)
		return -errno;
	times[1] = before.st_mtim;
	/* Unless somebody wrote meanwhile. */
	if (fstat(fd, &after) == 0 && after.st_size == before.st_size)
		(void)futimens(fd, times);
	return 0;
}

/* One step: 1: there is more of it. */
static int punch_step(struct varve_punch *p, int fd)
{
	off_t data = lseek(fd, (off_t)p->from, SEEK_DATA);
	uint64_t len;

	if (data < 0 || (uint64_t)data >= p->upto)
		return 0;
	p->from = (uint64_t)data;
	len = p->upto - p->from < PUNCH_STEP ? p->upto - p->from : PUNCH_STEP;
	if (punch_quietly(fd, p->from, len) < 0)
		return 0;
	p->from += len;
	return p->from < p->upto;
}

void varve_carry_end(struct varve_store *s)
{
	guard(&s->ns);
	while (s->punches) {
		struct varve_punch *p = s->punches;

		s->punches = p->next;
		varve_node_unref(s, p->older);
		varve_node_unref(s, p->newer);
		free(p);
	}
}

#define LOOK_AGAIN_NS (INT64_C(10) * VARVE_NS_PER_S)

/* The next range that can be given back now; ns held. look: those, too, of which that is not known yet. */
static struct varve_punch **next_punch(struct varve_store *s, bool look)
{
	struct varve_punch **at;

	for (at = &s->punches; *at; at = &(*at)->next)
		if (is_free(s, (*at)->older) && (look || !(*at)->look))
			break;
	return at;
}

/* Looks whether what could have been mapped still is: each descriptor is closed by now, so that nobody can map it any
 * more. Not more often than every LOOK_AGAIN_NS. */
static void look_for_mappings(struct varve_store *s)
{
	int64_t now = varve_clock_boottime(s->clock);
	struct varve_mappings m;
	bool any;

	{
		guard(&s->ns);
		any = !*next_punch(s, false) && *next_punch(s, true);
	}
	if (!any || now < s->mappings_next_ns)
		return;
	s->mappings_next_ns = now + LOOK_AGAIN_NS;
	if (varve_mappings_read(&m) == 0) {
		guard(&s->ns);
		for (struct varve_punch *p = s->punches; p; p = p->next)
			if (p->look && is_free(s, p->older))
				p->look = varve_mappings_have(&m, p->ino);
	}
	varve_mappings_done(&m);
}

void varve_carry_punch(struct varve_store *s, bool *ret_more)
{
	struct varve_punch *p, **at;
	struct varve_node *f;
	struct varve_part *part;
	int r = 0;

	*ret_more = false;
	look_for_mappings(s);
	{
		guard(&s->ns);
		at = next_punch(s, false);
		p = *at;
		if (!p)
			return;
		*at = p->next;
		f = holder(s, p);
		if (f)
			(void)varve_node_ref(f);
	}
	/* The record must not say any more that the range is somebody's. */
	if (f && varve_carry_save(s) == 0 && varve_file_part(s, f, &part) == 0) {
		r = punch_step(p, part->fd);
		varve_part_unref(part);
	}
	guard(&s->ns);
	varve_node_unref(s, f);
	if (r > 0) {
		p->next = s->punches;
		s->punches = p;
		*ret_more = true;
		return;
	}
	varve_node_unref(s, p->older);
	varve_node_unref(s, p->newer);
	free(p);
	*ret_more = *next_punch(s, false) != NULL;
}
