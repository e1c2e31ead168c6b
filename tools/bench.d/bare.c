/*
 * The least that a FUSE filesystem can cost: a peer for tools/bench that shows where the kernel's limit is. It speaks to
 * /dev/fuse with one thread and without any library, and knows one folder with plain files in it.
 *
 *	bare passthrough SOURCE MOUNTPOINT
 *		each file is opened with the kernel's passthrough of the file of that name in SOURCE
 *	bare write SOURCE MOUNTPOINT
 *		direct I/O; what is written is written to that file, at the kernel's offset
 *	bare nothing SOURCE MOUNTPOINT
 *		direct I/O; a write and an fsync are answered, and nothing else is done
 *
 * In all of them an fsync is the file's own (but for `nothing`). Runs in the foreground until it is unmounted.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* Newer than some distributions' headers. */
#define INIT_EXT (1u << 30)
#define PASSTHROUGH_2 (1u << (37 - 32))
#define OPENED_PASSTHROUGH (1u << 7)
struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define BACKING_OPEN _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)
struct init_reply {
	uint32_t major, minor, max_readahead, flags;
	uint16_t max_background, congestion_threshold;
	uint32_t max_write, time_gran;
	uint16_t max_pages, map_alignment;
	uint32_t flags2, max_stack_depth;
	uint32_t unused[6];
};
struct open_reply {
	uint64_t fh;
	uint32_t open_flags;
	int32_t backing_id;
};

#define BUFFER (1100u << 10)
#define FILES_MAX 20000
#define TIMEOUT_S 3600

static enum { PASSTHROUGH, WRITE, NOTHING } mode;
static int dev, source;

/* Numbers of files begin with 2; 1 is the folder. */
static struct file {
	char name[64];
	int fd;
	uint32_t opens;
	int32_t backing;
} files[FILES_MAX];
static unsigned n_files;

