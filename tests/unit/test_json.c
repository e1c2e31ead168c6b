#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static const struct {
	const char *in;
	size_t len;
	const char *out;
} strings[] = {
	{"", 0, "\"\""},
	{"plain", 5, "\"plain\""},
	{"a\"b\\c", 5, "\"a\\\"b\\\\c\""},
	{"\n\t\r\x01\x7f", 5, "\"\\n\\t\\u000d\\u0001\\u007f\""},
	{"a\0b", 3, "\"a\\u0000b\""},
	{"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
	{"\xff", 1, "\"\\udcff\""},
	{"\xc3", 1, "\"\\udcc3\""},			  /* cut short */
	{"\xc0\xaf", 2, "\"\\udcc0\\udcaf\""},		  /* overlong */
	{"\xe0\x80\xaf", 3, "\"\\udce0\\udc80\\udcaf\""}, /* overlong */
	{"\xed\xa0\x80", 3, "\"\\udced\\udca0\\udc80\""}, /* a surrogate */
	{"\xf4\x90\x80\x80", 4, "\"\\udcf4\\udc90\\udc80\\udc80\""}, /* beyond U+10FFFF */
	{"\xe2\x82x", 3, "\"\\udce2\\udc82x\""},
};

START_TEST(test_string)
{
	struct varve_json j = VARVE_JSON_INIT;

	varve_json_string_n(&j, NULL, strings[_i].in, strings[_i].len);
	ck_assert(!j.failed);
	ck_assert_str_eq(j.text, strings[_i].out);
	ck_assert_uint_eq(j.len, strlen(strings[_i].out));
	varve_json_done(&j);
}
END_TEST

START_TEST(test_nesting)
{
	struct varve_json j = VARVE_JSON_INIT;

	varve_json_open(&j, NULL, '{');
	varve_json_int(&j, "a", INT64_MIN);
	varve_json_open(&j, "b", '[');
	varve_json_int(&j, NULL, 1);
	varve_json_open(&j, NULL, '{');
	varve_json_close(&j, '}');
	varve_json_bool(&j, NULL, true);
	varve_json_close(&j, ']');
	varve_json_open(&j, "c", '[');
	varve_json_close(&j, ']');
	varve_json_double(&j, "d", 0.5);
	varve_json_double(&j, "e", NAN);
	varve_json_bool(&j, "f\"", false);
	varve_json_close(&j, '}');
	ck_assert(!j.failed);
	ck_assert_str_eq(j.text, "{\"a\":-9223372036854775808,\"b\":[1,{},true],\"c\":[],"
				 "\"d\":0.5,\"e\":null,\"f\\\"\":false}");
	varve_json_done(&j);
	ck_assert_ptr_null(j.text);
}
END_TEST

START_TEST(test_lines)
{
	struct varve_json j = VARVE_JSON_INIT;

	for (int i = 0; i < 2; i++) {
		varve_json_open(&j, NULL, '{');
		varve_json_int(&j, "i", i);
		varve_json_close(&j, '}');
		varve_json_raw(&j, "\n");
	}
	ck_assert_str_eq(j.text, "{\"i\":0}\n{\"i\":1}\n");
	varve_json_done(&j);
}
END_TEST

START_TEST(test_grows)
{
	struct varve_json j = VARVE_JSON_INIT;

	for (int i = 0; i < 5000; i++)
		varve_json_string(&j, NULL, "0123456789");
	ck_assert(!j.failed);
	ck_assert_uint_eq(j.len, 5000 * 13 - 1);
	ck_assert_uint_eq(strlen(j.text), j.len);
	varve_json_done(&j);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("json");
	TCase *tc = tcase_create("write");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_loop_test(tc, test_string, 0, (int)(sizeof(strings) / sizeof(strings[0])));
	tcase_add_test(tc, test_nesting);
	tcase_add_test(tc, test_lines);
	tcase_add_test(tc, test_grows);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
