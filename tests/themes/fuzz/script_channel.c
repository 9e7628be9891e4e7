/* SPDX-License-Identifier: MIT */

/*
 * The part of the application of script.c that sends and receives. Both ends of its channels are
 * its own: what goes through a channel is there when a broker that plays back a recording has said
 * nothing but who takes part, and what somebody writes into the pages meanwhile is met by both.
 *
 * The thread of a producer is not there: whether it or the program comes first is not up to an
 * input. It does nothing that a send or a flush does not do as well.
 */

#include <stdbool.h>

#include <share/private/core.h>

#include "tests/themes/fuzz/script.h"

#define SHORT_MS 10

int __wrap_background_start(share_channel *ch);

int __wrap_background_start(share_channel *ch)
{
	(void)ch;
	return 0;
}

static void look_at(struct script *s, const share_message *m)
{
	for (uint32_t i = 0; m->channel && i < m->data_size; i++)
		s->seen += m->data[i];
	if (m->channel && m->buffer && share_size(m->buffer) > 0)
		s->seen += *(const unsigned char *)share_ptr(m->buffer);
}

static share_message *empty(struct script *s, unsigned which)
{
	share_message *m = &s->messages[which];

	if (m->channel)
		share_ack(m, NULL);
	*m = (share_message)SHARE_MESSAGE_INIT;
	return m;
}

static void forget(struct script *s, const share_channel *ch)
{
	if (s->producer == ch)
		s->producer = NULL;
	if (s->consumer == ch)
		s->consumer = NULL;
}

static void use(struct script *s, unsigned which)
{
	if (which & 1)
		s->consumer = s->channels[which];
	else
		s->producer = s->channels[which];
}

static void open_channel(struct script *s, unsigned which)
{
	static const char *const names[] = {"blocks", "queue", "drops", "queue/drops"};
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;

	o.mode = which & 2 ? SHARE_QUEUE : SHARE_BROADCAST;
	o.when_full = which & 4 ? SHARE_FULL_DROP : SHARE_FULL_BLOCK;
	o.depth = 2;
	o.in_flight = 4;
	o.data_max = 64;
	o.producers = o.consumers = o.deliveries = 2;
	o.stall_ms = 5 * SHORT_MS;
	o.send_timeout_ms = SHORT_MS;
	o.from = which & 2 ? SHARE_FROM_OLDEST : SHARE_FROM_NEWEST;
	if (s->channels[which])
		return;
	if (share_channel_open(s->client, names[which >> 1],
			       which & 1 ? SHARE_CONSUMER : SHARE_PRODUCER, &o,
			       &s->channels[which]) == 0)
		use(s, which);
}

static void close_channel(struct script *s, unsigned which)
{
	forget(s, s->channels[which]);
	share_channel_close(s->channels[which]);
	s->channels[which] = NULL;
}

static void send(struct script *s, enum script_more call, unsigned which)
{
	static const unsigned char data[64] = "what goes with it";
	share_buffer *b = s->buffers[which];
	void *stream = which == 7 ? s->stream : NULL;
	const share_outgoing many[2] = {
	    {.size = sizeof(many[0]), .buffer = b, .data = data, .data_size = which},
	    {.data = data, .data_size = sizeof(data)}};
	share_channel_stats stats = SHARE_CHANNEL_STATS_INIT;

	if (call == MORE_SEND) {
		share_send(s->producer, b, data, 8 * which, stream);
	} else if (call == MORE_GIVE) {
		if (b && share_give(s->producer, b, data, which, stream) == 0)
			s->buffers[which] = NULL;
	} else if (call == MORE_SEND_MANY) {
		share_send_many(s->producer, many, 2, stream);
	} else if (call == MORE_FLUSH) {
		if (which & 1)
			share_channel_drain(s->producer, SHORT_MS);
		else
			share_channel_flush(s->producer, SHORT_MS);
	} else if (call == MORE_TAKE_BACK) {
		share_channel_take_back(s->producer, empty(s, which));
		look_at(s, &s->messages[which]);
	} else {
		share_channel_get_fd(s->channels[which]);
		if (share_channel_get_stats(s->channels[which], &stats) == 0)
			s->seen += stats.in_flight + stats.waiting;
	}
}

