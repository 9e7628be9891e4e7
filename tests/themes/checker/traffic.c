/* SPDX-License-Identifier: MIT */

/*
 * Channels of every sort, each worker taking part in them as it likes: what it does next, and how
 * it ends.
 */

#include <stdlib.h>
#include <time.h>

#include "tests/harness/status.h"
#include "tests/themes/checker/traffic.h"

/* Small, so that they are full often. Only on the hasty one is somebody left behind. */
const struct channel_sort channel_sorts[CHANNELS] = {
    {"checker/frames", SHARE_BROADCAST, SHARE_FULL_BLOCK, 8, 16, 0, UINT32_MAX, 5, 0, 1},
    {"checker/latest", SHARE_BROADCAST, SHARE_FULL_DROP, 4, 24, 0, UINT32_MAX, 3, 0, 3},
    {"checker/hasty", SHARE_BROADCAST, SHARE_FULL_FAIL, 4, 12, 0, 20, 0, 0, 2},
    {"checker/jobs", SHARE_QUEUE, SHARE_FULL_BLOCK, 8, 24, 3, UINT32_MAX, 0, 5, 3},
    {"checker/tries", SHARE_QUEUE, SHARE_FULL_FAIL, 4, 12, 1, UINT32_MAX, 0, 0, 1},
    {"checker/recent", SHARE_QUEUE, SHARE_FULL_DROP, 4, 24, 3, UINT32_MAX, 0, 5, 3},
};

share_channel_options channel_options(unsigned channel)
{
	const struct channel_sort *sort = &channel_sorts[channel];
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;

	options.pool = "checker";
	options.mode = sort->mode;
	options.when_full = sort->when_full;
	options.depth = sort->depth;
	options.in_flight = sort->in_flight;
	options.history = sort->history;
	options.deliveries = sort->deliveries;
	options.buffers = sort->buffers;
	return options;
}

bool channel_is_counted(unsigned channel)
{
	return channel_sorts[channel].mode == SHARE_QUEUE &&
	       channel_sorts[channel].when_full != SHARE_FULL_DROP &&
	       channel_sorts[channel].deliveries > 1;
}

struct traffic *traffic_new(void)
{
	struct traffic *t = calloc(1, sizeof(*t));

	if (!t)
		abort();
	return t;
}

static unsigned any_channel(struct worker *w)
{
	return (unsigned)dice_roll(&w->dice, CHANNELS);
}

void traffic_step(struct worker *w)
{
	struct traffic *t = w->traffic;
	unsigned channel = any_channel(w);
	uint64_t what = dice_roll(&w->dice, 100);

	if (dice_hit(&w->dice, 10)) {
		deserted_step(w);
	} else if (what < 40) {
		if (!t->sending[channel].channel)
			send_open(w, channel);
		else
			send_some(w, channel);
	} else if (what < 80) {
		if (!t->receiving[channel].channel)
			receive_open(w, channel);
		else
			receive_some(w, channel, (int)dice_roll(&w->dice, 3));
	} else if (what < 94) {
		if (t->n_loans > 0)
			receive_acknowledge(w, (unsigned)dice_roll(&w->dice, t->n_loans));
	} else if (what < 96) {
		if (t->sending[channel].channel)
			send_take_back(w, channel);
	} else if (what < 98) {
		if (t->sending[channel].channel)
			send_close(w, channel);
	} else if (t->receiving[channel].channel) {
		receive_close(w, channel);
	}
}

bool traffic_give(struct worker *w, const struct held *h)
{
	unsigned first = any_channel(w);

	for (unsigned i = 0; i < CHANNELS; i++) {
		unsigned channel = (first + i) % CHANNELS;

		if (!w->traffic->sending[channel].channel)
			continue;
		send_held(w, channel, h);
		return true;
	}
	return false;
}

/* What is on its way, and what was received. */
bool traffic_make_room(struct worker *w)
{
	unsigned channel = any_channel(w);

	if (w->board->options.channels == 0)
		return false;
	if (w->traffic->n_loans > 0)
		receive_acknowledge(w, (unsigned)dice_roll(&w->dice, w->traffic->n_loans));
	else if (!w->traffic->receiving[channel].channel)
		receive_open(w, channel);
	else
		return receive_some(w, channel, 0);
	return true;
}

void traffic_use(struct worker *w)
{
	for (unsigned i = 0; i < w->traffic->n_loans; i++)
		receive_read(w, &w->traffic->loans[i]);
}

/* ------------------------------------------------------------------------------------------- */

static void acknowledge_all(struct worker *w)
{
	while (w->traffic->n_loans > 0)
		receive_acknowledge(w, w->traffic->n_loans - 1);
}

/* In queues, of producers that are gone. */
static bool nothing_is_left(struct worker *w)
{
	json_t *rows = report(w->client, "channels"), *row;
	int64_t n = 0;
	size_t i;

	json_array_foreach (rows, i, row)
		n += number_of(row, "waiting") + number_of(row, "owned") +
		     number_of(row, "producers");
	json_decref(rows);
	for (i = 0; i < CHANNELS; i++)
		n -= channel_is_counted((unsigned)i); /* main.c has a producer of each */
	return n == 0;
}

/* What this worker has sent to queues must be dealt with, and it may well be the last one there; or
 * it is, and what others have sent must be. */
static void flush(struct worker *w)
{
	bool flushed = false;

	while (!flushed) {
		flushed = true;
		for (unsigned i = 0; i < CHANNELS; i++) {
			doing(w, ACTION_FLUSHING, i);
			if (!w->traffic->receiving[i].channel)
				receive_open(w, i);
			while (receive_some(w, i, 0))
				progress(w);
			acknowledge_all(w);
			flushed = send_is_flushed(w, i) && flushed;
		}
		jobs_reap(w);
		if (atomic_load(&w->board->last))
			flushed = nothing_is_left(w);
		if (!flushed)
			nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
	}
}

void traffic_end(struct worker *w)
{
	acknowledge_all(w);
	deserted_end(w);
	if (!w->lost && w->board->options.channels > 0 && atomic_load(&w->board->wrong) == 0)
		flush(w);
	for (unsigned i = 0; i < CHANNELS; i++) {
		if (w->traffic->sending[i].channel)
			send_close(w, i);
		if (w->traffic->receiving[i].channel)
			receive_close(w, i);
	}
	free(w->traffic);
	w->traffic = NULL;
}
