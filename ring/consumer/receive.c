/* SPDX-License-Identifier: MIT */

/*
 * The receiving half of a channel. It reads the rings of producers, which may write anything at any
 * time, and writes its own ledger, where they read how far it has got and what it is done with.
 *
 * An entry is read the way of a sequence lock: its sequence number, what is in it, and the number
 * again. What was read is checked before it goes out. Saying that it was taken comes before the
 * last look at whether it still could be: a producer that drops a message, or leaves us behind,
 * says so first and looks at what we have taken then. So both cannot miss the other's word, and
 * where both see it, the message counts as ours, and we acknowledge it without having used it.
 */

#include <errno.h>

#include "base/mutation.h"
#include "ring/consumer/inside.h"
#include "ring/entry.h"

/* The further buffers of a message; false: they are none, or those of another one. */
static bool load_further(const struct ring_consumer *c, const struct ring_source *s,
			 struct ring_message *m)
{
	const struct channel_further *from = (const void *)ring_source_far(c, s, m->ticket);

	for (uint32_t i = 0; i < m->n_further; i++) {
		struct ring_further *to = &m->further[i];
		uint64_t word = ring_load(&from[i].ticket);

		*to = (struct ring_further){
		    .buffer = ring_load(&from[i].buffer),
		    .segment = ring_load(&from[i].segment),
		    .offset = ring_load(&from[i].offset),
		    .size = ring_load(&from[i].size),
		    .ticket = (uint16_t)word,
		    .version = (uint32_t)(word >> 32),
		};
		if (to->version == 0 || to->ticket >= c->shape.in_flight || to->buffer == 0 ||
		    (to->offset | to->size) >> 48 != 0 ||
		    (uint16_t)(word >> 16) != (uint16_t)m->version)
			return false;
	}
	return true;
}

/* Of a message that does not lie in its entry alone: whether it is sound, and then the rest of it
 * is copied. */
static __attribute__((noinline)) bool load_far(const struct ring_consumer *c,
					       const struct ring_source *s,
					       const struct channel_entry *e, uint64_t sequence,
					       struct ring_message *m)
{
	uint32_t timeline = m->fence.slot;

	m->fence.slot = CHANNEL_SLOT(timeline);
	m->n_further = CHANNEL_MORE(timeline);
	if (!s->far || m->ticket >= c->shape.in_flight || !ring_is_sound(m, c->shape.data_max) ||
	    m->n_further >= channel_buffers(&c->shape) || (m->n_further > 0 && m->buffer == 0))
		return false;
	if (!load_further(c, s, m)) {
		atomic_thread_fence(memory_order_acquire);
		m->n_further = 0; /* it is left out when it was taken */
		return sequence > 0 && ring_is_passed(c, s, sequence - 1) &&
		       !MUTATION(passed_is_nonsense);
	}
	if (ring_is_far(m->data_size))
		ring_load_data(m->data,
			       ring_source_far(c, s, m->ticket) + channel_far_data(&c->shape),
			       m->data_size);
	else
		ring_load_data(m->data, e->data, m->data_size);
	return true;
}

/* What lies in its entry or not there, after all else was loaded: false if that makes no sense. */
static inline bool load_data(const struct ring_consumer *c, const struct ring_source *s,
			     const struct channel_entry *e, uint64_t sequence,
			     struct ring_message *m)
{
	if (!ring_is_sound(m, c->near) || m->ticket >= c->shape.in_flight)
		return load_far(c, s, e, sequence, m);
	ring_load_data(m->data, e->data, m->data_size);
	return true;
}

enum ring_entry_state { NOT_THERE, NONSENSE, COPIED };

/* Into private memory. What makes no sense is told from what was overwritten while it was read. */
static inline enum ring_entry_state read_entry(const struct ring_consumer *c,
					       const struct ring_source *s,
					       const struct channel_entry *e, uint64_t sequence,
					       struct ring_message *out)
{
	bool sound;

	if (ring_sequence_of(e) != sequence)
		return NOT_THERE;
	ring_entry_load(e, out);
	sound = load_data(c, s, e, sequence, out);
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&e->sequence, memory_order_relaxed) != sequence)
		return NOT_THERE;
	return sound ? COPIED : NONSENSE;
}

/* ------------------------------------------------------------------------------------------- */
/* Receiving                                                                                   */

static void set_next(struct ring_consumer *c, struct ring_source *s, uint64_t next)
{
	s->next = next;
	atomic_store_explicit(&s->row->taken, next, memory_order_release);
	c->moved |= s->bit;
}

static void lose(struct ring_consumer *c, struct ring_source *s, uint64_t n)
{
	s->lost += n;
	channel_add(&c->ledger->lost, n);
}

