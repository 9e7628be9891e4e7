/* SPDX-License-Identifier: MIT */

/*
 * Handing a buffer to another process without a channel. One side allocates a buffer, writes 4 KiB,
 * gives it away by name or by token, and releases it. The other side gets it, reads all of it,
 * releases it, and then does the same in return. The two take turns, so each hand-over is waited
 * for: this measures how long one takes, and not how many can be under way at a time. One round is
 * two hand-overs.
 *
 * By name, the receiver waits in share_lookup(), and removes the name when it has the buffer. By
 * token, the 32 bytes go over a socket between the two processes.
 *
 * The floor exchanges packets of the same sizes and number between two processes, one after the
 * other, and neither writes nor reads 4 KiB. The floor is a little too high for names, because a
 * real look-up is sent before the buffer is published, and a little too low because it wakes no
 * third process.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

#define SIZE      4096
#define WORDS     (SIZE / sizeof(uint64_t))
#define NAME_SIZE 16
#define NAME      "bench/%010u"
#define POOL      "handoff"

/* One of the two processes. */
struct side {
	share_client *client;
	share_pool *pool;
	struct other other;
	struct way *ways;
};

struct way {
	const char *name;
	const char *what;
	void (*give)(const struct side *s, unsigned turn);
	void (*take)(const struct side *s, unsigned turn);
	struct exchange floor[16]; /* the packets of one round */
	size_t n_floor;
	struct series ours, floors;
};

enum { BY_NAME, BY_TOKEN, WAYS };

#define OTHERS 3 /* processes: the receiver, the broker, that of the floor */

/* ------------------------------------------------------------------------------------------- */

static share_buffer *make(const struct side *s, unsigned turn)
{
	share_buffer *b;
	uint64_t *words;

	must(share_alloc(s->pool, SIZE, NULL, &b), "share_alloc");
	words = share_ptr(b);
	for (size_t i = 0; i < WORDS; i++)
		words[i] = ((uint64_t)turn << 32) + i;
	return b;
}

static void check(share_buffer *b, unsigned turn)
{
	const uint64_t *words = share_ptr(b);
	uint64_t wrong = 0;

	for (size_t i = 0; i < WORDS; i++)
		wrong |= words[i] ^ (((uint64_t)turn << 32) + i);
	if (wrong || share_size(b) != SIZE) {
		fprintf(stderr, "share-bench: hand-over %u brought something else\n", turn);
		exit(1);
	}
}

static void give_by_name(const struct side *s, unsigned turn)
{
	share_buffer *b = make(s, turn);
	char name[NAME_SIZE + 1];

	snprintf(name, sizeof(name), NAME, turn);
	must(share_publish(b, name, NULL), "share_publish");
	must(share_release(b, NULL), "share_release");
}

static void take_by_name(const struct side *s, unsigned turn)
{
	char name[NAME_SIZE + 1];
	share_buffer *b;

	snprintf(name, sizeof(name), NAME, turn);
	must(share_lookup(s->client, name, SHARE_RDONLY, HANGS_MS, NULL, &b), "share_lookup");
	check(b, turn);
	must(share_release(b, NULL), "share_release");
	must(share_unpublish(s->client, name), "share_unpublish");
}

static void give_by_token(const struct side *s, unsigned turn)
{
	share_buffer *b = make(s, turn);
	share_token token;

	must(share_export(b, NULL, &token), "share_export");
	other_tell(&s->other, &token, sizeof(token));
	must(share_release(b, NULL), "share_release");
}

static void take_by_token(const struct side *s, unsigned turn)
{
	share_buffer *b;
	share_token token;

	other_hear(&s->other, &token, sizeof(token));
	must(share_import(s->client, &token, 0, NULL, &b), "share_import");
	check(b, turn);
	must(share_release(b, NULL), "share_release");
}

/* ------------------------------------------------------------------------------------------- */

static void add_exchange(struct way *w, const struct wire_message *request,
			 const struct wire_message *reply)
{
	w->floor[w->n_floor++] =
	    (struct exchange){packet_size(request), reply ? packet_size(reply) : 0};
}

static void describe_floors(struct way *by_name, struct way *by_token)
{
	struct wire_message alloc = {.type = WIRE_ALLOC}, grant = {.type = WIRE_GRANT},
			    release = {.type = WIRE_RELEASE}, publish = {.type = WIRE_PUBLISH},
			    published = {.type = WIRE_PUBLISHED}, lookup = {.type = WIRE_LOOKUP},
			    unpublish = {.type = WIRE_UNPUBLISH}, done = {.type = WIRE_DONE},
			    export = {.type = WIRE_EXPORT}, token = {.type = WIRE_TOKEN},
			    import = {.type = WIRE_IMPORT};
	static const char text[sizeof(share_token)];
	const struct wire_bytes name = {text, NAME_SIZE}, secret = {text, sizeof(share_token)};

	publish.publish.name = lookup.lookup.name = unpublish.unpublish.name = name;
	token.token.token = import.import.token = secret;
	for (int i = 0; i < 2; i++) {
		add_exchange(by_name, &alloc, &grant);
		add_exchange(by_name, &publish, &published);
		add_exchange(by_name, &release, NULL);
		add_exchange(by_name, &lookup, &grant);
		add_exchange(by_name, &release, NULL);
		add_exchange(by_name, &unpublish, &done);

		add_exchange(by_token, &alloc, &grant);
		add_exchange(by_token, &export, &token);
		add_exchange(by_token, &release, NULL);
		add_exchange(by_token, &import, &grant);
		add_exchange(by_token, &release, NULL);
	}
	/* One packet with a token in each hand-over: there in the first, and back in the second. */
	by_token->floor[by_token->n_floor++] =
	    (struct exchange){sizeof(share_token), sizeof(share_token)};
}

