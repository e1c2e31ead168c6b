#include "store/native.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/carry.h"
#include "store/entry.h"
#include "store/file.h"
#include "store/part.h"

struct varve_native *varve_native_of(struct varve_node *n)
{
	if (!n->native)
		n->native = calloc(1, sizeof(*n->native));
	return n->native;
}

void varve_native_close_later(struct varve_store *s, struct varve_part *part)
{
	/* Only the last reference's end closes; it is then nobody's but the list's. */
	if (!part || atomic_fetch_sub_explicit(&part->refs, 1, memory_order_acq_rel) != 1)
		return;
	atomic_store(&part->refs, 1);
	part->next = s->to_close;
	s->to_close = part;
}

void varve_native_free(struct varve_store *s, struct varve_node *n)
{
	struct varve_native *nat = n->native;

	if (!nat)
		return;
	varve_carry_unlist(n);
	n->native = NULL;
	if (nat->to_link)
		s->n_to_link--;
	varve_mark_unref(nat->head);
	varve_mark_unref(nat->end);
	varve_native_close_later(s, nat->late);
	varve_native_close_later(s, nat->pin);
	varve_node_unref(s, nat->after);
	free(nat->xattrs);
	free(nat);
}

void varve_native_close(struct varve_store *s)
{
	struct varve_part *list;

	{
		guard(&s->ns);
		list = s->to_close;
		s->to_close = NULL;
	}
	while (list) {
		struct varve_part *next = list->next;

		varve_part_unref(list);
		list = next;
	}
}

bool varve_native_is_written(const struct varve_node *f)
{
	const struct varve_native *nat = f->native;
	const struct varve_part *part;

	if (!nat)
		return false;
	part = nat->pin ? nat->pin : f->part;
	return nat->orphan || (part && part->kernel_writers);
}

bool varve_native_attr_is_exact(struct varve_store *s, const struct varve_node *f)
{
	return f->bucket == s->current && f->linked && !f->succ && !f->dated_writers &&
	       !(f->native && (f->native->head || f->native->orphan));
}

bool varve_native_is_frozen(struct varve_store *s, const struct varve_node *f)
{
	/* Between a boundary's mark and its new bucket what is done by the name is done to what goes on. */
	guard(&s->ns);
	return f->native && f->native->end && f->bucket != s->current;
}

/* -- whether it can be used -- */

void varve_store_set_kernel(struct varve_store *s, const struct varve_store_kernel *kernel)
{
	s->kernel = *kernel;
}

static bool is_wanted(const struct varve_store *s)
{
	return s->policy.passthrough && !s->policy.worm;
}

void varve_store_kernel_off(struct varve_store *s, const char *why)
{
	guard(&s->ns);
	if (atomic_load(&s->kernel_off))
		return;
	(void)snprintf(s->kernel_why, sizeof(s->kernel_why), "%s", why);
	atomic_store(&s->kernel_off, true);
}

void varve_store_mode(struct varve_store *s, char *buf, size_t size)
{
	const char *why = "this build of libfuse knows no passthrough";

	guard(&s->ns);
	if (s->policy.worm)
		why = "the store is worm";
	else if (!s->policy.passthrough)
		why = "passthrough=no";
	else if (atomic_load(&s->kernel_off))
		why = s->kernel_why;
	else if (s->kernel.register_part) {
		(void)snprintf(buf, size, "passthrough");
		return;
	}
	(void)snprintf(buf, size, "served by the daemon: %s", why);
}

/* -- opens -- */

/* How long the kernel may take to see an answer. */
#define ANSWER_NS (INT64_C(10) * 1000 * 1000)

static bool is_pure(const struct varve_handle *h)
{
	return (h->flags & O_ACCMODE) == O_WRONLY && h->flags & O_APPEND;
}

/* ns and n's file.lock held. */
static void count_open(struct varve_handle *h, struct varve_node *n, struct varve_part *part, bool pure)
{
	struct varve_native *nat = n->native;

	nat->backed++;
	h->backed = true;
	if (h->readable) {
		nat->mappable++;
		nat->was_mappable = true;
	}
	if (pure) {
		part->kernel_writers++;
		nat->by_kernel = true;
		h->kernel_part = varve_part_ref(part);
	}
}

/* One open less that was answered with the node's number; ns held. With the last one the number and what it stands for
 * are the caller's, to be given up without ns (give_up). */
struct given_up {
	int id;
	struct varve_part *part;
};

