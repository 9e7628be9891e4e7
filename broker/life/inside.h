/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/client/clients.h"

struct ending;
struct reload;

/* What the broker has of memory that nobody pays for: see unpaid.c. */
struct unpaid {
	/* process_open_memory(); it stays open, so that a look needs no descriptor */
	int memory;
	/* `least`: the least that was seen since memory was given back */
	uint64_t n_commits, least;
};

/* How the broker begins, goes on and ends, which no other room has to know. */
struct life {
	uid_t uid;
	unsigned char ids[128]; /* the numbers as the journal has them: see commit.c */
	uint32_t ids_record;
	bool asks_again; /* requests are being handled that the broker before had not answered */
	/* The socket belongs to a service manager: who connects there waits for the next broker. */
	bool socket_stays;
	struct ending *ending;    /* NULL: it does not serve */
	uint64_t drains_until_ms; /* 0: it does not end yet, or at once */
	struct reload *reload;
	struct deferred_list upgrades; /* the requests for an upgrade */
	struct event *of_keeper;
	struct event *alive; /* a timer that is always set, so that the loop goes round */
	void (*look_at_all)(struct broker *b);
	struct unpaid unpaid;
};

/* loop.c */
/* Makes the timers that are always set. When some other timer could not be set, and nobody knows
 * which, @look_at_all does what all of them would. 0 or -ENOMEM. */
int loop_init(struct broker *b, void (*look_at_all)(struct broker *b));
void loop_deinit(struct broker *b);

/* commit.c */
int ids_restore(struct broker *b); /* 0 or negative errno */

/* unpaid.c */
/* Looks now and then how much is unpaid. Called after each commit. */
void unpaid_count(struct broker *b);

/* rooms.c: the only one that there is. */
extern const struct client_rooms broker_rooms;

/* restore.c: takes over from the journal and the keeper what a broker that died had */
/* Takes over all that it had. 0 or negative errno, with a line in the log. */
int restore_all(struct broker *b);
/* Takes over the requests that it had not answered. 0 or negative errno, and then nothing of it
 * counts. */
int restore_requests(struct broker *b);

/* reload.c: reading the configuration again while the broker serves */
/* 0 or negative errno. */
int reload_new(struct broker *b, struct reload **out);
/* Frees it; NULL is fine. */
void reload_free(struct reload *r);
/* Reads the configuration again for somebody who waits for no answer: the log says what is new. */
void reload_on_signal(struct broker *b);

/* upgrade.c */
/* Called between two turns of the loop. If a client has asked for it, and a broker of the program
 * that is on the disk now could go on, this process ends here. */
void upgrade_if_asked(struct broker *b);

/* ending.c */
/* The limit is that of the configuration; a private broker has 0, as it ends together with the
 * process that has started it. */
#define DRAIN_AS_CONFIGURED (-1)
/*
 * Takes signals from now on, and looks at @lifeline_fd (-1: there is none). On SIGTERM and SIGINT
 * the broker drains for at most @drain_ms: it lets nobody in but operators, tells its clients, and
 * ends when nobody holds anything any more. A second signal ends it at once, and so does the
 * lifeline. 0 or -ENOMEM.
 */
int ending_new(struct broker *b, int lifeline_fd, int drain_ms, struct ending **out);
/* Frees it; NULL is fine. */
void ending_free(struct ending *e);
