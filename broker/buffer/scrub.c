/* SPDX-License-Identifier: MIT */

/*
 * Scrubbing. Host memory is zeroed here, by giving its pages back to the system. A device's memory
 * is zeroed by the device's agent, which takes its time; the request waits for it. An agent that
 * fails, or dies of it, may have left the device writing zeros: until that process has ended the
 * block is nobody's.
 *
 * This file knows where the memory is; reuse.h says whether it has to be zeroed.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/share.h>

#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/lease.h"
#include "broker/buffer/records.h"
#include "broker/buffer/scrub.h"
#include "broker/client/client.h"
#include "broker/device/agent.h"
#include "broker/device/device.h"
#include "broker/journal/journal.h"
#include "broker/journal/object.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/prefault.h"
#include "broker/memory/segment.h"
#include "broker/memory/writer.h"
#include "broker/pools/pool_records.h"
#include "broker/pools/pools.h"
#include "broker/reply/request.h"

struct scrub {
	LIST_ENTRY(scrub) link;
	LIST_ENTRY(scrub) of_client;
	struct broker *broker;
	struct client *client; /* NULL: it is gone, or has its answer */
	struct buffer *buffer; /* with a reference that is the scrub's */
	struct charge charge;
	struct timed_request request;
	pid_t writer;  /* an agent that failed at it; 0: the agent is still at work */
	bool is_dying; /* nobody waits for it, and its block is nobody's until it is over */
	uint32_t record;
};

bool scrub_is_needed(const struct request *r, const struct buffer *buffer)
{
	return buffer_pool(buffer)->reuse == SHARE_REUSE_SCRUB &&
	       block_is_of_others(buffer->block, r->client->peer.uid);
}

static int scrub_here(struct buffer *buffer, struct failure *failure)
{
	struct segment *s = buffer_segment(buffer);
	int r;

	r = memory_host_zero(&s->memory, block_offset(buffer->block), block_size(buffer->block));
	prefault_spoil(s->pool->broker, s);
	if (r < 0) {
		return failure_set(failure, SHARE_ESYSTEM,
				   "pool '%s': what another user left cannot be zeroed: %s",
				   s->pool->name, strerror(-r));
	}
	buffer->block->tag = 0;
	buffer_note(buffer);
	return 0;
}

static void scrub_note(struct scrub *s)
{
	object_put(s->broker->journal, &scrub_kind, s);
}

void scrubs_note(struct broker *b)
{
	struct scrub *s;

	LIST_FOREACH (s, &b->buffers->scrubs, link)
		scrub_note(s);
}

static void begin_to_die(struct scrub *s)
{
	if (!s->is_dying)
		buffer_pool(s->buffer)->extent.dying += block_size(s->buffer->block);
	s->is_dying = true;
}

static void abandon(struct scrub *s)
{
	LIST_REMOVE(s, of_client);
	charge_return(&s->charge);
	s->client = NULL;
}

static void scrub_free(struct scrub *s)
{
	if (s->client)
		abandon(s);
	if (s->is_dying)
		buffer_pool(s->buffer)->extent.dying -= block_size(s->buffer->block);
	LIST_REMOVE(s, link);
	journal_drop(s->broker->journal, &s->record);
	buffer_unref(s->broker, s->buffer);
	free(s);
}

static void fail(struct scrub *s, int error, const char *text)
{
	struct pool *p = buffer_pool(s->buffer);
	char detail[1024];
	pid_t writer;

	snprintf(detail, sizeof(detail), "pool '%s': what another user left cannot be zeroed: %s",
		 p->name, text);
	if (s->client) {
		p->failed[ALLOC_SYSTEM]++;
		pool_note(p);
		request_reply_error(s->client, WIRE_ALLOC, s->request.serial, error, detail);
		abandon(s);
	}
	writer = agent_pid_before(p->choice.device->agent);
	if (writer == 0 || child_has_ended(s->broker, writer)) {
		scrub_free(s);
		return;
	}
	s->writer = writer;
	begin_to_die(s);
	scrub_note(s);
	memory_look_soon(s->broker);
}

static void on_zero(void *data, const struct wire_message *m, struct fd_list *fds, int error,
		    const char *text)
{
	struct scrub *s = data;
	struct timed_request other;

	(void)fds;
	if (!m) {
		fail(s, error, text);
		return;
	}
	s->buffer->block->tag = 0;
	buffer_note(s->buffer);
	if (s->client) {
		other = s->client->requests.current;
		s->client->requests.current = s->request;
		request_give_allocated(s->client, s->request.serial, s->buffer);
		s->client->requests.current = other;
	}
	scrub_free(s);
}

