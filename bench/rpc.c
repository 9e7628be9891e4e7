/* SPDX-License-Identifier: MIT */

/*
 * What a request to the broker costs, compared with its floor: two processes that send each other
 * packets of the same sizes over the same kind of socket, with a blocking send and a blocking
 * receive on both sides and nothing else. Nobody can do better over a socket. What a request takes
 * longer is the library's encoding and locking, and the broker's event loop.
 *
 * On which cores the two processes run matters more than what either of them does: waking a process
 * on another core takes an interrupt, on the same core a context switch. So both are measured on
 * two cores and on one, with the same placement for the measurement and the floor; and also as the
 * scheduler places them, which varies.
 *
 * After a reply the broker works until it waits in its event loop again. On two cores, the client
 * is already busy in this time; on one core it may have to wait for the broker.
 */

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/bench.h"

#define PACKET_MAX 1024

uint32_t packet_size(const struct wire_message *m)
{
	unsigned char packet[PACKET_MAX];

	return (uint32_t)wire_encode(m, packet, sizeof(packet));
}

/* ------------------------------------------------------------------------------------------- */
/* The floor                                                                                   */

/* Answers packets. Each packet begins with the size of the reply that it wants. */
static void answer(void *data)
{
	unsigned char packet[PACKET_MAX] = {0};
	const struct other *self = data;
	uint32_t reply;

	/* A broker has a session of its own too. The kernel makes its autogroups of sessions, and
	 * switching between two groups takes longer. */
	setsid();
	while (recv(self->socket, packet, sizeof(packet), 0) > 0) {
		memcpy(&reply, packet, sizeof(reply));
		if (reply > 0 && send(self->socket, packet, reply, MSG_NOSIGNAL) < 0)
			break;
	}
}

void ping_pong_start(struct other *o)
{
	other_start(o, answer, o);
}

void ping_pong_play(const struct other *o, const struct exchange *exchanges, size_t n)
{
	unsigned char packet[PACKET_MAX];

	for (size_t i = 0; i < n; i++) {
		const struct exchange *e = &exchanges[i];

		memcpy(packet, &e->reply, sizeof(e->reply));
		must_system(send(o->socket, packet, e->request, MSG_NOSIGNAL) == e->request,
			    "send to the floor's process");
		if (e->reply > 0)
			must_system(recv(o->socket, packet, sizeof(packet), 0) == e->reply,
				    "receive from the floor's process");
	}
}

/* ------------------------------------------------------------------------------------------- */
/* Placement                                                                                   */

const struct placement_name placement_names[PLACEMENTS] = {
    [ANYWHERE] = {"", "started on one core and left to the scheduler"},
    [APART] = {".apart", "on two cores"},
    [TOGETHER] = {".together", "on one core"},
};

struct cores {
	cpu_set_t all, first, second;
	int n;
};

/* Finds the first two of the cores on which this process may run. */
static const struct cores *find_cores(void)
{
	static struct cores c;

	if (c.n > 0)
		return &c;
	must_system(sched_getaffinity(0, sizeof(c.all), &c.all) == 0, "sched_getaffinity");
	for (int cpu = 0; cpu < CPU_SETSIZE && c.n < 2; cpu++)
		if (CPU_ISSET(cpu, &c.all))
			CPU_SET(cpu, c.n++ == 0 ? &c.first : &c.second);
	return &c;
}

static bool pin(const cpu_set_t *own, const cpu_set_t *theirs, const pid_t *others, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (sched_setaffinity(others[i], sizeof(*theirs), theirs) < 0)
			return false;
	return sched_setaffinity(0, sizeof(*own), own) == 0;
}

bool place(enum placement placement, const pid_t *others, size_t n)
{
	const struct cores *c = find_cores();

	switch (placement) {
	case APART:
		return c->n == 2 && pin(&c->first, &c->second, others, n);
	case TOGETHER:
		return pin(&c->first, &c->first, others, n);
	default:
		/* A process tends to run where it ran last, so all of them start from the same
		 * core. */
		pin(&c->first, &c->first, others, n);
		pin(&c->all, &c->all, others, n);
		return true;
	}
}

void skip(const char *name, enum placement placement)
{
	fprintf(stderr, "share-bench: %s%s: SKIPPED: processes cannot be placed %s\n", name,
		placement_names[placement].suffix, placement_names[placement].words);
}

/* ------------------------------------------------------------------------------------------- */
/* The requests                                                                                */

#define NAME "bench/rpc"

struct subject {
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

	must(share_alloc(s->pool, 4096, NULL, &b), "share_alloc");
	must(share_release(b, NULL), "share_release");
}

