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
	struct cuda_own_stream own;
};

int memory_marks_open(int ordinal, struct memory_marks **out, struct failure *failure)
{
	struct memory_marks *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return failure_set(failure, SHARE_ENOMEM, "this process is out of memory");
	r = cuda_own_stream_init(&k->own, ordinal, failure);
	if (r == 0)
		*out = k;
	else
		free(k);
	return r;
}

void memory_marks_close(struct memory_marks *k)
{
	if (k)
		cuda_own_stream_deinit(&k->own);
	free(k);
}

void *memory_marks_stream(struct memory_marks *k)
{
	return k->own.stream;
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
	int r = 0;

	if (!m->event)
		r = cuda_check(failure, "cuEventCreate", create_event(k->own.cu, m));
	if (r == 0)
		r = cuda_check(failure, "cuEventRecord",
			       k->own.cu->EventRecord(m->event, s->stream));
	if (r == 0)
		m->stream = s->id;
	return r;
}

static bool is_here(struct memory_marks *k)
{
	CUcontext current;

	return k->own.cu->CtxGetCurrent(&current) == CUDA_SUCCESS && current == k->own.context;
}

int memory_mark_move(struct memory_marks *k, void *stream, struct memory_mark *m, bool stay,
		     struct failure *failure)
{
	struct memory_stream s;
	unsigned long long id;
	int r;

	if (m->event && cuda_stream_id(k->own.cu, stream, &id)) {
		if (stay && id != m->stream)
			return MARK_OTHER_STREAM;
		/* The mark was recorded on this stream before, so the stream is of the right
		 * context. */
		if (id == m->stream && k->own.cu->EventRecord(m->event, stream) == CUDA_SUCCESS)
			return 0;
	}
	r = memory_stream_open(k->own.device, stream, &s, failure);
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
	struct memory_stream s;
	int r = memory_stream_open(k->own.device, stream, &s, failure);

	if (r != 0)
		return r;
	r = is_here(k) ? cuda_check(failure, "cuStreamWaitEvent",
				    k->own.cu->StreamWaitEvent(stream, m->event, 0))
		       : MARK_OTHER_CONTEXT;
	memory_stream_close(&s);
	return r;
}

int memory_mark_wait_inside(struct memory_marks *k, const struct memory_mark *m,
			    struct failure *failure)
{
	CUresult result = k->own.cu->CtxPushCurrent(k->own.context);
	CUcontext popped;

	if (result == CUDA_SUCCESS) {
		result = k->own.cu->StreamWaitEvent(k->own.stream, m->event, 0);
		k->own.cu->CtxPopCurrent(&popped);
	}
	return cuda_check(failure, "cuStreamWaitEvent", result);
}

void memory_mark_free(struct memory_marks *k, struct memory_mark *m)
{
	struct cuda_relaxed relaxed;
	CUcontext popped;

	if (!m->event || k->own.cu->CtxPushCurrent(k->own.context) != CUDA_SUCCESS)
		return;
	cuda_relax(k->own.cu, &relaxed);
	k->own.cu->EventDestroy(m->event);
	cuda_relax_end(&relaxed);
	k->own.cu->CtxPopCurrent(&popped);
	m->event = NULL;
}
