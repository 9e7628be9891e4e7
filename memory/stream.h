/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_STREAM_H
#define MEMORY_STREAM_H

#include "memory/import.h"

/*
 * Ordering work on CUDA streams by values in host memory: the GPU writes one when it gets there, or
 * waits until one is reached. Functions return 0 or a SHARE_E... number and say why in @failure.
 * Thread-safe. @ordinal is the device whose primary context is used where the caller has none.
 *
 * A stream that is being captured into a graph is refused (SHARE_ENOTSUP): what is enqueued then
 * happens each time the graph is launched, and not now.
 */

/* Whether the device can do it: CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS. */
bool memory_stream_ops(int ordinal);

/* Memory of the host that GPUs can reach: a page of cells. */
struct memory_page {
	uint64_t device; /* its address for GPUs */
	void *host;
	void *context; /* the primary one of a device, which is kept for it */
	int ordinal;
};

/* For all devices and contexts of this process, in the primary context of the device: that one must
 * not be reset or released by others, the program's own may come and go. A @readonly mapping of the
 * memory allows no writing, and takes a device that can wait on such. */
int memory_page_register(int ordinal, void *page, size_t size, bool readonly,
			 struct memory_page *out, struct failure *failure);
/* Blocks while a stream waits on it. */
void memory_page_unregister(struct memory_page *p);
/* 0, or SHARE_EDEVICE: it is not registered any more. */
int memory_page_check(const struct memory_page *p, struct failure *failure);

/*
 * A stream of the caller's, while something is enqueued on it: opened and closed by one thread,
 * which has to stay the same in between.
 */
struct memory_stream {
	void *stream;
	uint64_t id; /* tells it from all other streams of this process, ever; the per-thread
		      * default stream is another one in each thread */
	int ordinal; /* of the device it is a stream of */
	/* how calls on it are made */
	const void *driver;
	int entered_on;
	bool pushed, entered;
};
int memory_stream_open(int ordinal, void *stream, struct memory_stream *out,
		       struct failure *failure);
void memory_stream_close(struct memory_stream *s);

/* Enqueues: the cell at @offset becomes @value. Everything enqueued before is then visible to
 * whoever sees the value. */
int memory_stream_write(struct memory_stream *s, const struct memory_page *p, size_t offset,
			uint64_t value, struct failure *failure);

/* Enqueues: what comes next waits until each cell is at least its value, compared cyclically. In
 * one call for as many as the driver takes. */
struct memory_wait {
	const struct memory_page *page;
	size_t offset;
	uint64_t value;
};
int memory_stream_wait(struct memory_stream *s, const struct memory_wait *waits, size_t n,
		       struct failure *failure);

/* How many streams the hardware can run at a time: CUDA_DEVICE_MAX_CONNECTIONS. From that many on
 * that stand still in waits, so do all others. */
unsigned memory_stream_connections(void);

/*
 * Interprocess events, opened in this process: in the context of @stream, and only for streams of
 * that one (SHARE_EINVAL). SHARE_ENOTSUP: the stream is of another device than the event, with
 * which the driver cannot cope. A primary context is kept that nobody else may keep. Closing waits
 * for nothing; the context must be there still.
 */
struct memory_ipc_event;
int memory_ipc_event_open(int ordinal, void *stream, const unsigned char handle[64],
			  struct memory_ipc_event **out, struct failure *failure);
void memory_ipc_event_close(struct memory_ipc_event *e);
int memory_ipc_event_record(struct memory_ipc_event *e, void *stream, struct failure *failure);
int memory_ipc_event_wait(struct memory_ipc_event *e, void *stream, struct failure *failure);

/* The ordinal in this process of a device named by its UUID as text. */
int memory_device_ordinal(const char *uuid, int *out, struct failure *failure);

#endif
