/* SPDX-License-Identifier: MIT */

/*
 * What a broker gives up before it serves, whoever has started it. It holds the memory of all its
 * clients and reads what each of them sends. Whoever finds a way to make it do something else is to
 * find little that it can do.
 *
 * Capabilities: it has none, though it may be root, and gets none by executing something. The
 * kernel says who connects, and descriptors hand memory on: neither needs a capability.
 *
 * Looking into it: it is not dumpable. No other process of its user attaches to it or takes its
 * descriptors (ptrace(2), pidfd_getfd(2)), and it leaves no core with everybody's memory in it.
 *
 * System calls: it may make those of the list, and sockets of AF_UNIX. Others fail with EPERM, as
 * in the unit of systemd, whose list is longer. A call that is younger than all of the list fails
 * with ENOSYS, as on a kernel that does not have it: only then does a C library or a driver that
 * has tried a new call go on with the old one. The agents inherit this, so the list also has what a
 * driver of a GPU needs.
 *
 * The filter is written out here and takes no library: there is one condition beside the list, and
 * wheels would have to bring the library along. A sanitizer that looks for leaks attaches to its
 * own process; a broker with one gives up capabilities alone.
 */

#include "broker/life/confine.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/system/process.h"

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

static int drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

	/* only a process that has CAP_SETPCAP may do this, and only that needs to */
	for (unsigned long c = 0; prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
		prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &header, none) < 0)
		return -errno;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

#ifdef ARCHITECTURE

/* The calls that the broker makes all the time come first; those that headers of an older kernel do
 * not have come last. */
#define CALL(name) SYS_##name
static const uint16_t allowed[] = {
    CALL(recvmmsg),
    CALL(recvmsg),
    CALL(sendmsg),
    CALL(sendto),
    CALL(clock_gettime),
    CALL(futex),
#ifdef __x86_64__ /* calls that younger architectures do without */
    CALL(epoll_wait),
    CALL(access),
    CALL(arch_prctl),
    CALL(chmod),
    CALL(dup2),
    CALL(epoll_create),
    CALL(eventfd),
    CALL(fork),
    CALL(getdents),
    CALL(getpgrp),
    CALL(inotify_init),
    CALL(lstat),
    CALL(mkdir),
    CALL(open),
    CALL(pause),
    CALL(pipe),
    CALL(poll),
    CALL(readlink),
    CALL(rename),
    CALL(rmdir),
    CALL(select),
    CALL(signalfd),
    CALL(stat),
    CALL(time),
    CALL(unlink),
    CALL(vfork),
#endif
    CALL(accept),
    CALL(accept4),
    CALL(bind),
    CALL(brk),
    CALL(chdir),
    CALL(clock_getres),
    CALL(clock_nanosleep),
    CALL(clone),
    CALL(clone3),
    CALL(close),
    CALL(close_range),
    CALL(connect),
    CALL(dup),
    CALL(dup3),
    CALL(epoll_create1),
    CALL(epoll_ctl),
    CALL(epoll_pwait),
    CALL(eventfd2),
    CALL(execve),
    CALL(execveat),
    CALL(exit),
    CALL(exit_group),
    CALL(faccessat),
    CALL(faccessat2),
    CALL(fadvise64),
    CALL(fallocate),
    CALL(fchmod),
    CALL(fchmodat),
    CALL(fcntl),
    CALL(fdatasync),
    CALL(flock),
    CALL(fstat),
    CALL(fstatfs),
    CALL(fsync),
    CALL(ftruncate),
    CALL(get_mempolicy),
    CALL(get_robust_list),
    CALL(getcpu),
    CALL(getcwd),
    CALL(getdents64),
    CALL(getegid),
    CALL(geteuid),
    CALL(getgid),
    CALL(getgroups),
    CALL(getpeername),
    CALL(getpgid),
    CALL(getpid),
    CALL(getppid),
    CALL(getpriority),
    CALL(getrandom),
    CALL(getresgid),
    CALL(getresuid),
    CALL(getrlimit),
    CALL(getrusage),
    CALL(getsid),
    CALL(getsockname),
    CALL(getsockopt),
    CALL(gettid),
    CALL(gettimeofday),
    CALL(getuid),
    CALL(inotify_add_watch),
    CALL(inotify_init1),
    CALL(inotify_rm_watch),
    CALL(ioctl),
    CALL(kill),
    CALL(listen),
    CALL(lseek),
    CALL(madvise),
    CALL(mbind),
    CALL(membarrier),
    CALL(memfd_create),
    CALL(mkdirat),
    CALL(mlock),
    CALL(mlock2),
    CALL(mmap),
    CALL(move_pages),
    CALL(mprotect),
    CALL(mremap),
    CALL(msync),
    CALL(munlock),
    CALL(munmap),
    CALL(nanosleep),
    CALL(newfstatat),
    CALL(openat),
    CALL(openat2),
    CALL(pidfd_open),
    CALL(pidfd_send_signal),
    CALL(pipe2),
    CALL(ppoll),
    CALL(prctl),
    CALL(pread64),
    CALL(preadv),
    CALL(preadv2),
    CALL(prlimit64),
    CALL(pselect6),
    CALL(pwrite64),
    CALL(pwritev),
    CALL(pwritev2),
    CALL(read),
    CALL(readlinkat),
    CALL(readv),
    CALL(recvfrom),
    CALL(renameat),
    CALL(renameat2),
    CALL(restart_syscall),
    CALL(rseq),
    CALL(rt_sigaction),
    CALL(rt_sigpending),
    CALL(rt_sigprocmask),
    CALL(rt_sigreturn),
    CALL(rt_sigsuspend),
    CALL(rt_sigtimedwait),
    CALL(sched_get_priority_max),
    CALL(sched_get_priority_min),
    CALL(sched_getaffinity),
    CALL(sched_getattr),
    CALL(sched_getparam),
    CALL(sched_getscheduler),
    CALL(sched_rr_get_interval),
    CALL(sched_setaffinity),
    CALL(sched_setparam),
    CALL(sched_setscheduler),
    CALL(sched_yield),
    CALL(sendfile),
    CALL(sendmmsg),
    CALL(set_mempolicy),
    CALL(set_robust_list),
    CALL(set_tid_address),
    CALL(setpgid),
    CALL(setrlimit),
    CALL(setsid),
    CALL(setsockopt),
    CALL(shutdown),
    CALL(sigaltstack),
    CALL(signalfd4),
    CALL(socket),
    CALL(socketpair),
    CALL(statfs),
    CALL(statx),
    CALL(sysinfo),
    CALL(tgkill),
    CALL(timer_create),
    CALL(timer_delete),
    CALL(timer_getoverrun),
    CALL(timer_gettime),
    CALL(timer_settime),
    CALL(timerfd_create),
    CALL(timerfd_gettime),
    CALL(timerfd_settime),
    CALL(times),
    CALL(tkill),
    CALL(truncate),
    CALL(umask),
    CALL(uname),
    CALL(unlinkat),
    CALL(wait4),
    CALL(waitid),
    CALL(write),
    CALL(writev),
#ifdef SYS_epoll_pwait2
    CALL(epoll_pwait2),
#endif
#ifdef SYS_fchmodat2
    CALL(fchmodat2),
#endif
#ifdef SYS_futex_waitv
    CALL(futex_waitv),
#endif
#ifdef SYS_process_madvise
    CALL(process_madvise),
#endif
};
#undef CALL

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define FIELD(name)   (uint32_t) offsetof(struct seccomp_data, name)

