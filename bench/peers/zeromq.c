/* SPDX-License-Identifier: MIT */

/* ZeroMQ over ipc: a pair of PAIR sockets. Messages are written and read in the library's own
 * memory. */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <zmq.h>

#include "bench/peers/carrier.h"

#define NAME "zeromq"

struct end {
	void *context, *socket;
	char address[4096];
	size_t size; /* of what this end sends */
	zmq_msg_t outgoing, incoming;
};

static void must(bool fine, const char *what)
{
	carrier_must(fine, NAME, what, zmq_strerror(zmq_errno()));
}

static void set(struct end *e, int option, int value, const char *what)
{
	must(zmq_setsockopt(e->socket, option, &value, sizeof(value)) == 0, what);
}

static void *open_end(const struct carrier_setup *s, bool first)
{
	struct end *e = calloc(1, sizeof(*e));

	must(e, "memory for an end");
	e->size = first ? s->size : CARRIER_ANSWER;
	e->context = zmq_ctx_new();
	must(e->context, "zmq_ctx_new");
	e->socket = zmq_socket(e->context, ZMQ_PAIR);
	must(e->socket, "zmq_socket");
	set(e, ZMQ_SNDHWM, (int)s->window, "ZMQ_SNDHWM");
	set(e, ZMQ_RCVHWM, (int)s->window, "ZMQ_RCVHWM");
	set(e, ZMQ_LINGER, 0, "ZMQ_LINGER");
	snprintf(e->address, sizeof(e->address), "ipc://%s/" NAME, s->folder);
	if (first)
		must(zmq_bind(e->socket, e->address) == 0, "zmq_bind");
	else
		must(zmq_connect(e->socket, e->address) == 0, "zmq_connect");
	return e;
}

static void close_end(void *end)
{
	struct end *e = end;

	zmq_close(e->socket);
	zmq_ctx_term(e->context);
	unlink(e->address + sizeof("ipc://") - 1); /* only the first end that closes succeeds */
	free(e);
}

static void *prepare(void *end)
{
	struct end *e = end;

	must(zmq_msg_init_size(&e->outgoing, e->size) == 0, "zmq_msg_init_size");
	return zmq_msg_data(&e->outgoing);
}

static void send_it(void *end)
{
	struct end *e = end;

	must(zmq_msg_send(&e->outgoing, e->socket, 0) >= 0, "zmq_msg_send");
}

static const void *receive(void *end)
{
	struct end *e = end;

	zmq_msg_init(&e->incoming);
	must(zmq_msg_recv(&e->incoming, e->socket, 0) >= 0, "zmq_msg_recv");
	return zmq_msg_data(&e->incoming);
}

static void release(void *end)
{
	zmq_msg_close(&((struct end *)end)->incoming);
}

const struct carrier carrier_zeromq = {
    .name = NAME,
    .what = "ZeroMQ over ipc",
    .open = open_end,
    .close = close_end,
    .prepare = prepare,
    .send = send_it,
    .receive = receive,
    .release = release,
};
