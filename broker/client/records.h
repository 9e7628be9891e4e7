/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/accounts/account.h"

/* What the journal has of clients: who they are, and what they have asked and not been answered. */

struct broker;
struct client;
struct clients;
struct object_kind;
struct record;

/* A request that is not answered yet. If the broker dies, the next one handles it again from the
 * start, as broker/reply/deferred.h says of others. */
struct unanswered {
	TAILQ_ENTRY(unanswered) of_client; /* in the order in which they were asked */
	uint32_t serial;
	uint32_t record;
};

/* Says what has changed of a client that has been READY. */
void client_note(struct client *c);

/* Records a request that was handled and is not answered. Without memory for that the broker goes
 * on all the same: then only the next broker does not know of the request. */
void unanswered_note(struct client *c, uint32_t serial, const void *packet, size_t size);
/* Drops the record of a request that is answered now, if it has one. */
void unanswered_done(struct client *c, uint32_t serial);
void unanswered_drop(struct client *c);

/* Adds a client that has an identifier, at the slot that it had before. 0 or negative errno. */
int clients_add_at(struct clients *all, struct client *c, uint32_t slot);
struct client *clients_find(const struct clients *all, uint64_t id); /* NULL: there is none */
/* Members of records (broker/journal/record.h): a client, or NULL; and a descriptor that the keeper
 * has, or -1. */
void record_client(struct record *r, struct client **c);
void record_fd(struct record *r, int *fd);

#define RECORD_NOBODY UINT32_MAX /* no user has this number */
uint32_t record_user(const struct account *a);
/* Returns a reference to the user's account; NULL: the user is nobody, or there is no memory. */
struct account *account_of_record(struct broker *b, uint32_t uid);
/* A member of records: whom something is charged to, or nobody. When it was read, nothing is
 * charged yet: payer_charge() does that, and returns false if it cannot be charged. */
void record_payer(struct record *r, struct charge *charge);
bool payer_charge(struct charge *charge, enum limit_kind resource, uint64_t amount);

/* What a broker restores that comes after another one: first clients, with nothing but their
 * connections and pages; and when all that they have is there, what was said to them and did not go
 * out, or may not have gone out, and the requests that were not answered. */
extern const struct object_kind client_kind, queued_kind, waiting_kind;
/* Handles those requests, once what is committed from then on may be of another layout
 * (broker/journal/record.h). 0 or -ENOMEM. */
int unanswered_ask_again(struct broker *b);
