/*
 * The store's insides, shared by the modules of store/ that make up the facade (store.h), and by
 * nobody else. docs/architecture.md tells how they fit together.
 *
 * Names in memory. What is not sealed is kept in memory as trees of nodes: the skeleton of current/
 * (SDIR, with STREAM markers), one tree of DDIR and FILE a bucket, and .staging/ (XDIR, FILE). A
 * directory of current/ is the union of its SDIR and of the current bucket's DDIR at the same path.
 * What is sealed is read from its index; only what the caller has looked up has a node (SEALED).
 *
 * Invariants:
 *  (1) A node is in the id table from its first reference to its last; ids are never used again.
 *  (2) A FILE with a part is linked on disk exactly where its parents' names say, below
 *      open/BUCKET/CLASS/TABLET/ or staging/. A FILE without a part holds no bytes: it is a stream
 *      that nothing was written to in this bucket, or is about to get its part.
 *  (3) Bytes go into a bucket's parts only while its gate is held shared and is not shut. Once shut
 *      it stays so; the sealer and the drop rely on it.
 *  (4) A FILE's successor is in a later bucket; it is set by the boundary or when the gate is shut, and
 *      writers only ever move to it. `writers` counts, at the newest of a chain of successors, the
 *      handles that are anywhere on it: one that does not write has a way on all the same.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/sync.h"
#include "base/sys.h"
#include "store/audit.h"
#include "store/cache.h"
#include "store/mark.h"
#include "store/ranges.h"
#include "store/segment.h"
#include "store/slots.h"
#include "store/store.h"
#include "store/timekeeper.h"
#include "store/tombs.h"

#define VARVE_ID_CURRENT UINT64_C(2)
#define VARVE_ID_STAGING UINT64_C(3)
#define VARVE_ID_OPEN_LINK UINT64_C(4)
#define VARVE_FIRST_INO UINT64_C(1024)
#define VARVE_INO_LIMIT (UINT64_C(1) << 53)

#define VARVE_XATTR_INO "user.varve.ino"       /* decimal st_ino of a file or directory */
#define VARVE_XATTR_TYPE "user.varve.type"     /* "l": the content is a symbolic link's target */
#define VARVE_XATTR_BUCKET "user.varve.bucket" /* of open/BUCKET, sealed/BUCKET: "INO START END[ FILES BYTES]" */
#define VARVE_XATTR_MODE "user.varve.mode"     /* octal: the mode that is shown, see varve_mode_set */
#define VARVE_XATTR_SERIAL "user.varve.serial" /* of a stream in tree/: decimal, see ino.c */
#define VARVE_XATTR_OPENED "user.varve.opened" /* "1": a part, or a folder, that does not count yet: see opened.h */

#define VARVE_NEW_STREAMS UINT64_C(4096) /* so many that begin within a bucket have a number in its run */
/* What a path inside a bucket may have, so that it can be opened as BUCKET/CLASS/TABLET/PATH. */
#define VARVE_LIVE_PATH_MAX (VARVE_PATH_BYTES_MAX - 32)

enum varve_kind {
	VARVE_KIND_ROOT,
	VARVE_KIND_OPEN_LINK, /* 2026-11-30 -> current */
	VARVE_KIND_SDIR,
	VARVE_KIND_STREAM, /* a marker below an SDIR; has no id of its own */
	VARVE_KIND_DDIR,
	VARVE_KIND_XDIR,
	VARVE_KIND_FILE,
	VARVE_KIND_SEALED,
};

struct varve_punch;
struct varve_part; /* an open descriptor of a part, counted: see part.h */
struct varve_bucket;

#define VARVE_PART_CHAINS 1024

/* What a FILE has beyond a part of its own that only the daemon writes to: made when it is first needed,
 * freed with the node. Written with both the file's lock and store.ns held; either is enough to read. */
