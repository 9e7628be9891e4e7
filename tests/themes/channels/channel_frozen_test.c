/* SPDX-License-Identifier: MIT */

/*
 * A broker that is stopped while somebody has come whom the others have yet to ask it about: time
 * limits hold, and what is connected goes on.
 */

#include <poll.h>
#include <string.h>

#include <share/private/core.h>

#include "libshare/sender/inside.h"
#include "tests/harness/broker_process.h"
#include "tests/harness/fixture.h"
#include "tests/support/channel_work.h"

static share_client *client, *other;
static share_channel *c, *known, *p;

/* Of the two producers, the consumer has not heard of the second when the broker stops. */
static void start(void)
{
	fixture_start();
	client = connect_as("producers");
	other = connect_as("consumer");
	c = open_channel(other, SHARE_CONSUMER, NULL);
	known = open_channel(client, SHARE_PRODUCER, NULL);
	send_number(known, 1);
	expect_number(c, 1);
	expect_nothing(c);
	p = open_channel(client, SHARE_PRODUCER, NULL);
	send_number(known, 2); /* so that it knows that nobody else has come to receive */
	broker_freeze();
}

static void stop(void)
{
	broker_thaw();
	share_channel_close(p);
	share_channel_close(known);
	share_channel_close(c);
	share_disconnect(other);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_frozen, .init = start, .fini = stop, .timeout = 60);

Test(channel_frozen, receiving_ends_in_time)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_error(share_try_recv(c, &m), SHARE_EAGAIN); /* it would ask */
	expect_number(c, 2);
	check_error(share_recv(c, 50, NULL, &m), SHARE_ETIMEDOUT);
	check_error(share_recv(c, 300, NULL, &m), SHARE_ETIMEDOUT);
	check_error(share_recv_many(c, 1, NULL, &m, 1), SHARE_ETIMEDOUT);
	expect_nothing(c);
	send_number(p, 3);
	expect_nothing(c);
	broker_thaw();
	expect_number(c, 3);
}

/* Its background thread may have asked before the broker stopped: then there is nothing to wait
 * for. */
Test(channel_frozen, sending_ends_in_time)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *hurried, *another;
	int r, number = 1;

	broker_thaw();
	o.send_timeout_ms = 50;
	hurried = open_channel(client, SHARE_PRODUCER, &o);
	another = open_channel(client, SHARE_PRODUCER, &o);
	broker_freeze();
	r = share_send(hurried, NULL, &number, sizeof(number), NULL);
	broker_thaw();
	if (r != 0)
		check_error(r, SHARE_ETIMEDOUT);
	send_number(hurried, 7);
	share_channel_close(hurried);
	share_channel_close(another);
}

/* Nobody waits for the answer any more when it comes, and it says nothing of who came after it. */
Test(channel_frozen, who_comes_after_a_question_that_was_given_up_gets_what_is_sent_after_that)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *hurried, *inside, *another, *newcomer;
	int r, number = 7;

	broker_thaw();
	o.send_timeout_ms = 50;
	hurried = inside = open_channel(client, SHARE_PRODUCER, &o);
	inside = channel_of(inside);
	background_stop(inside); /* which would ask, and wait, by itself */
	another = open_channel(client, SHARE_PRODUCER, &o);
	broker_freeze();
	check_error(share_send(hurried, NULL, &number, sizeof(number), NULL), SHARE_ETIMEDOUT);
	broker_thaw();
	newcomer = open_channel(other, SHARE_CONSUMER, NULL);
	while ((r = share_send(hurried, NULL, &number, sizeof(number), NULL)) == SHARE_ETIMEDOUT)
		;
	check_ok(r);
	expect_number(newcomer, 7);
	share_channel_close(newcomer);
	share_channel_close(hurried);
	share_channel_close(another);
}

Test(channel_frozen, what_comes_from_who_is_known_is_received)
{
	for (uint32_t i = 3; i < 200; i++) {
		send_number(known, i);
		expect_number(c, i - 1);
	}
}

Test(channel_frozen, an_event_loop_is_told_when_the_broker_goes_on)
{
	int fd = share_channel_get_fd(c), r;
	share_message m = SHARE_MESSAGE_INIT;
	uint32_t number;

	expect_number(c, 2);
	send_number(p, 3);
	expect_nothing(c);
	broker_thaw();
	while ((r = share_recv(c, 0, NULL, &m)) == SHARE_EAGAIN) {
		struct pollfd readable = {.fd = fd, .events = POLLIN};

		check_eq(poll(&readable, 1, HARNESS_LIMIT_MS), 1);
	}
	check_ok(r);
	memcpy(&number, m.data, sizeof(number));
	check_eq(number, 3);
	check_ok(share_ack(&m, NULL));
}

Test(channel_frozen, a_channel_that_waits_for_an_answer_can_be_closed)
{
	share_message m = SHARE_MESSAGE_INIT;

	expect_number(c, 2);
	check_error(share_recv(c, 50, NULL, &m), SHARE_ETIMEDOUT);
	broker_thaw();
	share_channel_close(c);
	c = open_channel(other, SHARE_CONSUMER, NULL);
	send_number(p, 2);
	expect_number(c, 2);
}
