/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/table.h"
#include "broker/buffer/buffer.h"
#include "broker/order/fence.h"
#include "wire/wire.h"

#define TOKEN_SIZE 32

struct names;

/* How a token has ended, for whoever comes for it later. */
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
 * The right to import one buffer. It ends with its last use, its time, or on demand; and with its
 * maker, unless it has a time limit (token_left.c).
 */
struct token {
	/* these two survive in the slab, so that an identifier is never used twice */
	uint32_t generation;
	uint32_t live;

	uint32_t index;
	struct table_link key;
	unsigned char bytes[TOKEN_SIZE];
	struct buffer *buffer;
	struct client *maker; /* NULL: it is gone */
	struct {
		uid_t uid;
		pid_t pid;
		/* what is known of the maker once it is gone */
		gid_t group; /* the group by which its user may use the pool, or NO_GROUP */
		char *label; /* the token's own copy */
		/* when it went, by clock_ms(); later than the makers before it of the same pool */
		uint64_t gone_ms;
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
	uint32_t uses; /* how many are left, or SHARE_USES_UNLIMITED */
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

/* Makes a token. 0 or a SHARE_E... number. */
int token_new(struct broker *b, struct client *maker, const struct token_terms *terms,
	      struct token **out, struct failure *failure);
struct token *token_find(struct broker *b, const unsigned char *bytes);
#define TOKEN_PREFIX offsetof(struct token, index)
/* The token's identifier, which reports show and which is no secret. */
uint64_t token_id(const struct token *t);
struct token *token_by_id(struct broker *b, uint64_t id); /* NULL: there is none (any more) */
/* Whether the client may end the token, as its user or as an administrator. */
bool token_is_for(const struct token *t, const struct client *client);
/* Takes one use from a token that was imported, which ends with its last one. */
void token_used(struct broker *b, struct token *t);
void token_free(struct broker *b, struct token *t, enum token_end how);
/* Notes in the journal what the token is now. */
void token_note(struct broker *b, struct token *t);
/* Restores the tokens that the journal has. 0 or negative errno. */
int tokens_restore(struct broker *b);
