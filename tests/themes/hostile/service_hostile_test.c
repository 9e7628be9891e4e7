/* SPDX-License-Identifier: MIT */

/* Callers that write their requests themselves: nonsense is dropped, and nobody can have somebody
 * else answered. */

#include <string.h>

#include "libshare/channel/inside.h"
#include "libshare/service/inside.h"
#include "tests/support/service_work.h"

static share_client *stranger;
static share_channel *requests; /* of the stranger's */

/* As the library does for a service, which it does not let a program do. */
static void start(void)
{
	share_channel *inside;
	share_client *c;

	service_start();
	c = stranger = connect_as("stranger");
	c = client_of(c);
	check_ok(channel_open(c, "sums", SHARE_PRODUCER, CHANNEL_QUEUE, NULL, &inside));
	requests = handle_give(inside);
}

static void stop(void)
{
	share_channel_close(requests);
	share_disconnect(stranger);
	service_stop();
}

TestSuite(service_hostile, .init = start, .fini = stop, .timeout = 120);

#define CALL 1

static void send_request(int number, struct request_tail tail)
{
	share_outgoing m = {.data = &number, .data_size = sizeof(number)};

	check_ok(
	    service_send(channel_of(requests), NULL, &m, &tail, sizeof(tail), NULL, FOREVER, NULL));
}

Test(service_hostile, an_answer_goes_to_nobody_but_who_asked)
{
	share_pending *p = ask_for(caller, 1);
	const struct channel_target *self = &service_of(caller)->self;
	struct request_tail tail = {self->member, CALL, 0, (uint16_t)self->slot};
	share_message m = next_of(worker, 1), none = SHARE_MESSAGE_INIT;

	/* the very call that the other one waits for, by its number and all */
	check_eq(pending_of(p)->call, CALL);
	check_eq(pending_of(p)->index, 0);
	channel_set_call(channel_of(requests), 0, CALL);
	send_request(100, tail);
	for (share_message forged = next_of(worker, 100); forged.channel;)
		check_error(answer(&forged), SHARE_ECANCELED);
	check_error(share_call_finish(p, 0, NULL, &none), SHARE_EAGAIN);
	check_ok(answer(&m));
	expect_answer(p, 1);
}

Test(service_hostile, requests_without_sense_are_dropped)
{
	static const struct request_tail nonsense[] = {
	    {0, CALL, UINT16_MAX, 0},
	    {0, CALL, SHARE_CALLS_MAX, 0},
	    {0, CALL, 0, UINT16_MAX},
	    {0, CALL + 1, 0, 0},
	    {0, 0, 1, 0},
	};
	share_pending *p;
	share_message m = SHARE_MESSAGE_INIT;

	channel_set_call(channel_of(requests), 0, CALL);
	for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++)
		send_request(1, nonsense[i]);
	check_ok(share_send(requests, NULL, NULL, 0, NULL));
	check_ok(share_send(requests, NULL, "short", 5, NULL));
	expect_no_request();
	/* an answer to nobody is lost, and nothing else */
	send_request(2, (struct request_tail){UINT64_MAX, CALL, 0, 63});
	m = next_of(worker, 2);
	check_error(answer(&m), SHARE_ECANCELED);
	p = ask_for(caller, 3);
	m = next_of(worker, 3);
	check_ok(answer(&m));
	expect_answer(p, 3);
}

Test(service_hostile, the_channels_of_a_service_are_not_for_others)
{
	share_channel *ch = NULL;

	for (int role = SHARE_PRODUCER; role <= SHARE_CONSUMER; role++) {
		check_error(share_channel_open(stranger, "sums", role, NULL, &ch), SHARE_EEXIST);
		check_detail("channel 'sums' is of a service");
		check_error(share_channel_open(stranger, "sums.replies", role, NULL, &ch),
			    SHARE_EEXIST);
		check_detail("channel 'sums.replies' is of a service");
	}
	check(ch == NULL);
}
