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
#include <stdlib.h>

#include <share/channel.h>

#include "base/mutation.h"
#include "ring/entry.h"
#include "ring/inside.h"
#include "ring/ring.h"

/* Of a ticket; @version 0: it is not held. */
struct held {
	uint32_t version, deliveries;
};

struct source {
	uint64_t member, bit; /* of its row */
	const struct channel_ring *ring;
	const struct channel_admission *admission;
	const struct channel_lane *lane;
	const unsigned char *entries;
	struct channel_row *row;
	uint64_t next; /* sequence number */
	uint64_t lost; /* not told of yet */
	uint32_t held;
	struct held *tickets;
	uint32_t rung; /* for which of its sleeps */
	bool attached, admitted, failed;
	bool used; /* its row, by this one or another before */
};

struct ring_consumer {
	struct channel_shape shape;
	struct channel_ledger *ledger;
	uint64_t member;
	size_t stride;
	uint32_t slot;
	uint32_t turn;     /* who is looked at first */
	uint64_t attached; /* by row */
	uint64_t live;     /* of these, those from whom something may come */
	uint64_t moved;    /* those who might wait for what we have done */
	uint64_t rejected; /* those who do not, and are to be told */
	bool ordered;      /* who sleeps can count on us to pass a barrier */
	struct ring_sleeper sleeper;
	struct source sources[CHANNEL_MEMBERS_MAX];
	struct held *tickets; /* of all sources */
};

int ring_consumer_new(const struct channel_shape *shape, void *ledger, uint32_t slot,
		      uint64_t member, struct ring_consumer **out)
{
	struct ring_consumer *c = calloc(1, sizeof(*c));

	if (c)
		c->tickets = calloc((size_t)shape->rows * shape->in_flight, sizeof(*c->tickets));
	if (!c || !c->tickets) {
		free(c);
		return -ENOMEM;
	}
	c->shape = *shape;
	c->ledger = ledger;
	c->slot = slot;
	c->member = member;
	c->ordered = ring_can_be_ordered();
	ring_sleeper_init(&c->sleeper, &c->ledger->sleeping);
	for (uint32_t i = 0; i < shape->rows; i++) {
		c->sources[i].row = channel_row_at(ledger, shape, i);
		c->sources[i].tickets = c->tickets + (size_t)i * shape->in_flight;
	}
	*out = c;
	return 0;
}

void ring_consumer_free(struct ring_consumer *c)
{
	if (c)
		free(c->tickets);
	free(c);
}

/* ------------------------------------------------------------------------------------------- */
/* Who sends                                                                                   */

void ring_consumer_attach(struct ring_consumer *c, uint32_t row, uint64_t member, const void *ring,
			  bool lane)
{
	struct source *s = &c->sources[row];
	struct channel_row *words = s->row;
	void *page = (void *)(uintptr_t)ring; /* for looking only */

	atomic_store_explicit(&words->producer, 0, memory_order_release);
	atomic_store_explicit(&words->taken, 0, memory_order_relaxed);
	/* a row that was never used is zeros, and takes no memory as long as nobody looks */
	for (uint32_t i = 0; s->used && i < c->shape.in_flight; i++) {
		atomic_store_explicit(&words->acks[i].word, 0, memory_order_relaxed);
		atomic_store_explicit(&words->acks[i].value, 0, memory_order_relaxed);
		s->tickets[i].version = 0;
	}
	atomic_store_explicit(&words->producer, member, memory_order_release);

	uint32_t at = channel_lane_of(&c->shape, c->slot);

	*s = (struct source){
	    .member = member,
	    .bit = RING_BIT(row),
	    .ring = ring,
	    .admission = channel_admission_at(page, &c->shape, c->slot),
	    .lane = channel_lane_at(page, &c->shape, at),
	    .entries = (const unsigned char *)channel_entry_at(page, &c->shape, at, 0),
	    .row = words,
	    .tickets = s->tickets,
	    .attached = true,
	    .failed = !lane && !MUTATION(lane_again),
	    .used = true,
	};
	c->stride = ring_stride(page, &c->shape);
	c->attached |= RING_BIT(row);
	if (!s->failed)
		c->live |= RING_BIT(row);
}

