/* SPDX-License-Identifier: MIT */

/*
 * Between the broker and an agent: passes packets on, both ways, and kills or stops itself, or
 * somebody else, where the plan says so (between.h). The agent ends with it, as its socket does.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/themes/failure/between.h"
#include "wire/packet.h"
#include "wire/wire.h"

#define BROKER 3 /* the descriptor that the broker's program starts agents with */

static struct between_plan *plan;
static enum wire_type asked; /* what the agent was asked last */

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void read_plan(void)
{
	const char *path = getenv(BETWEEN_PLAN_VARIABLE);
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	plan = mmap(NULL, sizeof(*plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (plan == MAP_FAILED)
		fail(BETWEEN_PLAN_VARIABLE);
	close(fd);
}

/* The same arguments, and so the same number for its socket. */
static int start_agent(char **argv)
{
	const char *program = getenv(BETWEEN_AGENT_VARIABLE);
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		fail("socketpair");
	pid = fork();
	if (pid < 0)
		fail("fork");
	if (pid == 0) {
		dup2(pair[1], BROKER);
		execv(program ? program : "", argv);
		fail(BETWEEN_AGENT_VARIABLE);
	}
	close(pair[1]);
	return pair[0];
}

static void meet(enum between_step step)
{
	if (plan->request != asked || plan->step != step || atomic_fetch_sub(&plan->times, 1) <= 0)
		return;
	plan->met++;
	kill(plan->victim ? plan->victim : getpid(), plan->signal);
}

/* False at the end of one of them. */
static bool pass_on(int from, int to, enum wire_direction direction)
{
	static unsigned char packet[WIRE_PACKET_MAX];
	_cleanup_fd_list_ struct fd_list fds = {.n = 0};
	size_t size = sizeof(packet);
	struct wire_message m;
	bool last;

	if (packet_receive(from, packet, &size, &fds, true) < 0 ||
	    wire_decode(&m, direction, packet, size, fds.n) != 0)
		return false;
	if (direction == WIRE_TO_AGENT) {
		asked = m.type;
		meet(BETWEEN_UNSEEN);
		return packet_send(to, packet, size, fds.fds, fds.n, true) == 0;
	}
	/* who looks for devices answers once for each, and has done when it says so */
	last = m.type != WIRE_AGENT_DEVICE;
	if (last)
		meet(BETWEEN_UNANSWERED);
	if (packet_send(to, packet, size, fds.fds, fds.n, true) < 0)
		return false;
	if (last)
		meet(BETWEEN_ANSWERED);
	return true;
}

int main(int argc, char **argv)
{
	struct pollfd p[2] = {{.fd = BROKER, .events = POLLIN}, {.events = POLLIN}};

	(void)argc;
	read_plan();
	p[1].fd = start_agent(argv);
	for (;;) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			fail("poll");
		if (p[0].revents && !pass_on(BROKER, p[1].fd, WIRE_TO_AGENT))
			return 0;
		if (p[1].revents && !pass_on(p[1].fd, BROKER, WIRE_FROM_AGENT))
			return 0;
	}
}
