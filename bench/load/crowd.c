/* SPDX-License-Identifier: MIT */

/*
 * Processes that have connections and hold buffers. A connection is a client to the broker: it has
 * leases, a socket and a pidfd of its own. So ten processes are a thousand clients, of which there
 * would be too many processes for a small machine.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/load/crowd.h"

/* These limits are higher than what 1,000 clients of one user and a few more need. */
static const char config[] = "{ \"limits\": { \"connections\": 4096, \"leases\": 8388608 } }\n";

void crowd_write_config(char *path)
{
	int fd = mkstemp(path);

	must_system(fd >= 0 && write(fd, config, sizeof(config) - 1) == sizeof(config) - 1,
		    "write a configuration");
	close(fd);
}

/* What they are told. They answer each order when they have done it. */
struct order {
	uint32_t connections; /* more than they have */
	uint32_t buffers;     /* more, for each connection */
	char address[128];
};

struct holder {
	share_pool **pools; /* one for each connection */
	uint32_t n;
};

static void add_connections(struct holder *h, const struct order *o)
{
	share_client *c;

	h->pools = realloc(h->pools, (h->n + o->connections) * sizeof(share_pool *));
	must_system(h->pools, "memory for pools");
	for (uint32_t i = 0; i < o->connections; i++) {
		must(share_connect(o->address, &c), "share_connect");
		must(share_pool_open(c, CROWD_POOL, &h->pools[h->n++]), "share_pool_open");
	}
}

/* The connections take turns, as clients that live side by side would. */
static void add_buffers(const struct holder *h, const struct order *o)
{
	share_buffer *b;

	for (uint32_t k = 0; k < o->buffers; k++)
		for (uint32_t i = 0; i < h->n; i++)
			must(share_alloc(h->pools[i], CROWD_BUFFER, NULL, &b), "share_alloc");
}

/* Until it is killed. */
static void hold_buffers(void *data)
{
	const struct other *self = data;
	struct holder h = {NULL, 0};
	struct order o;

	for (;;) {
		other_hear(self, &o, sizeof(o));
		if (o.connections > 0)
			add_connections(&h, &o);
		add_buffers(&h, &o);
		other_done(self);
	}
}

void crowd_start(struct worker *workers, int n)
{
	for (int i = 0; i < n; i++) {
		struct other *o = &workers[i].other;

		other_start(o, hold_buffers, o);
		workers[i].pidfd = (int)syscall(SYS_pidfd_open, o->pid, 0);
		must_system(workers[i].pidfd >= 0, "pidfd_open");
	}
}

/* Gives all workers the order at once, and waits until all have done it. */
static void tell(const struct worker *workers, int n, const struct order *o)
{
	for (int i = 0; i < n; i++)
		other_tell(&workers[i].other, o, sizeof(*o));
	for (int i = 0; i < n; i++)
		other_wait(&workers[i].other);
}

void crowd_connect(const struct worker *workers, int n, share_client *c, uint32_t connections)
{
	struct order o = {.connections = connections};

	snprintf(o.address, sizeof(o.address), "%s", share_address(c));
	tell(workers, n, &o);
}

void crowd_fill(const struct worker *workers, int n, uint32_t buffers)
{
	tell(workers, n, &(struct order){.buffers = buffers});
}

void crowd_kill(const struct worker *workers, int n)
{
	for (int i = 0; i < n; i++)
		kill(workers[i].other.pid, SIGKILL);
}

void crowd_forget(struct worker *workers, int n)
{
	for (int i = 0; i < n; i++) {
		close(workers[i].pidfd);
		other_end(&workers[i].other);
	}
}
