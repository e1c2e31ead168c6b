#include "store/part.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/uio.h>
#include <sys/xattr.h>

#include "store/opened.h"

struct varve_part *varve_part_new(int fd)
{
	struct varve_part *p = malloc(sizeof(*p));

	if (!p) {
		(void)close(fd);
		return NULL;
	}
	/* Reading a part is not to make the kernel write down when: a boundary looks at the last byte of each that is
	 * held. Refused of a file that is somebody else's, where the daemon is not root. */
	(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NOATIME);
	atomic_init(&p->refs, 1);
	p->fd = fd;
	p->kernel_writers = 0;
	p->next = NULL;
	return p;
}

struct varve_part *varve_part_ref(struct varve_part *p)
{
	(void)atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
	return p;
}

void varve_part_unref(struct varve_part *p)
{
	if (p && atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1) {
		(void)close(p->fd);
		free(p);
	}
}

int varve_mode_set(int fd, mode_t mode)
{
	mode_t need;
	struct stat st;
	char text[16];
	int n;

	if (fstat(fd, &st) < 0)
		return -errno;
	need = S_ISDIR(st.st_mode) ? 0700 : 0600;
	if (geteuid() == 0 || (mode & need) == need) {
		/* A daemon of root's has never noted one, but may be given a user's store. */
		(void)fremovexattr(fd, VARVE_XATTR_MODE);
		need = 0;
	} else {
		n = snprintf(text, sizeof(text), "%o", mode & 07777);
		if (fsetxattr(fd, VARVE_XATTR_MODE, text, (size_t)n, 0) < 0)
			return -errno;
	}
	return fchmod(fd, (mode & 07777) | need) < 0 ? -errno : 0;
}

int varve_mode_stat(int fd, struct stat *ret)
{
	char text[16], *end;
	unsigned long mode;
	ssize_t n;

	if (fstat(fd, ret) < 0)
		return -errno;
	n = fgetxattr(fd, VARVE_XATTR_MODE, text, sizeof(text) - 1);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	mode = strtoul(text, &end, 8);
	if (*end || mode > 07777)
		return 0;
	ret->st_mode = (ret->st_mode & S_IFMT) | (mode_t)mode;
	return 1;
}

