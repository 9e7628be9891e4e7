/* SPDX-License-Identifier: MIT */

/* Starts an agent: which program that is, and what it gets of the broker's, which is one socket. */

#include "broker/device/agent_process.h"

#include <errno.h>
#include <libgen.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Finds the agent's program: $SHARE_AGENT, or else beside this program. False when that cannot be
 * said. */
static bool find_program(char out[PATH_MAX])
{
	const char *set = secure_getenv("SHARE_AGENT");
	char self[PATH_MAX];
	ssize_t n;

	if (set && *set)
		return snprintf(out, PATH_MAX, "%s", set) < PATH_MAX;
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n <= 0)
		return false;
	self[n] = '\0';
	return snprintf(out, PATH_MAX, "%s/share-agent", dirname(self)) < PATH_MAX;
}

static int spawn(const char *device, const char *program, int socket, pid_t *pid)
{
	char name[] = "share-agent", socket_option[] = "--socket", three[] = "3";
	char device_option[] = "--device";
	char *arguments[] = {name, socket_option, three, NULL, NULL, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	char device_name[64];
	sigset_t none, all;
	pid_t child;
	int r;

	if (device[0]) {
		snprintf(device_name, sizeof(device_name), "%s", device);
		arguments[3] = device_option;
		arguments[4] = device_name;
	}
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	r = posix_spawn_file_actions_adddup2(&actions, socket, 3);
	if (r == 0)
		r = posix_spawn(&child, program, &actions, &attributes, arguments, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	if (r == 0)
		*pid = child;
	return -r;
}

int agent_process_start(const char *device, char program[PATH_MAX], struct agent_process *out)
{
	int pair[2], r;

	strcpy(program, "share-agent");
	if (!find_program(program))
		return -ENAMETOOLONG;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	r = spawn(device, program, pair[1], &out->pid);
	close(pair[1]);
	if (r == 0) {
		out->pidfd = (int)syscall(SYS_pidfd_open, out->pid, 0);
		if (out->pidfd < 0) {
			r = -errno;
			/* it has hardly begun, so nothing keeps it from ending */
			kill(out->pid, SIGKILL);
			waitpid(out->pid, NULL, 0);
		}
	}
	if (r < 0)
		close(pair[0]);
	else
		out->socket = pair[0];
	return r;
}
