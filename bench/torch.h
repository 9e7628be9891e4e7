/* SPDX-License-Identifier: MIT */
#ifndef BENCH_TORCH_H
#define BENCH_TORCH_H

#include <stdint.h>

#include "bench/bench.h"

/* bench/torch_queue.py, of which a copy is in ../share from this program, in a process of its own.
 * torch.c */
struct torch;

/* Before this process has used the driver, or has threads. */
struct torch *torch_start(void);
/* Waits until it is ready. NULL, or why there is none. Once. */
const char *torch_wait(struct torch *t);
/* @n tensors of @size bytes to another process and back, one after the other: adds microseconds. */
void torch_play(struct torch *t, uint64_t size, unsigned n, struct samples *hand_over,
		struct samples *whole);
void torch_stop(struct torch *t);

#endif
