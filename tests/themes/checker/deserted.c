/* SPDX-License-Identifier: MIT */

/*
 * A broadcast of this worker alone, whose consumers come and go with messages in hand: so it knows
 * exactly what each has to get. What is sent while there is none waits for the next one, as far as
 * there is room, and the next one is told how many were dropped; what the last one has not received
 * when it leaves goes to nobody; what it has it acknowledges when others have long come and gone.
 */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/themes/checker/traffic.h"

#define DEPTH     4
#define IN_FLIGHT 12 /* places for these are never what is missing */

static void open_as(struct worker *w, int role, share_channel **out)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	char name[64];
	int r;

	snprintf(name, sizeof(name), "checker/deserted/%ld", (long)getpid());
	options.pool = "checker";
	options.when_full = SHARE_FULL_FAIL;
	options.depth = DEPTH;
	options.in_flight = IN_FLIGHT;
	options.stall_ms = UINT32_MAX;
	doing(w, ACTION_OPENING, 0);
	r = share_channel_open(w->client, name, role, &options, out);
	if (r != 0)
		unexpected(w, "share_channel_open", r);
}

static void leave(struct worker *w)
{
	struct deserted *d = &w->traffic->deserted;

	doing(w, ACTION_CLOSING, 0);
	share_channel_close(d->consumer);
	d->consumer = NULL;
	d->next = d->sent;
}

static void acknowledge(struct worker *w, unsigned i)
{
	struct deserted *d = &w->traffic->deserted;
	int r;

	doing(w, ACTION_ACKNOWLEDGING, 0);
	r = share_ack(&d->held[i], NULL);
	if (r != 0)
		unexpected(w, "share_ack", r);
	d->held[i] = d->held[--d->n_held];
}

static void send(struct worker *w)
{
	struct deserted *d = &w->traffic->deserted;
	uint64_t waiting = d->sent - d->next;
	int r;

	doing(w, ACTION_SENDING, 0);
	r = share_send(d->producer, NULL, &d->sent, sizeof(d->sent), NULL);
	if (r != (waiting < DEPTH || !d->consumer ? 0 : SHARE_EAGAIN))
		wrong(w,
		      "a broadcast of %u with %" PRIu64
		      " messages that nobody has received, and "
		      "%s consumer, says %s to one more",
		      DEPTH, waiting, d->consumer ? "a" : "no", share_strerror(r));
	d->sent += r == 0;
	if (r == 0 && waiting == DEPTH) {
		d->next++;
		d->lost++;
	}
}

static void receive(struct worker *w)
{
	struct deserted *d = &w->traffic->deserted;
	bool is_due = d->next < d->sent;
	uint64_t number = UINT64_MAX;
	share_message m = SHARE_MESSAGE_INIT;
	int r;

	doing(w, ACTION_RECEIVING, 0);
	r = share_recv(d->consumer, is_due ? SHARE_WAIT_FOREVER : 0, NULL, &m);
	if (r != (is_due ? 0 : SHARE_EAGAIN))
		unexpected(w, "share_recv", r);
	if (r != 0)
		return;
	if (m.data_size == sizeof(number))
		memcpy(&number, m.data, sizeof(number));
	if (number != d->next || m.number != number)
		wrong(w,
		      "a broadcast: the only consumer got message %" PRIu64 ", with %" PRIu64
		      " in it, where %" PRIu64 " is the next",
		      m.number, number, d->next);
	if (m.lost != d->lost)
		wrong(w,
		      "a broadcast: message %" PRIu64 " comes with %" PRIu64
		      " that were lost before it, and not %" PRIu64,
		      m.number, m.lost, d->lost);
	d->next++;
	d->lost = 0;
	d->held[d->n_held++] = m;
	if (d->n_held == DESERTED_HELD || dice_hit(&w->dice, 20))
		acknowledge(w, (unsigned)dice_roll(&w->dice, d->n_held));
	if (dice_hit(&w->dice, 50)) {
		leave(w);
		if (dice_hit(&w->dice, 50))
			send(w); /* before anybody else has noticed that */
	}
}

void deserted_step(struct worker *w)
{
	struct deserted *d = &w->traffic->deserted;
	uint64_t what = dice_roll(&w->dice, 100);

	if (!d->producer)
		open_as(w, SHARE_PRODUCER, &d->producer);
	if (what < 45)
		send(w);
	else if (what < 75 && !d->consumer)
		open_as(w, SHARE_CONSUMER, &d->consumer);
	else if (what < 75)
		receive(w);
	else if (d->n_held > 0)
		acknowledge(w, (unsigned)dice_roll(&w->dice, d->n_held));
}

void deserted_end(struct worker *w)
{
	struct deserted *d = &w->traffic->deserted;

	while (d->n_held > 0)
		acknowledge(w, 0);
	if (d->consumer)
		leave(w);
	if (d->producer)
		share_channel_close(d->producer);
}