/* The low half of the first argument. Where the filter looks at it, it is an int, and the kernel
 * looks at no more of it. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FIRST_ARGUMENT FIELD(args[0])
#else
#define FIRST_ARGUMENT (FIELD(args[0]) + 4)
#endif

static const struct sock_filter head[] = {
    /* Another architecture has other numbers. That is so for programs of 32 bits, and for the x32
     * ones, whose numbers have a bit that puts them above all of the list. */
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 4),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIRST_ARGUMENT),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
};

static int filter_calls(void)
{
	struct sock_filter filter[LENGTH(head) + 2 * LENGTH(allowed) + 3];
	struct sock_fprog program = {.filter = filter};
	uint32_t youngest = 0; /* calls are numbered in the order in which they came */
	size_t n = LENGTH(head);

	memcpy(filter, head, sizeof(head));
	for (size_t i = 0; i < LENGTH(allowed); i++) {
		filter[n++] =
		    (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
		filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
		if (youngest < allowed[i])
			youngest = allowed[i];
	}
	filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, youngest, 0, 1);
	filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
	filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	program.len = (unsigned short)n;
	/* this is not seccomp(2), as the set of system calls in the unit of systemd leaves that
	 * out */
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0 ? -errno : 0;
}

#else

static int filter_calls(void)
{
	return -ENOSYS;
}

#endif

int confine(const char **what)
{
	int r = drop_capabilities(), e;

	if (r < 0)
		*what = "give up capabilities";
	if (PROCESS_IS_INSTRUMENTED)
		return r;
	e = process_hide();
	if (e < 0) {
		r = e;
		*what = "become undumpable";
	}
	e = filter_calls();
	if (e < 0) {
		r = e;
		*what = "filter system calls";
	}
	return r;
}
