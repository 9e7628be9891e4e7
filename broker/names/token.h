/* SPDX-License-Identifier: MIT */
#ifndef BROKER_NAMES_TOKEN_H
#define BROKER_NAMES_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/table.h"
#include "broker/accounts/account.h"
#include "broker/buffer/buffer.h"
#include "broker/order/fence.h"
#include "wire/wire.h"

#define TOKEN_SIZE 32

struct broker;
struct buffer;
struct client;
struct event;
struct metadata;
struct names;

/* How a token has ended: for who comes for it later. */
enum token_end {
	TOKEN_USED_UP,
	TOKEN_TIMED_OUT,
	TOKEN_REVOKED,
	TOKEN_MAKER_GONE,
	TOKEN_MAKER_DROPPED,
	TOKEN_CROWDED_OUT, /* its maker is gone, and there was no room for it */
	TOKEN_RIGHT_LOST,
};

/*
 * The right to import one buffer. Ends with its last use, its time, or on demand; and with its
 * maker, unless it has a time limit (token_left.c).
 */
struct token {
	/* these two survive in the slab: an identifier is never used twice */
	uint32_t generation;
	uint32_t live;

	uint32_t index;
	struct table_link key;
	unsigned char bytes[TOKEN_SIZE];
	struct buffer *buffer;
	struct client *maker; /* NULL: gone */
	struct {
		uid_t uid;
		pid_t pid;
		/* what is known of the maker once it is gone */
		gid_t group; /* the group by which its user may use the pool, or NO_GROUP */
		char *label; /* allocated */
		uint64_t
		    gone_ms; /* as clock_ms(), when it went: later than the others of its pool */
	} was;
	TAILQ_ENTRY(token) of_maker;
	TAILQ_ENTRY(token) of_pool; /* in its pool's list of tokens without a maker */
	struct event *timer;
	uint64_t ends_ms; /* when it ends, by clock_ms(); 0: it has no time limit */
	struct fence fence;
	struct metadata *tensor; /* for importers; NULL: none */
	struct charge charge;
	struct referrer referrer;
	uint32_t mode;
	uint32_t uses; /* left; or SHARE_USES_UNLIMITED */
	uint32_t record;
};

void tokens_init(struct names *names);

/* What a token is to be. */
struct token_terms {
	struct buffer *buffer;
	uint32_t mode, uses, timeout_ms; /* as in EXPORT */
	struct fence *fence;             /* consumed on success */
	struct wire_bytes tensor;
};

/* 0 or a SHARE_E... number. */
int token_new(struct broker *b, struct client *maker, const struct token_terms *terms,
	      struct token **out, struct failure *failure);
struct token *token_find(struct broker *b, const unsigned char *bytes);
#define TOKEN_PREFIX offsetof(struct token, index)
/* The token's identifier, which reports show and which is no secret. */
uint64_t token_id(const struct token *t);
struct token *token_by_id(struct broker *b, uint64_t id); /* NULL: there is none (any more) */
/* Whether it is this client's to end: its user's, or an administrator's. */
bool token_is_for(const struct token *t, const struct client *client);
/* The token was imported, so it has one use less. */
void token_used(struct broker *b, struct token *t);
void token_free(struct broker *b, struct token *t, enum token_end how);
/* The journal says what it is now. */
void token_note(struct broker *b, struct token *t);
/* Those that the journal has. 0 or negative errno. */
int tokens_restore(struct broker *b);

#endif