static void describe(struct way *ways)
{
	ways[BY_NAME] = (struct way){
	    .name = "handoff.name",
	    .what = "4 KiB to a process that waits for the name",
	    .give = give_by_name,
	    .take = take_by_name,
	};
	ways[BY_TOKEN] = (struct way){
	    .name = "handoff.token",
	    .what = "4 KiB to a process that waits for a token",
	    .give = give_by_token,
	    .take = take_by_token,
	};
	describe_floors(&ways[BY_NAME], &ways[BY_TOKEN]);
}

/* ------------------------------------------------------------------------------------------- */

/* What the other process has to do: @rounds of ways[way], from @turn on. */
struct order {
	uint32_t way;
	uint32_t rounds;
	uint32_t turn;
};

static void serve(void *data)
{
	struct side *s = data;
	struct order o;

	s->client = other_connect(&s->other);
	must(share_pool_open(s->client, POOL, &s->pool), "share_pool_open");
	while (other_is_asked(&s->other, &o, sizeof(o))) {
		const struct way *w = &s->ways[o.way];

		for (; o.rounds > 0; o.rounds--, o.turn += 2) {
			w->take(s, o.turn);
			w->give(s, o.turn + 1);
		}
	}
	share_pool_close(s->pool);
	share_disconnect(s->client);
}

/* Measures rounds. A round has two hand-overs, so a hand-over takes half of its time. */
static void measure(const struct side *s, struct way *ways, uint32_t way, uint32_t *turn,
		    unsigned rounds)
{
	struct order o = {way, rounds + rounds / 10, *turn};
	struct way *w = &ways[way];

	other_tell(&s->other, &o, sizeof(o));
	for (unsigned i = 0; i < o.rounds; i++, *turn += 2) {
		double start = now_us();

		w->give(s, *turn);
		w->take(s, *turn + 1);
		if (i >= o.rounds - rounds)
			samples_add(&w->ours.round, (now_us() - start) / 2);
	}
	series_end_round(&w->ours);
}

static void measure_floor(const struct other *p, struct way *w, unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++) {
		double start = now_us();

		ping_pong_play(p, w->floor, w->n_floor);
		samples_add(&w->floors.round, (now_us() - start) / 2);
	}
	series_end_round(&w->floors);
}

static void report(struct way *w, enum placement placement)
{
	struct figure f = {.unit = "us", .target = NONE}, rate = {.unit = "/s", .target = NONE};
	char name[64], what[256];

	snprintf(name, sizeof(name), "%s%s", w->name, placement_names[placement].suffix);
	snprintf(what, sizeof(what), "%s; %s", w->what, placement_names[placement].words);
	f.name = name;
	f.what = what;
	series_report(&w->ours, &w->floors, &f, NONE);
	strcat(name, ".rate");
	rate.name = name;
	rate.what = "the same, hand-overs a second";
	rate.value = 1e6 / samples_median(&w->ours.medians);
	rate.floor = 1e6 / samples_median(&w->floors.medians);
	figure_report(&rate);
	series_deinit(&w->ours);
	series_deinit(&w->floors);
}

static void measure_both(const struct run *run, const struct side *s, const struct other *p,
			 struct way *ways, uint32_t *turn, enum placement placement,
			 const pid_t *others)
{
	unsigned rounds = run->quick ? 3 : 21, n = run->quick ? 200 : 1000;

	for (unsigned i = 0; i < rounds; i++) {
		for (uint32_t k = 0; k < WAYS; k++) {
			place(placement, others, OTHERS);
			measure_floor(p, &ways[k], n);
			place(placement, others, OTHERS);
			measure(s, ways, k, turn, n);
		}
	}
}

void bench_handoff(const struct run *run)
{
	static const enum placement tried[] = {ANYWHERE, TOGETHER}; /* APART is for two processes */
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	struct way ways[WAYS];
	struct other p;
	struct side s = {.ways = ways};
	uint32_t turn = 0;
	pid_t others[OTHERS];

	describe(ways);
	ping_pong_start(&p);
	others[0] = p.pid;
	other_start(&s.other, serve, &s);
	others[1] = s.other.pid;
	must(share_connect("embedded", &s.client), "share_connect");
	options.kind = "host";
	must(share_pool_create(s.client, POOL, &options, &s.pool), "share_pool_create");
	other_tell_address(&s.other, s.client);
	others[2] = (pid_t)broker_number(s.client, "pid");

	for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		if (!place(tried[i], others, OTHERS)) {
			skip("handoff", tried[i]);
			continue;
		}
		measure_both(run, &s, &p, ways, &turn, tried[i], others);
		for (int k = 0; k < WAYS; k++)
			report(&ways[k], tried[i]);
	}
	place(ANYWHERE, NULL, 0);

	other_end(&s.other);
	share_pool_close(s.pool);
	share_disconnect(s.client);
	other_end(&p);
}
