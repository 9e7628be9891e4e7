/* SPDX-License-Identifier: MIT */

/*
 * The memory of a message. Its handle is a loan: the producer holds the lease, and goes on holding
 * it until we acknowledge. So what share_release() is told of a loan waits for the acknowledgement,
 * which comes after it; and whoever wants to keep it gets a lease of its own, which makes an
 * ordinary handle of it.
 */

#include "libshare/buffer/grant.h"
#include "libshare/buffer/uses.h"
#include "libshare/order/order.h"
#include "libshare/program/error.h"
#include "libshare/receiver/inside.h"
#include "libshare/segment/segment.h"

#define HANDLES_KEPT 256
#define TRIES        3 /* a segment may be retired while it is asked for */

bool lent_reserve(struct receiver *receiver, uint32_t n)
{
	_Static_assert(sizeof(struct lent_buffer) <= BUFFER_ROOM, "it is in a buffer's slot");
	while (receiver->n_handles < n) {
		struct lent_buffer *l = lent_of(buffer_new());

		if (!l)
			return false;
		l->next = receiver->handles;
		receiver->handles = l;
		receiver->n_handles++;
	}
	return true;
}

struct lent_buffer *lent_new(struct receiver *receiver)
{
	struct lent_buffer *l = receiver->handles;

	receiver->handles = l->next;
	receiver->n_handles--;
	l->b.client = receiver->ch->client;
	l->lent.channel = receiver->ch;
	atomic_store_explicit(&l->b.refs, 1, memory_order_relaxed);
	atomic_store_explicit(&l->b.lent, &l->lent, memory_order_relaxed);
	return l;
}

void lent_free(struct receiver *receiver, struct lent_buffer *l)
{
	share_buffer *b = &l->b;

	uses_drop(b);
	if (b->giver.page)
		fence_drop(&b->giver);
	segment_dump_end(b);
	segment_put(receiver->ch->client, b->segment);
	b->segment = NULL;
	b->mapping = NULL;
	b->ordered = 0;
	if (receiver->n_handles == HANDLES_KEPT || handle_is_worn(b)) {
		handle_free(b);
		return;
	}
	handle_end(b);
	l->next = receiver->handles;
	receiver->handles = l;
	receiver->n_handles++;
}

/* False when its fence is none: a producer that does not know what it does. */
static bool set_giver(struct receiver *receiver, struct lent_buffer *l, uint32_t row,
		      struct ring_fence fence)
{
	const struct channel_peer *p = &receiver->members->peers[row];

	l->b.giver = (struct held_fence){0};
	if (fence.slot == 0)
		return true;
	if (fence.slot >= TIMELINE_SLOTS || fence.value >= TIMELINE_POISON)
		return false;
	if (!p->hold.page) { /* it was gone before we could ask for its timelines */
		if (p->lost)
			l->b.giver = fence_of_the_dead();
		return true;
	}
	l->b.giver = fence_hold_again(&p->hold);
	l->b.giver.slot = fence.slot;
	l->b.giver.value = fence.value;
	return true;
}

bool lent_fill(struct receiver *receiver, struct lent_buffer *l, uint32_t row,
	       const struct ring_message *m)
{
	l->b.id = m->buffer;
	l->b.size = m->size;
	l->b.offset = m->offset;
	l->b.version = 0;
	l->b.mode = receiver->writable ? SHARE_RDWR : SHARE_RDONLY;
	l->lent.producer = receiver->members->peers[row].member;
	l->lent.segment = m->segment;
	l->lent.row = row;
	l->lent.ticket = m->ticket;
	l->lent.version = m->version;
	l->lent.rejected = false;
	return set_giver(receiver, l, row, m->fence);
}

/* ------------------------------------------------------------------------------------------- */

/* A GRANT brings it, if it is not here. 0 or an error. */
static int ask_for_segment(share_channel *ch, uint64_t segment)
{
	struct wire_message m = {.type = WIRE_CHANNEL_SEGMENT,
				 .channel_segment = {.member = ch->member, .segment = segment}};

	return rpc(ch->client, &m, NULL);
}

static int find(share_channel *ch, share_buffer *b)
{
	return segment_find(ch->client, lent_of(b)->lent.segment, ch->pool, b->mode == SHARE_RDWR,
			    &b->segment, &b->mapping);
}

/* It was sent before the message could be, and waits to be read; or it did not go out, as this
 * process had left too much unread. */
static int fetch(share_channel *ch, share_buffer *b)
{
	int r;

	rpc_poll(ch->client);
	r = find(ch, b);
	for (int i = 0; r == 0 && !b->segment && i < TRIES; i++) {
		int asked = ask_for_segment(ch, lent_of(b)->lent.segment);

		if (asked == SHARE_EDISCONNECTED)
			rpc_read_rest(ch->client);
		else if (asked != 0)
			return asked;
		r = find(ch, b);
		if (asked != 0 && r == 0 && !b->segment)
			return client_lost(ch->client);
	}
	if (r == 0 && !b->segment)
		r = fail(SHARE_EPROTO, "the broker sent no descriptor for a segment");
	return r;
}

/* Whether it lies in the segment that was found; then it keeps that. */
static bool is_inside(share_channel *ch, share_buffer *b)
{
	if (b->offset <= b->segment->size && b->size <= b->segment->size - b->offset) {
		segment_dump(b);
		return true;
	}
	segment_put(ch->client, b->segment);
	b->segment = NULL;
	return false;
}

