/* SPDX-License-Identifier: MIT */

/*
 * Members of a channel that come and go while one message of it is held. Somebody has to look after
 * that message for as long as it takes; whoever comes and goes meanwhile leaves nothing, so the
 * last one must not cost more than the first, neither in time nor in memory.
 *
 * To come and to go takes four requests of the broker (CHANNEL_OPEN, CHANNEL_READY, CHANNEL_SYNC
 * and CHANNEL_CLOSE), so the floor is four pings.
 */

#include <stdio.h>
#include <unistd.h>

#include <share/channel.h>

#include "bench/bench.h"

#define CHANNEL "churn"
#define SIZE    4096
#define PINGS   4
#define TENTHS  10 /* the first and the last one are compared */
#define MEBI    (1024.0 * 1024.0)

struct bench {
	share_client *client, *other;
	share_pool *pool;
	share_channel *producer, *holder;
	share_message held;
};

static share_channel *join(share_client *c, int role)
{
	share_channel *ch;

	must(share_channel_open(c, CHANNEL, role, NULL, &ch), "share_channel_open");
	return ch;
}

static void start(struct bench *b)
{
	share_buffer *buffer;

	must(share_connect("embedded", &b->client), "share_connect");
	must(share_connect(share_address(b->client), &b->other), "share_connect");
	must(share_pool_open(b->client, "default", &b->pool), "share_pool_open");
	b->producer = join(b->client, SHARE_PRODUCER);
	b->holder = join(b->client, SHARE_CONSUMER);
	must(share_alloc(b->pool, SIZE, NULL, &buffer), "share_alloc");
	must(share_send(b->producer, buffer, NULL, 0, NULL), "share_send");
	b->held = (share_message)SHARE_MESSAGE_INIT;
	must(share_recv(b->holder, -1, NULL, &b->held), "share_recv");
}

static void stop(struct bench *b)
{
	must(share_ack(&b->held, NULL), "share_ack");
	share_channel_close(b->producer);
	share_channel_close(b->holder);
	share_pool_close(b->pool);
	share_disconnect(b->other);
	share_disconnect(b->client);
}

static double memory(const struct bench *b)
{
	return resident((pid_t)broker_number(b->client, "pid")) + resident(getpid());
}

static void come_and_go(const struct bench *b, int role, uint32_t n, struct samples *out)
{
	for (uint32_t i = 0; i < n; i++) {
		double before = now_us();

		share_channel_close(join(b->other, role));
		if (out)
			samples_add(out, now_us() - before);
	}
}

static void ping(const struct bench *b, struct samples *out)
{
	for (int i = 0; i < 1000; i++) {
		double before = now_us();

		for (int k = 0; k < PINGS; k++)
			must(share_ping(b->other), "share_ping");
		samples_add(out, now_us() - before);
	}
}

static void report(const char *role, const char *what, const char *unit, double value, double floor,
		   double target)
{
	char name[64], words[160];

	snprintf(name, sizeof(name), "channel-churn.%s.%s", role, what);
	snprintf(words, sizeof(words), "%ss that come and go while a message is held: %s", role,
		 what);
	figure_report(&(struct figure){name, words, unit, value, floor, target});
}

/* The floor is measured each time, as this machine may have more to do by then. */
static double tenth(const struct bench *b, const char *name, const char *which, int role,
		    uint32_t n)
{
	struct samples value = {0}, floor = {0};
	double ratio;

	ping(b, &floor);
	come_and_go(b, role, n, &value);
	ratio = samples_median(&value) / samples_median(&floor);
	report(name, which, "us", samples_median(&value), samples_median(&floor), NONE);
	samples_deinit(&value);
	samples_deinit(&floor);
	return ratio;
}

static void measure(const struct bench *b, const char *name, int role, uint32_t n)
{
	double first = tenth(b, name, "first", role, n / TENTHS), before = memory(b), last;

	come_and_go(b, role, n / TENTHS * (TENTHS - 2), NULL);
	last = tenth(b, name, "last", role, n / TENTHS);
	report(name, "slowdown", "x", last / first, NONE, 1.2);
	report(name, "growth", "MiB", (memory(b) - before) / MEBI, NONE, 1);
}

void bench_channel_churn(const struct run *run)
{
	uint32_t n = run->quick ? 5000 : 100000;
	struct bench b = {0};

	start(&b);
	measure(&b, "consumer", SHARE_CONSUMER, n);
	measure(&b, "producer", SHARE_PRODUCER, n);
	stop(&b);
}
