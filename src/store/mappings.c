#include "store/mappings.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>

#include "base/cleanup.h"

static int add(struct varve_mappings *m, dev_t dev, uint64_t ino)
{
	if (m->n && m->list[m->n - 1].dev == dev && m->list[m->n - 1].ino == ino)
		return 0;
	if (m->n == m->size) {
		size_t size = m->size ? 2 * m->size : 256;
		struct varve_mapped *more = realloc(m->list, size * sizeof(*more));

		if (!more)
			return -ENOMEM;
		m->list = more;
		m->size = size;
	}
	m->list[m->n++] = (struct varve_mapped){dev, ino};
	return 0;
}

/* "55d0-55d1 r--p 00000000 fe:00 1234  /path": device and inode are the fourth and fifth word. */
static int read_line(struct varve_mappings *m, const char *line)
{
	unsigned major_, minor_;
	uint64_t ino;

	if (sscanf(line, "%*s %*s %*s %x:%x %" SCNu64, &major_, &minor_, &ino) != 3 || !ino)
		return 0;
	return add(m, makedev(major_, minor_), ino);
}

static int read_process(struct varve_mappings *m, int proc, const char *pid)
{
	cleanup_free char *line = NULL;
	char path[64];
	size_t size = 0;
	FILE *f;
	int fd, r = 0;

	(void)snprintf(path, sizeof(path), "%.32s/maps", pid);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	f = fdopen(fd, "re");
	if (!f) {
		(void)close(fd);
		return -ENOMEM;
	}
	while (r == 0 && getline(&line, &size, f) > 0)
		r = read_line(m, line);
	(void)fclose(f);
	return r;
}

static int compare(const void *a, const void *b)
{
	const struct varve_mapped *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

int varve_mappings_read(struct varve_mappings *ret)
{
	cleanup_closedir DIR *proc = opendir("/proc");
	struct dirent *e;
	int r = 0;

	*ret = (struct varve_mappings){.list = NULL};
	if (!proc)
		return -errno;
	while (r == 0 && (e = readdir(proc)))
		if (e->d_name[0] >= '0' && e->d_name[0] <= '9')
			r = read_process(ret, dirfd(proc), e->d_name);
	if (ret->n)
		qsort(ret->list, ret->n, sizeof(*ret->list), compare);
	return r;
}

bool varve_mappings_have(const struct varve_mappings *m, uint64_t ino)
{
	/* They come first. */
	for (size_t i = 0; i < m->n && major(m->list[i].dev) == 0; i++)
		if (m->list[i].ino == ino)
			return true;
	return false;
}

void varve_mappings_done(struct varve_mappings *m)
{
	free(m->list);
	*m = (struct varve_mappings){.list = NULL};
}