static void receive(struct script *s, enum script_more call, unsigned which)
{
	void *stream = which % 4 == 3 ? s->stream : NULL;
	share_message *m = &s->messages[which];
	unsigned pair = which & 6;

	switch (call) {
	case MORE_RECV:
		share_recv(s->consumer, SHORT_MS, stream, empty(s, which));
		look_at(s, m);
		break;
	case MORE_TRY_RECV:
		share_try_recv(s->consumer, empty(s, which));
		look_at(s, m);
		break;
	case MORE_RECV_MANY:
		empty(s, pair);
		empty(s, pair + 1);
		share_recv_many(s->consumer, SHORT_MS, stream, &s->messages[pair], 2);
		look_at(s, &s->messages[pair]);
		look_at(s, &s->messages[pair + 1]);
		break;
	case MORE_ACK:
		if (which == 5)
			share_reject(m, stream);
		else
			share_ack(m, stream);
		break;
	case MORE_TRY_ACK:
		share_try_ack(m);
		break;
	case MORE_ACK_MANY:
		share_ack_many(&s->messages[pair], 2, stream);
		break;
	default: /* retain */
		if (m->channel && m->buffer && share_retain(m->buffer))
			script_keep(s, m->buffer);
	}
}

void script_channel(struct script *s, enum script_more call, unsigned which)
{
	if (call == MORE_CHANNEL_OPEN)
		open_channel(s, which);
	else if (call == MORE_CHANNEL_CLOSE)
		close_channel(s, which);
	else if (call == MORE_CHANNEL_USE)
		use(s, which);
	else if (call < MORE_RECV)
		send(s, call, which);
	else
		receive(s, call, which);
}

static void open_service(struct script *s, unsigned role)
{
	share_service_options o = SHARE_SERVICE_OPTIONS_INIT;

	o.depth = o.callers = o.workers = o.deliveries = 2;
	if (!s->services[role])
		share_service_open(s->client, "service", role ? SHARE_WORKER : SHARE_CALLER, &o,
				   &s->services[role]);
}

void script_service(struct script *s, enum script_more call, unsigned which)
{
	void *stream = which % 4 == 3 ? s->stream : NULL;
	share_buffer *b = s->buffers[which];

	switch (call) {
	case MORE_SERVICE_OPEN:
		open_service(s, which & 1);
		break;
	case MORE_SERVICE_CLOSE:
		/* a call does not outlive its caller */
		for (unsigned i = 0; !(which & 1) && i < SCRIPT_N; i++) {
			share_call_cancel(s->pending[i]);
			s->pending[i] = NULL;
		}
		share_service_close(s->services[which & 1]);
		s->services[which & 1] = NULL;
		break;
	case MORE_CALL:
		share_call(s->services[0], b, "question", which, SHORT_MS, stream, empty(s, which));
		look_at(s, &s->messages[which]);
		break;
	case MORE_CALL_START:
		if (!s->pending[which])
			share_call_start(s->services[0], b, "question", which, 2 * SHORT_MS, stream,
					 &s->pending[which]);
		break;
	case MORE_CALL_FINISH:
		if (s->pending[which] && share_call_finish(s->pending[which], SHORT_MS, stream,
							   empty(s, which)) != SHARE_EAGAIN)
			s->pending[which] = NULL;
		look_at(s, &s->messages[which]);
		break;
	case MORE_CALL_CANCEL:
		share_call_cancel(s->pending[which]);
		s->pending[which] = NULL;
		break;
	case MORE_NEXT_REQUEST:
		share_next_request(s->services[1], which % 2 ? SHORT_MS : 0, stream,
				   empty(s, which));
		look_at(s, &s->messages[which]);
		break;
	case MORE_REPLY:
		share_reply(&s->messages[which], b, "answer", which, stream);
		break;
	default:
		share_service_get_fd(s->services[which & 1]);
		if (s->messages[which].channel)
			s->seen += (size_t)share_request_status(&s->messages[which]);
	}
}

void script_channel_end(struct script *s)
{
	for (unsigned i = 0; i < SCRIPT_N; i++) {
		empty(s, i);
		share_call_cancel(s->pending[i]);
	}
	for (unsigned i = 0; i < 2; i++)
		share_service_close(s->services[i]);
	for (unsigned i = 0; i < SCRIPT_N; i++)
		close_channel(s, i);
}
