/* SPDX-License-Identifier: MIT */

/*
 * Replays inputs through a fuzz target without a fuzzer: each argument is a file, or a directory of
 * them. What was found once is an ordinary test from then on.
 */

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/themes/fuzz/fuzz.h"

#define INPUT_MAX (1 << 20)

static unsigned replayed;

static void replay_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data = malloc(INPUT_MAX), *exact;
	size_t size;

	if (!file || !data) {
		perror(path);
		exit(1);
	}
	size = fread(data, 1, INPUT_MAX, file);
	fclose(file);
	/* in a block of its own size, so that a sanitizer sees who reads beyond it */
	exact = malloc(size ? size : 1);
	memcpy(exact, data, size);
	free(data);
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
	replayed++;
}

static void replay(const char *path)
{
	struct dirent **entries;
	struct stat st;
	int n;

	if (stat(path, &st) < 0) {
		perror(path);
		exit(1);
	}
	if (!S_ISDIR(st.st_mode)) {
		replay_file(path);
		return;
	}
	n = scandir(path, &entries, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		char file[4096];

		snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name);
		if (entries[i]->d_name[0] != '.')
			replay_file(file);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
}

int main(int argc, char **argv)
{
	LLVMFuzzerInitialize(&argc, &argv);
	for (int i = 1; i < argc; i++)
		replay(argv[i]);
	printf("%u inputs\n", replayed);
	return replayed == 0;
}
