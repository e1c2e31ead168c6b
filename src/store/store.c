/* Making, opening and closing a store. The facade's operations are in the modules named after them. */
#include "store/core.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/xattr.h>

#include "base/log.h"
#include "store/carry.h"
#include "store/entry.h"
#include "store/known.h"
#include "store/native.h"

#define CONF_BYTES_MAX (64 * 1024)

static const char *const folders[] = {"meta",   "meta/tombs", "meta/holds", "tree",
				      "open",   "sealed",     "staging",    "trash"};

int varve_store_errno(int r)
{
	switch (r) {
	case -EBADMSG:
	case -EPROTONOSUPPORT:
		return -EIO;
	case -EOVERFLOW:
		return -ENOSPC;
	default:
		return r;
	}
}

int varve_place_for(struct varve_store *s, const char *path)
{
	(void)s;
	(void)path;
	/* One class, one tablet: partition schemas come with their own issue. */
	return 0;
}

int varve_place_add(struct varve_store *s, const char *class_name, const char *tablet)
{
	uint32_t n = s->n_places;

	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(s->places[i].class_name, class_name) &&
		    !strcmp(s->places[i].tablet, tablet))
			return (int)i;
	if (n == VARVE_PLACES_MAX)
		return -E2BIG;
	(void)snprintf(s->places[n].class_name, VARVE_CLASS_NAME_MAX, "%s", class_name);
	(void)snprintf(s->places[n].tablet, VARVE_CLASS_NAME_MAX, "%s", tablet);
	s->n_places = n + 1;
	return (int)n;
}

/* -- creating -- */

static bool is_ours(const char *name)
{
	static const char *const other[] = {".", "..", "lock", "lost+found", ".varve.conf.tmp",
					    "control.sock", "catalog.db", "audit.jsonl"};

	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
		if (!strcmp(name, folders[i]))
			return true;
	for (size_t i = 0; i < sizeof(other) / sizeof(*other); i++)
		if (!strcmp(name, other[i]))
			return true;
	return false;
}

struct creation {
	const char *path;
	struct varve_err *err;
};

static int refuse_others(void *ctx, int dir_fd, const char *name)
{
	struct creation *c = ctx;

	(void)dir_fd;
	if (is_ours(name))
		return 0;
	return varve_err_set(c->err, -ENOTEMPTY, "'%s' is no varvefs store and is not empty (it holds '%s'): name "
			     "an empty or a new folder", c->path, name);
}

/* A folder may become a store when it is empty, or when making one in it was cut short. */
static int may_create(int dirfd_, const char *path, struct varve_err *err)
{
	return varve_each_name(dirfd_, ".", refuse_others, &(struct creation){path, err});
}

/* Those two are seen in the mount, with their modes. */
static mode_t folder_mode(const char *name)
{
	return !strcmp(name, "tree") || !strcmp(name, "staging") ? 0755 : 0700;
}

static int make_folders(int dirfd_, const char *path, struct varve_err *err)
{
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
		if (mkdirat(dirfd_, folders[i], folder_mode(folders[i])) < 0 && errno != EEXIST)
			return varve_err_set(err, -errno, "'%s/%s' can't be made: %s", path, folders[i],
					     strerror(errno));
	return 0;
}