struct varve_native {
	/* -- the part is shared with other buckets, see carry.c -- */
	struct varve_mark *head; /* NULL: the file's bytes begin where the part's do */
	struct varve_mark *end;	 /* NULL: they go on to the part's end */
	unsigned char *xattrs;	 /* as of the boundary, see ranges.h; immutable once end is set */
	size_t xattrs_len;
	struct varve_part *pin; /* kept open: the kernel writes to it, or it has no name here yet */
	uint64_t number;	  /* what is noted on the part: its first file's st_ino */
	struct varve_node *after; /* has the part from the end on; referenced */
	struct varve_node *next_ranged, **ranged_at; /* in store.ranged: it has a head or an end */
	struct varve_node *next_of_part, **of_part_at; /* in store.by_part, while in store.ranged */
	bool begun;	/* it was truncated: it is there, also when it holds nothing */
	bool opened;	/* the part was made by an open: it counts once it holds a byte, see opened.h */
	bool to_link;	/* its hard link in this bucket is still to be made */
	bool by_kernel; /* bytes come without the daemon: only the part itself knows its size */
	bool orphan;	/* a descriptor that outlived an earlier daemon may write to it */
	bool lent;	/* one of the file's writers is none, see varve_file_lend_writer */

	/* -- late data: what came by the dated path behind a range, or behind a line that a writer
	 * has not finished yet -- */
	struct varve_part *late; /* kept open */
	uint64_t late_size;

	/* -- the kernel's inode of the id without VARVE_ID_DATED, see native.c -- */
	int backing;	     /* the id that all opens are answered with; 0: none */
	uint32_t backed;     /* opens that were answered with it */
	uint32_t mappable;   /* of those: could have mapped the part */
	bool was_mappable;   /* one could, at some time: a mapping outlives its descriptor */
	struct varve_part *backing_part; /* what the id stands for */
	int64_t direct_ns;   /* monotonic; when an open was last answered without one */

	bool warm;	  /* in store.warm: counts as a handle, so that the part stays open */
	bool warm_backed; /* and as an open that was answered with the id */
};

struct varve_node {
	/* -- immutable after the node is made, but that FILE may become SEALED -- */
	enum varve_kind kind; /* changes are made under ns */
	uint64_t ino;

	/* -- guarded by store.ns -- */
	uint32_t refs;	  /* parent's link, kernel's lookups (one for all), handles, pointers from nodes */
	uint64_t nlookup; /* given out by lookup, to be forgotten */
	struct varve_node *id_next; /* in the id table's chain */
	struct varve_node *parent;  /* kept, unreferenced by name, while linked; referenced */
	struct varve_node *sibling; /* in the parent's chain */
	char *name;
	uint32_t name_hash;
	bool linked;		   /* its parent lists it */
	struct varve_node **chains; /* children, by hash of the name */
	uint32_t n_chains, n_children;
	struct stat attr; /* as last seen; of a FILE with an open part: ask the part */
	struct varve_bucket *bucket; /* DDIR, FILE (NULL: in .staging/), SEALED */

	/* -- SDIR and DDIR, guarded by store.ns -- */
	struct varve_node *ddir; /* SDIR: its DDIR, right while ddir->bucket is the current one; weak */
	struct varve_node *sdir; /* DDIR: the SDIR at its path when it was made; referenced */
	uint32_t on_disk;	 /* DDIR: bit p: the directory is there in place p */
	bool opened;		 /* DDIR: only for parts that were made by an open, see opened.h */

	/* -- FILE -- */
	struct varve_part *part; /* ns; NULL: not open, or none */
	bool has_part;		 /* ns, changed under store.mutate */
	bool nameless; /* ns; removed, or replaced, by a user: whoever holds it goes on with it alone */
	bool is_link;
	bool lifted; /* ns; its mode is attr's, not that of the part: see varve_mode_set */
	bool appended; /* ns; a writer opened it with O_APPEND: it goes on at a boundary like a stream,
			* also under a name it was given meanwhile */
	uint64_t serial; /* STREAM: gives the st_ino of its file in a bucket in which nothing was
			  * written to it, see ino.c */
	uint16_t place;
	uint32_t handles;    /* ns; open handles on it */
	uint32_t writers;    /* ns; writable handles that came by current/, see (4) */
	struct varve_node *succ; /* ns; referenced: see invariant (4) */
	bool stuck;		 /* mutate; no successor could be made for it, said */
	struct varve_node *next_written; /* ns; in bucket.written, while it has writers */
	struct varve_node **written_at;	 /* ns; what points to it there; NULL: not in the list */
	uint32_t attr_seq; /* ns; how often attr was set: what was seen of the part before is older */
	uint32_t openers; /* ns; handles that were opened by this node */
	uint32_t dated_writers; /* ns; of them: writable ones that came by the dated path */
	struct varve_native *native; /* NULL: nothing of that; set once */
	pthread_mutex_t lock; /* "file": size, last, late; held over the append to its part */
	atomic_uint_fast64_t size; /* of the part; read without the lock, too */
	uint64_t counted;     /* bytes of it that the budget counts: on disk, not holes */
	int last;	      /* its last byte; -1: not known */
	uint32_t late;	      /* bytes added after the boundary to finish a line */
	atomic_bool linked_durably; /* the part's directory was fsynced since the link */

