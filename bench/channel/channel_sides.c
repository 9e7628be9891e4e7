/* SPDX-License-Identifier: MIT */

/*
 * The two processes of the benchmarks "channel" and "call", and what they do together: through
 * channels, through a service, and through bare memory for the floors.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/service.h>

#include "bench/channel/channel.h"

#define POOL "channel"

enum channel { THERE, BACK, STREAM, BLOCKING, CHANNELS };

static const struct {
	const char *name;
	bool from_first; /* the first process is its producer */
	uint32_t depth, when_full;
} shapes[CHANNELS] = {
    [THERE] = {"bench/there", true, 64, SHARE_FULL_BLOCK},
    [BACK] = {"bench/back", false, 64, SHARE_FULL_BLOCK},
    [STREAM] = {"bench/stream", true, RING_SIZE, SHARE_FULL_FAIL},
    [BLOCKING] = {"bench/blocking", true, RING_SIZE, SHARE_FULL_BLOCK},
};

struct order {
	uint32_t way;
	uint32_t n;
};

/* One of the two processes. */
struct channel_side {
	struct other other;
	share_client *client;
	share_pool *pool;
	share_channel *channels[CHANNELS];
	share_service *service; /* the first process is its caller */
	struct channel_floor *floor;
};

static void open_channels(struct channel_side *s, bool first)
{
	share_service_options service = SHARE_SERVICE_OPTIONS_INIT;

	for (int k = 0; k < CHANNELS; k++) {
		share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;

		options.pool = POOL;
		options.depth = shapes[k].depth;
		options.when_full = shapes[k].when_full;
		must(share_channel_open(s->client, shapes[k].name,
					shapes[k].from_first == first ? SHARE_PRODUCER
								      : SHARE_CONSUMER,
					&options, &s->channels[k]),
		     "share_channel_open");
	}
	service.pool = POOL;
	must(share_service_open(s->client, "bench/service", first ? SHARE_CALLER : SHARE_WORKER,
				&service, &s->service),
	     "share_service_open");
}

static void close_channels(struct channel_side *s)
{
	share_service_close(s->service);
	for (int k = 0; k < CHANNELS; k++)
		share_channel_close(s->channels[k]);
}

/* ------------------------------------------------------------------------------------------- */
/* Messages                                                                                    */

static void send_one(share_channel *ch, uint32_t turn)
{
	unsigned char data[MESSAGE_SIZE] = {0};

	memcpy(data, &turn, sizeof(turn));
	must(share_send(ch, NULL, data, sizeof(data), NULL), "share_send");
}

static void expect(const share_message *m, uint32_t turn)
{
	if (m->data_size == MESSAGE_SIZE && memcmp(m->data, &turn, sizeof(turn)) == 0)
		return;
	fprintf(stderr, "share-bench: message %u is not what was sent\n", turn);
	exit(1);
}

static void receive_one(share_channel *ch, bool spin, uint32_t turn, share_message *m)
{
	int r;

	do
		r = share_recv(ch, spin ? 0 : HANGS_MS, NULL, m);
	while (spin && r == SHARE_EAGAIN);
	must(r, "share_recv");
	expect(m, turn);
}

static void ack_one(share_message *m)
{
	must(share_ack(m, NULL), "share_ack");
}

static void play_trips(const struct channel_side *s, enum channel_way way, uint32_t n)
{
	bool spin = way == SPIN;
	share_message m = SHARE_MESSAGE_INIT;

	for (uint32_t i = 0; i < n; i++) {
		if (way == ASLEEP)
			think();
		send_one(s->channels[THERE], i);
		receive_one(s->channels[BACK], spin, i, &m);
		ack_one(&m);
	}
}

static void answer_trips(const struct channel_side *s, enum channel_way way, uint32_t n)
{
	bool spin = way == SPIN;
	share_message m = SHARE_MESSAGE_INIT;

	for (uint32_t i = 0; i < n; i++) {
		receive_one(s->channels[THERE], spin, i, &m);
		if (way == ASLEEP)
			think();
		send_one(s->channels[BACK], i);
		ack_one(&m);
	}
}

static void play_calls(const struct channel_side *s, bool spin, uint32_t n)
{
	unsigned char data[MESSAGE_SIZE] = {0};
	share_pending *call;
	share_message m = SHARE_MESSAGE_INIT;
	int r;

	for (uint32_t i = 0; i < n; i++) {
		memcpy(data, &i, sizeof(i));
		must(share_call_start(s->service, NULL, data, sizeof(data), HANGS_MS, NULL, &call),
		     "share_call_start");
		do
			r = share_call_finish(call, spin ? 0 : HANGS_MS, NULL, &m);
		while (spin && r == SHARE_EAGAIN);
		must(r, "share_call_finish");
		expect(&m, i);
		ack_one(&m);
	}
}

static void answer_calls(const struct channel_side *s, bool spin, uint32_t n)
{
	share_message m = SHARE_MESSAGE_INIT;
	int r;

	for (uint32_t i = 0; i < n; i++) {
		do
			r = share_next_request(s->service, spin ? 0 : HANGS_MS, NULL, &m);
		while (spin && r == SHARE_EAGAIN);
		must(r, "share_next_request");
		expect(&m, i);
		must(share_reply(&m, NULL, m.data, MESSAGE_SIZE, NULL), "share_reply");
	}
}