/* What everything later relies on is tried once, where the answer can still be acted on. */
static int try_backing(int dirfd_, const char *path, struct varve_err *err)
{
	cleanup_close int fd = openat(dirfd_, "meta", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		return varve_err_set(err, -errno, "the filesystem of '%s' can't hold a store: it makes no "
				     "unnamed files (O_TMPFILE: %s); use ext4, xfs, btrfs or tmpfs", path,
				     strerror(errno));
	if (fsetxattr(fd, VARVE_XATTR_TYPE, "l", 1, 0) < 0)
		return varve_err_set(err, -errno, "the filesystem of '%s' can't hold a store: it keeps no "
				     "user extended attributes (%s); use ext4, xfs, btrfs or a newer tmpfs",
				     path, strerror(errno));
	return 0;
}

static int write_conf(struct varve_store *s, struct varve_err *err)
{
	cleanup_free char *text = varve_policy_conf_text(&s->policy);
	int r = text ? varve_publish_file(s->dirfd, "varve.conf", text, strlen(text), 0600) : -ENOMEM;

	return r < 0 ? varve_err_set(err, r, "'%s/varve.conf' can't be written: %s", s->path,
				     strerror(-r))
		     : 0;
}

/* -- opening -- */

static int read_policy(struct varve_store *s, const struct varve_store_params *p, bool *ret_new,
		       struct varve_err *err)
{
	cleanup_free char *text = NULL;
	size_t len;
	int r;

	varve_policy_init(&s->policy);
	r = varve_read_file(s->dirfd, "varve.conf", CONF_BYTES_MAX, &text, &len);
	*ret_new = r == -ENOENT;
	if (r == 0)
		r = varve_policy_parse_conf(&s->policy, text, len, err);
	else if (*ret_new)
		r = 0;
	if (r < 0)
		return varve_err_wrap(err, r, "'%s/varve.conf'", s->path);
	for (unsigned i = 0; i < p->n_options; i++) {
		r = varve_policy_set(&s->policy, p->option_names[i], p->option_values[i], err);
		if (r < 0)
			return r;
	}
	return varve_policy_check(&s->policy, err);
}

static int take_lock(struct varve_store *s, struct varve_err *err)
{
	char text[32];
	ssize_t n;

	s->lock_fd = varve_openat(s->dirfd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
	if (s->lock_fd < 0)
		return varve_err_set(err, s->lock_fd, "'%s/lock' can't be opened: %s", s->path,
				     strerror(-s->lock_fd));
	if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		int e = errno;

		n = pread(s->lock_fd, text, sizeof(text) - 1, 0);
		text[n > 0 ? strcspn((text[n] = '\0', text), "\n") : 0] = '\0';
		if (e != EWOULDBLOCK)
			return varve_err_set(err, -e, "'%s/lock' can't be locked: %s", s->path,
					     strerror(e));
		return varve_err_set(err, -EBUSY, "store '%s' is in use by the process with pid %s: "
				     "unmount that first", s->path, n > 0 ? text : "(unknown)");
	}
	return 0;
}

/* The daemon's own pid is known only after its last fork. */
static void note_pid(struct varve_store *s)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%d\n", (int)getpid());

	/* Only the message to a second daemon suffers when this can't be written. */
	if (ftruncate(s->lock_fd, 0) == 0)
		(void)!varve_pwrite_full(s->lock_fd, text, (size_t)len, 0);
}

static int open_folders(struct varve_store *s, struct varve_err *err)
{
	struct {
		const char *name;
		int *fd;
	} list[] = {{"meta", &s->meta_fd},     {"meta/tombs", &s->tombs_fd},
		    {"meta/holds", &s->holds_fd}, {"tree", &s->tree_fd},
		    {"open", &s->open_fd},     {"sealed", &s->sealed_fd},
		    {"staging", &s->staging_fd}, {"trash", &s->trash_fd}};

	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++) {
		*list[i].fd = varve_openat(s->dirfd, list[i].name, O_RDONLY | O_DIRECTORY, 0);
		if (*list[i].fd < 0)
			return varve_err_set(err, *list[i].fd, "'%s/%s' can't be opened: %s", s->path,
					     list[i].name, strerror(-*list[i].fd));
	}
	return 0;
}

/* The fixed nodes; current/ and .staging/ have the attributes of their folders. */
static int make_roots(struct varve_store *s)
{
	s->root = varve_node_new(s, VARVE_KIND_ROOT, VARVE_ID_ROOT);
	s->current_dir = varve_node_new(s, VARVE_KIND_SDIR, VARVE_ID_CURRENT);
	s->staging_dir = varve_node_new(s, VARVE_KIND_XDIR, VARVE_ID_STAGING);
	s->open_link = varve_node_new(s, VARVE_KIND_OPEN_LINK, VARVE_ID_OPEN_LINK);
	if (!s->root || !s->current_dir || !s->staging_dir || !s->open_link)
		return -ENOMEM;
	if (fstat(s->dirfd, &s->root->attr) < 0 || fstat(s->tree_fd, &s->current_dir->attr) < 0 ||
	    fstat(s->staging_fd, &s->staging_dir->attr) < 0)
		return -errno;
	s->root->attr.st_mode = S_IFDIR | 0755;
	s->open_link->attr = s->root->attr;
	s->open_link->attr.st_mode = S_IFLNK | 0777;
	s->open_link->attr.st_size = 7;
	s->root->attr.st_ino = VARVE_ID_ROOT;
	s->current_dir->attr.st_ino = VARVE_ID_CURRENT;
	s->staging_dir->attr.st_ino = VARVE_ID_STAGING;
	s->open_link->attr.st_ino = VARVE_ID_OPEN_LINK;
	s->root->attr.st_nlink = s->current_dir->attr.st_nlink = 1;
	s->staging_dir->attr.st_nlink = s->open_link->attr.st_nlink = 1;
	s->root->linked = s->current_dir->linked = s->staging_dir->linked = true;
	return 0;
}

