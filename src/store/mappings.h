/*
 * Which files processes have mapped, from /proc/PID/maps: a mapping of a part outlives the descriptor that it was made
 * through, and nothing else tells of it. Processes that can't be seen (of another PID namespace) are not known.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct varve_mappings {
	struct varve_mapped {
		dev_t dev;
		uint64_t ino;
	} * list; /* sorted */
	size_t n, size;
};

/* Reads them all; some milliseconds per thousand processes. What ends meanwhile is left out. 0, -ENOMEM, or -errno when
 * /proc can't be read. The caller frees with _done, also after an error. */
int varve_mappings_read(struct varve_mappings *ret);
/* Whether a file of that number is mapped, on any filesystem without a device: a mapping that the kernel has handed to a
 * part shows the mount's device and the file's number there. */
bool varve_mappings_have(const struct varve_mappings *m, uint64_t ino);
void varve_mappings_done(struct varve_mappings *m);
