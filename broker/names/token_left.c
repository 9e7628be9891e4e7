/* SPDX-License-Identifier: MIT */

/*
 * Tokens whose makers are gone, and what is remembered of those that have ended.
 *
 * A token with a time limit is meant for somebody who comes later, so it outlives its maker's
 * connection and process: for an hour at most, and as long as the buffers that such tokens keep are
 * no more than an eighth of their pool. Beyond that the oldest ones end first. The token is its
 * user's as before, who pays for it. As nobody's connection stands for that user any more, whether
 * the user may still use the pool is looked at when somebody comes for the buffer.
 */

#include <string.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/client/client.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/names/inside.h"
#include "broker/names/names.h"

#define HOUR_MS UINT64_C(3600000)
#define PART    8 /* such tokens keep one part in so many of a pool */

/* ------------------------------------------------------------------------------------------- */
/* The right of the token's user */

static bool user_may(const struct token *t, const gid_t *group)
{
	const struct pool *p = buffer_pool(t->buffer);
	const struct access_object object = pool_object(p);
	const struct access_who who = {t->was.uid, group, group ? 1 : 0};

	return access_may(&p->broker->config->rights, &who, access_right_of(t->mode), &object);
}

/* Finds by what the user may use the pool: by itself, or as a member of one of its groups. */
static bool find_group(struct token *t)
{
	const struct peer *peer = &t->maker->peer;

	t->was.group = NO_GROUP;
	if (user_may(t, NULL))
		return true;
	for (size_t i = 0; i < peer->n_groups; i++) {
		t->was.group = peer->groups[i];
		if (user_may(t, &peer->groups[i]))
			return true;
	}
	return false;
}

bool token_right_is_lost(const struct token *t)
{
	gid_t group = t->was.group;

	return !t->maker && !user_may(t, group == NO_GROUP ? NULL : &group) &&
	       !MUTATION(right_not_looked_at);
}

/* ------------------------------------------------------------------------------------------- */
/* When the maker goes                                                                         */

static uint64_t room_in(const struct pool *p)
{
	uint64_t most = p->sizes.limit / PART, kept = p->use.referred[REFERRER_LEFT];

	return kept < most ? most - kept : 0;
}

/* Returns the token that has to end next so that this one has room, which may be this one itself.
 * NULL: there is room. */
static struct token *in_the_way(struct token *t)
{
	struct pool *p = buffer_pool(t->buffer);
	uint64_t more = referrer_bytes(t->buffer, REFERRER_LEFT);

	if (more > p->sizes.limit / PART)
		return t;
	if (more <= room_in(p) || MUTATION(left_without_limit))
		return NULL;
	return TAILQ_FIRST(&p->use.left);
}

/* Has the token outlive its maker. False: it ends with its maker. */
static bool outlive(struct broker *b, struct token *t)
{
	const struct token *last = TAILQ_LAST(&buffer_pool(t->buffer)->use.left, tokens_left);
	uint64_t now = clock_ms();

	t->was.label = strdup(t->maker->label);
	if (!t->was.label ||
	    !token_limit(b, t, t->ends_ms < now + HOUR_MS ? t->ends_ms : now + HOUR_MS))
		return false;
	/* the next broker restores them in the order of these times */
	t->was.gone_ms = last && last->was.gone_ms >= now ? last->was.gone_ms + 1 : now;
	token_detach(t);
	buffer_ref(t->buffer);
	referrer_detach(b, t->buffer, &t->referrer);
	referrer_attach(t->buffer, &t->referrer, REFERRER_LEFT, t->charge.account);
	buffer_unref(b, t->buffer);
	token_join(t);
	if (!MUTATION(left_not_noted))
		token_note(b, t);
	return true;
}

void token_lose_maker(struct broker *b, struct token *t)
{
	bool may_stay = t->ends_ms > 0 && !t->maker->end.forfeits && !b->has_ended && find_group(t);
	struct token *next = may_stay ? in_the_way(t) : t;

	if (next && next != t)
		token_free(b, next, TOKEN_CROWDED_OUT);
	else if (next || !outlive(b, t))
		token_free(b, t,
			   t->maker->end.forfeits ? TOKEN_MAKER_DROPPED
			   : may_stay             ? TOKEN_CROWDED_OUT
						  : TOKEN_MAKER_GONE);
}

/* ------------------------------------------------------------------------------------------- */
/* Tokens that have ended */

static struct pool *pool_of(struct broker *b, const struct ended_token *e)
{
	struct pool *p;

	LIST_FOREACH (p, &b->memory->pools, link)
		if (p->id == e->pool)
			return p;
	return NULL;
}

/* Whether this client may know that there was such a token. */
static bool may_know(const struct client *client, const struct ended_token *e)
{
	const struct pool *p = pool_of(client->broker, e);

	return client_answers_for(client, e->uid) || (p && pool_may(p, client, RIGHT_READ));
}

const char *token_how_it_ended(const struct client *client, const unsigned char *bytes)
{
	static const char *const texts[] = {
	    [TOKEN_USED_UP] = "it was used up, as it was for so many imports and no more",
	    [TOKEN_TIMED_OUT] = "its time limit has passed",
	    [TOKEN_REVOKED] = "it was revoked",
	    [TOKEN_MAKER_GONE] = "its maker is gone, and it had no time limit to outlive that with",
	    [TOKEN_MAKER_DROPPED] =
		"its maker was disconnected by an administrator or for breaking "
		"the protocol",
	    [TOKEN_CROWDED_OUT] =
		"its maker is gone, and tokens without makers keep at most an "
		"eighth of a pool",
	    [TOKEN_RIGHT_LOST] = "its maker is gone, whose user may not use its pool any more",
	};
	const struct names *names = client->broker->names;

	for (size_t i = 0; i < ENDED_TOKENS && i < names->n_ended; i++) {
		const struct ended_token *e = &names->ended[i];

		if (memcmp(e->bytes, bytes, sizeof(e->bytes)) == 0 && may_know(client, e))
			return texts[e->how];
	}
	return NULL;
}
