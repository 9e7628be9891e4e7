/* SPDX-License-Identifier: MIT */

/*
 * The keeper is killed, alone or with its broker, and its deputy goes on: nobody notices. What it
 * does at each of its steps is seen in tests/broker/keeper/deputy_test.c.
 */

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <share/admin.h>
#include <share/channel.h>

#include "tests/harness/fixture.h"

#define SIZE 4096

TestSuite(keeper_death, .init = fixture_start, .fini = fixture_stop, .timeout = 120);

struct at_work {
	share_client *c;
	share_pool *p;
	share_buffer *b;
	share_channel *from, *to;
};

static struct at_work begin(void)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	struct at_work w = {.c = connect_as("one")};

	w.p = open_pool(w.c);
	w.b = allocate(w.p, SIZE, NULL);
	memset(share_ptr(w.b), 0x5a, SIZE);
	check_ok(share_publish(w.b, "thing", NULL));
	check_ok(share_channel_open(w.c, "channel", SHARE_PRODUCER, &options, &w.from));
	check_ok(share_channel_open(w.c, "channel", SHARE_CONSUMER, &options, &w.to));
	return w;
}

/* What was there is, and what is asked for comes. */
static void go_on(const struct at_work *w)
{
	share_client *other = connect_as("two");
	share_buffer *b = allocate(w->p, SIZE, NULL), *found;
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_lookup(other, "thing", SHARE_RDONLY, 0, NULL, &found));
	check_eq(share_id(found), share_id(w->b));
	check_eq(((const unsigned char *)share_ptr(found))[SIZE - 1], 0x5a);
	share_release(found, NULL);
	check_ok(share_send(w->from, b, NULL, 0, NULL));
	check_ok(share_recv(w->to, HARNESS_LIMIT_MS, NULL, &m));
	check_ok(share_ack(&m, NULL));
	share_release(b, NULL);
	share_disconnect(other);
}

static void finish(struct at_work *w)
{
	share_channel_close(w->from);
	share_channel_close(w->to);
	check_ok(share_unpublish(w->c, "thing"));
	share_release(w->b, NULL);
	share_pool_close(w->p);
	share_disconnect(w->c);
}

Test(keeper_death, its_broker_goes_on_and_so_does_the_next_one)
{
	struct at_work w = begin();
	pid_t before = broker_pid();

	broker_kill_keeper();
	go_on(&w);
	check_eq(broker_pid(), before);
	broker_kill_serving(); /* which is no child of the one that is keeper now */
	go_on(&w);
	check(broker_pid() != before);
	finish(&w);
}

Test(keeper_death, with_its_broker)
{
	struct at_work w = begin();
	pid_t before = broker_pid();

	broker_kill_keeper_and_serving();
	go_on(&w);
	check(broker_pid() != before);
	finish(&w);
}

Test(keeper_death, one_after_the_other)
{
	struct at_work w = begin();

	for (int i = 0; i < 10; i++) {
		broker_kill_keeper();
		go_on(&w);
		if (i % 3 == 0)
			broker_kill_serving();
	}
	finish(&w);
}

Test(keeper_death, a_broker_of_a_dead_keeper_hands_over)
{
	struct at_work w = begin();
	pid_t before = broker_pid();

	broker_kill_keeper();
	check_ok(share_upgrade(w.c, NULL, NULL));
	check(broker_pid() != before);
	go_on(&w);
	broker_kill_keeper();
	check_ok(share_upgrade(w.c, NULL, NULL));
	go_on(&w);
	finish(&w);
}

/* The fixture looks at the exit code, which comes from the deputy, and at the broker's descriptors.
 */
Test(keeper_death, a_broker_of_a_dead_keeper_ends_as_it_would_otherwise)
{
	broker_kill_keeper();
}

static int find_processes(const char *json, void *data)
{
	json_t *row = json_loads(json, 0, NULL);
	pid_t *found = data;

	found[0] = (pid_t)number_of(row, "keeper");
	found[1] = (pid_t)number_of(row, "deputy");
	json_decref(row);
	return 0;
}

