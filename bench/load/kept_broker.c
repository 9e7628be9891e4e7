/* SPDX-License-Identifier: MIT */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/load/kept_broker.h"

static void find_program(const char *wished, char program[PATH_MAX])
{
	const char *said = wished ? wished : getenv("SHARE_BROKER");
	ssize_t n;

	if (said && *said) {
		snprintf(program, PATH_MAX, "%s", said);
		return;
	}
	n = readlink("/proc/self/exe", program, PATH_MAX - 16);
	must_system(n > 0, "/proc/self/exe");
	program[n] = '\0';
	snprintf(strrchr(program, '/'), 16, "/share-broker");
}

static int make_listener(struct kept_broker *b)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *tmp = getenv("TMPDIR");
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(b->directory, sizeof(b->directory), "%s/share-bench-XXXXXX", tmp ? tmp : "/tmp");
	must_system(mkdtemp(b->directory), "mkdtemp");
	snprintf(b->socket, sizeof(b->socket), "%s/broker.sock", b->directory);
	if (strlen(b->socket) >= sizeof(address.sun_path))
		errno = ENAMETOOLONG;
	else
		strcpy(address.sun_path, b->socket);
	must_system(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
			listen(fd, SOMAXCONN) == 0,
		    "a socket for the broker");
	return fd;
}

void kept_broker_start(struct kept_broker *b, const char *wished, const char *config)
{
	int listener = make_listener(b), lifeline = (int)syscall(SYS_pidfd_open, getpid(), 0);
	char program[PATH_MAX], listen_text[16], lifeline_text[16];
	const char *arguments[] = {
	    program,       "--log-level=error",        "--listen-fd", listen_text, "--lifeline-fd",
	    lifeline_text, config ? "--config" : NULL, config,        NULL};

	must_system(lifeline >= 0, "pidfd_open");
	find_program(wished, program);
	snprintf(listen_text, sizeof(listen_text), "%d", listener);
	snprintf(lifeline_text, sizeof(lifeline_text), "%d", lifeline);
	b->keeper = fork();
	must_system(b->keeper >= 0, "fork");
	if (b->keeper == 0) {
		setsid(); /* as brokers have; see ping_pong_start() */
		/* another program than share-broker has its own reasons to complain */
		if (wished)
			dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 2);
		fcntl(listener, F_SETFD, 0);
		fcntl(lifeline, F_SETFD, 0);
		execv(program, (char *const *)(uintptr_t)arguments);
		_exit(127);
	}
	close(listener);
	close(lifeline);
}

void kept_broker_stop(struct kept_broker *b)
{
	kill(b->keeper, SIGTERM);
	waitpid(b->keeper, NULL, 0);
	unlink(b->socket);
	rmdir(b->directory);
}

pid_t kept_broker_serving(share_client *c)
{
	return (pid_t)broker_number(c, "pid");
}

/* What is asked for before it is dead may be answered by the one that dies. */
double kept_broker_kill(pid_t serving)
{
	struct pollfd dead = {.fd = (int)syscall(SYS_pidfd_open, serving, 0), .events = POLLIN};
	double at;

	must_system(dead.fd >= 0, "pidfd_open");
	at = now_us();
	must_system(kill(serving, SIGKILL) == 0, "kill the broker");
	while (poll(&dead, 1, -1) != 1)
		;
	close(dead.fd);
	return at;
}
