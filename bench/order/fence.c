/* SPDX-License-Identifier: MIT */

/*
 * What fences cost. This file measures what they cost CPUs, with host streams, so it runs on every
 * machine.
 *
 * To ask whether another process's fence is reached is compared with one load of shared memory. In
 * the library it is a load too, but behind a public function, which finds the page by the number of
 * the fence. If the fence is not reached, the library also asks whether its process is still alive.
 *
 * To wake a thread that sleeps until a fence is reached is compared with a word of shared memory
 * and a futex. Two host streams of two processes wait for each other's fences in turn, in
 * share_fence_synchronize(); everything is enqueued before the first may start. In the floor, two
 * processes wait for each other's words. On which cores they run decides most of it; see rpc.c.
 */

#include <stdio.h>
#include <stdlib.h>

#include "bench/order/fence.h"

#define LOADS 1000 /* in one sample, as one is too short to be timed */

/* ------------------------------------------------------------------------------------------- */
/* Asking                                                                                      */

static double time_loads(_Atomic uint64_t *cell)
{
	volatile uint64_t seen = 0;
	double start = now_us();

	for (int i = 0; i < LOADS; i++)
		seen = atomic_load_explicit(cell, memory_order_acquire);
	(void)seen;
	return (now_us() - start) * 1000 / LOADS;
}

static double time_queries(share_client *c, const share_fence *f, int expected)
{
	double start = now_us();

	for (int i = 0; i < LOADS; i++) {
		int r = share_fence_query(c, f);

		if (r != expected) {
			fprintf(stderr, "share-bench: share_fence_query says %s, not %s\n",
				share_strerror(r), share_strerror(expected));
			exit(1);
		}
	}
	return (now_us() - start) * 1000 / LOADS;
}

static void measure_queries(const struct run *run, share_client *c, const struct fence_peer *peer)
{
	int rounds = run->quick ? 3 : 11, n = run->quick ? 5 : 50;
	struct series loads = {0}, reached = {0}, pending = {0};
	struct figure f = {.unit = "ns", .target = NONE};
	share_fence fence;

	fence_peer_start_chain(peer);
	for (int i = 0; i < rounds; i++) {
		fence = fence_peer_close_gate(peer);
		for (int k = 0; k < n; k++)
			samples_add(&pending.round, time_queries(c, &fence, SHARE_EAGAIN));
		fence_peer_open_gate(peer);
		for (int k = 0; k < n; k++) {
			samples_add(&loads.round, time_loads(&peer->memory->cell));
			samples_add(&reached.round, time_queries(c, &fence, 0));
		}
		series_end_round(&loads);
		series_end_round(&reached);
		series_end_round(&pending);
	}
	f.name = "fence.query";
	f.what = "share_fence_query of a peer's fence, reached; floor: one load";
	series_report_median(&reached, &loads, &f);
	f.name = "fence.query.pending";
	f.what = "the same, not reached: asks whether the peer lives";
	series_report_median(&pending, &loads, &f);
	series_deinit(&loads);
	series_deinit(&reached);
	series_deinit(&pending);
}

/* ------------------------------------------------------------------------------------------- */
/* Waking                                                                                      */

/* A round trip has two wake-ups, so one takes half of it. */
static double time_futex(const struct fence_peer *peer, unsigned n)
{
	double start = now_us();

	fence_peer_play_futex(peer, n);
	return (now_us() - start) / (2 * n);
}

static double time_chain(struct chain *c, const struct fence_peer *peer, unsigned n)
{
	share_fence f = chain_close(c);
	double start;

	for (unsigned i = 0; i < n; i++)
		f = chain_link(c, fence_peer_link(peer, f));
	start = now_us();
	chain_run(c);
	return (now_us() - start) / (2 * n);
}

static void measure_wakes(const struct run *run, share_client *c, const struct fence_peer *peer,
			  enum placement placement)
{
	int rounds = run->quick ? 3 : 11, n = run->quick ? 5 : 20;
	struct series ours = {0}, floors = {0};
	struct figure f = {.unit = "us", .target = NONE};
	static struct chain chain;
	char name[64], what[256];

	/* The threads of the chains run on the cores on which these processes are now. */
	chain_start(&chain, c);
	fence_peer_start_chain(peer);
	for (int i = 0; i < rounds; i++) {
		for (int k = 0; k < n; k++) {
			samples_add(&floors.round, time_futex(peer, LINKS_MAX));
			samples_add(&ours.round, time_chain(&chain, peer, LINKS_MAX));
		}
		series_end_round(&ours);
		series_end_round(&floors);
	}
	chain_stop(&chain);
	snprintf(name, sizeof(name), "fence.wake%s", placement_names[placement].suffix);
	snprintf(what, sizeof(what),
		 "share_fence_synchronize wakes, by a peer's host stream; floor: futex; %s",
		 placement_names[placement].words);
	f.name = name;
	f.what = what;
	series_report_median(&ours, &floors, &f);
	series_deinit(&ours);
	series_deinit(&floors);
}

void bench_fence(const struct run *run)
{
	struct fence_peer peer;
	share_client *c;

	fence_peer_fork(&peer);
	must(share_connect("embedded", &c), "share_connect");
	other_tell_address(&peer.other, c);
	measure_queries(run, c, &peer);
	for (enum placement k = ANYWHERE; k < PLACEMENTS; k++) {
		if (place(k, &peer.other.pid, 1))
			measure_wakes(run, c, &peer, k);
		else
			skip("fence.wake", k);
	}
	place(ANYWHERE, &peer.other.pid, 1);
	fence_gpu(run, c, &peer);
	share_disconnect(c);
	fence_peer_end(&peer);
}
