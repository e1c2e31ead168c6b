#include "fuse/handoff.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Concurrent fsyncs share the journal's commits: many are cheaper than few. */
#define SYNC_THREADS 16
#define READ_THREADS_MIN 4
#define READ_THREADS_MAX 16
#define LOOK_THREADS 4
/* Most of what they do excludes each other. */
#define CHANGE_THREADS 4
/* What is copied in place while others wait; the kernel's own read-ahead, where it can't be raised.
 */
#define READ_IN_PLACE_MAX (128u << 10)

struct varve_handoff {
	struct varve_loop *loop;
	struct varve_workers *workers;
};

/* An operation's arguments; each takes what it needs. What is pointed to is libfuse's until the
 * handler returns, so a queued one has copies. */
struct args {
	fuse_req_t req;
	fuse_ino_t ino, new_parent;
	const char *name, *name2; /* with their sizes, as they are copied: */
	size_t name_size, name2_size;
	size_t size;
	off_t off, len;
	mode_t mode;
	dev_t rdev;
	int flags;
	bool has_fi;
	struct fuse_file_info fi;
	struct stat attr;
};

struct job {
	struct varve_work work;
	void (*op)(struct args *a);
	struct args a;
	char text[]; /* name, name2 */
};

static void run_job(struct varve_work *work)
{
	struct job *job = (struct job *)work;

	job->op(&job->a);
	free(job);
}

static void drop_job(struct varve_work *work)
{
	struct job *job = (struct job *)work;

	varve_ll_reply(job->a.req, -ENOTCONN);
	free(job);
}

static bool submit(struct varve_handoff *h, enum varve_work_class class_,
		   void (*op)(struct args *a), const struct args *a)
{
	struct job *job = malloc(sizeof(*job) + a->name_size + a->name2_size);

	if (!job)
		return false;
	*job = (struct job){.work = {.run = run_job, .drop = drop_job}, .op = op, .a = *a};
	if (a->name)
		job->a.name = memcpy(job->text, a->name, a->name_size);
	if (a->name2)
		job->a.name2 = memcpy(job->text + a->name_size, a->name2, a->name2_size);
	if (varve_workers_submit(h->workers, class_, &job->work))
		return true;
	free(job);
	return false;
}

/* What can't be handed over is done in place. */
static void hand_over(enum varve_work_class class_, void (*op)(struct args *a), struct args *a)
{
	if (!submit(varve_ll_of(a->req)->handoff, class_, op, a))
		op(a);
}

static void unless_free(enum varve_work_class class_, void (*op)(struct args *a), struct args *a)
{
	const struct varve_handoff *h = varve_ll_of(a->req)->handoff;

	if (h->loop && varve_loop_spare(h->loop))
		op(a);
	else
		hand_over(class_, op, a);
}

/* -- the operations -- */

static size_t size_of(const char *text)
{
	return strlen(text) + 1;
}

static void do_mkdir(struct args *a)
{
	varve_op_mkdir(a->req, a->ino, a->name, a->mode);
}

void varve_via_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct args a = {
		.req = req, .ino = parent, .name = name, .name_size = size_of(name), .mode = mode};

	unless_free(VARVE_WORK_CHANGE, do_mkdir, &a);
}

static void do_mknod(struct args *a)
{
	varve_op_mknod(a->req, a->ino, a->name, a->mode, a->rdev);
}

void varve_via_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct args a = {.req = req,
			 .ino = parent,
			 .name = name,
			 .name_size = size_of(name),
			 .mode = mode,
			 .rdev = rdev};

	unless_free(VARVE_WORK_CHANGE, do_mknod, &a);
}

static void do_symlink(struct args *a)
{
	varve_op_symlink(a->req, a->name2, a->ino, a->name);
}

void varve_via_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct args a = {.req = req,
			 .ino = parent,
			 .name = name,
			 .name_size = size_of(name),
			 .name2 = target,
			 .name2_size = size_of(target)};

	unless_free(VARVE_WORK_CHANGE, do_symlink, &a);
}

static void do_unlink(struct args *a)
{
	varve_op_unlink(a->req, a->ino, a->name);
}

void varve_via_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct args a = {.req = req, .ino = parent, .name = name, .name_size = size_of(name)};

	unless_free(VARVE_WORK_CHANGE, do_unlink, &a);
}

static void do_rmdir(struct args *a)
{
	varve_op_rmdir(a->req, a->ino, a->name);
}

void varve_via_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct args a = {.req = req, .ino = parent, .name = name, .name_size = size_of(name)};

	unless_free(VARVE_WORK_CHANGE, do_rmdir, &a);
}

static void do_rename(struct args *a)
{
	varve_op_rename(a->req, a->ino, a->name, a->new_parent, a->name2, (unsigned)a->flags);
}

void varve_via_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		      const char *new_name, unsigned flags)
{
	struct args a = {.req = req,
			 .ino = parent,
			 .name = name,
			 .name_size = size_of(name),
			 .new_parent = new_parent,
			 .name2 = new_name,
			 .name2_size = size_of(new_name),
			 .flags = (int)flags};

	unless_free(VARVE_WORK_CHANGE, do_rename, &a);
}

static void do_setattr(struct args *a)
{
	varve_op_setattr(a->req, a->ino, &a->attr, a->flags, a->has_fi ? &a->fi : NULL);
}

void varve_via_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	struct args a = {
		.req = req, .ino = ino, .attr = *attr, .flags = to_set, .has_fi = fi != NULL};

	if (fi)
		a.fi = *fi;
	unless_free(VARVE_WORK_CHANGE, do_setattr, &a);
}

