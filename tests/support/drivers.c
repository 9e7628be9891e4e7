/* SPDX-License-Identifier: MIT */

#include "tests/support/drivers.h"

#include "tests/harness/check.h"

static char faults_file[] = "/tmp/share-faults-XXXXXX", calls_file[] = "/tmp/share-calls-XXXXXX";

struct standin_calls *drivers_calls;

static void make_file(char *path)
{
	int fd = mkostemp(path, O_CLOEXEC);

	check(fd >= 0);
	close(fd);
}

void drivers_prepare(void)
{
	make_file(faults_file);
	make_file(calls_file);
	drivers_calls = standin_calls_open(calls_file);
	check(drivers_calls);
	setenv("SHARE_STANDIN_FAULTS", faults_file, 1);
	setenv("SHARE_STANDIN_CALLS", calls_file, 1);
}

void drivers_done(void)
{
	/* who starts later would make them again */
	unsetenv("SHARE_STANDIN_FAULTS");
	unsetenv("SHARE_STANDIN_CALLS");
	unlink(faults_file);
	unlink(calls_file);
}

void drivers_do(const char *faults)
{
	int fd = open(faults_file, O_WRONLY | O_TRUNC | O_CLOEXEC);

	check(fd >= 0 && write(fd, faults, strlen(faults)) == (ssize_t)strlen(faults));
	close(fd);
}
