/*
 * Parts on disk: plain files below open/BUCKET/CLASS/TABLET/ and staging/. Descriptors are shared by
 * all who have the file open and counted.
 */
#pragma once

#include "store/core.h"

struct varve_part {
	atomic_uint refs;
	int fd; /* O_RDWR */
	uint32_t kernel_writers; /* store.ns; descriptors through which the kernel writes to it by itself */
	struct varve_part *next; /* store.ns; in store.to_close */
};

struct varve_part *varve_part_new(int fd); /* takes the descriptor; NULL: no memory, fd closed */
struct varve_part *varve_part_ref(struct varve_part *p);
void varve_part_unref(struct varve_part *p); /* NULL is fine; the last closes */

/* Opens the part at path below dirfd for reading and writing, even where its mode forbids that to a
 * daemon that is not root. A descriptor or -errno; -EBADMSG when it is no regular file. */
int varve_part_open(int dirfd, const char *path) varve_must_check;

/* What a new part is to be. */
struct varve_part_spec {
	mode_t mode;
	uid_t uid;
	gid_t gid;
	uint64_t ino;
	bool is_link;
	bool opened;	 /* it does not count yet: see opened.h */
	int template_fd; /* a file whose ACLs and xattrs it takes, or -1 */
};

/* Makes a complete part (O_TMPFILE in make_dirfd, whose default ACL it takes; owner, mode, xattrs,
 * then linked as dirfd/path). -EEXIST when the name is there. Returns the descriptor. */
int varve_part_create(int make_dirfd, int dirfd, const char *path, const struct varve_part_spec *spec,
		      const void *content, size_t len) varve_must_check;

/* An empty file without a name (O_TMPFILE in make_dirfd), that varve_part_name may make a part of later. Returns the
 * descriptor, or -errno. */
int varve_part_unnamed(int make_dirfd) varve_must_check;
/* Makes a complete part of it, as varve_part_create does of a new file; 0 or -errno. */
int varve_part_name(int fd, int make_dirfd, int dirfd, const char *path,
		    const struct varve_part_spec *spec) varve_must_check;

/* Gives an unnamed file (O_TMPFILE) its name, dirfd/path, never through a symbolic link. -EEXIST. */
int varve_part_link(int fd, int dirfd, const char *path) varve_must_check;

/* Sets the permissions of a part or directory of the store. A daemon that is not root must be able to
 * open what its user can't: for it the owner's bits that it needs are set on disk all the same, and the
 * mode that is shown is noted in VARVE_XATTR_MODE. */
int varve_mode_set(int fd, mode_t mode) varve_must_check;
/* fstat with the mode that is shown: 1 when that is not the one on disk, 0, or -errno. */
int varve_mode_stat(int fd, struct stat *ret) varve_must_check;

/* Takes away what varve_xattrs_copy would copy: of what is replaced nothing is left. 0 or -errno. */
int varve_xattrs_clear(int fd) varve_must_check;

/* Copies xattrs and ACLs (user.* but the store's own, system.posix_acl_*) from one descriptor to
 * another. */
int varve_xattrs_copy(int from, int to) varve_must_check;

/* What users write and reserve must not come out of the blocks that the backing filesystem keeps for root: while
 * that is on, as it is at first, the two below and _reserve are done with an ordinary user's rights to space.
 * Turned off while there is plenty, since it costs two system calls each time. Any thread. */
void varve_part_spare_reserve(bool on);

/* Writes at `off`: all of buf, or as much as goes; returns the bytes written (> 0) or -errno. */
ssize_t varve_part_write(struct varve_part *p, const void *buf, size_t len, uint64_t off);
/* Appends, wherever the part ends at that moment; returns likewise. */
ssize_t varve_part_append(struct varve_part *p, const void *buf, size_t len);
/* As fallocate(2); 0 or -errno. */
int varve_part_reserve(struct varve_part *p, int mode, off_t off, off_t len);

/* Whether somebody else has the part open for writing: a descriptor that the kernel writes through for a
 * process that outlived an earlier daemon. Asks for a read lease and gives it back; any answer but success
 * counts as a writer. The daemon itself must not have it open for writing, and nobody may open it
 * meanwhile; SIGIO is ignored by the caller's process. */
bool varve_part_has_writer(int dirfd, const char *path);

/* Where the parts of place p of bucket b are: "BUCKET/CLASS/TABLET[/PATH]" below open/. malloc'ed. */
char *varve_part_path(const struct varve_store *s, const struct varve_bucket *b, unsigned place,
		      const char *path);
