/* SPDX-License-Identifier: MIT */
#pragma once

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

struct name_tree {
	struct name *rbh_root; /* as <bsd/sys/tree.h> wants it */
};

#define ENDED_TOKENS 1024 /* how many are remembered */
struct ended_token {
	unsigned char bytes[16]; /* half of the token's bytes, which nobody guesses either */
	uint64_t pool;
	uid_t uid;
	uint32_t how; /* enum token_end */
};

/* All that leads to buffers, which is names and tokens; and the watches on names. */
struct names {
	struct name_tree tree;
	uint64_t n;
	uint64_t last_version;
	/* how often the log says that somebody else than its publisher has ended a name */
	struct log_rate unpublished;
	TAILQ_HEAD(watch_list, watch) watches; /* in the order of identifiers */
	uint64_t last_watch;
	struct table tokens;
	struct slab token_slab; /* struct token */
	struct generations token_generations;
	struct ended_token ended[ENDED_TOKENS]; /* the tokens that ended last, in a circle */
	uint64_t n_ended;
};

void names_init(struct broker *b);
/* Unpublishes what was to outlive its publishers, and ends the tokens that were to outlive their
 * makers, at the end of the broker. */
void names_end(struct broker *b);
void names_deinit(struct broker *b);
/* Restores names, tokens and watches in a broker that comes after another one. 0 or negative
 * errno. */
int names_restore(struct broker *b);
/* Tells clients, after all is restored, of changes that they were to be told of and can be told of
 * now. */
void names_restored(struct broker *b);
/* Has look-ups that wait handled again, as the configuration is new and their clients may find the
 * name now. */
void names_access_changed(struct broker *b);

/* What a client has of names, tokens and watches. */
struct client_names {
	LIST_HEAD(, name) published; /* names that go with the client */
	TAILQ_HEAD(, token) tokens;  /* tokens that it made */
	LIST_HEAD(, watch) watches;
};

/* Each of these ends some of what a client has that is gone. True when there is no more of that. */
bool client_unpublish(struct client *c, int *budget);
bool client_revoke_tokens(struct client *c, int *budget);
bool client_drop_watches(struct client *c, int *budget);
/* Tells a client that has read all that it was sent which of its watches could not tell it of a
 * change. */
void client_hear_of_changes(struct client *c);
