/* SPDX-License-Identifier: MIT */

/*
 * What has to hold of messages, whatever else happens.
 *
 *   Each is as it was sent, and belongs to one sender, whose numbers have no gaps.
 *   Broadcast: what is sent after a consumer has come it gets, in order, once; what is missing was
 *   dropped, and the library says how much. When it says that there is nothing, nothing is missing.
 *   Queue: a message comes to one consumer. It comes again only to the next delivery, only when it
 *   was not acknowledged, and only so often; and whether its sender lives or not it ends
 *   acknowledged or set aside, or was delivered as often as the channel allows.
 *
 * Senders keep their records on the board, before and after each call; consumers mark what they are
 * about to acknowledge there, and what they have. So anybody may be killed in between. Records are
 * used again: with so many senders since, nothing is known of a message.
 */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/themes/checker/traffic.h"

#define LOOK_BACK (SENDERS / 2)

/* Of a message in a queue. Bits up to DELIVERIES_MAX: it came as that delivery. */
#define ACKNOWLEDGING (UINT32_C(1) << 16)
#define ACKNOWLEDGED  (UINT32_C(1) << 17)
#define SET_ASIDE     (UINT32_C(1) << 18)

static struct sender_record *record_of(struct worker *w, unsigned channel, uint64_t ordinal)
{
	return &w->board->channels[channel].sender[ordinal % SENDERS];
}

/* NULL: it is not (yet), or not any more, that sender's. */
static struct sender_record *known(struct worker *w, unsigned channel, uint64_t ordinal)
{
	struct sender_record *r = record_of(w, channel, ordinal);

	return atomic_load(&r->ordinal) == ordinal + 1 ? r : NULL;
}

/* What was for a consumer that goes comes to others late. That may be long after it has begun to.
 */
uint64_t record_departures(struct board *b, unsigned channel)
{
	uint64_t departures = atomic_load(&b->channels[channel].departures);
	uint32_t leaving = atomic_load(&b->dying);

	for (unsigned i = 0; i < b->options.processes; i++)
		leaving += atomic_load(&b->workers[i].leaving[channel]);
	return leaving ? UINT64_MAX : departures;
}

uint64_t record_new(struct worker *w, unsigned channel, uint64_t departures)
{
	uint64_t ordinal = atomic_fetch_add(&w->board->channels[channel].senders, 1);
	struct sender_record *r = record_of(w, channel, ordinal);

	atomic_store(&r->ordinal, 0);
	atomic_store(&r->begun, 0);
	atomic_store(&r->done, 0);
	atomic_store(&r->departures, departures);
	atomic_store(&r->ordinal, ordinal + 1);
	return ordinal;
}

bool record_is_old(struct worker *w, unsigned channel, uint64_t ordinal)
{
	return atomic_load(&w->board->channels[channel].senders) - ordinal > LOOK_BACK / 2;
}

void record_sending(struct worker *w, unsigned channel, const struct sending *s, unsigned n)
{
	struct sender_record *r = record_of(w, channel, s->ordinal);

	for (unsigned i = 0; i < n; i++)
		atomic_store(&r->fates[(s->sent + i) % WINDOW], 0);
	atomic_store(&r->begun, s->sent + n);
}

void record_sent(struct worker *w, unsigned channel, const struct sending *s)
{
	struct sender_record *r = record_of(w, channel, s->ordinal);

	atomic_store(&r->begun, s->sent);
	atomic_store(&r->done, s->sent);
}

void record_leaving(struct worker *w, unsigned channel)
{
	atomic_fetch_add(&w->state->leaving[channel], 1);
	atomic_fetch_add(&w->board->channels[channel].departures, 1);
}

void record_left(struct worker *w, unsigned channel)
{
	atomic_fetch_sub(&w->state->leaving[channel], 1);
}

void record_rejecting(struct worker *w, unsigned channel)
{
	atomic_fetch_add(&w->board->channels[channel].departures, 1);
}

void record_dying(struct board *b)
{
	atomic_fetch_add(&b->dying, 1);
	for (unsigned i = 0; i < CHANNELS; i++)
		atomic_fetch_add(&b->channels[i].departures, 1);
}

void record_dead(struct board *b)
{
	atomic_fetch_sub(&b->dying, 1);
}

/* ------------------------------------------------------------------------------------------- */
/* Notes                                                                                       */

static unsigned char tail_byte(const struct note *n, uint32_t i)
{
	return (unsigned char)mix(mix(n->sender + 1) + n->number * 256 + i);
}

