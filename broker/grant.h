/* SPDX-License-Identifier: MIT */
#ifndef BROKER_GRANT_H
#define BROKER_GRANT_H

#include <stdint.h>

#include "broker/fence.h"
#include "wire/wire.h"

struct broker;
struct buffer;
struct client;

/*
 * Why a client gets a reference on a buffer, and what it has to wait for: the gate of a block it
 * allocated (what dead clients still owe does not matter), or the giver's fence of a hand-over (if
 * that can never be reached, there is nothing to hand over).
 */
struct grant {
	struct buffer *buffer;
	uint32_t mode; /* enum share_mode */
	uint64_t version;
	const struct fence *hand_over; /* NULL or borrowed */
	struct fence_set *gate;        /* NULL or borrowed */
	const struct wire_more *more;  /* granted already, in the same segment */
	uint32_t n_more;
};

/* Gives and sends. 0, or a SHARE_E... with a sentence in @detail, when nothing was given. */
int grant_send(struct broker *b, struct client *client, uint32_t serial, const struct grant *g,
	       char *detail, size_t detail_size);

#endif
