#include "base/json_parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define BLOCK_VALUES 64

struct block {
	struct block *next;
	size_t used;
	struct varve_json_value values[BLOCK_VALUES];
};

struct varve_json_doc {
	struct block *blocks;
	char *strings; /* all decoded strings; a string is never longer than its text */
	size_t strings_len;
	const struct varve_json_value *root;
};

struct parser {
	const char *p, *end;
	unsigned depth;
	struct varve_json_doc *doc;
};

static struct varve_json_value *value_new(struct varve_json_doc *doc)
{
	if (!doc->blocks || doc->blocks->used == BLOCK_VALUES) {
		struct block *b = calloc(1, sizeof(*b));

		if (!b)
			return NULL;
		b->next = doc->blocks;
		doc->blocks = b;
	}
	return &doc->blocks->values[doc->blocks->used++];
}

static void skip_space(struct parser *ps)
{
	while (ps->p < ps->end &&
	       (*ps->p == ' ' || *ps->p == '\t' || *ps->p == '\n' || *ps->p == '\r'))
		ps->p++;
}

static bool take(struct parser *ps, char c)
{
	if (ps->p == ps->end || *ps->p != c)
		return false;
	ps->p++;
	return true;
}

static bool take_word(struct parser *ps, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(ps->end - ps->p) < n || memcmp(ps->p, word, n) != 0)
		return false;
	ps->p += n;
	return true;
}

static int hex4(struct parser *ps, unsigned *ret)
{
	unsigned v = 0;

	if (ps->end - ps->p < 4)
		return -EBADMSG;
	for (int i = 0; i < 4; i++) {
		char c = *ps->p++;

		v <<= 4;
		if (c >= '0' && c <= '9')
			v |= (unsigned)(c - '0');
		else if (c >= 'a' && c <= 'f')
			v |= (unsigned)(c - 'a' + 10);
		else if (c >= 'A' && c <= 'F')
			v |= (unsigned)(c - 'A' + 10);
		else
			return -EBADMSG;
	}
	*ret = v;
	return 0;
}

