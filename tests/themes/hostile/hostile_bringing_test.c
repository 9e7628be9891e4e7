/* SPDX-License-Identifier: MIT */

/*
 * Who adopts memory brings descriptors, and what is not used of them waits to be closed. To close
 * some may take as long as their user likes, and the others of that user wait behind them: here the
 * threads that close are stopped. However many a user brings meanwhile, the broker has descriptors
 * for everybody else; and once they are closed, each request has had its answer.
 */

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/channel.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"

#define STRANGER    4711
#define DESCRIPTORS 512
#define CONNECTIONS 4
#define REQUESTS    50 /* of each */
#define THREADS     16

static const char config[] =
    "{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"1MiB\", \"access\": "
    "[{\"user\": \"*\", \"mode\": \"rw\"}]},"
    "{\"name\": \"adopted\", \"kind\": \"adopted\", \"limit\": \"1MiB\", \"access\": "
    "[{\"user\": \"*\", \"mode\": \"rw\"}]}]}";

static share_client *witness;

static void start(void)
{
	broker_limit_descriptors(DESCRIPTORS);
	broker_without_privileges();
	fixture_start_with(config);
	witness = connect_as("witness");
}

static void stop(void)
{
	share_disconnect(witness);
	fixture_stop();
}

TestSuite(hostile_bringing, .init = start, .fini = stop, .timeout = 120);

/* ------------------------------------------------------------------------------------------- */

static pid_t stopped[THREADS];
static size_t n_stopped;

/* False: nobody may do that here. */
static bool stop_thread(pid_t thread)
{
	int status;

	if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) < 0)
		return false;
	check(ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) == 0);
	check(waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status));
	check(n_stopped < THREADS);
	stopped[n_stopped++] = thread;
	return true;
}

/* All of the broker but its loop. */
static bool stop_threads(void)
{
	struct dirent *entry;
	bool done = true;
	char path[64];
	DIR *all;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)broker_pid());
	all = opendir(path);
	check(all);
	while (done && (entry = readdir(all))) {
		pid_t thread = (pid_t)atoi(entry->d_name);

		if (thread > 0 && thread != broker_pid())
			done = stop_thread(thread);
	}
	closedir(all);
	return done;
}

static void let_threads_go(void)
{
	while (n_stopped > 0)
		check(ptrace(PTRACE_DETACH, stopped[--n_stopped], NULL, NULL) == 0);
}

/* ------------------------------------------------------------------------------------------- */

/* Of a range that is not in the file, so that both descriptors are closed again. */
static void bring(struct raw *r, struct wire_message *m, const int *fds)
{
	unsigned char packet[64];
	size_t size;

	m->serial = ++r->serial;
	size = wire_encode(m, packet, sizeof(packet));
	check_eq(raw_send_bytes(r, packet, size, fds, 2), 0);
}

static void expect_answers(struct raw *r, int n)
{
	for (int i = 0; i < n; i++) {
		check_eq(raw_receive(r, HARNESS_LIMIT_MS), RAW_MESSAGE);
		check_eq(r->m.type, WIRE_ERROR);
		check_error(r->m.error.error, SHARE_EINVAL);
	}
}

/* Whichever is served first. */
static void wait_for_an_answer(const struct raw *r)
{
	struct pollfd p[CONNECTIONS];

	for (int i = 0; i < CONNECTIONS; i++)
		p[i] = (struct pollfd){.fd = r[i].socket, .events = POLLIN};
	check(poll(p, CONNECTIONS, HARNESS_LIMIT_MS) > 0);
}

static void floods(struct child *self, void *data)
{
	struct wire_message m[CONNECTIONS];
	static struct raw r[CONNECTIONS];
	int fd = memfd_create("data", MFD_CLOEXEC);
	const int fds[] = {fd, fd};

	(void)data;
	child_become(STRANGER, 0);
	for (int i = 0; i < CONNECTIONS; i++) {
		raw_open(&r[i], "stranger");
		m[i] = (struct wire_message){.type = WIRE_ADOPT};
		m[i].adopt.pool = raw_pool(&r[i], "adopted");
		m[i].adopt.size = 4096;
		raw_ask_error(&r[i], &m[i], SHARE_EAGAIN);
	}
	child_point(self, "open");
	bring(&r[0], &m[0], fds);
	expect_answers(&r[0], 1);
	child_point(self, "brought");
	for (int i = 0; i < CONNECTIONS; i++)
		for (int k = 0; k < REQUESTS; k++)
			bring(&r[i], &m[i], fds);
	wait_for_an_answer(r);
	child_point(self, "flooding");
	for (int i = 0; i < CONNECTIONS; i++)
		expect_answers(&r[i], REQUESTS);
	child_point(self, "answered");
	for (int i = 0; i < CONNECTIONS; i++)
		raw_hang_up(&r[i]);
	close(fd);
}

static void expect_served(void)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;

	for (int i = 0; i < 10; i++) {
		share_client *c = connect_as("somebody else");
		share_channel *ch;

		check_ok(share_channel_open(c, "c", SHARE_CONSUMER, &options, &ch));
		share_channel_close(ch);
		share_disconnect(c);
	}
}

Test(hostile_bringing, what_waits_to_be_closed_is_not_missing_for_others)
{
	struct child *child;
	int before;

	skip_unless_root();
	child = child_start(floods, NULL);
	child_wait(child, "open");
	before = descriptors_count(broker_pid());
	child_go(child);
	child_wait(child, "brought");
	/* there is a thread that closes */
	until(descriptors_count(broker_pid()) == before);
	if (!stop_threads())
		cr_skip_test("no process may be stopped by another one here");
	child_go(child);
	child_wait(child, "flooding");
	expect_served();
	let_threads_go();
	child_go(child);
	child_wait(child, "answered");
	child_go(child);
	child_finish(child);
	settle(witness, s.clients == 1);
	until(descriptors_count(broker_pid()) == broker_descriptors());
}
