/* SPDX-License-Identifier: MIT */
#pragma once

/* What the journal has of buffers and leases. Whoever changes something notes it. */

#include <stdbool.h>

struct account;
struct broker;
struct buffer;
struct lease;
struct metadata;
struct record;

void buffer_note(struct buffer *buffer);
void metadata_note(struct buffer *buffer);
void lease_note(struct lease *lease);

/* Members of records (broker/journal/record.h): a buffer, which has to exist or may be NULL; and
 * what somebody wants others to know, or NULL, which is charged to nobody yet when it was read. */
void record_buffer(struct record *r, struct buffer **buffer);
void record_buffer_or_none(struct record *r, struct buffer **buffer);
void record_metadata(struct record *r, struct metadata **metadata);
/* Charges it to an account. False: there is no memory for that. */
bool metadata_charge(struct metadata *metadata, struct account *account);

/* Restores what a broker had that another one comes after. 0 or negative errno. Each buffer has a
 * reference then, until what else leads to it is made again. */
int buffers_restore(struct broker *b);
/* Ends those references: a buffer that nothing leads to is freed. */
void buffers_restored(struct broker *b);
