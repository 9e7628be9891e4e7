/* SPDX-License-Identifier: MIT */

/*
 * Before a message is sent: whether it can be, and the signal that consumers wait for. Its memory
 * is of the channel's pool, so that whoever may be in the channel can reach it; the broker knows,
 * and is asked once for each segment.
 */

#include <stdlib.h>

#include "libshare/channel.h"
#include "libshare/error.h"
#include "libshare/host_stream.h"
#include "libshare/segment.h"
#include "libshare/stream.h"

bool channel_knows_segment(share_channel *ch, uint64_t segment)
{
	bool known = false;

	if (atomic_load_explicit(&ch->segment, memory_order_relaxed) == segment)
		return true;
	pthread_mutex_lock(&ch->lock);
	for (size_t i = 0; !known && i < ch->n_segments; i++)
		known = ch->segments[i] == segment;
	if (known)
		atomic_store_explicit(&ch->segment, segment, memory_order_relaxed);
	pthread_mutex_unlock(&ch->lock);
	return known;
}

void channel_add_segment(share_channel *ch, uint64_t segment)
{
	uint64_t *grown;

	pthread_mutex_lock(&ch->lock);
	grown = realloc(ch->segments, (ch->n_segments + 1) * sizeof(*grown));
	if (grown) { /* else it is asked for again */
		ch->segments = grown;
		ch->segments[ch->n_segments++] = segment;
	}
	pthread_mutex_unlock(&ch->lock);
}

/* Whether it is of the channel's pool, which the broker knows. */
static int check_pool(share_channel *ch, const share_buffer *b)
{
	struct wire_message m = {.type = WIRE_CHANNEL_SEGMENT};
	int r;

	if (channel_knows_segment(ch, b->segment->id))
		return 0;
	m.channel_segment.member = ch->member;
	m.channel_segment.segment = b->segment->id;
	r = rpc(ch->client, &m, WIRE_GRANT, NULL);
	if (r == 0)
		channel_add_segment(ch, b->segment->id);
	/* its consumers find out */
	return r == SHARE_EDISCONNECTED ? 0 : r;
}

/* A handle of a message that is only the message's cannot be given away. */
static int keep_loan(share_buffer *b, bool give)
{
	if (give && atomic_load_explicit(&b->refs, memory_order_acquire) == 1)
		return fail(SHARE_EINVAL,
			    "the buffer is held by a message that was received, and "
			    "by nothing else that could be given away");
	return channel_retain(b);
}

int channel_check_outgoing(share_channel *ch, const share_outgoing *m, void *stream)
{
	share_buffer *b = m->buffer;
	int r;

	if (m->flags & ~(uint32_t)SHARE_OUTGOING_GIVE)
		return fail(SHARE_EINVAL, "a message has flags that are unknown");
	if (m->data_size > ch->shape.data_max || (m->data_size > 0 && !m->data))
		return fail(SHARE_EINVAL, "a message of this channel carries up to %u byte%s",
			    ch->shape.data_max, plural(ch->shape.data_max));
	if (!b)
		return stream_check(ch->client, NULL, stream);
	r = buffer_resolve(&b);
	if (r == 0 && b->client != ch->client)
		r = fail(SHARE_EINVAL, "the buffer is of another client than the channel");
	if (r == 0)
		r = stream_check(ch->client, b->segment->kind, stream);
	if (r == 0 && atomic_load_explicit(&b->lent, memory_order_acquire))
		r = keep_loan(b, m->flags & SHARE_OUTGOING_GIVE);
	return r == 0 ? check_pool(ch, b) : r;
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
	struct memory_mapping *m;
	struct segment *s;
	int r;

	for (size_t i = 0; i < n; i++)
		if (messages[i].buffer)
			return signal_on(ch, buffer_of(messages[i].buffer)->mapping, stream, out);
	if (!stream || host_stream_is(ch->client, stream))
		return signal_on(ch, NULL, stream, out);
	s = segment_on_device(ch->client, &m);
	if (!s)
		return fail(SHARE_EINVAL,
			    "the stream is neither NULL nor a share_host_stream of "
			    "this client, and it uses no memory of a GPU");
	r = signal_on(ch, m, stream, out);
	segment_put(ch->client, s);
	return r;
}