static void die(const char *what)
{
	fprintf(stderr, "bare: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void reply(uint64_t unique, int error, const void *data, size_t size)
{
	struct fuse_out_header head = {(uint32_t)(sizeof(head) + size), -error, unique};
	struct iovec v[] = {{&head, sizeof(head)}, {(void *)data, size}};

	/* ENOENT: whoever asked is gone. */
	if (writev(dev, v, size ? 2 : 1) < 0 && errno != ENOENT && errno != ENODEV)
		die("answer");
}

static struct fuse_attr attr_of(uint64_t id)
{
	struct fuse_attr a = {.ino = id, .nlink = 1, .mode = S_IFDIR | 0755};
	struct stat st;

	if (id == 1)
		return a;
	if (fstat(files[id - 2].fd, &st) < 0)
		die("stat");
	a.mode = S_IFREG | 0644;
	a.size = (uint64_t)st.st_size;
	a.blocks = (uint64_t)st.st_blocks;
	a.blksize = 4096;
	return a;
}

static struct fuse_entry_out entry_of(uint64_t id)
{
	return (struct fuse_entry_out){.nodeid = id, .generation = 1, .entry_valid = TIMEOUT_S,
				       .attr_valid = TIMEOUT_S, .attr = attr_of(id)};
}

static uint64_t find(const char *name)
{
	for (unsigned i = n_files; i-- > 0;)
		if (!strcmp(files[i].name, name))
			return i + 2;
	return 0;
}

static uint64_t make(const char *name)
{
	struct file *f = &files[n_files];

	if (n_files == FILES_MAX || strlen(name) >= sizeof(f->name))
		return 0;
	f->fd = openat(source, name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (f->fd < 0)
		die("make a file");
	strcpy(f->name, name);
	return 2 + n_files++;
}

static struct open_reply opened(uint64_t id)
{
	struct file *f = &files[id - 2];
	struct backing_map map = {.fd = f->fd};

	f->opens++;
	if (mode != PASSTHROUGH)
		return (struct open_reply){.open_flags = FOPEN_DIRECT_IO | FOPEN_NOFLUSH};
	if (!f->backing) {
		f->backing = ioctl(dev, BACKING_OPEN, &map);
		if (f->backing <= 0)
			die("register a file for passthrough");
	}
	return (struct open_reply){.open_flags = OPENED_PASSTHROUGH | FOPEN_NOFLUSH, .backing_id = f->backing};
}

/* Gives the room of a file back that has neither name nor opens; its number is not used again. */
static void empty(struct file *f)
{
	if (!f->name[0] && !f->opens && ftruncate(f->fd, 0) < 0)
		die("truncate");
}

static void release(uint64_t id)
{
	struct file *f = &files[id - 2];
	uint32_t backing = (uint32_t)f->backing;

	if (--f->opens)
		return;
	if (backing)
		(void)ioctl(dev, BACKING_CLOSE, &backing);
	f->backing = 0;
	empty(f);
}

static void on_write(const struct fuse_in_header *in, const struct fuse_write_in *w)
{
	struct fuse_write_out out = {.size = w->size};

	if (mode == WRITE &&
	    pwrite(files[in->nodeid - 2].fd, w + 1, w->size, (off_t)w->offset) != (ssize_t)w->size)
		die("write");
	reply(in->unique, 0, &out, sizeof(out));
}

static void on_init(const struct fuse_in_header *in, const struct fuse_init_in *i)
{
	struct init_reply out = {.major = FUSE_KERNEL_VERSION,
				 .minor = 40,
				 .max_readahead = i->max_readahead,
				 .flags = FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_HANDLE_KILLPRIV_V2 | INIT_EXT,
				 .max_write = 1 << 20,
				 .max_pages = 256,
				 .time_gran = 1};

	if (mode == PASSTHROUGH) {
		out.flags2 = PASSTHROUGH_2;
		out.max_stack_depth = 1;
	}
	reply(in->unique, 0, &out, sizeof(out));
}

static void on_create(const struct fuse_in_header *in, const char *name)
{
	struct {
		struct fuse_entry_out entry;
		struct open_reply opened;
	} out;
	uint64_t id = find(name);

	if (!id)
		id = make(name);
	if (!id) {
		reply(in->unique, ENOSPC, NULL, 0);
		return;
	}
	out.entry = entry_of(id);
	out.opened = opened(id);
	reply(in->unique, 0, &out, sizeof(out));
}

static void on_lookup(const struct fuse_in_header *in, const char *name)
{
	uint64_t id = find(name);
	struct fuse_entry_out out;

	if (!id) {
		reply(in->unique, ENOENT, NULL, 0);
		return;
	}
	out = entry_of(id);
	reply(in->unique, 0, &out, sizeof(out));
}

static void on_unlink(const struct fuse_in_header *in, const char *name)
{
	uint64_t id = find(name);

	if (!id || unlinkat(source, name, 0) < 0) {
		reply(in->unique, ENOENT, NULL, 0);
		return;
	}
	files[id - 2].name[0] = '\0';
	empty(&files[id - 2]);
	reply(in->unique, 0, NULL, 0);
}

static void on_attr(const struct fuse_in_header *in)
{
	struct fuse_attr_out out = {.attr_valid = TIMEOUT_S, .attr = attr_of(in->nodeid)};

	reply(in->unique, 0, &out, sizeof(out));
}

static void handle(const struct fuse_in_header *in)
{
	const void *arg = in + 1;
	static const struct fuse_statfs_out statfs_out = {.st = {.bsize = 4096, .namelen = 63, .frsize = 4096}};
	struct open_reply out;

	switch (in->opcode) {
	case FUSE_INIT: on_init(in, arg); return;
	case FUSE_WRITE: on_write(in, arg); return;
	case FUSE_LOOKUP: on_lookup(in, arg); return;
	case FUSE_CREATE: on_create(in, (const char *)arg + sizeof(struct fuse_create_in)); return;
	case FUSE_UNLINK: on_unlink(in, arg); return;
	case FUSE_GETATTR:
	case FUSE_SETATTR: on_attr(in); return;
	case FUSE_OPEN:
		out = opened(in->nodeid);
		reply(in->unique, 0, &out, sizeof(out));
		return;
	case FUSE_RELEASE:
		release(in->nodeid);
		reply(in->unique, 0, NULL, 0);
		return;
	case FUSE_FSYNC:
		if (mode != NOTHING && fdatasync(files[in->nodeid - 2].fd) < 0)
			die("fsync");
		reply(in->unique, 0, NULL, 0);
		return;
	case FUSE_OPENDIR:
		out = (struct open_reply){.open_flags = 0};
		reply(in->unique, 0, &out, sizeof(out));
		return;
	case FUSE_STATFS: reply(in->unique, 0, &statfs_out, sizeof(statfs_out)); return;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET: return;
	case FUSE_READDIR:
	case FUSE_RELEASEDIR: reply(in->unique, 0, NULL, 0); return;
	default: reply(in->unique, ENOSYS, NULL, 0); return;
	}
}

int main(int argc, char **argv)
{
	char *buf = malloc(BUFFER), options[128];

	if (argc == 4 && !strcmp(argv[1], "write"))
		mode = WRITE;
	else if (argc == 4 && !strcmp(argv[1], "nothing"))
		mode = NOTHING;
	else if (argc != 4 || strcmp(argv[1], "passthrough") != 0) {
		fprintf(stderr, "bare: passthrough|write|nothing SOURCE MOUNTPOINT; see the head of bare.c\n");
		return 2;
	}
	dev = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	source = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!buf || dev < 0 || source < 0)
		die("open /dev/fuse and the source");
	(void)snprintf(options, sizeof(options),
		       "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions", dev);
	if (mount("bare", argv[3], "fuse.bare", MS_NOSUID | MS_NODEV, options) < 0)
		die("mount");
	for (;;) {
		ssize_t n = read(dev, buf, BUFFER);

		if (n > 0)
			handle((const struct fuse_in_header *)buf);
		else if (errno == ENODEV)
			return 0;
		else if (errno != EINTR && errno != EAGAIN && errno != ENOENT)
			die("read /dev/fuse");
	}
}
