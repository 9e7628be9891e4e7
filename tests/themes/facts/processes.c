/* SPDX-License-Identifier: MIT */

/*
 * The processes of a fact. A role is this program started anew, with a socket to the fact: it
 * inherits no driver state. It dies with the fact.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/themes/facts/gpu.h"

/* For one step of another process: 4 GiB are filled in much less. */
#define STEP_LIMIT 30000

static bool playing;

void role_begin(void)
{
	playing = true;
}

static _Noreturn void end(const char *word, int status, const char *format, va_list list)
{
	char text[2048];

	vsnprintf(text, sizeof(text), format, list);
	printf("%s %s\n", word, text);
	fflush(stdout);
	_exit(status);
}

_Noreturn void ok(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	end("ok", 0, format, list);
}

_Noreturn void failed(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	end("FAILED", 1, format, list);
}

_Noreturn void skipped(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	end("skipped", 77, format, list);
}

struct role role_start(const char *name, const char *setting)
{
	pid_t parent = getpid();
	char number[16];
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		failed("socketpair: %s", strerror(errno));
	snprintf(number, sizeof(number), "%d", pair[1]);
	pid = fork();
	if (pid < 0)
		failed("fork: %s", strerror(errno));
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		fcntl(pair[1], F_SETFD, 0);
		if (setting) {
			char *copy = strdup(setting);

			if (!copy || putenv(copy) != 0)
				_exit(1);
		}
		dup2(STDERR_FILENO, STDOUT_FILENO); /* the line is the fact's */
		execl("/proc/self/exe", "gpu-facts", "--role", name, number, (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
	return (struct role){.pid = pid, .channel = pair[0]};
}

void role_kill(struct role *r)
{
	kill(r->pid, SIGKILL);
	waitpid(r->pid, NULL, 0);
	close(r->channel);
}

void tell(int channel, const struct message *m, int fd)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec bytes = {.iov_len = sizeof(*m)};
	struct msghdr packet = {.msg_iov = &bytes, .msg_iovlen = 1};

	memcpy(&bytes.iov_base, &m, sizeof(m));
	if (fd >= 0) {
		packet.msg_control = control.space;
		packet.msg_controllen = sizeof(control.space);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	}
	if (sendmsg(channel, &packet, MSG_NOSIGNAL) != (ssize_t)sizeof(*m))
		failed("the other process is gone (%s)", strerror(errno));
}

int hear_within(int channel, struct message *m, int *fd, int milliseconds)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec bytes = {.iov_base = m, .iov_len = sizeof(*m)};
	struct msghdr packet = {.msg_iov = &bytes,
				.msg_iovlen = 1,
				.msg_control = control.space,
				.msg_controllen = sizeof(control.space)};
	struct pollfd p = {.fd = channel, .events = POLLIN};
	int got = -1;

	if (poll(&p, 1, milliseconds) == 0)
		return 0;
	if (recvmsg(channel, &packet, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*m))
		return -1;
	if (packet.msg_controllen >= CMSG_LEN(sizeof(int)) &&
	    control.header.cmsg_type == SCM_RIGHTS)
		memcpy(&got, CMSG_DATA(&control.header), sizeof(got));
	if (fd)
		*fd = got;
	else if (got >= 0)
		close(got);
	return 1;
}

void hear(int channel, struct message *m, int *fd)
{
	int heard = hear_within(channel, m, fd, STEP_LIMIT);

	if (heard > 0)
		return;
	if (playing) /* the fact is over */
		_exit(0);
	if (heard < 0)
		failed("the other process ended");
	failed("the other process did not answer within %d s", STEP_LIMIT / 1000);
}

void ask(int channel, struct message *m, int fd)
{
	tell(channel, m, fd);
	hear(channel, m, NULL);
}

const char *try(int channel, struct message *m, int fd, int milliseconds)
{
	int heard;

	tell(channel, m, fd);
	heard = hear_within(channel, m, NULL, milliseconds);
	return heard > 0 ? NULL : heard == 0 ? "hangs" : "dies";
}

uint64_t nanoseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}
