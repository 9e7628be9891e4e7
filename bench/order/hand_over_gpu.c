/* SPDX-License-Identifier: MIT */

/*
 * Hands one buffer back and forth between two processes, each of which has the GPU fill it. The
 * memory and the fills are the same in all ways; what differs is how the fills are put in order:
 *
 *   fence   share_fence_record(), the fence over a socket of the two, share_fence_wait()
 *   name    share_publish() and share_lookup(): through the broker, which knows who holds what
 *   host    the giver waits until its GPU is done, and says so over the socket
 *   event   an interprocess event, recorded by the giver and waited for by the taker's stream
 *   relay   as "fence", but over a third process that does nothing else, with the packets of "name"
 *
 * The last three are floors: two of what programs do today, and one of what anybody must pay who
 * has a third process between. A round trip ends when the first process has seen, by waiting for
 * its stream, that the fill of the other one is finished. In a chain of many round trips, only the
 * last one is waited for. So if the GPU keeps the order, the hosts run ahead of it; with "host"
 * they cannot. A busy chain has fills of some 100 us, during which the packets of the next
 * hand-over pass.
 *
 * Two processes take turns on a GPU unless they are clients of MPS. Switching between them takes
 * longer than anything measured here, so this should be run with MPS and without.
 */

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/driver/driver.h"

#define NAME  "hand-over-gpu"
#define SIZE  UINT64_C(65536)
#define CHAIN 100 /* round trips; the driver queues about a thousand steps */

#define CHAIN_BUSY 20
#define BUSY_US    100.0
#define BUSY_LEAST UINT64_C(2097152)
#define BUSY_MOST  UINT64_C(268435456) /* which an H100 fills in that time */

/* One of the two processes. */
struct side {
	share_client *client;
	share_buffer *buffer; /* held all the time */
	share_buffer *found;  /* the same buffer, by its name */
	void *stream;
	void *own_event, *other_event;
	const char *own_name, *other_name; /* the names under which each process gives it */
	struct other other;
	struct other relay;
	uint64_t work; /* bytes to fill */
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

static void give_by_relay(struct side *s)
{
	share_fence f;

	must(share_fence_record(s->client, 0, s->stream, &f), "share_fence_record");
	other_tell(&s->relay, &f, sizeof(f));
	other_wait(&s->relay); /* as for the answer of share_publish() */
}

static void take_by_relay(struct side *s)
{
	share_fence f;

	other_hear(&s->relay, &f, sizeof(f));
	must(share_fence_wait(s->client, &f, 0, s->stream), "share_fence_wait");
	other_done(&s->relay);
	other_wait(&s->relay); /* as for the answer of share_unpublish() */
}

enum { FENCE, BY_NAME, HOST, EVENT, RELAY, WAYS };

static const struct way ways[WAYS] = {
    [FENCE] = {"fence", give_by_fence, take_by_fence},
    [BY_NAME] = {"name", give_by_name, take_by_name},
    [HOST] = {"host", give_by_host, take_by_host},
    [EVENT] = {"event", give_by_event, take_by_event},
    [RELAY] = {"relay", give_by_relay, take_by_relay},
};

static void *memory(const struct side *s)
{
	return share_ptr(s->found ? s->found : s->buffer);
}

static void give(const struct way *w, struct side *s, uint32_t turn)
{
	driver_fill(memory(s), turn, s->work, s->stream);
	w->give(s);
}

/* ------------------------------------------------------------------------------------------- */
/* The process between                                                                         */

struct relay {
	struct other first; /* to the process that measures */
	int second[2];      /* to the other one: its end, and the relay's */
};

/* A fence goes to the other side, and whatever comes is answered. Ends when a side has ended. */
static void serve_relay(void *data)
{
	struct relay *r = data;
	struct other sides[2] = {r->first, {.socket = r->second[1]}};

	close(r->second[0]);
	for (;;) {
		struct pollfd p[2] = {{sides[0].socket, POLLIN, 0}, {sides[1].socket, POLLIN, 0}};

		must_system(poll(p, 2, -1) >= 0, "poll");
		for (int i = 0; i < 2; i++) {
			share_fence f;
			ssize_t n;

			if (!p[i].revents)
				continue;
			n = recv(sides[i].socket, &f, sizeof(f), 0);
			if (n <= 0)
				return;
			if (n == sizeof(f))
				other_tell(&sides[1 - i], &f, sizeof(f));
			other_done(&sides[i]);
		}
	}
}

static void relay_start(struct relay *r)
{
	must_system(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, r->second) == 0,
		    "socketpair");
	other_start(&r->first, serve_relay, r);
	close(r->second[1]);
}

/* ------------------------------------------------------------------------------------------- */
/* The other process                                                                           */

struct order {
	uint32_t way;
	uint32_t round_trips;
	uint32_t turn;
	uint64_t work;
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