static uint64_t sum_of(const struct note *n)
{
	uint64_t sum = mix(n->sender + 1);

	sum = mix(sum + n->number);
	for (unsigned i = 0; i < BUFFERS_MAX; i++)
		sum = mix(mix(sum + n->buffers[i].serial) + n->buffers[i].size);
	sum = mix(sum + n->n_buffers);
	sum = mix(sum + n->fence.timeline);
	sum = mix(sum + n->fence.value);
	sum = mix(sum + n->owner);
	sum = mix(sum + n->generation);
	return mix(sum + n->tail);
}

void note_write(struct note *n, const struct worker *w, uint64_t sender, uint64_t number)
{
	*n = (struct note){.sender = sender, .number = number, .owner = w->index};
}

size_t note_size(const struct note *n)
{
	return sizeof(*n) + n->tail;
}

void note_seal(void *data)
{
	unsigned char *bytes = data;
	struct note n;

	memcpy(&n, data, sizeof(n));
	n.sum = sum_of(&n);
	memcpy(data, &n, sizeof(n));
	for (uint32_t i = 0; i < n.tail; i++)
		bytes[sizeof(n) + i] = tail_byte(&n, i);
}

static bool is_as_sent(const share_message *m, const struct note *n)
{
	if (n->sum != sum_of(n) || m->data_size != note_size(n) || m->number != n->number)
		return false;
	for (uint32_t i = 0; i < n->tail; i++)
		if (m->data[sizeof(*n) + i] != tail_byte(n, i))
			return false;
	return true;
}

struct mark note_mark(const struct note *n, unsigned buffer)
{
	return (struct mark){n->buffers[buffer].serial, n->owner, n->generation};
}

/* All of them; or none, where their memory cannot be reached or the work before was never done. */
static bool has_its_buffers(const share_message *m, const struct note *n)
{
	if (m->error)
		return m->n_buffers == 0 && !m->buffer;
	if (m->n_buffers != n->n_buffers)
		return false;
	for (uint32_t i = 0; i < m->n_buffers; i++)
		if (share_size(m->buffers[i]) != n->buffers[i].size)
			return false;
	return m->buffer == (m->n_buffers > 0 ? m->buffers[0] : NULL);
}

bool note_check(struct worker *w, unsigned channel, const share_message *m, struct note *out)
{
	const char *name = channel_sorts[channel].name;

	memset(out, 0, sizeof(*out));
	if (m->data_size >= sizeof(*out))
		memcpy(out, m->data, sizeof(*out));
	if (m->data_size < sizeof(*out) || !is_as_sent(m, out)) {
		wrong(w,
		      "%s: message %" PRIu64 " of %" PRIx64 " with %u bytes is not as it was sent",
		      name, m->number, m->producer, m->data_size);
		return false;
	}
	if (!has_its_buffers(m, out)) {
		wrong(w,
		      "%s: message %" PRIu64 " of sender %" PRIu64
		      " has %u buffers, the first of %" PRIu64 " bytes, not %u, of %" PRIu64
		      " (error %d)",
		      name, m->number, out->sender, m->n_buffers,
		      m->buffer ? (uint64_t)share_size(m->buffer) : 0, out->n_buffers,
		      out->buffers[0].size, m->error);
		return false;
	}
	return true;
}

/* ------------------------------------------------------------------------------------------- */
/* What a consumer has received                                                                */

static struct view *view_of(struct worker *w, unsigned channel, uint64_t ordinal)
{
	struct view *v = &w->traffic->receiving[channel].views[ordinal % SENDERS];

	if (v->ordinal < ordinal + 1)
		*v = (struct view){.ordinal = ordinal + 1};
	return v->ordinal == ordinal + 1 ? v : NULL;
}

static uint64_t look_back_from(uint64_t senders)
{
	return senders > LOOK_BACK ? senders - LOOK_BACK : 0;
}

void view_open(struct worker *w, unsigned channel)
{
	uint64_t senders = atomic_load(&w->board->channels[channel].senders);

	w->traffic->receiving[channel].received = 0;
	memset(w->traffic->receiving[channel].views, 0,
	       sizeof(w->traffic->receiving[channel].views));
	for (uint64_t o = look_back_from(senders); o < senders; o++) {
		struct sender_record *r = known(w, channel, o);

		if (r)
			view_of(w, channel, o)->begun = atomic_load(&r->begun);
	}
}

