/* SPDX-License-Identifier: MIT */

/*
 * Requests that wait: paid for by who waits, and ended by their time limit, by CANCEL, or with
 * their client. What they wait for looks after them otherwise (broker/names/name.c,
 * broker/buffer/reclaim.c).
 */

#include <stdio.h>
#include <stdlib.h>

#include <event2/event.h>
#include <share/share.h>

#include "broker/broker.h"
#include "broker/client/account.h"
#include "broker/client/client.h"
#include "broker/client/request.h"
#include "broker/client/wait.h"

static void on_timeout(evutil_socket_t fd, short what, void *data)
{
	const struct wait *w = data;
	struct failure failure;

	(void)fd, (void)what;
	w->kind->fail_late(w, &failure);
	wait_end(data, failure.error, failure.text);
}

static int out_of_memory(struct wait *w, struct failure *failure)
{
	if (w && w->timer)
		event_free(w->timer);
	if (w)
		charge_return(&w->charge);
	free(w);
	return failure_no_memory(failure, "the broker");
}

int wait_new(struct client *client, const struct wait_kind *kind, uint32_t serial, int timeout,
	     struct wait **out, struct failure *failure)
{
	struct timeval limit = {timeout / 1000, timeout % 1000 * 1000};
	struct wait *w = calloc(1, sizeof(*w));

	if (!w)
		return out_of_memory(w, failure);
	if (!charge_take(&w->charge, client->account, LIMIT_WAITS, 1)) {
		free(w);
		return account_refuse(client->account, LIMIT_WAITS, "", failure);
	}
	if (timeout > 0) {
		w->timer = event_new(client->broker->base, -1, 0, on_timeout, w);
		if (!w->timer || event_add(w->timer, &limit) < 0)
			return out_of_memory(w, failure);
	}
	w->kind = kind;
	w->client = client;
	w->serial = serial;
	LIST_INSERT_HEAD(&client->requests.waits, w, of_client);
	*out = w;
	return 0;
}

void wait_free(struct wait *w)
{
	w->kind->leave(w);
	LIST_REMOVE(w, of_client);
	if (w->timer)
		event_free(w->timer);
	charge_return(&w->charge);
	free(w);
}

void wait_end(struct wait *w, int error, const char *detail)
{
	struct client *client = w->client;
	enum wire_type request = w->kind->request;
	uint32_t serial = w->serial;

	wait_free(w);
	request_reply_error(client, request, serial, error, detail);
}

void wait_cancel(struct client *client, uint32_t serial)
{
	struct wait *w;

	LIST_FOREACH (w, &client->requests.waits, of_client) {
		if (w->serial == serial) {
			wait_end(w, SHARE_ECANCELED, "the request was canceled");
			return;
		}
	}
}

bool client_drop_waits(struct client *c, int *budget)
{
	for (; *budget > 0; --*budget) {
		if (LIST_EMPTY(&c->requests.waits))
			return true;
		wait_free(LIST_FIRST(&c->requests.waits));
	}
	return false;
}
