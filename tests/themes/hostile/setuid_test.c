/* SPDX-License-Identifier: MIT */

/*
 * Programs that have more rights than who has started them, for which the environment is a
 * stranger's. Each test runs the same program twice as the same user, as it is and setuid: what
 * moves the one must not move the other.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/fixture.h"

#define ALICE 4711 /* starts it */
#define BOB   4712 /* owns it */

static char directory[256], program[300], runtime[300], spy[300], seen[300];

static void copy(const char *original, const char *path)
{
	int from = open(original, O_RDONLY | O_CLOEXEC);
	int to = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
	struct stat st;
	ssize_t n = 1;

	check(from >= 0 && to >= 0 && fstat(from, &st) == 0);
	while (n > 0)
		n = sendfile(to, from, NULL, (size_t)st.st_size);
	check(n == 0);
	close(from);
	close(to);
}

static void start(void)
{
	char path[400];
	FILE *f;

	fixture_start();
	if (geteuid() != 0)
		return;
	snprintf(directory, sizeof(directory), "%s/share-setuid-XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	check(mkdtemp(directory) != NULL && chmod(directory, 0755) == 0);
	snprintf(program, sizeof(program), "%s/program", directory);
	copy(SETUID_PROGRAM, program);
	check(chown(program, BOB, BOB) == 0);

	/* a place for $XDG_RUNTIME_DIR in which the fixture's broker serves */
	snprintf(runtime, sizeof(runtime), "%s/run", directory);
	snprintf(path, sizeof(path), "%s/share", runtime);
	check(mkdir(runtime, 0755) == 0 && mkdir(path, 0755) == 0);
	snprintf(path, sizeof(path), "%s/share/broker.sock", runtime);
	check(symlink(broker_socket(), path) == 0);

	/* a "broker" that leaves a trace of having run */
	snprintf(seen, sizeof(seen), "%s/seen", directory);
	check(mkdir(seen, 0777) == 0 && chmod(seen, 0777) == 0);
	snprintf(spy, sizeof(spy), "%s/spy", directory);
	f = fopen(spy, "w");
	check(f != NULL);
	fprintf(f, "#!/bin/sh\n: >%s/it\n", seen);
	fclose(f);
	check(chmod(spy, 0755) == 0);
}

static void stop(void)
{
	char command[300];

	if (directory[0]) {
		snprintf(command, sizeof(command), "rm -rf %s", directory);
		check(system(command) == 0);
	}
	fixture_stop();
}

TestSuite(setuid, .init = start, .fini = stop, .timeout = 60);

struct job {
	const char *variable, *value, *address;
	const char *out;
};

static void run(struct child *self, void *data)
{
	struct job *job = data;
	int out = open(job->out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	(void)self;
	child_become(ALICE, 0);
	unsetenv("SHARE_SOCKET");
	unsetenv("XDG_RUNTIME_DIR");
	setenv(job->variable, job->value, 1);
	check(dup2(out, STDOUT_FILENO) >= 0);
	execl(program, "program", job->address, NULL);
	check_failed(__FILE__, __LINE__, "%s cannot be run: %s", program, strerror(errno));
}

/* What the program says as Alice starts it with this in the environment. */
static const char *says(bool setuid, const char *variable, const char *value, const char *address)
{
	static char line[2048];
	char path[400];
	struct job job = {variable, value, address, path};
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/said", directory);
	check(chmod(program, setuid ? 04755 : 0755) == 0);
	check_eq(child_status(child_start(run, &job)), 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = read(fd, line, sizeof(line) - 1);
	check(n > 0);
	close(fd);
	line[n] = '\0';
	if (setuid && strncmp(line, "secure=0", 8) == 0)
		cr_skip_test("setuid programs are not run as their owner here (nosuid)");
	check_eq(strncmp(line, setuid ? "secure=1 " : "secure=0 ", 9), 0);
	return line + 9;
}

static bool is_connected_here(const char *said)
{
	return strncmp(said, "connected ", 10) == 0 &&
	       strcmp(said, "connected /run/share/broker.sock\n") != 0;
}

Test(setuid, another_broker_is_not_named_by_the_environment)
{
	skip_unless_root();
	check(is_connected_here(says(false, "SHARE_SOCKET", broker_socket(), NULL)));
	check(!is_connected_here(says(true, "SHARE_SOCKET", broker_socket(), NULL)));
}

Test(setuid, nor_found_where_the_environment_says)
{
	skip_unless_root();
	check(is_connected_here(says(false, "XDG_RUNTIME_DIR", runtime, NULL)));
	check(!is_connected_here(says(true, "XDG_RUNTIME_DIR", runtime, NULL)));
}

Test(setuid, no_program_of_the_environment_is_run)
{
	char trace[400];

	skip_unless_root();
	snprintf(trace, sizeof(trace), "%s/it", seen);
	says(false, "SHARE_BROKER", spy, "embedded");
	check(access(trace, F_OK) == 0 && unlink(trace) == 0);
	says(true, "SHARE_BROKER", spy, "embedded");
	check(access(trace, F_OK) != 0);
}

#ifdef SETUID_PROFILER

/* What NVTX loads is a library that the program has not linked, so the dynamic linker's own care of
 * such programs does not help: NVTX itself must not be come to. */
Test(setuid, no_profiler_of_the_environment_is_loaded)
{
	char trace[400], profiler[400];

	skip_unless_root();
	snprintf(profiler, sizeof(profiler), "%s/profiler", directory);
	copy(SETUID_PROFILER, profiler);
	check(chmod(profiler, 0755) == 0);
	snprintf(trace, sizeof(trace), "%s/it", seen);
	check(setenv("SHARE_TEST_RANGES", trace, 1) == 0);
	says(false, "NVTX_INJECTION64_PATH", profiler, broker_socket());
	check(access(trace, F_OK) == 0 && unlink(trace) == 0);
	says(true, "NVTX_INJECTION64_PATH", profiler, broker_socket());
	check(access(trace, F_OK) != 0);
}

#endif

Test(setuid, a_private_broker_is_refused_and_it_is_said_why)
{
	const char *said;

	skip_unless_root();
	said = says(true, "SHARE_BROKER", spy, "embedded");
	check(strncmp(said, "SHARE_EACCES ", 13) == 0);
	check(strstr(said, "setuid") != NULL);
}

Test(setuid, the_broker_that_the_program_itself_names_is_used)
{
	skip_unless_root();
	check(is_connected_here(says(true, "SHARE_SOCKET", "/nowhere", broker_socket())));
}