/*
 * The entry that should come is not there. 1: it was dropped, and we are past it; it was
 * overwritten only after the producer had seen that we had not taken it, so that there is nothing
 * to acknowledge. 0: it has not been written yet.
 */
static __attribute__((noinline)) int skip(struct ring_consumer *c, struct ring_source *s)
{
	uint64_t sequence = ring_sequence_of(ring_source_entry(c, s, s->next)), head, past;

	if (ring_is_left_behind(c, s))
		return -ESTALE;
	head = ring_lane_head(c, s);
	if (head > s->next && sequence != s->next + 1) {
		/* what is further behind than a lane is long is overwritten for certain */
		past = head - s->next > c->shape.depth ? head - c->shape.depth - s->next : 1;
		lose(c, s, past);
		set_next(c, s, s->next + past);
		return 1;
	}
	return sequence > s->next + 1 ? -EPROTO : 0;
}

/* It was taken, and is not ours after all. Whoever has left us behind may have seen before that it
 * was taken, and waits for it then; in a queue it is still to be received by somebody. */
static void give_back_unseen(struct ring_consumer *c, struct ring_source *s,
			     const struct ring_message *m, bool to_others)
{
	bool rejected = to_others && c->shape.mode == CHANNEL_QUEUE && ring_heeds_rejections(s) &&
			!MUTATION(acknowledge_unseen);

	/* the message's own last, as always */
	for (uint32_t i = m->n_further + 1; i-- > 0;) {
		uint32_t ticket = i > 0 ? m->further[i - 1].ticket : m->ticket;
		uint32_t version = i > 0 ? m->further[i - 1].version : m->version;

		s->tickets[ticket].version = 0;
		if (rejected)
			ring_write_rejection(c, s, ticket, version, m->deliveries, false);
		else
			ring_write_ack(c, s, ticket, version, (struct ring_fence){0, 0}, false);
	}
	if (m->n_further > 0)
		channel_add(&c->ledger->further, -(uint64_t)m->n_further);
}

/* The first @dropped of @n messages; what the others are is moved to their places. */
static void leave_out(struct ring_consumer *c, struct ring_source *s, struct ring_message *out,
		      uint32_t dropped, uint32_t n)
{
	for (uint32_t i = 0; i < dropped; i++)
		give_back_unseen(c, s, &out[i], false);
	for (uint32_t i = dropped; i < n; i++) {
		unsigned char *data = out[i - dropped].data;

		if (out[i].data_size > 0)
			memcpy(data, out[i].data, out[i].data_size);
		out[i - dropped] = out[i];
		out[i - dropped].data = data;
	}
	lose(c, s, dropped);
}

/* How many of the last @n are ours for good, now that we have said that we have taken them; or
 * -ESTALE. */
static int keep(struct ring_consumer *c, struct ring_source *s, struct ring_message *out,
		uint32_t n)
{
	uint64_t head, first = s->next - n;
	uint32_t dropped = n;

	/* Without drops, the producer has all processors pass a barrier before it looks (rare, and
	 * expensive), so that here it is enough to keep the compiler from changing the order. */
	if (ring_drops(c))
		ring_barrier();
	else
		atomic_signal_fence(memory_order_seq_cst);
	if (MUTATION(take_what_was_dropped))
		return (int)n;
	if (ring_is_left_behind(c, s)) {
		for (uint32_t i = 0; i < n; i++)
			give_back_unseen(c, s, &out[i], true);
		return -ESTALE;
	}
	head = ring_lane_head(c, s);
	if (head <= first)
		return (int)n;
	if (head - first < n)
		dropped = (uint32_t)(head - first);
	leave_out(c, s, out, dropped, n);
	return (int)(n - dropped);
}

/* As hold(), of those behind the first. */
static __attribute__((noinline)) bool hold_further(struct ring_consumer *c, struct ring_source *s,
						   const struct ring_message *m)
{
	uint32_t i = 0;

	while (i < m->n_further && s->tickets[m->further[i].ticket].version == 0) {
		s->tickets[m->further[i].ticket] =
		    (struct ring_held){m->further[i].version, m->deliveries};
		i++;
	}
	if (i == m->n_further) {
		channel_add(&c->ledger->further, i);
		return true;
	}
	while (i > 0)
		s->tickets[m->further[--i].ticket].version = 0;
	s->tickets[m->ticket].version = 0;
	return false;
}

/* We have its tickets from here on. False, and nothing is so: some of them we have already, or it
 * has one twice. To have one twice is nothing that could be acknowledged. */
