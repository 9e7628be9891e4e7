/* SPDX-License-Identifier: MIT */

/*
 * How memory goes: blocks come back, segments that are empty are returned, and a pool ends that
 * nobody uses any more. The order matters at the end of a segment: there are no new buffers; host
 * memory goes back to the system, but not what a client had before, which is still its own; clients
 * are asked to unmap; and only when the last has said that it did, or has died, the segment goes. A
 * client that never answers keeps a mapping of nothing or, of a device's memory, of what nobody can
 * take from it.
 */

#include <stdlib.h>
#include <string.h>

#include <event2/event.h>
#include <share/share.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "base/system/process.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/conversation.h"
#include "broker/journal/journal.h"
#include "broker/log/log.h"
#include "broker/memory/client_memory.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool_object.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/prefault.h"
#include "broker/memory/records.h"
#include "broker/memory/segment_cost.h"
#include "broker/pools/inside.h"
#include "broker/pools/pool_records.h"
#include "broker/pools/pools.h"
#include "broker/pools/reuse.h"
#include "memory/host_pages.h"

/* Whether a segment is empty. Nobody's stream is at work in it then either, as blocks on which work
 * runs are in use. */
static bool is_returnable(const struct segment *s)
{
	return s->state == SEGMENT_ACTIVE && region_is_empty(&s->region);
}

static uint64_t empty_bytes(const struct pool *p)
{
	const struct segment *s;
	uint64_t bytes = 0;

	LIST_FOREACH (s, &p->extent.segments, link)
		if (is_returnable(s) && !s->region.held)
			bytes += s->memory.recipe.size;
	return bytes;
}

static void remove_segment(struct pool *p, struct segment *s)
{
	suballocator_unhold_region(&p->suballocator, &s->region);
	suballocator_remove_region(&p->suballocator, &s->region);
	LIST_REMOVE(s, link);
	p->extent.n_segments--;
	if (!kind_of_segment(s)->on_device)
		return;
	p->extent.retiring -= s->memory.recipe.size;
	p->extent.reserved -= s->memory.recipe.size;
	/* this is done from the loop, as whoever lets the segment go may be walking through the
	 * pool */
	pool_wake(&p->waiting);
}

static void destroy_if_unused(struct broker *b, struct segment *s)
{
	if (s->state != SEGMENT_RETIRING || s->importers > 0 || s->unmapping > 0)
		return;
	remove_segment(s->pool, s);
	segment_free(b, s);
}

static void retire(struct broker *b, struct pool *p, struct segment *s)
{
	const struct wire_message m = {.type = WIRE_SEGMENT_RETIRE,
				       .segment_retire = {.segment = segment_id(s)}};
	int r = 0;

	if (!s->region.held)
		suballocator_hold_region(&p->suballocator, &s->region);
	if (kind_of_segment(s)->on_device)
		p->extent.retiring += s->memory.recipe.size;
	else
		p->extent.reserved -= s->memory.recipe.size;
	log_debug("segment %llx of pool '%s': %s -> %s", (unsigned long long)segment_id(s), p->name,
		  segment_state_name(s->state), segment_state_name(SEGMENT_RETIRING));
	s->state = SEGMENT_RETIRING;
	/* The memory and the descriptors go at once, so clients that take their time to unmap keep
	 * neither. What clients map of a device's memory is theirs until they let go; and so is all
	 * that they map when the broker ends. */
	prefault_stop(b, s);
	if (p->choice.kind->id == MEMORY_HOST && !b->has_ended)
		r = memory_host_discard(&s->memory);
	segment_close_descriptors(s);
	segment_return_descriptors(b, &s->cost);
	if (r < 0)
		log_warning("cannot give the memory of a segment of pool '%s' back: %s", p->name,
			    strerror(-r));
	for (uint32_t i = 0; s->importers > 0 && i < b->clients->n_slots; i++) {
		struct client *c = b->clients->by_slot[i];
		struct possession *has = c ? client_possession(c, s->index) : NULL;

		if (!has || !(has->what & (SEGMENT_READABLE | SEGMENT_WRITABLE)))
			continue;
		/* from now on the client does not have it: a later segment in this slot is another
		 * one */
		has->what = SEGMENT_UNMAPPING;
		s->importers--;
		s->unmapping++;
		c->memory->n_unmapping++;
		possession_note(c, s->index);
		client_send(c, &m, NULL, 0);
	}
	segment_note(b, s);
	if (s->unmapping > 0 && kind_of_segment(s)->on_device)
		b->memory->on_segment_retired(b, s);
	destroy_if_unused(b, s);
}

