/* SPDX-License-Identifier: MIT */

/*
 * What a message through a channel costs, compared with what two processes can do in bare memory
 * (channel_floor.c). The messages have 64 bytes and no buffer:
 *
 *   spin    there and back, while both sides look without a pause: on two cores
 *   sleep   there and back, while each side waits in share_recv(), which looks for a moment before
 *           it sleeps; on which cores the two run decides most of this, see rpc.c
 *   asleep  the same, but each side computes for so long before it sends that the other is asleep;
 *           that time is subtracted
 *   batch   in one direction, 64 at a time, while both sides look without a pause; and while both
 *           sleep when they have to wait
 *
 * Each message is received, copied out by the library, and acknowledged; the answer to a message is
 * sent before the message is acknowledged.
 */

#include <stdio.h>
#include <string.h>

#include "bench/channel/channel.h"

static const struct comparison {
	const char *name, *what;
	enum channel_way ours, floor;
	uint32_t n; /* messages in a sample */
	double target;
} comparisons[] = {
    {"spin", "64 bytes there and back, spinning; floor: bare shared memory", SPIN, SPIN_FLOOR, 2000,
     2},
    {"spin.words", "the same; floor: a number alone, in bare shared memory", SPIN, WORDS_FLOOR,
     2000, NONE},
    {"batch", "64 bytes one way, 64 at a time, spinning; floor: a bare ring", BATCHES, RING_FLOOR,
     64 * BATCH * 8, 1.5},
    {"batch.sleep", "the same, asleep when there is nothing to do; floor: the same", BATCHES_ASLEEP,
     RING_FLOOR, 64 * BATCH * 8, NONE},
};

#define N_COMPARISONS (sizeof(comparisons) / sizeof(comparisons[0]))

static const struct comparison sleeping[] = {
    {"sleep", "64 bytes there and back, waiting in share_recv; floor: futex", SLEEP, FUTEX_FLOOR,
     200, 1.3},
    {"asleep", "the same, surely asleep when it comes; floor: futex", ASLEEP, ASLEEP_FLOOR, 50,
     1.3},
};

#define N_SLEEPING (sizeof(sleeping) / sizeof(sleeping[0]))

struct figures {
	struct series ours, floor;
};

static void measure(const struct run *run, const struct channel_side *s, const struct comparison *c,
		    enum placement placement, struct figures *out)
{
	pid_t other = channel_sides_other(s);
	uint32_t n = run->quick ? c->n / 4 : c->n;
	int samples = run->quick ? 3 : 20;

	place(placement, &other, 1);
	channel_sides_time(s, c->floor, n); /* to warm up */
	channel_sides_time(s, c->ours, n);
	for (int i = 0; i < samples; i++) {
		samples_add(&out->floor.round, channel_sides_time(s, c->floor, n));
		samples_add(&out->ours.round, channel_sides_time(s, c->ours, n));
	}
	series_end_round(&out->floor);
	series_end_round(&out->ours);
}

static void report(const struct comparison *c, enum placement placement, struct figures *figures)
{
	/* Without a placement, the measurement and its floor may run on different cores, so their
	 * ratio has no target. */
	struct figure f = {.unit = "ns", .target = placement == ANYWHERE ? NONE : c->target};
	char name[64], what[256];

	snprintf(name, sizeof(name), "channel.%s%s", c->name, placement_names[placement].suffix);
	snprintf(what, sizeof(what), "%s; %s", c->what, placement_names[placement].words);
	f.name = name;
	f.what = what;
	series_report_median(&figures->ours, &figures->floor, &f);
	if (c->ours == BATCHES) { /* it is enough to meet one of the two targets */
		strcat(name, ".each");
		f.what = "the same, without a floor: 5 million messages a second";
		f.target = 200;
		series_report_median(&figures->ours, NULL, &f);
	}
	series_deinit(&figures->ours);
	series_deinit(&figures->floor);
}

static int rounds(const struct run *run)
{
	return run->quick ? 3 : 21;
}

static void measure_awake(const struct run *run, const struct channel_side *s)
{
	struct figures figures[N_COMPARISONS] = {0};
	pid_t other = channel_sides_other(s);

	if (!place(APART, &other, 1)) {
		skip("channel.spin", APART);
		skip("channel.batch", APART);
		return;
	}
	for (int i = 0; i < rounds(run); i++)
		for (size_t k = 0; k < N_COMPARISONS; k++)
			measure(run, s, &comparisons[k], APART, &figures[k]);
	for (size_t k = 0; k < N_COMPARISONS; k++)
		report(&comparisons[k], APART, &figures[k]);
}

static void measure_asleep(const struct run *run, const struct channel_side *s)
{
	pid_t other = channel_sides_other(s);

	for (enum placement k = ANYWHERE; k < PLACEMENTS; k++) {
		struct figures figures[N_SLEEPING] = {0};

		if (!place(k, &other, 1)) {
			skip("channel.sleep", k);
			continue;
		}
		for (int i = 0; i < rounds(run); i++)
			for (size_t j = 0; j < N_SLEEPING; j++)
				measure(run, s, &sleeping[j], k, &figures[j]);
		for (size_t j = 0; j < N_SLEEPING; j++)
			report(&sleeping[j], k, &figures[j]);
	}
	place(ANYWHERE, &other, 1);
}

void bench_channel(const struct run *run)
{
	struct channel_side *s = channel_sides_start();

	measure_awake(run, s);
	measure_asleep(run, s);
	channel_sides_stop(s);
}
