/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/accounts/account.h"

struct broker;
struct client;
struct name;
struct object_kind;

/* A client's wish to hear of changes of names that start with a prefix. */
struct watch {
	TAILQ_ENTRY(watch) link;
	LIST_ENTRY(watch) of_client;
	struct client *client;
	struct charge charge;
	uint64_t id;
	uint32_t record;
	bool behind; /* a change could not be sent; the client is told so when its queue is empty */
	size_t size;
	char prefix[];
};

/* Makes a watch. 0 or a SHARE_E... number. */
int watch_new(struct broker *b, struct client *client, const void *prefix, size_t size,
	      struct watch **out, struct failure *failure);
struct watch *watch_find(const struct client *client, uint64_t id);
void watch_free(struct broker *b, struct watch *w);
/* Notes in the journal what the watch is now. */
void watch_note(struct broker *b, struct watch *w);
extern const struct object_kind watch_kind;

/* Tells those who watch the name, and may read it as an object of rights, what has become of it.
 * @change is an enum share_change. */
void watches_notify(struct broker *b, const struct name *n, const struct access_object *what,
		    uint32_t change);