void ring_consumer_detach(struct ring_consumer *c, uint32_t row)
{
	c->sources[row].attached = false;
	c->attached &= ~RING_BIT(row);
	c->live &= ~RING_BIT(row);
	c->moved &= ~RING_BIT(row);
	c->rejected &= ~RING_BIT(row);
}

static bool is_left_behind(const struct ring_consumer *c, const struct source *s)
{
	return atomic_load_explicit(&s->admission->left_behind, memory_order_acquire) == c->member;
}

static bool is_admitted(const struct ring_consumer *c, struct source *s)
{
	if (s->admitted)
		return true;
	if (atomic_load_explicit(&s->admission->consumer, memory_order_acquire) != c->member)
		return false;
	s->next = atomic_load_explicit(&s->admission->start, memory_order_relaxed);
	s->lost = atomic_load_explicit(&s->admission->lost, memory_order_relaxed);
	channel_add(&c->ledger->lost, s->lost);
	s->admitted = true;
	return true;
}

/* ------------------------------------------------------------------------------------------- */
/* Receiving                                                                                   */

static const struct channel_entry *entry_of(const struct ring_consumer *c, const struct source *s,
					    uint64_t sequence)
{
	return (const void *)(s->entries + (sequence & (c->shape.depth - 1)) * c->stride);
}

static const struct channel_entry *entry_at(const struct ring_consumer *c, const struct source *s)
{
	return entry_of(c, s, s->next);
}

static void set_next(struct ring_consumer *c, struct source *s, uint64_t next)
{
	s->next = next;
	atomic_store_explicit(&s->row->taken, next, memory_order_release);
	c->moved |= s->bit;
}

static void write_word(struct ring_consumer *c, struct source *s, uint32_t ticket, uint64_t word,
		       uint64_t value)
{
	struct channel_ack *ack = &s->row->acks[ticket];

	atomic_store_explicit(&ack->value, value, memory_order_relaxed);
	atomic_store_explicit(&ack->word, word, memory_order_release);
	c->moved |= s->bit;
}

static void write_ack(struct ring_consumer *c, struct source *s, uint32_t ticket, uint32_t version,
		      struct ring_fence fence, bool retained)
{
	write_word(c, s, ticket,
		   (uint64_t)version << 32 | (retained ? CHANNEL_ACK_RETAINED : 0) | fence.slot,
		   fence.value);
}

static void write_rejection(struct ring_consumer *c, struct source *s, uint32_t ticket,
			    uint32_t version, uint32_t deliveries, bool retained)
{
	write_word(c, s, ticket,
		   (uint64_t)version << 32 | (retained ? CHANNEL_ACK_RETAINED : 0) |
		       CHANNEL_ACK_REJECTED | (deliveries & CHANNEL_ACK_DELIVERY),
		   0);
	c->rejected |= s->bit & c->attached;
}

static bool drops(const struct ring_consumer *c)
{
	return c->shape.when_full == SHARE_FULL_DROP;
}

/*
 * The entry that should come is not there. 1: it was dropped, and we are past it; it was
 * overwritten only after the producer had seen that we had not taken it, so that there is nothing
 * to acknowledge. 0: it has not been written yet.
 */
static int skip(struct ring_consumer *c, struct source *s)
{
	uint64_t sequence = ring_sequence_of(entry_at(c, s)), head, past;

	if (is_left_behind(c, s))
		return -ESTALE;
	head = drops(c) ? atomic_load_explicit(&s->lane->head, memory_order_acquire) : 0;
	if (head > s->next && sequence != s->next + 1) {
		/* what is further behind than a lane is long is overwritten for certain */
		past = head - s->next > c->shape.depth ? head - c->shape.depth - s->next : 1;
		s->lost += past;
		channel_add(&c->ledger->lost, past);
		set_next(c, s, s->next + past);
		return 1;
	}
	return sequence > s->next + 1 ? -EPROTO : 0;
}

