/* SPDX-License-Identifier: MIT */

/* How much memory there is for pools. The files of cgroups are those of a folder that a test makes.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "broker/config/config.h"
#include "broker/config/machine.h"

#define MIB (UINT64_C(1) << 20)

static char root[] = "/tmp/share-machine-test-XXXXXX";

static void start(void)
{
	cr_assert(mkdtemp(root));
}

static void end(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", root);
	cr_assert_eq(system(command), 0);
}

TestSuite(machine, .init = start, .fini = end, .timeout = 30);

/* With the folders in which it is. */
static void write_file(const char *path, const char *text)
{
	char all[256];
	FILE *file;

	snprintf(all, sizeof(all), "%s%s", root, path);
	for (char *slash = strchr(all + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(all, 0755);
		*slash = '/';
	}
	file = fopen(all, "w");
	cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

Test(machine, without_cgroups_there_is_no_limit)
{
	cr_assert_eq(machine_cgroup_limit(root), UINT64_MAX);
	write_file("/proc/self/cgroup", "0::/a\n");
	cr_assert_eq(machine_cgroup_limit(root), UINT64_MAX);
	write_file("/sys/fs/cgroup/a/memory.max", "max\n");
	cr_assert_eq(machine_cgroup_limit(root), UINT64_MAX);
}

Test(machine, the_least_limit_of_a_cgroup_and_those_that_it_is_in_counts)
{
	write_file("/proc/self/cgroup", "0::/job.slice/step\n");
	write_file("/sys/fs/cgroup/job.slice/step/memory.max", "max\n");
	write_file("/sys/fs/cgroup/job.slice/memory.max", "536870912\n");
	cr_assert_eq(machine_cgroup_limit(root), 512 * MIB);
	write_file("/sys/fs/cgroup/job.slice/step/memory.max", "268435456\n");
	cr_assert_eq(machine_cgroup_limit(root), 256 * MIB);
}

Test(machine, what_is_left_is_the_least_of_all_and_files_can_be_read_again)
{
	cr_assert_eq(machine_memory_left(root), UINT64_MAX);
	write_file("/proc/meminfo", "MemTotal:       1000000 kB\nMemAvailable:     524288 kB\n");
	cr_assert_eq(machine_memory_left(root), 512 * MIB);
	write_file("/proc/self/cgroup", "0::/job.slice/step\n");
	write_file("/sys/fs/cgroup/job.slice/step/memory.max", "max\n");
	write_file("/sys/fs/cgroup/job.slice/step/memory.current", "104857600\n");
	write_file("/sys/fs/cgroup/job.slice/memory.max", "268435456\n");
	write_file("/sys/fs/cgroup/job.slice/memory.current", "209715200\n");
	cr_assert_eq(machine_memory_left(root), 56 * MIB);
	write_file("/sys/fs/cgroup/job.slice/memory.stat",
		   "anon 1048576\nfile 94371840\ninactive_anon 1\ninactive_file 10485760\n"
		   "active_file 20971520\nshmem 4096\n");
	cr_assert_eq(machine_memory_left(root), 86 * MIB);
	write_file("/sys/fs/cgroup/job.slice/memory.current", "314572800\n");
	write_file("/sys/fs/cgroup/job.slice/memory.stat", "");
	cr_assert_eq(machine_memory_left(root), 0);
}

Test(machine, nothing_may_be_left_of_it)
{
	write_file("/proc/meminfo", "MemTotal:       1000000 kB\nMemAvailable:          0 kB\n");
	cr_assert_eq(machine_memory_left(root), 0);
}

/* Above that the kernel has everybody in the cgroup wait who wants more. */
Test(machine, what_is_left_ends_where_the_kernel_makes_it_slow)
{
	write_file("/proc/self/cgroup", "0::/job\n");
	write_file("/sys/fs/cgroup/job/memory.max", "max\n");
	write_file("/sys/fs/cgroup/job/memory.high", "268435456\n");
	write_file("/sys/fs/cgroup/job/memory.current", "209715200\n");
	cr_assert_eq(machine_memory_left(root), 56 * MIB);
	write_file("/sys/fs/cgroup/job/memory.max", "536870912\n");
	cr_assert_eq(machine_memory_left(root), 56 * MIB);
	write_file("/sys/fs/cgroup/job/memory.high", "max\n");
	cr_assert_eq(machine_memory_left(root), 312 * MIB);
	cr_assert_eq(machine_cgroup_limit(root), 512 * MIB);
}

Test(machine, what_is_left_in_cgroups_of_version_1)
{
	write_file("/proc/self/cgroup", "4:memory:/job\n0::/\n");
	write_file("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "268435456\n");
	write_file("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "209715200\n");
	write_file("/sys/fs/cgroup/memory/job/memory.stat",
		   "inactive_file 4096\ntotal_inactive_file 10485760\ntotal_active_file 0\n");
	cr_assert_eq(machine_memory_left(root), 66 * MIB);
}

Test(machine, a_container_sees_its_own_cgroup_as_the_root)
{
	write_file("/proc/self/cgroup", "0::/\n");
	write_file("/sys/fs/cgroup/memory.max", "134217728\n");
	cr_assert_eq(machine_cgroup_limit(root), 128 * MIB);
}

Test(machine, cgroups_of_version_1_have_limits_too)
{
	write_file("/proc/self/cgroup", "4:memory:/job\n3:cpuset:/\n0::/\n");
	write_file("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "67108864\n");
	cr_assert_eq(machine_cgroup_limit(root), 64 * MIB);
}

Test(machine, controllers_of_version_1_may_be_mounted_together)
{
	write_file("/proc/self/cgroup",
		   "5:name=memory:/job\n4:cpu,cpuacct,memory:/job\n3:memory2:/job\n");
	write_file("/sys/fs/cgroup/cpu,cpuacct,memory/job/memory.limit_in_bytes", "67108864\n");
	cr_assert_eq(machine_cgroup_limit(root), 64 * MIB);
	/* by its own name as well, which is the same */
	write_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "33554432\n");
	cr_assert_eq(machine_cgroup_limit(root), 32 * MIB);
}

Test(machine, the_default_limit_of_pools_is_half_of_the_cgroups_where_that_is_followed)
{
	struct config *c;

	write_file("/proc/self/cgroup", "0::/job\n");
	write_file("/sys/fs/cgroup/job/memory.max", "67108864\n");
	cr_assert_eq(config_default(&c), 0);
	cr_assert_gt(c->default_pool_limit, 32 * MIB);
	config_free(c);
	machine_follow_cgroup(root);
	cr_assert_eq(config_default(&c), 0);
	cr_assert_eq(c->default_pool_limit, 32 * MIB);
	cr_assert_eq(c->pools[0].limit, 32 * MIB);
	config_free(c);
}

Test(machine, what_users_may_have_a_broker_remember_leaves_room_for_the_next_one)
{
	cr_assert_eq(machine_broker_memory(640 * MIB, root), 640 * MIB);
	write_file("/proc/self/cgroup", "0::/job\n");
	write_file("/sys/fs/cgroup/job/memory.max", "268435456\n");
	cr_assert_eq(machine_broker_memory(640 * MIB, root), 104 * MIB);
	cr_assert_eq(machine_broker_memory(64 * MIB, root), 64 * MIB);
	write_file("/sys/fs/cgroup/job/memory.max", "4294967296\n");
	cr_assert_eq(machine_broker_memory(640 * MIB, root), 640 * MIB);
	write_file("/sys/fs/cgroup/job/memory.max", "1048576\n");
	cr_assert_eq(machine_broker_memory(640 * MIB, root), MIB);
}
