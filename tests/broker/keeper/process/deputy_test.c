/* SPDX-License-Identifier: MIT */

/*
 * The keeper is killed, before and after each call that it makes, and its deputy goes on: brokers
 * have what they asked for, each thing once, and in the end nothing is left of what a keeper had
 * begun. Brokers are functions here.
 */

#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "base/system/descriptor.h"
#include "broker/keeper/common.h"
#include "broker/log/log.h"
#include "wire/packet.h"

#define PAGE 4096
/* Should a keeper have more to do at once than it lives, there is an end to that. */
#define DEATHS_MAX 20
/* So many are kept at once, and let go. */
#define MANY 8

static struct {
	atomic_uint calls;   /* of keepers, so far */
	unsigned dies_at;    /* one is killed at this one, */
	unsigned dies_every; /* and at each multiple of that; 0: of none */
	unsigned deaths;
	atomic_int keeper; /* the process that is it */
	bool has_deputy;   /* or has had one: what dies before that is not followed */
	atomic_uint brokers;
	uint32_t page, forgotten;
	char failed[256];
} * shared;

/* ------------------------------------------------------------------------------------------- */
/* Where a keeper dies: before and after each call of these                                    */

int __real_kill(pid_t pid, int signal);

static void point(void)
{
	unsigned n;

	if (!shared || !shared->has_deputy || getpid() != shared->keeper)
		return;
	n = ++shared->calls;
	if (n != shared->dies_at && (shared->dies_every == 0 || n % shared->dies_every != 0))
		return;
	if (shared->deaths == DEATHS_MAX)
		return;
	shared->deaths++;
	__real_kill(getpid(), SIGKILL);
}

#define WRAP(type, name, parameters, arguments) \
	type __real_##name parameters;          \
	type __wrap_##name parameters;          \
	type __wrap_##name parameters           \
	{                                       \
		type r;                         \
                                                \
		point();                        \
		r = __real_##name arguments;    \
		point();                        \
		return r;                       \
	}

WRAP(pid_t, fork, (void), ())
WRAP(int, socketpair, (int domain, int type, int protocol, int ends[2]),
     (domain, type, protocol, ends))
WRAP(int, poll, (struct pollfd * fds, nfds_t n, int ms), (fds, n, ms))
WRAP(pid_t, waitpid, (pid_t pid, int *status, int options), (pid, status, options))
WRAP(int, close, (int fd), (fd))
WRAP(void *, mmap, (void *at, size_t size, int protection, int flags, int fd, off_t offset),
     (at, size, protection, flags, fd, offset))
WRAP(int, munmap, (void *at, size_t size), (at, size))
WRAP(ssize_t, read, (int fd, void *out, size_t size), (fd, out, size))
WRAP(long, syscall, (long number, long a, long b, long c, long d), (number, a, b, c, d))
WRAP(int, packet_send,
     (int socket, const void *data, size_t size, const int *fds, size_t n_fds, bool wait),
     (socket, data, size, fds, n_fds, wait))
WRAP(int, packet_receive, (int socket, void *data, size_t *size, struct fd_list *fds, bool wait),
     (socket, data, size, fds, wait))

int __real_clone(int (*f)(void *), void *stack, int flags, void *data);
int __wrap_clone(int (*f)(void *), void *stack, int flags, void *data);
int __wrap_clone(int (*f)(void *), void *stack, int flags, void *data)
{
	int r;

	point();
	r = __real_clone(f, stack, flags, data);
	shared->has_deputy = true;
	point();
	return r;
}

/* Who has ended its deputy dies without one. */
int __wrap_kill(pid_t pid, int signal);
int __wrap_kill(pid_t pid, int signal)
{
	point();
	if (shared->has_deputy && getpid() == shared->keeper && signal == SIGKILL)
		shared->has_deputy = false;
	return __real_kill(pid, signal);
}

/* It locks something in the C library, which a keeper that is killed then leaves locked. */
struct tm *__real_localtime_r(const time_t *seconds, struct tm *out);
struct tm *__wrap_localtime_r(const time_t *seconds, struct tm *out);
struct tm *__wrap_localtime_r(const time_t *seconds, struct tm *out)
{
	if (shared && shared->has_deputy && getpid() == shared->keeper)
		strcpy(shared->failed, "a keeper has called localtime_r()");
	return __real_localtime_r(seconds, out);
}

