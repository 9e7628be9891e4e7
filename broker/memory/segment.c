/* SPDX-License-Identifier: MIT */

/* What segments are, what they cost and where they lie, and which clients may have them. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include <share/share.h>

#include "base/mutation.h"
#include "base/system/process.h"
#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/device/agent.h"
#include "broker/device/device.h"
#include "broker/journal/journal.h"
#include "broker/keeper/kept.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/memory/segment.h"
#include "broker/socket/closer.h"
#include "wire/messages.h"

static const char *const state_names[] = {
    [SEGMENT_ACTIVE] = "active",
    [SEGMENT_RETIRING] = "retiring",
};

const char *segment_state_name(enum segment_state state)
{
	return state_names[state];
}

uint64_t segment_id(const struct segment *s)
{
	return (uint64_t)s->generation << 32 | s->index;
}

struct segment *segment_find(struct broker *b, uint64_t id)
{
	struct segment *s = slab_at(&b->memory->segments, (uint32_t)id);

	/* of a free slot only the prefix may be looked at */
	return s && s->in_use && s->generation == id >> 32 ? s : NULL;
}

const struct memory_kind *kind_of_segment(const struct segment *s)
{
	const struct memory_kind *kind = s->pool->choice.kind;

	if (kind->id != MEMORY_ADOPTED || !memory_recipe_on_device(&s->memory.recipe))
		return kind;
	return memory_kind_by_id(memory_recipe_has_handle(&s->memory.recipe) ? MEMORY_LEGACY
									     : MEMORY_VMM);
}

/* A segment that a client had already may end anywhere. */
uint64_t segment_region_size(const struct segment *s)
{
	return (s->memory.recipe.size + SUBALLOCATOR_UNIT - 1) / SUBALLOCATOR_UNIT *
	       SUBALLOCATOR_UNIT;
}

/* How many descriptors a segment has. Host memory has a second one, for readers. */
static uint32_t descriptors_of(const struct pool *pool, const struct memory_segment *brought)
{
	if (brought)
		return memory_recipe_on_device(&brought->recipe) ? 1 : 2;
	return pool->choice.device ? 1 : 2;
}

static int take_nobodys(struct pool *pool, struct segment_cost *out, struct failure *failure)
{
	struct broker *b = pool->broker;
	uint64_t used = accounts_nobodys(b->accounts, LIMIT_DESCRIPTORS);
	uint32_t n = descriptors_of(pool, NULL);

	if (used + n > b->n_descriptors / 2)
		return failure_set(
		    failure, SHARE_EQUOTA,
		    "pool '%s' needs another segment, but those of the configuration's pools have "
		    "%" PRIu64
		    " descriptors, half of the broker's: use larger segments, or raise "
		    "its RLIMIT_NOFILE",
		    pool->name, used);
	out->n_nobodys = n;
	accounts_add(b->accounts, LIMIT_DESCRIPTORS, n);
	return 0;
}

int segment_cost_take(struct pool *pool, struct account *account,
		      const struct memory_segment *brought, struct segment_cost *out,
		      struct failure *failure)
{
	uint64_t own = account ? PRICE_ADOPTED_OWN : 0;
	enum limit_kind lacks = LIMIT_SEGMENTS;
	char also[160];

	*out = (struct segment_cost){.n_nobodys = 0};
	if (!account)
		account = pool->charge.account;
	if (!account)
		return take_nobodys(pool, out, failure);
	if (charge_take_with(&out->segment, account, LIMIT_SEGMENTS, 1, own)) {
		if (charge_take(&out->descriptors, account, LIMIT_DESCRIPTORS,
				descriptors_of(pool, brought)))
			return 0;
		lacks = LIMIT_DESCRIPTORS;
		charge_return(&out->segment);
	}
	snprintf(also, sizeof(also),
		 "; its pool '%.64s' needs another segment: larger ones are fewer", pool->name);
	return account_refuse(account, lacks, also, failure);
}

void segment_return_descriptors(struct broker *b, struct segment_cost *cost)
{
	charge_return(&cost->descriptors);
	if (cost->n_nobodys == 0)
		return;
	accounts_subtract(b->accounts, LIMIT_DESCRIPTORS, cost->n_nobodys);
	cost->n_nobodys = 0;
}

void segment_cost_return(struct broker *b, struct segment_cost *cost)
{
	segment_return_descriptors(b, cost);
	charge_return(&cost->segment);
}

int segment_closing_new(struct broker *b, uid_t owner, struct closing *out[static 2])
{
	for (int i = 0; i < 2; i++)
		out[i] = closing_new_for(b->clients->closer, owner);
	if (out[0] && out[1])
		return 0;
	for (int i = 0; i < 2; i++) {
		closing_free(out[i]);
		out[i] = NULL;
	}
	return -ENOMEM;
}

int segment_new(struct broker *b, struct pool *pool, const struct memory_segment *memory,
		struct segment_cost *cost, struct segment **out)
{
	const int fds[] = {memory->fd, memory->fd_readonly};
	struct segment *s;

	if (kept_keep(fds, NULL, memory->fd_readonly < 0 ? 1 : 2) < 0)
		return -ENOMEM;
	s = slab_alloc(&b->memory->segments);
	if (!s)
		return -ENOMEM;
	s->memory = *memory;
	s->generation++;
	s->in_use = 1;
	s->index = slab_index(s);
	s->pool = pool;
	s->incarnation = pool->choice.device ? agent_incarnation(pool->choice.device->agent) : 0;
	s->state = SEGMENT_ACTIVE;
	segment_count_of_agent(s, 1);
	generation_note(&b->memory->generations, b->journal, s->index, s->generation);
	s->cost = *cost;
	*cost = (struct segment_cost){.n_nobodys = 0};
	*out = s;
	return 0;
}

