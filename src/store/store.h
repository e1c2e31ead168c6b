/*
 * The store's facade: all that the FUSE layer and the control socket see. It knows nothing of FUSE:
 * it speaks of ids, names, callers and handles, and returns 0 or a negative errno that may go to the
 * caller as it is (but see varve_store_errno).
 *
 * Ids. Every file and directory that was handed out has a 64-bit id; 1 is the root. Lookups hand
 * out references (one each, to be given back by forget). An id is derived from st_ino, and never
 * used again for something else. Files of current/ have id == st_ino; the same file reached by its
 * dated path has VARVE_ID_DATED set in its id.
 *
 * Handles (`fh`) are numbers, too, never pointers; a wrong one is -EBADF.
 *
 * Threads: every function may be called from any thread at any time between new and free. None
 * calls back into the caller except through struct varve_store_events, from threads of the store's
 * own, holding no lock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/err.h"
#include "store/policy.h"
#include "store/retention.h"

#define VARVE_ID_ROOT UINT64_C(1)
#define VARVE_ID_DATED (UINT64_C(1) << 62)

struct varve_store;

/* Who asks; umask is the process's. */
struct varve_caller {
	uid_t uid;
	gid_t gid;
	pid_t pid;
	mode_t umask;
};

/* What a lookup, create, mkdir, ... hands out, with one reference. Times are ns from now; 0: not to
 * be cached; INT64_MAX: for ever (the store says through events when it ends). */
struct varve_entry {
	uint64_t id;
	uint64_t generation; /* of the id: a bucket that was dropped and taken back is new to the kernel */
	struct stat attr; /* st_ino as the user sees it */
	int64_t entry_valid_ns;
	int64_t attr_valid_ns;
};

/* What an open hands out. */
struct varve_opened {
	uint64_t fh;
	int backing; /* not 0: what the kernel may write to by itself, as struct varve_store_kernel's
		      * register_part gave it; with direct_io: reads and writes come to the store all the same */
	bool direct_io;	 /* reads and writes come to the store; else the content never changes */
	bool keep_cache; /* what the kernel has cached of it is still right */
};

/* Called from the store's own threads when something that was cached is no longer so. */
struct varve_store_events {
	void (*entry_gone)(void *ctx, uint64_t parent_id, const char *name);
	void (*inode_changed)(void *ctx, uint64_t id); /* attributes and pages */
	void *ctx;
};

/* What lets the kernel write to parts by itself (passthrough). */
struct varve_store_kernel {
	/* Makes a part (a descriptor opened for reading) known to the kernel: a number > 0, or -errno. */
	int (*register_part)(void *ctx, int fd);
	void (*forget_part)(void *ctx, int backing);
	void *ctx;
};

struct varve_store_params {
	const char *path;		/* STORE; created when absent or empty */
	/* Applied, in order, onto the conf: the command line's options. */
	const char *const *option_names;
	const char *const *option_values; /* an element may be NULL */
	unsigned n_options;
	const struct varve_clock *clock;
	struct varve_store_events events;
};

/* Creates the store when the folder is empty or absent, takes its lock (-EBUSY: in use; err names
 * the pid), recovers, but starts no thread yet: the caller may still fork. */
int varve_store_open(const struct varve_store_params *params, struct varve_store **ret,
		     struct varve_err *err) varve_must_check;

/* Replaces the events (the session knows them only once it is made); before start. */
void varve_store_set_events(struct varve_store *s, const struct varve_store_events *events);

/* Lets the kernel write to parts by itself where the policy allows it; before start. Without this call
 * all writes are the store's. */
void varve_store_set_kernel(struct varve_store *s, const struct varve_store_kernel *kernel);
/* From now on it can't, for this reason: the store serves all that is opened. Said once. */
void varve_store_kernel_off(struct varve_store *s, const char *why);
/* "passthrough", or "served by the daemon: WHY"; into buf. */
void varve_store_mode(struct varve_store *s, char *buf, size_t size);

/* Starts the store's threads: boundaries, sealing, retention. After the last fork. */
int varve_store_start(struct varve_store *s, struct varve_err *err) varve_must_check;

/* Ends the threads, makes everything durable, releases the lock. All handles count as released. */
void varve_store_close(struct varve_store *s);

/* The store's folder as a descriptor (O_PATH), for the control socket; owned by the store. */
int varve_store_dirfd(const struct varve_store *s);
const struct varve_policy *varve_store_policy(const struct varve_store *s);

/* Maps an error of the store to what a system call returns (-EBADMSG -> -EIO ...). */
int varve_store_errno(int r);

