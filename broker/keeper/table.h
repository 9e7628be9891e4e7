/* SPDX-License-Identifier: MIT */
#ifndef BROKER_KEEPER_TABLE_H
#define BROKER_KEEPER_TABLE_H

#include "broker/keeper/inside.h"
#include "wire/packet.h"

/* The keeper's side of what it keeps. */

#define TABLE_ROOM_MAX (1 << 20) /* descriptors */

/* Room for as many descriptors as the process may have. NULL: there is no memory for that. */
struct kept_table *table_new(void);
struct kept_health *health_new(void);
/* What a broker asks for, and its answer's error: 0 or negative errno. What is kept of @fds is
 * taken from them. */
int table_keep(struct kept_table *t, struct kept_message *m, struct fd_list *fds);
void table_drop(struct kept_table *t, const struct kept_message *m);
/* After a keeper that may have died over a message: what came with one that has a higher number
 * than the last one that was answered is let go. It will come again. */
void table_repair(struct kept_table *t, uint64_t serial);

#endif
