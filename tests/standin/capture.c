/* SPDX-License-Identifier: MIT */

/*
 * Capture: what a capturing stream is given goes into a graph, which nobody can launch here. While
 * one goes on, calls that are not safe then are refused, to the threads that cuda.h says (see
 * cuThreadExchangeStreamCaptureMode() there), and a refusal spoils the capture. Which calls these
 * are is not all documented; here they are what an H200 refused with driver 580 (gpu-facts
 * calls_refused_while_...). To ask for the identifier of the stream itself spoils its capture in
 * every mode (questions_about_a_captured_stream).
 */

#include "tests/standin/standin.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static bool forbids(const struct capture *c)
{
	if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	if (pthread_equal(c->thread, pthread_self()))
		return c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
	return c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
	       thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

bool capture_forbids(void)
{
	bool forbidden = false;

	pthread_mutex_lock(&lock);
	for (struct capture *c = captures; c; c = c->next)
		if (forbids(c))
			c->spoilt = forbidden = true;
	pthread_mutex_unlock(&lock);
	return forbidden;
}

static void begin(struct capture *c, CUstreamCaptureMode mode)
{
	c->mode = mode;
	c->context = context_current();
	c->thread = pthread_self();
	c->spoilt = false;
	pthread_mutex_lock(&lock);
	c->active = true;
	c->next = captures;
	captures = c;
	pthread_mutex_unlock(&lock);
}

void capture_end(struct capture *c)
{
	pthread_mutex_lock(&lock);
	for (struct capture **at = &captures; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	c->active = false;
	pthread_mutex_unlock(&lock);
}

bool capture_spoil(struct capture *c)
{
	bool active;

	pthread_mutex_lock(&lock);
	active = c->active;
	c->spoilt |= active;
	pthread_mutex_unlock(&lock);
	return active;
}

bool capture_is_spoilt(const struct capture *c)
{
	bool is;

	pthread_mutex_lock(&lock);
	is = c->active && c->spoilt;
	pthread_mutex_unlock(&lock);
	return is;
}

/* Whether something is captured that the legacy stream is ordered with. */
static bool legacy_is_captured(CUcontext context)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (struct capture *c = captures; c; c = c->next)
		found |= c->blocking && c->context == context;
	pthread_mutex_unlock(&lock);
	return found;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode before = thread_mode;

	ENTER(cuThreadExchangeStreamCaptureMode, NEEDS_INIT);
	if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *out)
{
	const struct capture *c;
	struct CUstream_st *s;

	ENTER(cuStreamIsCapturing, NEEDS_CONTEXT);
	s = stream_find(stream);
	if (!s || !out)
		return s ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	c = stream_capture(s);
	if ((!stream || stream == CU_STREAM_LEGACY) && legacy_is_captured(context_current()))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	*out = !c->active  ? CU_STREAM_CAPTURE_STATUS_NONE
	       : c->spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
			   : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	struct CUstream_st *s;

	ENTER(cuStreamBeginCapture_v2, NEEDS_CONTEXT);
	s = stream_find(stream);
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!stream || stream == CU_STREAM_LEGACY)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (stream_capture(s)->active)
		return CUDA_ERROR_ILLEGAL_STATE;
	begin(stream_capture(s), mode);
	return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *out)
{
	struct CUstream_st *s;
	struct capture *c;

	ENTER(cuStreamEndCapture, NEEDS_CONTEXT);
	s = stream_find(stream);
	if (!s || !out)
		return s ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	c = stream_capture(s);
	if (!c->active)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	capture_end(c);
	*out = c->spoilt ? NULL : (CUgraph)malloc(1);
	return c->spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
	ENTER(cuGraphDestroy, NEEDS_INIT);
	free(graph);
	return CUDA_SUCCESS;
}
