/* SPDX-License-Identifier: MIT */
#ifndef BROKER_KEEPER_H
#define BROKER_KEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/keeper/kept.h"

/*
 * The keeper: the process that was started as share-broker. It forks the broker, which does all the
 * work, and keeps what the next broker needs when this one dies: the descriptors and mappings that
 * the broker has handed to it (broker/keeper/kept.h), and the memory of the journal. A broker that
 * is forked has them, and goes on where the other one was.
 *
 * The broker's program is a module (share-broker.so) that the forked process loads. So the keeper
 * can fork a broker of a newer program, and has none of that program's state in its own memory. A
 * program that was replaced on the disk counts from the next upgrade on: until then brokers are
 * made of the file that the keeper has open.
 *
 * It speaks with nobody but its broker, takes nothing apart, and takes no memory once it runs. When
 * it is killed, its deputy (broker/keeper/deputy.h) goes on in its place.
 */

/* What has become of the broker before this one. */
enum keeper_before {
	KEEPER_FIRST,       /* there was none */
	KEEPER_DIED,        /* it was killed, or has crashed */
	KEEPER_HANDED_OVER, /* it has ended for this one, whose program is another one */
	KEEPER_FELL_BACK,   /* a broker of a new program could not go on: this is one of the old */
	KEEPER_TRIED,       /* it could not take over then (KEEPER_TRY_AGAIN) */
};

/* What a broker gets. Programs of other versions use it as well, so members are only added at the
 * end. A keeper of before does not have them: then KEEPER_MAIN gets another number, and modules
 * also have the main program of the number before, which does without. Who changes anything else of
 * it, or of inside.h, leaves the number before out, and then the keeper has to be started again. */
struct keeper {
	struct kept_table *table;
	int journal;                 /* a memfd */
	int broker;                  /* its socket to the broker: of a broker, to the keeper */
	uint64_t serial;             /* of the last message that was answered */
	unsigned generation;         /* of brokers: the first one is 1 */
	pid_t pid;                   /* of the process that was started */
	uint64_t descriptors_before; /* RLIMIT_NOFILE as it was then */
	enum keeper_before before;
	pid_t broker_before;
	int signal;              /* that the one before died of; 0: of none that is known */
	char version_before[32]; /* of the one that has handed over */
	bool rehearses;          /* it only finds out whether it could go on, and changes nothing */
	/* not of KEEPER_MAIN_BEFORE */
	bool hung;                  /* the one before, which the keeper has killed for that */
	struct kept_health *health; /* NULL: the keeper does not look at that */
};

/* What a module has under this name: the broker's main program. A keeper that is linked with one
 * has no module, and brokers of no other program. */
#define KEEPER_MAIN_SYMBOL share_broker_main_7
#define KEEPER_MAIN        "share_broker_main_7"
#define KEEPER_MAIN_BEFORE share_broker_main_2
typedef int keeper_main(struct keeper *k, int argc, char **argv);

/* Forks brokers until one ends by itself. What the process is to end with. Of a broker that ends,
 * too: it returns there as well. */
int keeper_run(const char *module, int argc, char **argv);

/* What a signal is called, as "Aborted"; "?" if it has no name, as those of real time. */
const char *signal_text(int signal);

/* NULL where the program is a module. */
extern keeper_main KEEPER_MAIN_SYMBOL __attribute__((weak));
extern keeper_main KEEPER_MAIN_BEFORE;

/* The exit code of a broker that cannot take over now, for want of memory or descriptors, and has
 * changed nothing: another one is to try, a little later. */
#define KEEPER_TRY_AGAIN 75

#endif
