/* SPDX-License-Identifier: MIT */

/*
 * The agent's interprocess events, which it makes so that they outlive their users. If the process
 * that recorded an event was killed, the event never completes, and the driver can block for ever
 * when it is asked about it. The agent forgets such an event, and its slot is lost; the driver
 * gives a process 4096 of them.
 */

#include <stdlib.h>
#include <string.h>

#include <share/error.h>

#include "base/failure.h"
#include "memory/cuda/device_open.h"
#include "memory/device.h"

#define EVENTS_MAX 4096

struct memory_event {
	CUevent event;
};

static unsigned n_events, n_lost;

int memory_event_create(struct memory_event **out, unsigned char handle[64],
			struct failure *failure)
{
	const struct device_open *opened;
	CUipcEventHandle exported;
	struct memory_event *e;
	int r;

	_Static_assert(sizeof(exported) == 64, "it goes over the wire whole");
	if (n_events == EVENTS_MAX)
		return failure_set(failure, SHARE_EQUOTA,
				   "the driver gives a process %d interprocess events, and all are "
				   "in use (%u were lost to processes that died with them)",
				   EVENTS_MAX, n_lost);
	r = device_opened_context(&opened, failure);
	if (r < 0)
		return r;
	e = malloc(sizeof(*e));
	if (!e)
		return failure_set(failure, SHARE_ENOMEM, "no memory for an event");
	r = cuda_check(
	    failure, "cuEventCreate",
	    opened->cu->EventCreate(&e->event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
	if (r < 0) {
		free(e);
		return r;
	}
	r = cuda_check(failure, "cuIpcGetEventHandle",
		       opened->cu->IpcGetEventHandle(&exported, e->event));
	if (r < 0) {
		opened->cu->EventDestroy(e->event);
		free(e);
		return r;
	}
	n_events++;
	memcpy(handle, &exported, sizeof(exported));
	*out = e;
	return 0;
}

int memory_event_destroy(struct memory_event *e, bool wedged, struct failure *failure)
{
	const struct device_open *opened;
	int r;

	if (wedged) {
		n_lost++;
		free(e);
		return 0;
	}
	r = device_opened_context(&opened, failure);
	if (r == 0)
		r = cuda_check(failure, "cuEventDestroy", opened->cu->EventDestroy(e->event));
	n_events--;
	free(e);
	return r;
}