	/* -- SEALED: immutable -- */
	uint16_t tab;	 /* which of the bucket's tablets */
	uint32_t member; /* in its index */
	bool tab_none;	 /* the bucket's own directory: no tablet need be readable */
};

#define VARVE_WARM_FILES 128 /* descriptors that are kept for who opens, appends and closes again and again */

#define VARVE_PLACES_MAX 32 /* bits of on_disk */

/* One class x tablet, by its number the same in the whole store. */
struct varve_place {
	char class_name[VARVE_CLASS_NAME_MAX];
	char tablet[VARVE_CLASS_NAME_MAX];
};

/* A sealed bucket's tablet. */
struct varve_tab {
	struct varve_place at;
	struct varve_segment *seg; /* shelf; NULL: not open */
	bool bad;		   /* shelf; opening it failed, logged */
	uint64_t allocated;	   /* bytes on the backing filesystem */
};

struct varve_bucket {
	/* -- immutable -- */
	char name[VARVE_BUCKET_NAME_MAX];
	int64_t start_ns, end_ns;
	uint64_t ino; /* of its own (dated) directory */
	uint64_t generation; /* ns; how often it came back from the trash */

	/* -- guarded by store.ns -- */
	uint32_t refs;
	enum varve_bucket_state state;
	struct varve_node *root;    /* DDIR; NULL once sealed */
	struct varve_node *written; /* FILEs that writers from current/ hold */
	int64_t grace_end_ns;	    /* believed time; closing only */
	int64_t promise_boot_ns;    /* boot time until which names under current/ were let be cached */
	bool held;
	bool damaged;
	bool sealing, dropping; /* being worked on by the sealer, by a drop */
	bool hurry;		/* `varve seal`: the grace ends now */
	bool seal_failed;	/* logged; tried again at retry_ns (boot time) */
	int64_t retry_ns;
	uint64_t files, bytes; /* sealed: from the index, once known; UINT64_MAX: not known */

	/* -- own locks -- */
	pthread_rwlock_t gate; /* "gate": shared by every write into the bucket's parts */
	atomic_bool shut;      /* gate: no more bytes, ever; read without it as a hint */
	bool dir_made;	       /* mutate: open/BUCKET is there */
	bool carries;	       /* ns; carried parts belong to it: it is there, though its folder may not be yet */
	atomic_uint_fast64_t allocated; /* unsealed: sum of its parts' sizes, rounded up to blocks */
	pthread_mutex_t shelf; /* "shelf": tabs' segments; held over the opening of one, or of the list */
	uint64_t dir_ino; /* ns; st_ino of sealed/NAME; 0: not known */
	uint64_t told_allocated; /* ns; what the last mount knew; counts until tabs are listed */
	struct stat dir_attr; /* ns; sealed: its directory's, which has no xattrs; mode 0: not known */
	atomic_bool listed; /* sealed: tabs are there, see varve_sealed_ready */
	struct varve_tab *tabs; /* made once, under shelf and ns, when first needed */
	uint32_t n_tabs;
	int64_t used_boot_ns; /* shelf; when a segment was last asked for */
	struct varve_tombs *tombs; /* shelf; NULL: not open yet */
};

struct varve_handle {
	uint64_t fh;
	uint32_t refs; /* ns */
	bool is_dir;
	int flags; /* open(2)'s */
	bool dated; /* opened by the dated path */
	bool readable, writable;
	bool on_sealed; /* opened on a file that was sealed already */

