/* SPDX-License-Identifier: MIT */

/*
 * How a broker with 1,000 clients and 1,000,000 buffers serves one client among them: its
 * latencies, compared with those of the only client of a broker that has just started. Also how
 * much memory of the broker a buffer takes, and what happens when all of these clients die, or one
 * process that holds as many buffers by itself.
 *
 * The clients are connections of ten processes, 100 each, because 1,000 processes would be too many
 * for a small machine. To the broker each connection is a client: it has leases, a socket and a
 * pidfd of its own. The clients hold their buffers and are silent meanwhile. This measures how much
 * the broker has to remember, and not how many requests it can serve at a time.
 */

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/load/crowd.h"

#define SIZE      CROWD_BUFFER
#define PROCESSES 10
#define HELD      1000 /* buffers of the client that is measured, in the churn */

/* ------------------------------------------------------------------------------------------- */
/* Latency                                                                                     */

/* A client that is measured, and what it uses. */
struct subject {
	share_client *client;
	share_pool *pool;
	share_buffer *held[HELD];
	uint64_t random;
};

/* Allocates and releases one buffer: the same memory each time, in both brokers. */
static void alloc_and_release(struct subject *s)
{
	share_buffer *b;

	must(share_alloc(s->pool, SIZE, NULL, &b), "share_alloc");
	must(share_release(b, NULL), "share_release");
}

/* Releases one of a thousand buffers and allocates another: each time different memory, and
 * different memory of the broker that describes it. */
static void churn(struct subject *s)
{
	share_buffer **b;

	s->random = s->random * 6364136223846793005u + 1442695040888963407u;
	b = &s->held[(s->random >> 33) % HELD];
	must(share_release(*b, NULL), "share_release");
	must(share_alloc(s->pool, SIZE, NULL, b), "share_alloc");
}

static void measure(struct subject *s, void (*step)(struct subject *s), int n, struct series *out)
{
	for (int i = -n / 10; i < n; i++) {
		double start = now_us();

		step(s);
		if (i >= 0)
			samples_add(&out->round, now_us() - start);
	}
	series_end_round(out);
}

static void hold(struct subject *s)
{
	for (int i = 0; i < HELD; i++)
		must(share_alloc(s->pool, SIZE, NULL, &s->held[i]), "share_alloc");
}

static void let_go(struct subject *s)
{
	for (int i = 0; i < HELD; i++)
		must(share_release(s->held[i], NULL), "share_release");
}

static void compare(struct subject *fresh, struct subject *loaded, const struct run *run,
		    void (*step)(struct subject *s), const char *name, const char *what)
{
	struct figure f = {name, what, "us", NONE, NONE, NONE};
	struct series ours = {.round = {NULL, 0, 0}}, floors = ours;
	int rounds = run->quick ? 5 : 25, n = run->quick ? 1000 : 4000;

	for (int i = 0; i < rounds; i++) {
		measure(fresh, step, n, &floors);
		measure(loaded, step, n, &ours);
	}
	series_report(&ours, &floors, &f, 2);
	series_deinit(&ours);
	series_deinit(&floors);
}

/* ------------------------------------------------------------------------------------------- */
/* A process dies                                                                              */

/* Times one request, and keeps the longest time so far in @worst. */
static void ping(share_client *c, double *worst)
{
	double start = now_us(), took;

	must(share_ping(c), "share_ping");
	took = now_us() - start;
	if (took > *worst)
		*worst = took;
}

static int64_t buffers_left(share_client *c, double *worst)
{
	double start = now_us(), took;
	int64_t n = broker_number(c, "buffers");

	/* This request counts too: if the broker made it wait, the ping after it did not have
	 * to. */
	took = now_us() - start;
	if (took > *worst)
		*worst = took;
	return n;
}

static double quiet_worst(share_client *c, double us)
{
	double start = now_us(), worst = 0;

	while (now_us() - start < us) {
		ping(c, &worst);
		buffers_left(c, &worst);
	}
	return worst;
}

struct death {
	const struct worker *workers;
	int n;
	double at; /* when the last of them was dead */
};

/* Runs in a thread of its own, since the one that pings may have to wait just then. */
static void *wait_for_death(void *data)
{
	struct death *d = data;

	for (int i = 0; i < d->n; i++) {
		struct pollfd p = {.fd = d->workers[i].pidfd, .events = POLLIN};

		while (poll(&p, 1, -1) < 0)
			;
	}
	d->at = now_us();
	return NULL;
}

