/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "tests/harness/child.h"
#include "tests/standin/calls.h"

/*
 * For tests of what clients do with memory of a device, over the stand-in driver. The test's own
 * process never uses the driver, as a child that is forked from one that does cannot: it looks on,
 * by `gpu_client`. Another process, the owner, allocates a buffer and publishes it as "name", with
 * "content" in it.
 */
#define GPU_UNIT (UINT64_C(2) << 20) /* its segment */

extern share_client *gpu_client;

/* Init and fini of the suites: a broker, and two devices. Skips without the stand-in driver. */
void gpu_start(void);
void gpu_stop(void);

/* On the first device. */
struct child *owner_start(const char *kind);
/* It looks after its buffer and gives it up; then nothing may be left with the broker. */
void owner_finish(struct child *owner);

/* Of the first device, bytes. An agent lets go of its half of a memory pool when it is told, which
 * nobody waits for: so does this not. */
uint64_t gpu_free_memory(void);

/* In a child: what the driver does in this process from now on, see tests/standin/calls.h. */
void driver_does(const char *faults);
/* In a child, before it uses the driver: how often it calls what. */
struct standin_calls *count_calls(void);

/* Looks "name" up, for reading and writing. */
int look_up(share_client *c, share_buffer **out);
void expect_content(share_client *c);

/* Of device memory in this process: those from the broker, and the driver's own of what is mapped.
 */
int device_descriptors(void);
/* Addresses that are set aside for device memory in this process. */
uint64_t reserved_bytes(void);