static struct given_up uncount_open(struct varve_native *nat)
{
	struct given_up last = {0, NULL};

	if (--nat->backed == 0) {
		last = (struct given_up){nat->backing, nat->backing_part};
		nat->backing = 0;
		nat->backing_part = NULL;
	}
	return last;
}

static void give_up(struct varve_store *s, struct given_up last)
{
	if (last.id)
		s->kernel.forget_part(s->kernel.ctx, last.id);
	varve_part_unref(last.part);
}

bool varve_native_is_on(const struct varve_store *s)
{
	return s->kernel.register_part && is_wanted(s) && !atomic_load(&s->kernel_off);
}

/* Whether the node's first open may get a number, for f's part, or for the one that it is to have: see native.h; ns
 * held. */
static bool may_begin(struct varve_store *s, const struct varve_node *n, const struct varve_node *f,
		      const struct varve_part *part)
{
	return varve_native_is_on(s) && n == f && f->kind == VARVE_KIND_FILE && f->bucket && f->bucket == s->current &&
	       f->linked && !f->succ && (f->has_part ? part && f->part == part : true) &&
	       !(f->native && (f->native->head || f->native->end));
}

/* A stream that nothing was written to has no part; what its readers get a number for becomes its part with the first
 * writer, so that their number and the writer's are one. Who came before the part was made, and finds it made, has that.
 * n's file.lock held: no part is made meanwhile. NULL: none can be had. */
static struct varve_part *part_to_be(struct varve_store *s, const struct varve_node *n, struct varve_node *f)
{
	struct varve_part *part;
	bool made;
	int fd;

	{
		guard(&s->ns);
		if (n != f || (n->native && n->native->backed) || !(f->has_part || may_begin(s, n, f, NULL)))
			return NULL;
		made = f->has_part;
	}
	if (made)
		return varve_file_part_named(s, f, &part) < 0 ? NULL : part;
	fd = varve_part_unnamed(s->meta_fd);
	return fd < 0 ? NULL : varve_part_new(fd);
}