	pthread_mutex_t lock; /* "handle": all below */
	struct varve_node *file; /* referenced; changed under lock and ns; moves to successors */
	struct varve_node *opened; /* referenced, immutable: the file that it was opened on */
	uint64_t next_off; /* the offset at which the caller's next write would go on */
	bool dirty;	   /* wrote to `file` since the last fsync */
	bool from_start;   /* the file was empty when it was opened: see varve_handle_grow */
	bool wrote;
	struct varve_node **unsynced; /* files it wrote to and moved on from; referenced */
	uint32_t n_unsynced;

	struct varve_part *kernel_part; /* immutable; the kernel writes to it through this handle */
	bool backed;		/* immutable; counted in the opened node's native->backed */

	struct varve_segment *seg; /* ns; opened on a sealed file, or its bucket was dropped */
	uint32_t member;	   /* ns */

	struct varve_dirent *list; /* directory: what opendir or rewinddir saw */
	uint32_t n_list;
	bool on_index;	     /* it is read from the index instead: a sealed bucket's */
};

struct varve_dirent {
	char *name;
	uint64_t ino;
	mode_t type;
};

/* The numbers that a new window needs. */
struct varve_window_numbers {
	bool there;
	uint64_t ino;	   /* of the bucket's directory */
	uint64_t base, n; /* of the streams: see ino.c */
};

struct varve_store {
	/* -- immutable after open -- */
	char *path;
	int dirfd;	/* STORE */
	int lock_fd;
	int meta_fd, tree_fd, open_fd, sealed_fd, staging_fd, trash_fd, tombs_fd, holds_fd;
	struct varve_policy policy;
	const struct varve_clock *clock;
	struct varve_store_events events;
	uid_t uid; /* the daemon's */
	struct varve_cache *cache;
	struct varve_audit *audit;

	pthread_mutex_t mutate; /* "mutate": changes to names, in memory and on disk together, the
				 * boundary, and shutting gates. Held over metadata I/O: only those
				 * who change names wait for it, never a read, a write or a lookup */

	pthread_mutex_t ns; /* "ns": all that says so above, and below; never held over I/O */
	struct varve_node *spare; /* made ahead, all zeros, by id_next */
	struct varve_node **id_chains;
	uint32_t n_id_chains, n_ids;
	struct varve_handle **handles;
	uint32_t n_handles, handles_size, *free_handles, n_free_handles, handle_gen;
	struct varve_node *root, *current_dir, *staging_dir, *open_link;
	struct varve_bucket **buckets; /* by start, then name; dropped ones are not in it */
	uint32_t n_buckets, buckets_size;
	struct varve_bucket *current;
	struct varve_bucket **dropped; /* by hand, in the trash, can come back; each referenced */
	uint32_t n_dropped;
	struct varve_timekeeper time;
	bool stopping;
	uint32_t n_open_segments; /* a hint for the shelf's bound */

	pthread_mutex_t trash; /* "trash": removing from trash/ against taking back from it; under mutate */

	struct varve_place places[VARVE_PLACES_MAX]; /* grow only, under ns; 0 is default/0 */
	atomic_uint n_places;

	pthread_mutex_t inos; /* "inos": the reservation of a block, over its I/O; never taken under ns */
	atomic_uint_fast64_t next_ino, reserved_ino;
	struct varve_slots *ino_slots, *clock_slots;
	uint64_t undrops;		/* ns */
	uint64_t next_serial;		/* ns */
	uint64_t serial_base, serial_n; /* ns; the current bucket's, see ino.c */

	/* -- carried parts: carry.c -- */
	pthread_mutex_t ranges; /* "ranges": the range record, over its writing; under mutate */
	struct varve_slots *range_slots;
	struct varve_ranges kept; /* ranges; of buckets that are in the trash since an earlier mount */
	atomic_uint_fast64_t ranges_saved; /* changed under ranges; what ranges_wanted was when it was written */
	uint64_t ranges_wanted;	  /* ns; how often what it tells has changed */
	struct varve_node *ranged; /* ns; FILEs with a head or an end */
	struct varve_node *by_part[VARVE_PART_CHAINS]; /* ns; the same by their parts' numbers */
	uint32_t n_to_link;	   /* ns; hard links still to be made */
	int64_t mappings_next_ns; /* reaper only; boot time: when it may look for mappings again */
	struct varve_punch *punches; /* ns; ranges to be given back, see carry.c */
	struct varve_part *to_close; /* ns; descriptors that the keeper closes */