static inline bool hold(struct ring_consumer *c, struct ring_source *s,
			const struct ring_message *m)
{
	if (s->tickets[m->ticket].version != 0)
		return false;
	s->tickets[m->ticket] = (struct ring_held){m->version, m->deliveries};
	return __builtin_expect(m->n_further == 0, 1) || hold_further(c, s, m);
}

static bool is_data_alone(const struct ring_message *m)
{
	return m->buffer == 0 && m->fence.slot == 0;
}

/* Copies what is there from the next message on, up to @n. Only what is data alone comes after
 * another: all else takes more than to be received. *got: how many; if there are none, what the
 * first is. */
static enum ring_entry_state read_run(struct ring_consumer *c, struct ring_source *s,
				      struct ring_message *out, uint32_t n, uint32_t *got)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		struct ring_message *m = &out[i];
		uint64_t at = s->next + i;
		enum ring_entry_state state =
		    read_entry(c, s, ring_source_entry(c, s, at), at + 1, m);

		if (state == COPIED && s->tickets[m->ticket].version != 0)
			state = NONSENSE;
		if (state != COPIED && i == 0)
			return state;
		if (state != COPIED || (i > 0 && !is_data_alone(m)))
			break;
		if (!hold(c, s, m))
			return NONSENSE; /* of several, so it is the first */
		if (i == 0 && !is_data_alone(m))
			n = 1;
	}
	*got = i;
	return COPIED;
}

/* ------------------------------------------------------------------------------------------- */
/* Who gets the latest alone (latest.c has the other side)                                      */

/* The @n buffers behind the first one of a message that was not received. */
static void acknowledge_further(struct ring_consumer *c, struct ring_source *s,
				const struct ring_message *m, uint32_t n)
{
	const struct channel_further *from = (const void *)ring_source_far(c, s, m->ticket);

	for (uint32_t i = 0; i < n && n < channel_buffers(&c->shape); i++) {
		uint64_t word = ring_load(&from[i].ticket);
		uint32_t ticket = (uint16_t)word;

		/* another message's: that of @m is overwritten by now, so nobody waits for it */
		if ((uint16_t)(word >> 16) != (uint16_t)m->version ||
		    ticket >= c->shape.in_flight || s->tickets[ticket].version != 0)
			continue;
		ring_write_ack(c, s, ticket, (uint32_t)(word >> 32), (struct ring_fence){0, 0},
			       false);
	}
}

/* From @first up to @to, also what is below the head: whoever has raised that, and sees then that
 * we are beyond it, counts on us. It is said before we say that we are beyond these, so that nobody
 * waits for them, however long we take. What is not there any more was dropped for us for certain,
 * as nobody has seen that we are beyond it. */
static void acknowledge_older(struct ring_consumer *c, struct ring_source *s, uint64_t first,
			      uint64_t to)
{
	struct ring_message m;

	for (; first < to && !MUTATION(keep_what_is_older); first++) {
		const struct channel_entry *e = ring_source_entry(c, s, first);

		if (ring_sequence_of(e) != first + 1)
			continue;
		ring_entry_load(e, &m);
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(&e->sequence, memory_order_relaxed) != first + 1 ||
		    m.ticket >= c->shape.in_flight || s->tickets[m.ticket].version != 0)
			continue;
		if (CHANNEL_MORE(m.fence.slot) > 0)
			acknowledge_further(c, s, &m, CHANNEL_MORE(m.fence.slot));
		ring_write_ack(c, s, m.ticket, m.version, (struct ring_fence){0, 0}, false);
	}
}

/* 1: it is ours for good. 0: it was dropped for us, by now or before: it has made room for another.
 */
static int keep_latest(struct ring_consumer *c, struct ring_source *s, const struct ring_message *m)
{
	bool left_behind;

	ring_barrier();
	left_behind = ring_is_left_behind(c, s);
	if (!left_behind &&
	    (!ring_is_passed(c, s, s->next - 1) || MUTATION(take_what_was_passed_over))) {
		s->held++;
		return 1;
	}
	give_back_unseen(c, s, m, false);
	channel_add(&c->ledger->received, UINT64_MAX);
	return left_behind ? -ESTALE : 0;
}

/* The message before @tail. 1, 0: it is not there any more; or negative errno. */
static int take_latest(struct ring_consumer *c, struct ring_source *s, uint64_t tail,
		       struct ring_message *out)
{
	uint64_t first = s->next, missed = tail - s->next - 1;
	enum ring_entry_state state =
	    read_entry(c, s, ring_source_entry(c, s, tail - 1), tail, out);
	int r;