static void do_setxattr(struct args *a)
{
	varve_op_setxattr(a->req, a->ino, a->name, a->name2, a->name2_size, a->flags);
}

void varve_via_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
			size_t size, int flags)
{
	struct args a = {.req = req,
			 .ino = ino,
			 .name = name,
			 .name_size = size_of(name),
			 .name2 = value,
			 .name2_size = size,
			 .flags = flags};

	unless_free(VARVE_WORK_CHANGE, do_setxattr, &a);
}

static void do_removexattr(struct args *a)
{
	varve_op_removexattr(a->req, a->ino, a->name);
}

void varve_via_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct args a = {.req = req, .ino = ino, .name = name, .name_size = size_of(name)};

	unless_free(VARVE_WORK_CHANGE, do_removexattr, &a);
}

static void do_open(struct args *a)
{
	varve_op_open(a->req, a->ino, &a->fi);
}

void varve_via_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct args a = {.req = req, .ino = ino, .fi = *fi};

	unless_free(fi->flags & O_TRUNC ? VARVE_WORK_CHANGE : VARVE_WORK_LOOK, do_open, &a);
}

static void do_create(struct args *a)
{
	varve_op_create(a->req, a->ino, a->name, a->mode, &a->fi);
}

void varve_via_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	struct args a = {.req = req,
			 .ino = parent,
			 .name = name,
			 .name_size = size_of(name),
			 .mode = mode,
			 .fi = *fi};

	unless_free(VARVE_WORK_CHANGE, do_create, &a);
}

static void do_read(struct args *a)
{
	varve_op_read(a->req, a->ino, a->size, a->off, &a->fi);
}

void varve_via_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct args a = {.req = req, .ino = ino, .size = size, .off = off, .fi = *fi};
	struct varve_store *store = varve_ll_of(req)->store;
	enum varve_read_cost cost = VARVE_READ_IN_MEMORY;

	if (!varve_views_is(ino))
		cost = varve_store_read_cost(store, fi->fh, size, (uint64_t)off);
	if (cost == VARVE_READ_DECOMPRESSES || size > READ_IN_PLACE_MAX)
		hand_over(VARVE_WORK_READ, do_read, &a);
	else if (cost == VARVE_READ_FROM_DISK)
		unless_free(VARVE_WORK_READ, do_read, &a);
	else
		do_read(&a);
}

static void do_fsync(struct args *a)
{
	varve_op_fsync(a->req, a->ino, a->flags, &a->fi);
}

void varve_via_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct args a = {.req = req, .ino = ino, .flags = datasync, .fi = *fi};

	unless_free(VARVE_WORK_SYNC, do_fsync, &a);
}

static void do_fallocate(struct args *a)
{
	varve_op_fallocate(a->req, a->ino, a->flags, a->off, a->len, &a->fi);
}

void varve_via_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
			 struct fuse_file_info *fi)
{
	struct args a = {.req = req, .ino = ino, .flags = mode, .off = off, .len = len, .fi = *fi};

	unless_free(VARVE_WORK_CHANGE, do_fallocate, &a);
}

static void do_readdir(struct args *a)
{
	varve_op_readdir(a->req, a->ino, a->size, a->off, &a->fi);
}

void varve_via_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	struct args a = {.req = req, .ino = ino, .size = size, .off = off, .fi = *fi};

	unless_free(VARVE_WORK_LOOK, do_readdir, &a);
}

static void do_readdirplus(struct args *a)
{
	varve_op_readdirplus(a->req, a->ino, a->size, a->off, &a->fi);
}

void varve_via_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			   struct fuse_file_info *fi)
{
	struct args a = {.req = req, .ino = ino, .size = size, .off = off, .fi = *fi};

	unless_free(VARVE_WORK_LOOK, do_readdirplus, &a);
}

static void do_fsyncdir(struct args *a)
{
	varve_op_fsyncdir(a->req, a->ino, a->flags, &a->fi);
}

void varve_via_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct args a = {.req = req, .ino = ino, .flags = datasync, .fi = *fi};

	unless_free(VARVE_WORK_SYNC, do_fsyncdir, &a);
}

/* -- the whole -- */

int varve_handoff_new(struct varve_loop *loop, struct varve_handoff **ret)
{
	struct varve_handoff *h = calloc(1, sizeof(*h));
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned bounds[VARVE_WORK_CLASSES] = {
		[VARVE_WORK_SYNC] = SYNC_THREADS,
		[VARVE_WORK_READ] = READ_THREADS_MIN,
		[VARVE_WORK_LOOK] = LOOK_THREADS,
		[VARVE_WORK_CHANGE] = CHANGE_THREADS,
	};
	int r;

	if (!h)
		return -ENOMEM;
	h->loop = loop;
	if (cores > READ_THREADS_MAX)
		cores = READ_THREADS_MAX;
	if (cores > READ_THREADS_MIN)
		bounds[VARVE_WORK_READ] = (unsigned)cores;
	r = varve_workers_new(bounds, &h->workers);
	if (r < 0) {
		free(h);
		return r;
	}
	*ret = h;
	return 0;
}

void varve_handoff_stop(struct varve_handoff *h)
{
	varve_workers_stop(h->workers);
}

void varve_handoff_free(struct varve_handoff *h)
{
	if (!h)
		return;
	varve_workers_free(h->workers);
	free(h);
}
