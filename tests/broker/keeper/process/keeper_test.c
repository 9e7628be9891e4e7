/* SPDX-License-Identifier: MIT */

/*
 * A keeper and its brokers, which are functions here: what the keeper has, the next broker has, by
 * its number and once; when no process can be made, it tries again; and a broker that hangs is
 * killed and followed.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "base/system/descriptor.h"
#include "base/system/process.h"
#include "broker/keeper/keeper.h"
#include "broker/log/log.h"

#define PAGE 4096

/* What brokers tell each other, and the test. */
static struct {
	atomic_uint brokers;
	atomic_uint forks;      /* that were tried */
	atomic_uint failures;   /* that are still to fail */
	atomic_uint ends_at;    /* when there were so many, the keeper is told to end */
	atomic_uint polls;      /* of the keeper: at least so often it has looked */
	atomic_uint least_wait; /* of the keeper, in a poll() of three descriptors */
	atomic_uint at_once;    /* so many of those wait for no time at all */
	atomic_uint slow_kills; /* so many of its SIGKILLs do nothing yet */
	atomic_int step;
	uint32_t page, pipe, forgotten;
	char failed[256];
} * shared;

static int descriptors[2];

pid_t __real_fork(void);
pid_t __wrap_fork(void);
pid_t __wrap_fork(void)
{
	if (shared) {
		if (++shared->forks == shared->ends_at)
			kill(getpid(), SIGTERM);
		if (shared->failures > 0) {
			shared->failures--;
			errno = EAGAIN;
			return -1;
		}
	}
	return __real_fork();
}

int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
	if (shared)
		shared->polls++;
	if (shared && n == 3 && (unsigned)ms < shared->least_wait)
		shared->least_wait = (unsigned)ms;
	if (shared && n == 3 && ms == 0)
		shared->at_once++;
	return __real_poll(fds, n, ms);
}

/* One that is killed is not dead at once: the kernel may be busy with it. */
long __real_syscall(long number, long a, long b, long c, long d, long e);
long __wrap_syscall(long number, long a, long b, long c, long d, long e);
long __wrap_syscall(long number, long a, long b, long c, long d, long e)
{
	if (shared && number == SYS_pidfd_send_signal && b == SIGKILL && shared->slow_kills > 0) {
		shared->slow_kills--;
		return 0;
	}
	return __real_syscall(number, a, b, c, d, e);
}

static int output; /* of the keeper */

static void start(void)
{
	setenv("SHARE_DUMPABLE", "1", 1); /* so that one can be traced */
	output = memfd_create("output", MFD_CLOEXEC);
	log_set_level(LOG_LEVEL_ERROR);
	shared =
	    mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert(shared != MAP_FAILED && pipe(descriptors) == 0);
}

static void stop(void)
{
	close(output);
	munmap(shared, sizeof(*shared));
	close(descriptors[0]);
	close(descriptors[1]);
}

TestSuite(keeper, .init = start, .fini = stop, .timeout = 60);

