/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/slab.h"
#include "base/table.h"
#include "broker/accounts/account.h"
#include "broker/journal/generations.h"
#include "broker/suballocator/block.h"

struct allocation;
struct broker;
struct client;
struct pool;
struct segment;

#define BUFFER_PREFIX   8                         /* bytes */
#define BUFFER_SIZE_MAX ((UINT64_C(1) << 42) - 1) /* more than a block has */
enum referrer_kind { REFERRER_NAME, REFERRER_TOKEN, REFERRER_LEFT, REFERRER_MESSAGE, REFERRERS };
/* A part of the name, token or message that refers to a buffer, beside its leases. */
struct referrer {
	LIST_ENTRY(referrer) of_buffer;
	enum referrer_kind kind;
	uint32_t n[REFERRERS];   /* in the buffer's first one: how many of each kind there are */
	struct account *account; /* the account of whoever has it; borrowed */
};

/* What somebody wants others to know: of a buffer JSON, with a name or a token a tensor. */
struct metadata {
	struct charge charge;
	uint32_t size;
	uint32_t buffer, record; /* if it is a buffer's: its index */
	char bytes[];
};

/*
 * A leased block. References are held by leases, names, tokens and messages. With the last one the
 * block goes back to its pool, gated by the fences of everyone who released it. The block's payer
 * is whoever allocated it, or holds it since then.
 */
struct buffer {
	/* these two stay in the slab: an identifier is never used twice */
	uint32_t generation;
	uint32_t refs;           /* 0: the slot is free */
	uint64_t size : 42;      /* what was asked for */
	uint64_t n_leases : 21;  /* one of each client at most */
	uint64_t is_awaited : 1; /* requests wait until everybody else has given it up */
	LIST_HEAD(, lease) leases;
	struct block *block;
	struct fence_set *pending; /* fences beside the gate that the block came with */
	LIST_HEAD(, referrer) referrers;
	struct metadata *metadata;
};

/* All buffers and leases, and what is being zeroed before somebody gets it. */
struct buffers {
	struct slab slab;   /* struct buffer */
	struct slab leases; /* struct lease */
	struct table lease_table;
	struct table reclaims;     /* the buffers that requests wait for */
	LIST_HEAD(, scrub) scrubs; /* those of devices' memory */
	struct generations generations;
};

void buffers_init(struct broker *b);
void buffers_deinit(struct broker *b);
/* Makes a buffer with one reference; consumes the block and charge of @a. 0, or SHARE_ESYSTEM. */
int buffer_new(struct broker *b, struct allocation *a, struct buffer **out);
struct buffer *buffer_find(struct broker *b, uint64_t id); /* NULL: stale or foreign */
uint64_t buffer_id(const struct buffer *buffer);
uint32_t buffer_index(const struct buffer *buffer); /* the index of its slot */
struct segment *buffer_segment(const struct buffer *buffer);
struct pool *buffer_pool(const struct buffer *buffer);
void buffer_ref(struct buffer *buffer);
void buffer_unref(struct broker *b, struct buffer *buffer);
/* Adds a reference that is @account's, and ends it. */
void referrer_attach(struct buffer *buffer, struct referrer *referrer, enum referrer_kind kind,
		     struct account *account);
void referrer_detach(struct broker *b, struct buffer *buffer, struct referrer *referrer);
uint64_t referrer_bytes(const struct buffer *buffer, enum referrer_kind kind); /* 0: there is one */

/* Sets its size (0: leaves it); no reader shrinks what others have. False: there is no room. */
bool buffer_set_size(struct buffer *buffer, uint64_t size, bool by_writer);
/* Tells monitors what has happened to the buffer; @client is NULL if nobody did it. */
void buffer_tell(struct broker *b, const struct buffer *buffer, const char *action,
		 const struct client *client, uint64_t count);
void buffer_set_metadata(struct buffer *buffer, struct metadata *metadata); /* takes it over */
/* Makes a copy of @size bytes, charged to @account in the place of @old, which stays the caller's
 * and may be NULL. With @size 0 it is NULL. 0; or a SHARE_E... number, when nothing has changed. */
int metadata_new(struct account *account, const void *bytes, uint32_t size, struct metadata *old,
		 struct metadata **out, struct failure *failure);
void metadata_free(struct metadata *metadata);