void view_look(struct worker *w, unsigned channel, struct sent_before *out)
{
	out->senders = atomic_load(&w->board->channels[channel].senders);
	for (uint64_t o = look_back_from(out->senders); o < out->senders; o++) {
		struct sender_record *r = known(w, channel, o);
		uint64_t done = r ? atomic_load(&r->done) : 0;

		out->done[o % LOOK_BACK] = r && known(w, channel, o) ? done : 0;
	}
}

void view_nothing(struct worker *w, unsigned channel, const struct sent_before *before)
{
	share_channel_stats stats = SHARE_CHANNEL_STATS_INIT;

	if (channel_sorts[channel].mode != SHARE_BROADCAST)
		return;
	/* the latest may have made room for one that is not sent yet */
	if (w->traffic->receiving[channel].latest)
		return;
	/* whoever came while the broker was stopped is not known */
	if (strstr(share_error_detail(), "the broker has not answered"))
		return;
	/* it may have one, of which the producer's work is not done */
	if (share_channel_get_stats(w->traffic->receiving[channel].channel, &stats) != 0 ||
	    stats.received > w->traffic->receiving[channel].received)
		return;
	for (uint64_t o = look_back_from(before->senders); o < before->senders; o++) {
		uint64_t done = before->done[o % LOOK_BACK];
		const struct view *v = view_of(w, channel, o);

		if (v && done > v->begun && v->next < done)
			wrong(w,
			      "%s: nothing to receive, though sender %" PRIu64 " has sent %" PRIu64
			      " messages, %" PRIu64
			      " of them before this consumer came, which has "
			      "received those below %" PRIu64,
			      channel_sorts[channel].name, o, done, v->begun, v->next);
	}
}

/* In broadcast: the next one, or so many were dropped. */
static void follow_up(struct worker *w, unsigned channel, const struct view *v,
		      const share_message *m)
{
	const struct channel_sort *sort = &channel_sorts[channel];
	uint64_t expected = v->next + m->lost;

	if (m->deliveries != 1)
		wrong(w, "%s: delivery %u in broadcast", sort->name, m->deliveries);
	/* before the first one came, nobody may have been there */
	if (m->lost > 0 && sort->when_full != SHARE_FULL_DROP && v->producer != 0 &&
	    !w->traffic->receiving[channel].latest)
		wrong(w, "%s: %" PRIu64 " were dropped", sort->name, m->lost);
	if (v->producer == 0 ? m->number > v->begun + m->lost : m->number != expected)
		wrong(w,
		      "%s: message %" PRIu64 " of sender %" PRIu64 ", with %" PRIu64
		      " dropped before it, where %s%" PRIu64 " should be",
		      sort->name, m->number, v->ordinal - 1, m->lost, v->producer ? "" : "at most ",
		      v->producer ? expected : v->begun);
}

/* What others had, or were to get, comes late, and perhaps again. */
static void expect_in_order(struct worker *w, unsigned channel, const share_message *m,
			    const struct note *n, const struct sender_record *r)
{
	const struct view *v = view_of(w, channel, n->sender);
	uint64_t departures = atomic_load(&w->board->channels[channel].departures);

	if (!v || departures != atomic_load(&r->departures) || !known(w, channel, n->sender))
		return;
	if (m->deliveries > 1 || m->number < v->next)
		wrong(w,
		      "%s: message %" PRIu64 " of sender %" PRIu64 ", delivery %u, after %" PRIu64
		      ", though no consumer has gone",
		      channel_sorts[channel].name, m->number, n->sender, m->deliveries,
		      v->next - 1);
}

static void fate_received(struct worker *w, unsigned channel, const share_message *m,
			  const struct note *n)
{
	const struct channel_sort *sort = &channel_sorts[channel];
	struct sender_record *r = known(w, channel, n->sender);
	uint32_t bit, before;

	if (m->deliveries < 1 || m->deliveries > sort->deliveries) {
		wrong(w, "%s: delivery %u, of at most %u", sort->name, m->deliveries,
		      sort->deliveries);
		return;
	}
	if (!r)
		return;
	expect_in_order(w, channel, m, n, r);
	bit = UINT32_C(1) << m->deliveries;
	before = atomic_fetch_or(&r->fates[n->number % WINDOW], bit);
	if (before & (bit | ACKNOWLEDGED | SET_ASIDE))
		wrong(w, "%s: message %" PRIu64 " of sender %" PRIu64 ", delivery %u, %s",
		      sort->name, n->number, n->sender, m->deliveries,
		      before & SET_ASIDE      ? "was set aside"
		      : before & ACKNOWLEDGED ? "is acknowledged"
					      : "came before");
}

