#include "cli/target.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define FS_TYPE "fuse.varvefs"

struct mount {
	char *path;   /* inside the line */
	char *type;   /* inside the line */
	char *source; /* inside the line */
};

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* The next field of a line, its escapes ("\040") undone in place; NULL at the end. */
static char *next_field(char **line)
{
	char *field = strsep(line, " \n"), *to = field;

	if (!field || !*field)
		return NULL;
	for (char *s = field; *s; to++) {
		if (s[0] == '\\' && is_octal(s[1]) && is_octal(s[2]) && is_octal(s[3])) {
			*to = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 4;
		} else {
			*to = *s++;
		}
	}
	*to = '\0';
	return field;
}

/* ID PARENT MAJ:MIN ROOT PATH OPTIONS [TAG...] - TYPE SOURCE SUPER_OPTIONS */
static bool parse_mount(char *line, struct mount *ret)
{
	const char *field = "";

	for (int i = 0; i < 4; i++)
		(void)next_field(&line);
	ret->path = next_field(&line);
	while (field && strcmp(field, "-") != 0)
		field = next_field(&line);
	ret->type = next_field(&line);
	ret->source = next_field(&line);
	return ret->path && ret->type && ret->source;
}

/* Walks the mounts of varvefs; the last that fits is the one on top. */
static char *find_mount(bool (*fits)(const struct mount *m, const void *ctx), const void *ctx,
			bool want_path)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	cleanup_free char *line = NULL;
	char *found = NULL;
	size_t size = 0;

	while (f && getline(&line, &size, f) >= 0) {
		struct mount m;

		if (!parse_mount(line, &m) || strcmp(m.type, FS_TYPE) != 0 || !fits(&m, ctx))
			continue;
		free(found);
		found = strdup(want_path ? m.path : m.source);
	}
	if (f)
		(void)fclose(f);
	return found;
}

static bool path_is(const struct mount *m, const void *path)
{
	return !strcmp(m->path, path);
}

static bool source_is(const struct mount *m, const void *store)
{
	return !strcmp(m->source, store);
}

char *varve_cli_mountpoint(const char *store)
{
	cleanup_free char *real = realpath(store, NULL);

	return find_mount(source_is, real ? real : store, true);
}

/* An absolute form of the path, worked out on its text alone: realpath(3) fails on a mount whose
 * daemon is dead. NULL: no memory or too long. */
static char *absolute(const char *path)
{
	char cwd[PATH_MAX] = "", *text = NULL, *out, *to;

	if (path[0] != '/' && !getcwd(cwd, sizeof(cwd)))
		return NULL;
	if (asprintf(&text, "%s/%s", cwd, path) < 0)
		return NULL;
	out = to = malloc(strlen(text) + 2);
	if (out) {
		char *save = NULL;

		for (char *c = strtok_r(text, "/", &save); c; c = strtok_r(NULL, "/", &save)) {
			if (!strcmp(c, "."))
				continue;
			if (!strcmp(c, "..")) {
				while (to > out && *--to != '/')
					;
				continue;
			}
			*to++ = '/';
			to = stpcpy(to, c);
		}
		if (to == out)
			*to++ = '/';
		*to = '\0';
	}
	free(text);
	return out;
}

static bool is_store(const char *path)
{
	cleanup_close int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	return fd >= 0 && fstatat(fd, "varve.conf", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       S_ISREG(st.st_mode) && fstatat(fd, "meta", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       S_ISDIR(st.st_mode);
}

/* A folder of mode 0700 that is not ours looks empty: say so, rather than that it is no store. */
static int explain(const char *given, struct varve_err *err)
{
	struct stat st;

	if (stat(given, &st) < 0)
		return varve_err_wrap(err, -errno, "open '%s'", given);
	if (access(given, X_OK) < 0 && errno == EACCES)
		return varve_err_set(err, -EACCES, "the store '%s' is for root and its owner only",
				     given);
	return varve_err_set(
		err, -ENOENT,
		"'%s' is neither a store nor a mountpoint of one; give the folder that "
		"varvefs was told, or the place where it is mounted",
		given);
}

static char *mounted_source(const char *given)
{
	cleanup_free char *lexical = absolute(given);
	char *source = lexical ? find_mount(path_is, lexical, false) : NULL;

	if (!source) {
		cleanup_free char *real = realpath(given, NULL);

		source = real ? find_mount(path_is, real, false) : NULL;
	}
	return source;
}

int varve_cli_resolve(const char *given, char **ret, struct varve_err *err)
{
	cleanup_free char *source = mounted_source(given);

	if (source) {
		if (source[0] != '/' || !is_store(source)) {
			if (source[0] == '/' && access(source, X_OK) < 0 && errno == EACCES)
				return varve_err_set(
					err, -EACCES,
					"the store '%s' is for root and its owner only", source);
			return varve_err_set(
				err, -ENOENT,
				"'%s' is mounted from '%s', which can't be reached; give "
				"the store's folder instead",
				given, source);
		}
		*ret = steal_ptr(&source);
		return 0;
	}
	if (!is_store(given))
		return explain(given, err);
	*ret = absolute(given);
	return *ret ? 0 : varve_err_set(err, -ENOMEM, "no memory");
}