	/* -- files that were opened for appending a moment ago, kept open: native.c -- */
	struct varve_node *warm[VARVE_WARM_FILES]; /* ns; referenced */
	uint32_t warm_at;			   /* ns; the next to make room */

	/* -- what the kernel writes to by itself: native.c -- */
	struct varve_store_kernel kernel; /* immutable once it runs */
	atomic_bool kernel_off;		  /* it can't be used: the daemon serves all */
	char kernel_why[96];		  /* ns; why */

	/* -- threads: see keeper.c, sealer.c -- */
	pthread_t keeper, recorder, sealer, reaper;
	bool threads_run;
	bool record; /* ns; there is something for the recorder to write */
	pthread_cond_t wake_recorder; /* with ns */
	pthread_cond_t wake_keeper, wake_sealer, wake_reaper, sealed_one; /* with ns */
	atomic_int cancel_seal;
	struct varve_bucket *sealing_now; /* ns */
	atomic_int_fast64_t kept_mark_ns; /* the clock mark as last written */
	struct varve_window_numbers next_window; /* ns; taken ahead, so that a boundary waits for no disk */
	atomic_uint known_changes; /* of sealed buckets, since they were written to meta/sealed */
	atomic_bool names_dirty; /* tombs were added since the last sync */
	atomic_uint_fast64_t staging_allocated;
	atomic_uint_fast64_t trash_allocated;
	atomic_uint_fast64_t faults;
	uint64_t tick; /* keeper only */
	pthread_cond_t made_room; /* with ns: the keeper has looked for room since it was asked */
	uint64_t room_asked, room_looked; /* ns; counts */
	bool reap;		  /* ns; something came into the trash since the reaper looked */
	bool reap_failed;	  /* reaper only: said */
	bool near_short;	  /* keeper only: looks more often */
	atomic_bool purge; /* the volume runs short: what is in the trash goes at once */
	bool short_logged; /* keeper only: the volume runs short and nothing is left to drop: said */
};

/* -- node.c: memory only; all with ns held unless said otherwise -- */

struct varve_node *varve_node_new(struct varve_store *s, enum varve_kind kind, uint64_t ino);
/* Makes the memory of as many nodes ahead, with pauses, for who is about to need them in one hold of ns; ns not held.
 * What is left of them goes with 0. Where there is no memory it is seen when they are made. */
void varve_node_prepare(struct varve_store *s, uint32_t count);
struct varve_node *varve_node_ref(struct varve_node *n);
void varve_node_unref(struct varve_store *s, struct varve_node *n); /* NULL is fine */
int varve_node_link(struct varve_node *parent, struct varve_node *n, const char *name);
void varve_node_unlink(struct varve_store *s, struct varve_node *n); /* from its parent; drops the link's ref */
struct varve_node *varve_node_child(const struct varve_node *dir, const char *name);
struct varve_node *varve_node_by_id(struct varve_store *s, uint64_t id); /* no reference added */
/* Each child once; the callback must not change the children. */
void varve_node_each(const struct varve_node *dir, void (*cb)(void *ctx, struct varve_node *n),
		     void *ctx);
/* The path below the tree's root, malloc'ed; "" for the root itself. Takes extra: a last component,
 * or NULL. */
char *varve_node_path(const struct varve_node *n, const char *extra);
static inline bool varve_node_is_dir(const struct varve_node *n)
{
	return S_ISDIR(n->attr.st_mode);
}

/* -- buckets (bucket.c); ns held unless said otherwise -- */

struct varve_bucket *varve_bucket_new(const char *name, int64_t start_ns, int64_t end_ns,
				      uint64_t ino); /* no lock needed */
