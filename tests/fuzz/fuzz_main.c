/* Runs a fuzz target on every file of the folders given: the corpus as an ordinary test. */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *folder, const char *name)
{
	char path[4096];
	uint8_t *data;
	long size;
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "rb");
	if (!f || fseek(f, 0, SEEK_END) != 0 || (size = ftell(f)) < 0 ||
	    fseek(f, 0, SEEK_SET) != 0) {
		perror(path);
		return -1;
	}
	data = malloc((size_t)size ? (size_t)size : 1); /* its exact size, for the sanitizers */
	if (!data || fread(data, 1, (size_t)size, f) != (size_t)size) {
		perror(path);
		return -1;
	}
	(void)fclose(f);
	(void)printf("%s\n", path);
	(void)fflush(stdout); /* a crash shows which file it was */
	(void)LLVMFuzzerTestOneInput(data, (size_t)size);
	free(data);
	return 0;
}

int main(int argc, char **argv)
{
	int files = 0;

	for (int i = 1; i < argc; i++) {
		cleanup_closedir DIR *d = opendir(argv[i]);
		const struct dirent *e;

		if (!d) {
			perror(argv[i]);
			return 1;
		}
		while ((e = readdir(d))) {
			if (e->d_name[0] == '.')
				continue;
			if (run_file(argv[i], e->d_name) < 0)
				return 1;
			files++;
		}
	}
	(void)printf("%d files\n", files);
	return files == 0;
}