/* Options uid, gid and mode are for current/ and .staging/. */
static int set_roots(struct varve_store *s, bool fresh, struct varve_err *err)
{
	const struct varve_policy *p = &s->policy;
	int fds[] = {s->tree_fd, s->staging_fd};

	for (int i = 0; i < 2; i++) {
		mode_t mode = p->mode == (mode_t)-1 ? 0755 : p->mode;

		if ((p->uid != (uid_t)-1 || p->gid != (gid_t)-1) && fchown(fds[i], p->uid, p->gid) < 0)
			return varve_err_set(err, -errno, "options 'uid' and 'gid': the owner of current/ "
					     "can't be set: %s", strerror(errno));
		if ((fresh || p->mode != (mode_t)-1) && fchmod(fds[i], mode & 07777) < 0)
			return varve_err_set(err, -errno, "option 'mode': the mode of current/ can't be "
					     "set: %s", strerror(errno));
	}
	return 0;
}

static void init_locks(struct varve_store *s)
{
	pthread_condattr_t monotonic;

	(void)pthread_mutex_init(&s->mutate, NULL);
	(void)pthread_mutex_init(&s->trash, NULL);
	varve_mutex_init_brief(&s->ns);
	(void)pthread_mutex_init(&s->inos, NULL);
	(void)pthread_mutex_init(&s->ranges, NULL);
	varve_ranges_init(&s->kept);
	(void)pthread_condattr_init(&monotonic);
	(void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&s->wake_keeper, &monotonic);
	(void)pthread_cond_init(&s->wake_sealer, &monotonic);
	(void)pthread_cond_init(&s->wake_recorder, &monotonic);
	(void)pthread_cond_init(&s->wake_reaper, &monotonic);
	(void)pthread_cond_init(&s->sealed_one, &monotonic);
	(void)pthread_cond_init(&s->made_room, &monotonic);
	(void)pthread_condattr_destroy(&monotonic);
}

#define FOLDERS_DEEP_MAX 4096

