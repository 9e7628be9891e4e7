/* SPDX-License-Identifier: MIT */

/*
 * A channel in each direction. What fits into a message is sent in it. A larger payload is
 * allocated, written in place and given away, and the other side reads it in place. Both sides
 * sleep while they wait.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/channel.h>

#include "bench/bench.h"
#include "bench/peers/carrier.h"

struct end {
	share_channel *sends, *receives;
	share_pool *pool; /* NULL: what this end sends fits into a message */
	share_buffer *buffer;
	size_t size; /* of what this end sends */
	share_message message;
	_Alignas(64) unsigned char data[SHARE_MESSAGE_DATA_MAX];
};

static share_channel *open_one(const struct carrier_setup *s, const char *which, int role)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;
	char name[128];

	snprintf(name, sizeof(name), "%s/%s", strrchr(s->folder, '/') + 1, which);
	options.pool = s->pool;
	options.depth = s->window;
	must(share_channel_open(s->client, name, role, &options, &ch), "share_channel_open");
	return ch;
}

static void *open_end(const struct carrier_setup *s, bool first)
{
	struct end *e = calloc(1, sizeof(*e));

	must_system(e, "memory for an end");
	e->message = (share_message)SHARE_MESSAGE_INIT;
	e->size = first ? s->size : CARRIER_ANSWER;
	if (e->size > sizeof(e->data))
		must(share_pool_open(s->client, s->pool, &e->pool), "share_pool_open");
	e->sends = open_one(s, first ? "there" : "back", SHARE_PRODUCER);
	e->receives = open_one(s, first ? "back" : "there", SHARE_CONSUMER);
	return e;
}

static void close_end(void *end)
{
	struct end *e = end;

	share_channel_close(e->sends);
	share_channel_close(e->receives);
	share_pool_close(e->pool);
	free(e);
}

static void *prepare(void *end)
{
	struct end *e = end;

	if (!e->pool)
		return e->data;
	must(share_alloc(e->pool, e->size, NULL, &e->buffer), "share_alloc");
	return share_ptr(e->buffer);
}

static void send_it(void *end)
{
	struct end *e = end;

	if (!e->pool) {
		must(share_send(e->sends, NULL, e->data, e->size, NULL), "share_send");
		return;
	}
	must(share_give(e->sends, e->buffer, NULL, 0, NULL), "share_give");
}

static const void *receive(void *end)
{
	struct end *e = end;

	must(share_recv(e->receives, HANGS_MS, NULL, &e->message), "share_recv");
	return e->message.buffer ? share_ptr(e->message.buffer) : e->message.data;
}

static void release(void *end)
{
	struct end *e = end;

	must(share_ack(&e->message, NULL), "share_ack");
}

const struct carrier carrier_share = {
    .name = "share",
    .what = "a channel",
    .open = open_end,
    .close = close_end,
    .prepare = prepare,
    .send = send_it,
    .receive = receive,
    .release = release,
};
