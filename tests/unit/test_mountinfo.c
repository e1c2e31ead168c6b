#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "../lib/unit.h"
#include "fuse/mountinfo.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

static const struct {
	const char *line;
	unsigned maj, min;
	const char *path, *type;
} good[] = {
	{"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n", 98, 0,
	 "/mnt2", "ext3"},
	{"88 29 0:47 / /mnt/varve rw,nosuid,nodev - fuse.varvefs /var/lib/varve rw,user_id=0\n", 0,
	 47, "/mnt/varve", "fuse.varvefs"},
	{"88 29 0:1048575 / / rw shared:7 master:2 propagate_from:2 - tmpfs x rw", 0, 1048575, "/",
	 "tmpfs"},
	{"88 29 0:47 / /a\\040b\\011c\\012d\\134e\\043 rw - fuse s rw\n", 0, 47, "/a b\tc\nd\\e#",
	 "fuse"},
	{"88 29 0:47 / /a\\04 rw - fuse s rw\n", 0, 47, "/a\\04", "fuse"},
	{"88 29 0:47 / /a\\ rw - fuse\n", 0, 47, "/a\\", "fuse"},
};

START_TEST(mountinfo_good)
{
	struct varve_mountinfo info;
	char *line = strdup(good[_i].line);

	ck_assert(varve_mountinfo_parse(line, &info));
	ck_assert_uint_eq(info.dev, makedev(good[_i].maj, good[_i].min));
	ck_assert_str_eq(info.path, good[_i].path);
	ck_assert_str_eq(info.type, good[_i].type);
	free(line);
}
END_TEST

static const char *const bad[] = {
	"",
	"\n",
	"88 29 0:47 /",
	"88 29 0:47 / /m rw shared:1 fuse s rw",
	"88 29 0:47 / /m rw -",
	"88 29 0:47x / /m rw - fuse s rw",
	"88 29 047 / /m rw - fuse s rw",
	"88 29 a:b / /m rw - fuse s rw",
};

START_TEST(mountinfo_bad)
{
	struct varve_mountinfo info;
	char *line = strdup(bad[_i]);

	ck_assert(!varve_mountinfo_parse(line, &info));
	free(line);
}
END_TEST

T_MAIN("mountinfo", 60)
{
	tcase_add_loop_test(tc, mountinfo_good, 0, (int)N(good));
	tcase_add_loop_test(tc, mountinfo_bad, 0, (int)N(bad));
}