static int register_part(struct varve_store *s, const struct varve_part *part)
{
	cleanup_close int fd = -1;
	char proc[64];

	/* What the kernel keeps must not count as a writer of the part: only for reading. */
	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", part->fd);
	fd = open(proc, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : s->kernel.register_part(s->kernel.ctx, fd);
}

/* An answer without a number that the kernel sees only after one with a number is EIO to whoever waits for it. All opens
 * get the number; but where none could be had (the disk was full, there were too many) such answers get time to arrive
 * before the first number is given. n's file.lock held. */
static void let_answers_arrive(struct varve_store *s, struct varve_node *n, const struct varve_node *f,
			       const struct varve_part *part)
{
	struct timespec wait = {0};
	int64_t left = 0;

	{
		guard(&s->ns);
		if (n->native && !n->native->backed && n->native->direct_ns && may_begin(s, n, f, part))
			left = n->native->direct_ns + ANSWER_NS - varve_clock_monotonic_ns();
	}
	wait.tv_nsec = (long)left;
	if (left > 0 && left <= ANSWER_NS)
		(void)nanosleep(&wait, NULL);
}

/* The part could not be registered: what count_open counted is taken back. n's file.lock held. */
static void take_back(struct varve_store *s, struct varve_handle *h, struct varve_native *nat, struct varve_part *part,
		      bool pure, bool was_by_kernel)
{
	{
		guard(&s->ns);
		nat->backed--;
		h->backed = false;
		if (h->readable)
			nat->mappable--;
		if (pure) {
			part->kernel_writers--;
			nat->by_kernel = was_by_kernel;
		}
		nat->backing_part = NULL;
		nat->direct_ns = varve_clock_monotonic_ns();
	}
	if (pure) {
		varve_part_unref(h->kernel_part);
		h->kernel_part = NULL;
	}
	varve_part_unref(part);
}

void varve_native_open(struct varve_store *s, struct varve_handle *h, struct varve_node *n,
		       struct varve_node *f, struct varve_part *part, struct varve_opened *ret)
{
	struct varve_part *to_be = NULL;
	bool pure = is_pure(h), was;
	struct varve_native *nat;
	int id;

	ret->direct_io = true;
	/* The dated path is an inode of its own, which is always direct. */
	if (h->dated)
		return;
	/* Against other opens of the node, and so that a boundary sees either all of it or nothing. */
	guard(&n->lock);
	let_answers_arrive(s, n, f, part);
	if (!part)
		part = to_be = part_to_be(s, n, f);
	{
		guard(&s->ns);
		nat = n->native;
		if (nat && nat->backed) {
			pure = pure && part && may_begin(s, n, f, part) && part == nat->backing_part;
			count_open(h, n, part, pure);
			ret->backing = nat->backing;
			ret->direct_io = !pure;
			goto out;
		}
		if (!part || !may_begin(s, n, f, part)) {
			if (varve_native_is_on(s) && n == f && f->kind == VARVE_KIND_FILE && varve_native_of(n))
				n->native->direct_ns = varve_clock_monotonic_ns();
			goto out;
		}
		nat = varve_native_of(n);
		if (!nat)
			goto out;
		pure = pure && part == f->part;
		was = nat->by_kernel;
		/* Before the kernel can write: a boundary in this moment carries the part. */
		count_open(h, n, part, pure);
		nat->backing_part = varve_part_ref(part);
	}
	id = register_part(s, part);
	if (id > 0) {
		guard(&s->ns);
		nat->backing = id;
		ret->backing = id;
		ret->direct_io = !pure;
		goto out;
	}
	take_back(s, h, nat, part, pure, was);
	if (id != -EMFILE && id != -ENFILE && id != -ENOMEM)
		varve_store_kernel_off(s, strerror(-id));
out:
	varve_part_unref(to_be);
}

void varve_native_settle(struct varve_store *s, struct varve_node *f)
{
	struct varve_part *part = NULL;
	struct varve_native *nat;
	struct stat st;

	guard(&f->lock);
	{
		guard(&s->ns);
		nat = f->native;
		if (nat && nat->by_kernel && !nat->end && !varve_native_is_written(f) &&
		    f->kind == VARVE_KIND_FILE)
			part = nat->pin ? nat->pin : f->part;
		if (part)
			(void)varve_part_ref(part);
	}
	if (!part)
		return;
	if (fstat(part->fd, &st) == 0) {
		guard(&s->ns);
		if (!varve_native_is_written(f) && nat->by_kernel) {
			f->size = (uint64_t)st.st_size;
			f->last = -1;
			nat->by_kernel = false;
			if (nat->pin && !nat->to_link) {
				varve_native_close_later(s, nat->pin);
				nat->pin = NULL;
			}
		}
		if (!f->nameless)
			varve_file_count_part(s, f, &st);
	}
	varve_part_unref(part);
}

/* -- files that are kept open -- */

/* Its number is there by now: it is kept, too; ns held. */
static void warm_backing(struct varve_native *nat)
{
	if (nat->backed && !nat->warm_backed) {
		nat->backed++;
		nat->warm_backed = true;
	}
}

void varve_native_keep_warm(struct varve_store *s, struct varve_node *f)
{
	struct varve_node *old;
	struct varve_native *nat;

	{
		guard(&s->ns);
		/* It is the recorder that lets go of it. */
		if (!s->threads_run)
			return;
		if (f->kind != VARVE_KIND_FILE || f->bucket != s->current || !f->linked || f->succ || !f->part)
			return;
		nat = varve_native_of(f);
		if (!nat || nat->orphan)
			return;
		if (nat->warm) {
			warm_backing(nat);
			return;
		}
		nat->warm = true;
		f->handles++;
		warm_backing(nat);
		old = s->warm[s->warm_at];
		s->warm[s->warm_at] = varve_node_ref(f);
		s->warm_at = (s->warm_at + 1) % VARVE_WARM_FILES;
		if (old)
			(void)varve_node_ref(old);
	}
	if (!old)
		return;
	varve_native_cool(s, old);
	guard(&s->ns);
	/* The ring's reference, which went when its slot was taken, and ours. */
	varve_node_unref(s, old);
	varve_node_unref(s, old);
}

void varve_native_cool(struct varve_store *s, struct varve_node *f)
{
	struct given_up last = {0, NULL};
	struct varve_part *part = NULL;
	struct stat st;
	uint32_t seq = 0;
	bool have = false;

	{
		guard(&s->ns);
		if (!f->native || !f->native->warm)
			return;
		part = f->part ? varve_part_ref(f->part) : NULL;
		seq = f->attr_seq;
	}
	if (part)
		have = fstat(part->fd, &st) == 0;
	varve_part_unref(part);
	part = NULL;
	{
		guard(&s->ns);
		struct varve_native *nat = f->native;

		if (!nat->warm)
			return;
		nat->warm = false;
		if (nat->warm_backed)
			last = uncount_open(nat);
		nat->warm_backed = false;
		part = varve_file_drop_handle(s, f, false, have ? &st : NULL, seq);
		varve_file_end_chain(s, f);
		for (uint32_t i = 0; i < VARVE_WARM_FILES; i++)
			if (s->warm[i] == f) {
				s->warm[i] = NULL;
				varve_node_unref(s, f);
				break;
			}
	}
	give_up(s, last);
	varve_part_unref(part);
}

void varve_native_cool_old(struct varve_store *s, bool all)
{
	for (uint32_t i = 0; i < VARVE_WARM_FILES; i++) {
		struct varve_node *f;

		{
			guard(&s->ns);
			f = s->warm[i];
			if (!f || (!all && f->bucket == s->current && f->linked))
				continue;
			(void)varve_node_ref(f);
		}
		varve_native_cool(s, f);
		varve_node_put(s, f);
	}
}

static bool is_by_kernel(const struct varve_node *f)
{
	return f->native && f->native->by_kernel;
}

void varve_native_count(struct varve_store *s)
{
	cleanup_free struct varve_node **list = NULL;
	size_t n;

	(void)varve_bucket_written(s, s->current, is_by_kernel, &list, &n);
	for (size_t i = 0; i < n; i++) {
		struct varve_part *part;
		struct stat st;

		if (varve_file_part(s, list[i], &part) == 0) {
			guard(&list[i]->lock);
			if (list[i]->native->by_kernel && fstat(part->fd, &st) == 0) {
				list[i]->size = (uint64_t)st.st_size;
				if (!list[i]->nameless)
					varve_file_count_part(s, list[i], &st);
			}
			varve_part_unref(part);
		}
		varve_node_put(s, list[i]);
	}
}

/* The daemon's own descriptor would count as a writer: it is closed for the question. mutate held. */
static void ask_orphan(struct varve_store *s, struct varve_node *f)
{
	cleanup_free char *path = NULL;
	struct varve_part *pin = NULL, *again = NULL;
	struct stat st;
	int base, fd = -1;
	bool held;

	{
		guard(&s->ns);
		if (!f->native->orphan || f->handles || f->native->to_link || !f->has_part || !f->linked ||
		    f->kind != VARVE_KIND_FILE || (f->native->pin && f->native->pin->kernel_writers))
			return;
		path = varve_node_where(s, f, NULL, f->place, &base);
		if (!path)
			return;
		pin = f->native->pin;
		f->native->pin = NULL;
	}
	varve_part_unref(pin);
	held = varve_part_has_writer(base, path);
	if (held)
		fd = varve_part_open(base, path);
	if (fd >= 0)
		again = varve_part_new(fd);
	guard(&f->lock);
	guard(&s->ns);
	if (held) {
		f->native->pin = again;
		return;
	}
	if (fstatat(base, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
		f->size = (uint64_t)st.st_size;
	f->last = -1;
	f->native->orphan = f->native->by_kernel = false;
	varve_file_add_writers(s, f, (uint32_t)-1);
}

static bool is_orphan(const struct varve_node *f)
{
	return f->native && f->native->orphan;
}

void varve_native_ask_orphans(struct varve_store *s)
{
	cleanup_free struct varve_node **list = NULL;
	size_t n;

	(void)varve_bucket_written(s, s->current, is_orphan, &list, &n);
	for (size_t i = 0; i < n; i++) {
		{
			guard(&s->mutate);
			ask_orphan(s, list[i]);
		}
		varve_node_put(s, list[i]);
	}
}

void varve_native_release(struct varve_store *s, struct varve_handle *h)
{
	struct varve_node *n = h->opened, *newest = NULL;
	struct given_up last = {0, NULL};

	if (!h->backed && !h->kernel_part)
		return;
	{
		guard(&s->ns);
		struct varve_native *nat = n->native;

		if (h->kernel_part && --h->kernel_part->kernel_writers == 0)
			newest = varve_node_ref(varve_file_newest(n));
		if (h->backed) {
			if (h->readable)
				nat->mappable--;
			last = uncount_open(nat);
		}
	}
	if (newest) {
		varve_native_settle(s, newest);
		guard(&s->ns);
		varve_node_unref(s, newest);
	}
	give_up(s, last);
	varve_part_unref(h->kernel_part);
	varve_native_close(s);
}
