/* SPDX-License-Identifier: MIT */
#pragma once

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/standin/functions.h"

/*
 * What a test says to the stand-in driver, and asks it. All of it goes through the environment, so
 * that the programs under test inherit it:
 *
 *   SHARE_STANDIN         the machine, as "key=number,...":
 *       devices=1         how many
 *       memory=1073741824 bytes of each, over all processes
 *       granularity=2097152
 *       driver=13000      the version
 *       peers=1           devices reach each other's memory
 *       vmm=1, mempool=1, memops=1  what the devices support
 *       rdma=1            and whether their vmm memory can be made for RDMA
 *       numa=1            and whether they reach memory of the host's NUMA node by vmm
 *       mig=0             1: the devices are MIG instances, and called so
 *       events=4096       interprocess events a process can make
 *       connections=8     of this many streams parked in waits for others, all stand still
 *                         (default: CUDA_DEVICE_MAX_CONNECTIONS)
 *       machine=0         processes with another number have other devices, not these
 *
 *   SHARE_STANDIN_FAULTS  a file, read again at every call, of lines
 *
 *       FUNCTION fail CUDA_ERROR_...|NUMBER [after N]
 *       FUNCTION hang [after N]
 *       FUNCTION die [after N]          (SIGKILL)
 *
 *     FUNCTION is a symbol, with its _v2 or without. The first N calls of that process succeed.
 *
 *   SHARE_STANDIN_CALLS   a file that gets a table of how often each function was called, by all
 *                         processes together
 */

struct standin_calls {
	_Atomic uint64_t count[STANDIN_FUNCTION_COUNT];
};

/* For the calling process and those it starts. A machine of its own: tests that run beside this one
 * take none of its memory. @options may be "". */
static inline void standin_configure(const char *options)
{
	char text[512];

	snprintf(text, sizeof(text), "machine=%ld,%s", (long)getpid(), options);
	setenv("SHARE_STANDIN", text, 1);
}

/* The table in the file at @path, made if it is not there; NULL with errno. Never unmapped. */
static inline struct standin_calls *standin_calls_open(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	void *table = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, sizeof(struct standin_calls)) == 0)
		table = mmap(NULL, sizeof(struct standin_calls), PROT_READ | PROT_WRITE, MAP_SHARED,
			     fd, 0);
	if (fd >= 0)
		close(fd);
	return table == MAP_FAILED ? NULL : table;
}

/* Whether what this descriptor exports is vmm memory that was made for RDMA. With a real driver
 * only who made the memory can ask it: what was imported says no (measured: H200). */
static inline bool standin_is_for_rdma(int fd)
{
	char path[64], link[128];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, link, sizeof(link) - 1);
	link[n < 0 ? 0 : n] = '\0';
	return strstr(link, ":vmm:rdma") != NULL;
}

/* How often a function was called; @symbol as in functions.h: standin_called(t, cuMemCreate). */
#define standin_called(table, symbol) atomic_load(&(table)->count[STANDIN_##symbol])
