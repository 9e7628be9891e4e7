/* SPDX-License-Identifier: MIT */

/* Open descriptors, ours and others', as the kernel lists them. */

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/descriptors.h"

static DIR *open_directory(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)(pid ? pid : getpid()));
	return opendir(path);
}

int descriptors_count(pid_t pid)
{
	DIR *directory = open_directory(pid);
	struct dirent *entry;
	int n = 0;

	if (!directory)
		return -1;
	while ((entry = readdir(directory)))
		if (entry->d_name[0] != '.')
			n++;
	closedir(directory);
	/* the one that we looked with is not counted */
	return pid == 0 || pid == getpid() ? n - 1 : n;
}

void descriptors_list(pid_t pid)
{
	DIR *directory = open_directory(pid);
	char path[PATH_MAX], target[PATH_MAX];
	struct dirent *entry;

	if (!directory)
		return;
	fprintf(stderr, "open descriptors of process %d:\n", (int)(pid ? pid : getpid()));
	while ((entry = readdir(directory))) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)(pid ? pid : getpid()),
			 entry->d_name);
		n = readlink(path, target, sizeof(target) - 1);
		if (n > 0)
			fprintf(stderr, "  %s -> %.*s\n", entry->d_name, (int)n, target);
	}
	closedir(directory);
}

void descriptors_close_but(int keep)
{
	if (keep > 3)
		close_range(3, (unsigned)keep - 1, 0);
	close_range((unsigned)keep + 1, UINT_MAX, 0);
}

size_t resident_bytes(pid_t pid)
{
	unsigned long total, resident = 0;
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%lu %lu", &total, &resident) != 2)
		resident = 0;
	fclose(file);
	return resident * (size_t)sysconf(_SC_PAGESIZE);
}
