/* SPDX-License-Identifier: MIT */
#pragma once

#include "broker/keeper/common.h"
#include "wire/packet.h"

/* The keeper's side of the table of what it keeps. */

#define TABLE_ROOM_MAX (1 << 20) /* the most descriptors that are kept */

/* Makes a table with room for as many descriptors as the process may have, or TABLE_ROOM_MAX. NULL:
 * there is no memory for that. */
struct kept_table *table_new(void);
struct kept_health *health_new(void);
/* Keeps the descriptors that a broker has sent, and puts their numbers into @m. Takes out of @fds
 * what is kept. Returns 0 or negative errno, which is the answer's error. */
int table_keep(struct kept_table *t, struct kept_message *m, struct fd_list *fds);
void table_drop(struct kept_table *t, const struct kept_message *m);
/* Repairs the table after a keeper that may have died over a message: lets go of what came with a
 * message of a higher serial than @serial, the last one that was answered. It will come again. */
void table_repair(struct kept_table *t, uint64_t serial);
