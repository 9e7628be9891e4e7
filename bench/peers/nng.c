/* SPDX-License-Identifier: MIT */

/* nng over ipc: a pair of pair0 sockets. Messages are written and read in the library's own
 * memory. */

#include <stdio.h>
#include <stdlib.h>

#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>

#include "bench/peers/carrier.h"

#define NAME "nng"

struct end {
	nng_socket socket;
	size_t size; /* of what this end sends */
	nng_msg *outgoing, *incoming;
};

static void must(int r, const char *what)
{
	carrier_must(r == 0, NAME, what, nng_strerror(r));
}

static void *open_end(const struct carrier_setup *s, bool first)
{
	struct end *e = calloc(1, sizeof(*e));
	char address[4096];

	must(e ? 0 : NNG_ENOMEM, "memory for an end");
	e->size = first ? s->size : CARRIER_ANSWER;
	must(nng_pair0_open(&e->socket), "nng_pair0_open");
	must(nng_socket_set_int(e->socket, NNG_OPT_SENDBUF, (int)s->window), "NNG_OPT_SENDBUF");
	must(nng_socket_set_int(e->socket, NNG_OPT_RECVBUF, (int)s->window), "NNG_OPT_RECVBUF");
	must(nng_socket_set_size(e->socket, NNG_OPT_RECVMAXSZ, 0), "NNG_OPT_RECVMAXSZ");
	snprintf(address, sizeof(address), "ipc://%s/" NAME, s->folder);
	if (first)
		must(nng_listen(e->socket, address, NULL, 0), "nng_listen");
	else
		must(nng_dial(e->socket, address, NULL, 0), "nng_dial");
	return e;
}

static void close_end(void *end)
{
	struct end *e = end;

	nng_close(e->socket);
	free(e);
}

static void *prepare(void *end)
{
	struct end *e = end;

	must(nng_msg_alloc(&e->outgoing, e->size), "nng_msg_alloc");
	return nng_msg_body(e->outgoing);
}

static void send_it(void *end)
{
	struct end *e = end;

	must(nng_sendmsg(e->socket, e->outgoing, 0), "nng_sendmsg");
}

static const void *receive(void *end)
{
	struct end *e = end;

	must(nng_recvmsg(e->socket, &e->incoming, 0), "nng_recvmsg");
	return nng_msg_body(e->incoming);
}

static void release(void *end)
{
	nng_msg_free(((struct end *)end)->incoming);
}

const struct carrier carrier_nng = {
    .name = NAME,
    .what = "nng over ipc",
    .open = open_end,
    .close = close_end,
    .prepare = prepare,
    .send = send_it,
    .receive = receive,
    .release = release,
};