int __real_prctl(int option, unsigned long a);
int __wrap_prctl(int option, unsigned long a);
int __wrap_prctl(int option, unsigned long a)
{
	if (option == PR_SET_CHILD_SUBREAPER && shared)
		shared->keeper = getpid();
	point();
	return __real_prctl(option, a);
}

/* ------------------------------------------------------------------------------------------- */
/* Brokers                                                                                     */

/* One that finds something wrong says what, and ends. */
#define expect(condition)                                                                \
	do {                                                                             \
		if (!(condition)) {                                                      \
			strncpy(shared->failed, #condition, sizeof(shared->failed) - 1); \
			kept_end(1);                                                     \
		}                                                                        \
	} while (0)

static void __attribute__((noreturn)) die(void)
{
	kill(getpid(), SIGKILL);
	_exit(1);
}

static unsigned count_kept(const struct kept_table *t)
{
	unsigned n = 0;

	for (uint32_t i = KEPT_FIXED; i < atomic_load(&t->n); i++)
		n += atomic_load(&t->slots[i].fd) >= 0;
	return n;
}

/* Of the keeper: one that has just died may still be seen. */
static unsigned count_descriptors(void)
{
	char path[64];
	unsigned n = 0;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)shared->keeper);
	folder = opendir(path);
	while (folder && readdir(folder))
		n++;
	if (folder)
		closedir(folder);
	return n;
}

/* Of memory that was to be kept, in this broker, which has all that its keeper had. */
static unsigned count_mappings(const char *of)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned n = 0;

	while (file && fgets(line, sizeof(line), file))
		n += strstr(line, of) != NULL;
	if (file)
		fclose(file);
	return n;
}

static void keep_fixed(char mark)
{
	int fds[KEPT_FIXED];

	for (int i = 0; i < KEPT_FIXED; i++) {
		fds[i] = memfd_create("fixed", MFD_CLOEXEC);
		expect(fds[i] >= 0 && write(fds[i], &mark, 1) == 1);
	}
	expect(kept_keep_fixed(fds) == 0);
	for (int i = 0; i < KEPT_FIXED; i++)
		fd_close(fds[i]);
}

static void expect_fixed(char mark)
{
	char found;

	for (uint32_t id = 1; id <= KEPT_FIXED; id++)
		expect(pread(kept_look(id), &found, 1, 0) == 1 && found == mark);
}

static void keep_and_let_go(const struct keeper *k)
{
	size_t sizes[MANY];
	int fds[MANY];
	unsigned before = count_kept(k->table);

	for (int i = 0; i < MANY; i++) {
		fds[i] = memfd_create("many", MFD_CLOEXEC);
		sizes[i] = i % 2 ? 0 : PAGE;
		expect(fds[i] >= 0 && ftruncate(fds[i], PAGE) == 0);
	}
	expect(kept_keep(fds, sizes, MANY) == 0);
	expect(count_kept(k->table) == before + MANY);
	for (int i = 0; i < MANY; i++)
		kept_close(fds[i]);
	kept_flush(kept_waiting());
	expect(count_kept(k->table) == before);
}

static void begin(const struct keeper *k)
{
	int page = memfd_create("page", MFD_CLOEXEC), forgotten = memfd_create("", MFD_CLOEXEC);

	expect(page >= 0 && ftruncate(page, PAGE) == 0);
	keep_fixed('a');
	expect(kept_keep(&page, (const size_t[]){PAGE}, 1) == 0);
	shared->page = kept_id(page);
	kept_serves();
	expect(kept_keep(&forgotten, NULL, 1) == 0);
	shared->forgotten = kept_id(forgotten);
	expect(count_kept(k->table) == 2);
	expect(pwrite(page, "before", 6, 0) == 6);
	keep_fixed('b');
}

/* As much as a process may have by default, nearly: a broker may have been forked by a deputy. */
static void use_stack(void)
{
	volatile char bytes[7 * 1024 * 1024];

	for (size_t i = 0; i < sizeof(bytes); i += PAGE)
		bytes[i] = 1;
}

static void go_on(const struct keeper *k)
{
	void *address;

	use_stack();
	expect_fixed('b');
	expect(count_kept(k->table) == 2);
	expect(kept_take_mapped(shared->page, PAGE, &address) >= 0);
	expect(memcmp(address, "before", 6) == 0);
	memcpy(address, "behind", 6);
	kept_sweep();
	expect(kept_look(shared->forgotten) < 0 && count_kept(k->table) == 1);
	kept_serves();
	for (int i = 0; i < 4; i++)
		keep_and_let_go(k);
	keep_fixed('c');
}

