/* SPDX-License-Identifier: MIT */

/*
 * What a bridge costs: two brokers, two bridges on the loopback device, and this process as client
 * of both brokers, so one clock sees both ends.
 *
 * Throughput: buffers are published here, all at once, and waited for over there. Their pages were
 * used before, on both sides, as those of a program that has run for a while; ucx_perftest sends
 * the same memory again and again, too. The time ends when the last of them has been published over
 * there. Every byte is compared then, which is not measured.
 *
 * Latency: a message of 64 bytes through a channel that is mirrored, from share_send() to
 * share_recv(). Everybody sleeps until something comes, as ucx_perftest is told to.
 *
 * A bridge shares its processors with everybody. So it is also measured what it uses of them.
 */

#include <stdio.h>

#include <share/channel.h>

#include "bench/bench.h"
#include "bench/bridge/bridge_pair.h"

#define CHANNEL "bench/messages"
#define BUFFERS 16 /* of 4 MiB, under way at a time */
#define MESSAGE 64
#define MIB     BRIDGE_MIB

/* What is measured of buffers of one size. */
struct load {
	const char *name; /* of the figures: "4MiB" */
	uint64_t size;
	unsigned buffers; /* at a time */
	unsigned rounds;
	unsigned messages; /* of the floors, in a round */
	bool puts;         /* that floor, too: over TCP it takes minutes if they are large */
};

static void report(const char *load, const char *suffix, const char *what, const char *unit,
		   double value, double floor, double target)
{
	char name[64];

	snprintf(name, sizeof(name), "bridge.%s%s", load, suffix);
	figure_report(
	    &(struct figure){name, what, unit, value, floor, isnan(floor) ? NONE : target});
}

static double median_or_none(struct samples *s)
{
	double value = s->n > 0 ? samples_median(s) : NONE;

	samples_deinit(s);
	return value;
}

static void add(struct samples *s, double value)
{
	if (!isnan(value))
		samples_add(s, value);
}

/* On a busy machine it is faster when it sleeps, else when it polls. */
static double fastest(const char *test, uint64_t size, unsigned n, unsigned how)
{
	return fmin(bridge_perftest(NULL, test, size, n, how),
		    bridge_perftest(NULL, test, size, n, how | BRIDGE_ASLEEP));
}

/* What UCX needs for each of the buffers if they are one message: it is told of nothing in between,
 * and it reads and writes as much memory in turn as a bridge does. */
static double as_one(const struct load *l)
{
	return fastest("ucp_am_bw", l->size * l->buffers, l->messages / l->buffers + 1,
		       BRIDGE_ERRORS) /
	       l->buffers;
}

/* The ratio is one of times: what 0.9 times the throughput takes is 1.11 times the time. */
static void measure_load(struct bridge_pair *p, const struct load *l)
{
	struct samples own = {0}, own_cpu = {0}, am = {0}, errors = {0}, stream = {0}, put = {0},
		       tag = {0}, tcp = {0}, tcp_cpu = {0};
	share_buffer *buffers[BUFFERS];
	double value, kib = (double)l->size / 1024;
	char what[128];

	for (unsigned i = 0; i < l->buffers; i++)
		must(share_alloc(p->here.pool, l->size, NULL, &buffers[i]), "share_alloc");
	for (unsigned r = 0; r < 2; r++)
		bridge_pair_send(p, l->name, buffers, l->buffers,
				 r); /* both versions that there are at a time have pages */
	for (unsigned r = 0; r < l->rounds; r++) {
		struct bridge_cost cost =
		    bridge_pair_send(p, l->name, buffers, l->buffers, 100 * (r + 1));
		struct bridge_cost floor = bridge_tcp(l->size, l->messages);

		add(&own, cost.us);
		add(&own_cpu, cost.cpu_us);
		add(&tcp, floor.us);
		add(&tcp_cpu, floor.cpu_us);
		add(&am, fastest("ucp_am_bw", l->size, l->messages, 0));
		add(&errors, fastest("ucp_am_bw", l->size, l->messages, BRIDGE_ERRORS));
		if (l->buffers > 1)
			add(&stream, as_one(l));
		add(&tag, fastest("tag_bw", l->size, l->messages, 0));
		if (put.n == 0 && l->puts) /* it takes long, so once */
			add(&put, fastest("ucp_put_bw", l->size, l->messages / 10 + 1, 0));
	}
	for (unsigned i = 0; i < l->buffers; i++)
		must(share_release(buffers[i], NULL), "share_release");
	value = median_or_none(&own);
	snprintf(what, sizeof(what), "a buffer, published to published: %.0f MiB/s; ucp_am_bw",
		 (double)l->size / (double)MIB / value * 1e6);
	report(l->name, "", what, "us", value, median_or_none(&am), 1 / 0.9);
	report(l->name, ".errors",
	       "the same; ucp_am_bw with error handling (-e), as a bridge has it", "us", value,
	       median_or_none(&errors), NONE);
	if (l->buffers > 1)
		report(l->name, ".stream",
		       "the same; ucp_am_bw -e of all of them as one message, for each", "us",
		       value, median_or_none(&stream), NONE);
	report(l->name, ".tag", "the same; tag_bw", "us", value, median_or_none(&tag), NONE);
	if (l->puts)
		report(l->name, ".put", "the same; ucp_put_bw", "us", value, median_or_none(&put),
		       NONE);
	report(l->name, ".tcp", "the same; TCP from memfd to memfd", "us", value,
	       median_or_none(&tcp), NONE);
	report(l->name, ".cpu", "processor time for a KiB, both bridges; both ends of TCP", "ns",
	       median_or_none(&own_cpu) * 1e3 / kib, median_or_none(&tcp_cpu) * 1e3 / kib, NONE);
}