/* -- names -- */

int varve_store_lookup(struct varve_store *s, uint64_t parent, const char *name,
		       struct varve_entry *ret);
void varve_store_forget(struct varve_store *s, uint64_t id, uint64_t n);

int varve_store_mkdir(struct varve_store *s, const struct varve_caller *who, uint64_t parent,
		      const char *name, mode_t mode, struct varve_entry *ret);
/* Regular files only; everything else that mknod makes is -EPERM. */
int varve_store_mknod(struct varve_store *s, const struct varve_caller *who, uint64_t parent,
		      const char *name, mode_t mode, struct varve_entry *ret);
int varve_store_symlink(struct varve_store *s, const struct varve_caller *who, const char *target,
			uint64_t parent, const char *name, struct varve_entry *ret);
int varve_store_unlink(struct varve_store *s, const struct varve_caller *who, uint64_t parent,
		       const char *name);
/* Also drops a bucket, when name is one and parent the root. */
int varve_store_rmdir(struct varve_store *s, const struct varve_caller *who, uint64_t parent,
		      const char *name);
/* flags as renameat2(2): 0 or RENAME_NOREPLACE; others -EINVAL. */
int varve_store_rename(struct varve_store *s, uint64_t parent, const char *name,
		       uint64_t new_parent, const char *new_name, unsigned flags);
/* The link's target, NUL-terminated, into buf (size bytes; cut to fit, as readlink does). */
int varve_store_readlink(struct varve_store *s, uint64_t id, char *buf, size_t size);

/* -- attributes -- */

#define VARVE_SET_MODE 0x01u
#define VARVE_SET_UID 0x02u
#define VARVE_SET_GID 0x04u
#define VARVE_SET_SIZE 0x08u
#define VARVE_SET_ATIME 0x10u	  /* st_atim; tv_nsec may be UTIME_NOW */
#define VARVE_SET_MTIME 0x20u	  /* st_mtim; likewise */

/* fh 0: by name; else the handle through which it is asked (its file may have moved on). */
int varve_store_getattr(struct varve_store *s, uint64_t id, uint64_t fh, struct stat *ret,
			int64_t *ret_valid_ns);
int varve_store_setattr(struct varve_store *s, uint64_t id, uint64_t fh, const struct stat *attr,
			unsigned set, struct stat *ret, int64_t *ret_valid_ns);
/* As the system calls: size 0 asks for the length; -ERANGE when it does not fit. Names: user.*,
 * system.posix_acl_access, system.posix_acl_default; user.varve.* are the store's own
 * (state, ratio, digest to read; hold to set or remove on a bucket). Others: -EOPNOTSUPP. */
ssize_t varve_store_getxattr(struct varve_store *s, uint64_t id, const char *name, void *buf,
			     size_t size);
ssize_t varve_store_listxattr(struct varve_store *s, uint64_t id, char *buf, size_t size);
int varve_store_setxattr(struct varve_store *s, const struct varve_caller *who, uint64_t id,
			 const char *name, const void *value, size_t size, int flags);
int varve_store_removexattr(struct varve_store *s, const struct varve_caller *who, uint64_t id,
			    const char *name);
int varve_store_statfs(struct varve_store *s, struct statvfs *ret);

/* -- content -- */

/* flags as open(2), O_TRUNC included. */
int varve_store_open_file(struct varve_store *s, uint64_t id, int flags, struct varve_opened *ret);
int varve_store_create(struct varve_store *s, const struct varve_caller *who, uint64_t parent,
		       const char *name, mode_t mode, int flags, struct varve_entry *ret,
		       struct varve_opened *ret_opened);
/* What reading these bytes takes, as far as that is known beforehand. */
enum varve_read_cost {
	VARVE_READ_IN_MEMORY,	 /* a copy (or an error, at once) */
	VARVE_READ_FROM_DISK,	 /* a plain file's: in memory or from the disk */
	VARVE_READ_DECOMPRESSES, /* something must be decompressed or opened first */
};
enum varve_read_cost varve_store_read_cost(struct varve_store *s, uint64_t fh, size_t size,
					   uint64_t off);
/* page_cache: the READ comes from the page cache (no lock owner), not from a read(2). */
ssize_t varve_store_read(struct varve_store *s, uint64_t fh, void *buf, size_t size, uint64_t off,
			 bool page_cache);
struct varve_view; /* store/view.h */
/* The same bytes of a sealed file, all of them, where they are in memory: varve_view_done gives them
 * back. -EAGAIN: not this time, read them. The caller holds no other view. */
