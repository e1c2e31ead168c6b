#include "fuse/mountinfo.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* "\040" -> " ", in place. */
static void unescape(char *s)
{
	char *to = s;

	while (*s) {
		if (s[0] == '\\' && is_octal(s[1]) && is_octal(s[2]) && is_octal(s[3])) {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

bool varve_mountinfo_parse(char *line, struct varve_mountinfo *ret)
{
	/* ID PARENT MAJ:MIN ROOT PATH OPTIONS [TAG...] - TYPE SOURCE SUPER_OPTIONS */
	char *field[5];
	char *save = NULL;
	char *type;
	unsigned maj;
	unsigned min;
	char junk;

	for (unsigned i = 0; i < 5; i++) {
		field[i] = strtok_r(i == 0 ? line : NULL, " \n", &save);
		if (!field[i])
			return false;
	}
	do {
		type = strtok_r(NULL, " \n", &save);
		if (!type)
			return false;
	} while (strcmp(type, "-") != 0);
	type = strtok_r(NULL, " \n", &save);
	if (!type || sscanf(field[2], "%u:%u%c", &maj, &min, &junk) != 2)
		return false;
	unescape(field[4]);
	unescape(type);
	*ret = (struct varve_mountinfo){.dev = makedev(maj, min), .path = field[4], .type = type};
	return true;
}