struct varve_bucket *varve_bucket_ref(struct varve_bucket *b);
void varve_bucket_unref(struct varve_store *s, struct varve_bucket *b);
int varve_bucket_list(struct varve_store *s, struct varve_bucket *b); /* puts it into s->buckets (a ref) */
void varve_bucket_unlist(struct varve_store *s, struct varve_bucket *b);
struct varve_bucket *varve_bucket_find(struct varve_store *s, const char *name);
/* Those of b->written that `wanted` picks, each referenced; *ret_list is malloc'ed, NULL when there are none. ns not held,
 * but in the callback. -ENOMEM. */
int varve_bucket_written(struct varve_store *s, struct varve_bucket *b,
			 bool (*wanted)(const struct varve_node *f), struct varve_node ***ret_list, size_t *ret_n);
/* Gives an unsealed bucket its tree's root. */
int varve_bucket_root(struct varve_store *s, struct varve_bucket *b);
int64_t varve_believed_now(struct varve_store *s); /* takes a reading of the clock */

/* -- ino.c -- */

uint64_t varve_ino_take(struct varve_store *s); /* memory only; 0: none is reserved, call ready */
int varve_ino_ready(struct varve_store *s);	/* reserves more when few are left; I/O; ns not held */
int varve_ino_next(struct varve_store *s, uint64_t *ret); /* may do I/O; ns not held */
/* Moves the counter beyond a number that came from elsewhere (a segment copied by hand). */
void varve_ino_beyond(struct varve_store *s, uint64_t ino);
/* Takes a run of numbers for the streams of a new current bucket; mutate held, ns not. */
int varve_ino_streams(struct varve_store *s, uint64_t *ret_base, uint64_t *ret_n);
int varve_ino_read_xattr(int fd, uint64_t *ret); /* -ENODATA */
int varve_ino_write_xattr(int fd, uint64_t ino);

/* -- part.h has the parts on disk -- */

int varve_place_for(struct varve_store *s, const char *path); /* the place of a path of current/ */
int varve_place_add(struct varve_store *s, const char *class_name, const char *tablet); /* ns; its number */

/* -- handle.c -- */

/* A new handle on file (referenced by it), in the table; NULL: no memory. ns not held. */
struct varve_handle *varve_handle_new(struct varve_store *s, struct varve_node *file, int flags);
struct varve_handle *varve_handle_get(struct varve_store *s, uint64_t fh); /* + ref; NULL: no such */
void varve_handle_put(struct varve_store *s, struct varve_handle *h);

/* -- file.c: FILE nodes and their parts -- */

/* Makes sure that f's part is open; *ret is referenced (varve_part_unref). -ENODATA: it has none;
 * -ESTALE: it has lost its name and nobody has it open. Takes mutate when it meets a rename; the caller
 * holds no lock but handle.lock. */
int varve_file_part(struct varve_store *s, struct varve_node *f, struct varve_part **ret);
/* The same for those who hold mutate, so that no name changes under them. */
int varve_file_part_named(struct varve_store *s, struct varve_node *f, struct varve_part **ret);
/* A part without a name for a file that was removed before it held anything, or that nobody had open
 * when it was removed. */
int varve_file_make_nameless(struct varve_store *s, struct varve_node *f);
/* Gives a FILE without part its part, as a file of its bucket, from the stream's marker; a part that an open made
 * counts from now on. mutate held. */
int varve_file_make_part(struct varve_store *s, struct varve_node *f);
/* The same for an open: the part does not count before it holds a byte, see opened.h. mutate held. */
int varve_file_open_part(struct varve_store *s, struct varve_node *f);
/* The file that a writer by current/ writes to now: f, or the newest successor; ns held. */
struct varve_node *varve_file_newest(struct varve_node *f);
/* The attributes of a FILE as they are; ns not held. */
int varve_file_stat(struct varve_store *s, struct varve_node *f, struct stat *ret);
int varve_file_truncate(struct varve_store *s, struct varve_node *f, uint64_t size);
/* The same for who came by current/: of what the name means, also when a boundary passes in this moment. */
int varve_file_truncate_newest(struct varve_store *s, struct varve_node *f, uint64_t size);
int varve_handle_fsync(struct varve_store *s, struct varve_handle *h);

/* -- names of current/, closing buckets and .staging/ (names.c, current.c) -- */

