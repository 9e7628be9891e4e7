/* SPDX-License-Identifier: MIT */

/*
 * Parked requests. Handling a request again from the start needs no half-done state that somebody
 * else's end could pull the ground from: whatever has changed since is seen like anything else.
 */

#include <stdlib.h>
#include <string.h>

#include <share/share.h>

#include "broker/broker.h"
#include "broker/client.h"
#include "broker/park.h"
#include "broker/request.h"

struct park {
	TAILQ_ENTRY(park) link;
	LIST_ENTRY(park) of_client;
	struct park_list *list;
	struct client *client;
	struct charge charge;
	uint64_t since_ms;
	uint32_t serial;
	size_t size;
	unsigned char packet[];
};

void request_park(struct request *r, struct park_list *list)
{
	struct broker *b = r->broker;
	size_t size = wire_encode(r->m, b->scratch, sizeof(b->scratch));
	struct park *p = size > 0 ? malloc(sizeof(*p) + size) : NULL;

	if (!p) {
		request_fail_memory(r);
		return;
	}
	p->charge = (struct charge){0};
	if (!charge_take(&p->charge, r->client->account, LIMIT_UNSENT, sizeof(*p) + size)) {
		free(p);
		request_fail(r, SHARE_EQUOTA, "uid %u has too many requests that wait for a device",
			     (unsigned)r->client->peer.uid);
		return;
	}
	memcpy(p->packet, b->scratch, size);
	p->size = size;
	p->serial = r->m->serial;
	p->list = list;
	p->client = r->client;
	p->since_ms = r->parked_ms ? r->parked_ms : broker_now_ms();
	TAILQ_INSERT_TAIL(list, p, link);
	LIST_INSERT_HEAD(&r->client->parked, p, of_client);
}

bool park_has(const struct park_list *list, const struct client *client)
{
	const struct park *p;

	LIST_FOREACH (p, &client->parked, of_client)
		if (p->list == list)
			return true;
	return false;
}

void park_free(struct park *p)
{
	TAILQ_REMOVE(p->list, p, link);
	LIST_REMOVE(p, of_client);
	charge_return(&p->charge);
	free(p);
}

void park_wake_first(struct broker *b, struct park_list *list)
{
	struct park *p = TAILQ_FIRST(list);
	struct wire_message m;
	struct client *client;
	uint64_t since;

	if (!p)
		return;
	client = p->client;
	since = p->since_ms;
	memcpy(b->packet, p->packet, p->size);
	if (wire_decode(&m, WIRE_TO_BROKER, b->packet, p->size, 0) != 0)
		m.type = WIRE_NOTHING;
	park_free(p);
	if (m.type != WIRE_NOTHING)
		request_handle_again(client, &m, since);
}

void park_wake(struct broker *b, struct park_list *list)
{
	const struct park *last = TAILQ_LAST(list, park_list);
	bool more = last;

	/* clients, and so their parked requests, never end while a handler runs */
	while (more && !TAILQ_EMPTY(list)) {
		more = TAILQ_FIRST(list) != last;
		park_wake_first(b, list);
	}
}

void park_fail_first(struct park_list *list, int error, const char *text)
{
	struct park *p = TAILQ_FIRST(list);
	struct client *client;
	uint32_t serial;

	if (!p)
		return;
	client = p->client;
	serial = p->serial;
	park_free(p);
	request_reply_error(client, serial, error, text);
}

void park_fail(struct park_list *list, int error, const char *text)
{
	while (!TAILQ_EMPTY(list))
		park_fail_first(list, error, text);
}
