/* SPDX-License-Identifier: MIT */

/*
 * What a call of a service costs, compared with a round trip through two channels: 64 bytes in each
 * direction, while both sides spin (on two cores), and while both wait in the library.
 */

#include <stdio.h>

#include "bench/channel/channel.h"

struct comparison {
	const char *name, *what;
	enum channel_way ours, floor;
	uint32_t n; /* calls in a sample */
};

static const struct comparison spinning = {
    "call.spin", "a call with 64 bytes both ways, spinning; floor: the same through two channels",
    CALLS_SPIN, SPIN, 2000};
static const struct comparison sleeping = {
    "call.sleep", "the same, waiting in the library; floor: the same through two channels", CALLS,
    SLEEP, 200};

static void measure(const struct run *run, const struct channel_side *s, const struct comparison *c,
		    enum placement placement)
{
	int rounds = run->quick ? 3 : 21, samples = run->quick ? 3 : 20;
	struct series call = {0}, trip = {0};
	pid_t other = channel_sides_other(s);
	char name[64], what[256];

	if (!place(placement, &other, 1)) {
		skip(c->name, placement);
		return;
	}
	for (int i = 0; i < rounds; i++) {
		place(placement, &other, 1);
		channel_sides_time(s, c->floor, c->n); /* to warm up */
		channel_sides_time(s, c->ours, c->n);
		for (int k = 0; k < samples; k++) {
			samples_add(&trip.round, channel_sides_time(s, c->floor, c->n));
			samples_add(&call.round, channel_sides_time(s, c->ours, c->n));
		}
		series_end_round(&trip);
		series_end_round(&call);
	}
	snprintf(name, sizeof(name), "%s%s", c->name, placement_names[placement].suffix);
	snprintf(what, sizeof(what), "%s; %s", c->what, placement_names[placement].words);
	series_report_median(
	    &call, &trip,
	    &(struct figure){.name = name, .what = what, .unit = "ns", .target = NONE});
	series_deinit(&call);
	series_deinit(&trip);
}

void bench_call(const struct run *run)
{
	struct channel_side *s = channel_sides_start();

	measure(run, s, &spinning, APART);
	for (enum placement k = ANYWHERE; k < PLACEMENTS; k++)
		measure(run, s, &sleeping, k);
	channel_sides_stop(s);
}
