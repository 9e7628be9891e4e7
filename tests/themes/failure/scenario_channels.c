/* SPDX-License-Identifier: MIT */

/*
 * Channels and services in the scenario: both ends by the same process, with the same connection.
 * What was sent need not arrive, as the receiving half may have failed, and is in the way of what
 * comes then; whatever was received is acknowledged, and what was not given away is released.
 */

#include <stdlib.h>
#include <string.h>

#include <share/admin.h>
#include <share/channel.h>
#include <share/service.h>

#include "tests/harness/check.h"
#include "tests/themes/failure/scenario.h"
#include "tests/themes/failure/scenario_try.h"

#define SOON_MS 20
#define SIZE    3000
#define BATCH   12

static share_channel *open_end(share_client *c, const char *name, int role, uint32_t mode)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch = NULL;

	o.mode = mode;
	o.when_full = SHARE_FULL_FAIL;
	o.depth = 8;
	if (!try(share_channel_open(c, name, role, &o, &ch)))
		check(ch == NULL);
	return ch;
}

static void acknowledge(share_message *m)
{
	if (!m->channel)
		return;
	try(share_ack(m, NULL));
	check(m->channel == NULL);
}

/* What there is. True when there was a message with its memory. */
static bool receive(share_channel *ch, share_message *m)
{
	int r = share_recv(ch, SOON_MS, NULL, m);

	if (r == 0)
		return true;
	check_clean("share_recv", r, SHARE_ETIMEDOUT);
	acknowledge(m);
	return false;
}

static void send_one(share_channel *ch, share_pool *pool, bool give)
{
	share_buffer *b = NULL;
	bool given = false;

	if (!try(share_alloc(pool, SIZE, NULL, &b)))
		return;
	memset(share_ptr(b), 7, SIZE);
	if (give)
		given = try_or(SHARE_EAGAIN, share_give(ch, b, "text", 5, NULL));
	else
		try_or(SHARE_EAGAIN, share_send(ch, b, "text", 5, NULL));
	if (!given)
		try(share_release(b, NULL));
}

/* Keeps one beyond its acknowledgement. */
static void receive_one(share_channel *ch, bool keep)
{
	share_buffer *kept;
	share_message m = SHARE_MESSAGE_INIT;

	if (!receive(ch, &m))
		return;
	check_eq(m.data_size, 5);
	check_eq(((const unsigned char *)share_ptr(m.buffer))[SIZE - 1], 7);
	kept = m.buffer;
	if (keep)
		share_retain(kept);
	acknowledge(&m);
	if (keep)
		try(share_release(kept, NULL));
}

static void exchange_batch(share_channel *p, share_channel *c)
{
	share_outgoing out[BATCH] = {SHARE_OUTGOING_INIT};
	share_message in[BATCH] = {SHARE_MESSAGE_INIT};
	int n;

	for (int i = 0; i < BATCH; i++) {
		out[i].data = "of a batch";
		out[i].data_size = 11;
	}
	n = share_send_many(p, out, BATCH, NULL);
	if (n < 0)
		check_clean("share_send_many", n, SHARE_EAGAIN);
	n = share_recv_many(c, SOON_MS, NULL, in, BATCH);
	if (n > 0) {
		try(share_ack_many(in, (size_t)n, NULL));
	} else {
		check_clean("share_recv_many", n, SHARE_ETIMEDOUT);
		acknowledge(&in[0]);
	}
}

static void use_streams(share_client *client, share_pool *pool, share_channel *p, share_channel *c)
{
	share_host_stream *s = NULL;
	share_buffer *b = NULL;
	share_message m = SHARE_MESSAGE_INIT;

	if (!try(share_host_stream_create(client, &s)))
		return;
	if (try(share_alloc(pool, SIZE, s, &b)) &&
	    !try_or(SHARE_EAGAIN, share_give(p, b, NULL, 0, s)))
		try(share_release(b, s));
	if (try_or(SHARE_ETIMEDOUT, share_recv(c, SOON_MS, s, &m))) {
		if (share_ack(&m, s) < 0)
			check(m.channel == NULL);
	} else {
		acknowledge(&m);
	}
	check_ok(share_host_stream_synchronize(s));
	share_host_stream_destroy(s);
}

