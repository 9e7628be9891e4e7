/* SPDX-License-Identifier: MIT */

/*
 * Consumers: they read what they receive, and acknowledge it at once, or later, or keep the buffer;
 * in any order, on any of their streams. They leave while they still have messages, too.
 */

#include <inttypes.h>
#include <poll.h>

#include "tests/themes/checker/traffic.h"

#define AT_ONCE 3

void receive_open(struct worker *w, unsigned channel)
{
	share_channel_options options = channel_options(channel);
	struct receiving *c = &w->traffic->receiving[channel];
	int r;

	options.from = dice_hit(&w->dice, 50) ? SHARE_FROM_OLDEST : SHARE_FROM_NEWEST;
	c->latest = channel_sorts[channel].mode == SHARE_BROADCAST && dice_hit(&w->dice, 25);
	options.flags = c->latest ? SHARE_CHANNEL_LATEST : 0;
	doing(w, ACTION_OPENING, 0);
	r = share_channel_open(w->client, channel_sorts[channel].name, SHARE_CONSUMER, &options,
			       &c->channel);
	if (r == SHARE_EBUSY)
		return;
	if (r != 0)
		unexpected(w, "share_channel_open", r);
	view_open(w, channel);
}

/* A consumer that was closed goes with the last of its messages. */
static bool has_loans(const struct worker *w, const share_channel *handle)
{
	for (unsigned i = 0; i < w->traffic->n_loans; i++)
		if (w->traffic->loans[i].message.channel == handle)
			return true;
	return false;
}

void receive_close(struct worker *w, unsigned channel)
{
	struct receiving *c = &w->traffic->receiving[channel];
	bool goes = !has_loans(w, c->channel);

	record_leaving(w, channel);
	doing(w, ACTION_CLOSING, 0);
	share_channel_close(c->channel);
	c->channel = NULL;
	if (goes)
		record_left(w, channel);
}

/* ------------------------------------------------------------------------------------------- */

void receive_read(struct worker *w, struct loan *l)
{
	for (uint32_t i = 0; i < l->message.n_buffers; i++) {
		struct mark mark = note_mark(&l->note, i);
		struct job *j = job_new(w, l->stream, l->message.buffers[i], &mark);

		j->how = channel_sorts[l->channel].name;
		j->giver = l->note.fence;
		job_read(w, j);
	}
}

static void acknowledge(struct worker *w, struct loan *l)
{
	const share_channel *handle = l->message.channel;
	bool rejected = dice_hit(&w->dice, channel_sorts[l->channel].rejected);
	int r;

	if (rejected)
		record_rejecting(w, l->channel);
	else
		fate_acknowledging(w, l->channel, l);
	doing(w, ACTION_ACKNOWLEDGING, l->stream);
	r = rejected ? share_reject(&l->message, w->streams[l->stream])
		     : share_ack(&l->message, w->streams[l->stream]);
	if (r != 0)
		unexpected(w, rejected ? "share_reject" : "share_ack", r);
	if (l->message.channel)
		unexpected(w, "a message that was given up is its caller's", SHARE_EPROTO);
	if (rejected)
		atomic_fetch_add(&w->board->rejected, 1);
	else
		fate_acknowledged(w, l->channel, l);
	if (handle != w->traffic->receiving[l->channel].channel && !has_loans(w, handle))
		record_left(w, l->channel);
}

void receive_acknowledge(struct worker *w, unsigned loan)
{
	struct loan l = w->traffic->loans[loan];

	w->traffic->loans[loan] = w->traffic->loans[--w->traffic->n_loans];
	if (dice_hit(&w->dice, 50))
		receive_read(w, &l);
	acknowledge(w, &l);
}

/* Reads some of it once more when it is the channel's no longer, and lets that go after that. */
static void retain_and_acknowledge(struct worker *w, struct loan *l)
{
	share_buffer *kept[BUFFERS_MAX] = {NULL};
	uint32_t n = l->message.n_buffers;

	for (uint32_t i = 0; i < n; i++)
		if (n == 1 || dice_hit(&w->dice, 50))
			kept[i] = share_retain(l->message.buffers[i]);
	acknowledge(w, l);
	for (uint32_t i = 0; i < n; i++) {
		struct mark mark = note_mark(&l->note, i);
		struct job *j;

		if (!kept[i])
			continue;
		j = job_new(w, l->stream, kept[i], &mark);
		j->how = "kept beyond its message";
		j->giver = l->note.fence;
		j->held = kept[i];
		job_read(w, j);
	}
}