		s->work = o.work;
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
	must(share_copy_to_host(s->buffer, s->work - sizeof(last), &last, sizeof(last), s->stream),
	     "share_copy_to_host");
	if (first == turn && last == turn)
		return;
	fprintf(stderr, "share-bench: hand-over %u brought something else\n", turn);
	exit(1);
}

/* Plays round trips. Returns the time of one. */
static double play(struct side *s, uint32_t way, uint32_t round_trips, uint32_t *turn)
{
	struct order o = {way, round_trips, *turn, s->work};
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

/* How the round trips are made, with the end of the figures' names. */
struct course {
	const char *name;
	uint32_t round_trips; /* in a sample */
	uint32_t ways;        /* of enum above, from the first */
	bool busy;
};

static const struct course courses[] = {
    {"", 1, WAYS, false},
    {".chain", CHAIN, WAYS, false},
    {".busy", CHAIN_BUSY, BY_NAME + 1, true},
};

static void report(struct series *s, const struct course *c, int value, int floor, double target)
{
	struct figure f = {.unit = "us", .target = target};
	char name[64], what[160];

	snprintf(name, sizeof(name), "hand-over-gpu.%s%s.%s", ways[value].name, c->name,
		 ways[floor].name);
	snprintf(what, sizeof(what), "to and fro%s by %s; floor: by %s",
		 c->busy              ? ", many enqueued at once, of some 100 us each,"
		 : c->round_trips > 1 ? ", many enqueued at once,"
				      : "",
		 value == FENCE ? "share_fence_record and wait" : "share_publish and share_lookup",
		 floor == FENCE   ? "share_fence_record and wait"
		 : floor == HOST  ? "waiting on the host"
		 : floor == EVENT ? "interprocess event"
				  : "the same packets over a third process");
	f.name = name;
	f.what = what;
	if (c->round_trips > 1) /* each sample is the mean of a chain */
		series_report_median(&s[value], &s[floor], &f);
	else
		series_report(&s[value], &s[floor], &f, NONE);
}

static void report_all(struct series *s, const struct course *c)
{
	if (c->busy) {
		report(s, c, BY_NAME, FENCE, 1.3);
		return;
	}
	for (int value = FENCE; value <= BY_NAME; value++)
		for (int floor = HOST; floor <= EVENT; floor++)
			report(s, c, value, floor, NONE);
	report(s, c, BY_NAME, RELAY, NONE);
}

static void measure(const struct run *run, struct side *s, const struct course *c, uint32_t *turn)
{
	int rounds = run->quick ? 3 : 11, n = run->quick ? 5 : 100;
	struct series series[WAYS] = {0};

	if (c->round_trips > 1) /* each sample is a mean */
		n = run->quick ? 1 : 5;
	for (int i = 0; i < rounds; i++) {
		for (uint32_t k = 0; k < c->ways; k++) {
			play(s, k, 1, turn); /* to warm up */
			for (int j = 0; j < n; j++)
				samples_add(&series[k].round, play(s, k, c->round_trips, turn));
			series_end_round(&series[k]);
		}
	}
	report_all(series, c);
	for (int k = 0; k < WAYS; k++)
		series_deinit(&series[k]);
}

/* Finds out how much the GPU fills in BUSY_US. Zeros may be less work than other words. */
static uint64_t busy_work(struct side *s)
{
	uint64_t bytes = BUSY_LEAST;
	double start;

	for (; bytes < BUSY_MOST; bytes *= 2) {
		start = now_us();
		driver_fill(memory(s), UINT32_MAX, bytes, s->stream);
		driver_stream_synchronize(s->stream);
		if (now_us() - start >= BUSY_US)
			break;
	}
	return bytes;
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
	must(share_alloc(*pool, BUSY_MOST, s->stream, &s->buffer), "share_alloc");
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
	struct relay relay;
	share_pool *pool;
	uint32_t turn = 0;

	relay_start(&relay);
	s.relay.socket = relay.second[0];
	other_start(&s.other, serve, &s);
	close(relay.second[0]);
	s.relay = relay.first;
	if (!driver_start(NULL, why)) {
		fprintf(stderr, "share-bench: hand-over-gpu: SKIPPED: %s\n", why);
		other_end(&s.other);
		other_end(&relay.first);
		return;
	}
	set_up(&s, &pool);
	for (size_t i = 0; i < sizeof(courses) / sizeof(*courses); i++) {
		s.work = courses[i].busy ? busy_work(&s) : SIZE;
		measure(run, &s, &courses[i], &turn);
	}
	other_end(&s.other);
	other_end(&relay.first);
	driver_event_destroy(s.other_event);
	driver_event_destroy(s.own_event);
	must(share_release(s.buffer, s.stream), "share_release");
	share_pool_close(pool);
	share_disconnect(s.client);
	driver_stream_destroy(s.stream);
}
