#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../lib/unit.h"
#include "fuse/options.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))
#define MAX_ARGS 12

static int parse(const char *const *args, struct varve_options *o, struct varve_err *err)
{
	int n = 0;

	while (args[n])
		n++;
	return varve_options_parse(n, (char *const *)args, o, err);
}

/* What the store is told, as one text: "bucket=1h worm". */
static void store_options(const struct varve_options *o, char *buf, size_t size)
{
	buf[0] = '\0';
	for (unsigned i = 0; i < o->n_options; i++) {
		strncat(buf, i ? " " : "", size - strlen(buf) - 1);
		strncat(buf, o->names[i], size - strlen(buf) - 1);
		if (!o->values[i])
			continue;
		strncat(buf, "=", size - strlen(buf) - 1);
		strncat(buf, o->values[i], size - strlen(buf) - 1);
	}
}

#define DEFAULTS ",subtype=varvefs,default_permissions"

static const struct {
	const char *args[MAX_ARGS];
	const char *store;       /* options of the store */
	const char *root, *user; /* libfuse's */
} good[] = {
	{{"varvefs", "S", "M"}, "", "fsname=S" DEFAULTS ",allow_other", "fsname=S" DEFAULTS},
	{{"varvefs", "-o", "bucket=1h,worm", "S", "M"},
	 "bucket=1h worm",
	 "fsname=S" DEFAULTS ",allow_other",
	 "fsname=S" DEFAULTS},
	{{"varvefs", "S", "M", "-obucket=1h", "-o", "keep=30d,bucket=1m"},
	 "bucket=1h keep=30d bucket=1m",
	 "fsname=S" DEFAULTS ",allow_other",
	 "fsname=S" DEFAULTS},
	/* as mount(8), mount.fuse3 and fstab have it */
	{{"/sbin/mount.varvefs", "S", "M", "-n", "-s", "-v", "-t", "fuse.varvefs", "-o",
	  "rw,dev,suid,noauto,user=bob,_netdev,nofail,x-systemd.automount,X-mount.mkdir=0755,keep="
	  "1d"},
	 "keep=1d",
	 "fsname=S" DEFAULTS ",allow_other",
	 "fsname=S" DEFAULTS},
	{{"mount.fuse.varvefs", "S", "M", "-o",
	  "defaults,users,nouser,comment=a b,nosuid,nodev,x-y"},
	 "",
	 "fsname=S" DEFAULTS ",allow_other",
	 "fsname=S" DEFAULTS},
	{{"varvefs", "-o", "allow_other", "S", "M"},
	 "",
	 "fsname=S" DEFAULTS ",allow_other",
	 "fsname=S" DEFAULTS ",allow_other"},
	{{"varvefs", "-o", "allow_root", "S", "M"},
	 "",
	 "fsname=S" DEFAULTS ",allow_root",
	 "fsname=S" DEFAULTS ",allow_root"},
	{{"varvefs", "-r", "-o", "noatime,noexec,max_read=65536", "S", "M"},
	 "",
	 "fsname=S" DEFAULTS ",allow_other,max_read=65536,ro,noatime,noexec",
	 "fsname=S" DEFAULTS ",max_read=65536,ro,noatime,noexec"},
	{{"varvefs", "-o", "fsname=a\\,b\\\\c,subtype=x,,ro,", "S", "M"},
	 "",
	 "fsname=a\\,b\\\\c,subtype=x,default_permissions,allow_other,ro",
	 "fsname=a\\,b\\\\c,subtype=x,default_permissions,ro"},
	/* what is nobody's is for the policy to refuse */
	{{"varvefs", "-o", "buckt=1h,rx,keep=", "S", "M"},
	 "buckt=1h rx keep=",
	 "fsname=S" DEFAULTS ",allow_other",
	 "fsname=S" DEFAULTS},
	{{"varvefs", "--", "S", "M"}, "", "fsname=S" DEFAULTS ",allow_other", "fsname=S" DEFAULTS},
	{{"varvefs", "-o", "uid=web,gid=0,mode=0750", "S", "M"},
	 "uid=web gid=0 mode=0750",
	 "fsname=S" DEFAULTS ",allow_other",
	 "fsname=S" DEFAULTS},
};

START_TEST(options_good)
{
	struct varve_options o;
	struct varve_err err = {0};
	char text[256];
	char *fuse;

	ck_assert_msg(parse(good[_i].args, &o, &err) == 0, "%s", err.msg);
	ck_assert_str_eq(o.store, "S");
	ck_assert_str_eq(o.mountpoint, "M");
	ck_assert(!o.help && !o.version && !o.foreground && !o.debug && !o.fake);
	store_options(&o, text, sizeof(text));
	ck_assert_str_eq(text, good[_i].store);
	fuse = varve_options_fuse(&o, o.store, true);
	ck_assert_str_eq(fuse, good[_i].root);
	free(fuse);
	fuse = varve_options_fuse(&o, o.store, false);
	ck_assert_str_eq(fuse, good[_i].user);
	free(fuse);
	varve_options_done(&o);
}
END_TEST

