/* SPDX-License-Identifier: MIT */

/* Names, tokens and watches as a whole: of the broker, and of a client. */

#include "broker/names/names.h"

#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/journal/object.h"
#include "broker/names/inside.h"
#include "broker/names/name.h"
#include "broker/names/watch.h"

void names_init(struct broker *b)
{
	TAILQ_INIT(&b->names->watches);
	tokens_init(b->names);
}

void names_end(struct broker *b)
{
	struct name *n;

	while ((n = name_next(b, "", 0, true)))
		name_unpublish(b, n);
	tokens_end(b);
}

void names_deinit(struct broker *b)
{
	if (b->names->n || b->names->tokens.count)
		log_bug("names or tokens outlive the broker");
	table_deinit(&b->names->tokens);
	slab_deinit(&b->names->token_slab);
	generations_deinit(&b->names->token_generations);
}

int names_restore(struct broker *b)
{
	int r = objects_restore(b->journal, &name_kind, b);

	if (r == 0)
		r = tokens_restore(b);
	if (r == 0)
		r = objects_restore(b->journal, &watch_kind, b);
	return r;
}

void names_restored(struct broker *b)
{
	for (uint32_t i = 0; i < b->clients->n_slots; i++)
		if (b->clients->by_slot[i])
			client_hear_of_changes(b->clients->by_slot[i]);
}

bool client_unpublish(struct client *c, int *budget)
{
	for (; *budget > 0; --*budget) {
		if (LIST_EMPTY(&c->names->published))
			return true;
		name_unpublish(c->broker, LIST_FIRST(&c->names->published));
	}
	return false;
}

bool client_revoke_tokens(struct client *c, int *budget)
{
	for (; *budget > 0; --*budget) {
		if (TAILQ_EMPTY(&c->names->tokens))
			return true;
		token_lose_maker(c->broker, TAILQ_FIRST(&c->names->tokens));
	}
	return false;
}

bool client_drop_watches(struct client *c, int *budget)
{
	for (; *budget > 0; --*budget) {
		if (LIST_EMPTY(&c->names->watches))
			return true;
		watch_free(c->broker, LIST_FIRST(&c->names->watches));
	}
	return false;
}
