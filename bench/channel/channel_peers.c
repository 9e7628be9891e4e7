/* SPDX-License-Identifier: MIT */

/*
 * Sends a payload to another process: by a channel, compared with ZeroMQ, nng, a pipe and Boost's
 * message queue (bench/peers/). All of them do the same work: the sender writes every word of the
 * payload where the carrier wants it, and the receiver reads every word where the carrier has put
 * it, and checks it. Only the way from one process to the other differs.
 *
 * A round trip is a payload and an answer of 8 bytes. In a stream, many payloads are under way, and
 * one answer says that the last one has been read. All processes sleep while there is nothing to
 * do, and none is pinned to a core, since most carriers have threads of their own.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/peers/carrier.h"

#define NAME "channel-peers"
#define POOL "peers"
#define OURS 0 /* index in `carriers` */

struct shape {
	const char *name;
	size_t size;
	unsigned window;        /* payloads under way in a stream */
	unsigned trips, stream; /* payloads in a sample */
	unsigned samples;       /* samples in a round */
};

static const struct shape shapes[] = {
    {"64B", 64, 64, 200, 5000, 5},
    {"4KiB", 4096, 64, 200, 2000, 5},
    {"1MiB", 1 << 20, 8, 5, 40, 5},
    {"64MiB", 1 << 26, 2, 1, 4, 1},
};

#define N_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* ------------------------------------------------------------------------------------------- */
/* The payload                                                                                 */

/* Carriers may put the payload at any address, so it is written by bytes. */
static void fill(void *p, size_t size, uint64_t turn)
{
	unsigned char *bytes = p;

	for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
		uint64_t word = turn + i;

		memcpy(bytes + i, &word, sizeof(word));
	}
}

static void check(const void *p, size_t size, uint64_t turn, const char *name)
{
	const unsigned char *bytes = p;
	uint64_t wrong = 0;

	for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, bytes + i, sizeof(word));
		wrong |= word ^ (turn + i);
	}
	carrier_must(!wrong, name, "payload", "it is not what was sent");
}

static void send_one(const struct carrier *c, void *end, size_t size, uint64_t turn)
{
	fill(c->prepare(end), size, turn);
	c->send(end);
}

static void receive_one(const struct carrier *c, void *end, size_t size, uint64_t turn)
{
	check(c->receive(end), size, turn, c->name);
	c->release(end);
}

/* ------------------------------------------------------------------------------------------- */
/* The other process                                                                           */

enum what { OPEN, PLAY, CLOSE };

struct order {
	uint32_t what;
	uint32_t carrier, shape;
	uint32_t answers, payloads; /* payloads for each answer */
	uint64_t turn;
};

struct address {
	char broker[256];
	char folder[96];
};

/* One of the two processes. */
struct side {
	struct other other;
	bool first;
	share_client *client;
	struct address address;
	void *ends[CARRIERS];
};

struct folder {
	char path[128];
};

/* Returns the folder in which the ends for payloads of a size meet. The last part of its name is
 * unique too, because some carriers use it as a name. */
static struct folder folder_of(const struct side *s, const struct shape *shape)
{
	struct folder f;

	snprintf(f.path, sizeof(f.path), "%s-%s", s->address.folder, shape->name);
	return f;
}

static void open_end(struct side *s, uint32_t carrier, const struct shape *shape)
{
	struct folder folder = folder_of(s, shape);
	const struct carrier_setup setup = {folder.path, shape->size, shape->window, s->client,
					    POOL};

	s->ends[carrier] = carriers[carrier].carrier->open(&setup, s->first);
}

static void answer(struct side *s, const struct order *o)
{
	const struct carrier *c = carriers[o->carrier].carrier;
	size_t size = shapes[o->shape].size;
	uint64_t turn = o->turn;

	for (uint32_t i = 0; i < o->answers; i++) {
		for (uint32_t k = 0; k < o->payloads; k++)
			receive_one(c, s->ends[o->carrier], size, turn++);
		send_one(c, s->ends[o->carrier], CARRIER_ANSWER, turn);
	}
}

static void serve(void *data)
{
	struct side *s = data;
	struct order o;

	s->first = false;
	if (!other_is_asked(&s->other, &s->address, sizeof(s->address)))
		return;
	must(share_connect(s->address.broker, &s->client), "share_connect");
	while (other_is_asked(&s->other, &o, sizeof(o))) {
		if (o.what == PLAY) {
			answer(s, &o);
			continue;
		}
		if (o.what == OPEN)
			open_end(s, o.carrier, &shapes[o.shape]);
		else
			carriers[o.carrier].carrier->close(s->ends[o.carrier]);
		other_done(&s->other);
	}
	share_disconnect(s->client);
}

static void tell(const struct side *s, const struct order *o)
{
	other_tell(&s->other, o, sizeof(*o));
	if (o->what != PLAY)
		other_wait(&s->other);
}

/* ------------------------------------------------------------------------------------------- */

/* Plays payloads and their answers. Returns the time of one payload. */
static double play(const struct side *s, uint32_t carrier, uint32_t shape, uint32_t answers,
		   uint32_t payloads)
{
	static uint64_t turn;
	struct order o = {PLAY, carrier, shape, answers, payloads, turn};
	const struct carrier *c = carriers[carrier].carrier;
	void *end = s->ends[carrier];
	double start;

	tell(s, &o);
	start = now_us();
	for (uint32_t i = 0; i < answers; i++) {
		for (uint32_t k = 0; k < payloads; k++)
			send_one(c, end, shapes[shape].size, turn++);
		receive_one(c, end, CARRIER_ANSWER, turn);
	}
	return (now_us() - start) / (answers * payloads);
}

