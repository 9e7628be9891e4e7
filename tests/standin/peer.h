/* SPDX-License-Identifier: MIT */
#pragma once

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "tests/standin/calls.h"

/*
 * What the stand-in's own tests share: a second process, started before the first calls CUDA, and
 * assertions that end whichever of the two they fail in.
 */

#define MIB (UINT64_C(1) << 20)

#define CHECK(condition)                                                                        \
	do {                                                                                    \
		if (!(condition)) {                                                             \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                                \
		}                                                                               \
	} while (0)
#define CHECK_RESULT(call, wanted) check_cuda(__FILE__, __LINE__, #call, (call), (wanted))
#define MUST(call)                 CHECK_RESULT(call, CUDA_SUCCESS)
void check_cuda(const char *file, int line, const char *call, CUresult got, CUresult wanted);

struct packet {
	uint64_t value[4];
	unsigned char bytes[64];
};

struct peer {
	pid_t pid;
	int channel;
};

/* @run ends the process well when it returns. */
struct peer peer_start(void (*run)(int channel));
/* Ends it, or waits for its end, which must be a good one. */
void peer_kill(struct peer *p);
void peer_finish(struct peer *p);
/* Until its main thread pauses, as in a call that never returns; it must not end. */
void peer_until_it_hangs(const struct peer *p);
/* The wait status. */
int peer_wait(struct peer *p);

/* @fd -1: none. The receiver owns what it gets; NULL: it must not get any. */
void peer_send(int channel, const struct packet *p, int fd);
void peer_receive(int channel, struct packet *p, int *fd);

/* cuInit() and the primary context of device 0. */
void use_context(void);
CUmemAllocationProp vmm_properties(int ordinal);
CUmemAccessDesc access_for(int ordinal, CUmemAccess_flags flags);
CUmemGenericAllocationHandle vmm_create(uint64_t size);
int vmm_export(CUmemGenericAllocationHandle handle);
CUmemGenericAllocationHandle vmm_import(int fd);
CUdeviceptr vmm_map(CUmemGenericAllocationHandle handle, uint64_t size, CUmemAccess_flags flags);
/* @most 0: no limit. */
CUmemoryPool pool_create(uint64_t most);
uint64_t device_free(void);
/* The first byte of device memory. */
unsigned char byte_at(CUdeviceptr p);
void set_byte(CUdeviceptr p, unsigned char value);

/* A page that forked children share, and the same for the GPU. */
_Atomic uint64_t *cells(void);
void *plain(_Atomic uint64_t *page);
void use_page(_Atomic uint64_t *page);
#define PAGE    4096
#define CELL(p) ((CUdeviceptr)(uintptr_t)(p))
CUstream stream_create(void);
