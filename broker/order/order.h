/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "broker/journal/object.h"

struct broker;
struct client;
struct event;
struct fence;
struct request;
struct timelines;

/* What the broker has of the order between processes beside their timelines: which of these were
 * whose. */

/* The last timeline pages whose owners died, a ring: for those who ask too late to be sent the
 * page. Written in place: a page that was about to be written into it is, twice at worst. */
struct died_pages {
	uint64_t n;
	uint64_t forgotten; /* the newest that fell out of the ring */
	uint64_t pages[4096];
};

struct order {
	uint64_t last_page;
	struct died_pages *died;
	uint32_t died_record;
	struct event *gpu_watch; /* it runs while GPUs are to signal fences that we know of */
	/* Used only while this broker takes over what another one had. */
	struct {
		struct restored pages, by_client;
	} restored;
};

int order_init(struct broker *b); /* 0 or negative errno */
void order_deinit(struct broker *b);

/* Has the broker take note of how far a client's GPU gets, which will signal a fence, as long as
 * the client's process lives. */
void order_watch_gpus(struct broker *b);

/* Returns what became of the owner of a page that is gone: OWNER_UNKNOWN if it is too long ago, or
 * if there never was one. */
enum page_owner { OWNER_UNKNOWN, OWNER_DIED, OWNER_FINISHED };
enum page_owner order_page_owner(const struct order *o, uint64_t page);

/* What a client has of the order: its own timelines, and what it was sent of others'. */
struct client_order {
	struct timelines *timelines; /* NULL before it has greeted */
	uint8_t *pages; /* whether it has the timeline page of the client in this slot */
	uint32_t n_pages;
};

void client_order_deinit(struct client *c);
/* Restores the timelines of a client that is made again from its record. 0 or negative errno. */
int client_order_restore(struct client *c);

/* Whether the timeline page of the client in @slot was sent to it. */
bool client_has_page(const struct client *c, uint32_t slot);
int client_reserve_page(struct client *c, uint32_t slot); /* 0 or -ENOMEM */
void client_set_page(struct client *c, uint32_t slot);    /* after reserving */
/* Notes that the client is told of a fence on that page, so it may ask for the page. False without
 * memory. */
bool client_let_ask(struct client *c, uint32_t slot);
/* Whether a fence of @owner can have come to the client. It can if the client answers for the
 * owner's user, or was given the owner's page, or if both have a pool open. */
bool client_may_ask(const struct client *c, const struct client *owner);
/* At the client's end: takes note that nobody has its page any more. */
void client_forget_page(struct client *c);

/* Releases whoever waits for the client, as its process can signal no more. */
void client_end_timelines(struct client *c);

/* Makes a fence on one of the client's own timelines; its timelines are NULL when @timeline is 0.
 * False when answered. */
bool request_fence(struct request *r, uint64_t timeline, uint64_t value, struct fence *out);
