#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void varve_json_done(struct varve_json *j)
{
	free(j->text);
	*j = (struct varve_json)VARVE_JSON_INIT;
}

static void put(struct varve_json *j, const char *bytes, size_t n)
{
	if (j->failed)
		return;
	if (n >= j->size - j->len) {
		size_t size = j->size ? j->size : 256;
		char *text;

		while (size <= j->len + n)
			size *= 2;
		text = realloc(j->text, size);
		if (!text) {
			j->failed = true;
			return;
		}
		j->text = text;
		j->size = size;
	}
	memcpy(j->text + j->len, bytes, n);
	j->len += n;
	j->text[j->len] = '\0';
}

static void put_text(struct varve_json *j, const char *text)
{
	put(j, text, strlen(text));
}

size_t varve_utf8_length(const char *s, size_t len)
{
	const unsigned char *p = (const unsigned char *)s;
	unsigned char low = 0x80, high = 0xbf;
	size_t n;

	if (!len)
		return 0;
	if (p[0] < 0x80)
		return 1;
	if (p[0] >= 0xc2 && p[0] <= 0xdf)
		n = 2;
	else if (p[0] >= 0xe0 && p[0] <= 0xef)
		n = 3;
	else if (p[0] >= 0xf0 && p[0] <= 0xf4)
		n = 4;
	else
		return 0;
	/* The second byte's range shuts out overlong forms, surrogates and what is beyond U+10FFFF.
	 */
	if (p[0] == 0xe0)
		low = 0xa0;
	else if (p[0] == 0xed)
		high = 0x9f;
	else if (p[0] == 0xf0)
		low = 0x90;
	else if (p[0] == 0xf4)
		high = 0x8f;
	if (len < n || p[1] < low || p[1] > high)
		return 0;
	for (size_t i = 2; i < n; i++)
		if (p[i] < 0x80 || p[i] > 0xbf)
			return 0;
	return n;
}

static void put_quoted(struct varve_json *j, const char *s, size_t len)
{
	put_text(j, "\"");
	while (len) {
		unsigned char c = (unsigned char)*s;
		size_t n = varve_utf8_length(s, len);
		char esc[8];

		if (n == 0) {
			(void)snprintf(esc, sizeof(esc), "\\udc%02x", c);
			put_text(j, esc);
			n = 1;
		} else if (c == '"' || c == '\\') {
			(void)snprintf(esc, sizeof(esc), "\\%c", c);
			put_text(j, esc);
		} else if (c == '\n') {
			put_text(j, "\\n");
		} else if (c == '\t') {
			put_text(j, "\\t");
		} else if (c < 0x20 || c == 0x7f) {
			(void)snprintf(esc, sizeof(esc), "\\u%04x", c);
			put_text(j, esc);
		} else {
			put(j, s, n);
		}
		s += n;
		len -= n;
	}
	put_text(j, "\"");
}

/* What stands before every value: the comma that the one before it left due, and the key. */
static void begin(struct varve_json *j, const char *key)
{
	if (j->comma)
		put_text(j, ",");
	if (key) {
		put_quoted(j, key, strlen(key));
		put_text(j, ":");
	}
	j->comma = true;
}

void varve_json_open(struct varve_json *j, const char *key, char bracket)
{
	begin(j, key);
	put(j, &bracket, 1);
	j->comma = false;
}

void varve_json_close(struct varve_json *j, char bracket)
{
	put(j, &bracket, 1);
	j->comma = true;
}

void varve_json_string_n(struct varve_json *j, const char *key, const char *value, size_t len)
{
	begin(j, key);
	put_quoted(j, value, len);
}

void varve_json_string(struct varve_json *j, const char *key, const char *value)
{
	varve_json_string_n(j, key, value, strlen(value));
}

void varve_json_int(struct varve_json *j, const char *key, int64_t value)
{
	char text[24];

	begin(j, key);
	(void)snprintf(text, sizeof(text), "%" PRId64, value);
	put_text(j, text);
}

void varve_json_double(struct varve_json *j, const char *key, double value)
{
	char text[40];

	begin(j, key);
	/* JSON has no word for what is not finite. */
	if (isfinite(value))
		(void)snprintf(text, sizeof(text), "%.10g", value);
	else
		(void)snprintf(text, sizeof(text), "null");
	put_text(j, text);
}

void varve_json_bool(struct varve_json *j, const char *key, bool value)
{
	begin(j, key);
	put_text(j, value ? "true" : "false");
}

void varve_json_raw(struct varve_json *j, const char *text)
{
	put_text(j, text);
	j->comma = false;
}
