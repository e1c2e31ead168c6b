/* One line of /proc/self/mountinfo. Pure. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct varve_mountinfo {
	dev_t dev;
	char *path; /* where it is mounted; inside the line */
	char *type; /* "ext4", "fuse.varvefs"; inside the line */
};

/* Takes the line apart, in place: escapes (\040) are undone. false: it is not such a line. */
bool varve_mountinfo_parse(char *line, struct varve_mountinfo *ret);
