/* SPDX-License-Identifier: MIT */

/*
 * What makes a share-broker one that dies: of SIGKILL, by its own hand, before or after one of so
 * many ($SHARE_TEST_DYING) commits to its journal, packets that it receives or sends, and things
 * that it says to its keeper. Which one is left to chance, with a seed that each broker has from
 * the clock: what is to hold holds wherever a broker dies. Before that it looks whether its journal
 * says what is (audit.c).
 *
 * Or it dies at a point of a request that a test has chosen (fatal.h), or kills somebody else
 * there.
 */

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/plan.h"
#include "tests/themes/survival/audit.h"
#include "tests/themes/survival/fatal.h"

struct fd_list;
struct journal;
struct mmsghdr;

static struct fatal_plan nothing, *plan = &nothing;

static void __attribute__((constructor)) open_plan(void)
{
	void *memory = plan_open(FATAL_PLAN_VARIABLE, sizeof(*plan));

	if (memory)
		plan = memory;
}

/* How far the request has come at which this broker is meant to die, and where. */
static enum fatal_point reached, fatal;

/* It is dead on return. */
static void end(pid_t victim)
{
	struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, victim, 0), .events = POLLIN};

	kill(victim, SIGKILL);
	while (p.fd >= 0 && poll(&p, 1, -1) < 0)
		;
	close(p.fd);
}

static void reach(enum fatal_point point)
{
	pid_t victim = plan->victim;

	reached = point;
	if (fatal != point)
		return;
	fatal = FATAL_NOWHERE;
	if (victim)
		end(victim);
	if (plan->again > 0)
		plan->again--;
	else
		plan->point = FATAL_NOWHERE;
	if (!victim)
		kill(getpid(), SIGKILL);
}

static bool is_time(void)
{
	static pid_t pid;
	static uint64_t state;
	static uint64_t one_in;
	struct timespec now;
	const char *text;

	if (pid != getpid()) {
		pid = getpid();
		clock_gettime(CLOCK_MONOTONIC, &now);
		state = (uint64_t)now.tv_nsec * 2654435761u + (uint64_t)pid;
		text = getenv("SHARE_TEST_DYING");
		one_in = text ? strtoull(text, NULL, 10) : 0;
	}
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return one_in > 0 && (state >> 20) % one_in == 0;
}

static void die_perhaps(void)
{
	if (is_time())
		kill(getpid(), SIGKILL);
}

void __real_journal_commit(struct journal *j);
void __wrap_journal_commit(struct journal *j);
void __wrap_journal_commit(struct journal *j)
{
	die_perhaps();
	__real_journal_commit(j);
	if (reached == FATAL_HANDLED)
		reach(FATAL_COMMITTED);
	audit(j);
	die_perhaps();
}

int __real_packet_send(int socket, const void *data, size_t size, const int *fds, size_t n_fds,
		       bool wait);
int __wrap_packet_send(int socket, const void *data, size_t size, const int *fds, size_t n_fds,
		       bool wait);
int __wrap_packet_send(int socket, const void *data, size_t size, const int *fds, size_t n_fds,
		       bool wait)
{
	int r;

	die_perhaps();
	r = __real_packet_send(socket, data, size, fds, n_fds, wait);
	/* what it asks its keeper for comes to nobody else */
	if (r == 0 && !wait && reached >= FATAL_HANDLED) {
		reach(FATAL_SENT);
		reached = FATAL_NOWHERE;
	}
	die_perhaps();
	return r;
}

int __real_packet_receive_into(int socket, struct mmsghdr *header, void *data, size_t room,
			       struct fd_list *fds);
int __wrap_packet_receive_into(int socket, struct mmsghdr *header, void *data, size_t room,
			       struct fd_list *fds);
int __wrap_packet_receive_into(int socket, struct mmsghdr *header, void *data, size_t room,
			       struct fd_list *fds)
{
	int r = __real_packet_receive_into(socket, header, data, room, fds);

	die_perhaps();
	return r;
}

/* A request with this in it crashes each broker that reads it. */
#define DEADLY "deadly"

int __real_wire_decode(void *m, int direction, const void *data, size_t size, size_t n_fds);
int __wrap_wire_decode(void *m, int direction, const void *data, size_t size, size_t n_fds);
int __wrap_wire_decode(void *m, int direction, const void *data, size_t size, size_t n_fds)
{
	if (memmem(data, size, DEADLY, sizeof(DEADLY) - 1)) {
		prctl(PR_SET_DUMPABLE, 0); /* without a core */
		raise(SIGABRT);
	}
	return __real_wire_decode(m, direction, data, size, n_fds);
}

bool __real_request_handle(void *client, const void *data, size_t size, struct fd_list *fds);
bool __wrap_request_handle(void *client, const void *data, size_t size, struct fd_list *fds);
bool __wrap_request_handle(void *client, const void *data, size_t size, struct fd_list *fds)
{
	uint16_t type = 0;
	bool answered;

	if (size >= sizeof(type))
		memcpy(&type, data, sizeof(type));
	reached = fatal = FATAL_NOWHERE;
	if (type != plan->request || (plan->spared > 0 && plan->spared-- > 0))
		return __real_request_handle(client, data, size, fds);
	fatal = plan->point;
	reach(FATAL_RECEIVED);
	answered = __real_request_handle(client, data, size, fds);
	reach(FATAL_HANDLED);
	return answered;
}
