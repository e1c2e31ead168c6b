#include "fuse/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

enum kind {
	KIND_STORE, /* ours, or nobody's: the store's policy tells */
	KIND_PASS,  /* libfuse's and the kernel's */
	KIND_DROP,  /* fstab's and mount(8)'s: says nothing to us */
	KIND_ALLOW_OTHER,
	KIND_ALLOW_ROOT,
	KIND_AUTO_UNMOUNT,
	KIND_IO_URING,
	KIND_FSNAME,
	KIND_SUBTYPE,
	KIND_MAX_READ,
	KIND_REMOUNT,
};

/* A '*' at a name's end stands for anything. Times of last access are never kept (neither by FUSE),
 * set-uid files and devices never honoured: asking for either, as mount.fuse3 does unasked, changes
 * nothing. */
static const struct {
	const char *name;
	enum kind kind;
	bool value; /* it takes one */
} known[] = {
	{"allow_other", KIND_ALLOW_OTHER, false},
	{"allow_root", KIND_ALLOW_ROOT, false},
	{"fsname", KIND_FSNAME, true},
	{"subtype", KIND_SUBTYPE, true},
	{"max_read", KIND_MAX_READ, true},
	{"remount", KIND_REMOUNT, false},
	{"auto_unmount", KIND_AUTO_UNMOUNT, false},
	{"io_uring", KIND_IO_URING, false},
	{"ro", KIND_PASS, false},
	{"noexec", KIND_PASS, false},
	{"sync", KIND_PASS, false},
	{"dirsync", KIND_PASS, false},
	{"noatime", KIND_PASS, false},
	{"context", KIND_PASS, true},
	{"fscontext", KIND_PASS, true},
	{"defcontext", KIND_PASS, true},
	{"rootcontext", KIND_PASS, true},
	{"default_permissions", KIND_DROP, false},
	{"defaults", KIND_DROP, false},
	{"rw", KIND_DROP, false},
	{"exec", KIND_DROP, false},
	{"dev", KIND_DROP, false},
	{"nodev", KIND_DROP, false},
	{"suid", KIND_DROP, false},
	{"nosuid", KIND_DROP, false},
	{"async", KIND_DROP, false},
	{"atime", KIND_DROP, false},
	{"diratime", KIND_DROP, false},
	{"nodiratime", KIND_DROP, false},
	{"relatime", KIND_DROP, false},
	{"norelatime", KIND_DROP, false},
	{"strictatime", KIND_DROP, false},
	{"nostrictatime", KIND_DROP, false},
	{"lazytime", KIND_DROP, false},
	{"nolazytime", KIND_DROP, false},
	{"iversion", KIND_DROP, false},
	{"noiversion", KIND_DROP, false},
	{"mand", KIND_DROP, false},
	{"nomand", KIND_DROP, false},
	{"silent", KIND_DROP, false},
	{"loud", KIND_DROP, false},
	{"auto", KIND_DROP, false},
	{"noauto", KIND_DROP, false},
	{"nofail", KIND_DROP, false},
	{"_netdev", KIND_DROP, false},
	{"user", KIND_DROP, false},
	{"nouser", KIND_DROP, false},
	{"users", KIND_DROP, false},
	{"nousers", KIND_DROP, false},
	{"owner", KIND_DROP, false},
	{"noowner", KIND_DROP, false},
	{"group", KIND_DROP, false},
	{"nogroup", KIND_DROP, false},
	{"user", KIND_DROP, true},
	{"comment", KIND_DROP, true},
	{"helper", KIND_DROP, true},
	{"uhelper", KIND_DROP, true},
	{"x-*", KIND_DROP, false},
	{"x-*", KIND_DROP, true},
	{"X-*", KIND_DROP, false},
	{"X-*", KIND_DROP, true},
};

static bool name_matches(const char *name, const char *pattern)
{
	size_t len = strlen(pattern);

	if (pattern[len - 1] == '*')
		return strncmp(name, pattern, len - 1) == 0;
	return strcmp(name, pattern) == 0;
}

/* -EINVAL: known, but it takes a value and has none, or the other way round. */
static int classify(const char *name, const char *value, enum kind *ret, struct varve_err *err)
{
	bool takes = false;
	bool found = false;

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (!name_matches(name, known[i].name))
			continue;
		found = true;
		takes = known[i].value;
		if (takes == (value != NULL)) {
			*ret = known[i].kind;
			return 0;
		}
	}
	if (found)
		return varve_err_set(err, -EINVAL,
				     takes ? "option '%s' needs a value: -o %s=VALUE"
					   : "option '%s' takes no value: -o %s",
				     name, name);
	*ret = KIND_STORE;
	return 0;
}

static int replace(char **to, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*to);
	*to = copy;
	return 0;
}

