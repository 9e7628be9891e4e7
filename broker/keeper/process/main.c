/* SPDX-License-Identifier: MIT */

/* The program share-broker: it finds the module that is the broker's own program, and becomes its
 * keeper. All arguments are the module's. */

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/system/descriptor.h"
#include "broker/keeper/keeper.h"
#include "broker/log/log.h"

/* Where the folder of modules is, seen from that of programs, when both are installed. */
#ifndef SHARE_MODULES
#define SHARE_MODULES "../lib/share"
#endif

/* Finds the module, which has the program's name with ".so" behind it. It is beside the program, or
 * in the folder where modules are installed. */
static bool find_module(char out[PATH_MAX])
{
	static const char *const places[] = {"", SHARE_MODULES "/"};
	char self[PATH_MAX], copy[PATH_MAX], *name;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return false;
	self[n] = '\0';
	strcpy(copy, self);
	name = basename(copy);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (snprintf(out, PATH_MAX, "%.*s%s%s.so", (int)(strlen(self) - strlen(name)), self,
			     places[i], name) < PATH_MAX &&
		    access(out, R_OK) == 0)
			return true;
	}
	return false;
}

/* Opens /dev/null as stdin, stdout and stderr where one of them is closed. Nothing else may get
 * their numbers: a line of the log would be written to the journal, or to a client. */
static bool open_standard(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	fd_close(fd);
	return fd >= 0;
}

int main(int argc, char **argv)
{
	char module[PATH_MAX];

	if (!open_standard())
		return EXIT_FAILURE;
	if (!KEEPER_MAIN_SYMBOL && !find_module(module)) {
		fprintf(stderr,
			"share-broker: its module share-broker.so is neither beside it nor in "
			"%s there: it is not installed as a whole\n",
			SHARE_MODULES);
		return EXIT_FAILURE;
	}
	log_open();
	return keeper_run(module, argc, argv);
}
