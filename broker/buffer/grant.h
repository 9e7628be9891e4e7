/* SPDX-License-Identifier: MIT */
#ifndef BROKER_BUFFER_GRANT_H
#define BROKER_BUFFER_GRANT_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/order/fence.h"
#include "wire/wire.h"

struct broker;
struct buffer;
struct client;
struct metadata;

/*
 * Why a client gets a reference on a buffer. What it has to wait for is the giver's fence of a
 * hand-over (if that can never be reached, there is nothing to hand over), and, if it may write,
 * whatever others still do with the memory (what dead clients owe does not matter).
 */
struct grant {
	struct buffer *buffer;
	uint32_t mode; /* enum share_access */
	bool is_new;   /* it has just allocated it */
	uint64_t version;
	const struct fence *hand_over; /* NULL or borrowed */
	const struct metadata *tensor; /* the same */
	const struct wire_more *more;  /* granted already, in the same segment */
	uint32_t n_more;
};

/* Gives and sends. 0; or a SHARE_E... number, and why in @failure, when nothing was given. */
int grant_send(struct broker *b, struct client *client, uint32_t serial, const struct grant *g,
	       struct failure *failure);

#endif
