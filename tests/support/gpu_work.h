/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tests/harness/child.h"

/*
 * Work on CUDA streams that lasts until the test says so, for tests of how libshare orders it: over
 * the stand-in driver, or over a real one, for which all children are started before the test's own
 * process uses it (gpu_use()).
 *
 * The fixture's pool "default" is memory of the first device and has room for one block, so who
 * allocates gets what another has just released.
 */
#define GPU_BLOCK (UINT64_C(2) << 20)

extern share_client *gpu_client;
extern share_pool *gpu_pool;

/* Init and fini of the suites: a broker, gates, `gpu_client`. Skips where no device can be used. */
void gpu_work_start(void);
void gpu_work_stop(void);
/* The same on a machine described as in tests/standin/calls.h, which takes the stand-in driver. */
void gpu_work_start_on(const char *machine);

/* From now on the calling process uses the driver, and the calling thread the first device. */
void gpu_use(void);
/* "default", of which a process has to have something before fences are of use to it. */
share_buffer *gpu_allocate(share_client *c, void *stream);

/* Streams. They are independent of each other and of the default stream. */
void *gpu_stream(void);
void gpu_stream_destroy(void *stream);
bool gpu_is_busy(void *stream);
void gpu_wait(void *stream);
/* Work on other streams of this process is done: neither the host nor the device stands still. */
void gpu_expect_others_run(void);
/* The same for most of many, made before any stream was parked: with 35 there, the driver does not
 * make another one until those that are parked go on (H200, driver 580). */
#define GPU_OTHERS 24
void gpu_others_create(void *streams[GPU_OTHERS]);
void gpu_expect_most_others_run(void *streams[GPU_OTHERS]);

/* Gates are shared by the test and all of its children. */
#define GPU_GATES 4
void gpu_hold(void *stream, unsigned gate); /* enqueues: wait until it is open */
/* The same where a stream cannot wait for values. */
void gpu_hold_by_host(void *stream, unsigned gate);
void gpu_open(unsigned gate);
bool gpu_is_open(unsigned gate);

/* Enqueues: all of the buffer becomes @value. */
void gpu_fill(void *stream, share_buffer *b, int value);
/* Enqueues: read all of it. What was read is looked at once the stream is done. */
struct gpu_reading;
struct gpu_reading *gpu_read(void *stream, share_buffer *b);
void gpu_expect(struct gpu_reading *reading, int value);
/* The stream has to come after all that @gate holds up: it is closed still, and others run. */
void gpu_expect_held(void *stream, unsigned gate);

share_fence_stats gpu_stats(share_client *c);
/* enum share_ordered */
uint32_t gpu_ordered(share_buffer *b);

/* Of the driver, for what the above does not do; the symbol as libcuda.so.1 has it. */
typedef void (*gpu_function)(void);
gpu_function gpu_symbol(const char *name);
/* Calls one that returns a CUresult. */
#define GPU_CALL(type, symbol, ...) gpu_check(#symbol, ((type)gpu_symbol(#symbol))(__VA_ARGS__))
void gpu_check(const char *call, int result);
