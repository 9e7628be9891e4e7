/* SPDX-License-Identifier: MIT */

#include "broker/keeper/process/module.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/system/file.h"

int module_open(const char *path)
{
	if (KEEPER_MAIN_SYMBOL) /* any descriptor does, as nothing is read from it */
		path = "/proc/self/exe";
	return file_open(path);
}

static bool is_there(int fd, const char *path)
{
	struct stat open_one, named;

	return fstat(fd, &open_one) == 0 && stat(path, &named) == 0 &&
	       open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

/* Loads a module by its name, if that still leads to the file that is open: what the module needs
 * may lie beside it ($ORIGIN). The name may lead to another file, as a package puts a new file in
 * the place of an old one. That may happen between the look at the name and the loading, too, so
 * there is another look afterwards. */
static void *load(int fd, const char *path)
{
	void *module;
	char by_number[32];

	snprintf(by_number, sizeof(by_number), "/proc/self/fd/%d", fd);
	if (!is_there(fd, path))
		return dlopen(by_number, RTLD_NOW | RTLD_LOCAL);
	module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (is_there(fd, path))
		return module;
	if (module)
		dlclose(module);
	return dlopen(by_number, RTLD_NOW | RTLD_LOCAL);
}

keeper_main *module_load(int fd, const char *path)
{
	void *module, *symbol = NULL;
	keeper_main *program;

	if (KEEPER_MAIN_SYMBOL)
		return KEEPER_MAIN_SYMBOL;
	module = load(fd, path);
	if (!module) {
		fprintf(stderr, "share-broker: error: %s\n", dlerror());
		return NULL;
	}
	symbol = dlsym(module, KEEPER_MAIN);
	if (!symbol)
		fprintf(stderr,
			"share-broker: error: this program is not for the keeper that runs (it has "
			"no " KEEPER_MAIN "): it takes a restart\n");
	/* POSIX lets a pointer to data be one to code */
	memcpy(&program, &symbol, sizeof(program));
	return program;
}
