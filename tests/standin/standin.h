/* SPDX-License-Identifier: MIT */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

/* What cuda.h declares is what the library shows. */
#pragma GCC visibility push(default)
#include <cuda.h>
/* Symbols that this version of cuda.h declares no more. */
CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice ordinal);
#pragma GCC visibility pop

#include "tests/standin/functions.h"

/*
 * The inside of the stand-in driver. Tables of objects are guarded by one lock; a stream's queue by
 * its own. calls.h says what tests may rely on.
 */

#define STANDIN_DEVICES 8
/* Memory of the host, of its only NUMA node, counts as that of one more. */
#define STANDIN_HOST STANDIN_DEVICES

struct machine {
	unsigned devices;
	uint64_t memory, granularity;
	int driver;
	bool peers, vmm, rdma, numa, mempool, memops, mig;
	unsigned events, connections, number;
	/* what CUDA_VISIBLE_DEVICES leaves of them: ordinal to device */
	unsigned visible_count, visible[STANDIN_DEVICES];
};

/* As cuInit() found it. */
extern struct machine machine;
extern pthread_mutex_t standin_lock;

/* ---- every call: faults.c ---- */

enum need { NEEDS_NOTHING, NEEDS_INIT, NEEDS_CONTEXT };

/* Counts the call, then what the test, the process or its context have against it. */
CUresult standin_enter(enum standin_function function, enum need need);
#define ENTER(symbol, need)                                                \
	do {                                                               \
		CUresult entered_ = standin_enter(STANDIN_##symbol, need); \
		if (entered_ != CUDA_SUCCESS)                              \
			return entered_;                                   \
	} while (0)

/* ---- errors.c ---- */

bool error_by_name(const char *name, CUresult *out);

/* ---- devices.c ---- */

CUresult devices_init(void);
bool devices_initialised(void);
/* The device behind an ordinal of this process; -1: there is none. And back. */
int device_of(CUdevice ordinal);
int ordinal_of(unsigned device);

/* ---- backing.c: device memory ---- */

struct backing {
	_Atomic unsigned references;
	int fd;
	unsigned device;
	uint64_t size;
	ino_t inode;
	unsigned handle_types; /* vmm: what it was made to be exported as */
	bool rdma;             /* vmm: made for it here */
};

/* @type: "vmm", "vmm:rdma", "pool" or "plain". */
CUresult backing_create(unsigned device, const char *type, uint64_t size, struct backing **out);
/* Of a descriptor that came from anywhere. */
CUresult backing_import(int fd, const char *type, struct backing **out);
/* A pool's may grow. */
CUresult backing_grow(struct backing *b, uint64_t size);
struct backing *backing_ref(struct backing *b);
struct backing *backing_unref(struct backing *b);
int backing_export(const struct backing *b);
uint64_t device_free(unsigned device);

/* ---- taken.c: what is taken of a device at most ---- */

/* Adds memory that its maker has. False: that may be more than there is, so it has to be counted.
 */
bool taken_add(unsigned device, uint64_t size);
/* Before it is counted, and after: what taken_count() returned. */
uint64_t taken_count(unsigned device);
void taken_counted(unsigned device, uint64_t mark, uint64_t bytes);

/* ---- address.c: where it is mapped ---- */

struct pool;
struct range {
	struct range *next;
	uintptr_t address;
	uint64_t size, offset, id;
	uint64_t asked; /* of cuMemAlloc: of how many bytes its maker hears; 0: all */
	struct backing *backing;
	struct pool *pool; /* NULL: not of one */
	bool plain;        /* of cuMemAlloc */
	bool managed;      /* of cuMemAllocManaged, which is plain as well */
	unsigned opened;   /* of another process's: how often */
	bool freed;        /* cuMemFreeAsync() was called */
	unsigned char access[STANDIN_DEVICES + 1]; /* CUmemAccess_flags; the last is the CPU's */
};

/* Address space, nothing there yet. @hint 0: anywhere. */
CUresult address_reserve(uint64_t size, uint64_t alignment, uintptr_t hint, uintptr_t *out);
void address_release(uintptr_t address, uint64_t size);
/* All with the lock held. The range has no access. */
CUresult range_map(uintptr_t address, uint64_t size, struct backing *b, uint64_t offset,
		   struct range **out);
void range_unmap(struct range *r);
/* What its CPU may do with the host's memory that is mapped there. */
CUresult range_protect(struct range *r, CUmemAccess_flags flags);
struct range *range_at(uintptr_t address);
bool ranges_overlap(uintptr_t address, uint64_t size);
struct range *range_first(void);

/* Memory as a copy needs it: what is behind [address, address + size), for a device. */
struct target {
	struct backing *backing; /* a reference */
	uint64_t offset;
};
CUresult target_find(CUdeviceptr address, uint64_t size, bool write, struct target *out);

/* ---- pool.c ---- */

unsigned pool_access(const struct pool *p, unsigned device);
CUmemoryPool pool_handle(struct pool *p);
bool range_imported(const struct range *r);
/* Now: nothing uses it any more. */
CUresult pool_free(CUdeviceptr pointer);

/* ---- context.c ---- */

struct CUctx_st {
	struct CUctx_st *next;
	unsigned device;
	bool primary;
	_Atomic bool alive;
	unsigned retained;
	_Atomic int sticky; /* CUresult */
	struct CUstream_st *legacy;
	struct CUstream_st *per_thread;
};

/* NULL: none. */
CUcontext context_current(void);
/* Whether this process has had a context. */
bool context_any(void);
void context_fail(CUcontext context, CUresult result);

/* ---- stream.c ---- */

struct operation {
	struct operation *next;
	CUresult (*run)(struct operation *o, CUcontext context);
	void (*release)(struct operation *o); /* NULL: nothing */
	struct target from, to;
	void *host;
	CUhostFn function;
	uint64_t size, value;
	unsigned flags;
	CUevent event;
	struct range *range;
	unsigned count;
	struct memory_operation *steps;
};

struct operation *operation_create(CUresult (*run)(struct operation *, CUcontext));
/* Takes @o, whatever it returns. */
CUresult stream_enqueue(CUstream stream, struct operation *o);
/* NULL when it is none. */
struct CUstream_st *stream_find(CUstream stream);
CUresult stream_wait(CUstream stream);
CUcontext stream_context(struct CUstream_st *stream);
struct capture *stream_capture(struct CUstream_st *stream);
void stream_wait_all(CUcontext context);
/* Around a wait for another process, by a worker. */
void stream_park(void);
void stream_unpark(void);
/* Blocks while parked streams hold up all work. */
void stream_stall(void);
/* The @round-th round of polling for something. */
void stream_poll(unsigned round);

/* ---- capture.c ---- */

struct capture {
	struct capture *next;
	bool blocking; /* its stream is ordered with the legacy one */
	bool active, spoilt;
	CUcontext context;
	CUstreamCaptureMode mode;
	pthread_t thread; /* that began it */
};

void capture_end(struct capture *c);
/* By what must not be asked of a stream that is captured. False: it is not. */
bool capture_spoil(struct capture *c);
bool capture_is_spoilt(const struct capture *c);
/* Whether a capture somewhere forbids this thread what is not safe meanwhile; that spoils it. */
bool capture_forbids(void);
#define UNSAFE_IN_CAPTURE()                                           \
	do {                                                          \
		if (capture_forbids())                                \
			return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; \
	} while (0)

/* ---- hostmemory.c ---- */

/* Host memory the GPU may use; *writable: not registered as read-only. */
bool host_registered(uintptr_t address, uint64_t size, bool *writable);
/* The same for work on a stream: until host_unuse(), who wants to end the registration waits. NULL:
 * it is not registered. */
struct registration;
struct registration *host_use(uintptr_t address, uint64_t size, bool *writable);
void host_unuse(struct registration *r);
void host_forget_context(CUcontext context);
