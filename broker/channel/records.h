/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/journal/object.h"

struct broker;
struct channel;
struct claim;
struct entry;
struct member;

/* The versions that consumers that are gone have acknowledged, by the tickets of a producer that is
 * there. */
struct acknowledged {
	struct member *producer;
	bool is_noted;
	uint32_t record;
	size_t size; /* bytes of all versions */
	uint32_t versions[];
};

/* What the journal has of channels. Whoever changes one of these notes it. */
void channel_note(struct channel *ch);
void member_note(struct member *m);
void claim_note(struct claim *claim);
void entry_note(struct claim *claim, struct entry *entry);
void acknowledged_note(struct acknowledged *a);

/* The objects that are restored already, by which those that refer to them find them. */
struct channels_restored {
	struct restored channels, members, claims;
};

/* Restores what the journal has of channels with members and their claims (0 or negative errno), to
 * which what is of the other kinds refers. */
int members_restore(struct broker *b);
extern const struct object_kind taken_kind, acknowledged_kind;

/* What refers to members and claims is recorded by these. */
void record_member(struct record *r, struct member **m);
void record_claim(struct record *r, struct claim **claim);

/* acknowledged.c */

bool producer_has_noted(const struct member *producer, uint32_t ticket, uint32_t version);
/* Remembers that a consumer has acknowledged this whose claim is about to end, as its row goes and
 * the producer may not have looked at it. False without memory. */
bool orphan_note_acknowledged(const struct claim *claim, uint32_t ticket, uint32_t version);
/* Puts what was remembered of a claim that ends into the journal. */
void producer_note_acknowledged(const struct member *producer);
/* Forgets that, when all orphans of the producer are made, so that nobody asks any more which
 * messages are none. */
void producer_forget_acknowledged(struct member *producer);
