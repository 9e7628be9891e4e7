/* SPDX-License-Identifier: MIT */

/*
 * Replays inputs through a fuzz target without a fuzzer: each argument is a file, or a directory of
 * them. What was found once is an ordinary test from then on.
 *
 * With --last FILE each is written to that file before it is tried.
 *
 * With --more N each input is followed by N others, which are made of it by chance: some bytes of
 * it, others behind them, and how many these were. The same seed (--seed S) makes the same ones.
 */

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/themes/fuzz/fuzz.h"

#define INPUT_MAX (1 << 20)

static unsigned replayed, more;
static const char *last;
static uint64_t state = 1;

static uint32_t any(uint32_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 20) % n;
}

static void write_last(const uint8_t *data, size_t size)
{
	FILE *file = last ? fopen(last, "wb") : NULL;

	if (!file)
		return;
	fwrite(data, 1, size, file);
	fclose(file);
}

/* In a block of its own size, so that a sanitizer sees who reads beyond it. */
static void give(const uint8_t *data, size_t size)
{
	uint8_t *exact = malloc(size ? size : 1);

	memcpy(exact, data, size);
	write_last(data, size);
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
	replayed++;
}

/* What comes last is eights of bytes, and their number. */
static void give_more(uint8_t *data, size_t size)
{
	uint8_t n = (uint8_t)(1 + any(3));

	if (size > 0 && any(4) == 0)
		size = any((uint32_t)size);
	for (unsigned i = 0; i < n * 8u; i++)
		data[size++] = (uint8_t)any(256);
	data[size++] = n;
	give(data, size);
}

static void replay_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data = malloc(INPUT_MAX + 32);
	size_t size;

	if (!file || !data) {
		perror(path);
		exit(1);
	}
	size = fread(data, 1, INPUT_MAX, file);
	fclose(file);
	give(data, size);
	for (unsigned i = 0; i < more; i++)
		give_more(data, size > 0 ? size - 1 : 0);
	free(data);
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
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--more") == 0 && i + 1 < argc)
			more = (unsigned)strtoul(argv[++i], NULL, 10);
		else if (strcmp(argv[i], "--last") == 0 && i + 1 < argc)
			last = argv[++i];
		else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
			state = strtoull(argv[++i], NULL, 10) + 1;
		else
			replay(argv[i]);
	}
	printf("%u inputs\n", replayed);
	return replayed == 0;
}
