#include "fuse/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is summed up over the buckets of one state. */
struct sums {
	uint64_t buckets, files, bytes, allocated;
};

static const enum varve_bucket_state states[] = {
	VARVE_BUCKET_OPEN,
	VARVE_BUCKET_CLOSING,
	VARVE_BUCKET_SEALED,
};

#define N_STATES (sizeof(states) / sizeof(states[0]))

static void head(FILE *f, const char *name, const char *type, const char *help)
{
	(void)fprintf(f, "# HELP varvefs_%s %s\n# TYPE varvefs_%s %s\n", name, help, name, type);
}

static void one(FILE *f, const char *name, const char *type, const char *help, uint64_t value)
{
	head(f, name, type, help);
	(void)fprintf(f, "varvefs_%s %" PRIu64 "\n", name, value);
}

static void instant(FILE *f, const char *name, const char *help, int64_t ns)
{
	head(f, name, "gauge", help);
	(void)fprintf(f, "varvefs_%s %.3f\n", name, (double)ns / 1e9);
}

static void by_state(FILE *f, const struct sums *sums, const char *name, const char *help,
		     size_t member)
{
	head(f, name, "gauge", help);
	for (size_t i = 0; i < N_STATES; i++) {
		uint64_t value;

		memcpy(&value, (const char *)&sums[i] + member, sizeof(value));
		(void)fprintf(f, "varvefs_%s{state=\"%s\"} %" PRIu64 "\n", name,
			      varve_bucket_state_name(states[i]), value);
	}
}

static void write_buckets(FILE *f, const struct varve_status *st)
{
	struct sums sums[N_STATES] = {0};
	uint64_t held = 0;
	uint64_t damaged = 0;

	for (unsigned b = 0; b < st->n_buckets; b++) {
		const struct varve_bucket_status *bucket = &st->buckets[b];

		held += bucket->held;
		damaged += bucket->damaged;
		for (size_t i = 0; i < N_STATES; i++) {
			if (bucket->state != states[i])
				continue;
			sums[i].buckets++;
			sums[i].files += bucket->files;
			sums[i].bytes += bucket->bytes;
			sums[i].allocated += bucket->allocated;
		}
	}
	by_state(f, sums, "buckets", "Buckets.", offsetof(struct sums, buckets));
	by_state(f, sums, "files", "Regular files in buckets.", offsetof(struct sums, files));
	by_state(f, sums, "content_bytes", "Bytes as users see them.",
		 offsetof(struct sums, bytes));
	by_state(f, sums, "allocated_bytes", "Bytes that buckets take on the backing filesystem.",
		 offsetof(struct sums, allocated));
	one(f, "buckets_held", "gauge", "Buckets on hold.", held);
	one(f, "buckets_damaged", "gauge", "Buckets of which something can't be read.", damaged);
}

int varve_metrics_text(const struct varve_status *st, char **ret)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	int failed;

	if (!f)
		return -ENOMEM;
	write_buckets(f, st);
	one(f, "store_bytes", "gauge", "Bytes that the whole store takes.", st->store_bytes);
	one(f, "volume_bytes", "gauge", "Size of the backing filesystem.", st->volume_bytes);
	one(f, "free_bytes", "gauge", "Bytes that are free, the trash counted.", st->free_bytes);
	one(f, "trash_bytes", "gauge", "Bytes of dropped buckets not given back yet.",
	    st->trash_bytes);
	one(f, "trash_buckets", "gauge", "Dropped buckets not given back yet.", st->trash_buckets);
	one(f, "faults_total", "counter", "Frames or files found damaged since the mount.",
	    st->faults);
	one(f, "cache_bytes", "gauge", "Bytes of decompressed frames in memory.", st->cache_bytes);
	one(f, "cache_hits_total", "counter", "Frames served from memory.", st->cache_hits);
	one(f, "cache_misses_total", "counter", "Frames that were decompressed.", st->cache_misses);
	instant(f, "time_seconds", "The time the store believes it is.", st->now_ns);
	instant(f, "next_boundary_seconds", "When the open bucket's window ends.",
		st->next_boundary_ns);
	head(f, "clock_good", "gauge", "1: the clock is believed.");
	(void)fprintf(f, "varvefs_clock_good %d\n", strcmp(st->clock, "good") == 0);
	failed = ferror(f);
	if (fclose(f) != 0 || failed) {
		free(text);
		return -ENOMEM;
	}
	*ret = text;
	return 0;
}
