/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * The CUDA driver as the floors use it. Only driver.c and driver_stream.c know its types. In a
 * build without CUDA's headers, driver_without.c takes their place. An error after driver_start()
 * ends the program.
 */

#define DRIVER_WHY 256

/* Loads the driver and makes the primary context of a device current in the calling thread: of the
 * device with this UUID ("GPU-..."), or of the first one if @uuid is NULL. Once a call has
 * succeeded, later ones do nothing. Returns false, with @why, if there is no such device. */
bool driver_start(const char *uuid, char why[DRIVER_WHY]);

/* Returns the UUID of the device. */
const char *driver_device(void);

/* Returns how many bytes of the device are free, for all processes together. */
uint64_t driver_free_memory(void);

/* cuMemAlloc and cuMemFree. NULL: there is no memory. */
void *driver_alloc(uint64_t size);
void driver_free(void *p);

/* cuMemCreate, mapped, which can be exported; the size is a multiple of 2 MiB. NULL: there is no
 * memory. */
void *driver_vmm_alloc(uint64_t size);
void driver_vmm_free(void *p, uint64_t size);

/* cuMemcpyDtoDAsync, and waits for its end. */
void driver_copy(void *to, const void *from, uint64_t size);

/* cuMemAllocFromPoolAsync and cuMemFreeAsync, with a pool that keeps its memory. NULL: there is no
 * memory. */
void *driver_pool_alloc(uint64_t size, void *stream);
void driver_pool_free(void *p, void *stream);

/* cuIpcGetMemHandle, cuIpcOpenMemHandle and cuIpcCloseMemHandle: the first in one process, the
 * others in another. Handles of events have the same type. */
struct driver_handle {
	unsigned char bytes[64];
};
struct driver_handle driver_export(void *p);
void *driver_import(const struct driver_handle *handle);
void driver_close(void *p);

/* ------------------------------------------------------------------------------------------- */
/* driver_stream.c                                                                             */

/* Creates a stream that does not wait for the default stream. */
void *driver_stream_create(void);
void driver_stream_destroy(void *stream);
void driver_stream_synchronize(void *stream);
/* Returns whether work on the stream is not finished. */
bool driver_stream_is_busy(void *stream);

/* cuMemsetD32Async, as an example of work on memory. */
void driver_fill(void *p, uint32_t word, uint64_t size, void *stream);

/* Enqueues a kernel of one thread that runs for that long and does nothing. Returns false, with
 * @why, if no kernel can be loaded. The first call takes longer, because the driver compiles the
 * kernel. */
bool driver_spin(void *stream, unsigned milliseconds, char why[DRIVER_WHY]);

/*
 * 64-bit cells in shared memory of the host, each in a cache line of its own, which streams write
 * and wait for. They are made, mapped and registered as timelines are: once for writing, and once
 * more for reading only, as in another process.
 */
#define DRIVER_CELLS 64
struct driver_cell {
	_Atomic uint64_t value;
	uint64_t unused[7];
};
struct driver_page {
	struct driver_cell *cells;
	const struct driver_cell *readonly;
	uint64_t write_address, wait_address; /* addresses by which the device reaches them */
};
/* Returns false, with @why, if the device cannot do this. */
bool driver_page_open(struct driver_page *p, char why[DRIVER_WHY]);
/* No stream may be waiting for one of the cells. */
void driver_page_close(struct driver_page *p);
/* cuStreamWriteValue64, and cuStreamWaitValue64 until the cell is at least @value. */
void driver_write_value(void *stream, const struct driver_page *p, unsigned cell, uint64_t value);
void driver_wait_value(void *stream, const struct driver_page *p, unsigned cell, uint64_t value);

/* Interprocess events: one process creates and records an event, another one opens it and waits for
 * it. */
void *driver_event_create(struct driver_handle *handle);
void *driver_event_open(const struct driver_handle *handle);
void driver_event_destroy(void *event);
void driver_event_record(void *event, void *stream);
void driver_event_wait(void *event, void *stream);
