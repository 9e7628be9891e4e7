/* SPDX-License-Identifier: MIT */

/*
 * Producers: they fill, send at once, and let go; and see to it that what they have sent to a queue
 * comes to an end, one way or the other.
 */

#include <inttypes.h>
#include <string.h>

#include "tests/themes/checker/traffic.h"

#define SEND_MS  3 /* everybody sends and receives, so nobody may wait for room for long */
#define AT_ONCE  4
#define TAIL_MAX (SHARE_MESSAGE_DATA_MAX - sizeof(struct note))

void send_open(struct worker *w, unsigned channel)
{
	const struct channel_sort *sort = &channel_sorts[channel];
	share_channel_options options = channel_options(channel);
	struct sending *s = &w->traffic->sending[channel];
	uint64_t departures;
	int r;

	options.stall_ms = sort->stall_ms;
	options.send_timeout_ms = SEND_MS;
	doing(w, ACTION_OPENING, 0);
	departures = record_departures(w->board, channel);
	r = share_channel_open(w->client, sort->name, SHARE_PRODUCER, &options, &s->channel);
	if (r == SHARE_EBUSY) /* many have died, and what they have sent is still there */
		return;
	if (r != 0)
		unexpected(w, "share_channel_open", r);
	s->ordinal = record_new(w, channel, departures);
	s->sent = s->flushed = 0;
}

void send_close(struct worker *w, unsigned channel)
{
	struct sending *s = &w->traffic->sending[channel];

	doing(w, ACTION_CLOSING, 0);
	share_channel_close(s->channel);
	s->channel = NULL;
}

/* ------------------------------------------------------------------------------------------- */

/* A note about @h, or about nothing, as the data of a message. */
static size_t write_data(struct worker *w, const struct sending *s, unsigned behind,
			 const struct held *h, unsigned n_buffers, unsigned char *data)
{
	struct note n;

	note_write(&n, w, s->ordinal, s->sent + behind);
	n.tail = (uint32_t)dice_roll(&w->dice, TAIL_MAX + 1);
	n.n_buffers = n_buffers;
	for (unsigned i = 0; i < n_buffers; i++) {
		n.buffers[i].serial = h[i].mark.serial;
		n.buffers[i].size = share_size(h[i].buffer);
	}
	if (n_buffers > 0) {
		n.owner = h->mark.owner;
		n.generation = h->mark.generation;
		n.fence = record(w, h->stream);
	}
	memcpy(data, &n, sizeof(n));
	note_seal(data);
	return note_size(&n);
}

/* Messages in a queue that nobody has acknowledged are counted only so far. */
static bool may_send(struct worker *w, unsigned channel, unsigned n)
{
	struct sending *s = &w->traffic->sending[channel];

	if (record_is_old(w, channel, s->ordinal)) {
		send_close(w, channel);
		return false;
	}
	if (channel_sorts[channel].mode != SHARE_QUEUE ||
	    channel_sorts[channel].when_full == SHARE_FULL_DROP)
		return true;
	send_is_flushed(w, channel);
	return s->sent + n - s->flushed <= WINDOW;
}

/* How many. */
static unsigned send_all(struct worker *w, unsigned channel, const share_outgoing *messages,
			 unsigned n, unsigned stream)
{
	struct sending *s = &w->traffic->sending[channel];
	void *on = NULL; /* data alone may be sent before this process uses the GPU */
	int r;

	for (unsigned i = 0; i < n; i++)
		on = messages[i].buffer || messages[i].n_buffers ? w->streams[stream] : on;
	record_sending(w, channel, s, n);
	doing(w, ACTION_SENDING, stream);
	if (n == 1 && messages->n_buffers == 0) {
		r = (messages->flags ? share_give : share_send)(
		    s->channel, messages->buffer, messages->data, messages->data_size, on);
		r = r == 0 ? 1 : r;
	} else {
		r = share_send_many(s->channel, messages, n, on);
	}
	if (r == 0 || r > (int)n || (r < 0 && r != SHARE_EAGAIN && r != SHARE_ETIMEDOUT))
		unexpected(w, "share_send", r);
	if (r > 0) {
		s->sent += (unsigned)r;
		atomic_fetch_add(&w->board->sent, (unsigned)r);
	}
	record_sent(w, channel, s);
	return r > 0 ? (unsigned)r : 0;
}

/* Sending and letting go may be one. */
static uint32_t any_flags(struct worker *w)
{
	return dice_hit(&w->dice, 40) ? SHARE_OUTGOING_GIVE : 0;
}

void send_held(struct worker *w, unsigned channel, const struct held *h)
{
	unsigned char data[SHARE_MESSAGE_DATA_MAX];
	share_outgoing message = {.size = sizeof(message), .buffer = h->buffer, .data = data};

	if (may_send(w, channel, 1)) {
		message.data_size = write_data(w, &w->traffic->sending[channel], 0, h, 1, data);
		message.flags = any_flags(w);
		if (send_all(w, channel, &message, 1, h->stream) > 0 && message.flags)
			return;
		if (dice_hit(&w->dice, 30)) {
			struct job *j = job_new(w, h->stream, h->buffer, &h->mark);

			j->how = "its own, sent";
			job_read(w, j);
		}
	}
	let_go(w, h->buffer, h->stream);
}

