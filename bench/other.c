/* SPDX-License-Identifier: MIT */

/* The other process of a benchmark: how it is started, and what the two say to each other. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"

void other_start(struct other *o, void (*serve)(void *data), void *data)
{
	int pair[2];

	must_system(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
	o->pid = fork();
	must_system(o->pid >= 0, "fork");
	o->socket = pair[o->pid == 0];
	close(pair[o->pid != 0]);
	if (o->pid > 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	serve(data);
	_exit(0);
}

void other_end(const struct other *o)
{
	close(o->socket);
	waitpid(o->pid, NULL, 0);
}

void other_tell(const struct other *o, const void *what, size_t size)
{
	must_system(send(o->socket, what, size, MSG_NOSIGNAL) == (ssize_t)size,
		    "send to the other process");
}

bool other_is_asked(const struct other *o, void *what, size_t size)
{
	return recv(o->socket, what, size, 0) == (ssize_t)size;
}

void other_hear(const struct other *o, void *what, size_t size)
{
	if (other_is_asked(o, what, size))
		return;
	fprintf(stderr, "share-bench: the other process of the benchmark has ended\n");
	exit(1);
}

void other_done(const struct other *o)
{
	other_tell(o, "", 1);
}

void other_wait(const struct other *o)
{
	char byte;

	other_hear(o, &byte, 1);
}

void other_tell_address(const struct other *o, share_client *c)
{
	const char *address = share_address(c);

	other_tell(o, address, strlen(address) + 1);
}

share_client *other_connect(const struct other *o)
{
	char address[256];
	share_client *c;

	if (recv(o->socket, address, sizeof(address), 0) <= 0)
		_exit(0);
	must(share_connect(address, &c), "share_connect");
	return c;
}
