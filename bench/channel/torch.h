/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "bench/bench.h"

/* A process that runs bench/torch_queue.py. A copy of the script is in the folder ../share, seen
 * from this program. */
struct torch;

/* Starts the process. This comes before the calling process has used the driver or has threads. */
struct torch *torch_start(void);
/* Waits until the process is ready. Returns NULL, or why there is no floor. To be called once. */
const char *torch_wait(struct torch *t);
/* Sends @n tensors of @size bytes to another process, one after the other, and waits for the answer
 * to each. Adds the microseconds of each to the samples. */
void torch_play(struct torch *t, uint64_t size, unsigned n, struct samples *hand_over,
		struct samples *whole);
void torch_stop(struct torch *t);
