/* SPDX-License-Identifier: MIT */

/* What is left to do in a process that has given everything up, and what is not. */

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "base/system/process.h"
#include "broker/life/confine.h"

static void start(void)
{
	const char *what = "";
	int r = confine(&what);

	cr_assert_eq(r, 0, "cannot %s: %s", what, strerror(-r));
}

TestSuite(confine, .init = start, .timeout = 60);
TestSuite(confine_in_a_filter, .timeout = 60);

static bool is_confined(void)
{
	if (PROCESS_IS_INSTRUMENTED)
		cr_skip_test("sanitizers attach to their own process");
	return true;
}

/* "CapEff:\t0000000000000000", of this process. */
static void status(const char *key, char *out, size_t size)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];

	cr_assert_not_null(f);
	out[0] = '\0';
	while (fgets(line, sizeof(line), f))
		if (strncmp(line, key, strlen(key)) == 0)
			snprintf(out, size, "%s", line + strlen(key) + 2);
	fclose(f);
	out[strcspn(out, "\n")] = '\0';
}

Test(confine, no_capability_is_left_nor_to_be_had)
{
	static const char *const sets[] = {"CapInh", "CapPrm", "CapEff", "CapAmb"};
	char value[64];

	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
		status(sets[i], value, sizeof(value));
		cr_assert_str_eq(value, "0000000000000000", "%s", sets[i]);
	}
	status("NoNewPrivs", value, sizeof(value));
	cr_assert_str_eq(value, "1");
	if (geteuid() == 0) {
		status("CapBnd", value, sizeof(value));
		cr_assert_str_eq(value, "0000000000000000");
	}
}

Test(confine, nobody_looks_into_it)
{
	cr_assert(is_confined());
	cr_assert_eq(prctl(PR_GET_DUMPABLE), 0);
}

#define expect_failing(call, wanted)                                           \
	do {                                                                   \
		errno = 0;                                                     \
		cr_assert_eq((long)(call), -1, "%s", #call);                   \
		cr_assert_eq(errno, wanted, "%s: %s", #call, strerror(errno)); \
	} while (0)
#define expect_refused(call) expect_failing(call, EPERM)

/* None of these takes a capability as it is called here. */
Test(confine, what_it_has_no_use_for_is_refused)
{
	char data[16];

	cr_assert(is_confined());
	expect_refused(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
	expect_refused(syscall(SYS_io_uring_setup, 1, data));
	expect_refused(syscall(SYS_keyctl, 0, 0, 0, 0, 0));
	expect_refused(syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0));
	expect_refused(syscall(SYS_userfaultfd, 1));
	expect_refused(syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
	expect_refused(syscall(SYS_pidfd_getfd, -1, 0, 0));
	expect_refused(syscall(SYS_bpf, 0, NULL, 0));
	expect_refused(unshare(0));
	expect_refused(syscall(SYS_setuid, getuid()));
}

/* The C library tries what is new first, and the old after ENOSYS alone. */
Test(confine, what_is_newer_than_it_is_not_there)
{
	cr_assert(is_confined());
	for (long number = 500; number < 600; number++)
		expect_failing(syscall(number, -1, -1, -1, -1, -1, -1), ENOSYS);
	expect_failing(syscall(0xffff), ENOSYS);
	expect_failing(syscall(SYS_getpid | 0x40000000), ENOSYS); /* x32 */
}

Test(confine, sockets_are_for_this_machine)
{
	static const int families[] = {AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_ALG, AF_VSOCK};
	int ends[2];

	cr_assert(is_confined());
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
		cr_assert_eq(socket(families[i], SOCK_DGRAM, 0), -1, "%d", families[i]);
		cr_assert_eq(errno, EAFNOSUPPORT);
	}
	cr_assert_geq(socket(AF_UNIX, SOCK_SEQPACKET, 0), 0);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
}

static void *nothing(void *data)
{
	return data;
}

/* Threads, files, memory, and other programs, which have the same left. */
Test(confine, it_works_on)
{
	pthread_t thread;
	int status_of_child, fd = (int)syscall(SYS_memfd_create, "m", 0);
	pid_t pid;

	cr_assert(fd >= 0 && ftruncate(fd, 4096) == 0);
	cr_assert(open("/dev/null", O_RDWR) >= 0);
	cr_assert(pthread_create(&thread, NULL, nothing, NULL) == 0);
	cr_assert(pthread_join(thread, NULL) == 0);
	pid = fork();
	if (pid == 0) {
		execl(
		    "/bin/sh", "sh", "-c",
		    "test -r /proc/self/status && ! grep -q '^CapEff:.*[1-9a-f]' /proc/self/status",
		    (char *)NULL);
		_exit(127);
	}
	cr_assert(waitpid(pid, &status_of_child, 0) == pid);
	cr_assert_eq(status_of_child, 0);
}

/* Who starts it has a filter already, and not every such filter has seccomp(2) on its list: that of
 * the unit has not. */
Test(confine_in_a_filter, filters_add_up)
{
	struct sock_filter filter[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_seccomp, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	cr_assert(is_confined());
	cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	cr_assert_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0), 0);
	start();
	expect_refused(unshare(0));
	expect_refused(syscall(SYS_keyctl, 0, 0, 0, 0, 0));
}
