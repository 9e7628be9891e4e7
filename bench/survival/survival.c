/* SPDX-License-Identifier: MIT */

/*
 * The broker is killed, and its keeper forks the next one: how long nobody is served, by how much
 * the next broker has to remember, and how much of a journal each buffer takes. Then, in files of
 * their own: who is made to wait meanwhile (survival_pause.c), and what writing the journal costs
 * as long as nobody dies (survival_cost.c).
 *
 * The clients are a crowd that was there before, and one more, which allocates: its connection is
 * the old one, too.
 */

#include <stdio.h>
#include <unistd.h>

#include <share/admin.h>

#include "bench/bench.h"
#include "bench/load/crowd.h"
#include "bench/load/kept_broker.h"
#include "bench/survival/survival.h"

#define PROCESSES     10
#define PROCESSES_ALL (PROCESSES + 1) /* the last one is one client, with the first buffers */
#define FIRST_BUFFERS 1000

static share_pool *make_pool(share_client *c)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *pool;

	options.kind = "host";
	options.limit = (uint64_t)2 << 30;
	must(share_pool_create(c, CROWD_POOL, &options, &pool), "share_pool_create");
	return pool;
}

/* From the kill to the first new buffer, in milliseconds. */
static double restart(share_client *c, share_pool *pool)
{
	pid_t serving = kept_broker_serving(c);
	double at = kept_broker_kill(serving), end;
	share_buffer *b;

	must(share_alloc(pool, CROWD_BUFFER, NULL, &b), "share_alloc");
	end = now_us();
	must(share_release(b, NULL), "share_release");
	must_system(kept_broker_serving(c) != serving, "kill the broker");
	return (end - at) / 1e3;
}

/* From one broker to the next of the program that is on the disk: whatever anybody asks of it
 * meanwhile waits no longer than this. */
static void upgrades(const struct run *run, share_client *c, const char *figure)
{
	struct samples took = {NULL, 0, 0};
	char name[64];

	for (int i = 0; i < (run->quick ? 2 : 5); i++) {
		double begun = now_us();

		must(share_upgrade(c, NULL, NULL), "share_upgrade");
		samples_add(&took, (now_us() - begun) / 1e3);
	}
	snprintf(name, sizeof(name), "survival.upgrade.%s", figure);
	figure_report(&(struct figure){name, "the longest that a request waits for an upgrade",
				       "ms", samples_percentile(&took, 100), NONE, NONE});
	samples_deinit(&took);
}

static void restarts(const struct run *run, share_client *c, share_pool *pool, const char *figure,
		     const char *what, double target)
{
	int n = run->quick ? 3 : 15;
	struct samples took = {NULL, 0, 0};
	char name[64];

	for (int i = 0; i < n; i++)
		samples_add(&took, restart(c, pool));
	upgrades(run, c, figure);
	snprintf(name, sizeof(name), "survival.restart.%s", figure);
	figure_report(&(struct figure){name, what, "ms", samples_median(&took), NONE, target});
	snprintf(name, sizeof(name), "survival.restart.%s.worst", figure);
	figure_report(&(struct figure){name, "the longest of them", "ms",
				       samples_percentile(&took, 100), NONE, NONE});
	samples_deinit(&took);
}

/* A quick run has a tenth of the clients, and ends with a hundredth of the buffers. */
static void all_restarts(const struct run *run, share_client *c, share_pool *pool,
			 const struct worker *workers)
{
	uint32_t connections = run->quick ? 10 : 100;
	uint32_t buffers = FIRST_BUFFERS;
	int64_t before;

	crowd_connect(&workers[PROCESSES], 1, c, 1);
	crowd_fill(&workers[PROCESSES], 1, FIRST_BUFFERS);
	restarts(run, c, pool, "1k", "from SIGKILL to the first new buffer, with 1,000 buffers",
		 100);
	crowd_connect(workers, PROCESSES, c, connections);
	restarts(run, c, pool, "1k.clients",
		 run->quick ? "the same with 100 clients" : "the same with 1,000 clients", 100);
	before = broker_number(c, "journal_bytes");
	for (uint32_t each = 100; each <= (run->quick ? 100 : 1000); each *= 10) {
		uint32_t more = each * connections * PROCESSES + FIRST_BUFFERS - buffers;

		crowd_fill(workers, PROCESSES, more / connections / PROCESSES);
		buffers += more;
		restarts(run, c, pool,
			 run->quick    ? "10k.clients"
			 : each == 100 ? "100k.clients"
				       : "1m.clients",
			 each == 100 ? "the same, with so many buffers of theirs"
				     : "the same with 1,000 clients and 1,000,000 buffers",
			 1000);
	}
	figure_report(&(struct figure){
	    "survival.journal.bytes", "bytes of the journal for a buffer and its lease", "B",
	    (double)(broker_number(c, "journal_bytes") - before) / (buffers - FIRST_BUFFERS), NONE,
	    64});
}

static void measure_restarts(const struct run *run)
{
	char config_path[] = "/tmp/share-bench-XXXXXX";
	struct worker workers[PROCESSES_ALL];
	struct kept_broker broker;
	share_client *c;
	share_pool *pool;

	crowd_start(workers, PROCESSES_ALL);
	crowd_write_config(config_path);
	kept_broker_start(&broker, NULL, config_path);
	must(share_connect(broker.socket, &c), "share_connect");
	pool = make_pool(c);
	all_restarts(run, c, pool, workers);
	crowd_kill(workers, PROCESSES_ALL);
	crowd_forget(workers, PROCESSES_ALL);
	share_pool_close(pool);
	share_disconnect(c);
	kept_broker_stop(&broker);
	unlink(config_path); /* which each next broker looks at */
}

void bench_survival(const struct run *run)
{
	measure_restarts(run);
	survival_pause(run);
	survival_cost(run);
}
