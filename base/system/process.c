/* SPDX-License-Identifier: MIT */

/*
 * Finds out whether another process has begun to exit, and hides this one from other processes.
 *
 * The kernel sets PF_EXITING before it takes anything of a process down; the flag is in
 * /proc/PID/stat (proc_pid_stat(5), field 9; linux/sched.h). /proc knows processes by number only,
 * and the number may belong to another process when the first one is gone. So the pidfd is asked
 * after the flag was read: while it is not readable, the number still belongs to that process.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/system/process.h"

#define PF_EXITING 0x4ul

long process_pid(int pidfd)
{
	char path[64], text[512];
	const char *line;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	line = strstr(text, "\nPid:");
	return line ? strtol(line + 5, NULL, 10) : 0;
}

/* proc_pid_statm(5): pages that it has, and those of them that are of files or shared. */
int process_open_memory(void)
{
	return open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
}

uint64_t process_own_memory(int memory)
{
	unsigned long all, shared;
	char text[128];
	ssize_t n = pread(memory, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	if (PROCESS_IS_INSTRUMENTED || sscanf(text, "%*u %lu %lu", &all, &shared) != 2)
		return 0;
	return (all - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int open_stat(int pidfd)
{
	char path[64];
	long pid = process_pid(pidfd);

	if (pid <= 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Looks for the last ')', since the command's name, which is in parentheses, may contain anything.
 */
static bool read_flags(int stat, long *pid, unsigned long *flags)
{
	char text[1024];
	const char *p;
	ssize_t n;

	n = pread(stat, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return false;
	text[n] = '\0';
	p = strrchr(text, ')');
	for (int space = 0; p && space < 7; space++)
		p = strchr(p + 1, ' ');
	if (!p)
		return false;
	*pid = strtol(text, NULL, 10);
	*flags = strtoul(p + 1, NULL, 10);
	return true;
}

static bool thread_runs(int tasks, const char *thread)
{
	unsigned long flags = PF_EXITING;
	char path[64];
	long id;
	int fd;

	snprintf(path, sizeof(path), "%.20s/stat", thread);
	fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (!read_flags(fd, &id, &flags))
		flags = PF_EXITING;
	close(fd);
	return !(flags & PF_EXITING);
}

/* The kernel takes down what a process has when its last thread exits; the first thread, whose
 * flags /proc/PID/stat shows, may have ended long before. */
static bool any_thread_runs(long pid)
{
	const struct dirent *thread;
	bool runs = false;
	char path[64];
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%ld/task", pid);
	tasks = opendir(path);
	while (tasks && !runs && (thread = readdir(tasks)))
		runs = thread->d_name[0] != '.' && thread_runs(dirfd(tasks), thread->d_name);
	if (tasks)
		closedir(tasks);
	return runs;
}

bool process_has_ended(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

enum process_state process_state(int pidfd, int *stat)
{
	unsigned long flags;
	long pid;

	if (*stat < 0)
		*stat = open_stat(pidfd);
	if (process_has_ended(pidfd))
		return PROCESS_EXITS;
	if (*stat < 0 || !read_flags(*stat, &pid, &flags))
		return process_has_ended(pidfd) ? PROCESS_EXITS : PROCESS_UNKNOWN;
	if (flags & PF_EXITING && !any_thread_runs(pid))
		return PROCESS_EXITS;
	return process_has_ended(pidfd) ? PROCESS_EXITS : PROCESS_RUNS;
}

int process_hide(void)
{
	const char *dumpable = secure_getenv("SHARE_DUMPABLE");

	if (PROCESS_IS_INSTRUMENTED || (dumpable && strcmp(dumpable, "1") == 0))
		return 0;
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0;
}