/* ------------------------------------------------------------------------------------------- */
/* Messages                                                                                    */

static double one_way(share_channel *out, share_channel *in)
{
	unsigned char data[MESSAGE] = {0};
	share_message m = SHARE_MESSAGE_INIT;
	double begin = now_us();

	must(share_send(out, NULL, data, sizeof(data), NULL), "share_send");
	must(share_recv(in, HANGS_MS, NULL, &m), "share_recv");
	begin = now_us() - begin;
	must(share_ack(&m, NULL), "share_ack");
	return begin;
}

/* The bridge makes it, when it has heard of the channel. */
static share_channel *open_mirror(struct bridge_pair *p)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	double end = now_us() + HANGS_MS * 1e3;
	share_channel *in;
	int r;

	options.flags = SHARE_CHANNEL_EXISTING;
	while ((r = share_channel_open(p->there.client, CHANNEL, SHARE_CONSUMER, &options, &in)) ==
		   SHARE_ENOENT &&
	       now_us() < end) {
		bridge_pair_must_live(p);
		pause_us(10000);
	}
	must(r, "opening the mirror of a channel");
	return in;
}

static void measure_messages(struct bridge_pair *p, const struct run *run)
{
	unsigned rounds = run->quick ? 3 : 15, n = run->quick ? 200 : 2000;
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	struct series own = {0};
	struct samples asleep = {0}, polls = {0}, cpu = {0};
	share_channel *out, *in;
	double value, before;

	options.pool = BRIDGE_POOL;
	options.mode = SHARE_QUEUE; /* so the first message waits until the bridge has come */
	must(share_channel_open(p->here.client, CHANNEL, SHARE_PRODUCER, &options, &out),
	     "share_channel_open");
	in = open_mirror(p);
	for (unsigned i = 0; i < n; i++)
		one_way(out, in);
	for (unsigned r = 0; r < rounds; r++) {
		before = bridge_pair_cpu_us(p);
		for (unsigned i = 0; i < n; i++)
			samples_add(&own.round, one_way(out, in));
		samples_add(&cpu, (bridge_pair_cpu_us(p) - before) / n);
		series_end_round(&own);
		add(&asleep, bridge_perftest(NULL, "ucp_am_lat", MESSAGE, n, BRIDGE_ASLEEP));
		add(&polls, bridge_perftest(NULL, "ucp_am_lat", MESSAGE, n, 0));
	}
	share_channel_close(in);
	share_channel_close(out);
	value = samples_median(&own.medians);
	report("message", "", "64 B, sent to received; ucp_am_lat asleep", "us", value,
	       median_or_none(&asleep), 1.5);
	report("message", ".polling", "the same; ucp_am_lat that polls", "us", value,
	       median_or_none(&polls), NONE);
	report("message", ".p99", "the same", "us", samples_median(&own.p99s), NONE, NONE);
	report("message", ".cpu", "processor time for a message, both bridges", "us",
	       median_or_none(&cpu), NONE, NONE);
	series_deinit(&own);
}

void bench_bridge(const struct run *run)
{
	const struct load small = {
	    "4MiB", 4 * MIB, BUFFERS, run->quick ? 3 : 15, run->quick ? 50 : 200, true};
	const struct load large = {run->quick ? "256MiB" : "1GiB",
				   (run->quick ? 256 : 1024) * MIB,
				   1,
				   run->quick ? 2 : 5,
				   run->quick ? 4 : 3,
				   !run->quick};
	const struct bridge_setup setup = {
	    .kind = "host", .gpu = "staged", .channel = CHANNEL, .room = 2 * large.size};
	struct bridge_pair p = {.arrived = 0};

	if (!bridge_pair_find(&p)) {
		fprintf(stderr, "bridge: SKIPPED: there is no share-bridge beside this program\n");
		return;
	}
	bridge_transport();
	if (isnan(bridge_perftest(NULL, "ucp_am_lat", MESSAGE, 10, 0)))
		fprintf(stderr,
			"bridge: there is no ucx_perftest (package ucx-utils) that works: its "
			"figures are missing\n");
	must(bridge_pair_open(&p, &setup), "the pools of a bridge");
	measure_load(&p, &small);
	measure_load(&p, &large);
	measure_messages(&p, run);
	bridge_pair_close(&p);
}