/* The DDIR of an SDIR in the current bucket, made in memory when absent; mutate or ns-only: ns held. */
int varve_sdir_ddir(struct varve_store *s, struct varve_node *sdir, struct varve_node **ret);
/* The DDIR where it is in the current bucket, or NULL; ns held. */
struct varve_node *varve_sdir_ddir_if(struct varve_store *s, struct varve_node *sdir);
/* A child of a directory of current/ by name: SDIR, FILE or STREAM; NULL; ns held. */
struct varve_node *varve_current_child(struct varve_store *s, struct varve_node *sdir,
				       const char *name);
/* The FILE of the current bucket for a stream marker, made in memory when absent; ns held.
 * -EAGAIN: varve_ino_ready has to be called first. */
int varve_stream_file(struct varve_store *s, struct varve_node *stream, struct varve_node **ret);
/* Makes the marker of a stream `name` in sdir, with mode, owner and xattrs as `like` has them; there is
 * none yet; mutate held. */
int varve_stream_make(struct varve_store *s, struct varve_node *sdir, const char *name,
		      struct varve_node *like);
/* Removes a stream's marker, on disk and in memory; mutate held. */
int varve_stream_unmake(struct varve_store *s, struct varve_node *stream);
/* A child of any live directory as those see it who look; STREAM for a stream that has no file in this
 * bucket yet; NULL; ns held. */
struct varve_node *varve_visible_child(struct varve_store *s, struct varve_node *dir,
				       const char *name);
/* Marks the path of f (a FILE of the current bucket) as a stream; mutate held. */
int varve_stream_mark(struct varve_store *s, struct varve_node *f);
/* Makes the DDIR's directory on disk in a place, parents first; mutate held. */
int varve_ddir_on_disk(struct varve_store *s, struct varve_node *ddir, unsigned place);
/* The same for a part that does not count yet, nor do the directories: see opened.h. */
int varve_ddir_for_open(struct varve_store *s, struct varve_node *ddir, unsigned place);

/* -- sealed.c -- */

/* The tablet's segment, referenced; shelf taken inside. -EIO (via -EBADMSG): it can't be read. */
int varve_sealed_segment(struct varve_store *s, struct varve_bucket *b, uint32_t tab,
			 struct varve_segment **ret);
int varve_sealed_tombs(struct varve_store *s, struct varve_bucket *b, struct varve_tombs **ret);
int varve_sealed_lookup(struct varve_store *s, struct varve_node *dir, const char *name,
			struct varve_entry *ret);
/* See varve_store_readdir. A cookie holds for all handles and for as long as the bucket stands. Of a
 * bucket that is only in part readable, that part; then -EIO. */
int varve_sealed_readdir(struct varve_store *s, struct varve_node *dir, uint64_t off, bool plus,
			 varve_readdir_cb *cb, void *ctx);
/* Whether a bucket shows nothing; false also when that can't be told. */
bool varve_sealed_is_empty(struct varve_store *s, struct varve_bucket *b);
/* Notes what the bucket's own directory is, where there is no more to it than a list can hold. */
void varve_sealed_told(struct varve_store *s, struct varve_bucket *b, const struct varve_member *m);
/* A member's attributes, without its share of the segment. */
void varve_sealed_attr(const struct varve_member *m, uint64_t ino, struct stat *ret);
int varve_sealed_stat(struct varve_store *s, struct varve_node *n, struct stat *ret);
int varve_sealed_remove(struct varve_store *s, struct varve_node *dir, const char *name, bool is_dir);
int varve_sealed_bucket_node(struct varve_store *s, struct varve_bucket *b,
			     struct varve_node **ret); /* ns held; its own directory's node, + ref */
ssize_t varve_sealed_getxattr(struct varve_store *s, struct varve_node *n, const char *name,
			      void *buf, size_t size);
ssize_t varve_sealed_listxattr(struct varve_store *s, struct varve_node *n, char *buf, size_t size);
/* Sees to it that b->tabs is read from the sealed bucket's directory: before anything that goes
 * through them. shelf taken inside. When it can't be read that is said, and the bucket is damaged. */
int varve_sealed_ready(struct varve_store *s, struct varve_bucket *b);

