/* SPDX-License-Identifier: MIT */

/*
 * The broker when it is out of memory, or the system says no, before it serves anybody or while it
 * ends: it either runs and ends as it should, or says what is wrong and ends with an exit code, and
 * leaves nothing behind in the file system.
 *
 * Each broker ends as soon as it would serve, as nobody holds its lifeline.
 */

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "tests/harness/plan.h"
#include "tests/themes/failure/failing.h"

#define HANG_S 60 /* ends a broker that hangs: no other meaning */
#define STEP   4  /* from one failure to the next, without SHARE_TEST_FULL=1 */

static char directory[] = "/tmp/share-start-XXXXXX";
static char config[64], socket_path[64], lock_path[80];
static struct failing_plan *plan;
static int log_file, lifeline;
static int without_pidfds; /* what pidfd_open() says to a broker, where it is not 0 */

/* Something of everything that a configuration can say. */
static const char text[] =
    "{\"admins\": [\"root\", 4711], \"create_pools\": [\"*\", \"@root\"],"
    " \"socket_mode\": \"0600\", \"limits\": {\"names\": 4, \"bytes\": \"8GiB\"},"
    " \"users\": {\"root\": {\"limits\": {\"names\": 8}}, \"4711\": {\"limits\": {}}},"
    " \"pools\": [{\"name\": \"default\", \"limit\": \"64MiB\"},"
    "  {\"name\": \"frames\", \"kind\": \"host\", \"limit\": \"64MiB\", \"segment_size\": \"1MiB\","
    "   \"reuse\": \"scrub\", \"access\": [{\"user\": \"root\", \"mode\": \"rw\"},"
    "   {\"group\": \"root\", \"mode\": \"ro\"}, {\"user\": \"*\", \"mode\": \"ro\"}]},"
    "  {\"name\": \"gpu\", \"kind\": \"vmm\","
    "   \"device\": \"GPU-00000000-0000-0000-0000-000000000000\"}]}";

static void prepare(void)
{
	int pipe_ends[2];
	FILE *f;

	cr_assert(mkdtemp(directory));
	snprintf(config, sizeof(config), "%s/broker.json", directory);
	snprintf(socket_path, sizeof(socket_path), "%s/broker.sock", directory);
	snprintf(lock_path, sizeof(lock_path), "%s.lock", socket_path);
	f = fopen(config, "we");
	cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
	plan = plan_new(FAILING_PLAN_VARIABLE, sizeof(*plan));
	log_file = memfd_create("log", MFD_CLOEXEC);
	cr_assert(log_file >= 0 && pipe2(pipe_ends, O_CLOEXEC) == 0);
	close(pipe_ends[1]);
	lifeline = pipe_ends[0];
}

static void tidy(void)
{
	unlink(config);
	unlink(lock_path); /* stays, as the next broker's lock */
	cr_assert_eq(rmdir(directory), 0, "something was left in %s", directory);
}

TestSuite(broker_start_failure, .init = prepare, .fini = tidy, .timeout = 3600);

/* As a kernel before Linux 5.3, or a container that does not know the call. */
static void refuse_pidfds(void)
{
	struct sock_filter filter[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)without_pidfds),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog program = {sizeof(filter) / sizeof(*filter), filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		_exit(126);
}

static void __attribute__((noreturn)) become_broker(void)
{
	char fd[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(HANG_S);
	dup2(log_file, STDERR_FILENO);
	fcntl(lifeline, F_SETFD, 0);
	snprintf(fd, sizeof(fd), "%d", lifeline);
	if (without_pidfds)
		refuse_pidfds();
	execl(FAILING_BROKER, FAILING_BROKER, "--config", config, "--socket", socket_path,
	      "--lifeline-fd", fd, (char *)NULL);
	_exit(127);
}

/* Returns its exit code. */
static int run_once(unsigned what, int error, unsigned long nth, char *said, size_t size)
{
	ssize_t n;
	int status;
	pid_t pid;

	cr_assert(ftruncate(log_file, 0) == 0 && lseek(log_file, 0, SEEK_SET) == 0);
	failing_plan_set(plan, what, nth, error, false);
	pid = fork();
	cr_assert(pid >= 0);
	if (pid == 0)
		become_broker();
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	n = pread(log_file, said, size - 1, 0);
	said[n > 0 ? n : 0] = '\0';
	cr_assert(WIFEXITED(status), "with call %lu failing: wait status 0x%x, having said: %s",
		  nth, (unsigned)status, said);
	return WEXITSTATUS(status);
}

/* Returns how many calls there were. */
static unsigned long fail_one_after_the_other(unsigned what, int error)
{
	const char *full = getenv("SHARE_TEST_FULL");
	unsigned long nth = 1, step = full && *full == '1' ? 1 : STEP;
	char said[16384];
	int code;

	for (;; nth += step) {
		code = run_once(what, error, nth, said, sizeof(said));
		cr_assert(code <= 2, "with call %lu failing: exit code %d, having said: %s", nth,
			  code, said);
		cr_assert(!strstr(said, "BUG:") && !strstr(said, "Sanitizer") &&
			      !strstr(said, "runtime error"),
			  "with call %lu failing: %s", nth, said);
		cr_assert(code == 0 || strstr(said, "error: "),
			  "with call %lu failing it ended with %d and no word: %s", nth, code,
			  said);
		cr_assert(access(socket_path, F_OK) < 0, "with call %lu failing it left its socket",
			  nth);
		if (plan->count < nth)
			break;
	}
	cr_assert_eq(code, 0, "without a failure: %s", said);
	return plan->count;
}

Test(broker_start_failure, any_allocation)
{
	cr_assert(fail_one_after_the_other(FAILING_MEMORY, ENOMEM) > 50);
}

Test(broker_start_failure, any_descriptor)
{
	cr_assert(fail_one_after_the_other(FAILING_OPEN | FAILING_SOCKET, EMFILE) >= 3);
}

Test(broker_start_failure, any_event_of_the_loop)
{
	cr_assert(fail_one_after_the_other(FAILING_EVENT, ENOMEM) >= 4);
}

/* It says so once, and does not go on forking brokers that cannot begin. */
Test(broker_start_failure, descriptors_of_processes_that_there_are_not)
{
	static const int errors[] = {ENOSYS, EPERM};
	char said[16384], *word;

	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
		without_pidfds = errors[i];
		cr_assert_eq(run_once(0, 0, 1, said, sizeof(said)), 1, "having said: %s", said);
		word = strstr(said, strerror(errors[i]));
		cr_assert(word && !strstr(word + 1, "error: "), "having said: %s", said);
		cr_assert(access(socket_path, F_OK) < 0, "it left its socket");
	}
}