void view_receive(struct worker *w, unsigned channel, const share_message *m, const struct note *n)
{
	struct view *v = view_of(w, channel, n->sender);

	atomic_fetch_add(&w->board->received, 1);
	atomic_fetch_add(&w->board->again, m->deliveries > 1);
	atomic_fetch_add(&w->board->lost, m->lost);
	if (channel_sorts[channel].mode == SHARE_QUEUE)
		fate_received(w, channel, m, n);
	else if (v)
		follow_up(w, channel, v, m);
	if (!v)
		return;
	if (v->producer != 0 && v->producer != m->producer)
		wrong(w, "%s: sender %" PRIu64 " is producer %" PRIx64 " and %" PRIx64,
		      channel_sorts[channel].name, n->sender, v->producer, m->producer);
	v->producer = m->producer;
	v->next = m->number + 1;
}

/* ------------------------------------------------------------------------------------------- */
/* What becomes of messages in a queue                                                         */

static void mark_fate(struct worker *w, unsigned channel, uint64_t sender, uint64_t number,
		      uint32_t bit)
{
	struct sender_record *r = known(w, channel, sender);

	if (r && channel_sorts[channel].mode == SHARE_QUEUE)
		atomic_fetch_or(&r->fates[number % WINDOW], bit);
}

void fate_acknowledging(struct worker *w, unsigned channel, const struct loan *l)
{
	mark_fate(w, channel, l->note.sender, l->message.number, ACKNOWLEDGING);
}

/* Who has hung up may be too late: others may have it by now. */
void fate_acknowledged(struct worker *w, unsigned channel, const struct loan *l)
{
	if (!w->lost)
		mark_fate(w, channel, l->note.sender, l->message.number, ACKNOWLEDGED);
}

void fate_set_aside(struct worker *w, unsigned channel, const struct note *n)
{
	struct sender_record *r = known(w, channel, n->sender);
	uint32_t before;

	if (!r)
		return;
	before = atomic_fetch_or(&r->fates[n->number % WINDOW], SET_ASIDE);
	if (before & (ACKNOWLEDGED | SET_ASIDE))
		wrong(w, "%s: message %" PRIu64 " of sender %" PRIu64 ", set aside, %s",
		      channel_sorts[channel].name, n->number, n->sender,
		      before & SET_ASIDE ? "was so before" : "is acknowledged");
	atomic_fetch_add(&w->board->set_aside, 1);
}

uint64_t fate_settled(struct worker *w, unsigned channel, const struct sending *s)
{
	struct sender_record *r = record_of(w, channel, s->ordinal);
	uint64_t number = s->flushed;

	while (number < s->sent &&
	       atomic_load(&r->fates[number % WINDOW]) & (ACKNOWLEDGING | SET_ASIDE))
		number++;
	return number;
}

/* One delivery may be to somebody who is killed before it says so; and who is killed after it was
 * told that one was set aside has taken it with it. */
static bool is_missing(const struct channel_sort *sort, uint32_t fate)
{
	return !(fate & (ACKNOWLEDGING | SET_ASIDE | UINT32_C(3) << (sort->deliveries - 1)));
}

/* The last ones of a sender: of the older ones, what is known may be another one's. Who was killed
 * while it sent may have begun to write over the first of them. */
static uint64_t first_known(const struct sender_record *r)
{
	uint64_t done = atomic_load(&r->done);

	return done > WINDOW / 2 ? done - WINDOW / 2 : 0;
}

void fates_count(struct board *b, unsigned channel, bool tell, uint64_t *known, uint64_t *missing)
{
	const struct channel_sort *sort = &channel_sorts[channel];

	*known = *missing = 0;
	for (unsigned k = 0; k < SENDERS; k++) {
		const struct sender_record *r = &b->channels[channel].sender[k];

		for (uint64_t i = first_known(r); i < atomic_load(&r->done); i++) {
			uint32_t fate = atomic_load(&r->fates[i % WINDOW]);

			*known += 1;
			if (!is_missing(sort, fate))
				continue;
			*missing += 1;
			if (tell)
				fprintf(stderr,
					"  %s: message %" PRIu64 " of sender %" PRIu64
					" came to nobody (%#x)\n",
					sort->name, i, atomic_load(&r->ordinal) - 1, fate);
		}
	}
}
