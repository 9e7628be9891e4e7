/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CHANNEL_RECORDS_H
#define BROKER_CHANNEL_RECORDS_H

/* What the journal has of channels. Whoever changes one of these notes it. */

struct acknowledged;
struct channel;
struct claim;
struct entry;
struct member;
struct orphan;

void channel_note(struct channel *ch);
void member_note(struct member *m);
void claim_note(struct claim *claim);
void entry_note(struct claim *claim, struct entry *entry);
void orphan_note(struct orphan *o);
void acknowledged_note(struct acknowledged *a);

#endif
