/* SPDX-License-Identifier: MIT */

/*
 * The end of the last producer, and of whoever could come after it. A consumer hears of both from
 * the producer's own page and from its socket, as the broker may be gone by the time that it asks:
 * a private broker ends with the program that has started it, which is often the producer.
 */

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "tests/harness/fixture.h"
#include "tests/support/channel_work.h"

#define MESSAGES 3

TestSuite(channel_end, .init = fixture_start, .fini = fixture_stop, .timeout = 120);

/* ------------------------------------------------------------------------------------------- */

static void pause_for(long ms)
{
	const struct timespec t = {0, ms * 1000000};

	nanosleep(&t, NULL);
}

/* How it waits: in the call, or by the descriptor, as an event loop does. */
static int receive(share_channel *ch, bool by_descriptor, share_message *m)
{
	struct pollfd p = {.events = POLLIN};
	int r = SHARE_EAGAIN;

	if (!by_descriptor)
		return share_recv(ch, HARNESS_LIMIT_MS, NULL, m);
	p.fd = share_channel_get_fd(ch);
	while ((r = share_recv(ch, 0, NULL, m)) == SHARE_EAGAIN)
		if (poll(&p, 1, HARNESS_LIMIT_MS) == 0)
			return SHARE_ETIMEDOUT;
	return r;
}

static void expect_end(share_channel *ch, bool by_descriptor, int end)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_error(receive(ch, by_descriptor, &m), end);
	check(!m.channel);
}

struct round {
	uint32_t mode;
	unsigned messages; /* 0: the channel is not used */
	long pause_ms;     /* between the last message and the end */
	bool by_descriptor;
};

/* The first program of most: it has a broker of its own, sends, closes and leaves. */
static void send_and_leave(struct child *self, void *data)
{
	const struct round *round = data;
	share_channel_options o = options(round->mode, SHARE_FULL_BLOCK);
	char program[4096], address[256];
	share_channel *ch;
	share_client *c;

	snprintf(program, sizeof(program), "%s/share-broker", getenv("SHARE_TEST_BIN"));
	setenv("SHARE_BROKER", program, 1);
	check_ok(share_connect("embedded", &c));
	ch = open_channel(c, SHARE_PRODUCER, &o);
	snprintf(address, sizeof(address), "%s", share_address(c));
	child_point_with(self, "serves", address, sizeof(address));
	for (unsigned i = 0; i < round->messages; i++)
		send_number(ch, i);
	check_ok(share_channel_flush(ch, HARNESS_LIMIT_MS));
	pause_for(round->pause_ms);
	share_channel_close(ch);
	share_disconnect(c);
	child_point(self, "left");
}

static void attempt(struct round *round)
{
	struct child *producer = child_start(send_and_leave, round);
	char address[256];
	share_channel *ch;
	share_client *c;

	child_wait_with(producer, "serves", address, sizeof(address));
	check_ok(share_connect(address, &c));
	ch = open_channel(c, SHARE_CONSUMER, NULL);
	child_go(producer);
	for (unsigned i = 0; i < round->messages; i++) {
		share_message m = SHARE_MESSAGE_INIT;

		check_ok(receive(ch, round->by_descriptor, &m));
		check_ok(share_ack(&m, NULL));
	}
	/* its process lives on, so that this is not how the end is seen */
	expect_end(ch, round->by_descriptor, SHARE_EPIPE);
	expect_end(ch, round->by_descriptor, SHARE_EDISCONNECTED);
	child_wait(producer, "left");
	child_go(producer);
	child_finish(producer);
	share_channel_close(ch);
	share_disconnect(c);
}

Test(channel_end, is_heard_of_though_a_private_broker_ends_with_the_producer)
{
	static const uint32_t modes[] = {SHARE_BROADCAST, SHARE_QUEUE};
	static const long pauses[] = {0, 1, 10, 100};

	for (unsigned i = 0; i < 32; i++) {
		struct round round = {modes[i & 1], i & 2 ? MESSAGES : 0, pauses[i >> 3], i & 4};

		attempt(&round);
	}
}

/* ------------------------------------------------------------------------------------------- */

/* A call that waits without a time limit, until it is told. */
struct waiter {
	share_channel *ch;
	int result;
	pthread_t thread;
};

static void *wait_for_message(void *data)
{
	struct waiter *w = data;
	share_message m = SHARE_MESSAGE_INIT;

	w->result = share_recv(w->ch, -1, NULL, &m);
	return NULL;
}

/* Until there is no room, and never. */
static void *send_for_ever(void *data)
{
	struct waiter *w = data;

	do
		w->result = share_send(w->ch, NULL, NULL, 0, NULL);
	while (w->result == 0);
	return NULL;
}