static void report_death(const char *who, const char *figure, double ms, double floor,
			 const char *what)
{
	char name[64];

	snprintf(name, sizeof(name), "scale.%s.%s", who, figure);
	figure_report(&(struct figure){name, what, "ms", ms, floor, NONE});
}

static void kill_and_watch(share_client *c, const struct worker *workers, int n, const char *who)
{
	struct death death = {workers, n, 0};
	double quiet = quiet_worst(c, 500e3), worst = 0, start, over;
	pthread_t thread;

	must_system(pthread_create(&thread, NULL, wait_for_death, &death) == 0, "start a thread");
	start = now_us();
	crowd_kill(workers, n);
	do
		ping(c, &worst);
	while (buffers_left(c, &worst) > 0);
	over = now_us();
	pthread_join(thread, NULL);
	report_death(who, "death", (death.at - start) / 1e3, NONE,
		     "from SIGKILL until the kernel says that all are dead");
	report_death(who, "cleanup", (over - start) / 1e3, NONE,
		     "from SIGKILL until the broker has no buffer left");
	report_death(who, "worst", worst / 1e3, quiet / 1e3,
		     "longest request of another client meanwhile");
}

/* ------------------------------------------------------------------------------------------- */

static void start_broker(struct subject *s, const char *config_path)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	share_pool_options pool = SHARE_POOL_OPTIONS_INIT;

	options.config = config_path;
	must(share_connect_with("embedded", &options, &s->client), "share_connect");
	pool.kind = "host";
	pool.limit = (uint64_t)2 << 30;
	must(share_pool_create(s->client, CROWD_POOL, &pool, &s->pool), "share_pool_create");
}

static void stop_broker(struct subject *s)
{
	share_pool_close(s->pool);
	share_disconnect(s->client);
}

static void crowd(const struct run *run, share_client *c, const struct worker *workers)
{
	uint32_t connections = run->quick ? 10 : 100, each = 1000;
	double clients = PROCESSES * connections, buffers = clients * each;
	pid_t broker = (pid_t)broker_number(c, "pid");
	double alone, connected, filled;

	alone = resident(broker);
	crowd_connect(workers, PROCESSES, c, connections);
	connected = resident(broker);
	crowd_fill(workers, PROCESSES, each);
	filled = resident(broker);
	figure_report(&(struct figure){"scale.client", "memory of the broker for each client", "B",
				       (connected - alone) / clients, NONE, NONE});
	figure_report(&(struct figure){"scale.buffer", "memory of the broker for each live buffer",
				       "B", (filled - connected) / buffers, NONE, 256});
}

/* All of them run on one core, so that the scheduler does not decide which broker is faster. */
static void compare_all(const struct run *run, struct subject *fresh, struct subject *loaded)
{
	pid_t brokers[2] = {(pid_t)broker_number(fresh->client, "pid"),
			    (pid_t)broker_number(loaded->client, "pid")};

	if (!place(TOGETHER, brokers, 2)) {
		skip("scale", TOGETHER);
		return;
	}
	compare(fresh, loaded, run, alloc_and_release, "scale.alloc",
		"share_alloc + share_release, beside a fresh broker's only client");
	hold(fresh);
	hold(loaded);
	compare(fresh, loaded, run, churn, "scale.churn",
		"the same, releasing one of 1,000 buffers at random");
	let_go(fresh);
	let_go(loaded);
	place(ANYWHERE, brokers, 2);
}

void bench_scale(const struct run *run)
{
	char config_path[] = "/tmp/share-bench-XXXXXX";
	struct worker workers[PROCESSES + 1];
	static struct subject fresh, loaded;

	crowd_start(workers, PROCESSES + 1);
	crowd_write_config(config_path);
	start_broker(&fresh, config_path);
	start_broker(&loaded, config_path);
	unlink(config_path);

	crowd(run, loaded.client, workers);
	compare_all(run, &fresh, &loaded);
	stop_broker(&fresh);
	kill_and_watch(loaded.client, workers, PROCESSES, "crowd");
	crowd_forget(workers, PROCESSES);

	crowd_connect(&workers[PROCESSES], 1, loaded.client, 1);
	crowd_fill(&workers[PROCESSES], 1, run->quick ? 100000 : 1000000);
	kill_and_watch(loaded.client, &workers[PROCESSES], 1, "hoarder");
	crowd_forget(&workers[PROCESSES], 1);
	stop_broker(&loaded);
}
