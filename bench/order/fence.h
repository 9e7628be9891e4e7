/* SPDX-License-Identifier: MIT */
#pragma once

#include <semaphore.h>
#include <stdatomic.h>

#include "bench/bench.h"

/*
 * What the benchmarks of fences share; most of it is for "fence". fence.c measures CPUs,
 * fence_gpu.c the streams of a GPU, and fence_peer.c is the other process.
 */

/*
 * A host stream that stands at a closed gate, and behind it the links that are enqueued meanwhile.
 * Each link waits for a fence and has a fence of its own behind it.
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
	struct link links[LINKS_MAX]; /* the last ones that were enqueued */
	unsigned n;
};

/* Makes the chain, with a thread that runs on the cores on which the calling thread is now. */
void chain_start(struct chain *c, share_client *client);
void chain_stop(struct chain *c);
/* Closes the gate: what is enqueued from now on has to wait. Returns a fence at the gate. */
share_fence chain_close(struct chain *c);
/* Enqueues a link: the thread waits for @fence in share_fence_synchronize(). Returns a fence behind
 * it. At most LINKS_MAX links may be waiting. */
share_fence chain_link(struct chain *c, share_fence fence);
/* Opens the gate, and returns when everything has run. */
void chain_run(struct chain *c);

/* Memory that both processes share, for the floors. */
struct floor_word {
	_Atomic uint32_t value;
	uint32_t unused[15];
};
struct floor_memory {
	struct floor_word there, back;
	_Atomic uint64_t cell;
};

/* Another process with a chain. It is forked, so this comes before anything else. */
struct fence_peer {
	struct other other;
	struct floor_memory *memory;
};

void fence_peer_fork(struct fence_peer *p);
void fence_peer_end(struct fence_peer *p);

/* Makes a new chain in the peer, which runs on the cores on which the peer is now. */
void fence_peer_start_chain(const struct fence_peer *p);
share_fence fence_peer_close_gate(const struct fence_peer *p);
share_fence fence_peer_link(const struct fence_peer *p, share_fence fence);
/* Returns when everything has run. */
void fence_peer_open_gate(const struct fence_peer *p);

/* Plays @n round trips through the two words, by futex. */
void fence_peer_play_futex(const struct fence_peer *p, unsigned n);

/* fence_gpu.c */

/* Returns whether the GPU signals this client's fences on @stream. The client must use memory of a
 * GPU. */
bool fence_gpu_signals(share_client *c, void *stream);
#define NOT_BY_GPU "the fences of GPU streams are kept by the host here"

void fence_gpu(const struct run *run, share_client *c, const struct fence_peer *peer);
