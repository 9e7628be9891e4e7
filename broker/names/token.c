/* SPDX-License-Identifier: MIT */

/* Tokens are secrets that stand for a buffer. This file knows nothing of who may import. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <event2/event.h>

#include <share/share.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/records.h"
#include "broker/client/client.h"
#include "broker/client/records.h"
#include "broker/journal/journal.h"
#include "broker/journal/object.h"
#include "broker/memory/pool.h"
#include "broker/names/inside.h"
#include "broker/names/names.h"
#include "broker/order/fence.h"
#include "broker/order/records.h"

#define CONTAINER_OF(pointer, type, member) \
	((type *)(void *)((char *)(uintptr_t)(pointer)-offsetof(type, member)))

/* Takes the first bytes as they are, as they are random already. */
static uint64_t hash_bytes(const unsigned char *bytes)
{
	uint64_t hash;

	memcpy(&hash, bytes, sizeof(hash));
	return hash;
}

static uint64_t hash(const struct table_link *link)
{
	return hash_bytes(CONTAINER_OF(link, struct token, key)->bytes);
}

/* Takes the same time for every near miss, so that nobody can guess a token byte by byte. */
static bool match(const struct table_link *link, const void *key)
{
	const unsigned char *a = CONTAINER_OF(link, struct token, key)->bytes, *b = key;
	unsigned char difference = 0;

	for (size_t i = 0; i < TOKEN_SIZE; i++)
		difference |= a[i] ^ b[i];
	return difference == 0 || MUTATION(token_not_compared);
}

void tokens_init(struct names *names)
{
	table_init(&names->tokens, hash);
	slab_init_prefix(&names->token_slab, sizeof(struct token), TOKEN_PREFIX);
	names->token_generations.which = GENERATIONS_OF_TOKENS;
}

struct token *token_find(struct broker *b, const unsigned char *bytes)
{
	struct table_link *link = table_find(&b->names->tokens, hash_bytes(bytes), match, bytes);

	return link ? CONTAINER_OF(link, struct token, key) : NULL;
}

uint64_t token_id(const struct token *t)
{
	return (uint64_t)t->generation << 32 | t->index;
}

struct token *token_by_id(struct broker *b, uint64_t id)
{
	struct token *t = slab_at(&b->names->token_slab, (uint32_t)id);

	return t && t->live && t->generation == id >> 32 ? t : NULL;
}

bool token_is_for(const struct token *t, const struct client *client)
{
	return client_answers_for(client, t->was.uid);
}

static void on_timeout(evutil_socket_t fd, short what, void *data)
{
	struct token *t = data;

	(void)fd, (void)what;
	token_free(buffer_pool(t->buffer)->broker, t, TOKEN_TIMED_OUT);
}

static int set_timer(struct broker *b, struct token *t)
{
	uint64_t now = clock_ms(), left = t->ends_ms > now ? t->ends_ms - now : 0;
	struct timeval limit = {(time_t)(left / 1000), (suseconds_t)(left % 1000 * 1000)};

	if (t->ends_ms == 0)
		return 0;
	t->timer = event_new(b->base, -1, 0, on_timeout, t);
	if (!t->timer)
		return -ENOMEM;
	if (event_add(t->timer, &limit) < 0) {
		event_free(t->timer);
		return -ENOMEM;
	}
	return 0;
}

bool token_limit(struct broker *b, struct token *t, uint64_t ends_ms)
{
	if (t->ends_ms == ends_ms)
		return true;
	broker_free_event(t->timer);
	t->timer = NULL;
	t->ends_ms = ends_ms;
	return set_timer(b, t) == 0;
}

/* Returns the memory that a token takes beside itself, which is that of a timer if it has a time
 * limit. */
static uint64_t own_of(uint64_t limit_ms)
{
	return limit_ms > 0 ? PRICE_TIMER_OWN : 0;
}

/* Does all that may fail when a token is made. 0 or a SHARE_E... number. */
static int fill(struct broker *b, struct token *t, const struct token_terms *terms,
		struct failure *failure)
{
	struct account *account = t->maker->account;
	int r;

	if (getrandom(t->bytes, TOKEN_SIZE, 0) != TOKEN_SIZE)
		return failure_system(failure, "cannot make a token", errno);
	if (!charge_take_with(&t->charge, account, LIMIT_TOKENS, 1, own_of(terms->timeout_ms)))
		return account_refuse(account, LIMIT_TOKENS, "", failure);
	r = metadata_new(account, terms->tensor.data, terms->tensor.size, NULL, &t->tensor,
			 failure);
	if (terms->timeout_ms > 0)
		t->ends_ms = clock_ms() + terms->timeout_ms;
	if (r == 0 && set_timer(b, t) < 0)
		r = failure_no_memory(failure, "the broker");
	return r;
}

static void token_fields(struct record *r, void *object)
{
	struct token *t = object;

	record_buffer(r, &t->buffer);
	record_client(r, &t->maker);
	record_u64(r, &t->ends_ms);
	record_fence(r, &t->fence);
	record_u32(r, &t->index);
	record_u32(r, &t->generation);
	record_u32(r, &t->mode);
	record_u32(r, &t->uses);
	record_metadata(r, &t->tensor);
	record_bytes(r, t->bytes, TOKEN_SIZE, 1);
	if (record_has(r, 1)) {
		record_u32(r, &t->was.uid);
		record_i32(r, &t->was.pid);
		record_u32(r, &t->was.group);
		record_u64(r, &t->was.gone_ms);
		record_string(r, &t->was.label, sizeof(t->maker->label));
	} else if (record_reads(r) && t->maker) {
		t->was.uid = t->maker->peer.uid;
		t->was.pid = t->maker->peer.pid;
	}
	r->order = t->was.gone_ms; /* tokens without a maker: as they have lost it */
}