static void look_up_and_release(const struct subject *s)
{
	share_buffer *b;

	must(share_lookup(s->client, NAME, SHARE_RDONLY, 0, NULL, &b), "share_lookup");
	must(share_release(b, NULL), "share_release");
}

#define EXCHANGES_MAX 2

struct request {
	const char *name;
	const char *what;
	void (*perform)(const struct subject *s);
	struct exchange floor[EXCHANGES_MAX];
	size_t n_floor;
	struct series ours, floors;
};

enum { PING, ALLOC, LOOKUP, REQUESTS };

static void describe_requests(struct request *requests)
{
	struct wire_message ping_message = {.type = WIRE_PING}, done = {.type = WIRE_DONE},
			    alloc = {.type = WIRE_ALLOC}, grant = {.type = WIRE_GRANT},
			    release = {.type = WIRE_RELEASE}, lookup = {.type = WIRE_LOOKUP};

	lookup.lookup.name = (struct wire_bytes){NAME, sizeof(NAME) - 1};
	requests[PING] = (struct request){
	    .name = "rpc.ping",
	    .what = "share_ping",
	    .perform = ping,
	    .floor = {{packet_size(&ping_message), packet_size(&done)}},
	    .n_floor = 1,
	};
	requests[ALLOC] = (struct request){
	    .name = "rpc.alloc",
	    .what = "share_alloc + share_release",
	    .perform = alloc_and_release,
	    .floor = {{packet_size(&alloc), packet_size(&grant)}, {packet_size(&release), 0}},
	    .n_floor = 2,
	};
	requests[LOOKUP] = (struct request){
	    .name = "rpc.lookup",
	    .what = "share_lookup + share_release",
	    .perform = look_up_and_release,
	    .floor = {{packet_size(&lookup), packet_size(&grant)}, {packet_size(&release), 0}},
	    .n_floor = 2,
	};
}

static void play_floor(const struct other *p, struct request *r, int n)
{
	for (int i = -n / 10; i < n; i++) {
		double start = now_us();

		ping_pong_play(p, r->floor, r->n_floor);
		if (i >= 0)
			samples_add(&r->floors.round, now_us() - start);
	}
	series_end_round(&r->floors);
}

static void perform(const struct subject *s, struct request *r, int n)
{
	for (int i = -n / 10; i < n; i++) {
		double start = now_us();

		r->perform(s);
		if (i >= 0)
			samples_add(&r->ours.round, now_us() - start);
	}
	series_end_round(&r->ours);
}

static void report(struct request *r, enum placement placement)
{
	/* Without a placement, the measurement and its floor may run on different cores, so their
	 * ratio has no target. */
	struct figure f = {.unit = "us", .target = placement == ANYWHERE ? NONE : 1.5};
	char name[64], what[256];

	snprintf(name, sizeof(name), "%s%s", r->name, placement_names[placement].suffix);
	snprintf(what, sizeof(what), "%s; %s", r->what, placement_names[placement].words);
	f.name = name;
	f.what = what;
	series_report(&r->ours, &r->floors, &f, NONE);
	series_deinit(&r->ours);
	series_deinit(&r->floors);
}

static void measure(const struct run *run, const struct subject *s, const struct other *p,
		    enum placement placement, const pid_t *others)
{
	int rounds = run->quick ? 3 : 21, n = run->quick ? 500 : 2000;
	struct request requests[REQUESTS];

	describe_requests(requests);
	for (int i = 0; i < rounds; i++) {
		for (int k = 0; k < REQUESTS; k++) {
			place(placement, others, 2);
			play_floor(p, &requests[k], n);
			place(placement, others, 2);
			perform(s, &requests[k], n);
		}
	}
	for (int k = 0; k < REQUESTS; k++)
		report(&requests[k], placement);
}

void bench_rpc(const struct run *run)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	struct subject s;
	struct other p;
	share_buffer *named;
	pid_t others[2];

	ping_pong_start(&p);
	must(share_connect("embedded", &s.client), "share_connect");
	options.kind = "host";
	must(share_pool_create(s.client, "bench", &options, &s.pool), "share_pool_create");
	must(share_alloc(s.pool, 4096, NULL, &named), "share_alloc");
	must(share_publish(named, NAME, NULL), "share_publish");
	must(share_release(named, NULL), "share_release");
	others[0] = p.pid;
	others[1] = (pid_t)broker_number(s.client, "pid");

	for (enum placement k = ANYWHERE; k < PLACEMENTS; k++) {
		if (place(k, others, 2))
			measure(run, &s, &p, k, others);
		else
			skip("rpc", k);
	}
	place(ANYWHERE, NULL, 0);

	share_pool_close(s.pool);
	share_disconnect(s.client);
	other_end(&p);
}