static void report(struct series *s, const struct shape *shape, uint32_t carrier, const char *way,
		   const char *words)
{
	struct figure f = {.unit = "us", .target = NONE};
	char name[64], what[128];

	snprintf(name, sizeof(name), NAME ".%s%s.%s", shape->name, way, carriers[carrier].name);
	snprintf(what, sizeof(what), "%s, a channel; floor: %s", words,
		 carriers[carrier].carrier->what);
	f.name = name;
	f.what = what;
	series_report_median(&s[OURS], &s[carrier], &f);
}

static void measure(const struct run *run, const struct side *s, uint32_t shape)
{
	struct series trips[CARRIERS] = {0}, streams[CARRIERS] = {0};
	const struct shape *sh = &shapes[shape];
	int rounds = run->quick ? 2 : 11;
	unsigned n = run->quick ? 1 : sh->samples;

	for (int i = -1; i < rounds; i++) { /* the first round is to warm up */
		for (uint32_t k = 0; k < CARRIERS; k++) {
			for (unsigned j = 0; s->ends[k] && j < n; j++) {
				samples_add(&trips[k].round, play(s, k, shape, sh->trips, 1));
				samples_add(&streams[k].round, play(s, k, shape, 1, sh->stream));
			}
			if (s->ends[k] && i >= 0) {
				series_end_round(&trips[k]);
				series_end_round(&streams[k]);
			}
			samples_clear(&trips[k].round);
			samples_clear(&streams[k].round);
		}
	}
	for (uint32_t k = 0; k < CARRIERS; k++)
		if (k != OURS && s->ends[k])
			report(trips, sh, k, "", "a payload there and an answer back");
	for (uint32_t k = 0; k < CARRIERS; k++)
		if (k != OURS && s->ends[k])
			report(streams, sh, k, ".stream", "a payload in a stream of many");
	for (uint32_t k = 0; k < CARRIERS; k++) {
		series_deinit(&trips[k]);
		series_deinit(&streams[k]);
	}
}

/* Opens both ends of a carrier. If the carrier cannot carry this size, says why instead. */
static void open_pair(struct side *s, uint32_t carrier, uint32_t shape)
{
	const struct carrier_choice *choice = &carriers[carrier];
	struct carrier_setup setup = {NULL, shapes[shape].size, shapes[shape].window, NULL, NULL};
	struct order o = {OPEN, carrier, shape, 0, 0, 0};
	const char *why = NULL;

	if (!choice->carrier) {
		if (shape == 0)
			fprintf(stderr, "share-bench: " NAME ".%s: SKIPPED: built without %s\n",
				choice->name, choice->package);
		return;
	}
	if (choice->carrier->cannot)
		why = choice->carrier->cannot(&setup);
	if (why) {
		fprintf(stderr, "share-bench: " NAME ".%s.%s: SKIPPED: %s\n", shapes[shape].name,
			choice->name, why);
		return;
	}
	open_end(s, carrier, &shapes[shape]);
	tell(s, &o);
}

static void close_pair(struct side *s, uint32_t carrier, uint32_t shape)
{
	struct order o = {CLOSE, carrier, shape, 0, 0, 0};

	carriers[carrier].carrier->close(s->ends[carrier]);
	s->ends[carrier] = NULL;
	tell(s, &o);
}

static void measure_shape(const struct run *run, struct side *s, uint32_t shape)
{
	struct folder folder = folder_of(s, &shapes[shape]);

	must_system(mkdir(folder.path, 0700) == 0, "mkdir");
	for (uint32_t k = 0; k < CARRIERS; k++)
		open_pair(s, k, shape);
	measure(run, s, shape);
	for (uint32_t k = 0; k < CARRIERS; k++)
		if (s->ends[k])
			close_pair(s, k, shape);
	rmdir(folder.path);
}

static share_pool *make_pool(share_client *c)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *pool;

	options.kind = "host";
	options.segment_size = UINT64_C(512) << 20; /* room for the largest one, and kept */
	options.release_threshold = options.segment_size;
	must(share_pool_create(c, POOL, &options, &pool), "share_pool_create");
	return pool;
}

void bench_channel_peers(const struct run *run)
{
	struct side s = {.first = true};
	const char *temporary = getenv("TMPDIR");
	share_pool *pool;

	other_start(&s.other, serve, &s);
	must(share_connect("embedded", &s.client), "share_connect");
	pool = make_pool(s.client);
	snprintf(s.address.broker, sizeof(s.address.broker), "%s", share_address(s.client));
	snprintf(s.address.folder, sizeof(s.address.folder), "%s/share-bench-XXXXXX",
		 temporary ? temporary : "/tmp");
	must_system(mkdtemp(s.address.folder), "mkdtemp");
	other_tell(&s.other, &s.address, sizeof(s.address));
	for (uint32_t k = 0; k < N_SHAPES; k++)
		measure_shape(run, &s, k);
	rmdir(s.address.folder);
	other_end(&s.other);
	share_pool_close(pool);
	share_disconnect(s.client);
}