static bool is_store(int dirfd_)
{
	struct stat conf, sealed;

	return fstatat(dirfd_, "varve.conf", &conf, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(conf.st_mode) &&
	       fstatat(dirfd_, "sealed", &sealed, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(sealed.st_mode);
}

/* A store in another one's folder would be sealed, dropped and counted with what it lies in. What can't be
 * walked is no store that one can have. */
static int check_around(struct varve_store *s, struct varve_err *err)
{
	cleanup_close int fd = openat(s->dirfd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char link[64], path[PATH_MAX];
	struct stat st, last;

	if (fstat(s->dirfd, &last) < 0)
		return -errno;
	for (int i = 0; fd >= 0 && i < FOLDERS_DEEP_MAX; i++) {
		ssize_t len;
		int up;

		if (fstat(fd, &st) < 0 || (st.st_dev == last.st_dev && st.st_ino == last.st_ino))
			break;
		if (is_store(fd)) {
			(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
			len = readlink(link, path, sizeof(path) - 1);
			path[len < 0 ? 0 : len] = '\0';
			return varve_err_set(err, -EINVAL, "'%s' lies inside the store '%s': name a folder "
					     "outside of it", s->path, path);
		}
		last = st;
		up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		(void)close(fd);
		fd = up;
	}
	return 0;
}

static int open_dir(struct varve_store *s, struct varve_err *err)
{
	bool made = mkdir(s->path, 0700) == 0;
	int r;

	if (!made && errno != EEXIST)
		return varve_err_set(err, -errno, "store '%s' can't be made: %s", s->path,
				     strerror(errno));
	s->dirfd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->dirfd < 0)
		return varve_err_set(err, -errno, "store '%s' can't be opened: %s", s->path,
				     strerror(errno));
	r = check_around(s, err);
	if (r < 0 && made)
		(void)rmdir(s->path);
	return r;
}

static int open_steps(struct varve_store *s, const struct varve_store_params *p,
		      struct varve_err *err)
{
	bool fresh;
	int r = open_dir(s, err);

	if (r == 0)
		r = read_policy(s, p, &fresh, err);
	if (r == 0 && fresh)
		r = may_create(s->dirfd, s->path, err);
	if (r == 0)
		r = take_lock(s, err);
	if (r == 0 && fresh && fchmod(s->dirfd, 0700) < 0)
		r = varve_err_set(err, -errno, "the mode of '%s' can't be set: %s", s->path,
				  strerror(errno));
	if (r == 0)
		r = make_folders(s->dirfd, s->path, err);
	if (r == 0)
		r = open_folders(s, err);
	if (r == 0 && fresh)
		r = try_backing(s->dirfd, s->path, err);
	if (r == 0)
		r = set_roots(s, fresh, err);
	if (r == 0 && fresh)
		r = write_conf(s, err);
	if (r == 0)
		r = varve_cache_new(s->policy.cache_bytes, 0, &s->cache);
	if (r == 0)
		r = varve_audit_open(s->dirfd, "audit.jsonl", &s->audit, err);
	if (r == 0)
		r = make_roots(s);
	if (r == 0 && varve_place_add(s, "default", "0") < 0)
		r = -ENOMEM;
	if (r == 0)
		r = varve_recover(s, err);
	if (r == 0)
		(void)varve_ballast_make(s);
	return r;
}

int varve_store_open(const struct varve_store_params *p, struct varve_store **ret,
		     struct varve_err *err)
{
	struct varve_store *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->path = strdup(p->path);
	s->clock = p->clock;
	s->events = p->events;
	s->uid = geteuid();
	s->dirfd = s->lock_fd = s->meta_fd = s->tree_fd = s->open_fd = s->sealed_fd = -1;
	s->staging_fd = s->trash_fd = s->tombs_fd = s->holds_fd = -1;
	init_locks(s);
	r = s->path ? open_steps(s, p, err) : -ENOMEM;
	if (r < 0) {
		if (err && !err->msg[0])
			(void)varve_err_set(err, r, "store '%s' can't be opened: %s", p->path,
					    strerror(-r));
		varve_store_close(s);
		return r;
	}
	*ret = s;
	return 0;
}

void varve_store_set_events(struct varve_store *s, const struct varve_store_events *events)
{
	s->events = *events;
}

static int start_thread(pthread_t *t, void *(*main)(void *), struct varve_store *s, const char *name)
{
	int r = pthread_create(t, NULL, main, s);

	if (r == 0)
		(void)pthread_setname_np(*t, name);
	return -r;
}

int varve_store_start(struct varve_store *s, struct varve_err *err)
{
	sigset_t all, old;
	int r;

	note_pid(s);
	s->record = true; /* the next window's numbers are there from the start */
	/* Signals are for the thread that waits for them. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = start_thread(&s->keeper, varve_keeper_main, s, "varve-keeper");
	if (r == 0)
		r = start_thread(&s->recorder, varve_recorder_main, s, "varve-recorder");
	if (r == 0)
		r = start_thread(&s->sealer, varve_sealer_main, s, "varve-sealer");
	if (r == 0)
		r = start_thread(&s->reaper, varve_reaper_main, s, "varve-reaper");
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r < 0)
		return varve_err_set(err, r, "threads can't be started: %s", strerror(-r));
	guard(&s->ns);
	s->threads_run = true;
	return 0;
}

static void stop_threads(struct varve_store *s)
{
	{
		guard(&s->ns);
		s->stopping = true;
		atomic_store(&s->cancel_seal, 1);
		(void)pthread_cond_broadcast(&s->wake_keeper);
		(void)pthread_cond_broadcast(&s->wake_sealer);
		(void)pthread_cond_broadcast(&s->wake_recorder);
		(void)pthread_cond_broadcast(&s->wake_reaper);
		(void)pthread_cond_broadcast(&s->sealed_one);
		(void)pthread_cond_broadcast(&s->made_room);
	}
	if (!s->threads_run)
		return;
	(void)pthread_join(s->keeper, NULL);
	(void)pthread_join(s->recorder, NULL);
	(void)pthread_join(s->sealer, NULL);
	(void)pthread_join(s->reaper, NULL);
	s->threads_run = false;
}

static void close_buckets(struct varve_store *s)
{
	guard(&s->ns);
	while (s->n_buckets) {
		struct varve_bucket *b = varve_bucket_ref(s->buckets[s->n_buckets - 1]);

		varve_bucket_forget_tree(s, b);
		varve_bucket_unlist(s, b);
		varve_bucket_unref(s, b);
	}
	while (s->n_dropped) {
		struct varve_bucket *b = s->dropped[--s->n_dropped];

		varve_bucket_forget_tree(s, b);
		varve_bucket_unref(s, b);
	}
	if (s->current_dir) {
		s->current_dir->refs++;
		while (s->current_dir->n_children)
			for (uint32_t i = 0; i < s->current_dir->n_chains; i++)
				if (s->current_dir->chains[i])
					varve_tree_drop(s, s->current_dir->chains[i]);
		while (s->staging_dir && s->staging_dir->n_children)
			for (uint32_t i = 0; i < s->staging_dir->n_chains; i++)
				if (s->staging_dir->chains[i])
					varve_tree_drop(s, s->staging_dir->chains[i]);
	}
}

/* What the kernel had looked up and never forgot, and handles that were never released. */
static void free_nodes(struct varve_store *s)
{
	for (uint32_t i = 0; i < s->n_handles; i++)
		if (s->handles[i])
			varve_store_release(s, s->handles[i]->fh);
	close_buckets(s);
	varve_carry_end(s);
	varve_node_prepare(s, 0);
	guard(&s->ns);
	/* All go, in whatever order the table has them: what points from one to another is cut first. */
	for (uint32_t i = 0; i < s->n_id_chains; i++)
		for (struct varve_node *n = s->id_chains[i]; n; n = n->id_next)
		{
			n->succ = n->sdir = n->ddir = n->parent = NULL;
			if (n->native)
				n->native->after = NULL;
		}
	for (uint32_t i = 0; i < s->n_id_chains; i++)
		while (s->id_chains[i]) {
			struct varve_node *n = s->id_chains[i];

			n->refs = 1;
			varve_node_unref(s, n);
		}
	free(s->id_chains);
}

void varve_store_close(struct varve_store *s)
{
	int fds[] = {s->meta_fd,    s->tombs_fd, s->holds_fd, s->tree_fd, s->open_fd,
		     s->sealed_fd,  s->staging_fd, s->trash_fd, s->dirfd, s->lock_fd};

	stop_threads(s);
	if (s->clock_slots && s->current) {
		(void)varve_clock_keep(s);
		(void)varve_carry_finish(s, false);
		varve_known_keep(s);
	}
	varve_native_cool_old(s, true);
	free_nodes(s);
	varve_native_close(s);
	/* Everything that was written is on disk when the mount is gone. */
	if (s->dirfd >= 0 && s->current)
		(void)syncfs(s->dirfd);
	varve_cache_free(s->cache);
	varve_audit_close(s->audit);
	varve_slots_close(s->ino_slots);
	varve_slots_close(s->clock_slots);
	varve_slots_close(s->range_slots);
	varve_ranges_done(&s->kept);
	for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
		if (fds[i] >= 0)
			(void)close(fds[i]);
	free(s->handles);
	free(s->free_handles);
	free(s->buckets);
	free(s->dropped);
	free(s->path);
	free(s);
}

int varve_store_dirfd(const struct varve_store *s)
{
	return s->dirfd;
}

const struct varve_policy *varve_store_policy(const struct varve_store *s)
{
	return &s->policy;
}