bool lent_is_mapped(share_channel *ch, share_buffer *b)
{
	return b->segment || (find(ch, b) == 0 && b->segment && is_inside(ch, b));
}

int lent_reach(share_channel *ch, share_buffer *b)
{
	int r;

	if (b->segment)
		return 0;
	r = find(ch, b);
	if (r == 0 && !b->segment)
		r = fetch(ch, b);
	if (r == 0 && !is_inside(ch, b))
		r = fail(SHARE_EPROTO, "a producer sent a buffer outside of its segment");
	return r;
}

/* ------------------------------------------------------------------------------------------- */

/* The last of a message that was given up before, while its memory was not. */
static int end_loan(share_channel *ch, share_buffer *b, void *stream)
{
	struct receiver *receiver;
	struct lent_buffer *l = lent_of(b);
	share_fence fence = {0, 0};
	struct ring_fence work;
	uint64_t receipt = RECEIPT(l->lent.row, l->lent.ticket, l->lent.version);
	bool rejected = l->lent.rejected, fatal;
	int r = uses_order(b, stream);

	if (r == 0 && !rejected)
		r = stream_signal(ch->client, b->mapping, stream, &fence);
	if (r != 0 || rejected)
		r = stream_synchronize(ch->client, b->mapping, stream, &fatal);
	receiver = receiver_lock(ch);
	work = (struct ring_fence){WIRE_TIMELINE_SLOT(fence.timeline), fence.value};
	if (receiver_return(receiver, l->lent.producer, receipt, rejected ? NULL : &work, false))
		receiver_acked_behind(receiver, work, 1);
	lent_free(receiver, l);
	receiver_wake_producers(receiver);
	receiver->members->held--;
	channel_unlock_and_end(ch);
	return r;
}

int channel_release(share_buffer *b, void *stream, bool *kept)
{
	share_client *c = b->client;
	bool loan, last;
	int r;

	client_ref(c);
	buffers_lock_uses(c);
	loan = atomic_load_explicit(&b->lent, memory_order_relaxed);
	r = loan ? uses_note(b, stream) : 0;
	*kept = r == SHARE_EINVAL || r == SHARE_ENOTSUP;
	if (!loan || *kept) {
		buffers_unlock_uses(c);
		/* another thread has made an ordinary one of it, just now */
		if (!loan)
			r = buffer_release(b, stream, kept);
		client_unref(c);
		return r;
	}
	/* from here on, unless it was the last, the message and its channel may be gone */
	last = atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1;
	buffers_unlock_uses(c);
	if (last) /* the message was given up before */
		r = end_loan(lent_of(b)->lent.channel, b, stream);
	client_unref(c);
	return r;
}

/* ------------------------------------------------------------------------------------------- */

static int order_behind(share_channel *ch, const struct held_fence *f,
			const struct memory_mapping *m, void *stream, struct ordering *o)
{
	int r;

	if (fence_state(ch->client, f) == TIMELINE_DEAD)
		return fail(SHARE_EOWNERDEAD,
			    "the producer of this message died before its work was done");
	o->fences = f;
	r = stream_wait(ch->client, m, stream, o);
	if (r == SHARE_ETIMEDOUT)
		channel_look_later(ch, MEMBERS_LOOK_SOON_MS);
	return r;
}

/* What a message without memory comes after. False: nothing. */
static bool hold_after(const share_message *m, struct held_fence *out)
{
	struct members *members;
	uint32_t slot = CHANNEL_SMALL(m->after), producer = RECEIPT_ROW(m->receipt);
	share_channel *ch = channel_of(m->channel);
	const struct channel_peer *p;

	*out = (struct held_fence){0};
	if (slot == 0 || slot >= TIMELINE_SLOTS)
		return false;
	members = channel_lock(ch);
	p = &members->peers[producer & (CHANNEL_MEMBERS_MAX - 1)];
	if (p->member == m->producer && p->hold.page) {
		*out = fence_hold_again(&p->hold);
		out->slot = slot;
		out->value = CHANNEL_LARGE(m->after);
	} else if (p->member == m->producer && p->lost) {
		*out = fence_of_the_dead();
	}
	channel_unlock(ch);
	return out->page;
}

static int order_data(share_message *m, void *stream, struct ordering *o)
{
	share_channel *ch = channel_of(m->channel);
	struct memory_mapping device = stream_on_device(0);
	struct held_fence f;
	int r;

	if (!hold_after(m, &f))
		return 0;
	/* what is no host stream can only be a CUstream */
	r = order_behind(ch, &f, stream ? &device : NULL, stream, o);
	fence_drop(&f);
	return r;
}

int lent_order(share_message *m, void *stream, int timeout_ms)
{
	share_buffer *b = buffer_of(m->buffer);
	struct ordering o = {.n = 1, .timeout_ms = timeout_ms};
	int r;

	if (!b)
		return m->after ? order_data(m, stream, &o) : 0;
	if (!b->giver.page)
		return 0;
	r = order_behind(channel_of(m->channel), &b->giver, b->mapping, stream, &o);
	b->ordered = o.how;
	for (uint32_t i = 1; i < m->n_buffers; i++)
		buffer_of(m->buffers[i])->ordered = o.how;
	/* it may have been waited for while its memory went */
	return r == 0 ? segment_check_memory(b->mapping) : r;
}
