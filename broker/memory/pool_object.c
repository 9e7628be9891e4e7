/* SPDX-License-Identifier: MIT */

/*
 * A pool as an object: how it is found, what it is called, and who may do what with it.
 */

#include <stdio.h>
#include <string.h>

#include <event2/event.h>
#include <share/share.h>

#include "base/mutation.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/config/machine.h"
#include "broker/device/device.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool_object.h"
#include "broker/monitor/monitor.h"
#include "broker/reply/request.h"

uint64_t pool_chosen_limit(const struct pool *p, uint64_t limit)
{
	uint64_t most;

	if (limit == UINT64_MAX)
		limit = pool_config_highest_limit(p->sizes.segment_size);
	if (!p->choice.device)
		return limit;
	/* a limit that was left to the default was made with memory in mind that can be swapped */
	most = p->choice.kind->of_host && !MUTATION(limit_of_the_device) ? machine_share()
									 : p->choice.device->total;
	return limit > most ? most : limit;
}

uint64_t pool_chosen_segment_size(const struct pool *p, uint64_t size)
{
	return (size + p->sizes.granularity - 1) / p->sizes.granularity * p->sizes.granularity;
}

struct pool *pool_find(struct broker *b, const void *name, size_t size)
{
	struct pool *p;

	LIST_FOREACH (p, &b->memory->pools, link)
		if (!p->destroyed && strlen(p->name) == size && memcmp(p->name, name, size) == 0)
			return p;
	return NULL;
}

bool pool_wants_host(const struct pool *p)
{
	const struct memory_kind *kind = memory_kind_by_name(p->wish.kind, strlen(p->wish.kind));

	return kind && !kind->on_device;
}

const char *pool_kind_name(const struct pool *p)
{
	return p->choice.kind ? p->choice.kind->name : p->wish.kind;
}

const char *pool_device_name(const struct pool *p)
{
	return p->choice.device ? p->choice.device->uuid : NULL;
}

bool pool_is_adopted(const struct pool *p)
{
	return p->choice.kind && p->choice.kind->id == MEMORY_ADOPTED;
}

struct access_object pool_object(const struct pool *p)
{
	return (struct access_object){
	    .kind = OBJECT_POOL,
	    .name = p->name,
	    .size = strlen(p->name),
	    .is_owned = true,
	    .owner = p->owner,
	    .access = &p->access,
	};
}

bool pool_may(const struct pool *p, const struct client *client, enum access_right right)
{
	const struct access_object object = pool_object(p);

	return client_may(client, right, &object);
}

/* The library puts the user's name to the number at the beginning of the sentence. */
int pool_refuse(const struct pool *p, const struct client *client, enum access_right right,
		struct failure *failure)
{
	const struct peer *peer = &client->peer;
	unsigned uid = peer->uid;
	bool reads = pool_may(p, client, RIGHT_READ);
	const char *mode = right == RIGHT_MANAGE  ? "\"manage\""
			   : right == RIGHT_WRITE ? "\"rw\""
						  : "\"ro\" or \"rw\"";
	const char *what = !reads ? "use" : right == RIGHT_WRITE ? "only read in" : "not destroy";
	char who[96] = "in the broker's configuration";

	if (!reads && access_check(&p->access, peer->uid, peer->groups, peer->n_groups)) {
		return failure_set(
		    failure, SHARE_EACCES,
		    "user %u may not use pool '%s', as its name is not among those that this "
		    "user may use (\"names\" in the broker's configuration)",
		    uid, p->name);
	}
	/* a pool that the configuration has made is charged to nobody */
	if (p->charge.account)
		snprintf(who, sizeof(who),
			 "which user %u gives in share_pool_options.access when creating it",
			 (unsigned)p->owner);
	return failure_set(
	    failure, SHARE_EACCES,
	    "user %u may %s%s pool '%s': that takes an entry {\"user\": %u, \"mode\": %s} in the "
	    "pool's \"access\", %s",
	    uid, reads ? "" : "not ", what, p->name, uid, mode, who);
}

bool request_fail_pool(struct request *r, const struct pool *p, enum access_right right)
{
	struct failure failure;

	pool_refuse(p, r->client, right, &failure);
	return request_fail_with(r, &failure);
}

bool request_pool_right(struct request *r, const struct pool *p, enum access_right right)
{
	return pool_may(p, r->client, right) || request_fail_pool(r, p, right);
}

void pool_tell(const struct pool *p, const char *action)
{
	const struct access_object what = pool_object(p);

	if (monitors_any(p->broker))
		monitors_tell(p->broker, &(struct notice){.action = action,
							  .what = &what,
							  .uid = p->owner,
							  .size = p->sizes.limit,
							  .detail = pool_kind_name(p)});
}

void pool_count_used(struct pool_extent *extent, const struct block *block)
{
	extent->n_buffers++;
	extent->used += block_size(block);
	if (extent->used > extent->most_used)
		extent->most_used = extent->used;
}

void pool_wake(const struct pool_waiting *waiting)
{
	if (!TAILQ_EMPTY(&waiting->requests))
		event_active(waiting->timer, EV_TIMEOUT, 0);
}
