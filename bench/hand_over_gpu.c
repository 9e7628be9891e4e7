/* SPDX-License-Identifier: MIT */

/*
 * Hands one buffer back and forth between two processes, each of which has the GPU fill it. The
 * memory and the fills are the same in all ways; what differs is how the fills are put in order:
 *
 *   fence   share_fence_record(), the fence over a socket of the two, share_fence_wait()
 *   name    share_publish() and share_lookup(): through the broker, which knows who holds what
 *   host    the giver waits until its GPU is done, and says so over the socket
 *   event   an interprocess event, recorded by the giver and waited for by the taker's stream
 *
 * The last two are the floors: what programs do today. A round trip ends when the first process has
 * seen, by waiting for its stream, that the fill of the other one is finished. In a chain of many
 * round trips, only the last one is waited for. So if the GPU keeps the order, the hosts run ahead
 * of it; with "host" they cannot.
 *
 * Two processes take turns on a GPU unless they are clients of MPS. Switching between them takes
 * longer than anything measured here, so this should be run with MPS and without.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/driver.h"

#define NAME  "hand-over-gpu"
#define SIZE  UINT64_C(65536)
#define CHAIN 100 /* round trips; the driver queues about a thousand steps */

/* One of the two processes. */
struct side {
	share_client *client;
	share_buffer *buffer; /* held all the time */
	share_buffer *found;  /* the same buffer, by its name */
	void *stream;
	void *own_event, *other_event;
	const char *own_name, *other_name; /* the names under which each process gives it */
	struct other other;
};

struct way {
	const char *name;
	void (*give)(struct side *s);
	void (*take)(struct side *s);
};

/* ------------------------------------------------------------------------------------------- */
/* The ways                                                                                    */

static void give_by_fence(struct side *s)
{
	share_fence f;

	must(share_fence_record(s->client, 0, s->stream, &f), "share_fence_record");
	other_tell(&s->other, &f, sizeof(f));
}

static void take_by_fence(struct side *s)
{
	share_fence f;

	other_hear(&s->other, &f, sizeof(f));
	must(share_fence_wait(s->client, &f, 0, s->stream), "share_fence_wait");
}

static void give_by_name(struct side *s)
{
	must(share_publish(s->found ? s->found : s->buffer, s->own_name, s->stream),
	     "share_publish");
	if (s->found)
		must(share_release(s->found, s->stream), "share_release");
	s->found = NULL;
}

static void take_by_name(struct side *s)
{
	must(share_lookup(s->client, s->other_name, SHARE_RDWR, HANGS_MS, s->stream, &s->found),
	     "share_lookup");
	must(share_unpublish(s->client, s->other_name), "share_unpublish");
}

static void give_by_host(struct side *s)
{
	driver_stream_synchronize(s->stream);
	other_tell(&s->other, "", 1);
}

static void take_by_host(struct side *s)
{
	char byte;

	other_hear(&s->other, &byte, 1);
}

static void give_by_event(struct side *s)
{
	driver_event_record(s->own_event, s->stream);
	other_tell(&s->other, "", 1);
}

static void take_by_event(struct side *s)
{
	char byte;

	other_hear(&s->other, &byte, 1);
	driver_event_wait(s->other_event, s->stream);
}

enum { FENCE, BY_NAME, HOST, EVENT, WAYS };

static const struct way ways[WAYS] = {
    [FENCE] = {"fence", give_by_fence, take_by_fence},
    [BY_NAME] = {"name", give_by_name, take_by_name},
    [HOST] = {"host", give_by_host, take_by_host},
    [EVENT] = {"event", give_by_event, take_by_event},
};

static void *memory(const struct side *s)
{
	return share_ptr(s->found ? s->found : s->buffer);
}

static void give(const struct way *w, struct side *s, uint32_t turn)
{
	driver_fill(memory(s), turn, SIZE, s->stream);
	w->give(s);
}

/* ------------------------------------------------------------------------------------------- */
/* The other process                                                                           */

struct order {
	uint32_t way;
	uint32_t round_trips;
	uint32_t turn;
};

struct setup {
	char address[256];
	char device[64];
};

static void exchange_events(struct side *s, struct driver_handle *theirs)
{
	struct driver_handle own;

	s->own_event = driver_event_create(&own);
	other_tell(&s->other, &own, sizeof(own));
	other_hear(&s->other, theirs, sizeof(*theirs));
	s->other_event = driver_event_open(theirs);
}

static void serve(void *data)
{
	struct side *s = data;
	struct driver_handle handle;
	char why[DRIVER_WHY];
	struct setup setup;
	struct order o;

	if (!other_is_asked(&s->other, &setup, sizeof(setup)))
		return; /* the first process has nothing to measure */
	must(share_connect(setup.address, &s->client), "share_connect");
	if (!driver_start(setup.device, why)) {
		fprintf(stderr, "share-bench: %s\n", why);
		exit(1);
	}
	s->stream = driver_stream_create();
	must(share_lookup(s->client, NAME, SHARE_RDWR, HANGS_MS, s->stream, &s->buffer),
	     "share_lookup");
	s->own_name = NAME "/back";
	s->other_name = NAME "/there";
	exchange_events(s, &handle);
	while (other_is_asked(&s->other, &o, sizeof(o))) {
		const struct way *w = &ways[o.way];

		for (uint32_t i = 0; i < o.round_trips; i++) {
			w->take(s);
			give(w, s, o.turn + 2 * i + 1);
		}
		driver_stream_synchronize(s->stream);
	}
	driver_event_destroy(s->other_event);
	driver_event_destroy(s->own_event);
	must(share_release(s->buffer, s->stream), "share_release");
	share_disconnect(s->client);
	driver_stream_destroy(s->stream);
}

