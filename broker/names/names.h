/* SPDX-License-Identifier: MIT */
#ifndef BROKER_NAMES_NAMES_H
#define BROKER_NAMES_NAMES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/slab.h"
#include "base/table.h"
#include "broker/journal/generations.h"
#include "broker/log/log.h"

struct broker;
struct client;
struct name;
struct token;
struct watch;

struct name_tree {
	struct name *rbh_root; /* as <bsd/sys/tree.h> wants it */
};

#define ENDED_TOKENS 1024 /* that are remembered */
struct ended_token {
	unsigned char bytes[16]; /* half of the token's bytes, which nobody guesses either */
	uint64_t pool;
	uid_t uid;
	uint32_t how; /* enum token_end */
};

/* All that leads to buffers: names and watches on them, and tokens. */
struct names {
	struct name_tree tree;
	uint64_t n;
	uint64_t last_version;
	/* names that others than their publishers have ended */
	struct log_rate unpublished;
	TAILQ_HEAD(watch_list, watch) watches; /* by identifier */
	uint64_t last_watch;
	struct table tokens;
	struct slab token_slab; /* struct token */
	struct generations token_generations;
	struct ended_token ended[ENDED_TOKENS]; /* the tokens that ended last, in a circle */
	uint64_t n_ended;
};

void names_init(struct broker *b);
/* Unpublishes what was to outlive its publishers, and ends the tokens that were to. */
void names_end(struct broker *b);
void names_deinit(struct broker *b);
/* A broker that comes after another one: names, tokens and watches, as the journal has them. 0 or
 * negative errno. */
int names_restore(struct broker *b);
/* After all is restored: tells clients of changes that they were to be told of and can be told
 * now. */
void names_restored(struct broker *b);
/* The configuration is new: who waits for a name may be somebody who finds it now. */
void names_access_changed(struct broker *b);

/* What a client has of them. */
struct client_names {
	LIST_HEAD(, name) published; /* names that go with the client */
	TAILQ_HEAD(, token) tokens;  /* tokens that it made, in this order */
	LIST_HEAD(, watch) watches;
};

/* The client is gone: some of what it has ends, true when there is no more of that. */
bool client_unpublish(struct client *c, int *budget);
bool client_revoke_tokens(struct client *c, int *budget);
bool client_drop_watches(struct client *c, int *budget);
/* The client has read all that it was sent: watches that could not tell it of a change say so. */
void client_hear_of_changes(struct client *c);

#endif
