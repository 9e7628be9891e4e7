/* SPDX-License-Identifier: MIT */

/*
 * Before a message is sent: whether it can be, or who is in the way, and the signal that consumers
 * wait for. Its memory is of the channel's pool, so that whoever may be in the channel can reach
 * it: the broker has sent the segments of that to all consumers before anybody could have a buffer
 * in them.
 */

#include <stdio.h>

#include "base/system/process.h"
#include "libshare/order/order.h"
#include "libshare/program/error.h"
#include "libshare/segment/segment.h"
#include "libshare/sender/inside.h"

/* A handle of a message that is only the message's cannot be given away. */
static bool is_only_lent(share_buffer *b)
{
	return atomic_load_explicit(&b->lent, memory_order_acquire) &&
	       atomic_load_explicit(&b->refs, memory_order_acquire) == 1;
}

static int check_buffer(const share_channel *ch, share_buffer *b, uint32_t flags, void *stream)
{
	int r = buffer_resolve(&b);

	if (r == 0 && b->client != ch->client)
		r = fail(SHARE_EINVAL, "the buffer is of another client than the channel");
	if (r == 0)
		r = stream_check(ch->client, b->segment->kind, stream);
	if (r == 0 && flags & SHARE_OUTGOING_GIVE && is_only_lent(b))
		r = fail(SHARE_EINVAL,
			 "the buffer is held by a message that was received, and "
			 "by nothing else that could be given away");
	if (r == 0 && b->segment->pool != ch->pool)
		r = fail(SHARE_EINVAL,
			 "the buffer is of another pool than the channel: allocate what goes "
			 "through it there, or open a channel of the buffer's pool");
	return r;
}

int channel_check_outgoing(const share_channel *ch, const share_outgoing *m, void *stream)
{
	share_buffer *b = m->buffer;
	int r;

	if (m->flags & ~(uint32_t)SHARE_OUTGOING_GIVE)
		return fail(SHARE_EINVAL, "a message has flags that are unknown");
	if (m->deliveries > UINT16_MAX || m->reserved != 0)
		return fail(SHARE_EINVAL, "a message was delivered at most %u times before, not %u",
			    UINT16_MAX, m->deliveries);
	if (m->data_size > ch->shape.data_max)
		return fail(
		    SHARE_EINVAL,
		    "a message of this channel carries up to %u byte%s, not %zu; up to %d if "
		    "all who open it say so (data_max)",
		    ch->shape.data_max, plural(ch->shape.data_max), m->data_size, CHANNEL_DATA_MAX);
	if (m->data_size > 0 && !m->data)
		return fail(SHARE_EINVAL, "data is NULL, and its size %zu", m->data_size);
	if (!b)
		return stream_check(ch->client, NULL, stream);
	r = check_buffer(ch, b, m->flags, stream);
	for (uint32_t k = 1; r == 0 && k < m->n_buffers; k++)
		r = m->buffers[k] ? check_buffer(ch, m->buffers[k], m->flags, stream)
				  : fail(SHARE_EINVAL, "one of a message's buffers is NULL");
	return r;
}

static int signal_on(share_channel *ch, const struct memory_mapping *m, void *stream,
		     struct ring_fence *out)
{
	share_fence fence = {0, 0};
	int r = stream_signal(ch->client, m, stream, &fence);

	*out = (struct ring_fence){WIRE_TIMELINE_SLOT(fence.timeline), fence.value};
	return r;
}

int channel_signal_for(share_channel *ch, const share_outgoing *messages, size_t n, void *stream,
		       struct ring_fence *out)
{
	struct memory_mapping device;

	for (size_t i = 0; i < n; i++)
		if (messages[i].buffer)
			return signal_on(ch, buffer_of(messages[i].buffer)->mapping, stream, out);
	*out = (struct ring_fence){0, 0};
	if (!stream) /* what the calling thread did is done */
		return 0;
	/* what is no host stream can only be a CUstream */
	device = stream_on_device(0);
	return signal_on(ch, &device, stream, out);
}

/* ------------------------------------------------------------------------------------------- */
/* There is no room                                                                            */

const char *sender_name(const struct sender *sender, uint64_t who, char out[SENDER_NAME_SIZE])
{
	long pid = process_pid(sender->members->peers[__builtin_ctzll(who)].pidfd);
	int others = __builtin_popcountll(who) - 1, n;

	n = pid > 0 ? snprintf(out, SENDER_NAME_SIZE, "pid %ld", pid)
		    : snprintf(out, SENDER_NAME_SIZE, "one of them");
	if (others > 0)
		snprintf(out + n, SENDER_NAME_SIZE - (size_t)n, " and %d other%s have", others,
			 plural(others));
	else
		snprintf(out + n, SENDER_NAME_SIZE - (size_t)n, " has");
	return out;
}

static int no_room_in_time(struct sender *sender, const char *what)
{
	uint64_t who = ring_producer_holdups(sender->ring);
	char name[SENDER_NAME_SIZE];

	if (!who)
		return fail_constant(SHARE_ETIMEDOUT,
				     "the channel had no room within the time limit: memory of "
				     "messages that consumers are done with is still in use");
	return fail(SHARE_ETIMEDOUT,
		    "the channel had no room within the time limit: of its consumers, %s yet to %s",
		    sender_name(sender, who, name), what);
}

int sender_no_room(struct sender *sender, bool timed_out)
{
	bool lacks_tickets = ring_producer_lacks_tickets(sender->ring);

	if (ring_producer_lacks_consumers(sender->ring))
		return fail(
		    timed_out ? SHARE_ETIMEDOUT : SHARE_EAGAIN,
		    "this producer waits for %u consumer%s (wait_for), and the channel has %u",
		    sender->wait_for, plural((int)sender->wait_for),
		    members_count(sender->members));
	if (ring_producer_is_deserted(sender->ring) && sender->ch->shape.mode != CHANNEL_BROADCAST)
		return fail(timed_out ? SHARE_ETIMEDOUT : SHARE_EAGAIN,
			    "the channel has no consumer, and no more room for messages that wait "
			    "for one (%s: %u): start one, or make the channel with more",
			    lacks_tickets ? "in_flight" : "depth",
			    lacks_tickets ? sender->ch->shape.in_flight : sender->ch->shape.depth);
	if (timed_out)
		return no_room_in_time(sender,
				       lacks_tickets ? "acknowledge messages" : "receive messages");
	return fail_constant(SHARE_EAGAIN,
			     lacks_tickets
				 ? "consumers hold on to all messages that may be in flight"
				 : "consumers have yet to receive as many messages as may wait");
}