/* ------------------------------------------------------------------------------------------- */

static void use(struct worker *w, unsigned channel, const share_message *m, const struct note *n,
		unsigned stream)
{
	struct loan l = {.message = *m, .channel = channel, .stream = stream, .note = *n};

	receive_read(w, &l);
	if (m->buffer && dice_hit(&w->dice, 10))
		retain_and_acknowledge(w, &l);
	else if (w->traffic->n_loans < LOANS_MAX && dice_hit(&w->dice, 30))
		w->traffic->loans[w->traffic->n_loans++] = l;
	else
		acknowledge(w, &l);
}

/* All of a call, before anything is done with one of them that may take a while: who is killed has
 * said what it had. */
static void received(struct worker *w, unsigned channel, const share_message *messages,
		     unsigned stream, int number)
{
	struct note notes[AT_ONCE];
	bool sound[AT_ONCE];

	for (int i = 0; i < number; i++) {
		w->traffic->receiving[channel].received++;
		sound[i] = note_check(w, channel, &messages[i], &notes[i]);
		if (sound[i])
			view_receive(w, channel, &messages[i], &notes[i]);
	}
	for (int i = 0; i < number; i++)
		if (sound[i])
			use(w, channel, &messages[i], &notes[i], stream);
}

/* Some wait for the descriptor, as an event loop does. */
static void wait_for_descriptor(struct worker *w, unsigned channel)
{
	struct pollfd p = {.events = POLLIN};

	p.fd = share_channel_get_fd(w->traffic->receiving[channel].channel);
	if (p.fd < 0)
		unexpected(w, "share_channel_get_fd", p.fd);
	poll(&p, 1, 1);
}

bool receive_some(struct worker *w, unsigned channel, int timeout_ms)
{
	struct receiving *c = &w->traffic->receiving[channel];
	size_t wanted = dice_hit(&w->dice, 70) ? 1 : 1 + dice_roll(&w->dice, AT_ONCE);
	unsigned stream = any_stream(w);
	share_message m[AT_ONCE] = {SHARE_MESSAGE_INIT};
	struct sent_before before;
	int r;

	if (!c->channel)
		return false;
	view_look(w, channel, &before);
	doing(w, ACTION_RECEIVING, stream);
	for (size_t i = 0; i < AT_ONCE; i++)
		m[i].channel = NULL;
	if (wanted == 1)
		r = share_recv(c->channel, timeout_ms, w->streams[stream], m);
	else
		r = share_recv_many(c->channel, timeout_ms, w->streams[stream], m, wanted);
	if (r == 0 && wanted == 1)
		r = 1;
	if (r == 0 || r > (int)wanted)
		unexpected(w, "share_recv_many", r);
	switch (r) {
	case SHARE_EAGAIN:
	case SHARE_ETIMEDOUT:
		view_nothing(w, channel, &before);
		/* on a GPU, it may be one who asked never to have the host wait */
		if (r == SHARE_EAGAIN && timeout_ms > 0 && w->engine == &host_engine)
			unexpected(w, "share_recv did not wait", r);
		if (timeout_ms == 0 && dice_hit(&w->dice, 20))
			wait_for_descriptor(w, channel);
		return false;
	case SHARE_EBUSY:
		if (!c->latest || w->traffic->n_loans < 2)
			unexpected(w, "share_recv", r);
		return false;
	case SHARE_EOWNERDEAD:
	case SHARE_EPIPE:
		if (m[0].channel) {
			received(w, channel, m, stream, 1);
			return true;
		}
		view_nothing(w, channel, &before);
		return false;
	case SHARE_ESTALE:
		if (channel_sorts[channel].stall_ms == UINT32_MAX)
			unexpected(w, "share_recv", r);
		atomic_fetch_add(&w->board->stale, 1);
		receive_close(w, channel);
		return false;
	default:
		if (r < 0)
			unexpected(w, "share_recv", r);
	}
	received(w, channel, m, stream, r);
	return true;
}