void segment_count_of_agent(const struct segment *s, int change)
{
	if (kind_of_segment(s)->of_maker && s->pool->choice.device)
		s->pool->choice.device->n_of_agents += (uint32_t)change;
}

static void close_elsewhere(void *closing, int fd)
{
	closing_start_other(closing, fd);
}

/* Closes a descriptor, elsewhere if it may be the last one of a large file: the memory goes with
 * it, which takes a while. */
static void close_descriptor(struct closing **closing, int *fd)
{
	if (*fd >= 0 && *closing)
		kept_close_by(*fd, close_elsewhere, *closing);
	else
		kept_close(*fd);
	if (*fd < 0)
		closing_free(*closing);
	*closing = NULL;
	*fd = -1;
}

void segment_close_descriptors(struct segment *s)
{
	close_descriptor(&s->closing[0], &s->memory.fd);
	close_descriptor(&s->closing[1], &s->memory.fd_readonly);
}

/* Tells the agent that made a segment to destroy it. What an agent that has died had of a segment
 * is gone with it. */
static void tell_agent(struct segment *s)
{
	struct wire_message m = {.type = WIRE_AGENT_SEGMENT_DESTROY};
	struct agent *agent = s->pool->choice.device ? s->pool->choice.device->agent : NULL;

	if (!agent || !s->handle || s->incarnation != agent_incarnation(agent))
		return;
	m.agent_segment_destroy.handle = s->handle;
	agent_ask_to_destroy(agent, &m, "a segment");
}

void segment_free(struct broker *b, struct segment *s)
{
	segment_close_descriptors(s);
	if (!s->pool->choice.device)
		memory_host_exporter.destroy(&s->memory, NULL);
	journal_drop(b->journal, &s->record);
	segment_count_of_agent(s, -1);
	tell_agent(s);
	segment_cost_return(b, &s->cost);
	s->in_use = 0;
	/* a slot whose generations are used up is never used again */
	if (s->generation < UINT32_MAX)
		slab_free(&b->memory->segments, s);
}

/* An agent that the broker has let go of may take its time to end. */
static bool is_given_up(const struct segment *s)
{
	const struct device *d = s->pool->choice.device;

	return d ? s->incarnation != agent_incarnation(d->agent)
		 : s->incarnation == SEGMENT_GIVEN_UP;
}

/* A process that has ended may be one that the broker has yet to see end. */
bool segment_is_lost(const struct segment *s)
{
	return kind_of_segment(s)->of_maker && !MUTATION(lost_is_handed_out) &&
	       (is_given_up(s) || (s->memory.fd >= 0 && process_has_ended(s->memory.fd)));
}

int segment_descriptor(const struct segment *s, bool writable)
{
	return writable || s->memory.fd_readonly < 0 ? s->memory.fd : s->memory.fd_readonly;
}

const struct memory_recipe *segment_recipe(const struct segment *s, const struct client *client)
{
	static struct memory_recipe plain;

	if (s->pool->choice.device || pool_is_adopted(s->pool) ||
	    client->version >= WIRE_VERSION_HOST_PAGES)
		return &s->memory.recipe;
	plain = s->memory.recipe;
	plain.flags = 0;
	return &plain;
}

/* Whether the client's library knows the segment's kind. An older library would take a grant of an
 * unknown kind for the fault of a broken broker. */
static bool is_known_to(const struct segment *s, const struct client *client)
{
	const struct memory_kind *kind = kind_of_segment(s);

	return (kind->id != MEMORY_ADOPTED || client->version >= WIRE_VERSION_ADOPT) &&
	       (kind->id != MEMORY_LEGACY || client->version >= WIRE_VERSION_LEGACY) &&
	       (kind->id != MEMORY_PINNED || client->version >= WIRE_VERSION_PINNED);
}

/* Memory that its owner may make smaller is for the owner's own processes. Whoever touches what was
 * cut off dies of SIGBUS, and nobody is to be able to do that to another user. */
bool segment_is_for(const struct segment *s, const struct client *client)
{
	const struct account *owner = s->cost.segment.account;

	return is_known_to(s, client) && !segment_is_lost(s) &&
	       (!(s->memory.recipe.flags & MEMORY_MAY_SHRINK) ||
		(owner && account_uid(owner) == client->peer.uid));
}

int segment_refuse(const struct segment *s, const struct client *client, struct failure *failure)
{
	if (!is_known_to(s, client))
		return failure_set(failure, SHARE_ENOTSUP,
				   "pool '%s' is of kind %s, for which this program's library "
				   "is too old",
				   s->pool->name, kind_of_segment(s)->name);
	if (segment_is_lost(s) && pool_is_adopted(s->pool))
		return failure_set(failure, SHARE_EOWNERDEAD,
				   "the program that made this memory of pool '%s' has ended, or "
				   "has given it up: memory of cuMemAlloc() is gone with its maker",
				   s->pool->name);
	if (segment_is_lost(s))
		return failure_set(
		    failure, SHARE_EOWNERDEAD,
		    "the agent that made this memory of pool '%s' has ended, and memory "
		    "of kind %s is gone with its agent",
		    s->pool->name, kind_of_segment(s)->name);
	return failure_set(failure, SHARE_EACCES,
			   "this memory of pool '%s' is not sealed against becoming smaller "
			   "(F_SEAL_SHRINK), so only processes of the user who has adopted it may "
			   "have it",
			   s->pool->name);
}