/* An owner without CAP_DAC_OVERRIDE must lift the mode to open its own file. */
static int open_lifted(int dirfd, const char *path)
{
	cleanup_close int at = varve_openat(dirfd, path, O_PATH | O_NOFOLLOW, 0);
	char proc[64];
	struct stat st;
	int fd, saved;

	if (at < 0)
		return at;
	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", at);
	if (fstat(at, &st) < 0)
		return -errno;
	if (chmod(proc, (st.st_mode & 07777) | S_IRUSR | S_IWUSR) < 0)
		return -errno;
	fd = open(proc, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	saved = errno;
	(void)chmod(proc, st.st_mode & 07777);
	return fd < 0 ? -saved : fd;
}

int varve_part_open(int dirfd, const char *path)
{
	cleanup_close int fd = varve_openat(dirfd, path, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
	struct stat st;

	if (fd == -EACCES)
		fd = open_lifted(dirfd, path);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	return steal_fd(&fd);
}

static bool copied_name(const char *name)
{
	if (!strncmp(name, "user.varve.", 11))
		return false;
	return !strncmp(name, "user.", 5) || !strcmp(name, "system.posix_acl_access") ||
	       !strcmp(name, "system.posix_acl_default");
}

static int copy_one(int from, int to, const char *name)
{
	ssize_t len = fgetxattr(from, name, NULL, 0);
	cleanup_free char *value = len < 0 ? NULL : malloc((size_t)len + 1);

	if (len < 0)
		return errno == ENODATA ? 0 : -errno;
	if (!value)
		return -ENOMEM;
	len = fgetxattr(from, name, value, (size_t)len);
	if (len < 0)
		return errno == ENODATA ? 0 : -errno;
	return fsetxattr(to, name, value, (size_t)len, 0) < 0 ? -errno : 0;
}

int varve_xattrs_clear(int fd)
{
	ssize_t len = flistxattr(fd, NULL, 0);
	cleanup_free char *names = len < 0 ? NULL : malloc((size_t)len + 1);

	if (len < 0)
		return errno == ENOTSUP ? 0 : -errno;
	if (!names)
		return -ENOMEM;
	len = flistxattr(fd, names, (size_t)len);
	if (len < 0)
		return -errno;
	for (const char *n = names; n < names + len; n += strlen(n) + 1)
		if (copied_name(n) && fremovexattr(fd, n) < 0 && errno != ENODATA)
			return -errno;
	return 0;
}

int varve_xattrs_copy(int from, int to)
{
	ssize_t len = flistxattr(from, NULL, 0);
	cleanup_free char *names = len < 0 ? NULL : malloc((size_t)len + 1);

	if (len < 0)
		return errno == ENOTSUP ? 0 : -errno;
	if (!names)
		return -ENOMEM;
	len = flistxattr(from, names, (size_t)len);
	if (len < 0)
		return -errno;
	for (const char *n = names; n < names + len; n += strlen(n) + 1) {
		int r = copied_name(n) ? copy_one(from, to, n) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

/* The mode comes last: what it may take away is needed before. Where a default ACL was inherited, only
 * the owner's bits are set: the rest is the ACL's business. */
static int dress(int fd, int make_dirfd, const struct varve_part_spec *spec)
{
	bool inherits = fgetxattr(make_dirfd, "system.posix_acl_default", NULL, 0) > 0;
	mode_t mode = spec->mode & 01777;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	if ((spec->uid != st.st_uid || spec->gid != st.st_gid) &&
	    fchown(fd, spec->uid, spec->gid) < 0 && errno != EPERM)
		return -errno;
	if (spec->is_link && fsetxattr(fd, VARVE_XATTR_TYPE, "l", 1, 0) < 0)
		return -errno;
	r = varve_ino_write_xattr(fd, spec->ino);
	if (r == 0 && spec->opened)
		r = varve_opened_note(fd);
	if (r == 0 && spec->template_fd >= 0)
		r = varve_xattrs_copy(spec->template_fd, fd);
	if (r < 0)
		return r;
	if (inherits && spec->template_fd < 0)
		mode = (st.st_mode & 077) | (mode & 0700);
	return varve_mode_set(fd, mode);
}

int varve_part_link(int fd, int dirfd, const char *path)
{
	const char *slash = strrchr(path, '/');
	cleanup_free char *parent = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
	cleanup_close int into = -1;
	char proc[64];

	if (!parent)
		return -ENOMEM;
	/* linkat follows symbolic links in the directory part of a path; so that part is opened. */
	into = varve_openat(dirfd, parent, O_PATH | O_DIRECTORY, 0);
	if (into < 0)
		return into;
	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, proc, into, slash ? slash + 1 : path, AT_SYMLINK_FOLLOW) < 0 ? -errno
											     : 0;
}

int varve_part_unnamed(int make_dirfd)
{
	int fd = openat(make_dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : fd;
}

int varve_part_name(int fd, int make_dirfd, int dirfd, const char *path, const struct varve_part_spec *spec)
{
	int r = dress(fd, make_dirfd, spec);

	return r < 0 ? r : varve_part_link(fd, dirfd, path);
}

int varve_part_create(int make_dirfd, int dirfd, const char *path, const struct varve_part_spec *spec,
		      const void *content, size_t len)
{
	cleanup_close int dir = varve_openat(make_dirfd, ".", O_RDONLY | O_DIRECTORY, 0);
	cleanup_close int fd = -1;
	int r;

	if (dir < 0)
		return dir;
	fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, (spec->mode & 0777) | 0600);
	if (fd < 0)
		return -errno;
	r = dress(fd, dir, spec);
	if (r == 0 && len)
		r = varve_pwrite_full(fd, content, len, 0);
	if (r < 0)
		return r;
	r = varve_part_link(fd, dirfd, path);
	return r < 0 ? r : steal_fd(&fd);
}

/* Any id but root's: only the filesystem asks for it, when it counts its blocks. */
#define SPACE_ID 65534

static atomic_bool spare_reserve = true;

void varve_part_spare_reserve(bool on)
{
	atomic_store_explicit(&spare_reserve, on, memory_order_relaxed);
}

/* The thread's own; root stays root in all but its claim to space, the descriptor is open. */
static bool give_up_reserve(void)
{
	bool given = atomic_load_explicit(&spare_reserve, memory_order_relaxed) && geteuid() == 0;

	if (given)
		(void)setfsuid(SPACE_ID);
	return given;
}

static void take_back(bool given)
{
	if (given)
		(void)setfsuid(0);
}

/* off < 0: at the end. */
static ssize_t write_some(struct varve_part *p, const void *buf, size_t len, off_t off)
{
	size_t done = 0;

	while (done < len) {
		const struct iovec v = {.iov_base = (void *)((uintptr_t)buf + done),
					.iov_len = len - done};
		ssize_t n = off < 0 ? pwritev2(p->fd, &v, 1, 0, RWF_APPEND)
				    : pwritev2(p->fd, &v, 1, off + (off_t)done, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && done == 0)
			return -errno;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static ssize_t write_all(struct varve_part *p, const void *buf, size_t len, off_t off)
{
	bool given = give_up_reserve();
	ssize_t n = write_some(p, buf, len, off);

	take_back(given);
	return n;
}

int varve_part_reserve(struct varve_part *p, int mode, off_t off, off_t len)
{
	bool given = give_up_reserve();
	int r = fallocate(p->fd, mode, off, len) < 0 ? -errno : 0;

	take_back(given);
	return r;
}

ssize_t varve_part_write(struct varve_part *p, const void *buf, size_t len, uint64_t off)
{
	return write_all(p, buf, len, (off_t)off);
}

ssize_t varve_part_append(struct varve_part *p, const void *buf, size_t len)
{
	return write_all(p, buf, len, -1);
}

bool varve_part_has_writer(int dirfd, const char *path)
{
	cleanup_close int fd = varve_openat(dirfd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);

	if (fd < 0)
		return fd != -ENOENT;
	if (fcntl(fd, F_SETLEASE, F_RDLCK) < 0)
		return true;
	(void)fcntl(fd, F_SETLEASE, F_UNLCK);
	return false;
}

char *varve_part_path(const struct varve_store *s, const struct varve_bucket *b, unsigned place,
		      const char *path)
{
	char *ret;

	if (asprintf(&ret, "%s/%s/%s%s%s", b->name, s->places[place].class_name,
		     s->places[place].tablet, path && path[0] ? "/" : "", path ? path : "") < 0)
		return NULL;
	return ret;
}