/* In a broker: one that finds something wrong says what, and ends. */
#define expect(condition)                                                                \
	do {                                                                             \
		if (!(condition)) {                                                      \
			strncpy(shared->failed, #condition, sizeof(shared->failed) - 1); \
			_exit(1);                                                        \
		}                                                                        \
	} while (0)

static void __attribute__((noreturn)) die(void)
{
	kill(getpid(), SIGKILL);
	_exit(1);
}

static void (*run_by_brokers)(struct keeper *k);

/* The program of the brokers: this is linked with the keeper, so that it loads no module. */
int KEEPER_MAIN_SYMBOL(struct keeper *k, int argc, char **argv)
{
	(void)argc, (void)argv;
	kept_init(k);
	shared->brokers++;
	run_by_brokers(k);
	_exit(0);
}

static bool has_said(const char *text)
{
	char said[4096];
	ssize_t n = pread(output, said, sizeof(said) - 1, 0);

	said[n > 0 ? n : 0] = '\0';
	return strstr(said, text) != NULL;
}

static const char *terminal_of_keeper; /* NULL: it has that of the test, if any */

/* In a session of its own, in whose foreground it is. */
static void have_terminal(void)
{
	struct termios mode;
	int fd;

	setsid();
	fd = open(terminal_of_keeper, O_RDWR | O_CLOEXEC);
	expect(fd >= 0 && tcgetattr(fd, &mode) == 0);
	mode.c_lflag |= TOSTOP;
	expect(tcsetattr(fd, TCSANOW, &mode) == 0);
	expect(dup2(fd, STDERR_FILENO) == STDERR_FILENO);
}

/* Returns the exit code of a keeper whose brokers run this. */
static int keep(void (*broker)(struct keeper *k))
{
	int status = 0;
	pid_t pid = __real_fork();

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		run_by_brokers = broker;
		if (terminal_of_keeper)
			have_terminal();
		else
			dup2(output, STDERR_FILENO);
		_exit(keeper_run("no module", 0, NULL));
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_str_empty(shared->failed);
	cr_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* ------------------------------------------------------------------------------------------- */

static void keep_three(void)
{
	int page = memfd_create("page", MFD_CLOEXEC), forgotten = memfd_create("", MFD_CLOEXEC);

	expect(page >= 0 && ftruncate(page, PAGE) == 0);
	expect(kept_keep((const int[]){page, descriptors[1]}, (const size_t[]){PAGE, 0}, 2) == 0);
	expect(kept_keep(&forgotten, NULL, 1) == 0);
	shared->page = kept_id(page);
	shared->pipe = kept_id(descriptors[1]);
	shared->forgotten = kept_id(forgotten);
	expect(shared->page && shared->pipe && shared->forgotten);
	/* a descriptor as it is, and a mapping that nobody else can make from now on */
	expect(pwrite(page, "before", 6, 0) == 6);
}

static void take_two(void)
{
	void *address;
	int fd;

	/* not with another size than it has, and each once */
	expect(kept_take_mapped(shared->page, PAGE / 2, &address) < 0);
	expect(kept_take_mapped(shared->pipe, PAGE, &address) < 0);
	fd = kept_take_mapped(shared->page, PAGE, &address);
	expect(fd >= 0 && kept_id(fd) == shared->page);
	expect(memcmp(address, "before", 6) == 0);
	memcpy(address, "after", 6);
	expect(kept_take(shared->page) < 0);
	fd = kept_take(shared->pipe);
	expect(fd >= 0 && write(fd, "x", 1) == 1);
	expect(kept_take(shared->pipe) < 0);
	/* numbers that nothing has */
	expect(kept_take(0) < 0 && kept_take(shared->forgotten + 1) < 0 && kept_take(~0u) < 0);
	expect(kept_look(shared->forgotten) >= 0);
	kept_sweep();
	expect(kept_look(shared->forgotten) < 0 && kept_look(shared->page) >= 0);
}

static void keep_and_take(struct keeper *k)
{
	if (k->generation == 1) {
		keep_three();
		die();
	}
	take_two();
}

Test(keeper, what_it_keeps_the_next_broker_has_once)
{
	char byte;

	cr_assert_eq(keep(keep_and_take), 0);
	cr_assert_eq(shared->brokers, 2);
	cr_assert_eq(read(descriptors[0], &byte, 1), 1);
}

static void let_go(struct keeper *k)
{
	int fd = memfd_create("", MFD_CLOEXEC);

	if (k->generation == 1) {
		expect(kept_keep(&fd, NULL, 1) == 0);
		shared->page = kept_id(fd);
		kept_close(fd);
		expect(kept_waiting() == 1);
		/* what still says so counts until the commit after which this is called */
		expect(kept_look(shared->page) >= 0);
		die();
	}
	if (k->generation == 2) {
		fd = kept_take(shared->page);
		expect(fd >= 0);
		kept_close(fd);
		kept_flush(kept_waiting());
		die();
	}
	expect(kept_look(shared->page) < 0);
}

Test(keeper, it_lets_go_once_that_is_committed_and_not_before)
{
	cr_assert_eq(keep(let_go), 0);
	cr_assert_eq(shared->brokers, 3);
}

static void end_with_7(struct keeper *k)
{
	if (k->generation < 4)
		die();
	_exit(7);
}

Test(keeper, ends_as_a_broker_does_that_ends_by_itself)
{
	cr_assert_eq(keep(end_with_7), 7);
	cr_assert_eq(shared->brokers, 4);
}

#if !PROCESS_IS_INSTRUMENTED /* then the sanitizer says it */
static int *volatile nowhere = (int *)0x10;

static void crash_once(struct keeper *k)
{
	kept_serves();
	if (k->generation == 1)
		*nowhere = 1;
	expect(k->signal == SIGSEGV && !k->hung);
}

Test(keeper, logs_where_a_broker_has_crashed)
{
	cr_assert_eq(keep(crash_once), 0);
	cr_assert_eq(shared->brokers, 2);
	cr_assert(has_said("has crashed: signal 11 (Segmentation fault), address 0x10, at "));
	cr_assert_not(has_said(", at ?"));
}

static void use_up_stack(volatile char *above)
{
	volatile char more[4096];

	more[0] = above[0];
	if (more[0]) /* always, which the compiler does not know */
		use_up_stack(more);
	more[1] = more[0];
}

static void overflow_once(struct keeper *k)
{
	if (k->generation == 1)
		use_up_stack((char[]){1});
}

Test(keeper, logs_where_a_broker_has_crashed_that_had_no_stack_left)
{
	cr_assert_eq(keep(overflow_once), 0);
	cr_assert_eq(shared->brokers, 2);
	cr_assert(has_said("has crashed: signal 11"));
}
#endif

static void crash(struct keeper *k)
{
	(void)k;
	kept_serves();
	signal(SIGABRT, SIG_DFL);
	raise(SIGABRT);
}

Test(keeper, gives_up_when_one_broker_after_the_other_crashes)
{
	cr_assert_eq(keep(crash), 1);
	cr_assert_eq(shared->brokers, 6);
}

static void die_of_a_signal_without_a_name(struct keeper *k)
{
	(void)k;
	kept_serves();
	raise(SIGRTMAX);
}

Test(keeper, says_so_if_brokers_die_of_a_signal_that_has_no_name)
{
	cr_assert_eq(keep(die_of_a_signal_without_a_name), 1);
	cr_assert(has_said("(?): giving up"));
}

static void be_killed_often(struct keeper *k)
{
	kept_serves();
	if (k->generation < 12)
		die();
}

Test(keeper, starts_another_broker_however_often_they_are_killed)
{
	cr_assert_eq(keep(be_killed_often), 0);
	cr_assert_eq(shared->brokers, 12);
}

static void die_once(struct keeper *k)
{
	kept_serves();
	if (shared->brokers == 1) {
		shared->failures = 2;
		die();
	}
	(void)k;
}

Test(keeper, tries_again_when_there_can_be_no_process)
{
	cr_assert_eq(keep(die_once), 0);
	cr_assert_eq(shared->brokers, 2);
	cr_assert_eq(shared->forks, 4);
}

static void do_nothing(struct keeper *k)
{
	(void)k;
}

Test(keeper, tries_again_when_there_can_be_no_first_broker)
{
	shared->failures = 1;
	cr_assert_eq(keep(do_nothing), 0);
	cr_assert_eq(shared->brokers, 1);
}

Test(keeper, that_is_told_to_end_while_there_can_be_no_process_ends)
{
	shared->failures = 1000;
	shared->ends_at = 3;
	cr_assert_eq(keep(do_nothing), 1);
	cr_assert_eq(shared->brokers, 0);
}

static void try_again(struct keeper *k)
{
	(void)k;
	if (shared->brokers < 3)
		_exit(KEEPER_TRY_AGAIN);
}

Test(keeper, starts_another_broker_when_one_cannot_take_over_now)
{
	cr_assert_eq(keep(try_again), 0);
	cr_assert_eq(shared->brokers, 3);
}

/* It has said so before it asked again what was asked of the one before. */
static void serve_and_try_again(struct keeper *k)
{
	expect(k->before == (k->generation == 1 ? KEEPER_FIRST : KEEPER_TRIED));
	kept_serves();
	if (shared->brokers < 3)
		kept_end(KEEPER_TRY_AGAIN);
}

Test(keeper, waits_longer_and_longer_for_brokers_that_cannot_take_over_though_they_serve)
{
	log_set_level(LOG_LEVEL_WARNING);
	cr_assert_eq(keep(serve_and_try_again), 0);
	cr_assert_eq(shared->brokers, 3);
	cr_assert(has_said("the next one tries in 100 ms") &&
		  has_said("the next one tries in 200 ms"));
}

/* ------------------------------------------------------------------------------------------- */

static void write_to_terminal(struct keeper *k)
{
	if (k->generation > 1)
		return;
	expect(write(STDERR_FILENO, "x", 1) == 1);
	expect(tcgetpgrp(STDERR_FILENO) != getpgrp());
	die();
}

Test(keeper, its_brokers_write_to_a_terminal_that_stops_others)
{
	int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

	cr_assert(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
	terminal_of_keeper = ptsname(terminal);
	cr_assert_eq(keep(write_to_terminal), 0);
	cr_assert_eq(shared->brokers, 2);
}

/* ------------------------------------------------------------------------------------------- */

/* Short enough to wait for, and long enough for who begins on a busy machine. */
#define HANG_MS 1500
#define LOOKS   15 /* at least, in that time */

static void __attribute__((noreturn)) hang(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* whatever becomes of the keeper */
	for (;;)
		pause();
}

#define SLOW_KILLS 10

/* Whose death takes a while, for which the keeper does not use all of a core. It may look once more
 * at once, when it has not run for as long as from one look to the next. */
static void hang_once(struct keeper *k)
{
	if (k->generation == 1) {
		shared->slow_kills = SLOW_KILLS;
		kept_hang_after(HANG_MS);
		kept_serves();
		hang();
	}
	kept_hang_after(0);
	expect(shared->slow_kills == 0);
	expect(shared->at_once < SLOW_KILLS / 2);
	expect(k->hung && k->before == KEEPER_DIED);
}

Test(keeper, kills_a_broker_that_hangs_and_starts_the_next_one_when_it_is_dead)
{
	cr_assert_eq(keep(hang_once), 0);
	cr_assert_eq(shared->brokers, 2);
	cr_assert(has_said("it hangs, and is killed"));
}

static void hang_always(struct keeper *k)
{
	(void)k;
	kept_hang_after(HANG_MS);
	kept_serves();
	hang();
}

Test(keeper, gives_up_when_one_broker_after_the_other_hangs)
{
	cr_assert_eq(keep(hang_always), 1);
	cr_assert_eq(shared->brokers, 6);
	cr_assert(has_said("and the last one has hung: giving up"));
}

/* Has something happen at the keeper until that has waited for less than from one look to the next.
 */
static void disturb(struct keeper *k)
{
	unsigned before = shared->least_wait;

	(void)k;
	signal(SIGHUP, SIG_IGN); /* the keeper sends it on */
	kept_serves();
	while (shared->least_wait >= before) {
		kill(getppid(), SIGHUP);
		usleep(1000);
	}
}

Test(keeper, looks_at_its_broker_in_time_whatever_else_happens)
{
	shared->least_wait = 1000; /* ms from one look to the next, where a broker may hang long */
	cr_assert_eq(keep(disturb), 0);
}

/* Enough of them for a broker that does not beat to be taken for one that hangs, twice. */
static void wait_for_looks(void)
{
	unsigned n = shared->polls + 2 * LOOKS + 1;

	while (shared->polls < n)
		usleep(1000);
}

static void trace(pid_t pid)
{
	if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0) {
		shared->step = -1;
		_exit(0);
	}
	shared->step = 1;
	while (shared->step < 2)
		usleep(1000);
	wait_for_looks();
	kept_hang_after(0);
	_exit(0);
}

/* It does not beat from the second step on. */
static void be_traced(struct keeper *k)
{
	pid_t self = getpid(), tracer;

	(void)k;
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	tracer = __real_fork();
	if (tracer == 0)
		trace(self);
	while (shared->step == 0)
		usleep(1000);
	if (shared->step > 0) {
		kept_hang_after(HANG_MS);
		shared->step = 2;
	}
	while (waitpid(tracer, NULL, 0) < 0) {}
}

Test(keeper, leaves_a_broker_alone_that_is_traced)
{
	cr_assert_eq(keep(be_traced), 0);
	if (shared->step < 0)
		cr_skip_test("a process may not trace another one here");
	cr_assert_eq(shared->brokers, 1);
	cr_assert_not(has_said("hangs"));
}

/* Who has a child that borrows its place waits for it in state D. */
static void be_in_the_kernel(struct keeper *k)
{
	pid_t child;

	(void)k;
	kept_hang_after(HANG_MS);
	child = (pid_t)syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);
	if (child == 0) {
		while (!has_said("(state D"))
			usleep(1000);
		wait_for_looks();
		kept_hang_after(0);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

Test(keeper, reports_a_broker_that_the_kernel_holds_and_does_not_replace_it)
{
	cr_assert_eq(keep(be_in_the_kernel), 0);
	cr_assert_eq(shared->brokers, 1);
	cr_assert_not(has_said("is killed"));
}
