/* SPDX-License-Identifier: MIT */
#ifndef BENCH_FENCE_H
#define BENCH_FENCE_H

#include <semaphore.h>
#include <stdatomic.h>

#include "bench/bench.h"

/*
 * What the benchmarks of fences share, most of it the parts of "fence". fence.c is about CPUs
 * alone, fence_gpu.c about the streams of a GPU, fence_peer.c is the other process.
 */

/*
 * A host stream that stands still at a gate, and behind it what is enqueued meanwhile, each link
 * waiting for a fence and followed by one of its own.
 */
#define LINKS_MAX 200

struct link {
	struct chain *chain;
	share_fence fence;
};

struct chain {
	share_client *client;
	share_host_stream *stream;
	sem_t gate, end;
	struct link links[LINKS_MAX]; /* the last ones */
	unsigned n;
};

/* With a thread of its own, that runs where this one does now. */
void chain_start(struct chain *c, share_client *client);
void chain_stop(struct chain *c);
/* What is enqueued from now on has to wait; returns a fence at the gate. */
share_fence chain_close(struct chain *c);
/* Enqueues: the thread waits for @fence, in share_fence_synchronize(). Returns a fence behind. At
 * most LINKS_MAX that have not run. */
share_fence chain_link(struct chain *c, share_fence fence);
/* Opens the gate; returns when all has run. */
void chain_run(struct chain *c);

/* Memory that both processes have, for the floors. */
struct floor_word {
	_Atomic uint32_t value;
	uint32_t unused[15];
};
struct floor_memory {
	struct floor_word there, back;
	_Atomic uint64_t cell;
};

/* Another process with a chain. It is forked, so first of all. */
struct fence_peer {
	pid_t pid;
	int socket;
	struct floor_memory *memory;
};

void fence_peer_fork(struct fence_peer *p);
void fence_peer_connect(const struct fence_peer *p, const char *address);
void fence_peer_end(struct fence_peer *p);

/* A new chain, where the peer runs now. */
void fence_peer_start_chain(const struct fence_peer *p);
share_fence fence_peer_close_gate(const struct fence_peer *p);
share_fence fence_peer_link(const struct fence_peer *p, share_fence fence);
/* Returns when all has run. */
void fence_peer_open_gate(const struct fence_peer *p);

/* A round trip through the two words, by futex, @n times. */
void fence_peer_play_futex(const struct fence_peer *p, unsigned n);

/* fence_gpu.c */

/* Whether this client's fences on @stream are signaled by the GPU; it uses memory of one. */
bool fence_gpu_signals(share_client *c, void *stream);
#define NOT_BY_GPU "the fences of GPU streams are kept by the host here"

void fence_gpu(const struct run *run, share_client *c, const struct fence_peer *peer);

#endif