/* Puts one option behind a list for libfuse, in which commas and backslashes are escaped. */
static int append(char **list, const char *name, const char *value)
{
	size_t old = *list ? strlen(*list) : 0;
	size_t len = strlen(name) + (value ? strlen(value) : 0);
	char *p = realloc(*list, old + 2 * len + 3);

	if (!p)
		return -ENOMEM;
	*list = p;
	p += old;
	if (old)
		*p++ = ',';
	p = stpcpy(p, name);
	if (value)
		*p++ = '=';
	for (; value && *value; value++) {
		if (*value == ',' || *value == '\\')
			*p++ = '\\';
		*p++ = *value;
	}
	*p = '\0';
	return 0;
}

static int add_store_option(struct varve_options *o, const char *name, const char *value)
{
	size_t size = (o->n_options + 1) * sizeof(char *);
	char **names = realloc(o->names, size);
	char **values;

	if (!names)
		return -ENOMEM;
	o->names = names;
	values = realloc(o->values, size);
	if (!values)
		return -ENOMEM;
	o->values = values;
	names[o->n_options] = strdup(name);
	values[o->n_options] = value ? strdup(value) : NULL;
	if (!names[o->n_options] || (value && !values[o->n_options])) {
		free(names[o->n_options]);
		return -ENOMEM;
	}
	o->n_options++;
	return 0;
}

static int parse_max_read(const char *value, unsigned *ret, struct varve_err *err)
{
	char *end;
	unsigned long n;

	errno = 0;
	n = strtoul(value, &end, 10);
	if (errno || *end || *value < '0' || *value > '9' || n < 4096 || n > 1u << 30)
		return varve_err_set(err, -EINVAL,
				     "option max_read: '%s' is not a number of bytes from 4096 on; "
				     "for example max_read=131072",
				     value);
	*ret = (unsigned)n;
	return 0;
}

static int add_option(struct varve_options *o, const char *name, const char *value,
		      struct varve_err *err)
{
	enum kind kind = KIND_STORE;
	int r = classify(name, value, &kind, err);

	if (r < 0)
		return r;
	switch (kind) {
	case KIND_STORE:
		return add_store_option(o, name, value);
	case KIND_PASS:
		return append(&o->passed, name, value);
	case KIND_DROP:
		return 0;
	case KIND_ALLOW_OTHER:
		o->allow_other = true;
		return 0;
	case KIND_ALLOW_ROOT:
		o->allow_root = true;
		return 0;
	case KIND_AUTO_UNMOUNT:
		o->auto_unmount = true;
		return 0;
	case KIND_IO_URING:
		o->io_uring = true;
		return 0;
	case KIND_FSNAME:
		return replace(&o->fsname, value);
	case KIND_SUBTYPE:
		return replace(&o->subtype, value);
	case KIND_MAX_READ:
		return parse_max_read(value, &o->max_read, err);
	case KIND_REMOUNT:
		return varve_err_set(
			err, -EINVAL,
			"a mount of varvefs can't be changed by remount; unmount it and "
			"mount it anew");
	}
	return -EINVAL;
}

/* Takes the next option off *list into item (which is as long as the list, at least); false at the
 * end. A backslash takes the next character literally. */
static bool next_item(const char **list, char *item)
{
	const char *p = *list;

	if (!*p)
		return false;
	while (*p && *p != ',') {
		if (*p == '\\' && p[1])
			p++;
		*item++ = *p++;
	}
	*item = '\0';
	*list = *p ? p + 1 : p;
	return true;
}

