/*
 * Dropping, undropping, holding. Policy's drops come from expire.c; the trash is emptied by reaper.c.
 *
 * A drop is one rename into trash/, made durable, then an audit line. What it costs does not depend
 * on what the bucket holds: counts are noted on the bucket's directory when it is sealed.
 */
#include "store/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#include "base/log.h"
#include "base/units.h"
#include "store/carry.h"
#include "store/content.h"
#include "store/entry.h"
#include "store/file.h"
#include "store/trash.h"

/* -- ballast: room for a drop on a full disk -- */

#define BALLAST_BYTES (1 << 20)

void varve_ballast_free(struct varve_store *s)
{
	(void)unlinkat(s->meta_fd, "ballast", 0);
}

int varve_ballast_make(struct varve_store *s)
{
	cleanup_close int fd = -1;
	struct stat st;

	if (fstatat(s->meta_fd, "ballast", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_blocks * 512 >= BALLAST_BYTES)
		return 0;
	fd = varve_openat(s->meta_fd, "ballast", O_WRONLY | O_CREAT | O_NOFOLLOW, 0600);
	if (fd < 0)
		return fd;
	return fallocate(fd, 0, 0, BALLAST_BYTES) < 0 ? -errno : 0;
}

static int rename_into(struct varve_store *s, int from_fd, const char *from, int to_fd,
		       const char *to)
{
	for (int tries = 0;; tries++) {
		if (renameat2(from_fd, from, to_fd, to, RENAME_NOREPLACE) == 0)
			break;
		if (errno != ENOSPC || tries)
			return -errno;
		varve_ballast_free(s);
	}
	varve_crash_point("drop.renamed");
	if (fsync(to_fd) < 0 || fsync(from_fd) < 0)
		return -errno;
	return 0;
}

static void audit(struct varve_store *s, const struct varve_audit_line *line)
{
	int r = varve_audit_append(s->audit, line);

	if (r == -ENOSPC) {
		varve_ballast_free(s);
		r = varve_audit_append(s->audit, line);
	}
	if (r < 0)
		varve_error("the audit line for the %s of bucket '%s' can't be written: %s", line->event,
			    line->bucket, strerror(-r));
}

/* -- dropping -- */

/* Handles that were opened before the bucket was sealed read by its shelf, which ends with it: they
 * get the segment for themselves. shelf not held. */
static void give_segments(struct varve_store *s, struct varve_bucket *b)
{
	for (uint32_t slot = 0;; slot++) {
		struct varve_segment *seg;
		uint32_t tab;

		{
			guard(&s->ns);
			struct varve_handle *h = slot < s->n_handles ? s->handles[slot] : NULL;

			if (slot >= s->n_handles)
				return;
			if (!h || h->seg || h->is_dir || !h->file || h->file->bucket != b ||
			    h->file->kind != VARVE_KIND_SEALED)
				continue;
			tab = h->file->tab;
		}
		if (varve_sealed_segment(s, b, tab, &seg) < 0)
			continue;
		guard(&s->ns);
		struct varve_handle *h = s->handles[slot];

		if (h && !h->seg && !h->is_dir && h->file && h->file->bucket == b &&
		    h->file->tab == tab) {
			h->member = h->file->member;
			h->seg = seg;
			continue;
		}
		varve_segment_unref(seg);
	}
}

static void empty_shelf(struct varve_bucket *b)
{
	guard(&b->shelf);
	for (uint32_t t = 0; t < b->n_tabs; t++) {
		varve_segment_unref(b->tabs[t].seg);
		b->tabs[t].seg = NULL;
	}
}

/* Claims the bucket for a drop; a seal under way is called off. */
static int claim(struct varve_store *s, struct varve_bucket *b, struct varve_err *err)
{
	guard(&s->ns);
	if (b->state == VARVE_BUCKET_DROPPED)
		return varve_err_set(err, -ENOENT, "bucket '%s' is not there any more", b->name);
	if (b->state == VARVE_BUCKET_OPEN)
		return varve_err_set(err, -EBUSY, "bucket '%s' is the open one: it can be dropped once "
				     "its window has passed", b->name);
	if (b->held)
		return varve_err_set(err, -EBUSY, "bucket '%s' is on hold; 'varve unhold' ends that",
				     b->name);
	if (b->dropping)
		return varve_err_set(err, -ENOENT, "bucket '%s' is being dropped already", b->name);
	b->dropping = true;
	while (b->sealing) {
		atomic_store(&s->cancel_seal, 1);
		(void)pthread_cond_wait(&s->sealed_one, &s->ns);
	}
	return 0;
}

uint64_t varve_bucket_allocated(struct varve_bucket *b)
{
	uint64_t sum = 0;

	if (b->state != VARVE_BUCKET_SEALED)
		return atomic_load(&b->allocated);
	if (!atomic_load(&b->listed))
		return b->told_allocated;
	for (uint32_t t = 0; t < b->n_tabs; t++)
		sum += b->tabs[t].allocated;
	return sum;
}

/* Files and bytes for the audit line, where they were noted; ns held. */
static void count_open(void *ctx, struct varve_node *n)
{
	uint64_t *sum = ctx;

	if (n->kind == VARVE_KIND_FILE && n->has_part && varve_dated_visible(n)) {
		sum[0]++;
		sum[1] += varve_content_guess(n);
	} else if (n->kind == VARVE_KIND_DDIR) {
		varve_node_each(n, count_open, ctx);
	}
}

static int keep_dropped(struct varve_store *s, struct varve_bucket *b)
{
	struct varve_bucket **more =
		realloc(s->dropped, (s->n_dropped + 1) * sizeof(struct varve_bucket *));

	if (!more)
		return -ENOMEM;
	s->dropped = more;
	s->dropped[s->n_dropped++] = varve_bucket_ref(b);
	return 0;
}

/* The bucket is gone from sight: memory follows the rename. */
static void forget_bucket(struct varve_store *s, struct varve_bucket *b, bool can_come_back)
{
	(void)atomic_fetch_add(&s->known_changes, 1);
	empty_shelf(b);
	guard(&s->ns);
	/* A closing one keeps its tree, so that what is known by number is found again. */
	if (!can_come_back || keep_dropped(s, b) < 0)
		varve_bucket_forget_tree(s, b);
	b->state = VARVE_BUCKET_DROPPED;
	b->dropping = false;
	varve_bucket_unlist(s, b);
}

static void log_drop(const char *bucket, enum varve_drop_cause cause, const struct varve_caller *who,
		     uint64_t files, uint64_t size)
{
	char by[64], count[32] = "", bytes[32];

	if (who)
		(void)snprintf(by, sizeof(by), "by hand (uid %u, pid %d)", (unsigned)who->uid,
			       (int)who->pid);
	else
		(void)snprintf(by, sizeof(by), "by policy (%s)", varve_cause_name(cause));
	if (files != UINT64_MAX)
		(void)snprintf(count, sizeof(count), "%llu files, ", (unsigned long long)files);
	varve_size_format(size, bytes, sizeof(bytes));
	varve_info("dropped bucket '%s' %s: %s%s", bucket, by, count, bytes);
}

static int drop_failed(struct varve_store *s, struct varve_bucket *b, int r, struct varve_err *err)
{
	guard(&s->ns);
	b->dropping = false;
	return varve_err_wrap(err, r, "bucket '%s' can't be dropped: %s", b->name, strerror(-r));
}

int varve_drop_bucket(struct varve_store *s, struct varve_bucket *b, enum varve_drop_cause cause,
		      const struct varve_caller *who, int64_t cutoff_ns, struct varve_err *err)
{
	struct varve_trash_name tn = {.cause = cause, .uid = -1, .pid = -1};
	char trash[VARVE_TRASH_NAME_MAX];
	uint64_t counts[2] = {0, 0}, size;
	bool closing;
	int r = claim(s, b, err);

	if (r < 0)
		return r;
	guard(&s->mutate);
	closing = b->state == VARVE_BUCKET_CLOSING;
	if (closing) {
		varve_bucket_shut(s, b);
		/* What newer buckets have of its parts must not depend on its own names. */
		r = varve_carry_finish(s, true);
		if (r < 0)
			return drop_failed(s, b, r, err);
	} else {
		give_segments(s, b);
	}
	{
		guard(&s->ns);
		tn.time_ns = varve_believed_now(s);
		tn.state = b->state;
		if (closing) {
			varve_node_each(b->root, count_open, counts);
		} else {
			counts[0] = b->files;
			counts[1] = b->bytes;
		}
		size = varve_bucket_allocated(b);
	}
	(void)snprintf(tn.bucket, sizeof(tn.bucket), "%s", b->name);
	(void)snprintf(tn.class_name, sizeof(tn.class_name), "%s", s->places[0].class_name);
	if (who) {
		tn.uid = who->uid;
		tn.pid = who->pid;
	}
	do
		r = varve_trash_format(&tn, trash);
	while (r == 0 && faccessat(s->trash_fd, trash, F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
	       ++tn.seq < 1000);
	varve_crash_point("drop.before");
	if (r == 0 && closing && !b->dir_made)
		r = 0;
	else if (r == 0)
		r = rename_into(s, closing ? s->open_fd : s->sealed_fd, b->name, s->trash_fd, trash);
	if (r < 0)
		return drop_failed(s, b, r, err);
	varve_crash_point("drop.committed");
	(void)atomic_fetch_add(&s->trash_allocated, size);
	audit(s, &(struct varve_audit_line){
			 .time_ns = tn.time_ns, .event = who ? "drop" : "expire",
			 .cause = varve_cause_name(cause), .bucket = b->name,
			 .class_name = tn.class_name, .cutoff_ns = cutoff_ns, .buckets = 1,
			 .files = counts[0] == UINT64_MAX ? -1 : (int64_t)counts[0],
			 .bytes = counts[1] == UINT64_MAX ? -1 : (int64_t)counts[1],
			 .segment_bytes = closing ? -1 : (int64_t)size, .uid = tn.uid, .pid = tn.pid,
			 .id = trash});
	forget_bucket(s, b, cause == VARVE_CAUSE_HAND && s->policy.undrop_ns > 0);
	if (s->events.entry_gone)
		s->events.entry_gone(s->events.ctx, VARVE_ID_ROOT, b->name);
	log_drop(b->name, cause, who, counts[0], size);
	guard(&s->ns);
	s->reap = true;
	(void)pthread_cond_signal(&s->wake_reaper);
	return 0;
}

int varve_store_drop(struct varve_store *s, const struct varve_caller *who, const char *bucket,
		     struct varve_err *err)
{
	struct varve_bucket *b;
	int r;

	{
		guard(&s->ns);
		b = varve_bucket_find(s, bucket);
		if (b)
			(void)varve_bucket_ref(b);
	}
	if (!b)
		return varve_err_set(err, -ENOENT, "there is no bucket '%s'; 'varve status' lists them",
				     bucket);
	r = varve_drop_bucket(s, b, VARVE_CAUSE_HAND, who, 0, err);
	guard(&s->ns);
	varve_bucket_unref(s, b);
	return r;
}

int varve_parts_to_trash(struct varve_store *s, const char *bucket)
{
	struct varve_trash_name tn = {.state = VARVE_BUCKET_CLOSING, .cause = VARVE_CAUSE_SEALED,
				      .uid = -1, .pid = -1};
	char name[VARVE_TRASH_NAME_MAX], trash[VARVE_TRASH_NAME_MAX + 8];
	uint64_t size = 0;
	int r;

	(void)snprintf(tn.bucket, sizeof(tn.bucket), "%s", bucket);
	(void)snprintf(tn.class_name, sizeof(tn.class_name), "%s", s->places[0].class_name);
	{
		guard(&s->ns);
		tn.time_ns = s->time.believed_ns;
	}
	r = varve_trash_format(&tn, name);
	if (r < 0)
		return r;
	/* Gone from the first moment: nothing can bring parts back beside their segment. */
	varve_trash_gone(name, trash);
	if (varve_tree_allocated(s->open_fd, bucket, &size) == 0)
		(void)atomic_fetch_add(&s->trash_allocated, size);
	if (renameat2(s->open_fd, bucket, s->trash_fd, trash, RENAME_NOREPLACE) < 0)
		return errno == EEXIST ? varve_remove_tree(s->open_fd, bucket, true) : -errno;
	guard(&s->ns);
	s->reap = true;
	(void)pthread_cond_signal(&s->wake_reaper);
	return 0;
}

/* -- undrop -- */

struct find_trash {
	const char *bucket;
	char name[VARVE_TRASH_NAME_MAX];
	struct varve_trash_name parsed;
	bool found;
};

static int find_in_trash(void *ctx, const char *name, const struct varve_trash_name *parsed)
{
	struct find_trash *f = ctx;

	/* Oldest first: the last that fits is the newest. */
	if (parsed->cause == VARVE_CAUSE_HAND && !varve_trash_is_gone(name) &&
	    !strcmp(parsed->bucket, f->bucket)) {
		(void)snprintf(f->name, sizeof(f->name), "%s", name);
		f->parsed = *parsed;
		f->found = true;
	}
	return 0;
}

struct varve_bucket *varve_dropped_take(struct varve_store *s, const char *name)
{
	for (uint32_t i = 0; i < s->n_dropped; i++) {
		struct varve_bucket *b = s->dropped[i];

		if (strcmp(b->name, name) != 0)
			continue;
		s->dropped[i] = s->dropped[--s->n_dropped];
		return b;
	}
	return NULL;
}

static int relist_sealed(struct varve_store *s, const char *name)
{
	struct varve_bucket_facts facts;
	struct varve_bucket *b;
	int r = varve_bucket_facts(s, s->sealed_fd, name, &facts);

	if (r == 0 && !facts.ino)
		r = varve_ino_next(s, &facts.ino);
	if (r < 0)
		return r;
	{
		guard(&s->ns);
		b = varve_dropped_take(s, name);
	}
	if (!b) {
		b = varve_bucket_new(name, facts.start_ns, facts.end_ns, facts.ino);
		if (!b)
			return -ENOMEM;
		b->files = facts.files;
		b->bytes = facts.bytes;
		r = varve_sealed_ready(s, b);
	}
	guard(&s->ns);
	(void)atomic_fetch_add(&s->known_changes, 1);
	b->state = VARVE_BUCKET_SEALED;
	b->generation = ++s->undrops;
	if (r == 0)
		r = varve_bucket_list(s, b);
	varve_bucket_unref(s, b);
	return r;
}

static int relist_closing(struct varve_store *s, const char *name, struct varve_err *err)
{
	struct varve_bucket *b;
	int r = 0;

	{
		guard(&s->ns);
		b = varve_dropped_take(s, name);
	}
	if (!b) {
		r = varve_recover_open(s, name, &b, err);
		/* From now on its files tell the range record what they are. */
		if (r == 0)
			varve_carry_forget(s, name, false);
	}
	if (r < 0)
		return r;
	guard(&s->ns);
	b->state = VARVE_BUCKET_CLOSING;
	b->hurry = true;
	b->generation = ++s->undrops;
	b->grace_end_ns = 0;
	r = varve_bucket_list(s, b);
	varve_bucket_unref(s, b);
	(void)pthread_cond_signal(&s->wake_sealer);
	return r;
}

int varve_store_undrop(struct varve_store *s, const struct varve_caller *who, const char *bucket,
		       struct varve_err *err)
{
	struct find_trash f = {.bucket = bucket};
	bool sealed;
	int r;

	guard(&s->mutate);
	guard(&s->trash);
	r = varve_trash_each(s->trash_fd, find_in_trash, &f);
	if (r < 0)
		return varve_err_wrap(err, r, "the trash can't be read");
	if (!f.found)
		return varve_err_set(err, -ENOENT, "bucket '%s' is not in the trash: it was not dropped by "
				     "hand, or the time to take it back (option undrop) has passed",
				     bucket);
	sealed = f.parsed.state == VARVE_BUCKET_SEALED;
	{
		guard(&s->ns);
		if (varve_bucket_find(s, bucket))
			return varve_err_set(err, -EEXIST, "there is a bucket '%s' again", bucket);
	}
	r = rename_into(s, s->trash_fd, f.name, sealed ? s->sealed_fd : s->open_fd, bucket);
	if (r == 0)
		r = sealed ? relist_sealed(s, bucket) : relist_closing(s, bucket, err);
	if (r < 0)
		return varve_err_wrap(err, r, "bucket '%s' can't be taken back: %s", bucket, strerror(-r));
	{
		struct varve_audit_line line = {.event = "undrop", .bucket = bucket, .buckets = 1,
						.files = -1, .bytes = -1, .segment_bytes = -1,
						.uid = who->uid, .pid = who->pid, .id = f.name};
		{
			guard(&s->ns);
			line.time_ns = varve_believed_now(s);
		}
		audit(s, &line);
	}
	varve_info("took bucket '%s' back from the trash", bucket);
	return 0;
}

/* -- hold -- */

int varve_store_hold(struct varve_store *s, const struct varve_caller *who, const char *bucket,
		     bool on, struct varve_err *err)
{
	struct varve_audit_line line = {.event = on ? "hold" : "unhold", .bucket = bucket, .buckets = 1,
					.files = -1, .bytes = -1, .segment_bytes = -1,
					.uid = who->uid, .pid = who->pid};
	struct varve_bucket *b;
	int r = 0;

	guard(&s->mutate);
	{
		guard(&s->ns);
		b = varve_bucket_find(s, bucket);
		if (!b)
			return varve_err_set(err, -ENOENT, "there is no bucket '%s'; 'varve status' lists "
					     "them", bucket);
		if (b->held == on)
			return 0;
		line.time_ns = varve_believed_now(s);
	}
	if (on)
		r = varve_publish_file(s->holds_fd, bucket, "", 0, 0600);
	else if (unlinkat(s->holds_fd, bucket, 0) < 0 && errno != ENOENT)
		r = -errno;
	else if (fsync(s->holds_fd) < 0)
		r = -errno;
	if (r < 0)
		return varve_err_set(err, r, "bucket '%s' can't be %s: %s", bucket,
				     on ? "put on hold" : "taken off hold", strerror(-r));
	{
		guard(&s->ns);
		b = varve_bucket_find(s, bucket);
		if (b)
			b->held = on;
	}
	audit(s, &line);
	varve_info("bucket '%s' is %s", bucket, on ? "on hold" : "off hold");
	return 0;
}
