/* SPDX-License-Identifier: MIT */

/*
 * Channels are found by name, made by whoever comes first, and gone with their last member. Members
 * are told only that somebody has come or gone, by one number in a page that all of them map, and
 * by a wake-up for those who sleep. They ask who, when they are ready for the answer.
 */

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <share/channel.h>

#include "broker/broker.h"
#include "broker/channel/member.h"
#include "broker/client/client.h"
#include "broker/journal/journal.h"
#include "broker/keeper/kept.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/pools/pools.h"
#include "pages/page.h"

struct key {
	const void *name;
	size_t size;
};

/* FNV-1a */
static uint64_t hash_name(const void *name, size_t size)
{
	const unsigned char *p = name;
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
	return table_mix(hash);
}

static uint64_t hash(const struct table_link *link)
{
	const struct channel *ch = (const struct channel *)(const void *)link;

	return hash_name(ch->name, ch->size);
}

static bool match(const struct table_link *link, const void *key)
{
	const struct channel *ch = (const struct channel *)(const void *)link;
	const struct key *k = key;

	return ch->size == k->size && memcmp(ch->name, k->name, k->size) == 0;
}

void channels_init(struct broker *b)
{
	table_init(&b->channels->by_name, hash);
	TAILQ_INIT(&b->channels->list);
	TAILQ_INIT(&b->channels->closing);
	TAILQ_INIT(&b->channels->leaving);
	TAILQ_INIT(&b->channels->claims);
}

void channels_deinit(struct broker *b)
{
	table_deinit(&b->channels->by_name);
	broker_free_event(b->channels->work);
}

const struct channel *channels_next(const struct broker *b, const struct channel *ch)
{
	return ch ? TAILQ_NEXT(ch, link) : TAILQ_FIRST(&b->channels->list);
}

uint64_t channel_id(const struct channel *ch)
{
	return ch->id;
}

struct channel *channel_find(struct broker *b, const void *name, size_t size)
{
	const struct key key = {name, size};

	return (struct channel *)(void *)table_find(&b->channels->by_name, hash_name(name, size),
						    match, &key);
}

struct access_object channel_object(const struct channel *ch, struct access_object *pool)
{
	*pool = pool_object(ch->pool);
	return (struct access_object){
	    .kind = OBJECT_CHANNEL, .name = ch->name, .size = ch->size, .pool = pool};
}

bool channel_may(const struct channel *ch, const struct client *client, enum access_right right)
{
	struct access_object pool;
	const struct access_object what = channel_object(ch, &pool);

	return client_may(client, right, &what);
}

void channel_free(struct channel *ch)
{
	page_unmap(ch->control, CHANNEL_CONTROL_SIZE);
	kept_close(ch->control_fd);
	free(ch);
}

void channel_attach(struct broker *b, struct channel *ch, struct pool *pool)
{
	ch->broker = b;
	ch->pool = pool;
	pool->use.opens++;
	TAILQ_INIT(&ch->members);
	TAILQ_INIT(&ch->orphans.producers);
	table_insert(&b->channels->by_name, &ch->key);
	TAILQ_INSERT_TAIL(&b->channels->list, ch, link);
}

void channel_end_if_unused(struct channel *ch)
{
	struct broker *b = ch->broker;
	struct pool *pool = ch->pool;

	if (!TAILQ_EMPTY(&ch->members))
		return;
	table_remove(&b->channels->by_name, &ch->key);
	TAILQ_REMOVE(&b->channels->list, ch, link);
	journal_drop(b->journal, &ch->record);
	channel_free(ch);
	pool->use.opens--;
	pool_end_if_unused(b, pool);
}

uint32_t channel_count(const struct channel *ch, uint32_t role)
{
	const struct member *m;
	uint32_t n = 0;

	TAILQ_FOREACH (m, &ch->members, of_channel)
		n += m->role == role && m->state != MEMBER_GONE;
	return n;
}

void channel_changed(struct channel *ch, uint32_t role)
{
	const struct member *m;

	atomic_fetch_add(&ch->control->epoch, 1);
	syscall(SYS_futex, &ch->control->epoch, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	/* one that is LEFT may have been expelled, and is to hear of that */
	TAILQ_FOREACH (m, &ch->members, of_channel)
		if (m->role != role && (m->state == MEMBER_HERE || m->state == MEMBER_LEFT))
			doorbell_ring(m->doorbell);
}

void channels_work_soon(struct broker *b)
{
	broker_set_timer(b, b->channels->work, 0);
}
