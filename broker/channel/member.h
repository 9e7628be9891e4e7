/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "broker/accounts/charge.h"
#include "broker/channel/channel_object.h"
#include "broker/channel/role.h"
#include "broker/order/fence.h"

/*
 *   PREPARING  maps its page, which is not sealed yet
 *   HERE       takes part
 *   LEFT       its connection has ended but the process lives, or it was expelled
 *   GONE       has closed the channel, or is dead; it stays as long as it has claims or orphans
 */
enum member_state { MEMBER_PREPARING, MEMBER_HERE, MEMBER_LEFT, MEMBER_GONE };

/* What a member that goes takes of a turn's budget, as it has pages to unmap and others to wake. */
#define MEMBER_COST 64

/* A ring or a ledger, which its owner alone writes. It is read-only here, and may be hostile. */
struct member_page {
	int fd;
	void *memory;
	size_t size;
	size_t written[2]; /* where something was found, + 1, so member_unwritten() need not look */
	/* What was found in one pass, in 64 units from one on; see member_remember_looks(). */
	struct {
		size_t from; /* the first of these units, + 1; 0: nothing is remembered */
		uint64_t holes, written;
	} seen;
};

struct member {
	struct channel *channel;
	TAILQ_ENTRY(member) of_channel;
	LIST_ENTRY(member) of_client;
	struct client *client; /* NULL once it is GONE */
	uint64_t client_id;    /* for reports */
	pid_t pid;
	uint64_t id;
	uint32_t role; /* enum share_role */
	enum member_state state;
	struct timelines *timelines;
	struct {
		struct charge membership, bytes, descriptors;
	} charges;
	struct member_page page;
	int pidfd;
	int doorbell;              /* -1: nobody can be there any more */
	LIST_HEAD(, claim) claims; /* a consumer's on producers, a producer's of consumers */
	/* one of these, by its role; the other one is zero */
	struct producer as_producer;
	struct consumer as_consumer;
	uint32_t record;
};

/* A member's page, pidfd and doorbell, and one for the channel's own page, as it may be the only
 * member that this is kept for. */
#define MEMBER_DESCRIPTORS 4

/* Why there is no member. MEMBER_LATER: what makes room for it is not done yet. */
enum member_error {
	MEMBER_NO_SLOT = 1,
	MEMBER_QUOTA,
	MEMBER_BYTES_QUOTA,
	MEMBER_NO_DESCRIPTORS,
	MEMBER_LATER
};

/* Finds a client's membership; NULL: it has no such one. */
struct member *member_find(const struct client *client, uint64_t id);
/* Tells those who watch the broker what happens to a member. */
void member_tell(const struct member *m, const char *action);
/* Takes the member out of its client's list of memberships. */
void member_detach(struct member *m);
void member_give_slot_back(struct member *m);
/* Frees a member that was detached. */
void member_free(struct member *m);
/* Whether messages of a producer that is gone wait, or are some consumer's. */
bool producer_has_orphans(const struct member *producer);
/* Frees a member that is GONE, and has no claim and no orphan. The channel stays until
 * channel_end_if_unused(). */
void member_free_if_unused(struct member *m);

/* claim.c */

/* Puts a member that is filled in into the lists of its channel and of its client. */
void member_attach(struct member *m);
/* Charges the member's user for it and its page, whose size is known. 0 or an enum member_error; a
 * member that is freed returns what was charged. */
int member_charge(struct member *m);
