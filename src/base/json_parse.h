/*
 * Parses JSON into a tree. Hostile input is refused (-EBADMSG), bounded in depth and in memory
 * (about a hundred bytes for each byte of text, at worst).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

#define VARVE_JSON_DEPTH_MAX 32

enum varve_json_type {
	VARVE_JSON_NULL,
	VARVE_JSON_BOOL,
	VARVE_JSON_NUMBER,
	VARVE_JSON_STRING,
	VARVE_JSON_ARRAY,
	VARVE_JSON_OBJECT,
};

struct varve_json_value {
	enum varve_json_type type;
	bool boolean;
	double number;
	int64_t integer; /* the number, cut to what fits */
	const char *
		string; /* decoded, NUL-terminated; \udc80 to \udcff are the bytes they stand for */
	size_t string_len; /* may hold NULs */
	const char *raw;   /* the value's own text in the input, raw_len bytes */
	size_t raw_len;
	const char *key;                      /* in an object; else NULL */
	const struct varve_json_value *first; /* of an array or object */
	const struct varve_json_value *next;  /* its sibling */
};

struct varve_json_doc;

/* Parses the whole of text, which must outlive the document (raw points into it). -EBADMSG or
 * -ENOMEM. The caller frees. */
int varve_json_parse(const char *text, size_t len, struct varve_json_doc **ret) varve_must_check;
void varve_json_free(struct varve_json_doc *doc); /* NULL is fine */
const struct varve_json_value *varve_json_root(const struct varve_json_doc *doc);

/* The member of an object, NULL when there is none or v is none itself (v may be NULL). */
const struct varve_json_value *varve_json_get(const struct varve_json_value *v, const char *key);
/* A member's value if it is there and of that type (a string without NULs), else what stands last.
 */
const char *varve_json_get_string(const struct varve_json_value *v, const char *key,
				  const char *otherwise);
int64_t varve_json_get_int(const struct varve_json_value *v, const char *key, int64_t otherwise);
double varve_json_get_double(const struct varve_json_value *v, const char *key, double otherwise);
bool varve_json_get_bool(const struct varve_json_value *v, const char *key, bool otherwise);
