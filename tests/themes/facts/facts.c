/* SPDX-License-Identifier: MIT */

/*
 * gpu-facts: what the code relies on about a GPU and its driver, shown again on the one that is
 * here. One line for each fact: "NAME: ok|FAILED|skipped FIGURES". Each runs in a process of its
 * own and may take a minute; one that takes longer has hung, and that is a result.
 *
 * usage: gpu-facts [--list | NAME...]
 *
 * Exit: 0 when no fact failed, 1 when one did, 77 when there is no GPU.
 */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/themes/facts/gpu.h"

#define FACT_LIMIT 60000 /* ms */

static const struct fact *const facts[] = {vmm_facts,     pool_facts,    event_facts, value_facts,
					   capture_facts, machine_facts, zero_facts,  stream_facts,
					   adopt_facts,   legacy_facts,  pinned_facts};
static const struct play *const plays[] = {vmm_plays,   pool_plays,    event_plays,
					   value_plays, machine_plays, stream_plays,
					   adopt_plays, legacy_plays,  pinned_plays};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static const struct fact *find_fact(const char *name)
{
	for (size_t i = 0; i < COUNT(facts); i++)
		for (const struct fact *f = facts[i]; f->name; f++)
			if (strcmp(f->name, name) == 0)
				return f;
	return NULL;
}

static int play(const char *name, int channel)
{
	for (size_t i = 0; i < COUNT(plays); i++)
		for (const struct play *p = plays[i]; p->name; p++)
			if (strcmp(p->name, name) == 0) {
				role_begin();
				p->run(channel);
				return 0;
			}
	fprintf(stderr, "gpu-facts: there is no role \"%s\"\n", name);
	return 2;
}

/* A child in a process group of its own, so that its roles end with it. The exit status, -1 when it
 * took too long, or minus the signal less 1. */
static int run(const char *option, const char *name)
{
	int status, pidfd;
	pid_t pid = fork();
	struct pollfd p;

	if (pid < 0) {
		perror("gpu-facts: fork");
		exit(2);
	}
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpgid(0, 0);
		execl("/proc/self/exe", "gpu-facts", option, name, (char *)NULL);
		_exit(2);
	}
	setpgid(pid, pid);
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	p = (struct pollfd){.fd = pidfd, .events = POLLIN};
	if (pidfd >= 0 && poll(&p, 1, FACT_LIMIT) == 0) {
		kill(-pid, SIGKILL);
		/* one that is stuck inside the driver cannot even be killed */
		if (poll(&p, 1, 10000) > 0)
			waitpid(pid, &status, 0);
		close(pidfd);
		return -1;
	}
	close(pidfd);
	waitpid(pid, &status, 0);
	kill(-pid, SIGKILL);
	return WIFSIGNALED(status) ? -1 - WTERMSIG(status) : WEXITSTATUS(status);
}

static bool show(const struct fact *f)
{
	int result;

	printf("%s: ", f->name);
	fflush(stdout);
	result = run("--fact", f->name);
	if (result == -1)
		printf("FAILED hangs: no end within %d s\n", FACT_LIMIT / 1000);
	else if (result < -1)
		printf("FAILED killed by signal %d\n", -1 - result);
	else if (result != 0 && result != 1 && result != 77)
		printf("FAILED exit status %d\n", result);
	fflush(stdout);
	return result == 0 || result == 77;
}

static int probe(void)
{
	const char *why = driver_load();
	char name[128] = "";
	int version = 0, devices = 0;

	if (why) {
		printf("skipped: %s\n", why);
		return 77;
	}
	cu.DriverGetVersion(&version);
	cu.DeviceGetCount(&devices);
	cu.DeviceGetName(name, sizeof(name), 0);
	printf("# %d x %s, driver for CUDA %d.%d\n", devices, name, version / 1000,
	       version % 1000 / 10);
	return 0;
}

int main(int argc, char **argv)
{
	const struct fact *f;
	bool good = true;
	int result;

	if (argc == 4 && strcmp(argv[1], "--role") == 0)
		return play(argv[2], atoi(argv[3]));
	if (argc == 3 && strcmp(argv[1], "--fact") == 0) {
		f = find_fact(argv[2]);
		if (f)
			f->run();
		return 2;
	}
	if (argc == 3 && strcmp(argv[1], "--probe") == 0)
		return probe();
	if (argc == 2 && strcmp(argv[1], "--list") == 0) {
		for (size_t i = 0; i < COUNT(facts); i++)
			for (f = facts[i]; f->name; f++)
				puts(f->name);
		return 0;
	}
	for (int i = 1; i < argc; i++)
		if (!find_fact(argv[i])) {
			fprintf(stderr, "gpu-facts: there is no fact \"%s\": try --list\n",
				argv[i]);
			return 2;
		}

	result = run("--probe", "");
	if (result != 0)
		return result == 77 ? 77 : 1;
	for (int i = 1; i < argc; i++)
		good &= show(find_fact(argv[i]));
	for (size_t i = 0; argc == 1 && i < COUNT(facts); i++)
		for (f = facts[i]; f->name; f++)
			good &= show(f);
	return good ? 0 : 1;
}