static void use_channel(share_client *client, share_pool *pool, const char *name, uint32_t mode)
{
	share_channel *p = open_end(client, name, SHARE_PRODUCER, mode);
	share_channel *c = open_end(client, name, SHARE_CONSUMER, mode);
	share_message m = SHARE_MESSAGE_INIT;

	if (p && c) {
		send_one(p, pool, false);
		receive_one(c, false);
		send_one(p, pool, true);
		receive_one(c, true);
		exchange_batch(p, c);
		use_streams(client, pool, p, c);
		try(share_channel_get_fd(c));
		try(share_channel_get_fd(p));
		send_one(p, pool, true); /* stays there */
	}
	share_channel_close(p);
	if (c) {
		while (share_recv(c, 0, NULL, &m) != SHARE_EAGAIN && m.channel)
			acknowledge(&m);
		share_channel_close(c);
	}
}

/* What waits when its producer is gone comes to who is there next, unless that fails. */
static void use_queue_of_the_gone(share_client *client, share_pool *pool)
{
	share_channel *p = open_end(client, "scenario/left", SHARE_PRODUCER, SHARE_QUEUE), *c;

	if (p) {
		send_one(p, pool, true);
		send_one(p, pool, true);
	}
	share_channel_close(p);
	c = open_end(client, "scenario/left", SHARE_CONSUMER, SHARE_QUEUE);
	if (c) {
		receive_one(c, false);
		share_channel_close(c);
	}
	/* what is left, or there is nothing */
	share_end_channel(client, "scenario/left");
	share_end_channel(client, "scenario/queue");
}

/* ------------------------------------------------------------------------------------------- */

static share_service *open_service(share_client *c, int role)
{
	share_service *s = NULL;

	if (!try(share_service_open(c, "scenario/service", role, NULL, &s)))
		check(s == NULL);
	return s;
}

/* True when it has acknowledged a request without an answer, as share_reply() has failed. */
static bool answer(share_service *worker, share_pool *pool)
{
	share_buffer *b = NULL;
	share_message request = SHARE_MESSAGE_INIT;
	bool answered;
	int r = share_next_request(worker, SOON_MS, NULL, &request);

	if (r < 0) {
		bool dropped = request.channel != NULL;

		check_clean("share_next_request", r, SHARE_ETIMEDOUT);
		acknowledge(&request);
		return dropped;
	}
	check_eq(request.data_size, 9);
	try(share_alloc(pool, SIZE, NULL, &b));
	answered = try_or(SHARE_ECANCELED, share_reply(&request, b, "answer", 7, NULL));
	acknowledge(&request);
	if (b)
		try(share_release(b, NULL));
	return !answered;
}

static void use_service(share_client *c, share_pool *pool)
{
	share_service *worker = open_service(c, SHARE_WORKER);
	share_service *caller = open_service(c, SHARE_CALLER);
	share_pending *call = NULL, *never = NULL;
	share_message m = SHARE_MESSAGE_INIT;

	if (worker && caller &&
	    try(share_call_start(caller, NULL, "question", 9, 1000, NULL, &call))) {
		bool dropped = answer(worker, pool);
		int r = share_call_finish(call, SOON_MS, NULL, &m);

		/* that there is no answer is told, unless that fails as well */
		if (r < 0)
			check_clean("share_call_finish", r,
				    r == SHARE_ECANCELED && dropped ? r : SHARE_ETIMEDOUT);
		acknowledge(&m);
	}
	if (worker && caller &&
	    try(share_call_start(caller, NULL, "question", 9, 1000, NULL, &never)))
		share_call_cancel(never);
	share_service_close(caller);
	share_service_close(worker);
}

void scenario_channels(share_client *c, share_pool *pool)
{
	use_channel(c, pool, "scenario/broadcast", SHARE_BROADCAST);
	use_channel(c, pool, "scenario/queue", SHARE_QUEUE);
	use_queue_of_the_gone(c, pool);
	use_service(c, pool);
}
