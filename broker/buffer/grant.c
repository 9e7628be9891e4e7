/* SPDX-License-Identifier: MIT */

/*
 * Hands a buffer to a client: the lease, the descriptor of its segment, and the descriptors of the
 * timeline pages that it has to wait on, each of which a client is sent once. Everything that can
 * fail is done before the lease is given, so that a failure changes nothing.
 */

#include <errno.h>

#include <share/share.h>

#include "base/mutation.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/grant.h"
#include "broker/buffer/lease.h"
#include "broker/buffer/records.h"
#include "broker/client/client.h"
#include "broker/client/conversation.h"
#include "broker/memory/pool.h"
#include "broker/memory/segment.h"
#include "broker/monitor/monitor.h"
#include "broker/order/order.h"
#include "broker/pools/supply.h"

struct message {
	struct wire_message m;
	struct wire_fence fences[WIRE_FENCES_MAX];
	uint64_t pages[WIRE_PAGES_MAX];
	uint32_t page_slots[WIRE_PAGES_MAX];
	int fds[WIRE_FDS_MAX]; /* borrowed */
	size_t n_fences, n_pages, n_fds;
	bool handed_over;
};

static bool has_page(const struct message *out, uint64_t page)
{
	for (size_t i = 0; i < out->n_pages; i++)
		if (out->pages[i] == page)
			return true;
	return false;
}

/* Adds a fence, with its page if the client does not have it. The client asks for the pages that
 * are more than one message carries. False without memory. */
static bool add_fence(struct client *client, struct message *out, const struct fence *f)
{
	struct timelines *t = f->timelines;

	out->fences[out->n_fences++] = (struct wire_fence){fence_timeline(f), f->value};
	if (client_has_page(client, t->client) || has_page(out, t->id))
		return true;
	if (out->n_pages == WIRE_PAGES_MAX)
		return client_let_ask(client, t->client);
	if (client_reserve_page(client, t->client) < 0)
		return false;
	out->pages[out->n_pages] = t->id;
	out->page_slots[out->n_pages++] = t->client;
	out->fds[out->n_fds++] = t->fd;
	out->fds[out->n_fds++] = t->pidfd;
	return true;
}

static int add_hand_over(struct client *client, struct message *out, const struct fence *hand_over)
{
	switch (fence_query(hand_over)) {
	case TIMELINE_REACHED:
		break;
	case TIMELINE_DEAD:
		return SHARE_EOWNERDEAD;
	case TIMELINE_PENDING:
		if (!add_fence(client, out, hand_over))
			return SHARE_ESYSTEM;
		out->handed_over = true;
	}
	return 0;
}

static int add_gate(struct client *client, struct message *out, const struct fence_set *gate)
{
	size_t n = fence_set_size(gate);

	if (fence_set_is_lost(gate))
		return SHARE_EAGAIN;
	for (size_t i = 0; i < n; i++) {
		const struct fence *f = fence_set_at(gate, i);

		if (fence_query(f) != TIMELINE_PENDING)
			continue;
		if (out->n_fences == WIRE_FENCES_MAX)
			return SHARE_EAGAIN;
		if (!add_fence(client, out, f))
			return SHARE_ESYSTEM;
	}
	return 0;
}

/*
 * Whether the giver's fence may be added to what the buffer remembers. Whoever may write has to
 * come after everything that was enqueued before, and not only after those in between: when one of
 * these dies, waiting for it is over, while what it waited for may still run. Who gave the buffer
 * pays for that. If that user can pay for no more, the grant is possible when the work is done: by
 * then there is nothing to remember.
 */
static bool may_remember(const struct buffer *buffer, const struct fence *hand_over)
{
	return fence_set_may_add(buffer->pending, hand_over, false) || MUTATION(remember_unpaid);
}

static void remember(struct buffer *buffer, const struct fence *hand_over)
{
	struct fence copy = *hand_over;

	timelines_ref(copy.timelines);
	buffer->pending = fence_set_add(buffer->pending, &copy);
	buffer_note(buffer);
}

