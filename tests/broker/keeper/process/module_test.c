/* SPDX-License-Identifier: MIT */

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system/descriptor.h"
#include "broker/keeper/process/module.h"

static char folder[64], path[96];
static const char *comes; /* in the place of the file, right before it is loaded */

/* As a package does: a new file gets the name of the old one. */
static void put(const char *file)
{
	char bytes[65536], other[128];
	int in = open(file, O_RDONLY | O_CLOEXEC), out;
	ssize_t n;

	snprintf(other, sizeof(other), "%s.new", path);
	out = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	cr_assert(in >= 0 && out >= 0);
	while ((n = read(in, bytes, sizeof(bytes))) > 0)
		cr_assert(write(out, bytes, (size_t)n) == n);
	cr_assert(n == 0 && close(in) == 0 && close(out) == 0 && rename(other, path) == 0);
}

void *__real_dlopen(const char *file, int flags);
void *__wrap_dlopen(const char *file, int flags);
void *__wrap_dlopen(const char *file, int flags)
{
	if (comes)
		put(comes);
	comes = NULL;
	return __real_dlopen(file, flags);
}

static void setup(void)
{
	strcpy(folder, "/tmp/share-module-XXXXXX");
	cr_assert(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/share-broker.so", folder);
	put(FIRST_MODULE);
}

static void teardown(void)
{
	unlink(path);
	rmdir(folder);
}

TestSuite(module, .init = setup, .fini = teardown, .timeout = 20);

static void expect_first(const char *after, const char *meanwhile, const char *name)
{
	_cleanup_fd_ int fd = module_open(path);
	keeper_main *program;
	Dl_info loaded;
	void *symbol;

	cr_assert(fd >= 0);
	if (after)
		put(after);
	comes = meanwhile;
	program = module_load(fd, path);
	cr_assert(program);
	cr_assert_eq(program(NULL, 0, NULL), 1);
	memcpy(&symbol, &program, sizeof(symbol));
	cr_assert(dladdr(symbol, &loaded));
	cr_assert(strstr(loaded.dli_fname, name));
}

/* What it needs may lie beside it. */
Test(module, is_loaded_by_its_name)
{
	expect_first(NULL, NULL, path);
}

Test(module, that_was_opened_is_loaded_though_another_has_its_name)
{
	expect_first(SECOND_MODULE, NULL, "/proc/self/fd/");
}

Test(module, that_was_opened_is_loaded_though_another_takes_its_name_meanwhile)
{
	expect_first(NULL, SECOND_MODULE, "/proc/self/fd/");
}

Test(module, of_a_name_that_is_gone_is_loaded)
{
	_cleanup_fd_ int fd = module_open(path);
	keeper_main *program;

	cr_assert(fd >= 0 && unlink(path) == 0);
	program = module_load(fd, path);
	cr_assert(program);
	cr_assert_eq(program(NULL, 0, NULL), 1);
}
