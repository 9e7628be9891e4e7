/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/keeper/common.h"

#define KEEPER_DEATHS_MAX 5
#define WAIT_FIRST_MS     100

/* The keeper's own descriptors, besides those that it keeps for brokers. */
enum own {
	OWN_SIGNALS,
	OWN_LOG,
	OWN_SELF,          /* a pidfd of this process, for its deputy */
	OWN_MODULE,        /* the program of the next broker */
	OWN_MODULE_BEFORE, /* the program before, until a broker of the new one serves */
	OWN_MODULE_NEXT,   /* a program that was found good, and that may be handed over to */
	OWN_JOURNAL,
	OWN_SOCKET, /* the keeper's socket to the broker */
	OWN_BROKER, /* a pidfd of the broker */
	N_OWN
};

/* A keeper may be killed at any instruction, and then its deputy goes on. So there are two of these
 * states, one of which counts. Whatever happens is done to a copy, which counts in its place from
 * one store on; and a descriptor is closed only after that, when the state that counts no longer
 * has it. What a keeper had begun when it died did then not happen: the descriptors that it had
 * opened are closed, the broker that it had forked ends, and what the broker had asked it is asked
 * again. */
struct state {
	struct keeper keeper; /* the next broker gets this */
	const char *path;     /* the path of the module */
	int argc;
	char **argv;
	int own[N_OWN];  /* -1: there is none */
	bool is_over;    /* there is to be no other broker */
	bool hands_over; /* the broker hands over to OWN_MODULE_NEXT */

	pid_t broker;            /* 0: there is none */
	bool serves, has_served; /* this broker serves; some broker has served */
	bool hangs;              /* the broker hangs, and is to be killed for that */
	int end;                 /* the broker is told to end by this signal; 0: it is not */
	uint64_t deaths[KEEPER_DEATHS_MAX]; /* when the last ones were, in a ring */
	unsigned n_deaths;
	unsigned n_killed; /* so many brokers of the new program, before one of them served */
	unsigned wait_ms;
	int status; /* the exit status of this process */
	uint32_t brokers_died, brokers_upgraded, keepers_died;
	unsigned quick_deaths;    /* so many keepers have died soon, one after the other */
	uint64_t keeper_since_ms; /* since when this process is the keeper */

	enum { SAYS_NOTHING, SAYS_IT_IS_THERE, SAYS_ANSWER } says; /* once this state counts */
	struct kept_message answer;                                /* the last one */
};

/* The state that counts. */
const struct state *state_now(void);
/* Before there is any. */
void state_begin(const struct state *s);
/* Makes @s the state that counts, and closes the keeper's own descriptors that are not in @s. */
void state_commit(const struct state *s);
/* Closes all descriptors that are not the keeper's own, not in the table and not standard ones. Of
 * what this process was started with, the first broker has had kept what it needs. The socket that
 * it was to listen on, say, is not to be open any more when the broker has closed it. And what a
 * keeper that died had just opened is nobody's. */
void state_close_strays(const struct state *s);

/* Forks a broker, which begins once it is told to. Returns 0 or negative errno. */
int broker_fork(struct state *s);
/* Notes that the broker has ended, and decides what comes after it. @status is what waitpid() says,
 * or NULL if the broker is no child of this process. */
void broker_has_ended(struct state *s, const int *status);
/* Finds out whether the program that is on the disk now could go on. Returns 0, and that program is
 * OWN_MODULE_NEXT; or negative errno, and @why has the reason. */
int broker_rehearse(struct state *s, char why[static KEPT_TEXT]);
