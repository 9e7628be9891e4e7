/* SPDX-License-Identifier: MIT */

/*
 * What each further consumer costs a producer. One process sends a buffer with 64 bytes of data to
 * 1 to 16 others, each of which is a process of its own.
 *
 * There may be fewer cores than processes; then the result would depend mainly on the scheduler. So
 * the processes take turns: the producer sends a number of messages while the consumers wait for a
 * word in memory, and not in share_recv(); then the consumers receive and acknowledge all of them
 * while the producer waits. What is measured is the time of share_send(), which also looks through
 * the acknowledgements of earlier messages, and the time that the library's own threads in the
 * producer's process use meanwhile. No send wakes anybody here: the system call for that takes many
 * times as long as the rest, and says nothing about the number of consumers ("channel.sleep"
 * measures it).
 */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <share/channel.h>

#include "bench/channel/channel.h"

#define POOL      "broadcast"
#define CONSUMERS 16
#define TURN      64 /* messages */

static const unsigned numbers[] = {1, 2, 4, 8, 16}; /* how many consumers */

#define N_NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

/* Memory that all of them share. */
struct board {
	_Alignas(64) _Atomic uint32_t go;    /* number of the turn that the consumers may take */
	_Alignas(64) _Atomic uint32_t taken; /* number of the turn that all of them have taken */
	_Alignas(64) _Atomic uint32_t n;     /* how many have taken the current turn */
};

struct crowd {
	struct board *board;
	struct other consumers[CONSUMERS];
	unsigned n; /* of them that there are */
	share_client *client;
	share_pool *pool;
	share_buffer *buffer;
};

/* Opens the channel for that number of consumers. Each number has a channel of its own, so that no
 * consumer of the one before has to leave first. */
static share_channel *open_channel(share_client *c, int role, unsigned consumers)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;
	char name[64];

	options.pool = POOL;
	options.depth = 2 * TURN;
	options.data_max = MESSAGE_SIZE;
	snprintf(name, sizeof(name), "bench/broadcast/%u", consumers);
	must(share_channel_open(c, name, role, &options, &ch), "share_channel_open");
	return ch;
}

/* ------------------------------------------------------------------------------------------- */
/* A consumer                                                                                  */

struct order {
	uint32_t consumers;
	uint32_t turns; /* turns of TURN messages each */
	uint32_t go;    /* number of the first turn */
};

static void receive_turn(share_channel *ch)
{
	static share_message messages[TURN] = {SHARE_MESSAGE_INIT};
	size_t n = 0;

	while (n < TURN) {
		int r = share_recv_many(ch, HANGS_MS, NULL, messages + n, TURN - n);

		must(r < 0 ? r : 0, "share_recv_many");
		n += (size_t)r;
	}
	must(share_ack_many(messages, n, NULL), "share_ack_many");
}

static void obey(share_client *c, struct board *board, const struct other *other,
		 const struct order *o)
{
	share_channel *ch = open_channel(c, SHARE_CONSUMER, o->consumers);

	other_done(other);
	for (uint32_t i = 0; i < o->turns; i++) {
		word_sleep(&board->go, o->go + i);
		receive_turn(ch);
		if (atomic_fetch_add(&board->n, 1) + 1 == o->consumers) {
			atomic_store(&board->n, 0);
			word_set(&board->taken, o->go + i);
		}
	}
	share_channel_close(ch);
}

static void serve(void *data)
{
	const struct crowd *c = data;
	const struct other *self = &c->consumers[c->n];
	share_client *client;
	struct order o;

	for (unsigned i = 0; i < c->n; i++) /* else those would see no end */
		close(c->consumers[i].socket);
	client = other_connect(self);
	while (other_is_asked(self, &o, sizeof(o)))
		obey(client, c->board, self, &o);
	share_disconnect(client);
}

/* ------------------------------------------------------------------------------------------- */
/* The producer                                                                                */

