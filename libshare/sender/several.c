/* SPDX-License-Identifier: MIT */

/* Messages of several buffers go into the ring. */

#include "base/probe.h"
#include "libshare/segment/segment.h"
#include "libshare/sender/inside.h"

share_buffer *sender_first_loan(const share_outgoing *m)
{
	for (uint32_t i = 0; i < m->n_buffers; i++) {
		share_buffer *b = buffer_of(m->buffers[i]);

		if (atomic_load_explicit(&b->lent, memory_order_acquire))
			return b;
	}
	return NULL;
}

/* There is room for them: a reference of the message's on each. */
static void refer_to_all(struct sender *sender, const share_outgoing *m, struct ring_fence given,
			 struct channel_sent *sent)
{
	bool is_given = m->flags & SHARE_OUTGOING_GIVE;

	for (uint32_t i = 0; i < m->n_buffers; i++) {
		share_buffer *b = buffer_of(m->buffers[i]);
		struct channel_sent *each = sender->unsent;

		sender->unsent = each->next;
		each->buffer = b;
		each->given = is_given ? given : (struct ring_fence){0, 0};
		each->further = NULL;
		if (i > 0)
			sent->further = each;
		sent = each;
	}
}

static struct ring_further further_of(const share_buffer *b)
{
	return (struct ring_further){
	    .buffer = b->id, .segment = b->segment->id, .offset = b->offset, .size = b->size};
}

/* Each of them is counted before others can have it, as it may come back at once. */
int sender_put_several(struct sender *sender, const share_outgoing *m, const struct sending *s)
{
	struct ring_further further[CHANNEL_BUFFERS_MAX - 1];
	const share_buffer *first = buffer_of(m->buffers[0]);
	struct channel_sent *sent = sender->unsent;
	struct ring_message out = {
	    .buffer = first->id,
	    .segment = first->segment->id,
	    .offset = first->offset,
	    .size = first->size,
	    .fence = s->fence,
	    .deliveries = m->deliveries,
	    .data_size = (uint32_t)m->data_size,
	    .data = (unsigned char *)(uintptr_t)m->data, /* for looking only */
	    .n_further = m->n_buffers - 1,
	    .further = further,
	};
	int r;

	if (sender_first_loan(m)) {
		r = ring_producer_look_for_room(sender->ring, s->to ? s->to->slot : 0,
						m->n_buffers);
		return r == 0 ? NEEDS_LEASE : r;
	}
	for (uint32_t i = 0; i < m->n_buffers; i++) {
		share_buffer *b = buffer_of(m->buffers[i]);

		if (i > 0)
			further[i - 1] = further_of(b);
		if (!(m->flags & SHARE_OUTGOING_GIVE))
			buffer_ref(b);
		buffer_message_sent(b);
	}
	r = ring_producer_send_several(sender->ring, &out, s->to ? s->to->slot : 0, sent);
	if (r == 0) {
		PROBE(send, sender->ch->member, out.buffer, out.data_size);
		refer_to_all(sender, m, s->fence, NULL);
		sender->with_memory++;
		return 0;
	}
	for (uint32_t i = 0; i < m->n_buffers; i++) {
		share_buffer *b = buffer_of(m->buffers[i]);

		buffer_message_over(b);
		if (!(m->flags & SHARE_OUTGOING_GIVE)) /* never the last one */
			atomic_fetch_sub_explicit(&b->refs, 1, memory_order_relaxed);
	}
	return r;
}