static void start(struct waiter *w, share_channel *ch, void *(*what)(void *))
{
	*w = (struct waiter){.ch = ch};
	check_eq(pthread_create(&w->thread, NULL, what, w), 0);
	until(channel_stats(ch).sleeps > 0);
}

static void expect_told(struct waiter *w, int result)
{
	check_eq(pthread_join(w->thread, NULL), 0);
	check_error(w->result, result);
}

/* The broker is killed for good, with its keeper and that one's deputy. */
Test(channel_end, is_heard_of_though_the_broker_is_gone)
{
	for (unsigned i = 0; i < 8; i++) {
		share_channel_options o =
		    options(i & 1 ? SHARE_QUEUE : SHARE_BROADCAST, SHARE_FULL_BLOCK);
		share_client *c[] = {connect_as("producer"), connect_as("consumer")};
		share_channel *from = open_channel(c[0], SHARE_PRODUCER, &o);
		share_channel *to = open_channel(c[1], SHARE_CONSUMER, &o);

		if (i & 2) {
			send_number(from, 7);
			expect_number(to, 7);
		}
		broker_kill();
		expect_nothing(to);
		if (i & 4) {
			struct waiter w;

			start(&w, to, wait_for_message);
			share_channel_close(from);
			expect_told(&w, SHARE_EPIPE);
		} else {
			send_number(from, 8);
			share_channel_close(from);
			expect_number(to, 8);
			expect_end(to, true, SHARE_EPIPE);
		}
		expect_end(to, i & 4, SHARE_EDISCONNECTED);
		share_channel_close(to);
		share_disconnect(c[0]);
		share_disconnect(c[1]);
		broker_stop();
		broker_start(NULL);
	}
}

Test(channel_end, who_waits_for_a_first_producer_is_told_that_none_can_come)
{
	for (unsigned i = 0; i < 2; i++) {
		share_client *c = connect_as("consumer");
		share_channel *ch = open_channel(c, SHARE_CONSUMER, NULL);
		struct pollfd p = {.fd = share_channel_get_fd(ch), .events = POLLIN};
		struct waiter w;

		if (i == 0) {
			start(&w, ch, wait_for_message);
			broker_kill();
			expect_told(&w, SHARE_EDISCONNECTED);
		} else {
			expect_nothing(ch);
			while (poll(&p, 1, 0) > 0) /* what was told as it came is drained */
				expect_nothing(ch);
			broker_kill();
			check_eq(poll(&p, 1, HARNESS_LIMIT_MS), 1);
			expect_end(ch, true, SHARE_EDISCONNECTED);
		}
		share_channel_close(ch);
		share_disconnect(c);
		broker_stop();
		broker_start(NULL);
	}
}

/* A producer, whose consumer closes the channel as nobody else can come any more. */
Test(channel_end, who_waits_for_room_is_told_that_the_last_consumer_has_gone)
{
	for (unsigned i = 0; i < 4; i++) {
		share_channel_options o =
		    options(i & 1 ? SHARE_QUEUE : SHARE_BROADCAST, SHARE_FULL_BLOCK);
		share_client *c[] = {connect_as("producer"), connect_as("consumer")};
		share_channel *from, *to;
		share_message m = SHARE_MESSAGE_INIT;
		struct waiter w;

		o.depth = 4;
		o.wait_for = 1;
		from = open_channel(c[0], SHARE_PRODUCER, &o);
		to = open_channel(c[1], SHARE_CONSUMER, &o);
		send_number(from, 0);
		if (i & 2) /* and has a message, which it acknowledges later */
			check_ok(share_recv(to, HARNESS_LIMIT_MS, NULL, &m));
		broker_kill();
		start(&w, from, send_for_ever);
		share_channel_close(to);
		if (m.channel)
			check_ok(share_ack(&m, NULL));
		expect_told(&w, SHARE_EDISCONNECTED);
		share_channel_close(from);
		share_disconnect(c[0]);
		share_disconnect(c[1]);
		broker_stop();
		broker_start(NULL);
	}
}

/* The same for one that waits by its descriptor. */
Test(channel_end, an_event_loop_that_waits_for_room_is_told_that_nobody_can_come)
{
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_FAIL);
	share_client *c = connect_as("producer");
	share_channel *ch = open_channel(c, SHARE_PRODUCER, &o);
	struct pollfd p = {.fd = share_channel_get_fd(ch), .events = POLLIN};
	bool killed = false;
	int r;

	do {
		r = share_send(ch, NULL, NULL, 0, NULL);
		if (r == SHARE_EAGAIN && !killed) {
			broker_kill();
			killed = true;
		}
		if (r == SHARE_EAGAIN)
			check_eq(poll(&p, 1, HARNESS_LIMIT_MS), 1);
	} while (r == 0 || r == SHARE_EAGAIN);
	check_error(r, SHARE_EDISCONNECTED);
	share_channel_close(ch);
	share_disconnect(c);
	broker_stop();
	broker_start(NULL);
}