/* ------------------------------------------------------------------------------------------- */

/* Checks that the buffer has what the other process filled in last. */
static void check(const struct side *s, uint32_t turn)
{
	uint32_t first, last;

	must(share_copy_to_host(s->buffer, 0, &first, sizeof(first), s->stream),
	     "share_copy_to_host");
	must(share_copy_to_host(s->buffer, SIZE - sizeof(last), &last, sizeof(last), s->stream),
	     "share_copy_to_host");
	if (first == turn && last == turn)
		return;
	fprintf(stderr, "share-bench: hand-over %u brought something else\n", turn);
	exit(1);
}

/* Plays round trips. Returns the time of one. */
static double play(struct side *s, uint32_t way, uint32_t round_trips, uint32_t *turn)
{
	struct order o = {way, round_trips, *turn};
	const struct way *w = &ways[way];
	double start, end;

	other_tell(&s->other, &o, sizeof(o));
	start = now_us();
	for (uint32_t i = 0; i < round_trips; i++) {
		give(w, s, *turn + 2 * i);
		w->take(s);
	}
	driver_stream_synchronize(s->stream);
	end = now_us();
	*turn += 2 * round_trips;
	check(s, *turn - 1);
	if (s->found)
		must(share_release(s->found, s->stream), "share_release");
	s->found = NULL;
	return (end - start) / round_trips;
}

static void report(struct series *s, bool chain, int value, int floor)
{
	struct figure f = {.unit = "us", .target = NONE};
	char name[64], what[128];

	snprintf(name, sizeof(name), "hand-over-gpu.%s%s.%s", ways[value].name,
		 chain ? ".chain" : "", ways[floor].name);
	snprintf(what, sizeof(what), "to and fro%s by %s; floor: by %s",
		 chain ? ", many enqueued at once," : "",
		 value == FENCE ? "share_fence_record and wait" : "share_publish and share_lookup",
		 floor == HOST ? "waiting on the host" : "interprocess event");
	f.name = name;
	f.what = what;
	if (chain) /* each sample is the mean of a chain */
		series_report_median(&s[value], &s[floor], &f);
	else
		series_report(&s[value], &s[floor], &f, NONE);
}

static void measure(const struct run *run, struct side *s, bool chain, uint32_t *turn)
{
	int rounds = run->quick ? 3 : 11, n = run->quick ? 5 : (chain ? 5 : 100);
	uint32_t round_trips = chain ? CHAIN : 1;
	struct series series[WAYS] = {0};

	for (int i = 0; i < rounds; i++) {
		for (uint32_t k = 0; k < WAYS; k++) {
			play(s, k, 1, turn); /* to warm up */
			for (int j = 0; j < n; j++)
				samples_add(&series[k].round, play(s, k, round_trips, turn));
			series_end_round(&series[k]);
		}
	}
	for (int value = FENCE; value <= BY_NAME; value++)
		for (int floor = HOST; floor <= EVENT; floor++)
			report(series, chain, value, floor);
	for (int k = 0; k < WAYS; k++)
		series_deinit(&series[k]);
}

static void set_up(struct side *s, share_pool **pool)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	struct driver_handle handle;
	struct setup setup = {.address = ""};

	must(share_connect("embedded", &s->client), "share_connect");
	s->stream = driver_stream_create();
	s->own_name = NAME "/there";
	s->other_name = NAME "/back";
	options.device = driver_device();
	must(share_pool_create(s->client, NAME, &options, pool), "share_pool_create");
	must(share_alloc(*pool, SIZE, s->stream, &s->buffer), "share_alloc");
	must(share_publish(s->buffer, NAME, s->stream), "share_publish");
	snprintf(setup.address, sizeof(setup.address), "%s", share_address(s->client));
	snprintf(setup.device, sizeof(setup.device), "%s", driver_device());
	other_tell(&s->other, &setup, sizeof(setup));
	exchange_events(s, &handle);
}

void bench_hand_over_gpu(const struct run *run)
{
	struct side s = {.client = NULL};
	char why[DRIVER_WHY];
	share_pool *pool;
	uint32_t turn = 0;

	other_start(&s.other, serve, &s);
	if (!driver_start(NULL, why)) {
		fprintf(stderr, "share-bench: hand-over-gpu: SKIPPED: %s\n", why);
		other_end(&s.other);
		return;
	}
	set_up(&s, &pool);
	measure(run, &s, false, &turn);
	measure(run, &s, true, &turn);
	other_end(&s.other);
	driver_event_destroy(s.other_event);
	driver_event_destroy(s.own_event);
	must(share_release(s.buffer, s.stream), "share_release");
	share_pool_close(pool);
	share_disconnect(s.client);
	driver_stream_destroy(s.stream);
}
