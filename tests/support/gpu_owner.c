/* SPDX-License-Identifier: MIT */

/* The owner, and what a process can find out about its own use of the driver. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/harness/memory.h"
#include "tests/support/free_memory.h"
#include "tests/support/gpu_owner.h"
#include "tests/support/kinds.h"

share_client *gpu_client;
static char faults_file[] = "/tmp/share-faults-XXXXXX", calls_file[] = "/tmp/share-calls-XXXXXX";

static void make_file(char *name)
{
	int fd = mkostemp(name, O_CLOEXEC);

	check(fd >= 0);
	close(fd);
}

void gpu_start(void)
{
	skip_unless_standin();
	make_file(faults_file);
	make_file(calls_file);
	kinds_start_on("devices=2", NULL);
	gpu_client = connect_as("test");
}

void gpu_stop(void)
{
	share_disconnect(gpu_client);
	fixture_uses_devices();
	fixture_stop();
	unlink(faults_file);
	unlink(calls_file);
}

/* ------------------------------------------------------------------------------------------- */
/* The other side: who made the memory, and looks after it                                     */

static void owns(struct child *self, void *data)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *c = child_connect("owner");
	share_fence written;
	share_buffer *b;
	share_pool *p;

	options.kind = data;
	options.segment_size = GPU_UNIT;
	options.release_threshold = SHARE_KEEP_NONE;
	check_ok(share_pool_create(c, "test", &options, &p));
	check_ok(share_alloc(p, 5000, NULL, &b));
	buffer_write(b, "content");
	check_ok(share_publish(b, "name", NULL));
	/* so that who looks it up waits for nothing, and calls the driver for the import alone */
	check_ok(share_fence_record(c, 0, NULL, &written));
	check_ok(share_fence_synchronize(c, &written, -1));
	child_point(self, "published");
	check(buffer_reads(b, "content"));
	check_ok(share_unpublish(c, "name"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

struct child *owner_start(const char *kind)
{
	struct child *owner = child_start(owns, (void *)(uintptr_t)kind);

	child_wait(owner, "published");
	return owner;
}

void owner_finish(struct child *owner)
{
	child_go(owner);
	child_finish(owner);
	settle(gpu_client, s.segments == 0 && s.leases == 0 && s.names == 0 && s.clients == 1);
}

uint64_t gpu_free_memory(void)
{
	uint64_t bytes;

	free_memory_start();
	bytes = free_memory();
	free_memory_stop();
	return bytes;
}

/* ------------------------------------------------------------------------------------------- */
/* In a child                                                                                  */

void driver_does(const char *faults)
{
	int fd = open(faults_file, O_WRONLY | O_TRUNC | O_CLOEXEC);

	check(fd >= 0 && write(fd, faults, strlen(faults)) == (ssize_t)strlen(faults));
	close(fd);
	setenv("SHARE_STANDIN_FAULTS", faults_file, 1);
}

/* Addresses that are set aside and hold nothing: device memory, seen from the host, is that. (And
 * what malloc() sets aside for a thread; but that is not of such a size.) */
uint64_t reserved_bytes(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long long start, end;
	uint64_t bytes = 0;
	char line[512], mode[5];

	check(maps);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%llx-%llx %4s", &start, &end, mode) == 3 &&
		    strcmp(mode, "---p") == 0 && (end - start) % GPU_UNIT == 0)
			bytes += end - start;
	fclose(maps);
	return bytes;
}

int device_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++) {
		char path[64], target[256];
		ssize_t size;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		size = readlink(path, target, sizeof(target) - 1);
		if (size < 0)
			continue;
		target[size] = '\0';
		n += strstr(target, "standin-gpu") != NULL;
	}
	return n;
}

int look_up(share_client *c, share_buffer **out)
{
	return share_lookup(c, "name", SHARE_RDWR, 0, NULL, out);
}

void expect_content(share_client *c)
{
	share_buffer *b;

	check_ok(look_up(c, &b));
	check(buffer_reads(b, "content"));
	check_ok(share_release(b, NULL));
}

struct standin_calls *count_calls(void)
{
	struct standin_calls *table;

	setenv("SHARE_STANDIN_CALLS", calls_file, 1);
	table = standin_calls_open(calls_file);
	check(table);
	return table;
}