void pool_shrink(struct broker *b, struct pool *p, uint64_t keep)
{
	uint64_t bytes = empty_bytes(p);
	struct segment *s, *next;

	for (s = LIST_FIRST(&p->extent.segments); s; s = next) {
		bool is_withdrawn = s->region.held;

		next = LIST_NEXT(s, link);
		if (is_returnable(s) && (is_withdrawn || bytes > keep)) {
			bytes -= is_withdrawn ? 0 : s->memory.recipe.size;
			retire(b, p, s);
		}
	}
}

int pool_carve(struct pool *p, struct allocation *a)
{
	int r;

	while ((r = suballocator_alloc(&p->suballocator, a->size, a->alignment, &a->block)) == 0 &&
	       segment_is_lost(segment_of(a->block))) {
		struct segment *s = segment_of(a->block);

		suballocator_free(&p->suballocator, a->block);
		a->block = NULL;
		suballocator_withdraw_region(&p->suballocator, &s->region);
		if (is_returnable(s))
			retire(p->broker, p, s);
	}
	return r == SUBALLOCATOR_FULL ? POOL_FULL : r;
}

/* ------------------------------------------------------------------------------------------- */

void pool_return_segments(struct broker *b, struct pool *p)
{
	uint64_t keep = p->sizes.release_threshold;

	if (keep < p->sizes.prefault)
		keep = p->sizes.prefault;
	/* a pool above its limit, which was lowered, keeps nothing; nor does it keep what is its
	 * owner's */
	if (p->extent.reserved > p->sizes.limit || pool_is_adopted(p))
		keep = 0;
	pool_shrink(b, p, keep);
	pool_end_if_unused(b, p);
}

void pool_free_block(struct broker *b, struct pool *p, struct block *block, struct fence_set *gate,
		     struct charge *charge)
{
	struct region *region = block->region;

	p->extent.used -= block_size(block);
	p->extent.n_buffers--;
	reuse_release(b, p, block, gate, charge);
	if (region_is_empty(region))
		pool_return_segments(b, p);
}

void pool_end_if_unused(struct broker *b, struct pool *p)
{
	/* whoever waits in the pool has it open; a segment that is being made for it comes back to
	 * it */
	if (p->persistent || p->extent.n_buffers > 0 || p->growth.is_under_way ||
	    (p->use.opens > 0 && !p->destroyed))
		return;
	if (!p->destroyed) {
		p->destroyed = true;
		pool_note(p);
	}
	/* the rest follows when the pool is looked at again */
	reuse_collect(b, p, COLLECT_FEW);
	pool_shrink(b, p, 0);
	if (p->extent.n_segments > 0 || p->use.opens > 0)
		return;
	deferred_fail(&p->waiting.requests, SHARE_ENOENT, "the pool was closed meanwhile");
	if (!b->has_ended)
		log_info_of(p->owner, "pool '%s' has ended", p->name);
	pool_tell(p, "pool-end");
	if (!LIST_EMPTY(&p->use.users))
		log_bug("pool '%s' ends with something of a user's", p->name);
	journal_drop(b->journal, &p->record);
	LIST_REMOVE(p, link);
	event_free(p->waiting.timer);
	suballocator_deinit(&p->suballocator);
	access_list_deinit(&p->access);
	charge_return(&p->charge);
	free(p->wish.device);
	free(p->name);
	free(p);
}

bool pool_look_again(struct broker *b, struct pool *p, uint32_t limit)
{
	bool any = reuse_collect(b, p, limit);

	if (any)
		pool_wake(&p->waiting);
	if (p->gated.n > 0)
		memory_look_again(b);
	pool_return_segments(b, p);
	return any;
}

