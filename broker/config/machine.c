/* SPDX-License-Identifier: MIT */

#include "broker/config/machine.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

static uint64_t cgroup_limit = UINT64_MAX;

void machine_follow_cgroup(const char *root)
{
	cgroup_limit = machine_cgroup_limit(root);
}

uint64_t machine_share(void)
{
	struct sysinfo info;
	uint64_t bytes = UINT64_C(2) << 30; /* if the system does not say */

	if (sysinfo(&info) == 0)
		bytes = (uint64_t)info.totalram * info.mem_unit;
	return bytes < cgroup_limit ? bytes : cgroup_limit;
}

uint64_t machine_memory(void)
{
	static uint64_t known; /* it is kept, as it is asked for at each allocation */
	struct sysinfo info;

	if (known == 0 && sysinfo(&info) == 0)
		known = ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
	return known > 0 ? known : UINT64_MAX;
}

/* The files that say it in a version of cgroups, and the words of its memory.stat for files that
 * could be read again. A cgroup that has more than @slow is not ended, but the kernel makes it
 * wait. */
struct version {
	const char *limit, *slow, *usage, *words[2];
};
static const struct version version_1 = {"memory.limit_in_bytes",
					 NULL,
					 "memory.usage_in_bytes",
					 {"total_inactive_file ", "total_active_file "}};
static const struct version version_2 = {
    "memory.max", "memory.high", "memory.current", {"inactive_file ", "active_file "}};

/* Returns a number of the cgroup in this folder. UINT64_MAX: the folder does not say it. */
typedef uint64_t number_of(const char *folder, const struct version *version);

/* Reads the number in a file of the folder. UINT64_MAX: there is none, or another text ("max"). */
static uint64_t read_in(const char *folder, const char *name)
{
	uint64_t number = UINT64_MAX;
	char path[PATH_MAX + 32];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "re");
	if (file && fscanf(file, "%" SCNu64, &number) != 1)
		number = UINT64_MAX;
	if (file)
		fclose(file);
	return number;
}

static uint64_t limit_of(const char *folder, const struct version *version)
{
	return read_in(folder, version->limit);
}

/* Adds up what the lines say that begin with one of two words. */
static uint64_t read_lines(const char *path, const char *first, const char *second)
{
	FILE *file = fopen(path, "re");
	uint64_t sum = 0, n;
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		const char *space = strchr(line, ' ');

		if (space &&
		    (strncmp(line, first, strlen(first)) == 0 ||
		     strncmp(line, second, strlen(second)) == 0) &&
		    sscanf(space, "%" SCNu64, &n) == 1)
			sum += n;
	}
	if (file)
		fclose(file);
	return sum;
}

static uint64_t left_of(const char *folder, const struct version *version)
{
	uint64_t limit = limit_of(folder, version), used = read_in(folder, version->usage), files;
	uint64_t slow = version->slow ? read_in(folder, version->slow) : UINT64_MAX;
	char path[PATH_MAX + 32];

	limit = slow < limit ? slow : limit;
	if (limit == UINT64_MAX || used == UINT64_MAX)
		return UINT64_MAX;
	snprintf(path, sizeof(path), "%s/memory.stat", folder);
	files = read_lines(path, version->words[0], version->words[1]);
	used -= files < used ? files : used;
	return limit > used ? limit - used : 0;
}

/* Returns the least number of @group and of those that it is in. @group is a path. */
static uint64_t least_of(const char *root, const char *controller, char *group, number_of *of,
			 const struct version *version)
{
	uint64_t least = UINT64_MAX, limit;
	char path[PATH_MAX], *end;

	do {
		if (snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s%s", root, controller, group) >=
		    (int)sizeof(path))
			break;
		limit = of(path, version);
		least = limit < least ? limit : least;
		end = strrchr(group, '/');
		if (end)
			*end = '\0';
	} while (end);
	return least;
}

/* Whether a list like "cpu,cpuacct,memory" has this name. */
static bool has_controller(const char *list, const char *name)
{
	size_t size = strlen(name), n;

	for (; *list; list += n + (list[n] == ',')) {
		n = strcspn(list, ",");
		if (n == size && memcmp(list, name, n) == 0)
			return true;
	}
	return false;
}

/* Returns what a line "number:controllers:group" leads to. A hierarchy of several controllers is
 * mounted by all their names, and mostly by each of them as well. */
static uint64_t least_of_line(const char *root, char *line, number_of *of)
{
	char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
	char mounted[PATH_MAX], copy[PATH_MAX];
	uint64_t limit;

	if (!group)
		return UINT64_MAX;
	*group++ = '\0';
	list++;
	if (*list == '\0')
		return least_of(root, "", group, of, &version_2);
	if (!has_controller(list, "memory"))
		return UINT64_MAX;
	snprintf(copy, sizeof(copy), "%s", group);
	limit = least_of(root, "/memory", copy, of, &version_1);
	if (limit < UINT64_MAX)
		return limit;
	snprintf(mounted, sizeof(mounted), "/%s", list);
	return least_of(root, mounted, group, of, &version_1);
}

static uint64_t least_of_all(const char *root, number_of *of)
{
	uint64_t least = UINT64_MAX, limit;
	char path[PATH_MAX], line[PATH_MAX];
	FILE *file;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		limit = least_of_line(root, line, of);
		least = limit < least ? limit : least;
	}
	if (file)
		fclose(file);
	return least;
}

uint64_t machine_cgroup_limit(const char *root)
{
	return least_of_all(root, limit_of);
}

uint64_t machine_memory_left(const char *root)
{
	uint64_t of_cgroup = least_of_all(root, left_of), left;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	if (read_lines(path, "MemTotal:", "MemTotal:") == 0)
		return of_cgroup;
	left = read_lines(path, "MemAvailable:", "MemAvailable:") << 10;
	return left < of_cgroup ? left : of_cgroup;
}

uint64_t machine_broker_memory(uint64_t wanted, const char *root)
{
	uint64_t limit = machine_cgroup_limit(root), most = 1 << 20;

	if (limit / 2 > MACHINE_RESERVE / 2 + most)
		most = (limit - MACHINE_RESERVE) / 2;
	return wanted < most ? wanted : most;
}
