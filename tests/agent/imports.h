/* SPDX-License-Identifier: MIT */
#pragma once

#include "memory/cuda/driver.h"
#include "memory/import.h"
#include "tests/agent/agent_process.h"

/* An agent for device 0 of a stand-in machine with two (or of what there is), and this process to
 * reach what it makes. Whatever goes wrong fails the test. */

#define MIB (UINT64_C(1) << 20)

extern struct agent_process agent;
extern struct failure failure;
extern const struct cuda *cu; /* once load_driver() was called */

void imports_start(void);
void imports_end(void);

/* Of the agent's device. */
uint64_t free_memory(void);

struct memory_mapping import(const struct agent_segment *s, enum memory_kind_id kind,
			     bool writable);
void write_text(struct memory_mapping *m, uint64_t offset, const char *text);
void assert_text(struct memory_mapping *m, uint64_t offset, const char *text);

void load_driver(void);
int n_devices(void);
/* Ends the test as skipped unless device 1 can reach device 0's memory. */
void need_two_devices(void);
/* The calling thread's context. */
CUcontext current(void);
/* The primary context of a device, until leave_device(). */
void use_device(CUdevice device);
void leave_device(CUdevice device);
CUstream stream_create(void);

/* A function of the driver's that the library has no use for itself. */
void *symbol(const char *name);

/* In the global mode, which concerns all threads. False: it was spoilt by a call that the driver
 * refused. */
void begin_capture(CUstream stream);
bool end_capture(CUstream stream);
