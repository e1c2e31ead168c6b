#include "control/status_json.h"

#include <errno.h>
#include <stdio.h>

#include "base/json.h"
#include "base/units.h"

static void put_instant(struct varve_json *j, const char *key, int64_t ns)
{
	char key_ns[32];
	char text[32];

	(void)snprintf(key_ns, sizeof(key_ns), "%s_ns", key);
	varve_time_format(ns, text, sizeof(text));
	varve_json_string(j, key, text);
	varve_json_int(j, key_ns, ns);
}

static void put_count(struct varve_json *j, const char *key, uint64_t value)
{
	varve_json_int(j, key, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

static void put_bucket(struct varve_json *j, const struct varve_bucket_status *b, int64_t now_ns)
{
	varve_json_open(j, NULL, '{');
	varve_json_string(j, "name", b->name);
	varve_json_string(j, "class", b->class_name);
	varve_json_string(j, "state", varve_bucket_state_name(b->state));
	varve_json_bool(j, "held", b->held);
	varve_json_bool(j, "damaged", b->damaged);
	put_instant(j, "start", b->start_ns);
	put_instant(j, "end", b->end_ns);
	varve_json_double(j, "age_seconds",
			  now_ns > b->end_ns ? (double)(now_ns - b->end_ns) / 1e9 : 0);
	put_count(j, "files", b->files);
	put_count(j, "bytes", b->bytes);
	put_count(j, "allocated_bytes", b->allocated);
	if (b->state == VARVE_BUCKET_SEALED && b->allocated)
		varve_json_double(j, "ratio", (double)b->bytes / (double)b->allocated);
	if (b->goes_ns != INT64_MAX) {
		varve_json_string(j, "goes_by", varve_cause_name(b->goes_by));
		put_instant(j, "goes", b->goes_ns);
	}
	varve_json_close(j, '}');
}

static void put_totals(struct varve_json *j, const struct varve_status *st)
{
	uint64_t files = 0;
	uint64_t bytes = 0;
	uint64_t allocated = 0;

	for (unsigned i = 0; i < st->n_buckets; i++) {
		files += st->buckets[i].files;
		bytes += st->buckets[i].bytes;
		allocated += st->buckets[i].allocated;
	}
	varve_json_open(j, "totals", '{');
	put_count(j, "buckets", st->n_buckets);
	put_count(j, "files", files);
	put_count(j, "bytes", bytes);
	put_count(j, "allocated_bytes", allocated);
	varve_json_close(j, '}');
}

int varve_status_json(const struct varve_status *st, char **ret)
{
	struct varve_json j = VARVE_JSON_INIT;

	varve_json_open(&j, NULL, '{');
	varve_json_string(&j, "version", VARVE_VERSION);
	put_instant(&j, "time", st->now_ns);
	put_instant(&j, "wall", st->wall_ns);
	varve_json_string(&j, "clock", st->clock);
	varve_json_string(&j, "bucket_length", st->bucket_length);
	varve_json_string(&j, "mode", st->mode);
	put_instant(&j, "next_boundary", st->next_boundary_ns);
	put_count(&j, "volume_bytes", st->volume_bytes);
	put_count(&j, "free_bytes", st->free_bytes);
	put_count(&j, "store_bytes", st->store_bytes);
	put_count(&j, "trash_bytes", st->trash_bytes);
	put_count(&j, "trash_buckets", st->trash_buckets);
	put_count(&j, "faults", st->faults);
	put_count(&j, "cache_bytes", st->cache_bytes);
	put_count(&j, "cache_hits", st->cache_hits);
	put_count(&j, "cache_misses", st->cache_misses);
	put_totals(&j, st);
	varve_json_open(&j, "buckets", '[');
	for (unsigned i = 0; i < st->n_buckets; i++)
		put_bucket(&j, &st->buckets[i], st->now_ns);
	varve_json_close(&j, ']');
	varve_json_close(&j, '}');
	varve_json_raw(&j, "\n");
	if (j.failed) {
		varve_json_done(&j);
		return -ENOMEM;
	}
	*ret = j.text;
	return 0;
}
