/* SPDX-License-Identifier: MIT */
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A plan: memory that a test shares with the programs that it starts, in which it says what is to
 * happen to them. They find its file by a variable of the environment. */

static inline void *plan_map(int fd, size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		abort();
	return memory;
}

/* In the test, as long as its process lives: zeros at first. */
static inline void *plan_new(const char *variable, size_t size)
{
	int fd = memfd_create("plan", MFD_CLOEXEC);
	char path[64];

	if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
		abort();
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
	setenv(variable, path, 1);
	return plan_map(fd, size);
}

/* In a program; NULL: there is none. */
static inline void *plan_open(const char *variable, size_t size)
{
	const char *path = getenv(variable);
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *plan = fd < 0 ? NULL : plan_map(fd, size);

	if (fd >= 0)
		close(fd);
	return plan;
}
