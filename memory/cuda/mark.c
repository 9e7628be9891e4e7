/* SPDX-License-Identifier: MIT */

/* Marks are events without timing. Each block of memory that needs one has one, which is recorded
 * again and again. */

#include <stdlib.h>

#include <share/error.h>

#include "base/failure.h"
#include "memory/cuda/stream_context.h"
#include "memory/mark.h"
#include "memory/stream.h"

struct memory_marks {
	const struct cuda *cu;
	int ordinal;
	CUcontext context; /* the primary context, which is kept */
	CUstream stream;
};

static int open_stream(struct memory_marks *k, struct failure *failure)
{
	CUresult result = k->cu->DevicePrimaryCtxRetain(&k->context, k->ordinal);
	struct cuda_relaxed relaxed;
	CUcontext popped;

	if (result != CUDA_SUCCESS)
		return cuda_fail(failure, "cuDevicePrimaryCtxRetain", result);
	result = k->cu->CtxPushCurrent(k->context);
	if (result == CUDA_SUCCESS) {
		cuda_relax(k->cu, &relaxed);
		result = k->cu->StreamCreate(&k->stream, CU_STREAM_NON_BLOCKING);
		cuda_relax_end(&relaxed);
		k->cu->CtxPopCurrent(&popped);
	}
	if (result == CUDA_SUCCESS)
		return 0;
	k->cu->DevicePrimaryCtxRelease(k->ordinal);
	return cuda_fail(failure, "cuStreamCreate", result);
}

int memory_marks_open(int ordinal, struct memory_marks **out, struct failure *failure)
{
	struct memory_marks *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return failure_set(failure, SHARE_ENOMEM, "this process is out of memory");
	k->ordinal = ordinal;
	r = cuda_get(&k->cu, failure);
	if (r == 0)
		r = open_stream(k, failure);
	if (r == 0)
		*out = k;
	else
		free(k);
	return r;
}

void memory_marks_close(struct memory_marks *k)
{
	struct cuda_relaxed relaxed;
	CUcontext popped;

	if (!k)
		return;
	if (k->cu->CtxPushCurrent(k->context) == CUDA_SUCCESS) {
		cuda_relax(k->cu, &relaxed);
		k->cu->StreamDestroy(k->stream);
		cuda_relax_end(&relaxed);
		k->cu->CtxPopCurrent(&popped);
	}
	k->cu->DevicePrimaryCtxRelease(k->ordinal);
	free(k);
}

void *memory_marks_stream(struct memory_marks *k)
{
	return k->stream;
}

int memory_stream_identify(int ordinal, void *stream, uint64_t *id, struct failure *failure)
{
	struct memory_stream s;
	unsigned long long known;
	const struct cuda *cu;
	int r = cuda_get(&cu, failure);

	if (r == 0 && cuda_stream_id(cu, stream, &known)) {
		*id = known;
		return 0;
	}
	if (r == 0)
		r = memory_stream_open(ordinal, stream, &s, failure);
	if (r == 0) {
		*id = s.id;
		memory_stream_close(&s);
	}
	return r;
}

static CUresult create_event(const struct cuda *cu, struct memory_mark *m)
{
	struct cuda_relaxed relaxed;
	CUevent event;
	CUresult result;

	cuda_relax(cu, &relaxed);
	result = cu->EventCreate(&event, CU_EVENT_DISABLE_TIMING);
	cuda_relax_end(&relaxed);
	if (result == CUDA_SUCCESS)
		m->event = event;
	return result;
}

/* Records the mark. The stream's context is current. */
static int move(struct memory_marks *k, const struct memory_stream *s, struct memory_mark *m,
		struct failure *failure)
{
	CUresult result = CUDA_SUCCESS;

	if (!m->event)
		result = create_event(k->cu, m);
	if (result != CUDA_SUCCESS)
		return cuda_fail(failure, "cuEventCreate", result);
	result = k->cu->EventRecord(m->event, s->stream);
	if (result != CUDA_SUCCESS)
		return cuda_fail(failure, "cuEventRecord", result);
	m->stream = s->id;
	return 0;
}

static bool is_here(struct memory_marks *k)
{
	CUcontext current;

	return k->cu->CtxGetCurrent(&current) == CUDA_SUCCESS && current == k->context;
}

int memory_mark_move(struct memory_marks *k, void *stream, struct memory_mark *m, bool stay,
		     struct failure *failure)
{
	struct memory_stream s;
	unsigned long long id;
	int r;

	if (m->event && cuda_stream_id(k->cu, stream, &id)) {
		if (stay && id != m->stream)
			return MARK_OTHER_STREAM;
		/* The mark was recorded on this stream before, so the stream is of the right
		 * context. */
		if (id == m->stream && k->cu->EventRecord(m->event, stream) == CUDA_SUCCESS)
			return 0;
	}
	r = memory_stream_open(k->ordinal, stream, &s, failure);
	if (r != 0)
		return r;
	if (stay && s.id != m->stream)
		r = MARK_OTHER_STREAM;
	else
		r = is_here(k) ? move(k, &s, m, failure) : MARK_OTHER_CONTEXT;
	memory_stream_close(&s);
	return r;
}

int memory_mark_wait(struct memory_marks *k, void *stream, const struct memory_mark *m,
		     struct failure *failure)
{
	CUresult result = CUDA_SUCCESS;
	struct memory_stream s;
	bool here;
	int r;

	r = memory_stream_open(k->ordinal, stream, &s, failure);
	if (r != 0)
		return r;
	here = is_here(k);
	if (here)
		result = k->cu->StreamWaitEvent(stream, m->event, 0);
	memory_stream_close(&s);
	if (result != CUDA_SUCCESS)
		return cuda_fail(failure, "cuStreamWaitEvent", result);
	return here ? 0 : MARK_OTHER_CONTEXT;
}

int memory_mark_wait_inside(struct memory_marks *k, const struct memory_mark *m,
			    struct failure *failure)
{
	CUresult result = k->cu->CtxPushCurrent(k->context);
	CUcontext popped;

	if (result == CUDA_SUCCESS) {
		result = k->cu->StreamWaitEvent(k->stream, m->event, 0);
		k->cu->CtxPopCurrent(&popped);
	}
	return result == CUDA_SUCCESS ? 0 : cuda_fail(failure, "cuStreamWaitEvent", result);
}

void memory_mark_free(struct memory_marks *k, struct memory_mark *m)
{
	struct cuda_relaxed relaxed;
	CUcontext popped;

	if (!m->event || k->cu->CtxPushCurrent(k->context) != CUDA_SUCCESS)
		return;
	cuda_relax(k->cu, &relaxed);
	k->cu->EventDestroy(m->event);
	cuda_relax_end(&relaxed);
	k->cu->CtxPopCurrent(&popped);
	m->event = NULL;
}
