/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "broker/order/fence.h"
#include "wire/wire.h"

struct broker;
struct buffer;
struct client;
struct failure;
struct metadata;

/*
 * Why a client gets a reference on a buffer. It has to wait for the giver's fence of a hand-over;
 * if that can never be reached, there is nothing to hand over. If it may write, it also has to wait
 * for whatever others still do with the memory; what dead clients owe does not matter.
 */
struct grant {
	struct buffer *buffer;
	uint32_t mode; /* enum share_access */
	bool is_new;   /* the client has just allocated it */
	uint64_t version;
	const struct fence *hand_over; /* NULL or borrowed */
	const struct metadata *tensor; /* NULL or borrowed */
	const struct wire_more *more;  /* buffers of the same segment that are granted already */
	uint32_t n_more;
};

/* Gives the client a lease and sends the grant. 0; or a SHARE_E... number, and why in @failure,
 * when nothing was given. */
int grant_send(struct broker *b, struct client *client, uint32_t serial, const struct grant *g,
	       struct failure *failure);
