/* SPDX-License-Identifier: MIT */
#ifndef BROKER_TOKEN_H
#define BROKER_TOKEN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/account.h"
#include "broker/fence.h"
#include "broker/table.h"
#include "wire/wire.h"

#define TOKEN_SIZE 32

struct broker;
struct buffer;
struct client;
struct event;
struct metadata;

/* The right to import one buffer. Ends with its last use, its time, its maker, or on demand. */
struct token {
	struct table_link key;
	unsigned char bytes[TOKEN_SIZE];
	struct buffer *buffer;
	struct client *maker;
	LIST_ENTRY(token) of_maker;
	struct event *timer;
	struct fence fence;
	struct metadata *tensor; /* for importers; NULL: none */
	struct charge charge;
	uint32_t mode;
	uint32_t uses; /* left; 0: without limit */
};

void token_table_init(struct broker *b);

/* What a token is to be. */
struct token_terms {
	struct buffer *buffer;
	uint32_t mode, uses, timeout_ms; /* as in EXPORT */
	struct fence *fence;             /* consumed on success */
	struct wire_bytes tensor;
};

/* 0, -ENOMEM (or another errno), TOKEN_QUOTA or TOKEN_METADATA_QUOTA. */
enum token_error { TOKEN_QUOTA = 1, TOKEN_METADATA_QUOTA };
int token_new(struct broker *b, struct client *maker, const struct token_terms *terms,
	      struct token **out);
struct token *token_find(struct broker *b, const unsigned char *bytes);
/* It was imported: one use less. */
void token_used(struct broker *b, struct token *t);
void token_free(struct broker *b, struct token *t);

#endif
