/* SPDX-License-Identifier: MIT */

/*
 * The other side of the wire, without manners. Uses the packet channel and the codec of wire/, as
 * a client in another language would use its own.
 */

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/harness/broker_process.h"
#include "tests/harness/check.h"
#include "tests/harness/raw.h"
#include "wire/packet.h"

struct wire_bytes raw_text(const char *text)
{
	return (struct wire_bytes){text, (uint32_t)strlen(text)};
}

void raw_connect(struct raw *r)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memset(r, 0, sizeof(*r));
	r->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	strcpy(address.sun_path, broker_socket());
	check(r->socket >= 0);
	check(connect(r->socket, (const struct sockaddr *)&address, sizeof(address)) == 0);
}

void raw_hang_up(struct raw *r)
{
	fd_list_close(&r->fds);
	r->socket = fd_close(r->socket);
}

void raw_close(struct raw *r)
{
	raw_hang_up(r);
	timeline_unmap(r->page);
	r->page = NULL;
}

int raw_send_bytes(struct raw *r, const void *data, size_t size, const int *fds, size_t n_fds)
{
	return packet_send(r->socket, data, size, fds, n_fds, false);
}

int raw_send(struct raw *r, const struct wire_message *m)
{
	unsigned char packet[WIRE_PACKET_MAX];
	size_t size = wire_encode(m, packet, sizeof(packet));

	check(size > 0);
	return raw_send_bytes(r, packet, size, NULL, 0);
}

static bool has_come_before(struct raw *r)
{
	uint64_t number;

	if (!r->numbered)
		return false;
	if (wire_take_number(r->packet, &r->size, &number) != 0)
		check_failed(__FILE__, __LINE__, "the broker sent a packet without its number");
	if (number <= r->last_number)
		return true;
	r->last_number = number;
	return false;
}

/* WELCOME has the first one. */
static void hear_welcome(struct raw *r)
{
	if (r->numbered || r->m.type != WIRE_WELCOME)
		return;
	r->numbered = true;
	check(!has_come_before(r));
}

enum raw_event raw_receive(struct raw *r, int timeout_ms)
{
	struct pollfd p = {.fd = r->socket, .events = POLLIN};
	int e;

	fd_list_close(&r->fds);
	if (poll(&p, 1, timeout_ms) <= 0)
		return RAW_NOTHING;
	r->size = sizeof(r->packet);
	e = packet_receive(r->socket, r->packet, &r->size, &r->fds, false);
	if (e == -EAGAIN)
		return RAW_NOTHING;
	if (e < 0)
		return RAW_END;
	if (has_come_before(r))
		return raw_receive(r, timeout_ms);
	e = wire_decode(&r->m, WIRE_TO_CLIENT, r->packet, r->size, r->fds.n);
	if (e != 0)
		check_failed(__FILE__, __LINE__, "the broker sent what is no message: %s",
			     wire_error_text(e));
	hear_welcome(r);
	return RAW_MESSAGE;
}

void raw_request(struct raw *r, struct wire_message *m)
{
	int e;

	m->serial = ++r->serial;
	/* what was sent before may fill the socket for a moment */
	until((e = raw_send(r, m)) != -EAGAIN);
	check_eq(e, 0);
	do {
		if (raw_receive(r, HARNESS_LIMIT_MS) != RAW_MESSAGE)
			check_failed(__FILE__, __LINE__, "the broker does not answer %s",
				     wire_describe(m->type)->name);
	} while (r->m.serial != m->serial);
}

void raw_ask(struct raw *r, struct wire_message *m, enum wire_type type)
{
	raw_request(r, m);
	if (r->m.type != type)
		check_failed(__FILE__, __LINE__, "the broker answers %s with %s: %.*s",
			     wire_describe(m->type)->name, wire_describe(r->m.type)->name,
			     r->m.type == WIRE_ERROR ? (int)r->m.error.detail.size : 0,
			     r->m.type == WIRE_ERROR ? (const char *)r->m.error.detail.data : "");
}

void raw_ask_error(struct raw *r, struct wire_message *m, int error)
{
	raw_ask(r, m, WIRE_ERROR);
	check_error(r->m.error.error, error);
}

int raw_farewell(struct raw *r)
{
	int error = 0;

	for (;;) {
		switch (raw_receive(r, HARNESS_LIMIT_MS)) {
		case RAW_MESSAGE:
			if (r->m.type == WIRE_ERROR && r->m.serial == 0) {
				error = r->m.error.error;
				check(error < 0 && r->m.error.detail.size > 0);
			}
			break;
		case RAW_END:
			return error;
		case RAW_NOTHING:
			check_failed(__FILE__, __LINE__, "the broker does not hang up");
			return 0;
		}
	}
}

void raw_greet(struct raw *r, const char *label)
{
	struct wire_message hello = {.type = WIRE_HELLO}, ready = {.type = WIRE_READY};

	hello.hello.version = r->version ? r->version : WIRE_VERSION;
	hello.hello.oldest = WIRE_VERSION_OLDEST;
	hello.hello.label = raw_text(label);
	raw_ask(r, &hello, WIRE_WELCOME);
	r->page_id = r->m.welcome.page;
	check_eq(r->fds.n, 1);
	check(timeline_map(r->fds.fds[0], true, &r->page) == 0);
	fd_list_close(&r->fds);
	raw_ask(r, &ready, WIRE_DONE);
}

void raw_open(struct raw *r, const char *label)
{
	raw_connect(r);
	raw_greet(r, label);
}

uint64_t raw_pool(struct raw *r, const char *name)
{
	struct wire_message m = {.type = WIRE_POOL_OPEN};

	m.pool_open.name = raw_text(name);
	raw_ask(r, &m, WIRE_POOL);
	return r->m.pool.pool;
}

uint64_t raw_alloc(struct raw *r, uint64_t pool, uint64_t size)
{
	struct wire_message m = {.type = WIRE_ALLOC};

	m.alloc.pool = pool;
	m.alloc.size = size;
	raw_ask(r, &m, WIRE_GRANT);
	return r->m.grant.buffer;
}
