/* Durations, sizes and shares as people write them in options. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* "500ms", "10s", "15m", "6h", "30d", "2w", "1mo" (30 d), "1y" (365 d), "0", "off" (0): ns. -EINVAL
 * for anything else, -ERANGE above 292 years, both with an example in err. */
int varve_duration_parse(const char *text, int64_t *ret_ns, struct varve_err *err) varve_must_check;
/* "4096", "64K", "10M", "200G", "2T", "1P" (powers of 1024; "KiB", "KB", "k" too), "0", "off":
 * bytes. -EINVAL for anything else, -ERANGE from 16 EiB, both with an example in err. */
int varve_size_parse(const char *text, uint64_t *ret_bytes, struct varve_err *err) varve_must_check;
/* Either "5%" (0 to 99, with up to three decimals: a fraction of the volume) or a size: one of the
 * two results is set, the other 0. Errors as above. */
int varve_share_parse(const char *text, double *ret_fraction, uint64_t *ret_bytes,
		      struct varve_err *err) varve_must_check;

/* For options and files: exact, and read back by the three above ("90m", "64M", "2.5%", "off"). A
 * duration is cut to whole ms. */
void varve_duration_text(int64_t ns, char *buf, size_t size);
void varve_size_text(uint64_t bytes, char *buf, size_t size);
void varve_share_text(double fraction, uint64_t bytes, char *buf, size_t size);

/* For people: "1.4 GiB", "312 B"; "2d 3h", "1.5 s", "12 ms". At most size bytes with the NUL. */
void varve_size_format(uint64_t bytes, char *buf, size_t size);
void varve_duration_format(int64_t ns, char *buf, size_t size);
/* An instant as RFC 3339 UTC with milliseconds: "2026-12-01T02:03:04.567Z" (25 bytes with the NUL).
 */
void varve_time_format(int64_t ns, char *buf, size_t size);