static void send_batches(share_channel *ch, uint32_t n)
{
	static unsigned char data[BATCH][MESSAGE_SIZE];
	share_outgoing batch[BATCH];

	for (uint32_t k = 0; k < BATCH; k++)
		batch[k] = (share_outgoing){
		    .size = sizeof(batch[0]), .data = data[k], .data_size = MESSAGE_SIZE};
	for (uint32_t i = 0; i < n; i += BATCH) {
		for (uint32_t k = 0; k < BATCH; k++) {
			uint32_t turn = i + k;

			memcpy(data[k], &turn, sizeof(turn));
		}
		for (size_t sent = 0; sent < BATCH;) {
			int r = share_send_many(ch, batch + sent, BATCH - sent, NULL);

			if (r > 0)
				sent += (size_t)r;
			else if (r != SHARE_EAGAIN)
				must(r, "share_send_many");
		}
	}
}

static void receive_batches(share_channel *ch, bool spin, uint32_t n)
{
	static share_message batch[BATCH] = {SHARE_MESSAGE_INIT};

	for (uint32_t i = 0; i < n;) {
		int r = share_recv_many(ch, spin ? 0 : HANGS_MS, NULL, batch, BATCH);

		if (r == SHARE_EAGAIN)
			continue;
		must(r < 0 ? r : 0, "share_recv_many");
		if (memcmp(batch[0].data, &i, sizeof(i)) != 0) {
			fprintf(stderr, "share-bench: message %u is not what was sent\n", i);
			exit(1);
		}
		must(share_ack_many(batch, (size_t)r, NULL), "share_ack_many");
		i += (uint32_t)r;
	}
}

/* ------------------------------------------------------------------------------------------- */
/* The two processes                                                                           */

static void answer(const struct channel_side *s, const struct order *o)
{
	switch ((enum channel_way)o->way) {
	case SPIN:
	case SLEEP:
	case ASLEEP:
		answer_trips(s, (enum channel_way)o->way, o->n);
		break;
	case CALLS_SPIN:
	case CALLS:
		answer_calls(s, o->way == CALLS_SPIN, o->n);
		break;
	case BATCHES:
	case BATCHES_ASLEEP:
		receive_batches(s->channels[o->way == BATCHES ? STREAM : BLOCKING],
				o->way == BATCHES, o->n);
		word_set(&s->floor->done, 1);
		break;
	case WORDS_FLOOR:
		floor_answer(s->floor, FLOOR_WORDS, o->n);
		break;
	case SPIN_FLOOR:
		floor_answer(s->floor, FLOOR_SPIN, o->n);
		break;
	case FUTEX_FLOOR:
		floor_answer(s->floor, FLOOR_FUTEX, o->n);
		break;
	case ASLEEP_FLOOR:
		floor_answer(s->floor, FLOOR_ASLEEP, o->n);
		break;
	case RING_FLOOR:
		floor_ring_receive(&s->floor->ring, o->n);
		word_set(&s->floor->done, 1);
		break;
	}
}

static void play(const struct channel_side *s, enum channel_way way, uint32_t n)
{
	switch (way) {
	case SPIN:
	case SLEEP:
	case ASLEEP:
		play_trips(s, way, n);
		break;
	case CALLS_SPIN:
	case CALLS:
		play_calls(s, way == CALLS_SPIN, n);
		break;
	case BATCHES:
		send_batches(s->channels[STREAM], n);
		word_spin(&s->floor->done, 1);
		break;
	case BATCHES_ASLEEP:
		send_batches(s->channels[BLOCKING], n);
		word_sleep(&s->floor->done, 1);
		break;
	case WORDS_FLOOR:
		floor_play(s->floor, FLOOR_WORDS, n);
		break;
	case SPIN_FLOOR:
		floor_play(s->floor, FLOOR_SPIN, n);
		break;
	case FUTEX_FLOOR:
		floor_play(s->floor, FLOOR_FUTEX, n);
		break;
	case ASLEEP_FLOOR:
		floor_play(s->floor, FLOOR_ASLEEP, n);
		break;
	case RING_FLOOR:
		floor_ring_send(&s->floor->ring, n);
		word_spin(&s->floor->done, 1);
		break;
	}
}

static void serve(void *data)
{
	struct channel_side *s = data;
	struct order o;

	s->client = other_connect(&s->other);
	open_channels(s, false);
	other_done(&s->other);
	while (other_is_asked(&s->other, &o, sizeof(o))) {
		other_done(&s->other);
		answer(s, &o);
	}
	close_channels(s);
	share_disconnect(s->client);
}

struct channel_side *channel_sides_start(void)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	struct channel_side *s = calloc(1, sizeof(*s));

	must_system(s, "memory");
	s->floor = shared_memory(sizeof(*s->floor));
	other_start(&s->other, serve, s);
	must(share_connect("embedded", &s->client), "share_connect");
	options.kind = "host";
	must(share_pool_create(s->client, POOL, &options, &s->pool), "share_pool_create");
	other_tell_address(&s->other, s->client);
	other_wait(&s->other);
	open_channels(s, true);
	return s;
}

void channel_sides_stop(struct channel_side *s)
{
	close_channels(s);
	other_end(&s->other);
	share_pool_close(s->pool);
	share_disconnect(s->client);
	free(s);
}

pid_t channel_sides_other(const struct channel_side *s)
{
	return s->other.pid;
}

double channel_sides_time(const struct channel_side *s, enum channel_way way, uint32_t n)
{
	double thought = way == ASLEEP || way == ASLEEP_FLOOR ? 2 * THINK_US * 1000 : 0;
	struct order o = {way, n};
	double start;

	channel_floor_reset(s->floor);
	other_tell(&s->other, &o, sizeof(o));
	other_wait(&s->other);
	start = now_us();
	play(s, way, n);
	return (now_us() - start) * 1000 / n - thought;
}
