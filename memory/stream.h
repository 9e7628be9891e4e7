/* SPDX-License-Identifier: MIT */
#pragma once

#include "memory/import.h"

/*
 * Orders the work of CUDA streams by values in host memory: the GPU writes a value when the work
 * before it is done, or waits until a value is reached. Functions return 0 or a SHARE_E... number
 * and give the reason in @failure. They are thread-safe. @ordinal is the device whose primary
 * context is used if the caller has no context.
 *
 * A stream that is being captured into a graph is refused (SHARE_ENOTSUP): what is enqueued during
 * a capture happens each time the graph is launched, and not now.
 */

/* Returns whether the device has 64-bit stream memory operations:
 * CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS. */
bool memory_stream_ops(int ordinal);

/* Host memory that GPUs can reach, registered with the driver: the timelines of a page, for
 * instance. */
struct memory_page {
	uint64_t device; /* the address by which GPUs reach it */
	void *host;
	void *context; /* the primary context of a device, which is kept for this registration */
	int ordinal;
};

/* Registers @page for all devices and contexts of this process, in the primary context of the
 * device. The program may create and destroy contexts of its own, but nobody may reset that primary
 * context or release it too often. With @readonly the memory is mapped without the right to write;
 * only some devices can wait on such memory. */
int memory_page_register(int ordinal, void *page, size_t size, bool readonly,
			 struct memory_page *out, struct failure *failure);
/* Ends the registration. Blocks while a stream waits on a value in the page. */
void memory_page_unregister(struct memory_page *p);
/* Returns 0, or SHARE_EDEVICE when the driver does not know the registration any more. */
int memory_page_check(const struct memory_page *p, struct failure *failure);

/*
 * A stream of the caller, opened to enqueue something on it. The same thread has to open and to
 * close it.
 */
struct memory_stream {
	void *stream;
	/* The number of the stream: no other stream of this process ever has the same. The
	 * per-thread default stream is a different stream in each thread. */
	uint64_t id;
	int ordinal; /* the device that the stream belongs to */
	/* What stream.c needs to make calls on it and to close it. */
	const void *driver;
	int entered_on;
	bool pushed, entered;
};
int memory_stream_open(int ordinal, void *stream, struct memory_stream *out,
		       struct failure *failure);
void memory_stream_close(struct memory_stream *s);

/* Enqueues a write: the cell at @offset becomes @value. Whoever sees the value then also sees the
 * results of everything that was enqueued before. */
int memory_stream_write(struct memory_stream *s, const struct memory_page *p, size_t offset,
			uint64_t value, struct failure *failure);

/* Enqueues waits: work that is enqueued later waits until each cell is at least its value, compared
 * cyclically. As many waits as the driver takes go into one call. */
struct memory_wait {
	const struct memory_page *page;
	size_t offset;
	uint64_t value;
};
int memory_stream_wait(struct memory_stream *s, const struct memory_wait *waits, size_t n,
		       struct failure *failure);

/* Returns how many streams the hardware can run at a time: CUDA_DEVICE_MAX_CONNECTIONS. When that
 * many streams stand still in waits, all other streams stand still too. */
unsigned memory_stream_connections(void);

/*
 * Interprocess events, opened in this process. An event is opened in the context of @stream, and
 * can be used only with streams of that context (SHARE_EINVAL). SHARE_ENOTSUP: the stream belongs
 * to another device than the event, which the driver cannot handle. If the caller has no current
 * context, the event is opened in the primary one, and keeps it. Closing waits for nothing; the
 * context must still exist.
 */
struct memory_ipc_event;
int memory_ipc_event_open(int ordinal, void *stream, const unsigned char handle[64],
			  struct memory_ipc_event **out, struct failure *failure);
void memory_ipc_event_close(struct memory_ipc_event *e);
int memory_ipc_event_record(struct memory_ipc_event *e, void *stream, struct failure *failure);
int memory_ipc_event_wait(struct memory_ipc_event *e, void *stream, struct failure *failure);

/* Puts the number that the device with this UUID (as text) has in this process into @out. */
int memory_device_ordinal(const char *uuid, int *out, struct failure *failure);