static bool heeds_rejections(const struct source *s)
{
	return atomic_load_explicit(&s->ring->heeds, memory_order_relaxed) &
	       CHANNEL_HEEDS_REJECTIONS;
}

/* It was taken, and is not ours after all. Whoever has left us behind may have seen before that it
 * was taken, and waits for it then; in a queue it is still to be received by somebody. */
static void give_back_unseen(struct ring_consumer *c, struct source *s,
			     const struct ring_message *m, bool to_others)
{
	s->tickets[m->ticket].version = 0;
	if (!to_others || c->shape.mode != CHANNEL_QUEUE || !heeds_rejections(s) ||
	    MUTATION(acknowledge_unseen)) {
		write_ack(c, s, m->ticket, m->version, (struct ring_fence){0, 0}, false);
		return;
	}
	write_rejection(c, s, m->ticket, m->version, m->deliveries, false);
}

/* The first @dropped of @n messages; what the others are is moved to their places. */
static void leave_out(struct ring_consumer *c, struct source *s, struct ring_message *out,
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
	s->lost += dropped;
	channel_add(&c->ledger->lost, dropped);
}

/* How many of the last @n are ours for good, now that we have said that we have taken them; or
 * -ESTALE. */
static int keep(struct ring_consumer *c, struct source *s, struct ring_message *out, uint32_t n)
{
	uint64_t head, first = s->next - n;
	uint32_t dropped = n;

	/* Without drops, the producer has all processors pass a barrier before it looks (rare, and
	 * expensive), so that here it is enough to keep the compiler from changing the order. */
	if (drops(c))
		ring_barrier();
	else
		atomic_signal_fence(memory_order_seq_cst);
	if (MUTATION(take_what_was_dropped))
		return (int)n;
	if (is_left_behind(c, s)) {
		for (uint32_t i = 0; i < n; i++)
			give_back_unseen(c, s, &out[i], true);
		return -ESTALE;
	}
	head = drops(c) ? atomic_load_explicit(&s->lane->head, memory_order_acquire) : 0;
	if (head <= first)
		return (int)n;
	if (head - first < n)
		dropped = (uint32_t)(head - first);
	leave_out(c, s, out, dropped, n);
	return (int)(n - dropped);
}

static bool is_data_alone(const struct ring_message *m)
{
	return m->buffer == 0 && m->fence.slot == 0;
}

/* Copies what is there from the next message on, up to @n. Only what is data alone comes after
 * another: all else takes more than to be received. *got: how many; if there are none, what the
 * first is. */
static enum ring_entry_state read_run(struct ring_consumer *c, struct source *s,
				      struct ring_message *out, uint32_t n, uint32_t *got)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		struct ring_message *m = &out[i];
		uint64_t at = s->next + i;
		enum ring_entry_state state =
		    ring_entry_read(entry_of(c, s, at), at + 1, &c->shape, m);

		/* to have it twice is nothing that could be acknowledged */
		if (state == COPIED && s->tickets[m->ticket].version != 0)
			state = NONSENSE;
		if (state != COPIED && i == 0)
			return state;
		if (state != COPIED || (i > 0 && !is_data_alone(m)))
			break;
		s->tickets[m->ticket] = (struct held){m->version, m->deliveries};
		if (i == 0 && !is_data_alone(m))
			n = 1;
	}
	*got = i;
	return COPIED;
}