	if (state == NOT_THERE)
		return 0;
	if (state == NONSENSE || !hold(c, s, out))
		return ring_is_left_behind(c, s) ? -ESTALE : -EPROTO;
	if (tail > c->shape.depth && first < tail - c->shape.depth)
		first = tail - c->shape.depth;
	acknowledge_older(c, s, first, tail - 1);
	channel_add(&c->ledger->received, 1);
	set_next(c, s, tail);
	r = keep_latest(c, s, out);
	lose(c, s, r == 1 ? missed : missed + 1);
	return r;
}

/* 1, 0, or negative errno. */
static int receive_latest(struct ring_consumer *c, struct ring_source *s, struct ring_message *out)
{
	int r = 0;

	/* who sends faster than we look has to wait its turn */
	for (uint32_t i = 0; r == 0 && i < c->shape.depth + 2; i++) {
		uint64_t tail = ring_lane_tail(s);

		if (tail <= s->next)
			return ring_is_left_behind(c, s) ? -ESTALE : 0;
		r = take_latest(c, s, tail, out);
	}
	return r;
}

/* ------------------------------------------------------------------------------------------- */

/* How many, 0, or negative errno. */
static int receive_from(struct ring_consumer *c, struct ring_source *s, struct ring_message *out,
			uint32_t n)
{
	uint32_t got;
	int r;

	if (!ring_is_admitted(c, s))
		return ring_is_left_behind(c, s) ? -ESTALE : 0;
	if (c->latest)
		return receive_latest(c, s, out);
	/* one step to where a lane begins, and to its end; a producer that drops faster than that
	 * has to wait its turn */
	for (uint32_t i = 0; i < c->shape.depth + 2; i++) {
		switch (read_run(c, s, out, n, &got)) {
		case COPIED:
			/* who sees that it is taken sees that it is held */
			channel_add(&c->ledger->received, got);
			set_next(c, s, s->next + got);
			r = keep(c, s, out, got);
			if (r > 0)
				s->held += (uint32_t)r;
			if (r != (int)got)
				channel_add(&c->ledger->received,
					    r > 0 ? (uint64_t)r - got : -(uint64_t)got);
			if (r != 0)
				return r;
			break;
		case NOT_THERE:
			r = skip(c, s);
			if (r <= 0)
				return r;
			break;
		case NONSENSE:
			return ring_is_left_behind(c, s) ? -ESTALE : -EPROTO;
		}
	}
	return 0;
}

int ring_consumer_receive_run(struct ring_consumer *c, uint32_t *row, struct ring_message *out,
			      uint32_t n, uint64_t *lost)
{
	/* first those from this turn on, then those below */
	uint64_t above = c->live & ~(RING_BIT(c->turn) - 1), todo = above ? above : c->live;
	uint64_t left = c->live;

	if (c->live & (c->live - 1))
		n = 1;
	while (todo) {
		uint32_t slot = (uint32_t)__builtin_ctzll(todo);
		struct ring_source *s = &c->sources[slot];
		int r = receive_from(c, s, out, n);

		if (r != 0) {
			*row = slot;
			c->turn = (slot + 1) % CHANNEL_MEMBERS_MAX;
			if (r > 0) {
				*lost = s->lost;
				s->lost = 0;
				ring_sleeper_goes_on(&c->sleeper);
			} else {
				s->failed = true;
				c->live &= ~RING_BIT(slot);
			}
			return r;
		}
		left &= ~RING_BIT(slot);
		todo &= left;
		if (!todo)
			todo = left;
	}
	return 0;
}

bool ring_consumer_fetch(struct ring_consumer *c, uint32_t row, uint32_t ticket, uint32_t version,
			 uint32_t deliveries, struct ring_message *out)
{
	struct ring_source *s = &c->sources[row];
	const struct channel_entry *copy =
	    channel_copy_at((void *)(uintptr_t)s->ring, &c->shape, ticket);
	uint32_t further;
	bool sound;

	ring_entry_load(copy, out);
	out->ticket = ticket;
	further = CHANNEL_MORE(out->fence.slot);
	sound = out->version == version && s->tickets[ticket].version == 0 &&
		load_data(c, s, copy, 0, out) && hold(c, s, out);
	if (!sound) {
		if (s->tickets[ticket].version != 0)
			return false;
		/* as a whole, as far as its producer says what it is made of; its own last, as
		 * always */
		out->version = version;
		acknowledge_further(c, s, out, further);
		ring_write_ack(c, s, ticket, version, (struct ring_fence){0, 0}, false);
		return false;
	}
	channel_add(&c->ledger->received, 1);
	s->held++;
	out->deliveries = deliveries;
	s->tickets[ticket].deliveries = deliveries;
	for (uint32_t i = 0; i < out->n_further; i++)
		s->tickets[out->further[i].ticket].deliveries = deliveries;
	c->moved |= RING_BIT(row);
	ring_sleeper_goes_on(&c->sleeper);
	return true;
}
