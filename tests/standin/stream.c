/* SPDX-License-Identifier: MIT */

/*
 * Streams: a queue and a thread each. What is enqueued is done in order; the host waits only where
 * it asks to. A stream that waits for another process is parked; when as many are parked as the
 * device has connections, all others stand still too, as FACTS has it.
 *
 * The threads are detached, so a process ends without them, whatever they wait for.
 */

#include <signal.h>
#include <string.h>
#include <time.h>

#include "tests/standin/standin.h"

struct CUstream_st {
	struct CUstream_st *next;
	CUcontext context;
	uint64_t id;
	pthread_t owner; /* of a per-thread stream */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct operation *first, **last;
	uint64_t enqueued, done;
	bool running, closing;
	struct capture capture;
};

static struct CUstream_st *streams;
static uint64_t last_id;
static _Atomic unsigned parked;

/* ---- standing still ---- */

void stream_park(void)
{
	atomic_fetch_add(&parked, 1);
}

void stream_unpark(void)
{
	atomic_fetch_sub(&parked, 1);
}

/*
 * Often at first, then less and less so, by some tenth of the time gone by: a thousand streams may
 * wait for long, and what they wait for needs the processor too.
 */
void stream_poll(unsigned round)
{
	unsigned doublings = round < 50 ? 0 : (round - 50) / 8;
	struct timespec t = {.tv_nsec = doublings < 12 ? 5000L << doublings : 20000000};

	nanosleep(&t, NULL);
}

void stream_stall(void)
{
	for (unsigned round = 0; atomic_load(&parked) >= machine.connections; round++)
		stream_poll(round);
}

/* ---- the thread ---- */

struct operation *operation_create(CUresult (*run)(struct operation *, CUcontext))
{
	struct operation *o = calloc(1, sizeof(*o));

	if (!o)
		abort();
	o->run = run;
	return o;
}

static void operation_free(struct operation *o)
{
	if (o->release)
		o->release(o);
	backing_unref(o->from.backing);
	backing_unref(o->to.backing);
	free(o->steps);
	free(o);
}

static void stream_free(struct CUstream_st *s)
{
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->changed);
	free(s);
}

static void *worker(void *data)
{
	struct CUstream_st *s = data;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		struct operation *o;

		while (!s->first && !s->closing)
			pthread_cond_wait(&s->changed, &s->lock);
		o = s->first;
		if (!o)
			break;
		s->first = o->next;
		if (!s->first)
			s->last = &s->first;
		pthread_mutex_unlock(&s->lock);

		stream_stall();
		if (s->context->sticky == CUDA_SUCCESS) {
			CUresult result = o->run(o, s->context);

			if (result != CUDA_SUCCESS)
				context_fail(s->context, result);
		}
		operation_free(o);

		pthread_mutex_lock(&s->lock);
		s->done++;
		pthread_cond_broadcast(&s->changed);
	}
	pthread_mutex_unlock(&s->lock);
	stream_free(s);
	return NULL;
}

/* Signals are for the program's threads. */
static void start(struct CUstream_st *s)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;

	sigfillset(&all);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&thread, &attributes, worker, s) != 0)
		abort();
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	s->running = true;
}

/* ---- which stream ---- */

static struct CUstream_st *create(CUcontext context)
{
	struct CUstream_st *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	s->context = context;
	s->owner = pthread_self();
	s->last = &s->first;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	s->id = ++last_id;
	return s;
}

static struct CUstream_st *find(CUstream stream)
{
	CUcontext context = context_current();
	struct CUstream_st *s;

	if (!stream || stream == CU_STREAM_LEGACY) {
		if (!context->legacy)
			context->legacy = create(context);
		return context->legacy;
	}
	if (stream == CU_STREAM_PER_THREAD) {
		for (s = context->per_thread; s; s = s->next)
			if (pthread_equal(s->owner, pthread_self()))
				return s;
		s = create(context);
		s->next = context->per_thread;
		context->per_thread = s;
		return s;
	}
	for (s = streams; s; s = s->next)
		if (s == stream)
			return s;
	return NULL;
}

struct CUstream_st *stream_find(CUstream stream)
{
	struct CUstream_st *s;

	pthread_mutex_lock(&standin_lock);
	s = find(stream);
	pthread_mutex_unlock(&standin_lock);
	return s;
}

