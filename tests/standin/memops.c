/* SPDX-License-Identifier: MIT */

/*
 * Stream memory operations on 64-bit values in registered host memory. A write through a read-only
 * registration fails the context, as it does on a GPU; comparisons are cyclic.
 */

#include <stdatomic.h>
#include <string.h>

#include "tests/standin/standin.h"

#define STEPS_MOST 256

struct memory_operation {
	bool wait, illegal;
	unsigned compare;
	struct registration *registration; /* of the cell */
	_Atomic uint64_t *cell;
	uint64_t value;
};

static bool met(const struct memory_operation *m)
{
	uint64_t now = atomic_load(m->cell);

	switch (m->compare) {
	case CU_STREAM_WAIT_VALUE_GEQ:
		return (int64_t)(now - m->value) >= 0;
	case CU_STREAM_WAIT_VALUE_EQ:
		return now == m->value;
	case CU_STREAM_WAIT_VALUE_AND:
		return now & m->value;
	default:
		return ~(now | m->value);
	}
}

static CUresult run(struct operation *o, CUcontext context)
{
	for (unsigned i = 0; i < o->count; i++) {
		const struct memory_operation *m = &o->steps[i];

		if (m->illegal)
			return CUDA_ERROR_LAUNCH_FAILED;
		if (!m->wait) {
			atomic_store(m->cell, m->value);
			continue;
		}
		if (met(m))
			continue;
		stream_park();
		for (unsigned round = 0; !met(m) && context->sticky == CUDA_SUCCESS; round++)
			stream_poll(round);
		stream_unpark();
	}
	return CUDA_SUCCESS;
}

static CUresult prepare(struct memory_operation *m, bool wait, CUdeviceptr address, uint64_t value,
			unsigned flags)
{
	uintptr_t at = (uintptr_t)address;
	bool writable;

	if (address % 8 || (!wait && flags) || (wait && flags > CU_STREAM_WAIT_VALUE_NOR))
		return CUDA_ERROR_INVALID_VALUE;
	m->registration = host_use(at, 8, &writable);
	if (!m->registration)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&m->cell, &at, sizeof(at));
	m->wait = wait;
	m->illegal = !wait && !writable;
	m->value = value;
	m->compare = flags;
	return CUDA_SUCCESS;
}

static CUresult prepare_step(struct memory_operation *m, const CUstreamBatchMemOpParams *p)
{
	switch (p->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return prepare(m, true, p->waitValue.address, p->waitValue.value64,
			       p->waitValue.flags);
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return prepare(m, false, p->writeValue.address, p->writeValue.value64,
			       p->writeValue.flags);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static void release(struct operation *o)
{
	for (unsigned i = 0; i < o->count; i++)
		if (o->steps[i].registration)
			host_unuse(o->steps[i].registration);
}

static CUresult batch(CUstream stream, const CUstreamBatchMemOpParams *params, unsigned count)
{
	struct operation *o;
	CUresult result = CUDA_SUCCESS;

	if (!machine.memops)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!stream_find(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	o = operation_create(run);
	o->release = release;
	o->steps = calloc(count, sizeof(*o->steps));
	if (!o->steps)
		abort();
	o->count = count;
	for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = prepare_step(&o->steps[i], &params[i]);
	if (result == CUDA_SUCCESS)
		return stream_enqueue(stream, o);
	release(o);
	free(o->steps);
	free(o);
	return result;
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
				 unsigned flags)
{
	CUstreamBatchMemOpParams p = {0};

	ENTER(cuStreamWriteValue64_v2, NEEDS_CONTEXT);
	p.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	p.writeValue.address = address;
	p.writeValue.value64 = value;
	p.writeValue.flags = flags;
	return batch(stream, &p, 1);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
				unsigned flags)
{
	CUstreamBatchMemOpParams p = {0};

	ENTER(cuStreamWaitValue64_v2, NEEDS_CONTEXT);
	p.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
	p.waitValue.address = address;
	p.waitValue.value64 = value;
	p.waitValue.flags = flags;
	return batch(stream, &p, 1);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams *params,
			       unsigned flags)
{
	ENTER(cuStreamBatchMemOp_v2, NEEDS_CONTEXT);
	if (!count || count > STEPS_MOST || !params || flags)
		return CUDA_ERROR_INVALID_VALUE;
	return batch(stream, params, count);
}