static double cpu_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Returns the CPU time of all threads of this process but the calling one. */
static double threads_ns(void)
{
	return cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Sends the messages of one turn. Returns the nanoseconds for each message. */
static double take_turn(struct crowd *c, share_channel *ch, uint32_t go)
{
	unsigned char data[MESSAGE_SIZE] = {0};
	double others = threads_ns(), start, took;

	start = now_us();
	for (uint32_t i = 0; i < TURN; i++) {
		memcpy(data, &i, sizeof(i));
		must(share_send(ch, c->buffer, data, sizeof(data), NULL), "share_send");
	}
	took = (now_us() - start) * 1000;
	word_set(&c->board->go, go);
	word_sleep(&c->board->taken, go);
	return (took + threads_ns() - others) / TURN;
}

static void measure(const struct run *run, struct crowd *c, unsigned consumers, struct series *out)
{
	uint32_t rounds = run->quick ? 3 : 21, n = run->quick ? 10 : 100;
	static uint32_t turns; /* taken so far */
	struct order o = {consumers, rounds * n + 1, turns + 1};
	share_channel *ch = open_channel(c->client, SHARE_PRODUCER, consumers);

	for (unsigned i = 0; i < consumers; i++) {
		other_tell(&c->consumers[i], &o, sizeof(o));
		other_wait(&c->consumers[i]);
	}
	take_turn(c, ch, ++turns); /* to warm up */
	for (uint32_t i = 0; i < rounds; i++) {
		for (uint32_t k = 0; k < n; k++)
			samples_add(&out->round, take_turn(c, ch, ++turns));
		series_end_round(out);
	}
	share_channel_close(ch);
}

static void report(struct series *s)
{
	struct figure f = {.unit = "ns", .floor = NONE, .target = NONE};
	double first = samples_median(&s[0].medians);
	char name[64], what[128];

	for (size_t i = 0; i < N_NUMBERS; i++) {
		snprintf(name, sizeof(name), "channel-broadcast.%u", numbers[i]);
		snprintf(what, sizeof(what), "share_send to %u consumers, each message",
			 numbers[i]);
		f.name = name;
		f.what = what;
		series_report_median(&s[i], NULL, &f);
	}
	/* The largest slope of all, so that no number of consumers lies above the line. */
	f.value = -INFINITY;
	for (size_t i = 1; i < N_NUMBERS; i++) {
		double slope = (samples_median(&s[i].medians) - first) / (numbers[i] - 1);

		if (slope > f.value)
			f.value = slope;
	}
	f.name = "channel-broadcast.slope";
	f.what = "of that, for each consumer after the first: the largest of them";
	f.target = 100;
	figure_report(&f);
}

static void set_up(struct crowd *c)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;

	must(share_connect("embedded", &c->client), "share_connect");
	options.kind = "host";
	must(share_pool_create(c->client, POOL, &options, &c->pool), "share_pool_create");
	must(share_alloc(c->pool, 4096, NULL, &c->buffer), "share_alloc");
	for (unsigned i = 0; i < CONSUMERS; i++)
		other_tell_address(&c->consumers[i], c->client);
}

void bench_channel_broadcast(const struct run *run)
{
	struct series series[N_NUMBERS] = {0};
	struct crowd c = {.board = shared_memory(sizeof(struct board))};

	for (; c.n < CONSUMERS; c.n++)
		other_start(&c.consumers[c.n], serve, &c);
	set_up(&c);
	for (size_t i = 0; i < N_NUMBERS; i++)
		measure(run, &c, numbers[i], &series[i]);
	report(series);
	for (size_t i = 0; i < N_NUMBERS; i++)
		series_deinit(&series[i]);
	for (unsigned i = 0; i < CONSUMERS; i++)
		other_end(&c.consumers[i]);
	must(share_release(c.buffer, NULL), "share_release");
	share_pool_close(c.pool);
	share_disconnect(c.client);
}
