/* SPDX-License-Identifier: MIT */

#include "broker/keeper/process/deputy.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/process.h"
#include "broker/keeper/silence.h"

/* A deputy's stack is as large as that of any process, as a deputy that has become the keeper forks
 * brokers, and each of them runs on a copy of it. */
#define STACK_SIZE (8 * 1024 * 1024)
/* The part at the end of a stack that may not be used, so that a stack that grows too large does
 * not reach what the keeper knows, which lies below. It is a multiple of the size of a page,
 * whatever that is on a machine. */
#define GUARD_SIZE (64 * 1024)

/* One stack is the deputy's. The other one, if it is used at all, is that of a deputy that has
 * become the keeper. A process has both from its start, so that no memory is needed for the next
 * deputy. Where there is no deputy they are small, as LeakSanitizer reads all of them when a
 * process ends. */
static char stacks[2][PROCESS_IS_INSTRUMENTED ? GUARD_SIZE : STACK_SIZE]
    __attribute__((aligned(GUARD_SIZE)));
static unsigned next_stack;

static struct deputy_watch watch;

/* Makes a system call. As long as the keeper lives, its deputy changes nothing that the two have in
 * common. So the calls that it makes open and close nothing, and it makes them without the C
 * library, which would set errno. Returns negative errno if the call fails. */
static long raw_call(long number, long a, long b, long c, long d)
{
#if defined(__x86_64__)
	register long d_ __asm__("r10") = d;
	register long e_ __asm__("r8") = 0;
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(d_), "r"(e_)
			 : "rcx", "r11", "memory");
	return r;
#elif defined(__aarch64__)
	register long number_ __asm__("x8") = number;
	register long a_ __asm__("x0") = a;
	register long b_ __asm__("x1") = b;
	register long c_ __asm__("x2") = c;
	register long d_ __asm__("x3") = d;
	register long e_ __asm__("x4") = 0;

	__asm__ volatile("svc 0"
			 : "+r"(a_)
			 : "r"(number_), "r"(b_), "r"(c_), "r"(d_), "r"(e_)
			 : "memory");
	return a_;
#else
	long r = syscall(number, a, b, c, d, 0);

	return r < 0 ? -errno : r;
#endif
}

/* Waits until the keeper is dead, for @ms at most, and returns whether it is. */
static int is_dead(unsigned ms)
{
	struct pollfd dead = {watch.pidfd, POLLIN, 0};
	const struct timespec limit = {ms / 1000, (long)(ms % 1000) * 1000000};

	raw_call(SYS_ppoll, (long)&dead, 1, (long)&limit, 0);
	return dead.revents & POLLIN;
}

enum judgement { LET_IT_BE = 1, REPORTED, KILLED };

/* Decides whether a keeper that hangs is to be killed, and kills it then. To find out what it is
 * doing takes descriptors, and to log that takes the C library. So a process of its own does this,
 * which has copies of both. */
static void judge(struct silence *s, unsigned hang_ms)
{
	int status = 0;
	long pid = raw_call(SYS_clone, SIGCHLD, 0, 0, 0);

	if (pid == 0) {
		enum judgement j = LET_IT_BE;

		if (silence_is_fatal(s, "keeper", watch.keeper, hang_ms)) {
			raw_call(SYS_pidfd_send_signal, watch.pidfd, SIGKILL, 0, 0);
			j = KILLED;
		} else if (s->is_reported)
			j = REPORTED;
		raw_call(SYS_exit_group, j, 0, 0, 0);
	}
	if (pid > 0)
		raw_call(SYS_wait4, pid, (long)&status, 0, 0);
	s->is_reported = status >> 8 == REPORTED;
	s->looks = 0;
}

static int stand_by(void *nothing)
{
	struct silence silence;
	unsigned hang_ms;

	(void)nothing;
	silence_begin(&silence, atomic_load(watch.beat), clock_ms());
	do {
		hang_ms = atomic_load(watch.hang_ms);
		if (silence_look(&silence, atomic_load(watch.beat), hang_ms, clock_ms()))
			judge(&silence, hang_ms);
	} while (!is_dead(silence_left_ms(&silence, hang_ms, clock_ms())));
	next_stack = !next_stack;
	watch.go_on();
	return 0;
}

pid_t deputy_start(const struct deputy_watch *w)
{
	pid_t pid;

	if (PROCESS_IS_INSTRUMENTED)
		return -ENOTSUP;
	watch = *w;
	mprotect(stacks[next_stack], GUARD_SIZE, PROT_NONE);
	pid = clone(stand_by, stacks[next_stack] + STACK_SIZE,
		    CLONE_VM | CLONE_FILES | CLONE_FS | SIGCHLD, NULL);
	return pid < 0 ? -errno : pid;
}