bool segment_retired(struct broker *b, struct segment *s, struct client *client)
{
	struct possession *has = client_possession(client, s->index);
	struct pool *pool = s->pool;

	if (!has || !(has->what & SEGMENT_UNMAPPING))
		return false;
	has->what &= (uint8_t)~SEGMENT_UNMAPPING;
	s->unmapping--;
	client->memory->n_unmapping--;
	client->memory->n_overdue = 0;
	possession_note(client, s->index);
	destroy_if_unused(b, s);
	pool_end_if_unused(b, pool);
	return true;
}

/* Whether another connection of that process has the segment. */
static bool has_other(struct broker *b, const struct segment *s, const struct client *gone)
{
	for (uint32_t i = 0; i < b->clients->n_slots; i++) {
		struct client *c = b->clients->by_slot[i];
		const struct possession *has;

		if (!c || c == gone || !c->connection || c->peer.pid != gone->peer.pid)
			continue;
		has = client_possession(c, s->index);
		if (has && has->what & (SEGMENT_READABLE | SEGMENT_WRITABLE))
			return true;
	}
	return false;
}

/* What a program had adopted may be freed when it hears no more who has it: see
 * share_alloc_options.done. Its end tells the rest. */
void segment_give_up(struct broker *b, struct segment *s, struct client *client)
{
	if (s->pool->choice.device || !kind_of_segment(s)->of_maker || s->state != SEGMENT_ACTIVE ||
	    client->peer.pid != process_pid(s->memory.fd) || has_other(b, s, client) ||
	    MUTATION(given_up_is_kept))
		return;
	s->incarnation = SEGMENT_GIVEN_UP;
	segment_note(b, s);
}

void segment_forget_client(struct broker *b, struct segment *s, struct client *client)
{
	struct possession *has = client_possession(client, s->index);
	struct pool *pool = s->pool;

	if (has->what & (SEGMENT_READABLE | SEGMENT_WRITABLE))
		s->importers--;
	if (has->what & SEGMENT_UNMAPPING)
		s->unmapping--;
	has->what = 0;
	possession_note(client, s->index);
	segment_give_up(b, s, client);
	destroy_if_unused(b, s);
	pool_end_if_unused(b, pool);
}

/* ------------------------------------------------------------------------------------------- */

void pool_on_timer(evutil_socket_t fd, short what, void *data)
{
	struct pool *p = data;
	struct broker *b = p->broker;

	(void)fd, (void)what;
	deferred_wake(b, &p->waiting.requests);
	pool_end_if_unused(b, p);
}

void pool_wait(struct pool *p, uint64_t at_most_ms)
{
	struct pool_waiting *waiting = &p->waiting;
	uint64_t at_ms = clock_ms() + at_most_ms;

	if (!event_pending(waiting->timer, EV_TIMEOUT, NULL) || at_ms < waiting->at_ms) {
		broker_set_timer(p->broker, waiting->timer, at_most_ms);
		waiting->at_ms = at_ms;
	}
	if (p->gated.n > 0)
		memory_look_soon(p->broker);
}

static void stay(struct pool *p, bool persistent)
{
	p->persistent = persistent;
	p->flags &= ~(uint32_t)SHARE_POOL_PERSISTENT;
	p->flags |= persistent ? SHARE_POOL_PERSISTENT : 0;
}

void pool_change(struct broker *b, struct pool *p, const struct pool_config *config,
		 struct access_list *access)
{
	access_list_deinit(&p->access);
	p->access = *access;
	*access = (struct access_list){0};
	p->sizes.limit = pool_chosen_limit(p, config->limit);
	p->sizes.release_threshold = config->release_threshold;
	stay(p, true);
	pool_note(p);
	pool_return_segments(b, p);
	pool_wake(&p->waiting);
}

void pool_leave(struct broker *b, struct pool *p)
{
	stay(p, false);
	pool_note(p);
	pool_end_if_unused(b, p);
}

void pool_destroy(struct broker *b, struct pool *p)
{
	p->destroyed = true;
	p->persistent = false;
	pool_note(p);
	pool_tell(p, "pool-destroy");
	pool_end_if_unused(b, p);
}