/* The entries "." and ".." of the folder, stdin and so on, and what a keeper has itself: six, of
 * which it opens one only after it has forked this broker, perhaps. */
static void expect_nothing_else(void)
{
	const unsigned wanted = 2 + 3 + 6 + KEPT_FIXED + 1;
	struct kept_history h;

	/* one may die right now, and is counted by who goes on */
	do {
		usleep(1000);
		kept_history(&h);
	} while (h.keeper != shared->keeper || h.deputy == 0 || count_descriptors() == 0 ||
		 (h.keepers_died == 0 && shared->deaths > 0));
	expect(h.brokers_died == 2 && h.brokers_upgraded == 0);
	/* those that die before they go on are none */
	expect(h.keepers_died <= shared->deaths);
	for (int tries = 0; count_descriptors() != wanted && tries < 10000; tries++)
		usleep(1000);
	expect(count_descriptors() == wanted);
}

static void end(const struct keeper *k)
{
	void *address;

	expect_fixed('c');
	expect(count_kept(k->table) == 1);
	expect(count_mappings("memfd:many") == 0 && count_mappings("memfd:page") == 1);
	expect(kept_take_mapped(shared->page, PAGE, &address) >= 0);
	expect(memcmp(address, "behind", 6) == 0);
	kept_sweep();
	kept_serves();
	expect_nothing_else();
	kept_end(7);
}

int KEEPER_MAIN_SYMBOL(struct keeper *k, int argc, char **argv)
{
	(void)argc, (void)argv;
	kept_init(k);
	shared->brokers++;
	if (k->generation == 1)
		begin(k);
	else if (k->generation == 2)
		go_on(k);
	else
		end(k);
	die();
}

/* ------------------------------------------------------------------------------------------- */

static void start(void)
{
	setenv("SHARE_DUMPABLE", "1", 1);
	unsetenv("NOTIFY_SOCKET");
	/* keepers that others have forked become this process's children */
	__real_prctl(PR_SET_CHILD_SUBREAPER, 1);
	shared = __real_mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert(shared != MAP_FAILED);
}

static void stop(void)
{
	__real_munmap(shared, sizeof(*shared));
	shared = NULL;
}

TestSuite(deputy, .init = start, .fini = stop, .timeout = 120);

/* Returns how many calls the keepers have made. */
static unsigned live_and_die(unsigned at, unsigned every)
{
	bool with_log = at == 60; /* one is enough to read */
	int status, of_keeper = -1;
	pid_t pid;

	memset(shared, 0, sizeof(*shared));
	shared->dies_at = at;
	shared->dies_every = every;
	pid = __real_fork();
	cr_assert_geq(pid, 0);
	if (pid == 0) {
		log_set_level(with_log ? LOG_LEVEL_WARNING : LOG_LEVEL_ERROR);
		if (with_log) { /* to a file, for which it needs no other descriptor */
			_cleanup_fd_ int file = memfd_create("log", MFD_CLOEXEC);

			dup2(file, STDERR_FILENO);
			log_open();
		}
		_exit(keeper_run("no module", 0, NULL));
	}
	while ((pid = __real_waitpid(-1, &status, 0)) > 0)
		if (pid == shared->keeper)
			of_keeper = status;
	cr_assert_str_empty(shared->failed, "at call %u, every %u: %s", at, every, shared->failed);
	cr_assert_eq(shared->brokers, 3, "at call %u, every %u: %u brokers", at, every,
		     shared->brokers);
	cr_assert(WIFEXITED(of_keeper) && WEXITSTATUS(of_keeper) == 7,
		  "at call %u, every %u: status %#x", at, every, (unsigned)of_keeper);
	return shared->calls;
}

Test(deputy, goes_on_wherever_the_keeper_dies)
{
	unsigned n = live_and_die(0, 0);

	cr_assert_gt(n, 100);
	for (unsigned at = 1; at <= n; at++) {
		live_and_die(at, 0);
		cr_assert_leq(shared->deaths, 1);
	}
}

Test(deputy, goes_on_however_often_keepers_die)
{
	unsigned deaths = 0;

	for (unsigned every = 160; every < 320; every++) {
		live_and_die(0, every);
		deaths += shared->deaths;
	}
	cr_assert_geq(deaths, 160);
}
