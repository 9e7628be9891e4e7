/* SPDX-License-Identifier: MIT */
#ifndef BROKER_KEEPER_INSIDE_H
#define BROKER_KEEPER_INSIDE_H

#include <stdatomic.h>

#include "broker/keeper/blame.h"
#include "broker/keeper/crash.h"
#include "broker/keeper/keeper.h"
#include "broker/keeper/kept.h"

/* What the keeper and its broker have in common: the table, how they fare, and what they say to
 * each other. The two may be of different versions, which broker/keeper/keeper.h is about. */

/* Shared with the keeper, which alone writes it. */
struct kept_slot {
	_Atomic int fd; /* in the keeper, and so in brokers that it forks later; -1: it is free */
	void *address;  /* of its mapping; NULL: it has none */
	size_t size;
	uint64_t serial; /* of the message that it came with; 0: one of enum kept_fixed */
};

struct kept_table {
	uint32_t room;
	_Atomic uint32_t n;         /* that were ever in use: those after it are free */
	_Atomic int keeper, deputy; /* processes; 0: there is none */
	_Atomic uint32_t brokers_died, brokers_upgraded, keepers_died; /* so far */
	_Atomic int
	    ended; /* what the broker ends with, which it writes itself; -1: it does not end */
	struct kept_slot slots[];
};

/* How the two fare, for the other one. */
struct kept_health {
	atomic_uint beat, keeper_beat; /* of the broker, and of the keeper: base/beat.h */
	atomic_uint hang_ms;           /* one that does not beat for so long hangs; 0: none does */
	/* The signal that a broker was told to end by, which it writes itself; 0: none was. It
	 * stays. */
	_Atomic int told_to_end;
	struct crash crash, crash_of_rehearsal; /* of the broker, or of the last rehearsal */
	struct blames blames;
	atomic_uint beat_of_rehearsal; /* of the last one */
};

/* A rehearsal hangs as a broker does, but at this time at the latest: who serves waits for it. */
static inline unsigned rehearsal_hang_ms(const struct kept_health *h)
{
	unsigned hang_ms = atomic_load(&h->hang_ms);

	return hang_ms && hang_ms < KEPT_HANG_MS ? hang_ms : KEPT_HANG_MS;
}

/* One that gets on takes twice as long at most, and for each MiB of what there is to take over, in
 * this journal, ten times as long as that takes on a machine that has nothing else to do. */
#define REHEARSAL_MIB_MS 200
struct rehearsal_time {
	unsigned mib, ms;
};
struct rehearsal_time rehearsal_most(const struct kept_health *h, int journal); /* silence.c */

/* What a broker says. Each is answered with the same, and the same serial. */
enum kept_word {
	KEPT_KEEP = 1,
	KEPT_DROP,
	KEPT_SERVES,
	KEPT_REHEARSE,  /* is there a program that could go on? @text of the answer says why not */
	KEPT_HAND_OVER, /* to that one; @text is the version of who says so, and ends */
};

/* A message of the keeper's with serial 0 is no answer. The first one says that the broker may
 * begin, as the keeper has written down that there is one. Each other one comes from a deputy that
 * goes on for a keeper that died: what was asked and has no answer yet is to be asked again. */
struct kept_message {
	uint64_t serial; /* the broker's, and each higher than the one before */
	uint32_t word;   /* enum kept_word; of an answer: 0 or errno */
	uint32_t n;
	uint32_t ids[KEPT_AT_ONCE];   /* 0: any that is free */
	uint64_t sizes[KEPT_AT_ONCE]; /* bytes to be mapped for writing, 0: none */
	char text[KEPT_TEXT];
};

#endif