/* A new one, filled; false when there is no room. */
static bool make(struct worker *w, struct held *out, unsigned stream)
{
	int r;

	*out = (struct held){.stream = stream, .mark = {.owner = w->index, .generation = 1}};
	doing(w, ACTION_ALLOCATING, stream);
	r = share_alloc(w->pool, any_size(w), w->streams[stream], &out->buffer);
	if (r == SHARE_ENOMEM || r == SHARE_EAGAIN ||
	    (r == SHARE_EDEVICE && w->board->options.kill))
		return false;
	if (r != 0)
		unexpected(w, "share_alloc", r);
	out->mark.serial = new_serial(w);
	job_fill(w, job_new(w, stream, out->buffer, &out->mark));
	return true;
}

/* How many of up to @wanted there was room for. */
static unsigned make_several(struct worker *w, struct held *out, share_buffer **buffers,
			     unsigned wanted, unsigned stream)
{
	unsigned n = 0;

	while (n < wanted && make(w, &out[n], stream)) {
		buffers[n] = out[n].buffer;
		n++;
	}
	return n;
}

void send_some(struct worker *w, unsigned channel)
{
	unsigned n = dice_hit(&w->dice, 60) ? 1 : 1 + (unsigned)dice_roll(&w->dice, AT_ONCE);
	unsigned char data[AT_ONCE][SHARE_MESSAGE_DATA_MAX];
	unsigned stream = any_stream(w), made = 0, sent = 0, of_each[AT_ONCE];
	share_buffer *buffers[AT_ONCE][BUFFERS_MAX];
	struct held held[AT_ONCE][BUFFERS_MAX];
	share_outgoing messages[AT_ONCE];

	if (!may_send(w, channel, n))
		return;
	for (; made < n; made++) {
		unsigned wanted =
		    dice_hit(&w->dice, 10)
			? 0
			: 1 + (unsigned)dice_roll(&w->dice, channel_sorts[channel].buffers);

		of_each[made] = make_several(w, held[made], buffers[made], wanted, stream);
		if (of_each[made] < wanted && of_each[made] == 0)
			break;
		messages[made] = (share_outgoing){.size = sizeof(messages[0]), .data = data[made]};
		if (of_each[made] == 1)
			messages[made].buffer = buffers[made][0];
		messages[made].buffers = buffers[made];
		messages[made].n_buffers = of_each[made] > 1 ? of_each[made] : 0;
		messages[made].flags = of_each[made] > 0 ? any_flags(w) : 0;
		messages[made].data_size = write_data(w, &w->traffic->sending[channel], made,
						      held[made], of_each[made], data[made]);
	}
	if (made > 0)
		sent = send_all(w, channel, messages, made, stream);
	else
		traffic_make_room(w);
	for (unsigned i = 0; i < made; i++)
		for (unsigned k = 0; k < of_each[i] && !(i < sent && messages[i].flags); k++)
			let_go(w, held[i][k].buffer, stream);
}

/* ------------------------------------------------------------------------------------------- */

/* What it had is its sender's again. */
static void read_set_aside(struct worker *w, const share_message *m, const struct note *n,
			   unsigned stream)
{
	int r;

	if (!m->buffer)
		return;
	r = share_fence_synchronize(w->client, &n->fence, SHARE_WAIT_FOREVER);
	if (r != 0)
		unexpected(w, "share_fence_synchronize", r);
	for (uint32_t i = 0; i < m->n_buffers; i++) {
		struct mark mark = note_mark(n, i);
		struct job *j = job_new(w, stream, m->buffers[i], &mark);

		j->how = "taken back";
		job_read(w, j);
	}
}

static bool take_back(struct worker *w, unsigned channel)
{
	struct sending *s = &w->traffic->sending[channel];
	unsigned stream = any_stream(w);
	share_message m = SHARE_MESSAGE_INIT;
	struct note n;
	int r;

	doing(w, ACTION_TAKING_BACK, 0);
	r = share_channel_take_back(s->channel, &m);
	if (r == SHARE_EAGAIN)
		return false;
	if (r != 0)
		unexpected(w, "share_channel_take_back", r);
	if (note_check(w, channel, &m, &n)) {
		if (n.sender != s->ordinal)
			wrong(w, "%s: sender %" PRIu64 " took back a message of sender %" PRIu64,
			      channel_sorts[channel].name, s->ordinal, n.sender);
		fate_set_aside(w, channel, &n);
		read_set_aside(w, &m, &n, stream);
	}
	doing(w, ACTION_ACKNOWLEDGING, stream);
	r = share_ack(&m, w->streams[stream]);
	if (r != 0)
		unexpected(w, "share_ack", r);
	return true;
}

void send_take_back(struct worker *w, unsigned channel)
{
	if (channel_sorts[channel].mode == SHARE_QUEUE)
		while (take_back(w, channel))
			;
}

bool send_is_flushed(struct worker *w, unsigned channel)
{
	const struct channel_sort *sort = &channel_sorts[channel];
	share_channel_stats stats = SHARE_CHANNEL_STATS_INIT;
	struct sending *s = &w->traffic->sending[channel];
	int r;

	if (!s->channel || sort->mode != SHARE_QUEUE || sort->when_full == SHARE_FULL_DROP)
		return true;
	r = share_channel_get_stats(s->channel, &stats);
	if (r != 0)
		unexpected(w, "share_channel_get_stats", r);
	/* those that were set aside may be in flight no more */
	send_take_back(w, channel);
	s->flushed = fate_settled(w, channel, s);
	if (s->flushed < s->sent && stats.in_flight > 0)
		return false;
	if (s->flushed < s->sent)
		wrong(w,
		      "%s: message %" PRIu64 " of sender %" PRIu64
		      " is not in flight any more, "
		      "and nobody has acknowledged it",
		      sort->name, s->flushed, s->ordinal);
	return true;
}
