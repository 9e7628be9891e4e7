/* SPDX-License-Identifier: MIT */

/*
 * Preloaded into a test of another architecture that runs under qemu's emulation of a process: what
 * the test starts, itself before all (Criterion runs each test in a process of its own), has to run
 * under qemu as well, and the kernel does not know that. $QEMU_LD_PREFIX has the libraries.
 */

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGUMENTS_MAX   256
#define ENVIRONMENT_MAX 1024

static int is_emulated(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = -1;
	Elf64_Ehdr header;

	if (fd >= 0) {
		n = read(fd, &header, sizeof(header));
		close(fd);
	}
	return n == (ssize_t)sizeof(header) && memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
	       header.e_machine == EM_AARCH64;
}

int execve(const char *path, char *const arguments[], char *const environment[])
{
	int (*next)(const char *, char *const *, char *const *);
	char own[4096] = "", preloaded[4096] = "";
	char qemu[] = "qemu-aarch64", set[] = "-E", name[] = "-0";
	char *all[ARGUMENTS_MAX] = {qemu, set, preloaded, name, arguments[0], own};
	char *emulators[ENVIRONMENT_MAX] = {NULL};
	size_t n = 6, n_emulators = 0;

	*(void **)&next = dlsym(RTLD_NEXT, "execve");
	if (strcmp(path, "/proc/self/exe") != 0)
		snprintf(own, sizeof(own), "%s", path);
	else if (readlink(path, own, sizeof(own) - 1) < 0)
		return -1;
	if (!is_emulated(own))
		return next(path, arguments, environment);
	/* the emulator is of this machine, so it cannot be preloaded itself */
	snprintf(preloaded, sizeof(preloaded), "LD_PRELOAD=%s", getenv("SHARE_UNDER_QEMU"));
	for (char *const *e = environment; *e && n_emulators < ENVIRONMENT_MAX - 1; e++)
		if (strncmp(*e, "LD_PRELOAD=", strlen("LD_PRELOAD=")) != 0)
			emulators[n_emulators++] = *e;
	for (char *const *a = arguments + 1; *a && n < ARGUMENTS_MAX - 1; a++)
		all[n++] = *a;
	return next("/usr/bin/qemu-aarch64", all, emulators);
}