CUcontext stream_context(struct CUstream_st *s)
{
	return s->context;
}

struct capture *stream_capture(struct CUstream_st *s)
{
	return &s->capture;
}

/* ---- work ---- */

/* What is captured goes into a graph that nobody can launch here. */
CUresult stream_enqueue(CUstream stream, struct operation *o)
{
	struct CUstream_st *s = stream_find(stream);

	if (!s || s->capture.active) {
		operation_free(o);
		return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	}
	pthread_mutex_lock(&s->lock);
	if (!s->running)
		start(s);
	*s->last = o;
	s->last = &o->next;
	s->enqueued++;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	return CUDA_SUCCESS;
}

static void wait_for(struct CUstream_st *s)
{
	uint64_t all;

	pthread_mutex_lock(&s->lock);
	all = s->enqueued;
	while (s->done < all)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

CUresult stream_wait(CUstream stream)
{
	struct CUstream_st *s = stream_find(stream);

	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (s->capture.active)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	wait_for(s);
	return (CUresult)s->context->sticky;
}

static struct CUstream_st *unfinished(struct CUstream_st *s, CUcontext context)
{
	for (; s; s = s->next) {
		bool busy;

		pthread_mutex_lock(&s->lock);
		busy = s->context == context && s->done < s->enqueued;
		pthread_mutex_unlock(&s->lock);
		if (busy)
			return s;
	}
	return NULL;
}

/* Nobody may destroy the stream meanwhile. */
void stream_wait_all(CUcontext context)
{
	for (;;) {
		struct CUstream_st *s;

		pthread_mutex_lock(&standin_lock);
		s = unfinished(context->legacy, context);
		if (!s)
			s = unfinished(context->per_thread, context);
		if (!s)
			s = unfinished(streams, context);
		pthread_mutex_unlock(&standin_lock);
		if (!s)
			return;
		wait_for(s);
	}
}

CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
	struct CUstream_st *s;

	ENTER(cuStreamCreate, NEEDS_CONTEXT);
	if (!out || (flags & ~CU_STREAM_NON_BLOCKING))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	s = create(context_current());
	s->capture.blocking = !(flags & CU_STREAM_NON_BLOCKING);
	s->next = streams;
	streams = s;
	pthread_mutex_unlock(&standin_lock);
	*out = s;
	return CUDA_SUCCESS;
}

/* Returns at once; what is enqueued will still be done. */
CUresult cuStreamDestroy_v2(CUstream stream)
{
	struct CUstream_st *s = NULL;
	bool running;

	ENTER(cuStreamDestroy_v2, NEEDS_CONTEXT);
	pthread_mutex_lock(&standin_lock);
	for (struct CUstream_st **at = &streams; *at; at = &(*at)->next)
		if (*at == stream) {
			s = *at;
			*at = s->next;
			break;
		}
	pthread_mutex_unlock(&standin_lock);
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	capture_end(&s->capture);
	pthread_mutex_lock(&s->lock);
	s->closing = true;
	running = s->running;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	if (!running)
		stream_free(s);
	return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream)
{
	struct CUstream_st *s;
	bool busy;

	ENTER(cuStreamQuery, NEEDS_CONTEXT);
	s = stream_find(stream);
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (s->capture.active)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&s->lock);
	busy = s->done < s->enqueued;
	pthread_mutex_unlock(&s->lock);
	return busy ? CUDA_ERROR_NOT_READY : (CUresult)s->context->sticky;
}

CUresult cuStreamSynchronize(CUstream stream)
{
	ENTER(cuStreamSynchronize, NEEDS_CONTEXT);
	UNSAFE_IN_CAPTURE();
	return stream_wait(stream);
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *out)
{
	struct CUstream_st *s;

	ENTER(cuStreamGetId, NEEDS_CONTEXT);
	s = stream_find(stream);
	if (!s || !out)
		return s ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	if (capture_spoil(&s->capture))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	*out = s->id;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *out)
{
	struct CUstream_st *s;

	ENTER(cuStreamGetCtx, NEEDS_CONTEXT);
	s = stream_find(stream);
	if (!s || !out)
		return s ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	if (capture_is_spoilt(&s->capture))
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	*out = s->context;
	return CUDA_SUCCESS;
}
