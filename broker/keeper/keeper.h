/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/keeper/kept.h"

/*
 * The keeper is the process that was started as share-broker. It forks the broker, which does all
 * the work, and keeps what the next broker needs when this one dies: the descriptors and mappings
 * that the broker has handed to it (broker/keeper/kept.h), and the memory of the journal. Every
 * broker that it forks has all of that, and goes on where the last one was.
 *
 * The broker's program is a module (share-broker.so), which the forked process loads. So the keeper
 * can fork a broker of a newer program, and has none of that program's state in its own memory. A
 * program that was replaced on the disk counts from the next upgrade on: until then brokers are
 * made of the file that the keeper has open.
 *
 * The keeper speaks with nobody but its broker, does not look into what it keeps, and allocates no
 * memory once it runs. When it is killed, its deputy (broker/keeper/process/deputy.h) goes on in
 * its place. What that process alone has is in broker/keeper/process; here is what brokers have of
 * it.
 */

/* What has become of the broker before this one. */
enum keeper_before {
	KEEPER_FIRST,       /* there was none */
	KEEPER_DIED,        /* it was killed, or has crashed */
	KEEPER_HANDED_OVER, /* it has ended for this one, which is of another program */
	KEEPER_FELL_BACK,   /* a broker of a new program could not go on: this one is of the old */
	KEEPER_TRIED,       /* it could not take over at that time (KEEPER_TRY_AGAIN) */
};

/* What a broker gets from its keeper. Programs of other versions use this struct as well, so
 * members are only added at the end. An older keeper does not have the new ones: when some are
 * added, KEEPER_MAIN gets another number, and modules also have the main program of the earlier
 * number, which does without them. Who changes anything else of this struct or of inside.h leaves
 * the earlier number out, and then the keeper has to be started again. */
struct keeper {
	struct kept_table *table;
	int journal;                 /* a memfd */
	int broker;                  /* the broker's socket to its keeper; in the keeper it is -1 */
	uint64_t serial;             /* the last message that was answered has this serial */
	unsigned generation;         /* it counts brokers: the first one is 1 */
	pid_t pid;                   /* the process that was started; a deputy has another one */
	uint64_t descriptors_before; /* the process was started with this RLIMIT_NOFILE */
	enum keeper_before before;
	pid_t broker_before;
	int signal;              /* the broker before has died of it; 0: of none that is known */
	char version_before[32]; /* the version of the broker that has handed over */
	bool rehearses; /* the process only finds out whether it could go on, and changes nothing */
	/* KEEPER_MAIN_BEFORE has no members from here on */
	bool hung; /* the broker before hung, and the keeper has killed it for that */
	struct kept_health *health; /* NULL: the keeper does not look at the broker's health */
};

/* The name that the broker's main program has in a module. A keeper that is linked with such a
 * program loads no module, and forks brokers of no other program. */
#define KEEPER_MAIN_SYMBOL share_broker_main_7
#define KEEPER_MAIN        "share_broker_main_7"
#define KEEPER_MAIN_BEFORE share_broker_main_2
typedef int keeper_main(struct keeper *k, int argc, char **argv);

/* Forks one broker after the other, until one ends by itself or the keeper gives up. Returns the
 * exit status for the process. It never returns in a broker. */
int keeper_run(const char *module, int argc, char **argv);

/* Returns what a signal is called, as "Aborted"; "?" if it has no name, as real-time signals have
 * none. */
const char *signal_text(int signal);

/* Its address is NULL where the broker's program is a module. */
extern keeper_main KEEPER_MAIN_SYMBOL __attribute__((weak));
extern keeper_main KEEPER_MAIN_BEFORE;

/* The exit code of a broker that cannot take over now, for want of memory or descriptors, and has
 * changed nothing: another one is to try a little later. */
#define KEEPER_TRY_AGAIN 75