/* What VARVE_XATTR_BUCKET tells; UINT64_MAX: it does not. */
struct varve_bucket_facts {
	uint64_t ino, files, bytes;
	int64_t start_ns, end_ns;
};

/* -- steps of the life cycle -- */

/* To the window of now; mutate held. The cut waits for no disk but where numbers were not taken ahead; what it leaves to
 * be written the recorder writes. The step does both. */
int varve_boundary_cut(struct varve_store *s, int64_t now_ns);
int varve_boundary_step(struct varve_store *s, int64_t now_ns);
/* Takes the numbers of the next window ahead; may do I/O; ns not held. */
int varve_boundary_prepare(struct varve_store *s);
/* Shuts the gate of a closing bucket; what writers still hold gets its successor. mutate held. */
void varve_bucket_shut(struct varve_store *s, struct varve_bucket *b);
int varve_seal_bucket(struct varve_store *s, struct varve_bucket *b); /* sealer thread only */
int varve_drop_bucket(struct varve_store *s, struct varve_bucket *b, enum varve_drop_cause cause,
		      const struct varve_caller *who, int64_t cutoff_ns, struct varve_err *err);
int varve_retention_step(struct varve_store *s); /* keeper thread: applies policy now */
/* Does it, and once more when the disk was full and room could be made. */
#define VARVE_WITH_ROOM(s, call)                                                                   \
	({                                                                                         \
		int with_room_r_ = (call);                                                         \
		if (with_room_r_ == -ENOSPC && varve_make_room(s))                                 \
			with_room_r_ = (call);                                                     \
		with_room_r_;                                                                      \
	})
uint64_t varve_bucket_allocated(struct varve_bucket *b); /* on disk; ns held */
/* A bucket that was dropped by hand, out of s->dropped, with its reference; NULL; ns held. */
struct varve_bucket *varve_dropped_take(struct varve_store *s, const char *name);
/* A writer met ENOSPC: has policy make room, now. Waits until that was tried, a few seconds at most;
 * true: room was made, or may have been. False at once while the store's threads do not run. No lock but
 * handle.lock may be held. */
bool varve_make_room(struct varve_store *s);
/* Puts the parts of a bucket that stands sealed on their way out; mutate not needed. */
int varve_parts_to_trash(struct varve_store *s, const char *bucket);
void varve_retention_show(struct varve_store *s, struct varve_status *st); /* goes_by, goes_ns, volume */
int varve_reaper_step(struct varve_store *s, bool *ret_more); /* reaper thread: empties the trash */
/* Writes VARVE_XATTR_BUCKET onto a bucket's directory. */
int varve_bucket_note(int parent_fd, const char *name, const struct varve_bucket_facts *facts);
bool varve_bucket_is_empty_dir(struct varve_store *s, struct varve_bucket *b); /* for rmdir=posix */
void *varve_keeper_main(void *arg);
void *varve_recorder_main(void *arg);
void varve_recorder_wake(struct varve_store *s); /* ns held */
bool varve_recorder_is_due(struct varve_store *s, int64_t now_ns); /* there is something to write; ns held */
void *varve_sealer_main(void *arg);
void *varve_reaper_main(void *arg);
int varve_recover(struct varve_store *s, struct varve_err *err); /* at open, alone */
/* Reads open/NAME into a new bucket's tree; at open, and when a closing bucket comes back. */
int varve_recover_open(struct varve_store *s, const char *name, struct varve_bucket **ret,
		       struct varve_err *err);
/* What a bucket's directory says of itself (VARVE_XATTR_BUCKET), checked; else worked out of the
 * name. *ret_ino 0: not known. */
int varve_bucket_facts(struct varve_store *s, int parent_fd, const char *name,
		       struct varve_bucket_facts *ret);
/* Begins the window that holds now_ns, as the current bucket; mutate held or at open. */
int varve_open_window(struct varve_store *s, int64_t now_ns);
/* A bucket goes, in memory; ns held. */
void varve_bucket_forget_tree(struct varve_store *s, struct varve_bucket *b);
void varve_ballast_free(struct varve_store *s); /* gives a full disk some room */
int varve_ballast_make(struct varve_store *s);
int varve_clock_keep(struct varve_store *s); /* persists the high-water mark */
