/* SPDX-License-Identifier: MIT */
#ifndef BROKER_BUFFER_RECORDS_H
#define BROKER_BUFFER_RECORDS_H

/* What the journal has of buffers and leases: whoever changes something notes it. */

struct broker;
struct buffer;
struct lease;

void buffer_note(struct buffer *buffer);
void metadata_note(struct buffer *buffer);
void lease_note(struct lease *lease);

/* A broker that comes after another one. 0 or negative errno, with a line in the log. Each buffer
 * has a reference then, for what else leads to it to be made again. */
int buffers_restore(struct broker *b);
/* The end of those references: what nothing leads to is free. */
void buffers_restored(struct broker *b);

#endif
