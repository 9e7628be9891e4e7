/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>

#include "broker/keeper/blame.h"
#include "broker/keeper/crash.h"
#include "broker/keeper/keeper.h"
#include "broker/keeper/kept.h"

/* What the keeper and its broker have in common: the table, how they fare, and what they say to
 * each other. The two may be of different versions; broker/keeper/keeper.h says what follows from
 * that. */

/* A slot of the table, which the broker shares with the keeper. The keeper alone writes it. */
struct kept_slot {
	/* The descriptor in the keeper, and so in the brokers that it forks later. -1: the slot is
	 * free. */
	_Atomic int fd;
	void *address; /* where it is mapped; NULL: it is not */
	size_t size;
	/* The serial of the message that the descriptor came with. 0: one of enum kept_fixed. */
	uint64_t serial;
};

struct kept_table {
	uint32_t room;
	_Atomic uint32_t n;         /* so many slots were ever in use: those after them are free */
	_Atomic int keeper, deputy; /* process ids; 0: there is none */
	_Atomic uint32_t brokers_died, brokers_upgraded, keepers_died; /* how many so far */
	/* The exit code of the broker, which it writes itself when it ends. -1: it has not. */
	_Atomic int ended;
	struct kept_slot slots[];
};

/* How the broker and the keeper fare, each of which looks at the other. */
struct kept_health {
	atomic_uint beat, keeper_beat; /* the beats of the broker, and of the keeper: base/beat.h */
	atomic_uint hang_ms; /* a process that does not beat for so long hangs; 0: none does */
	/* The signal by which a broker was told to end, which the broker writes itself. It stays,
	 * so that the brokers after it are told the same. 0: none was told. */
	_Atomic int told_to_end;
	struct crash crash, crash_of_rehearsal; /* the broker's, and the last rehearsal's */
	struct blames blames;
	atomic_uint beat_of_rehearsal; /* the beats of the last rehearsal */
};

/* A rehearsal hangs if it does not beat for as long as a broker may not; but it has KEPT_HANG_MS at
 * most, as the broker that serves waits for it. */
static inline unsigned rehearsal_hang_ms(const struct kept_health *h)
{
	unsigned hang_ms = atomic_load(&h->hang_ms);

	return hang_ms && hang_ms < KEPT_HANG_MS ? hang_ms : KEPT_HANG_MS;
}

/* A rehearsal that gets on has twice that time at most, and more for each MiB of this journal, as
 * there is so much to take over: ten times as long as a MiB takes on a machine that has nothing
 * else to do. */
#define REHEARSAL_MIB_MS 200
struct rehearsal_time {
	unsigned mib, ms;
};
struct rehearsal_time rehearsal_most(const struct kept_health *h, int journal);

/* What a broker says. The answer to each is the same message, with the same serial and an error in
 * the place of the word. */
enum kept_word {
	KEPT_KEEP = 1,
	KEPT_DROP,
	KEPT_SERVES,
	KEPT_REHEARSE,  /* can a program go on? if not, the answer's @text says why */
	KEPT_HAND_OVER, /* the broker, of version @text, ends, and that program follows */
};

/* A message of the keeper's with serial 0 is no answer. The first one says that the broker may
 * begin, as the keeper has written down that the broker is there. Each later one comes from a
 * deputy that goes on for a keeper that died: what the broker has asked, and has no answer to yet,
 * it asks again. */
struct kept_message {
	uint64_t serial; /* the broker counts its messages: each has a higher one */
	uint32_t word;   /* enum kept_word; in an answer it is 0 or errno */
	uint32_t n;
	uint32_t ids[KEPT_AT_ONCE];   /* 0: any slot that is free */
	uint64_t sizes[KEPT_AT_ONCE]; /* so many bytes are to be mapped for writing; 0: none */
	char text[KEPT_TEXT];
};
