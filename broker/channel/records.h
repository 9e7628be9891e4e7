/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CHANNEL_RECORDS_H
#define BROKER_CHANNEL_RECORDS_H

#include "broker/journal/object.h"

struct acknowledged;
struct broker;
struct buffer;
struct channel;
struct claim;
struct entry;
struct member;
struct orphan;

/* What the journal has of channels. Whoever changes one of these notes it. */
void channel_note(struct channel *ch);
void member_note(struct member *m);
void claim_note(struct claim *claim);
void entry_note(struct claim *claim, struct entry *entry);
void orphan_note(struct orphan *o);
void acknowledged_note(struct acknowledged *a);

/* The objects that are restored already, by which those that refer to them find them. */
struct channels_restored {
	struct restored channels, members, claims;
};

/* Restore what the journal has: channels with members and their claims, then what refers to these.
 * 0 or negative errno. */
int members_restore(struct broker *b);
int entries_restore(struct broker *b);
int orphans_restore(struct broker *b);
int acknowledged_restore(struct broker *b);

/* What refers to members, claims and buffers is recorded by these. A buffer may be NULL. */
void record_member(struct record *r, struct member **m);
void record_claim(struct record *r, struct claim **claim);
void record_buffer_or_none(struct record *r, struct buffer **buffer);

#endif
