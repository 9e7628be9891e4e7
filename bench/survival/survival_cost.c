/* SPDX-License-Identifier: MIT */

/*
 * What it costs to write everything down, as long as nobody dies. The floor is the same broker with
 * a journal that has ended: all that there is to say is still said to the journal, which writes
 * nothing (unwritten_broker.c). Both brokers and the one client are on one core, so whatever either
 * does counts, also what it does after its answer.
 */

#include <stdio.h>
#include <unistd.h>

#include "bench/load/kept_broker.h"
#include "bench/survival/survival.h"

#define POOL "survival"
#define NAME "bench/survival"
#define SIZE 4096

struct subject {
	struct kept_broker broker;
	share_client *client;
	share_pool *pool;
};

static void ping(const struct subject *s)
{
	must(share_ping(s->client), "share_ping");
}

static void alloc_and_release(const struct subject *s)
{
	share_buffer *b;

	must(share_alloc(s->pool, SIZE, NULL, &b), "share_alloc");
	must(share_release(b, NULL), "share_release");
}

static void publish_and_unpublish(const struct subject *s)
{
	share_buffer *b;

	must(share_alloc(s->pool, SIZE, NULL, &b), "share_alloc");
	must(share_publish(b, NAME, NULL), "share_publish");
	must(share_release(b, NULL), "share_release");
	must(share_unpublish(s->client, NAME), "share_unpublish");
}

static const struct request {
	const char *name, *what;
	void (*perform)(const struct subject *s);
} requests[] = {
    {"survival.journal.ping", "share_ping; floor: a journal that writes nothing", ping},
    {"survival.journal.alloc", "share_alloc + share_release; floor: the same", alloc_and_release},
    {"survival.journal.publish", "the same, and share_publish + share_unpublish in between",
     publish_and_unpublish},
};

#define N_REQUESTS (sizeof(requests) / sizeof(requests[0]))

static void start(struct subject *s, const char *program)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;

	kept_broker_start(&s->broker, program, NULL);
	must(share_connect(s->broker.socket, &s->client), "share_connect");
	options.kind = "host";
	must(share_pool_create(s->client, POOL, &options, &s->pool), "share_pool_create");
}

static void stop(struct subject *s)
{
	share_pool_close(s->pool);
	share_disconnect(s->client);
	kept_broker_stop(&s->broker);
}

static void measure(const struct subject *s, const struct request *r, int n, struct series *out)
{
	for (int i = -n / 10; i < n; i++) {
		double start = now_us();

		r->perform(s);
		if (i >= 0)
			samples_add(&out->round, now_us() - start);
	}
	series_end_round(out);
}

static void compare(const struct run *run, const struct subject *written,
		    const struct subject *unwritten)
{
	int rounds = run->quick ? 3 : 41, n = run->quick ? 100 : 1000;

	for (size_t k = 0; k < N_REQUESTS; k++) {
		const struct request *r = &requests[k];
		struct series ours = {.round = {NULL, 0, 0}}, floors = ours;

		for (int i = 0; i < rounds; i++) {
			measure(unwritten, r, n, &floors);
			measure(written, r, n, &ours);
		}
		series_report_median(&ours, &floors,
				     &(struct figure){r->name, r->what, "us", NONE, NONE, 1.05});
		series_deinit(&ours);
		series_deinit(&floors);
	}
}

void survival_cost(const struct run *run)
{
	static struct subject written, unwritten;
	pid_t brokers[2];

	if (access(UNWRITTEN_BROKER, X_OK) != 0) {
		fprintf(stderr, "share-bench: survival.journal: SKIPPED: there is no %s here\n",
			UNWRITTEN_BROKER);
		return;
	}
	start(&written, NULL);
	start(&unwritten, UNWRITTEN_BROKER);
	brokers[0] = kept_broker_serving(written.client);
	brokers[1] = kept_broker_serving(unwritten.client);
	if (place(TOGETHER, brokers, 2))
		compare(run, &written, &unwritten);
	else
		skip("survival.journal", TOGETHER);
	place(ANYWHERE, brokers, 2);
	stop(&unwritten);
	stop(&written);
}