static int explain(int error, struct failure *failure)
{
	if (error == SHARE_EOWNERDEAD)
		return failure_set(
		    failure, error,
		    "the process that gave this buffer died before its work on it was done");
	if (error == SHARE_EAGAIN)
		return failure_set(failure, error,
				   "too much unfinished work is still using this memory");
	return failure_no_memory(failure, "the broker");
}

/* Adds the fences that the first use has to come after. 0 or a SHARE_E... number. */
static int add_fences(struct client *client, struct message *out, const struct grant *g,
		      bool writable)
{
	struct buffer *buffer = g->buffer;
	int r = g->hand_over ? add_hand_over(client, out, g->hand_over) : 0;

	if (r == 0 && writable && (g->is_new || !MUTATION(writers_wait_for_the_giver_only))) {
		buffer->block->gate = fence_set_prune(buffer->block->gate);
		buffer->pending = fence_set_prune(buffer->pending);
		r = add_gate(client, out, buffer->block->gate);
		if (r == 0)
			r = add_gate(client, out, buffer->pending);
	}
	if (r == 0 && writable && out->handed_over && !may_remember(buffer, g->hand_over))
		r = SHARE_EAGAIN;
	return r;
}

/* Adds the buffer to the message, which has its segment, and what was added to it. */
static void put_together(struct message *out, const struct grant *g)
{
	struct wire_grant *m = &out->m.grant;

	m->buffer = buffer_id(g->buffer);
	m->size = g->buffer->size;
	m->offset = block_offset(g->buffer->block);
	m->version = g->version;
	m->mode = g->mode;
	m->flags |= out->handed_over ? WIRE_GRANT_HAND_OVER : 0u;
	m->fences =
	    (struct wire_bytes){out->fences, (uint32_t)(out->n_fences * sizeof(struct wire_fence))};
	m->pages = (struct wire_bytes){out->pages, (uint32_t)(out->n_pages * sizeof(uint64_t))};
	m->more = (struct wire_bytes){g->more, (uint32_t)(g->n_more * sizeof(struct wire_more))};
	if (g->tensor)
		m->tensor = (struct wire_bytes){g->tensor->bytes, g->tensor->size};
}

int grant_send(struct broker *b, struct client *client, uint32_t serial, const struct grant *g,
	       struct failure *failure)
{
	struct buffer *buffer = g->buffer;
	struct segment *s = buffer_segment(buffer);
	bool writable = (g->mode & SHARE_RDWR) == SHARE_RDWR;
	struct message out;
	struct lease *lease;
	int r, fd;

	out.n_fences = out.n_pages = out.n_fds = 0;
	out.handed_over = false;
	r = segment_grant(s, client, writable, &out.m, &fd);
	if (r == -EACCES)
		return segment_refuse(s, client, failure);
	if (r == -EDQUOT)
		return account_refuse(client->account, LIMIT_MEMORY, "", failure);
	if (r < 0)
		return explain(SHARE_ESYSTEM, failure);
	if (fd >= 0)
		out.fds[out.n_fds++] = fd;
	r = add_fences(client, &out, g, writable);
	if (r != 0)
		return explain(r, failure);
	r = lease_grant(b, client, buffer, g->mode, &lease, failure);
	if (r != 0)
		return r;

	if (writable && out.handed_over)
		remember(buffer, g->hand_over);
	if (fd >= 0)
		segment_sent(s, client, writable);
	for (size_t i = 0; i < out.n_pages; i++)
		client_set_page(client, out.page_slots[i]);
	put_together(&out, g);
	out.m.serial = serial;
	client_send(client, &out.m, out.fds, out.n_fds);
	if (g->is_new && monitors_any(b))
		buffer_tell(b, buffer, "alloc", client, g->n_more + 1);
	return 0;
}
