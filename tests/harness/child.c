/* SPDX-License-Identifier: MIT */

/*
 * Children of a test. The channel is a SEQPACKET socket pair: a point is a packet to the test, a
 * go is a packet back. The end of the channel is the end of the child, or its kill.
 */

#include <dirent.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/broker_process.h"
#include "tests/harness/check.h"
#include "tests/harness/child.h"
#include "tests/harness/descriptors.h"

struct message {
	char name[64];
	size_t size;
	unsigned char bytes[CHILD_BYTES_MAX];
};

static void send_message(int channel, const char *name, const void *data, size_t size)
{
	struct message m = {.size = size};

	check(size <= sizeof(m.bytes));
	snprintf(m.name, sizeof(m.name), "%s", name);
	if (size)
		memcpy(m.bytes, data, size);
	check(send(channel, &m, sizeof(m), MSG_NOSIGNAL) == sizeof(m));
}

/* Whether every other thread of the test waits for something. */
static bool others_wait(void)
{
	DIR *tasks = opendir("/proc/self/task");
	bool waiting = true;
	struct dirent *e;

	check(tasks);
	while ((e = readdir(tasks))) {
		char path[sizeof("/proc/self/task//stat") + sizeof(e->d_name)], text[512], *end;
		FILE *f;

		if (e->d_name[0] == '.' || atoi(e->d_name) == gettid())
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/stat", e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		end = fgets(text, sizeof(text), f) ? strrchr(text, ')') : NULL;
		fclose(f);
		waiting &= !end || end[2] == 'S';
	}
	closedir(tasks);
	return waiting;
}

/*
 * The allocator of AddressSanitizer (gcc 12) does not survive a fork while another thread is in it:
 * the child finds it locked for ever. A thread that waits is not in it.
 */
static void let_others_settle(void)
{
	for (int i = 0; i < 1000 && !others_wait(); i++)
		sched_yield();
}

struct child *child_start(child_function function, void *data)
{
	struct child *c = calloc(1, sizeof(*c));
	int pair[2];

	check(c && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	fflush(NULL);
	let_others_settle();
	c->pid = fork();
	check(c->pid >= 0);
	if (c->pid == 0) {
		check_in_child();
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		descriptors_close_but(pair[1]);
		function(&(struct child){.pid = getpid(), .channel = pair[1]}, data);
		_exit(0);
	}
	close(pair[1]);
	c->channel = pair[0];
	return c;
}

void child_exchange(struct child *self, const char *name, const void *data, size_t size,
		    void *answer, size_t answer_size)
{
	struct message m;

	send_message(self->channel, name, data, size);
	/* the end means that the test does not care any more */
	if (recv(self->channel, &m, sizeof(m), 0) != sizeof(m))
		_exit(0);
	check(m.size == answer_size);
	if (answer_size)
		memcpy(answer, m.bytes, answer_size);
}

void child_point_with(struct child *self, const char *name, const void *data, size_t size)
{
	child_exchange(self, name, data, size, NULL, 0);
}

void child_point(struct child *self, const char *name)
{
	child_exchange(self, name, NULL, 0, NULL, 0);
}

share_client *child_connect(const char *label)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	share_client *c;

	options.label = label;
	check_ok(share_connect_with(broker_socket(), &options, &c));
	return c;
}

void child_become(uid_t uid, gid_t group)
{
	check(setgroups(group ? 1 : 0, &group) == 0);
	check(setresgid((gid_t)uid, (gid_t)uid, (gid_t)uid) == 0);
	check(setresuid(uid, uid, uid) == 0);
}

/* ------------------------------------------------------------------------------------------- */

void child_wait_with(struct child *c, const char *name, void *data, size_t size)
{
	struct pollfd p = {.fd = c->channel, .events = POLLIN};
	struct message m;

	if (poll(&p, 1, HARNESS_LIMIT_MS) <= 0)
		check_failed(__FILE__, __LINE__, "the child never came to '%s'", name);
	if (recv(c->channel, &m, sizeof(m), 0) != sizeof(m))
		check_failed(__FILE__, __LINE__, "the child ended before it came to '%s'", name);
	if (strcmp(m.name, name) != 0 || m.size != size)
		check_failed(__FILE__, __LINE__, "the child came to '%s' (%zu bytes), not '%s'",
			     m.name, m.size, name);
	if (size)
		memcpy(data, m.bytes, size);
}

void child_wait(struct child *c, const char *name)
{
	child_wait_with(c, name, NULL, 0);
}

void child_go_with(struct child *c, const void *data, size_t size)
{
	send_message(c->channel, "", data, size);
}

void child_go(struct child *c)
{
	child_go_with(c, NULL, 0);
}

int child_status(struct child *c)
{
	int status;

	close(c->channel);
	check(waitpid(c->pid, &status, 0) == c->pid);
	free(c);
	return status;
}

void child_shoot(struct child *c)
{
	kill(c->pid, SIGKILL);
}

void child_reap(struct child *c)
{
	int status = child_status(c);

	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

void child_kill(struct child *c)
{
	child_shoot(c);
	child_reap(c);
}

void child_finish(struct child *c)
{
	struct pollfd p = {.fd = c->channel, .events = POLLIN};
	struct message m;
	int status;

	/* a point that nobody has asked for is a mistake of the test's: say so, do not hang */
	if (poll(&p, 1, HARNESS_LIMIT_MS) <= 0)
		check_failed(__FILE__, __LINE__, "the child never ended");
	if (recv(c->channel, &m, sizeof(m), 0) > 0)
		check_failed(__FILE__, __LINE__, "the child is at '%s', not at its end", m.name);
	status = child_status(c);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		check_failed(__FILE__, __LINE__, "the child ended badly (wait status 0x%x)",
			     status);
}