/* How many, 0, or negative errno. */
static int receive_from(struct ring_consumer *c, struct source *s, struct ring_message *out,
			uint32_t n)
{
	uint32_t got;
	int r;

	if (!is_admitted(c, s))
		return is_left_behind(c, s) ? -ESTALE : 0;
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
			return is_left_behind(c, s) ? -ESTALE : -EPROTO;
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
		struct source *s = &c->sources[slot];
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

/* A message, or something to be told. */
static bool has_something(struct ring_consumer *c, struct source *s)
{
	if (is_left_behind(c, s))
		return true;
	if (!is_admitted(c, s))
		return false;
	return ring_sequence_of(entry_at(c, s)) > s->next || drops(c) ||
	       atomic_load_explicit(&s->ring->sends_no_more, memory_order_acquire);
}

uint32_t ring_consumer_look(struct ring_consumer *c, uint32_t n)
{
	struct source *s;
	uint32_t there = 0;

	if (c->live == 0)
		return 1;
	if (c->live & (c->live - 1)) {
		for (uint64_t live = c->live; live; live &= live - 1)
			if (has_something(c, &c->sources[__builtin_ctzll(live)]))
				return 1;
		return 0;
	}
	s = &c->sources[__builtin_ctzll(c->live)];
	/* on its way while the header is: one that is there is read next */
	__builtin_prefetch(entry_at(c, s)->data);
	while (s->admitted && there < n &&
	       ring_sequence_of(entry_of(c, s, s->next + there)) == s->next + there + 1)
		there++;
	return there > 0 ? there : has_something(c, s);
}

bool ring_consumer_fetch(struct ring_consumer *c, uint32_t row, uint32_t ticket, uint32_t version,
			 uint32_t deliveries, struct ring_message *out)
{
	struct source *s = &c->sources[row];
	const struct channel_entry *copy =
	    channel_copy_at((void *)(uintptr_t)s->ring, &c->shape, ticket);
	bool sound;

	ring_entry_load(copy, out);
	sound = ring_is_sound(out, &c->shape) && out->version == version &&
		s->tickets[ticket].version == 0;
	if (!sound) {
		if (s->tickets[ticket].version == 0)
			write_ack(c, s, ticket, version, (struct ring_fence){0, 0}, false);
		return false;
	}
	ring_load_data(out->data, copy->data, out->data_size);
	out->ticket = ticket;
	channel_add(&c->ledger->received, 1);
	s->held++;
	out->deliveries = deliveries;
	s->tickets[ticket] = (struct held){version, deliveries};
	c->moved |= RING_BIT(row);
	ring_sleeper_goes_on(&c->sleeper);
	return true;
}

bool ring_consumer_is_empty(struct ring_consumer *c, uint32_t row)
{
	struct source *s = &c->sources[row];

	if (!s->attached || s->failed || !is_admitted(c, s))
		return true;
	return ring_sequence_of(entry_at(c, s)) != s->next + 1 &&
	       !(drops(c) && atomic_load_explicit(&s->lane->head, memory_order_acquire) > s->next);
}

/* The word is read before it is looked whether there is a message: the last one may have come in
 * between. One that has left us behind is for ring_consumer_receive() to tell. */
static bool has_ended(struct ring_consumer *c, uint32_t row)
{
	const struct source *s = &c->sources[row];

	if (!atomic_load_explicit(&s->ring->sends_no_more, memory_order_acquire))
		return false;
	return (ring_consumer_is_empty(c, row) || MUTATION(end_before_the_last)) &&
	       !is_left_behind(c, s);
}

bool ring_consumer_end(struct ring_consumer *c, uint32_t *row)
{
	for (uint64_t live = c->live; live; live &= live - 1) {
		*row = (uint32_t)__builtin_ctzll(live);
		if (!has_ended(c, *row))
			continue;
		c->live &= ~RING_BIT(*row);
		return true;
	}
	return false;
}

/* ------------------------------------------------------------------------------------------- */
/* Acknowledging                                                                               */

/* False if it was given up before, or the program has made it up. */
static bool let_go(struct source *s, uint64_t member, uint32_t ticket, uint32_t version)
{
	if (s->member != member || s->tickets[ticket].version != version || version == 0)
		return false;
	s->tickets[ticket].version = 0;
	s->held--;
	return true;
}

bool ring_consumer_ack(struct ring_consumer *c, uint32_t row, uint64_t member, uint32_t ticket,
		       uint32_t version, struct ring_fence fence, bool retained)
{
	struct source *s = &c->sources[row];

	if (!let_go(s, member, ticket, version))
		return false;
	channel_add(&c->ledger->acknowledged, 1);
	write_ack(c, s, ticket, version, fence, retained);
	return true;
}

bool ring_consumer_reject(struct ring_consumer *c, uint32_t row, uint64_t member, uint32_t ticket,
			  uint32_t version, bool retained)
{
	struct source *s = &c->sources[row];
	uint32_t deliveries = s->tickets[ticket].deliveries;

	if (!let_go(s, member, ticket, version))
		return false;
	/* among those that it does not hold any more, for older brokers that look at it */
	channel_add(&c->ledger->acknowledged, 1);
	write_rejection(c, s, ticket, version, deliveries, retained);
	/* who sees the count sees what was said */
	atomic_store_explicit(&c->ledger->rejected, c->ledger->rejected + 1, memory_order_release);
	return true;
}

bool ring_consumer_can_reject(const struct ring_consumer *c, uint32_t row)
{
	const struct source *s = &c->sources[row];

	return !s->attached || heeds_rejections(s);
}

uint32_t ring_consumer_holds(const struct ring_consumer *c, uint32_t row, uint32_t ticket)
{
	return row < c->shape.rows && ticket < c->shape.in_flight
		   ? c->sources[row].tickets[ticket].version
		   : 0;
}

uint32_t ring_consumer_held(const struct ring_consumer *c, uint32_t row)
{
	return c->sources[row].held;
}

/* A futex: one ring is enough for a sleep. Our own bell has changed by then, so that it ends. */
uint64_t ring_consumer_wake(struct ring_consumer *c)
{
	uint64_t doorbells = c->rejected, moved = c->moved & c->attached, who = 0;
	bool bell = false;

	c->moved = c->rejected = 0;
	for (; moved; moved &= moved - 1) {
		uint32_t slot = (uint32_t)__builtin_ctzll(moved);

		if (!c->ordered || ring_may_sleep(&c->sources[slot].ring->waiting))
			who |= RING_BIT(slot);
	}
	if (who)
		ring_barrier();
	for (; who; who &= who - 1) {
		uint32_t slot = (uint32_t)__builtin_ctzll(who);
		struct source *s = &c->sources[slot];
		uint32_t waiting = atomic_load_explicit(&s->ring->waiting, memory_order_relaxed);

		switch (waiting & CHANNEL_SLEEP_STATE) {
		case CHANNEL_ON_FUTEX:
			bell |= s->rung != waiting;
			s->rung = waiting;
			break;
		case CHANNEL_ON_DOORBELL:
			doorbells |= RING_BIT(slot);
			break;
		}
	}
	if (bell)
		ring_bell(&c->ledger->bell);
	return doorbells;
}

uint64_t ring_consumer_receives_no_more(struct ring_consumer *c)
{
	/* behind all that was taken: whoever sees it sees how far we have got */
	atomic_store_explicit(&c->ledger->receives_no_more, 1, memory_order_release);
	ring_bell(&c->ledger->bell);
	c->live = 0;
	return c->attached;
}

/* ------------------------------------------------------------------------------------------- */
/* Sleeping                                                                                    */

/* The bell is read before the announcement, so that whatever is rung for it is seen. */
void ring_consumer_sleep(struct ring_consumer *c, bool doorbell, struct ring_sleep *out)
{
	bool one = c->live && !(c->live & (c->live - 1));

	*out = (struct ring_sleep){NULL, 0, false};
	if (one && !doorbell) {
		out->word = &c->sources[__builtin_ctzll(c->live)].lane->bell;
		out->value = atomic_load_explicit(out->word, memory_order_acquire);
	}
	out->unsure =
	    !ring_sleeper_announce(&c->sleeper, out->word ? CHANNEL_ON_FUTEX : CHANNEL_ON_DOORBELL);
}

void ring_consumer_awake(struct ring_consumer *c)
{
	ring_sleeper_awake(&c->sleeper);
}

void ring_consumer_get_stats(const struct ring_consumer *c, struct ring_consumer_stats *out)
{
	out->received = c->ledger->received;
	out->acknowledged = c->ledger->acknowledged - c->ledger->rejected;
	out->lost = c->ledger->lost;
	out->rejected = c->ledger->rejected;
}
