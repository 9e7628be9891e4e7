/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CLIENT_RECORDS_H
#define BROKER_CLIENT_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/accounts/account.h"

/* What the journal has of clients: who they are, and what they have asked and not been answered. */

struct broker;
struct client;
struct clients;
struct record;

/* A request that is not answered yet. If the broker dies, the next one handles it again from the
 * start, as broker/client/deferred.h says of others. */
struct unanswered {
	TAILQ_ENTRY(unanswered) of_client; /* in the order in which they were asked */
	uint32_t serial;
	uint32_t record;
};

/* Says what has changed of a client that has been READY. */
void client_note(struct client *c);
void client_forget_record(struct client *c);

/* The request was handled, and is not answered. The broker goes on without memory for that: then it
 * is the next broker that does not know of it. */
void unanswered_note(struct client *c, uint32_t serial, const void *packet, size_t size);
/* It is answered now, if it was not before. */
void unanswered_done(struct client *c, uint32_t serial);
void unanswered_drop(struct client *c);

/* One that has an identifier and had this slot before. 0 or negative errno. */
int clients_add_at(struct clients *all, struct client *c, uint32_t slot);
struct client *clients_find(const struct clients *all, uint64_t id); /* NULL: there is none */
/* Members of records (broker/journal/record.h): a client, or NULL; and a descriptor that the keeper
 * has, or -1. */
void record_client(struct record *r, struct client **c);
void record_fd(struct record *r, int *fd);

#define RECORD_NOBODY UINT32_MAX /* no user has this number */
uint32_t record_user(const struct account *a);
/* A reference; NULL: it is nobody, or there is no memory. */
struct account *account_of_record(struct broker *b, uint32_t uid);
/* A member: whom something is charged to, or nobody. Read, it is charged with nothing before
 * payer_charge(), which is false without memory. */
void record_payer(struct record *r, struct charge *charge);
bool payer_charge(struct charge *charge, enum limit_kind resource, uint64_t amount);

/* A broker that comes after another one. All return 0 or negative errno. */
/* The clients, with nothing but their connections and pages. */
int clients_restore(struct broker *b);
/* When all that they have is there: what was said to them and did not go out, or may not have. */
int outgoing_restore(struct broker *b);
/* What they have asked, which is handled once what is committed from then on may be of another
 * layout (broker/journal/record.h). */
int unanswered_restore(struct broker *b);
int unanswered_ask_again(struct broker *b);

#endif