Test(keeper_death, the_status_says_who_is_keeper_and_who_its_deputy)
{
	share_client *c = connect_as("one");
	pid_t before[2], after[2];

	check_ok(share_inspect(c, "status", find_processes, before));
	check(before[0] > 0 && before[1] > 0);
	broker_kill_keeper();
	/* it is written down when it has been started, a moment after it is there */
	do
		check_ok(share_inspect(c, "status", find_processes, after));
	while (after[1] == 0);
	check_eq(after[0], before[1]);
	check(after[1] != before[1] && kill(after[1], 0) == 0);
	/* there is another one when it is the deputy that dies */
	kill(after[1], SIGKILL);
	do
		check_ok(share_inspect(c, "status", find_processes, before));
	while (before[1] == 0 || before[1] == after[1]);
	check_eq(before[0], after[0]);
	share_disconnect(c);
}

/* Both are killed, and the broker is not: it ends by itself, as nobody could follow it. */
Test(keeper_death, without_a_deputy_the_broker_ends)
{
	share_client *c = connect_as("one");

	broker_kill_keepers();
	until(share_ping(c) == SHARE_EDISCONNECTED);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */

static int log_ends[2];

static void start_with_pipe(void)
{
	check(pipe2(log_ends, O_CLOEXEC) == 0);
	broker_log_to(log_ends[1]);
	fixture_start();
}

/* As "share-broker 2>&1 | logger", whose logger has ended. */
Test(keeper_death_log, that_nobody_reads_any_more_ends_nobody, .init = start_with_pipe,
     .fini = fixture_stop, .timeout = 120)
{
	struct at_work w = begin();
	int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

	/* closed, but for its number, as descriptors are counted in the end */
	check(nothing >= 0 && dup3(nothing, log_ends[0], O_CLOEXEC) == log_ends[0]);
	check(close(nothing) == 0);
	for (int i = 0; i < 3; i++) {
		broker_kill_keeper();
		broker_kill_serving();
		go_on(&w);
	}
	finish(&w);
}

static char script[64];

static void start_closed(void)
{
	FILE *file;

	snprintf(script, sizeof(script), "/tmp/share-closed-%d", (int)getpid());
	file = fopen(script, "we");
	check(file && fprintf(file, "#!/bin/sh\nexec '%s/share-broker' \"$@\" <&- >&- 2>&-\n",
			      getenv("SHARE_TEST_BIN")) > 0);
	check(fclose(file) == 0 && chmod(script, 0755) == 0);
	broker_use_program(script);
	fixture_start();
}

static void stop_closed(void)
{
	fixture_stop();
	unlink(script);
}

/* Else the journal would have the number of stderr, and lines of the log in it. */
Test(keeper_death_closed, stdin_stdout_and_stderr_are_nothing_else, .init = start_closed,
     .fini = stop_closed, .timeout = 120)
{
	struct at_work w = begin();

	broker_kill_serving();
	go_on(&w);
	broker_kill_keeper_and_serving();
	go_on(&w);
	check_ok(share_upgrade(w.c, NULL, NULL));
	finish(&w);
}

/* ------------------------------------------------------------------------------------------- */

/* Whose manager is behind the socket that is returned, at an address that the kernel makes. */
static int be_a_service(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t size = sizeof(address);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char text[sizeof(address.sun_path) + 1];

	check(fd >= 0 &&
	      bind(fd, (const struct sockaddr *)&address, sizeof(address.sun_family)) == 0);
	check(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
	snprintf(text, sizeof(text), "@%s", address.sun_path + 1);
	setenv("NOTIFY_SOCKET", text, 1);
	snprintf(text, sizeof(text), "%d", (int)getpid());
	setenv("SYSTEMD_EXEC_PID", text, 1);
	return fd;
}

/* It is started by the library, tells the manager of the program's service nothing, and ends with
 * the connection that has started it. */
Test(keeper_death, a_private_broker_ends_when_it_is_told_to)
{
	char program[4096];
	share_client *c, *other;
	pid_t found[2], before;
	int manager;

	snprintf(program, sizeof(program), "%s/share-broker", getenv("SHARE_TEST_BIN"));
	setenv("SHARE_BROKER", program, 1);
	manager = be_a_service();
	check_ok(share_connect("embedded", &c));
	check_ok(share_connect(share_address(c), &other));
	check_ok(share_inspect(c, "status", find_processes, found));
	before = found[0];
	kill(before, SIGKILL);
	do
		check_ok(share_inspect(c, "status", find_processes, found));
	while (found[0] == before || found[1] == 0);
	check_ok(share_ping(other));
	share_disconnect(c);
	check_eq(share_ping(other), SHARE_EDISCONNECTED);
	share_disconnect(other);
	check(recv(manager, program, sizeof(program), MSG_DONTWAIT) < 0);
	close(manager);
}
