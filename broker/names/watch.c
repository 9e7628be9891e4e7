/* SPDX-License-Identifier: MIT */

/*
 * Watches on names. A watcher that does not keep up costs nothing: its changes are dropped, and
 * once it reads again it is told that some were.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <share/share.h>

#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/client/client.h"
#include "broker/client/conversation.h"
#include "broker/client/records.h"
#include "broker/journal/journal.h"
#include "broker/journal/object.h"
#include "broker/names/name.h"
#include "broker/names/names.h"
#include "broker/names/watch.h"

static void set_behind(struct watch *w, bool behind)
{
	if (w->behind == behind)
		return;
	w->behind = behind;
	watch_note(w->client->broker, w);
}

static void link_watch(struct broker *b, struct watch *w)
{
	TAILQ_INSERT_TAIL(&b->names->watches, w, link);
	LIST_INSERT_HEAD(&w->client->names->watches, w, of_client);
}

int watch_new(struct broker *b, struct client *client, const void *prefix, size_t size,
	      struct watch **out, struct failure *failure)
{
	struct watch *w = calloc(1, sizeof(*w) + size + 1);

	if (!w)
		return failure_no_memory(failure, "the broker");
	if (!charge_take_with(&w->charge, client->account, LIMIT_WATCHES, 1, size)) {
		free(w);
		return account_refuse(client->account, LIMIT_WATCHES, "", failure);
	}
	memcpy(w->prefix, prefix, size);
	w->size = size;
	w->client = client;
	w->id = ++b->names->last_watch;
	link_watch(b, w);
	watch_note(b, w);
	*out = w;
	return 0;
}

struct watch *watch_find(const struct client *client, uint64_t id)
{
	struct watch *w;

	LIST_FOREACH (w, &client->names->watches, of_client)
		if (w->id == id)
			return w;
	return NULL;
}

void watch_free(struct broker *b, struct watch *w)
{
	journal_drop(b->journal, &w->record);
	TAILQ_REMOVE(&b->names->watches, w, link);
	LIST_REMOVE(w, of_client);
	charge_return(&w->charge);
	free(w);
}

static void send_event(struct watch *w, const struct wire_name_event *event)
{
	struct wire_message m = {.type = WIRE_NAME_EVENT};

	m.name_event = *event;
	m.name_event.watch = w->id;
	client_send(w->client, &m, NULL, 0);
}

void watches_notify(struct broker *b, const struct name *n, const struct access_object *what,
		    uint32_t change)
{
	struct wire_name_event event = {
	    .version = n->version,
	    .buffer = change == SHARE_UNPUBLISHED ? 0 : buffer_id(n->buffer),
	    .change = change,
	    .name = {n->text, (uint32_t)n->size},
	};
	struct watch *w;

	TAILQ_FOREACH (w, &b->names->watches, link) {
		if (w->size > n->size || memcmp(w->prefix, n->text, w->size) != 0 ||
		    !client_may(w->client, RIGHT_READ, what))
			continue;
		if (client_keeps_up(w->client))
			send_event(w, &event);
		else
			set_behind(w, true);
	}
}

void client_hear_of_changes(struct client *client)
{
	struct wire_name_event event = {.change = SHARE_OVERFLOW};
	struct watch *w;

	for (;;) {
		LIST_FOREACH (w, &client->names->watches, of_client)
			if (w->behind)
				break;
		if (!w || !client_keeps_up(client))
			return;
		set_behind(w, false);
		send_event(w, &event);
	}
}

/* ------------------------------------------------------------------------------------------- */

static void watch_fields(struct record *r, void *object)
{
	struct watch *w = object;

	record_client(r, &w->client);
	record_u64(r, &w->id);
	record_flag(r, &w->behind);
	record_rest_of(r, w->prefix, &w->size);
	r->order = w->id;
}

static int watch_attach(struct broker *b, void *object)
{
	const struct watch *last = TAILQ_LAST(&b->names->watches, watch_list);
	struct watch *w = object;

	if (!w->client || (last && last->id >= w->id) || w->id > b->names->last_watch ||
	    w->size > SHARE_NAME_MAX)
		return -EBADMSG;
	if (!charge_take_with(&w->charge, w->client->account, LIMIT_WATCHES, 1, w->size))
		return -ENOMEM;
	link_watch(b, w);
	return 0;
}

const struct object_kind watch_kind =
    OBJECT_KIND(RECORD_WATCH, "watch", struct watch, watch_fields, watch_attach);

void watch_note(struct broker *b, struct watch *w)
{
	object_put(b->journal, &watch_kind, w);
}