static int ask(struct scrub *s, const struct segment *segment)
{
	const struct block *block = s->buffer->block;
	struct agent *agent = segment->pool->choice.device->agent;
	bool is_its_own = segment->handle && segment->incarnation == agent_incarnation(agent);
	struct wire_message m = {.type = WIRE_AGENT_SCRUB};

	m.agent_scrub = (struct wire_agent_scrub){
	    .handle = is_its_own ? segment->handle : 0,
	    .offset = block_offset(block),
	    .size = block_size(block),
	    .kind = segment->pool->choice.kind->id,
	    .recipe = {&segment->memory.recipe, sizeof(segment->memory.recipe)},
	};
	return agent_ask(agent, &m, segment->memory.fd, on_zero, s);
}

static int scrub_by_agent(struct request *r, struct buffer *buffer, struct failure *failure)
{
	struct scrub *s = calloc(1, sizeof(*s));

	if (!s)
		goto no_memory;
	if (!charge_take_with(&s->charge, r->client->account, LIMIT_UNSENT,
			      sizeof(*s) + sizeof(struct wire_message),
			      OWN_OF_PRICE(sizeof(*s) + sizeof(struct wire_message)))) {
		free(s);
		return account_refuse(r->client->account, LIMIT_UNSENT,
				      ", requests that wait among them", failure);
	}
	s->broker = r->broker;
	s->client = r->client;
	s->request = r->client->requests.current;
	s->buffer = buffer;
	if (ask(s, buffer_segment(buffer)) < 0) {
		charge_return(&s->charge);
		free(s);
		goto no_memory;
	}
	LIST_INSERT_HEAD(&r->broker->buffers->scrubs, s, link);
	LIST_INSERT_HEAD(&r->client->buffers->scrubs, s, of_client);
	scrub_note(s);
	return SCRUB_LATER;

no_memory:
	return failure_no_memory(failure, "the broker");
}

int scrub_start(struct request *r, struct buffer *buffer, struct failure *failure)
{
	if (buffer_pool(buffer)->choice.device)
		return scrub_by_agent(r, buffer, failure);
	return scrub_here(buffer, failure);
}

void scrubs_look_again(struct broker *b)
{
	struct scrub *s, *next;

	for (s = LIST_FIRST(&b->buffers->scrubs); s; s = next) {
		next = LIST_NEXT(s, link);
		if (s->writer == 0)
			continue;
		if (child_has_ended(b, s->writer))
			scrub_free(s);
		else
			memory_look_again(b);
	}
}

void scrubs_end(struct broker *b)
{
	while (!LIST_EMPTY(&b->buffers->scrubs))
		scrub_free(LIST_FIRST(&b->buffers->scrubs));
}

bool client_abandon_scrubs(struct client *c, int *budget)
{
	for (; *budget > 0; --*budget) {
		if (LIST_EMPTY(&c->buffers->scrubs))
			return true;
		abandon(LIST_FIRST(&c->buffers->scrubs));
	}
	return false;
}

/* ------------------------------------------------------------------------------------------- */

/* The record does not say who waits: the next broker handles that request again, with another
 * block. */
static void scrub_fields(struct record *r, void *object)
{
	struct scrub *s = object;

	record_buffer(r, &s->buffer);
	record_i32(r, &s->writer);
}

/* Begins again from the start, for nobody. The agent may still be zeroing the block, or one before
 * it that has not ended yet, and until then the block is nobody's. */
static int scrub_attach(struct broker *b, void *object)
{
	struct scrub *s = object;

	if (!buffer_pool(s->buffer)->choice.device || s->writer < 0)
		return -EBADMSG;
	s->broker = b;
	buffer_ref(s->buffer);
	LIST_INSERT_HEAD(&b->buffers->scrubs, s, link);
	begin_to_die(s);
	if (s->writer == 0)
		return ask(s, buffer_segment(s->buffer));
	memory_look_soon(b);
	return 0;
}

const struct object_kind scrub_kind =
    OBJECT_KIND(RECORD_SCRUB, "scrub", struct scrub, scrub_fields, scrub_attach);