ssize_t varve_store_view(struct varve_store *s, uint64_t fh, size_t size, uint64_t off,
			 struct varve_view *ret);
/* What else of a sealed file is in memory around its byte `off`, in whole pages from *ret_off on; as
 * varve_store_view, but never blocks, and once only for the same bytes. */
ssize_t varve_store_view_around(struct varve_store *s, uint64_t fh, uint64_t off,
				struct varve_view *ret, uint64_t *ret_off);
/* flags: the open file's flags as they are now (O_APPEND may have been changed by fcntl). */
ssize_t varve_store_write(struct varve_store *s, uint64_t fh, const void *buf, size_t size,
			  uint64_t off, int flags);
int varve_store_fsync(struct varve_store *s, uint64_t fh);
int varve_store_fallocate(struct varve_store *s, uint64_t fh, int mode, uint64_t off, uint64_t len);
void varve_store_release(struct varve_store *s, uint64_t fh);

/* -- directories -- */

int varve_store_opendir(struct varve_store *s, uint64_t id, uint64_t *ret_dh);
/* Gives the entries behind cookie `off` (0: from the start), one call each: `next` is the cookie
 * behind it. The callback returns false to stop (the entry was not taken). With plus, entry holds a
 * full lookup with one reference, which the callback takes over if it returns true (never for "."
 * and ".."); without, only attr.st_ino and attr.st_mode are set. Cookies stay valid while names come and
 * go. */
typedef bool varve_readdir_cb(void *ctx, const char *name, const struct varve_entry *entry,
			      uint64_t next);
int varve_store_readdir(struct varve_store *s, uint64_t dh, uint64_t off, bool plus,
			varve_readdir_cb *cb, void *ctx);
/* Whether nobody but those who remove names through this mount changes what the handle lists, and its
 * cookies are the same for every handle: the kernel may keep it. */
bool varve_store_dir_is_final(struct varve_store *s, uint64_t dh);
void varve_store_releasedir(struct varve_store *s, uint64_t dh);
int varve_store_fsyncdir(struct varve_store *s, uint64_t id);

/* -- administration: the control socket -- */

struct varve_bucket_status {
	char name[VARVE_BUCKET_NAME_MAX];
	char class_name[VARVE_CLASS_NAME_MAX];
	enum varve_bucket_state state;
	bool held;
	bool damaged; /* something of it can't be read */
	int64_t start_ns, end_ns;
	uint64_t files, bytes; /* regular files and their sizes; of a sealed bucket from its index */
	uint64_t allocated;    /* on the backing filesystem */
	enum varve_drop_cause goes_by; /* what will take it ... */
	int64_t goes_ns;	       /* ... and when (INT64_MAX: nothing will, as things are) */
};

struct varve_status {
	int64_t now_ns;	      /* believed time */
	int64_t wall_ns;
	const char *clock;    /* "good", "behind", "untrusted" */
	char bucket_length[32];
	char mode[128];	      /* how writes are served: see varve_store_mode */
	int64_t next_boundary_ns;
	uint64_t volume_bytes, free_bytes;
	uint64_t store_bytes; /* allocated by all */
	uint64_t trash_bytes, trash_buckets;
	uint64_t faults;      /* frames or files found damaged since the mount */
	uint64_t cache_bytes, cache_hits, cache_misses;
	unsigned n_buckets;
	struct varve_bucket_status *buckets; /* oldest first */
};

/* The caller frees with varve_status_done. */
int varve_store_status(struct varve_store *s, struct varve_status *ret);
void varve_status_done(struct varve_status *st);

/* `who` for the audit line. The bucket by name; err says why not. */
int varve_store_drop(struct varve_store *s, const struct varve_caller *who, const char *bucket,
		     struct varve_err *err);
int varve_store_undrop(struct varve_store *s, const struct varve_caller *who, const char *bucket,
		       struct varve_err *err);
int varve_store_hold(struct varve_store *s, const struct varve_caller *who, const char *bucket,
		     bool on, struct varve_err *err);
/* Ends the grace of the closing bucket `bucket` (NULL: of all closing ones) now and waits until it is
 * sealed, at most timeout_ns (-ETIMEDOUT). The open bucket can't be sealed (-EBUSY). */
int varve_store_seal(struct varve_store *s, const char *bucket, int64_t timeout_ns,
		     struct varve_err *err);
int varve_store_clock_accept(struct varve_store *s, const struct varve_caller *who,
			     struct varve_err *err);
