#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../lib/unit.h"
#include "base/json.h"
#include "base/json_parse.h"

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
	{"\xc3", 1, "\"\\udcc3\""},                                  /* cut short */
	{"\xc0\xaf", 2, "\"\\udcc0\\udcaf\""},                       /* overlong */
	{"\xe0\x80\xaf", 3, "\"\\udce0\\udc80\\udcaf\""},            /* overlong */
	{"\xed\xa0\x80", 3, "\"\\udced\\udca0\\udc80\""},            /* a surrogate */
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

/* What is written is read back, byte for byte. */
START_TEST(test_string_back)
{
	struct varve_json j = VARVE_JSON_INIT;
	struct varve_json_doc *doc;
	const struct varve_json_value *v;

	varve_json_string_n(&j, NULL, strings[_i].in, strings[_i].len);
	ck_assert_int_eq(varve_json_parse(j.text, j.len, &doc), 0);
	v = varve_json_root(doc);
	ck_assert_int_eq(v->type, VARVE_JSON_STRING);
	ck_assert_uint_eq(v->string_len, strings[_i].len);
	ck_assert_mem_eq(v->string, strings[_i].in, strings[_i].len);
	ck_assert_str_eq(v->raw, j.text);
	varve_json_free(doc);
	varve_json_done(&j);
}
END_TEST

START_TEST(test_parse)
{
	static const char text[] = " { \"a\" : -12 , \"b\":[1.5,{\"c\":null},[]] ,\"t\":true,"
				   "\"f\":false,\"s\":\"\\u00e9\\ud83d\\ude00\\/\","
				   "\"n\":\"a\\u0000\",\"big\":1e300}\n";
	struct varve_json_doc *doc;
	const struct varve_json_value *v, *b;

	ck_assert_int_eq(varve_json_parse(text, sizeof(text) - 1, &doc), 0);
	v = varve_json_root(doc);
	ck_assert_int_eq(varve_json_get_int(v, "a", 0), -12);
	ck_assert_int_eq(varve_json_get_int(v, "s", 7), 7);
	ck_assert_int_eq(varve_json_get_int(v, "nothing", 7), 7);
	ck_assert_int_eq(varve_json_get_int(v, "big", 0), INT64_MAX);
	ck_assert(varve_json_get_bool(v, "t", false));
	ck_assert(!varve_json_get_bool(v, "f", true));
	ck_assert_str_eq(varve_json_get_string(v, "s", ""), "\xc3\xa9\xf0\x9f\x98\x80/");
	ck_assert_str_eq(varve_json_get_string(v, "n", "cut"), "cut"); /* holds a NUL */
	b = varve_json_get(v, "b");
	ck_assert_int_eq(b->type, VARVE_JSON_ARRAY);
	ck_assert_uint_eq(b->raw_len, strlen("[1.5,{\"c\":null},[]]"));
	ck_assert(b->first->number > 1.4 && b->first->number < 1.6);
	ck_assert_int_eq(varve_json_get(b->first->next, "c")->type, VARVE_JSON_NULL);
	ck_assert_ptr_null(b->first->next->next->next);
	ck_assert_ptr_null(varve_json_get(NULL, "x"));
	varve_json_free(doc);
}
END_TEST

static const char *const bad[] = {
	"",
	" ",
	"{",
	"}",
	"[1,",
	"[1,]",
	"[,1]",
	"{\"a\"}",
	"{\"a\":}",
	"{a:1}",
	"{\"a\":1,}",
	"01",
	"-",
	"1.",
	"1e",
	"+1",
	".5",
	"tru",
	"nul",
	"\"",
	"\"\\",
	"\"\\x\"",
	"\"\\u12\"",
	"\"\\u12g4\"",
	"\"\\ud800\"",
	"\"\\ud800\\u0041\"",
	"\"\\udc00\"",
	"\"\n\"",
	"\"\xff\"",
	"1 2",
	"{}x",
	"{\"a\\u0000\":1}",
	"0000000000000000000000000000000000000000000000000000000000000000000000000001",
	"1111111111111111111111111111111111111111111111111111111111111111111111111111",
	"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
};

START_TEST(test_bad)
{
	struct varve_json_doc *doc;

	ck_assert_int_eq(varve_json_parse(bad[_i], strlen(bad[_i]), &doc), -EBADMSG);
}
END_TEST

/* Cut anywhere, with any byte changed: refused or read, no more. */
START_TEST(test_mangled)
{
	static const char text[] = "{\"a\":[1,-2.5e3,\"x\\n\\u00e9\\udcff\",true,null],\"b\":{}}";
	size_t n = sizeof(text) - 1;
	struct varve_json_doc *doc;

	for (size_t cut = 0; cut < n; cut++) {
		char *copy = malloc(cut + 1); /* exactly as long: a read beyond is seen */

		memcpy(copy, text, cut);
		ck_assert_int_eq(varve_json_parse(copy, cut, &doc), -EBADMSG);
		free(copy);
	}
	for (size_t at = 0; at < n; at++)
		for (int byte = 0; byte < 256; byte++) {
			char *copy = malloc(n);

			memcpy(copy, text, n);
			copy[at] = (char)byte;
			if (varve_json_parse(copy, n, &doc) == 0)
				varve_json_free(doc);
			free(copy);
		}
}
END_TEST

T_MAIN("json", 60)
{
	tcase_add_loop_test(tc, test_string, 0, (int)(sizeof(strings) / sizeof(strings[0])));
	tcase_add_loop_test(tc, test_string_back, 0, (int)(sizeof(strings) / sizeof(strings[0])));
	tcase_add_test(tc, test_parse);
	tcase_add_loop_test(tc, test_bad, 0, (int)(sizeof(bad) / sizeof(bad[0])));
	tcase_add_test(tc, test_mangled);
	tcase_add_test(tc, test_nesting);
	tcase_add_test(tc, test_lines);
	tcase_add_test(tc, test_grows);
}
