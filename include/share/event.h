/* SPDX-License-Identifier: MIT */
#ifndef SHARE_EVENT_H
#define SHARE_EVENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct share_client share_client;

/*
 * Interprocess events of CUDA, for programs that need a CUipcEventHandle, or an event where a fence
 * would do. They belong to the broker's agent, which never records them, so they outlive every
 * process that uses them: record in one process, wait in others, with share_event_record() and
 * share_event_wait() or by opening the handle with cuIpcOpenEventHandle().
 *
 * Prefer fences (<share/fence.h>). Events have a hazard that no library can take away: when a
 * process is killed after it has recorded an event and before the event completes, the event never
 * completes. Every stream that waits on it then is stuck for good, and so is whoever synchronises
 * with such a stream or with its context; under MPS the waiter's context dies instead (measured:
 * H200, driver 580). Nothing tells the waiters, and nothing sets them free but the end of their
 * process. A stuck stream also takes one of the hardware connections of its process
 * (CUDA_DEVICE_MAX_CONNECTIONS, 8 by default): when all are taken, every other stream of the
 * process stands still, and the library does not count waits for events as it does those for
 * fences. So wait on a stream of its own, made with CU_STREAM_NON_BLOCKING (any other holds up the
 * legacy default stream), that you can do without. An event that a process died with is not given
 * to anybody again.
 *
 * An agent can make 4096 events: SHARE_EQUOTA beyond. They end with the agent: when it had to be
 * replaced, processes that have opened them go on, but nobody can open them any more.
 */
typedef struct share_event share_event;

typedef struct share_event_options {
	size_t size;
	const char *device; /* UUID, "GPU-..."; NULL: the first device there is */
	const char *name;   /* for share_event_open() by processes of this user; NULL: none */
} share_event_options;
#define SHARE_EVENT_OPTIONS_INIT                        \
	{                                               \
		sizeof(share_event_options), NULL, NULL \
	}

/**
 * Leases an event that nobody else has. @options may be NULL. The handle is given up with
 * share_event_release(); the event goes back when the last handle of all processes is given up, or
 * its process has died.
 *
 * SHARE_ENODEV, SHARE_EEXIST (the name), SHARE_EQUOTA, SHARE_EDEVICE.
 */
int share_event_create(share_client *c, const share_event_options *options, share_event **out);

/** One more handle on the event of that name, made by a process of this user. SHARE_ENOENT. */
int share_event_open(share_client *c, const char *name, share_event **out);

/** The same by its token, which any user may use who has it. SHARE_ENOENT: the event is gone. */
typedef struct share_token share_token;
int share_event_import(share_client *c, const share_token *token, share_event **out);

/** The event's token, valid as long as the event. It is a secret: send it over what is private. */
int share_event_export(share_event *e, share_token *out);

/** 64 bytes: a CUipcEventHandle for cuIpcOpenEventHandle(). Belongs to the handle. */
const void *share_event_handle(share_event *e);

/** UUID of its device, "GPU-...". Belongs to the handle. */
const char *share_event_device(share_event *e);

/** What all processes call it. */
uint64_t share_event_id(share_event *e);

/**
 * Records the event on @stream, a CUstream: waits for it that are called from now on, in whatever
 * process, are for the work enqueued on @stream until now. Whoever recorded before is forgotten.
 * The caller has to see to it that the waiter waits after this was called, by a message say.
 *
 * The handle opens the event in this process when it is first used, in the context of that stream,
 * which must live as long as the handle, and is for streams of that context from then on (another
 * handle of the same event may be used in another context).
 *
 * SHARE_EINVAL: the stream is of another context, or one of the library's; SHARE_ENOTSUP: it is
 * being captured into a graph, or of another device than the event; SHARE_ENODEV: this process
 * cannot see the event's device; SHARE_EDEVICE: its driver failed, or the event has ended with its
 * agent. Thread-safe.
 */
int share_event_record(share_event *e, void *stream);

/**
 * What is enqueued on @stream from now on waits until the work is done that the event stood for
 * when this was called; for nothing when the event was never recorded. Does not block. As for
 * recording, the stream has to be of the event's device and of the handle's context: waiting for an
 * interprocess event on a stream of another device takes the process down inside the driver
 * (measured: H200, driver 580), also by cuStreamWaitEvent() itself.
 *
 * Read the hazard above: @stream may never go on. So the streams that others share are refused with
 * SHARE_EINVAL: NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD. Other errors as for
 * share_event_record().
 */
int share_event_wait(share_event *e, void *stream);

/**
 * Gives the handle up. Work that was enqueued goes on, waits included. A CUevent that the program
 * has opened itself it destroys before. NULL is fine.
 */
void share_event_release(share_event *e);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
