/* SPDX-License-Identifier: MIT */
#ifndef BENCH_DRIVER_H
#define BENCH_DRIVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * The CUDA driver as the floors use it. Only driver.c and driver_stream.c know its types; where
 * this was built without CUDA's headers, driver_without.c says so instead. What goes wrong after
 * driver_start() ends the program.
 */

#define DRIVER_WHY 256

/* Loads the driver and makes the primary context of a device the calling thread's: of the device
 * with this UUID ("GPU-..."), NULL: of the first. Once a process; later calls change nothing.
 * False: there is none, see @why. */
bool driver_start(const char *uuid, char why[DRIVER_WHY]);

/* UUID of the device. */
const char *driver_device(void);

/* Bytes that the device has left, for all processes. */
uint64_t driver_free_memory(void);

/* cuMemAlloc, cuMemFree. NULL: out of memory. */
void *driver_alloc(uint64_t size);
void driver_free(void *p);

/* cuMemAllocFromPoolAsync, cuMemFreeAsync, of a pool that keeps its memory. NULL: out of memory. */
void *driver_pool_alloc(uint64_t size, void *stream);
void driver_pool_free(void *p, void *stream);

/* cuIpcGetMemHandle, cuIpcOpenMemHandle, cuIpcCloseMemHandle: the first in one process, the others
 * in another. Handles of events look the same. */
struct driver_handle {
	unsigned char bytes[64];
};
struct driver_handle driver_export(void *p);
void *driver_import(const struct driver_handle *handle);
void driver_close(void *p);

/* ------------------------------------------------------------------------------------------- */
/* driver_stream.c                                                                             */

/* Streams that do not wait for the default one. */
void *driver_stream_create(void);
void driver_stream_destroy(void *stream);
void driver_stream_synchronize(void *stream);
/* Whether something enqueued there is not done yet. */
bool driver_stream_is_busy(void *stream);

/* cuMemsetD32Async: work on memory. */
void driver_fill(void *p, uint32_t word, uint64_t size, void *stream);

/* Enqueues a kernel of one thread that does nothing for that long; false, with @why, where there
 * can be none. The first call takes longer than others: the driver compiles it. */
bool driver_spin(void *stream, unsigned milliseconds, char why[DRIVER_WHY]);

/*
 * 64-bit cells in shared memory of the host, each in a cache line of its own, that streams write
 * and wait for. Made, mapped and registered as timelines are: once for writing, and once more, as
 * another process would, for reading only.
 */
#define DRIVER_CELLS 64
struct driver_cell {
	_Atomic uint64_t value;
	uint64_t unused[7];
};
struct driver_page {
	struct driver_cell *cells;
	const struct driver_cell *readonly;
	uint64_t write_address, wait_address; /* for the device */
};
/* False, with @why, where the device cannot. */
bool driver_page_open(struct driver_page *p, char why[DRIVER_WHY]);
/* Once no stream waits for one of its cells. */
void driver_page_close(struct driver_page *p);
/* cuStreamWriteValue64; cuStreamWaitValue64, until the cell is at least @value. */
void driver_write_value(void *stream, const struct driver_page *p, unsigned cell, uint64_t value);
void driver_wait_value(void *stream, const struct driver_page *p, unsigned cell, uint64_t value);

/* Interprocess events: made and recorded in one process, opened and waited for in another. */
void *driver_event_create(struct driver_handle *handle);
void *driver_event_open(const struct driver_handle *handle);
void driver_event_destroy(void *event);
void driver_event_record(void *event, void *stream);
void driver_event_wait(void *event, void *stream);

#endif
