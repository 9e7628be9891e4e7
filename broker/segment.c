/* SPDX-License-Identifier: MIT */

/*
 * Segments: created by their kind, handed to clients, and returned when empty. The order matters
 * at the end: no new buffers, memory back to the system, clients asked to unmap, and only when the
 * last has said so (or died) the segment goes. A client that never answers keeps a mapping of
 * nothing.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "broker/client.h"
#include "broker/log.h"
#include "broker/pool.h"
#include "broker/segment.h"

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
	struct segment *s = slab_at(&b->segments, (uint32_t)id);

	/* of a free slot only what is kept may be looked at */
	return s && s->in_use && s->generation == id >> 32 ? s : NULL;
}

int segment_new(struct broker *b, struct pool *pool, uint64_t size, struct segment **out)
{
	struct segment *s;
	uint32_t index;
	int r;

	s = slab_alloc_indexed(&b->segments, &index);
	if (!s)
		return -ENOMEM;
	r = pool->kind->create(&s->memory, size);
	if (r < 0) {
		slab_free_index(&b->segments, index);
		return r;
	}
	s->generation++;
	s->in_use = 1;
	s->index = index;
	s->pool = pool;
	s->state = SEGMENT_ACTIVE;
	b->n_active_segments++;
	*out = s;
	return 0;
}

void segment_free(struct broker *b, struct segment *s)
{
	s->pool->kind->destroy(&s->memory);
	b->n_active_segments -= s->state == SEGMENT_ACTIVE;
	s->in_use = 0;
	/* a slot whose generations are used up is never used again */
	if (s->generation < UINT32_MAX)
		slab_free_index(&b->segments, s->index);
}

static void set_state(struct segment *s, enum segment_state state)
{
	log_debug("segment %llx of pool '%s': %s -> %s", (unsigned long long)segment_id(s),
		  s->pool->name, state_names[s->state], state_names[state]);
	s->state = state;
}

int segment_offer(struct segment *s, struct client *client, bool writable, int *borrowed)
{
	uint8_t *has = client_possession(client, s->index);

	if (!has)
		return -ENOMEM;
	if (*has & (writable ? SEGMENT_WRITABLE : SEGMENT_READABLE))
		*borrowed = -1;
	else
		*borrowed = writable ? s->memory.fd : s->memory.fd_readonly;
	return 0;
}

void segment_sent(struct segment *s, struct client *client, bool writable)
{
	uint8_t *has = client_possession(client, s->index);

	if (!(*has & (SEGMENT_READABLE | SEGMENT_WRITABLE)))
		s->importers++;
	*has |= writable ? SEGMENT_WRITABLE : SEGMENT_READABLE;
}

static void destroy_if_unused(struct broker *b, struct segment *s)
{
	if (s->state != SEGMENT_RETIRING || s->importers > 0 || s->asked > 0)
		return;
	pool_remove_segment(s->pool, s);
	segment_free(b, s);
}

void segment_retire(struct broker *b, struct segment *s)
{
	int r;

	set_state(s, SEGMENT_RETIRING);
	/* both at once: clients that take their time to unmap keep neither memory nor descriptors
	 */
	r = s->pool->kind->discard(&s->memory);
	b->n_active_segments--;
	if (r < 0)
		log_warning("cannot give the memory of a segment of pool '%s' back: %s",
			    s->pool->name, strerror(-r));
	for (uint32_t i = 0; s->importers > 0 && i < b->n_client_slots; i++) {
		struct client *c = b->clients[i];
		uint8_t *has = c && s->index < c->n_segments ? &c->segments[s->index] : NULL;

		if (!has || !(*has & (SEGMENT_READABLE | SEGMENT_WRITABLE)))
			continue;
		/* from now on it does not have it: a later segment in this slot is another one */
		*has = SEGMENT_ASKED;
		s->importers--;
		s->asked++;
		c->n_asked++;
		client_ask_to_unmap(c, segment_id(s));
	}
	destroy_if_unused(b, s);
}

bool segment_retired(struct broker *b, struct segment *s, struct client *client)
{
	uint8_t *has = client_possession(client, s->index);
	struct pool *pool = s->pool;

	if (!has || !(*has & SEGMENT_ASKED))
		return false;
	*has &= (uint8_t)~SEGMENT_ASKED;
	s->asked--;
	client->n_asked--;
	client->n_overdue = 0;
	destroy_if_unused(b, s);
	pool_end_if_unused(b, pool);
	return true;
}

void segment_forget_client(struct broker *b, struct segment *s, struct client *client)
{
	uint8_t *has = client_possession(client, s->index);
	struct pool *pool = s->pool;

	if (!has || !*has)
		return;
	if (*has & (SEGMENT_READABLE | SEGMENT_WRITABLE))
		s->importers--;
	if (*has & SEGMENT_ASKED)
		s->asked--;
	*has = 0;
	destroy_if_unused(b, s);
	pool_end_if_unused(b, pool);
}
