/* SPDX-License-Identifier: MIT */

/*
 * Interprocess events in a process that uses them: it opens an event that an agent made, records it
 * and waits for it. An event is opened in one context, and only streams of that context can use it:
 * a stream of another device that waits for it crashes the process inside the driver (H200, driver
 * 580), although the documentation of cuStreamWaitEvent() allows it.
 */

#include <stdlib.h>
#include <string.h>

#include <share/error.h>

#include "base/failure.h"
#include "memory/cuda/stream_context.h"
#include "memory/stream.h"

static const char event_advice[] =
    "record the event after the capture has ended, and wait for it before the graph is launched";

struct memory_ipc_event {
	const struct cuda *cu;
	CUdevice device;
	CUcontext context; /* the context in which the event was opened */
	bool primary;      /* the primary context has to be released in the end */
	CUevent event;
};

/* Checks that the current context, which is that of a stream, belongs to the event's device. */
static int check_device(const struct cuda *cu, CUdevice wanted, struct failure *failure)
{
	CUdevice current;
	int r = cuda_check(failure, "cuCtxGetDevice", cu->CtxGetDevice(&current));

	if (r != 0 || current == wanted)
		return r;
	return failure_set(failure, SHARE_ENOTSUP,
			   "the event is of device %d and the stream of device %d, and the driver "
			   "cannot order one by the other: use a stream of the event's device, or "
			   "a fence",
			   wanted, current);
}

static int open_here(struct memory_ipc_event *e, const unsigned char handle[64],
		     struct failure *failure)
{
	CUipcEventHandle given;
	CUresult result;

	_Static_assert(sizeof(given) == 64, "it came over the wire whole");
	memcpy(&given, handle, sizeof(given));
	result = e->cu->IpcOpenEventHandle(&e->event, given);
	if (result == CUDA_ERROR_MAP_FAILED)
		return failure_set(
		    failure, SHARE_EDEVICE,
		    "cuIpcOpenEventHandle: CUDA_ERROR_MAP_FAILED: the driver keeps "
		    "the event in a file in /dev/shm, so this process needs the same "
		    "/dev/shm as the broker (containers: -v /dev/shm:/dev/shm); "
		    "fences need none");
	return cuda_check(failure, "cuIpcOpenEventHandle", result);
}

/* Opens the event in the context of the stream that @p is entered for. If that is the primary
 * context and only @p retains it, the event retains it too. */
static int open_for(struct memory_ipc_event *e, const struct cuda_place *p,
		    const unsigned char handle[64], struct failure *failure)
{
	int r = check_device(e->cu, e->device, failure);

	if (r == 0)
		r = cuda_check(failure, "cuCtxGetCurrent", e->cu->CtxGetCurrent(&e->context));
	if (r < 0)
		return r;
	/* If the stream has a context of its own, the primary one was entered only to ask for it.
	 */
	if (p->scope.entered && !p->pushed) {
		r = cuda_check(failure, "cuDevicePrimaryCtxRetain",
			       e->cu->DevicePrimaryCtxRetain(&e->context, e->device));
		if (r < 0)
			return r;
		e->primary = true;
	}
	r = open_here(e, handle, failure);
	if (r < 0 && e->primary)
		e->cu->DevicePrimaryCtxRelease(e->device);
	return r;
}

int memory_ipc_event_open(int ordinal, void *stream, const unsigned char handle[64],
			  struct memory_ipc_event **out, struct failure *failure)
{
	struct memory_ipc_event *e;
	struct cuda_relaxed relaxed;
	struct cuda_place p;
	int r;

	e = calloc(1, sizeof(*e));
	if (!e)
		return failure_set(failure, SHARE_ENOMEM, "no memory for an event");
	r = cuda_place_enter(stream, ordinal, event_advice, &p, failure);
	if (r < 0)
		goto free_e;
	e->cu = p.cu;
	e->device = ordinal;
	cuda_relax(p.cu, &relaxed);
	r = open_for(e, &p, handle, failure);
	cuda_relax_end(&relaxed);
	cuda_place_leave(&p);
	if (r < 0)
		goto free_e;
	*out = e;
	return 0;

free_e:
	free(e);
	return r;
}

/*
 * Closes the event in whatever state it is. The driver does not wait for the event to complete,
 * which may never happen; streams that wait for it go on waiting.
 */
void memory_ipc_event_close(struct memory_ipc_event *e)
{
	struct cuda_relaxed relaxed;
	CUcontext popped;

	if (!e)
		return;
	cuda_relax(e->cu, &relaxed);
	if (e->cu->CtxPushCurrent(e->context) == CUDA_SUCCESS) {
		e->cu->EventDestroy(e->event);
		e->cu->CtxPopCurrent(&popped);
	}
	cuda_relax_end(&relaxed);
	if (e->primary)
		e->cu->DevicePrimaryCtxRelease(e->device);
	free(e);
}

/* Enters the context of @stream, if the event can be used there. */
static int enter_context_of(struct memory_ipc_event *e, void *stream, struct cuda_place *out,
			    struct failure *failure)
{
	CUcontext current = NULL;
	int r = cuda_place_enter(stream, e->device, event_advice, out, failure);

	if (r < 0)
		return r;
	r = check_device(e->cu, e->device, failure);
	if (r == 0)
		r = cuda_check(failure, "cuCtxGetCurrent", e->cu->CtxGetCurrent(&current));
	if (r == 0 && current != e->context)
		r = failure_set(failure, SHARE_EINVAL,
				"the stream is of another context than the one in which "
				"this handle of the event was first used: take another "
				"handle for it");
	if (r < 0)
		cuda_place_leave(out);
	return r;
}

int memory_ipc_event_record(struct memory_ipc_event *e, void *stream, struct failure *failure)
{
	struct cuda_place p;
	int r = enter_context_of(e, stream, &p, failure);

	if (r < 0)
		return r;
	r = cuda_check(failure, "cuEventRecord", e->cu->EventRecord(e->event, stream));
	cuda_place_leave(&p);
	return r;
}

int memory_ipc_event_wait(struct memory_ipc_event *e, void *stream, struct failure *failure)
{
	struct cuda_place p;
	int r = enter_context_of(e, stream, &p, failure);

	if (r < 0)
		return r;
	r = cuda_check(failure, "cuStreamWaitEvent",
		       e->cu->StreamWaitEvent(stream, e->event, CU_EVENT_WAIT_DEFAULT));
	cuda_place_leave(&p);
	return r;
}

int memory_device_ordinal(const char *uuid_text, int *out, struct failure *failure)
{
	unsigned char uuid[16];
	const struct cuda *cu;
	CUdevice device;
	int r;

	if (!memory_uuid_parse(uuid_text, uuid))
		return failure_set(failure, SHARE_EPROTO, "'%.64s' is no UUID of a device",
				   uuid_text);
	r = cuda_get(&cu, failure);
	if (r == 0)
		r = cuda_find_device(cu, uuid, &device, failure);
	if (r == 0)
		*out = device;
	return r;
}