static size_t put_utf8(char *to, unsigned c)
{
	if (c < 0x80) {
		to[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		to[0] = (char)(0xc0 | c >> 6);
		to[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		to[0] = (char)(0xe0 | c >> 12);
		to[1] = (char)(0x80 | (c >> 6 & 0x3f));
		to[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	to[0] = (char)(0xf0 | c >> 18);
	to[1] = (char)(0x80 | (c >> 12 & 0x3f));
	to[2] = (char)(0x80 | (c >> 6 & 0x3f));
	to[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

/* Behind "\u". A pair of surrogates is one character; \udc80 to \udcff alone is a raw byte. */
static int parse_unicode(struct parser *ps, char *to, size_t *n)
{
	unsigned c, low;

	if (hex4(ps, &c) < 0)
		return -EBADMSG;
	if (c >= 0xdc80 && c <= 0xdcff) {
		to[(*n)++] = (char)(c & 0xff);
		return 0;
	}
	if (c >= 0xd800 && c <= 0xdbff) {
		if (!take_word(ps, "\\u") || hex4(ps, &low) < 0 || low < 0xdc00 || low > 0xdfff)
			return -EBADMSG;
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
	} else if (c >= 0xdc00 && c <= 0xdfff) {
		return -EBADMSG;
	}
	*n += put_utf8(to + *n, c);
	return 0;
}

static int parse_escape(struct parser *ps, char *to, size_t *n)
{
	static const char from[] = "\"\\/bfnrt", is[] = "\"\\/\b\f\n\r\t";
	const char *at;
	char c;

	if (ps->p == ps->end)
		return -EBADMSG;
	c = *ps->p++;
	if (c == 'u')
		return parse_unicode(ps, to, n);
	at = c ? strchr(from, c) : NULL;
	if (!at)
		return -EBADMSG;
	to[(*n)++] = is[at - from];
	return 0;
}

static int parse_string(struct parser *ps, const char **ret, size_t *ret_len)
{
	char *to = ps->doc->strings + ps->doc->strings_len;
	size_t n = 0;

	if (!take(ps, '"'))
		return -EBADMSG;
	while (ps->p < ps->end && *ps->p != '"') {
		size_t u = varve_utf8_length(ps->p, (size_t)(ps->end - ps->p));

		if ((unsigned char)*ps->p < 0x20 || u == 0)
			return -EBADMSG;
		if (*ps->p == '\\') {
			int r;

			ps->p++;
			r = parse_escape(ps, to, &n);
			if (r < 0)
				return r;
			continue;
		}
		memcpy(to + n, ps->p, u);
		n += u;
		ps->p += u;
	}
	if (!take(ps, '"'))
		return -EBADMSG;
	to[n] = '\0';
	ps->doc->strings_len += n + 1;
	*ret = to;
	*ret_len = n;
	return 0;
}

static size_t take_digits(struct parser *ps)
{
	const char *from = ps->p;

	while (ps->p < ps->end && *ps->p >= '0' && *ps->p <= '9')
		ps->p++;
	return (size_t)(ps->p - from);
}

static int parse_number(struct parser *ps, struct varve_json_value *v)
{
	const char *from = ps->p;
	bool whole = true;
	char text[64];
	size_t n;

	(void)take(ps, '-');
	if (!take(ps, '0') && take_digits(ps) == 0)
		return -EBADMSG;
	if (take(ps, '.')) {
		whole = false;
		if (take_digits(ps) == 0)
			return -EBADMSG;
	}
	if (take(ps, 'e') || take(ps, 'E')) {
		whole = false;
		if (!take(ps, '+'))
			(void)take(ps, '-');
		if (take_digits(ps) == 0)
			return -EBADMSG;
	}
	n = (size_t)(ps->p - from);
	if (n >= sizeof(text))
		return -EBADMSG;
	memcpy(text, from, n);
	text[n] = '\0';
	v->number = strtod(text, NULL);
	if (whole)
		v->integer = strtoll(text, NULL, 10);
	else if (v->number >= 9.2e18 || v->number <= -9.2e18)
		v->integer = v->number > 0 ? INT64_MAX : INT64_MIN;
	else
		v->integer = (int64_t)v->number;
	return 0;
}

static int parse_value(struct parser *ps, struct varve_json_value *v);

static int parse_member(struct parser *ps, bool with_key, struct varve_json_value *v)
{
	size_t len;
	int r;

	if (with_key) {
		r = parse_string(ps, &v->key, &len);
		if (r < 0)
			return r;
		skip_space(ps);
		if (strlen(v->key) != len || !take(ps, ':'))
			return -EBADMSG;
		skip_space(ps);
	}
	r = parse_value(ps, v);
	skip_space(ps);
	return r;
}

static int parse_members(struct parser *ps, struct varve_json_value *v, char close)
{
	const struct varve_json_value **link = &v->first;

	if (++ps->depth > VARVE_JSON_DEPTH_MAX)
		return -EBADMSG;
	skip_space(ps);
	if (!take(ps, close)) {
		do {
			struct varve_json_value *m = value_new(ps->doc);
			int r;

			if (!m)
				return -ENOMEM;
			skip_space(ps);
			r = parse_member(ps, close == '}', m);
			if (r < 0)
				return r;
			*link = m;
			link = &m->next;
		} while (take(ps, ','));
		if (!take(ps, close))
			return -EBADMSG;
	}
	ps->depth--;
	return 0;
}

static int parse_typed(struct parser *ps, struct varve_json_value *v)
{
	if (ps->p == ps->end)
		return -EBADMSG;
	if (take(ps, '{')) {
		v->type = VARVE_JSON_OBJECT;
		return parse_members(ps, v, '}');
	}
	if (take(ps, '[')) {
		v->type = VARVE_JSON_ARRAY;
		return parse_members(ps, v, ']');
	}
	if (*ps->p == '"') {
		v->type = VARVE_JSON_STRING;
		return parse_string(ps, &v->string, &v->string_len);
	}
	if (take_word(ps, "null")) {
		v->type = VARVE_JSON_NULL;
		return 0;
	}
	if (take_word(ps, "true") || take_word(ps, "false")) {
		v->type = VARVE_JSON_BOOL;
		v->boolean = ps->p[-2] == 'u';
		return 0;
	}
	v->type = VARVE_JSON_NUMBER;
	return parse_number(ps, v);
}

static int parse_value(struct parser *ps, struct varve_json_value *v)
{
	int r;

	v->raw = ps->p;
	r = parse_typed(ps, v);
	v->raw_len = (size_t)(ps->p - v->raw);
	return r;
}

void varve_json_free(struct varve_json_doc *doc)
{
	if (!doc)
		return;
	for (struct block *b = doc->blocks, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	free(doc->strings);
	free(doc);
}

int varve_json_parse(const char *text, size_t len, struct varve_json_doc **ret)
{
	struct parser ps = {.p = text, .end = text + len, .doc = calloc(1, sizeof(*ps.doc))};
	struct varve_json_value *root;
	int r = -ENOMEM;

	if (!ps.doc)
		return -ENOMEM;
	ps.doc->strings = malloc(len + 1);
	root = value_new(ps.doc);
	if (ps.doc->strings && root) {
		skip_space(&ps);
		r = parse_value(&ps, root);
		skip_space(&ps);
		if (r == 0 && ps.p != ps.end)
			r = -EBADMSG;
	}
	if (r < 0) {
		varve_json_free(ps.doc);
		return r;
	}
	ps.doc->root = root;
	*ret = ps.doc;
	return 0;
}

const struct varve_json_value *varve_json_root(const struct varve_json_doc *doc)
{
	return doc->root;
}

const struct varve_json_value *varve_json_get(const struct varve_json_value *v, const char *key)
{
	if (!v || v->type != VARVE_JSON_OBJECT)
		return NULL;
	for (const struct varve_json_value *m = v->first; m; m = m->next)
		if (!strcmp(m->key, key))
			return m;
	return NULL;
}

const char *varve_json_get_string(const struct varve_json_value *v, const char *key,
				  const char *otherwise)
{
	const struct varve_json_value *m = varve_json_get(v, key);

	if (!m || m->type != VARVE_JSON_STRING || strlen(m->string) != m->string_len)
		return otherwise;
	return m->string;
}

int64_t varve_json_get_int(const struct varve_json_value *v, const char *key, int64_t otherwise)
{
	const struct varve_json_value *m = varve_json_get(v, key);

	return m && m->type == VARVE_JSON_NUMBER ? m->integer : otherwise;
}

double varve_json_get_double(const struct varve_json_value *v, const char *key, double otherwise)
{
	const struct varve_json_value *m = varve_json_get(v, key);

	return m && m->type == VARVE_JSON_NUMBER ? m->number : otherwise;
}

bool varve_json_get_bool(const struct varve_json_value *v, const char *key, bool otherwise)
{
	const struct varve_json_value *m = varve_json_get(v, key);

	return m && m->type == VARVE_JSON_BOOL ? m->boolean : otherwise;
}