/* The source's name in mount lists is the store's path, whatever is in it. */
START_TEST(options_fsname_is_escaped)
{
	const char *const args[] = {"varvefs", "S", "M", NULL};
	struct varve_options o;
	char *fuse;

	ck_assert_int_eq(parse(args, &o, NULL), 0);
	fuse = varve_options_fuse(&o, "/a,allow_other\\", false);
	ck_assert_str_eq(fuse, "fsname=/a\\,allow_other\\\\" DEFAULTS);
	free(fuse);
	varve_options_done(&o);
}
END_TEST

static const struct {
	const char *args[MAX_ARGS];
	const char *says; /* part of the message */
} bad[] = {
	{{"varvefs"}, "STORE is missing"},
	{{NULL}, "STORE is missing"},
	{{"varvefs", "-f"}, "STORE is missing"},
	{{"varvefs", "S"}, "MOUNTPOINT is missing"},
	{{"varvefs", "S", "M", "N"}, "'N'"},
	{{"varvefs", "S", "", "M"}, "empty"},
	{{"varvefs", "-x", "S", "M"}, "'-x'"},
	{{"varvefs", "-fx", "S", "M"}, "'-x'"},
	{{"varvefs", "--frobnicate", "S", "M"}, "'--frobnicate'"},
	{{"varvefs", "S", "M", "-o"}, "'-o'"},
	{{"varvefs", "-o", "=5", "S", "M"}, "'=5'"},
	{{"varvefs", "-o", "ro=1", "S", "M"}, "'ro'"},
	{{"varvefs", "-o", "fsname", "S", "M"}, "'fsname'"},
	{{"varvefs", "-o", "max_read=many", "S", "M"}, "max_read=131072"},
	{{"varvefs", "-o", "max_read=-4096", "S", "M"}, "max_read=131072"},
	{{"varvefs", "-o", "max_read=1", "S", "M"}, "max_read=131072"},
	{{"varvefs", "-o", "max_read=", "S", "M"}, "max_read=131072"},
	{{"varvefs", "-o", "remount", "S", "M"}, "remount"},
};

START_TEST(options_bad)
{
	struct varve_options o;
	struct varve_err err = {0};

	ck_assert_int_eq(parse(bad[_i].args, &o, &err), -EINVAL);
	ck_assert_msg(strstr(err.msg, bad[_i].says) != NULL, "'%s'", err.msg);
	varve_options_done(&o);
}
END_TEST

static const struct {
	const char *args[MAX_ARGS];
	bool help, version, foreground, debug, fake, auto_unmount, io_uring;
} flags[] = {
	{{"varvefs", "--help"}, .help = true},
	{{"varvefs", "-h", "S"}, .help = true},
	{{"varvefs", "--version"}, .version = true},
	{{"varvefs", "-V"}, .version = true},
	{{"varvefs", "-f", "S", "M"}, .foreground = true},
	{{"varvefs", "-d", "S", "M"}, .foreground = true, .debug = true},
	{{"varvefs", "-fdo", "ro", "S", "M"}, .foreground = true, .debug = true},
	{{"varvefs", "S", "M", "--foreground"}, .foreground = true},
	{{"varvefs", "-o", "auto_unmount", "S", "M"}, .auto_unmount = true},
	{{"varvefs", "-o", "io_uring", "S", "M"}, .io_uring = true},
	/* mount -f: the helper must not mount, and must not stay */
	{{"/usr/sbin/mount.varvefs", "S", "M", "-f"}, .fake = true},
	{{"mount.fuse.varvefs", "-sfnv", "S", "M"}, .fake = true},
};

START_TEST(options_flags)
{
	struct varve_options o;

	ck_assert_int_eq(parse(flags[_i].args, &o, NULL), 0);
	ck_assert_int_eq(o.help, flags[_i].help);
	ck_assert_int_eq(o.version, flags[_i].version);
	ck_assert_int_eq(o.foreground, flags[_i].foreground);
	ck_assert_int_eq(o.debug, flags[_i].debug);
	ck_assert_int_eq(o.fake, flags[_i].fake);
	ck_assert_int_eq(o.auto_unmount, flags[_i].auto_unmount);
	ck_assert_int_eq(o.io_uring, flags[_i].io_uring);
	varve_options_done(&o);
}
END_TEST

T_MAIN("options", 60)
{
	tcase_add_loop_test(tc, options_good, 0, (int)N(good));
	tcase_add_test(tc, options_fsname_is_escaped);
	tcase_add_loop_test(tc, options_bad, 0, (int)N(bad));
	tcase_add_loop_test(tc, options_flags, 0, (int)N(flags));
}
