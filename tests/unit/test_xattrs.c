/* Extended attributes as they are kept: what of them, in which order, and how they are answered. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "../lib/unit.h"
#include "base/sys.h"
#include "format/segment.h"
#include "store/xattrs.h"

static char path[64];
static int fd;

/* tmpfs has had user.* only since Linux 6.6. */
static void set_up(void)
{
	(void)strcpy(path, "/var/tmp/varve-xattrs-XXXXXX");
	fd = mkostemp(path, O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
}

static void tear_down(void)
{
	(void)close(fd);
	(void)unlink(path);
}

static void set(const char *name, const char *value)
{
	ck_assert_msg(fsetxattr(fd, name, value, strlen(value), 0) == 0, "%s: %s", name,
		      strerror(errno));
}

/* "name=value name=value", in the order in which they are packed. */
static void expect_packed(const unsigned char *p, size_t len, const char *want)
{
	char got[1024] = "";
	struct varve_xattr x;
	uint32_t at = 0;
	size_t n = 0;
	int r;

	while ((r = varve_xattr_next(p, (uint32_t)len, &at, &x)) > 0)
		n += (size_t)snprintf(got + n, sizeof(got) - n, "%s%.*s=%.*s", n ? " " : "",
				      (int)x.name_len, x.name, (int)x.value_len, x.value);
	ck_assert_int_eq(r, 0);
	ck_assert_str_eq(got, want);
}

START_TEST(test_none)
{
	unsigned char *p = (unsigned char *)path;
	size_t len = 7;

	ck_assert_int_eq(varve_xattrs_pack(fd, &p, &len), 0);
	ck_assert_ptr_null(p);
	ck_assert_uint_eq(len, 0);
	/* And where there are none but the store's own. */
	set("user.varve.ino", "1024");
	ck_assert_int_eq(varve_xattrs_pack(fd, &p, &len), 0);
	ck_assert_ptr_null(p);
	ck_assert_uint_eq(len, 0);
	ck_assert_int_eq(varve_xattrs_get(p, len, "user.a", NULL, 0), -ENODATA);
	ck_assert_int_eq(varve_xattrs_list(p, len, NULL, 0), 0);
}
END_TEST

START_TEST(test_sorted_without_own)
{
	unsigned char *p;
	size_t len;

	set("user.zeta", "last");
	set("user.varve.ino", "1024");
	set("user.alpha", "first");
	set("user.varve", "not the store's");
	set("user.varve.mode", "644");
	set("user.empty", "");
	ck_assert_int_eq(varve_xattrs_pack(fd, &p, &len), 0);
	expect_packed(p, len, "user.alpha=first user.empty= user.varve=not the store's user.zeta=last");
	free(p);
}
END_TEST

/* POSIX ACLs are kept as they are; other namespaces are not the file's content. */
START_TEST(test_namespaces)
{
	static const unsigned char acl[] = {2, 0, 0, 0, 1,  0, 6, 0, 0xff, 0xff, 0xff, 0xff,
					    2, 0, 4, 0, 3,  0, 0, 0, 4,	   0,	 4,    0,
					    0xff, 0xff, 0xff, 0xff, 0x10, 0, 4, 0, 0xff, 0xff, 0xff, 0xff,
					    0x20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff};
	unsigned char *p;
	char buf[100];
	size_t len;

	set("user.a", "1");
	ck_assert_msg(fsetxattr(fd, "system.posix_acl_access", acl, sizeof(acl), 0) == 0, "%s",
		      strerror(errno));
	if (geteuid() == 0)
		(void)fsetxattr(fd, "trusted.t", "x", 1, 0);
	ck_assert_int_eq(varve_xattrs_pack(fd, &p, &len), 0);
	ck_assert_int_eq(varve_xattrs_list(p, len, buf, sizeof(buf)), 24 + 7);
	ck_assert_mem_eq(buf, "system.posix_acl_access\0user.a", 24 + 7);
	ck_assert_int_eq(varve_xattrs_get(p, len, "system.posix_acl_access", buf, sizeof(buf)),
			 (ssize_t)sizeof(acl));
	ck_assert_mem_eq(buf, acl, sizeof(acl));
	free(p);
}
END_TEST

START_TEST(test_get)
{
	unsigned char *p;
	char buf[16];
	size_t len;

	set("user.note", "twelve bytes");
	set("user.empty", "");
	ck_assert_int_eq(varve_xattrs_pack(fd, &p, &len), 0);
	ck_assert_int_eq(varve_xattrs_get(p, len, "user.note", NULL, 0), 12);
	ck_assert_int_eq(varve_xattrs_get(p, len, "user.note", buf, 11), -ERANGE);
	ck_assert_int_eq(varve_xattrs_get(p, len, "user.note", buf, 12), 12);
	ck_assert_mem_eq(buf, "twelve bytes", 12);
	ck_assert_int_eq(varve_xattrs_get(p, len, "user.note", buf, sizeof(buf)), 12);
	ck_assert_int_eq(varve_xattrs_get(p, len, "user.empty", buf, sizeof(buf)), 0);
	ck_assert_int_eq(varve_xattrs_get(p, len, "user.not", buf, sizeof(buf)), -ENODATA);
	ck_assert_int_eq(varve_xattrs_get(p, len, "user.note2", buf, sizeof(buf)), -ENODATA);
	ck_assert_int_eq(varve_xattrs_get(p, len, "", buf, sizeof(buf)), -ENODATA);
	free(p);
}
END_TEST

START_TEST(test_list)
{
	unsigned char *p;
	char buf[32];
	size_t len;

	set("user.b", "2");
	set("user.a", "1");
	ck_assert_int_eq(varve_xattrs_pack(fd, &p, &len), 0);
	ck_assert_int_eq(varve_xattrs_list(p, len, NULL, 0), 14);
	ck_assert_int_eq(varve_xattrs_list(p, len, buf, 13), -ERANGE);
	ck_assert_int_eq(varve_xattrs_list(p, len, buf, 14), 14);
	ck_assert_mem_eq(buf, "user.a\0user.b", 14);
	free(p);
}
END_TEST

/* More than the list's first, small buffer takes. The value comes back byte by byte, NULs too. */
START_TEST(test_many_and_large)
{
	char value[1000], name[64], buf[1000], want_first[64];
	unsigned char *p;
	size_t len, n = 0;
	struct varve_xattr x;
	uint32_t at = 0;

	for (size_t i = 0; i < sizeof(value); i++)
		value[i] = (char)(i * 7);
	ck_assert_int_eq(fsetxattr(fd, "user.binary", value, sizeof(value), 0), 0);
	for (int i = 40; i-- > 0;) {
		(void)snprintf(name, sizeof(name), "user.attribute-with-a-long-name-%02d", i);
		set(name, "v");
	}
	(void)snprintf(want_first, sizeof(want_first), "user.attribute-with-a-long-name-00");
	ck_assert_int_eq(varve_xattrs_pack(fd, &p, &len), 0);
	while (varve_xattr_next(p, (uint32_t)len, &at, &x) > 0) {
		if (n++ == 0)
			ck_assert_mem_eq(x.name, want_first, strlen(want_first));
	}
	ck_assert_uint_eq(n, 41);
	ck_assert_int_eq(varve_xattrs_get(p, len, "user.binary", buf, sizeof(buf)), 1000);
	ck_assert_mem_eq(buf, value, sizeof(value));
	free(p);
}
END_TEST

/* Bytes that are no packed attributes end what is answered. */
START_TEST(test_damaged)
{
	unsigned char *p, copy[64];
	char buf[64];
	size_t len;

	set("user.a", "one");
	set("user.b", "two");
	ck_assert_int_eq(varve_xattrs_pack(fd, &p, &len), 0);
	ck_assert_uint_lt(len, sizeof(copy));
	for (size_t cut = 0; cut < len; cut++) {
		unsigned char *exact = malloc(cut ? cut : 1);

		memcpy(exact, p, cut);
		ck_assert_int_le(varve_xattrs_list(exact, cut, buf, sizeof(buf)), 7);
		ck_assert_int_eq(varve_xattrs_get(exact, cut, "user.b", buf, sizeof(buf)), -ENODATA);
		free(exact);
	}
	for (size_t at = 0; at < len; at++)
		for (unsigned bit = 0; bit < 8; bit++) {
			memcpy(copy, p, len);
			copy[at] ^= (unsigned char)(1u << bit);
			(void)varve_xattrs_list(copy, len, buf, sizeof(buf));
			(void)varve_xattrs_get(copy, len, "user.b", buf, sizeof(buf));
		}
	free(p);
	ck_assert_int_lt(varve_xattrs_pack(-1, &p, &len), 0);
}
END_TEST

T_MAIN("xattrs", 60)
{
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_none);
	tcase_add_test(tc, test_sorted_without_own);
	tcase_add_test(tc, test_namespaces);
	tcase_add_test(tc, test_get);
	tcase_add_test(tc, test_list);
	tcase_add_test(tc, test_many_and_large);
	tcase_add_test(tc, test_damaged);
}
