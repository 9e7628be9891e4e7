/* SPDX-License-Identifier: MIT */

/*
 * A process that waits for others does not wake up before they do something: after a while each of
 * its threads is in a system call that has no time limit, which /proc shows.
 */

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <share/service.h>

#include "tests/harness/child.h"
#include "tests/harness/fixture.h"
#include "tests/harness/status.h"
#include "tests/support/channel_work.h"

TestSuite(idle, .init = fixture_start, .fini = fixture_stop, .timeout = 60);

#define CALL_ARGUMENTS 6

/* One thread of it, from the text of its file `syscall`: the number of the call, its arguments, and
 * more. */
static bool sleeps_for_good(const char *text)
{
	unsigned long a[CALL_ARGUMENTS];
	long number;

	if (sscanf(text, "%ld %lx %lx %lx %lx %lx %lx", &number, &a[0], &a[1], &a[2], &a[3], &a[4],
		   &a[5]) != CALL_ARGUMENTS + 1)
		return false; /* it runs */
	switch (number) {
	case SYS_futex:
#ifdef SYS_futex_waitv
	case SYS_futex_waitv:
#endif
		return a[3] == 0;
#ifdef SYS_poll
	case SYS_poll:
		return (int)a[2] == -1;
#endif
#ifdef SYS_epoll_wait
	case SYS_epoll_wait:
#endif
	case SYS_epoll_pwait:
		return (int)a[3] == -1;
	case SYS_ppoll:
		return a[2] == 0;
	case SYS_recvmsg:
	case SYS_recvfrom:
	case SYS_read:
		return true;
	default:
		return false;
	}
}

static bool all_sleep_for_good(pid_t pid)
{
	char folder[64], path[400], text[256];
	bool all = true;
	struct dirent *e;
	DIR *tasks;

	snprintf(folder, sizeof(folder), "/proc/%d/task", (int)pid);
	tasks = opendir(folder);
	check(tasks);
	while (all && (e = readdir(tasks))) {
		FILE *f;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s/syscall", folder, e->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		all = fgets(text, sizeof(text), f) && sleeps_for_good(text);
		fclose(f);
	}
	closedir(tasks);
	return all;
}

static unsigned threads_of(pid_t pid)
{
	char path[64];
	struct dirent *e;
	unsigned n = 0;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	check(tasks);
	while ((e = readdir(tasks)))
		n += e->d_name[0] != '.';
	closedir(tasks);
	return n;
}

/* ------------------------------------------------------------------------------------------- */

static void *receive(void *c)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_recv(c, -1, NULL, &m));
	return NULL;
}

static void *send(void *p)
{
	check_ok(share_send(p, NULL, NULL, 0, NULL));
	return NULL;
}

static void *drain(void *p)
{
	check_ok(share_channel_drain(p, -1));
	return NULL;
}

static void *flush(void *p)
{
	check_ok(share_channel_flush(p, -1));
	return NULL;
}

static void *serve(void *s)
{
	share_message m = SHARE_MESSAGE_INIT;

	for (;;)
		check_ok(share_next_request(s, -1, NULL, &m));
	return NULL;
}

static void *call(void *s)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_call(s, NULL, NULL, 0, -1, NULL, &m));
	return NULL;
}

static void *find(void *c)
{
	share_buffer *b;

	check_ok(share_lookup(c, "nobody-publishes-this", SHARE_RDONLY, -1, NULL, &b));
	return NULL;
}

static void begin(void *(*function)(void *), void *data)
{
	pthread_t thread;

	check_eq(pthread_create(&thread, NULL, function, data), 0);
}

/* The child's main thread waits for the test in a socket. */
static void expect_rest(child_function function, unsigned threads)
{
	struct child *c = child_start(function, NULL);

	child_wait(c, "waits");
	until(threads_of(c->pid) == threads && all_sleep_for_good(c->pid));
	child_kill(c);
}

static share_channel *open_another(share_client *c, const char *name, int role,
				   const share_channel_options *o)
{
	share_channel *ch;

	check_ok(share_channel_open(c, name, role, o, &ch));
	return ch;
}

/* Two threads wait for a message of somebody who may come. */
static void wait_for_messages(struct child *self, void *data)
{
	share_client *c = child_connect("consumer");
	share_channel *ch = open_channel(c, SHARE_CONSUMER, NULL);

	(void)data;
	begin(receive, ch);
	begin(receive, ch);
	child_point(self, "waits");
}

