/* SPDX-License-Identifier: MIT */
#ifndef BROKER_KEEPER_INSIDE_H
#define BROKER_KEEPER_INSIDE_H

#include <stdatomic.h>

#include "broker/keeper/keeper.h"

/* What the keeper and its broker have in common: the table, and what they say to each other. Who
 * changes it changes KEEPER_MAIN, as the two may be of different versions. */

/* Shared with the keeper, which alone writes it. */
struct kept_slot {
	_Atomic int fd; /* in the keeper, and so in brokers that it forks later; -1: it is free */
	void *address;  /* of its mapping; NULL: it has none */
	size_t size;
};

struct kept_table {
	uint32_t room;
	_Atomic uint32_t n; /* that were ever in use: those after it are free */
	struct kept_slot slots[];
};

/* What a broker says. Each is answered with the same. */
enum kept_word {
	KEPT_KEEP = 1,
	KEPT_DROP,
	KEPT_SERVES,
	KEPT_REHEARSE,  /* is there a program that could go on? @text of the answer says why not */
	KEPT_HAND_OVER, /* to that one; @text is the version of who says so, and ends */
};

struct kept_message {
	uint32_t word; /* enum kept_word; of an answer: 0 or errno */
	uint32_t n;
	uint32_t ids[KEPT_AT_ONCE];   /* 0: any that is free */
	uint64_t sizes[KEPT_AT_ONCE]; /* bytes to be mapped for writing, 0: none */
	char text[KEPT_TEXT];
};

#endif
