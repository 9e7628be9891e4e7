/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/packet.h"
#include "wire/wire.h"

struct client;
struct deferred;

/* Handles a packet that has arrived. What handlers do not take of @fds is the caller's to close.
 * True when the client expects an answer to it, so that it probably says nothing more before it has
 * read that. */
bool request_handle(struct client *client, const void *data, size_t size, struct fd_list *fds);

/* Handles a deferred request again. @again is what it was while it waited, if it has waited; else
 * NULL. */
void request_handle_again(struct client *client, const struct wire_message *m, uint64_t since_ms,
			  struct deferred *again);

/* Handles a request that another broker was asked at that time, and had not answered. */
void request_ask_again(struct client *client, const void *packet, size_t size, uint64_t since_ms);
