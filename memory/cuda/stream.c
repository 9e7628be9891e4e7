/* SPDX-License-Identifier: MIT */

/*
 * Stream memory operations: signals and waits on a stream. Each costs the host about a microsecond
 * and does not block it. A wait needs nobody but the GPU that writes the value. A store by a CPU
 * ends a wait as well: that is how the broker frees those who wait for a dead process.
 */

#include <stdatomic.h>
#include <stdlib.h>

#include <share/error.h>

#include "base/failure.h"
#include "memory/cuda/stream_context.h"
#include "memory/stream.h"

#define DEFAULT_CONNECTIONS 8  /* the default of CUDA */
#define MOST_CONNECTIONS    32 /* the most that CUDA accepts */
#define BATCH               64 /* one cuStreamBatchMemOp() takes up to 256 */

static const char stream_advice[] =
    "acquire buffers before the capture begins, release them after it has ended, and order "
    "launches of the graph like other work";

bool memory_stream_ops(int ordinal)
{
	struct failure failure;
	const struct cuda *cu;
	int can = 0;

	return cuda_get(&cu, &failure) == 0 &&
	       cu->DeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
				      ordinal) == CUDA_SUCCESS &&
	       can;
}

/* The driver reads it when it makes a context, so that it stays what it was; to look for it costs
 * as much as enqueuing a wait does. */
unsigned memory_stream_connections(void)
{
	static atomic_uint known;
	unsigned connections = atomic_load_explicit(&known, memory_order_relaxed);

	if (connections == 0) {
		const char *text = secure_getenv("CUDA_DEVICE_MAX_CONNECTIONS");
		long n = text ? strtol(text, NULL, 10) : 0;

		connections = n >= 1 && n <= MOST_CONNECTIONS ? (unsigned)n : DEFAULT_CONNECTIONS;
		atomic_store_explicit(&known, connections, memory_order_relaxed);
	}
	return connections;
}

static struct cuda_place place_of(const struct memory_stream *s)
{
	return (struct cuda_place){
	    .cu = s->driver,
	    .scope = {s->driver, s->entered_on, s->entered},
	    .pushed = s->pushed,
	};
}

int memory_stream_open(int ordinal, void *stream, struct memory_stream *out,
		       struct failure *failure)
{
	struct cuda_place p;
	int r = cuda_place_enter(stream, ordinal, stream_advice, &p, failure);

	if (r < 0)
		return r;
	r = cuda_place_identify(&p, stream, failure);
	if (r < 0) {
		cuda_place_leave(&p);
		return r;
	}
	*out = (struct memory_stream){
	    .stream = stream,
	    .id = p.id,
	    .driver = p.cu,
	    .ordinal = p.device,
	    .entered_on = ordinal,
	    .pushed = p.pushed,
	    .entered = p.scope.entered,
	};
	return 0;
}

void memory_stream_close(struct memory_stream *s)
{
	struct cuda_place p = place_of(s);

	cuda_place_leave(&p);
}

int memory_stream_write(struct memory_stream *s, const struct memory_page *page, size_t offset,
			uint64_t value, struct failure *failure)
{
	const struct cuda *cu = s->driver;
	CUresult result = cu->StreamWriteValue64(s->stream, page->device + offset, value,
						 CU_STREAM_WRITE_VALUE_DEFAULT);
	int r;

	if (result == CUDA_SUCCESS)
		return 0;
	r = cuda_fail(failure, "cuStreamWriteValue64", result);
	return failure->fatal || memory_page_check(page, failure) == 0 ? r : SHARE_EDEVICE;
}

static CUresult wait_batch(const struct cuda *cu, CUstream stream, const struct memory_wait *waits,
			   size_t n)
{
	CUstreamBatchMemOpParams ops[BATCH];

	if (n == 1)
		return cu->StreamWaitValue64(stream, waits->page->device + waits->offset,
					     waits->value, CU_STREAM_WAIT_VALUE_GEQ);
	for (size_t i = 0; i < n; i++) {
		ops[i] = (CUstreamBatchMemOpParams){0};
		ops[i].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
		ops[i].waitValue.address = waits[i].page->device + waits[i].offset;
		ops[i].waitValue.value64 = waits[i].value;
		ops[i].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
	}
	return cu->StreamBatchMemOp(stream, (unsigned)n, ops, 0);
}

int memory_stream_wait(struct memory_stream *s, const struct memory_wait *waits, size_t n,
		       struct failure *failure)
{
	CUresult result = CUDA_SUCCESS;
	int r;

	for (size_t i = 0; result == CUDA_SUCCESS && i < n; i += BATCH)
		result = wait_batch(s->driver, s->stream, waits + i, n - i < BATCH ? n - i : BATCH);
	if (result == CUDA_SUCCESS)
		return 0;
	r = cuda_fail(failure, n == 1 ? "cuStreamWaitValue64" : "cuStreamBatchMemOp", result);
	for (size_t i = 0; !failure->fatal && i < n; i++)
		if (memory_page_check(waits[i].page, failure) < 0)
			return failure->error = SHARE_EDEVICE;
	return r;
}