static int add_list(struct varve_options *o, const char *list, struct varve_err *err)
{
	cleanup_free char *item = malloc(strlen(list) + 1);

	if (!item)
		return -ENOMEM;
	while (next_item(&list, item)) {
		char *value = strchr(item, '=');
		int r;

		if (value)
			*value++ = '\0';
		if (!*item) {
			if (value)
				return varve_err_set(err, -EINVAL, "-o: '=%s' has no name", value);
			continue; /* "a,,b" */
		}
		r = add_option(o, item, value, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int add_positional(struct varve_options *o, const char *arg, struct varve_err *err)
{
	if (!*arg)
		return varve_err_set(err, -EINVAL, "STORE and MOUNTPOINT must not be empty");
	if (!o->store)
		o->store = arg;
	else if (!o->mountpoint)
		o->mountpoint = arg;
	else
		return varve_err_set(err, -EINVAL, "'%s' is one argument too many", arg);
	return 0;
}

static int parse_long(struct varve_options *o, const char *arg, struct varve_err *err)
{
	if (strcmp(arg, "--help") == 0)
		o->help = true;
	else if (strcmp(arg, "--version") == 0)
		o->version = true;
	else if (strcmp(arg, "--foreground") == 0)
		o->foreground = true;
	else
		return varve_err_set(err, -EINVAL, "there is no option '%s'", arg);
	return 0;
}

/* A letter that stands alone. */
static int parse_letter(struct varve_options *o, char letter, bool helper, struct varve_err *err)
{
	switch (letter) {
	case 'f':
		*(helper ? &o->fake : &o->foreground) = true;
		return 0;
	case 'd':
		o->debug = true;
		o->foreground = true;
		return 0;
	case 'h':
		o->help = true;
		return 0;
	case 'V':
		o->version = true;
		return 0;
	case 'r':
		return append(&o->passed, "ro", NULL);
	case 'n': /* no mtab, verbose, sloppy, read-write: mount(8)'s */
	case 'v':
	case 's':
	case 'w':
		return 0;
	default:
		return varve_err_set(err, -EINVAL, "there is no option '-%c'", letter);
	}
}

/* "-fo LIST", "-oLIST", "-t TYPE": *i is moved on when the value is the next argument. */
static int parse_short(struct varve_options *o, int argc, char *const argv[], int *i, bool helper,
		       struct varve_err *err)
{
	for (const char *p = argv[*i] + 1; *p; p++) {
		const char *value = p + 1;
		int r;

		if (*p != 'o' && *p != 't') {
			r = parse_letter(o, *p, helper, err);
			if (r < 0)
				return r;
			continue;
		}
		if (!*value) {
			if (*i + 1 >= argc)
				return varve_err_set(err, -EINVAL, "option '-%c' needs a value",
						     *p);
			value = argv[++*i];
		}
		return *p == 'o' ? add_list(o, value, err) : 0;
	}
	return 0;
}

static bool is_mount_helper(const char *program)
{
	const char *slash = strrchr(program, '/');

	return strncmp(slash ? slash + 1 : program, "mount.", 6) == 0;
}

int varve_options_parse(int argc, char *const argv[], struct varve_options *ret,
			struct varve_err *err)
{
	bool helper = argc > 0 && is_mount_helper(argv[0]);
	bool only_paths = false;

	*ret = (struct varve_options){0};
	for (int i = 1; i < argc; i++) {
		const char *arg = argv[i];
		int r;

		if (only_paths || arg[0] != '-' || !arg[1])
			r = add_positional(ret, arg, err);
		else if (strcmp(arg, "--") == 0)
			r = !(only_paths = true);
		else if (arg[1] == '-')
			r = parse_long(ret, arg, err);
		else
			r = parse_short(ret, argc, argv, &i, helper, err);
		if (r < 0)
			return r;
	}
	if (ret->help || ret->version)
		return 0;
	if (!ret->mountpoint)
		return varve_err_set(err, -EINVAL, "%s is missing",
				     ret->store ? "MOUNTPOINT" : "STORE");
	return 0;
}

void varve_options_done(struct varve_options *o)
{
	for (unsigned i = 0; i < o->n_options; i++) {
		free(o->names[i]);
		free(o->values[i]);
	}
	free(o->names);
	free(o->values);
	free(o->fsname);
	free(o->subtype);
	free(o->passed);
	*o = (struct varve_options){0};
}

char *varve_options_fuse(const struct varve_options *o, const char *store, bool root)
{
	cleanup_free char *list = NULL;
	char max_read[16];
	int r;

	r = append(&list, "fsname", o->fsname ? o->fsname : store);
	if (r == 0)
		r = append(&list, "subtype", o->subtype ? o->subtype : "varvefs");
	if (r == 0)
		r = append(&list, "default_permissions", NULL);
	if (r == 0 && o->allow_root)
		r = append(&list, "allow_root", NULL);
	else if (r == 0 && (root || o->allow_other))
		r = append(&list, "allow_other", NULL);
	if (r == 0 && o->max_read) {
		(void)snprintf(max_read, sizeof(max_read), "%u", o->max_read);
		r = append(&list, "max_read", max_read);
	}
	if (r == 0 && o->passed) {
		/* It is escaped already. */
		char *all;

		if (asprintf(&all, "%s,%s", list, o->passed) < 0)
			return NULL;
		return all;
	}
	return r == 0 ? steal_ptr(&list) : NULL;
}

const struct varve_fuse_option_help *varve_options_fuse_help(void)
{
	static const struct varve_fuse_option_help help[] = {
		{"allow_other", "other users may see the mount (always so when root mounts)"},
		{"allow_root", "root may see the mount, other users may not"},
		{"auto_unmount", "unmount when the daemon dies"},
		{"io_uring", "take requests over io_uring, where kernel and libfuse can"},
		{"ro", "nobody can write through the mount"},
		{"noexec", "programs on the mount can't be run"},
		{"fsname=NAME", "what stands for the source in mount lists (the store's path)"},
		{NULL, NULL},
	};

	return help;
}
