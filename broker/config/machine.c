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
	static uint64_t known; /* asked for at each allocation */
	struct sysinfo info;

	if (known == 0 && sysinfo(&info) == 0)
		known = ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
	return known > 0 ? known : UINT64_MAX;
}

/* The number in a file; UINT64_MAX if there is none, or another text ("max"). */
static uint64_t read_limit(const char *path)
{
	FILE *file = fopen(path, "re");
	uint64_t limit = UINT64_MAX;

	if (file && fscanf(file, "%" SCNu64, &limit) != 1)
		limit = UINT64_MAX;
	if (file)
		fclose(file);
	return limit;
}

/* The least limit of @group and of those that it is in, which is named by a path. */
static uint64_t least_limit(const char *root, const char *controller, char *group, const char *name)
{
	uint64_t least = UINT64_MAX, limit;
	char path[PATH_MAX], *end;

	do {
		if (snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s%s/%s", root, controller, group,
			     name) >= (int)sizeof(path))
			break;
		limit = read_limit(path);
		least = limit < least ? limit : least;
		end = strrchr(group, '/');
		if (end)
			*end = '\0';
	} while (end);
	return least;
}

/* Whether "cpu,cpuacct,memory" has this one. */
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

/* What a line "number:controllers:group" says. A hierarchy of several controllers is mounted by all
 * their names, and mostly by each of them as well. */
static uint64_t limit_of_line(const char *root, char *line)
{
	char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
	char mounted[PATH_MAX], copy[PATH_MAX];
	uint64_t limit;

	if (!group)
		return UINT64_MAX;
	*group++ = '\0';
	list++;
	if (*list == '\0')
		return least_limit(root, "", group, "memory.max");
	if (!has_controller(list, "memory"))
		return UINT64_MAX;
	snprintf(copy, sizeof(copy), "%s", group);
	limit = least_limit(root, "/memory", copy, "memory.limit_in_bytes");
	if (limit < UINT64_MAX)
		return limit;
	snprintf(mounted, sizeof(mounted), "/%s", list);
	return least_limit(root, mounted, group, "memory.limit_in_bytes");
}

uint64_t machine_cgroup_limit(const char *root)
{
	uint64_t least = UINT64_MAX, limit;
	char path[PATH_MAX], line[PATH_MAX];
	FILE *file;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		limit = limit_of_line(root, line);
		least = limit < least ? limit : least;
	}
	if (file)
		fclose(file);
	return least;
}

uint64_t machine_broker_memory(uint64_t wanted, const char *root)
{
	uint64_t limit = machine_cgroup_limit(root), most = 1 << 20;

	if (limit / 2 > MACHINE_RESERVE / 2 + most)
		most = (limit - MACHINE_RESERVE) / 2;
	return wanted < most ? wanted : most;
}