/* ------------------------------------------------------------------------------------------- */

#define HAND_OVERS 300
#define AHEAD      8 /* so many producers may be gone of which something is to be received */

struct relay {
	share_client *c;
	share_channel *first;
	_Atomic uint32_t received;
};

/* Before one closes the channel the next one has come: so there is no end. */
static void *hand_over(void *data)
{
	struct relay *relay = data;
	share_channel *ch = relay->first, *next;

	for (uint32_t i = 0; i < HAND_OVERS; i++) {
		send_number(ch, i);
		next = open_channel(relay->c, SHARE_PRODUCER, NULL);
		share_channel_close(ch);
		ch = next;
		until(atomic_load(&relay->received) + AHEAD > i);
	}
	share_channel_close(ch);
	return NULL;
}

Test(channel_end, is_not_said_while_there_is_always_a_producer)
{
	struct relay relay = {.c = connect_as("producer")};
	share_client *c = connect_as("consumer");
	share_channel *ch = open_channel(c, SHARE_CONSUMER, NULL);
	pthread_t thread;

	relay.first = open_channel(relay.c, SHARE_PRODUCER, NULL);
	check_eq(pthread_create(&thread, NULL, hand_over, &relay), 0);
	for (uint32_t i = 0; i < HAND_OVERS; i++) {
		receive_number(ch);
		atomic_fetch_add(&relay.received, 1);
	}
	expect_end(ch, false, SHARE_EPIPE);
	check_eq(pthread_join(thread, NULL), 0);
	share_channel_close(ch);
	share_disconnect(relay.c);
	share_disconnect(c);
}

/* What happens once, as the consumer takes note of who has come: of what the broker has answered,
 * which knows nothing of what happens now. */
static void (*meanwhile)(void);

int __real_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);

int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
	void (*now)(void) = meanwhile;

	meanwhile = NULL;
	if (now)
		now();
	return __real_epoll_ctl(epoll, operation, fd, event);
}

static share_client *producer;
static share_channel *senders[3];

static void the_third_comes_and_the_others_go(void)
{
	senders[2] = open_channel(producer, SHARE_PRODUCER, NULL);
	share_channel_close(senders[0]);
	share_channel_close(senders[1]);
}

Test(channel_end, is_not_said_before_the_broker_is_asked_who_has_come)
{
	share_client *c = connect_as("consumer");
	share_channel *ch = open_channel(c, SHARE_CONSUMER, NULL);

	producer = connect_as("producer");
	senders[0] = open_channel(producer, SHARE_PRODUCER, NULL);
	expect_nothing(ch);
	senders[1] = open_channel(producer, SHARE_PRODUCER, NULL);
	meanwhile = the_third_comes_and_the_others_go;
	expect_nothing(ch);
	check(!meanwhile);
	send_number(senders[2], 5);
	expect_number(ch, 5);
	share_channel_close(senders[2]);
	expect_end(ch, false, SHARE_EPIPE);
	share_channel_close(ch);
	share_disconnect(producer);
	share_disconnect(c);
}

/* What is held keeps the producer known to the broker, which says so with whatever else changes. */
Test(channel_end, is_said_once_whoever_comes_and_goes_after_it)
{
	share_client *c[] = {connect_as("producer"), connect_as("consumer")};
	share_channel *from = open_channel(c[0], SHARE_PRODUCER, NULL);
	share_channel *to = open_channel(c[1], SHARE_CONSUMER, NULL), *other;
	share_message m = SHARE_MESSAGE_INIT;

	send_number(from, 1);
	check_ok(share_recv(to, HARNESS_LIMIT_MS, NULL, &m));
	share_channel_close(from);
	expect_end(to, false, SHARE_EPIPE);
	for (unsigned i = 0; i < 3; i++) {
		expect_nothing(to);
		other = open_channel(c[0], SHARE_CONSUMER, NULL);
		expect_nothing(to);
		share_channel_close(other);
	}
	check_ok(share_ack(&m, NULL));
	expect_nothing(to);
	/* of the next one it is said again */
	from = open_channel(c[0], SHARE_PRODUCER, NULL);
	share_channel_close(from);
	expect_end(to, false, SHARE_EPIPE);
	share_channel_close(to);
	share_disconnect(c[0]);
	share_disconnect(c[1]);
}
