/* SPDX-License-Identifier: MIT */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "base/system/descriptor.h"
#include "base/system/process.h"

static pid_t start(void)
{
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		/* what is parsed comes after this name */
		prctl(PR_SET_NAME, ") R 1 2 3 4");
		for (;;)
			pause();
	}
	return pid;
}

static void *pauses(void *data)
{
	(void)data;
	for (;;)
		pause();
	return NULL;
}

static pid_t start_without_main_thread(void)
{
	pid_t pid = fork();
	pthread_t thread;

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		if (pthread_create(&thread, NULL, pauses, NULL) != 0)
			_exit(1);
		pthread_exit(NULL);
	}
	return pid;
}

static int open_pidfd(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	cr_assert_geq(fd, 0);
	return fd;
}

Test(process, runs_until_it_is_killed, .timeout = 30)
{
	pid_t pid = start();
	int pidfd = open_pidfd(pid), stat = -1;

	for (int i = 0; i < 100; i++)
		cr_assert_eq(process_state(pidfd, &stat), PROCESS_RUNS);
	kill(pid, SIGKILL);
	/* dead and not buried */
	cr_assert_eq(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
	cr_assert_eq(process_state(pidfd, &stat), PROCESS_EXITS);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	cr_assert_eq(process_state(pidfd, &stat), PROCESS_EXITS);
	fd_close(stat);
	close(pidfd);
}

Test(process, who_is_buried_when_first_asked_for_has_ended, .timeout = 30)
{
	pid_t pid = start();
	int pidfd = open_pidfd(pid), stat = -1;

	kill(pid, SIGKILL);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	cr_assert_eq(process_state(pidfd, &stat), PROCESS_EXITS);
	fd_close(stat);
	close(pidfd);
}

Test(process, one_that_waits_to_be_buried_has_ended, .timeout = 30)
{
	pid_t pid = start();
	int pidfd = open_pidfd(pid), stat = -1;

	kill(pid, SIGKILL);
	cr_assert_eq(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
	cr_assert_eq(process_state(pidfd, &stat), PROCESS_EXITS);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	fd_close(stat);
	close(pidfd);
}

static char state_of(pid_t pid)
{
	char path[64], text[512] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	cr_assert_not_null(f);
	cr_assert_not_null(fgets(text, sizeof(text), f));
	fclose(f);
	return strrchr(text, ')')[2];
}

Test(process, runs_without_its_main_thread, .timeout = 30)
{
	pid_t pid = start_without_main_thread();
	int pidfd = open_pidfd(pid), stat = -1;

	while (state_of(pid) != 'Z')
		sched_yield();
	for (int i = 0; i < 100; i++)
		cr_assert_eq(process_state(pidfd, &stat), PROCESS_RUNS);
	kill(pid, SIGKILL);
	cr_assert_eq(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
	cr_assert_eq(process_state(pidfd, &stat), PROCESS_EXITS);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	fd_close(stat);
	close(pidfd);
}