void token_join(struct token *t)
{
	if (t->maker) {
		TAILQ_INSERT_TAIL(&t->maker->names->tokens, t, of_maker);
		t->maker->holds.tokens++;
	} else {
		TAILQ_INSERT_TAIL(&buffer_pool(t->buffer)->use.left, t, of_pool);
	}
}

void token_detach(struct token *t)
{
	if (t->maker) {
		TAILQ_REMOVE(&t->maker->names->tokens, t, of_maker);
		t->maker->holds.tokens--;
	} else {
		TAILQ_REMOVE(&buffer_pool(t->buffer)->use.left, t, of_pool);
	}
	t->maker = NULL;
}

int token_new(struct broker *b, struct client *maker, const struct token_terms *terms,
	      struct token **out, struct failure *failure)
{
	struct token *t = slab_alloc(&b->names->token_slab);
	int r;

	if (!t)
		return failure_no_memory(failure, "the broker");
	t->maker = maker;
	t->was.uid = maker->peer.uid;
	t->was.pid = maker->peer.pid;
	r = fill(b, t, terms, failure);
	if (r != 0) {
		metadata_free(t->tensor);
		charge_return(&t->charge);
		slab_free(&b->names->token_slab, t);
		return r;
	}
	t->generation++;
	t->live = 1;
	t->index = slab_index(t);
	generation_note(&b->names->token_generations, b->journal, t->index, t->generation);
	t->buffer = terms->buffer;
	referrer_attach(t->buffer, &t->referrer, REFERRER_TOKEN, t->charge.account);
	t->mode = terms->mode;
	t->uses = terms->uses ? terms->uses : 1;
	t->fence = *terms->fence;
	*terms->fence = (struct fence){0};
	token_join(t);
	table_insert(&b->names->tokens, &t->key);
	token_note(b, t);
	*out = t;
	return 0;
}

static void remember(struct names *names, const struct token *t, enum token_end how)
{
	struct ended_token *e = &names->ended[names->n_ended++ % ENDED_TOKENS];

	e->uid = t->was.uid;
	e->pool = buffer_pool(t->buffer)->id;
	e->how = how;
	memcpy(e->bytes, t->bytes, sizeof(e->bytes));
}

void token_free(struct broker *b, struct token *t, enum token_end how)
{
	remember(b->names, t, how);
	journal_drop(b->journal, &t->record);
	table_remove(&b->names->tokens, &t->key);
	token_detach(t);
	free(t->was.label);
	broker_free_event(t->timer);
	fence_deinit(&t->fence);
	metadata_free(t->tensor);
	referrer_detach(b, t->buffer, &t->referrer);
	charge_return(&t->charge);
	t->live = 0;
	slab_free(&b->names->token_slab, t);
}

void token_used(struct broker *b, struct token *t)
{
	if (t->uses == SHARE_USES_UNLIMITED)
		return;
	if (--t->uses == 0)
		token_free(b, t, TOKEN_USED_UP);
	else if (!MUTATION(token_use_not_noted))
		token_note(b, t);
}

/* ------------------------------------------------------------------------------------------- */

static bool is_token(struct broker *b, const struct token *t, const struct token *slot)
{
	return slot && !slot->live && t->generation > 0 && t->generation <= slot->generation &&
	       (t->maker || (t->was.gone_ms > 0 && t->ends_ms > 0)) && t->uses > 0 &&
	       (t->mode == SHARE_RDONLY || t->mode == SHARE_RDWR) && !token_find(b, t->bytes);
}

static int token_attach(struct broker *b, void *object)
{
	struct token *read = object, *t = slab_at(&b->names->token_slab, read->index);
	struct account *account;
	bool is_charged;

	if (!is_token(b, read, t))
		return -EBADMSG;
	*t = *read;
	free(read);
	t->live = 1;
	if (MUTATION(token_is_lost))
		memset(t->bytes, 0, TOKEN_SIZE);
	account = account_get(b->accounts, t->was.uid);
	is_charged = account &&
		     charge_take_with(&t->charge, account, LIMIT_TOKENS, 1, own_of(t->ends_ms)) &&
		     metadata_charge(t->tensor, account);
	account_unref(account);
	if (!is_charged)
		return -ENOMEM;
	referrer_attach(t->buffer, &t->referrer, t->maker ? REFERRER_TOKEN : REFERRER_LEFT,
			t->charge.account);
	token_join(t);
	table_insert(&b->names->tokens, &t->key);
	return set_timer(b, t);
}

void tokens_end(struct broker *b)
{
	struct names *names = b->names;

	for (uint32_t i = 0; i < slab_end(&names->token_slab); i++) {
		struct token *t = slab_at(&names->token_slab, i);

		if (t && t->live)
			token_free(b, t, TOKEN_MAKER_GONE);
	}
}

static const struct object_kind token_kind =
    OBJECT_KIND(RECORD_TOKEN, "token", struct token, token_fields, token_attach);

void token_note(struct broker *b, struct token *t)
{
	object_put(b->journal, &token_kind, t);
}

int tokens_restore(struct broker *b)
{
	struct names *names = b->names;
	int r = generations_make_slots(&names->token_generations, b->journal, &names->token_slab);

	if (r == 0)
		r = objects_restore(b->journal, &token_kind, b);
	generations_free_slots(&names->token_slab);
	return r;
}
