/* Writes JSON into a growing buffer. Strings may be any bytes: what is not UTF-8 is escaped. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct varve_json {
	char *text; /* NUL-terminated once anything was written; the owner frees with
		       varve_json_done */
	size_t len, size;
	bool failed; /* no memory: text is not to be used */
	bool comma;  /* the next value needs a comma before it */
};

#define VARVE_JSON_INIT                                                                            \
	{                                                                                          \
		0                                                                                  \
	}
void varve_json_done(struct varve_json *j);
void varve_json_open(struct varve_json *j, const char *key,
		     char bracket);                        /* '{' or '['; key NULL in arrays */
void varve_json_close(struct varve_json *j, char bracket); /* '}' or ']' */
/* Bytes 0x80 and above that are not UTF-8 are written \udcXX (as Python's surrogateescape reads
 * them). */
void varve_json_string(struct varve_json *j, const char *key, const char *value);
void varve_json_string_n(struct varve_json *j, const char *key, const char *value, size_t len);
void varve_json_int(struct varve_json *j, const char *key, int64_t value);
void varve_json_double(struct varve_json *j, const char *key, double value);
void varve_json_bool(struct varve_json *j, const char *key, bool value);
/* Raw text between values (a newline for JSON lines); the next value gets no comma before it. */
void varve_json_raw(struct varve_json *j, const char *text);

/* How many bytes the first character of s takes; 0 when it is not UTF-8 (or len is 0). Strict: no
 * overlong form, no surrogate. */
size_t varve_utf8_length(const char *s, size_t len);