Test(idle, who_waits_for_messages_does_not_wake_up)
{
	expect_rest(wait_for_messages, 3);
}

/* A message is received, and not acknowledged; and one waits for a consumer. */
static void keep_in_flight(struct child *self, void *data)
{
	share_client *client = child_connect("producer");
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *p, *c, *q;

	(void)data;
	p = open_another(client, "one", SHARE_PRODUCER, &o);
	c = open_another(client, "one", SHARE_CONSUMER, NULL);
	q = open_another(client, "two", SHARE_PRODUCER, &o);
	check_ok(share_send(p, NULL, NULL, 0, NULL));
	check_ok(share_send(q, NULL, NULL, 0, NULL));
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	child_point(self, "waits");
}

/* The main thread, and one of each producer. */
Test(idle, a_producer_does_not_wake_up_for_what_is_in_flight)
{
	expect_rest(keep_in_flight, 3);
}

/* For as long as it takes, and without a consumer. */
static void wait_for_room(struct child *self, void *data)
{
	share_client *client = child_connect("producer");
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *p, *q;

	(void)data;
	o.depth = 1;
	o.stall_ms = UINT32_MAX;
	p = open_another(client, "one", SHARE_PRODUCER, &o);
	open_another(client, "one", SHARE_CONSUMER, NULL);
	q = open_another(client, "two", SHARE_PRODUCER, &o);
	until(channel_stats(p).consumers == 1);
	check_ok(share_send(p, NULL, NULL, 0, NULL));
	check_ok(share_send(q, NULL, NULL, 0, NULL));
	begin(send, p);
	begin(send, p);
	begin(send, q);
	begin(drain, p);
	begin(flush, q);
	child_point(self, "waits");
}

Test(idle, who_waits_for_room_or_acknowledgements_does_not_wake_up)
{
	expect_rest(wait_for_room, 8);
}

static void ask_nobody(struct child *self, void *data)
{
	share_client *c = child_connect("caller"), *d = child_connect("worker");
	share_service *caller, *worker, *other;

	(void)data;
	check_ok(share_service_open(c, "served", SHARE_CALLER, NULL, &caller));
	check_ok(share_service_open(d, "served", SHARE_WORKER, NULL, &worker));
	check_ok(share_service_open(c, "deserted", SHARE_CALLER, NULL, &other));
	begin(serve, worker);
	begin(call, caller);
	begin(call, caller);
	begin(call, other);
	begin(find, c);
	child_point(self, "waits");
}

/* Two callers and a worker have a producer each. */
Test(idle, who_waits_for_answers_requests_and_names_does_not_wake_up)
{
	expect_rest(ask_nobody, 1 + 5 + 3);
}

/* A process that holds a message, and then acknowledges it. */
static void acknowledge(struct child *self, void *data)
{
	share_client *client = child_connect("consumer");
	share_channel *c = open_channel(client, SHARE_CONSUMER, NULL);
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	child_point(self, "is there");
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	child_point(self, "has it");
	check_ok(share_ack(&m, NULL));
	child_point(self, "has acknowledged it");
}

static void send_one(struct child *self, void *data)
{
	share_client *client = child_connect("producer");
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_pool *pool = open_pool(client);

	(void)data;
	child_point(self, "is there");
	until(channel_stats(p).consumers == 1);
	send_filled(p, pool, 7);
	child_point(self, "waits");
}

/* As the broker reads it in the producer's page, which that one alone writes. */
static bool has_in_flight(share_client *observer, int64_t n)
{
	json_t *rows = report(observer, "channels");
	json_t *members = json_object_get(json_array_get(rows, 0), "members");
	bool has = number_of(row_named(members, "role", "producer"), "in_flight") == n;

	json_decref(rows);
	return has;
}

Test(idle, a_producer_that_rests_is_woken_by_what_is_acknowledged)
{
	share_client *observer = connect_as("observer");
	struct child *p = child_start(send_one, NULL), *c;

	child_wait(p, "is there");
	c = child_start(acknowledge, NULL);
	child_wait(c, "is there");
	child_go(p);
	child_wait(p, "waits");
	child_go(c);
	child_wait(c, "has it");
	until(all_sleep_for_good(p->pid));
	check(has_in_flight(observer, 1));
	child_go(c);
	child_wait(c, "has acknowledged it");
	until(has_in_flight(observer, 0));
	child_kill(p);
	child_kill(c);
	share_disconnect(observer);
}
