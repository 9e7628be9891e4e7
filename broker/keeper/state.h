/* SPDX-License-Identifier: MIT */
#ifndef BROKER_KEEPER_STATE_H
#define BROKER_KEEPER_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/keeper/inside.h"

#define KEEPER_DEATHS_MAX 5
#define WAIT_FIRST_MS     100

/* Its own descriptors, besides those that it keeps. */
enum own {
	OWN_SIGNALS,
	OWN_LOG,
	OWN_SELF,          /* a pidfd of this process, for its deputy */
	OWN_MODULE,        /* what brokers are made of */
	OWN_MODULE_BEFORE, /* the one before, until a broker of the new one serves */
	OWN_MODULE_NEXT,   /* that was found good, and is handed over to */
	OWN_JOURNAL,
	OWN_SOCKET, /* to the broker */
	OWN_BROKER, /* a pidfd of it */
	N_OWN
};

/* A keeper may be killed at any instruction, and its deputy goes on. So there are two of these, one
 * of which counts (now). Whatever happens is done to a copy, which counts instead from one store
 * on; and a descriptor is closed only once the state that counts lacks it. What a keeper that died
 * had begun then did not happen: descriptors that it had opened are closed, a broker that it had
 * forked ends, and what it was asked it is asked again. */
struct state {
	struct keeper keeper; /* as the next broker gets it */
	const char *path;     /* of the module */
	int argc;
	char **argv;
	int own[N_OWN];  /* -1: there is none */
	bool is_over;    /* there is to be no other broker */
	bool hands_over; /* the broker, to OWN_MODULE_NEXT */

	pid_t broker;            /* 0: there is none */
	bool serves, has_served; /* it; or any */
	bool hangs;              /* it, and is to die of that */
	int end;                 /* the signal by which it was told to end, 0: it was not */
	uint64_t deaths[KEEPER_DEATHS_MAX]; /* when, the last ones in a ring */
	unsigned n_deaths;
	unsigned n_killed; /* of the new program, before one of them served */
	unsigned wait_ms;
	int status; /* what this process is to end with */
	uint32_t brokers_died, brokers_upgraded, keepers_died;
	unsigned quick_deaths;    /* of keepers, one after the other */
	uint64_t keeper_since_ms; /* this one */

	enum { SAYS_NOTHING, SAYS_IT_IS_THERE, SAYS_ANSWER } says; /* once this state counts */
	struct kept_message answer;                                /* the last one */
};

/* Forks a broker, which begins once it is told to. 0 or negative errno. */
int broker_fork(struct state *s);
/* It has, as waitpid() says in @status; NULL: it is no child of this process. */
void broker_has_ended(struct state *s, const int *status);
/* Whether there is a module that could go on: 0, and it is OWN_MODULE_NEXT; or negative errno and
 * @why. */
int broker_rehearse(struct state *s, char why[static KEPT_TEXT]);

#endif
