/* SPDX-License-Identifier: MIT */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/check.h"
#include "tests/themes/bridge/bridge_relay.h"

#define PAIRS_MAX 16

struct pair {
	int ends[2]; /* of who has connected, and of where it goes; -1: there is none */
};

struct relaying {
	struct pair pairs[PAIRS_MAX];
	struct sockaddr_in to;
	int listener;
	bool held;
};

static struct sockaddr_in loopback(unsigned port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_port = htons((uint16_t)port),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void end(struct pair *p)
{
	for (int i = 0; i < 2; i++) {
		if (p->ends[i] >= 0)
			close(p->ends[i]);
		p->ends[i] = -1;
	}
}

/* Where nobody listens at this time, who has connected is told so by the end of the connection. */
static void let_in(struct relaying *r)
{
	int from = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
	int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	for (int i = 0; i < PAIRS_MAX; i++) {
		struct pair *p = &r->pairs[i];

		if (p->ends[0] >= 0)
			continue;
		*p = (struct pair){{from, to}};
		if (from < 0 || to < 0 ||
		    connect(to, (struct sockaddr *)&r->to, sizeof(r->to)) != 0)
			end(p);
		return;
	}
	close(from);
	close(to);
}

static void pass_on(struct pair *p, int from)
{
	char bytes[16384];
	ssize_t n = recv(p->ends[from], bytes, sizeof(bytes), MSG_DONTWAIT), sent = 0;

	if (n < 0 && errno == EAGAIN)
		return;
	while (n > sent) {
		ssize_t one = send(p->ends[!from], bytes + sent, (size_t)(n - sent), MSG_NOSIGNAL);

		if (one <= 0)
			break;
		sent += one;
	}
	if (n <= 0 || sent < n)
		end(p);
}

/* false: the test has gone. */
static bool obey(struct relaying *r, int orders)
{
	char order;

	if (read(orders, &order, 1) != 1)
		return false;
	for (int i = 0; i < PAIRS_MAX && order == 'c'; i++)
		end(&r->pairs[i]);
	r->held = order == 'h';
	if (write(orders, "", 1) != 1)
		return false;
	return true;
}

static void relay(struct relaying *r, int orders)
{
	for (;;) {
		struct pollfd fds[2 + 2 * PAIRS_MAX];

		fds[0] = (struct pollfd){.fd = orders, .events = POLLIN};
		fds[1] = (struct pollfd){.fd = r->held ? -1 : r->listener, .events = POLLIN};
		for (int i = 0; i < 2 * PAIRS_MAX; i++)
			fds[2 + i] = (struct pollfd){
			    .fd = r->held ? -1 : r->pairs[i / 2].ends[i % 2], .events = POLLIN};
		if (poll(fds, 2 + 2 * PAIRS_MAX, -1) < 0)
			return;
		for (int i = 0; i < 2 * PAIRS_MAX; i++)
			if (fds[2 + i].revents && r->pairs[i / 2].ends[i % 2] >= 0)
				pass_on(&r->pairs[i / 2], i % 2);
		if (fds[1].revents)
			let_in(r);
		if (fds[0].revents && !obey(r, orders))
			return;
	}
}

void relay_start(struct relay *r, const char *to)
{
	struct relaying inside = {
	    .to = loopback((unsigned)atoi(strrchr(to, ':') + 1)),
	    .listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
	};
	struct sockaddr_in at = loopback(0);
	socklen_t size = sizeof(at);
	int ends[2];

	for (int i = 0; i < PAIRS_MAX; i++)
		inside.pairs[i] = (struct pair){{-1, -1}};
	check(inside.listener >= 0 && bind(inside.listener, (struct sockaddr *)&at, size) == 0 &&
	      listen(inside.listener, PAIRS_MAX) == 0 &&
	      getsockname(inside.listener, (struct sockaddr *)&at, &size) == 0);
	check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	snprintf(r->place, sizeof(r->place), "127.0.0.1:%u", ntohs(at.sin_port));
	r->orders = ends[0];
	r->pid = fork();
	check(r->pid >= 0);
	if (r->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		relay(&inside, ends[1]);
		_exit(0);
	}
	close(ends[1]);
	close(inside.listener);
}

/* Comes back when it was obeyed. */
static void order(struct relay *r, char what)
{
	char done;

	check(write(r->orders, &what, 1) == 1 && read(r->orders, &done, 1) == 1);
}

void relay_hold(struct relay *r)
{
	order(r, 'h');
}

void relay_pass(struct relay *r)
{
	order(r, 'p');
}

void relay_cut(struct relay *r)
{
	order(r, 'c');
}

void relay_stop(struct relay *r)
{
	int status;

	close(r->orders);
	check(waitpid(r->pid, &status, 0) == r->pid && status == 0);
}
