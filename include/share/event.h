/* SPDX-License-Identifier: MIT */
#ifndef SHARE_EVENT_H
#define SHARE_EVENT_H

#include <stddef.h>
#include <stdint.h>

#include <share/fence.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/**
 * Interprocess events of CUDA, for programs that need a CUipcEventHandle, or an event where a fence
 * would do. They belong to the broker's agent, which never records them, so they outlive every
 * process that uses them (which needs the same /dev/shm as the broker: the driver keeps them in a
 * file there): record in one process, wait in others, with share_event_record() and
 * share_event_wait() or by opening the handle with cuIpcOpenEventHandle().
 *
 * Prefer fences (<share/fence.h>). Events have a hazard that no library can take away: when a
 * process is killed after it has recorded an event and before the event completes, the event never
 * completes. Every stream that waits on it then is stuck for good, and so is whoever synchronises
 * with such a stream or with its context; under MPS the waiter's context dies instead (measured:
 * H200, driver 580). Nothing tells the waiters, and nothing sets them free but the end of their
 * process. A stuck stream also takes one of the hardware connections of its process
 * (CUDA_DEVICE_MAX_CONNECTIONS, 8 by default): when all are taken, every other stream of the
 * process stands still, and the library does not count waits for events as it does waits for
 * fences. So let a separate stream wait, one that you can do without, made with
 * CU_STREAM_NON_BLOCKING (any other holds up the legacy default stream). An event that a process
 * died with is not given to anybody again.
 *
 * An agent can make 4096 events: SHARE_EQUOTA beyond. Events end with the agent: when it had to be
 * replaced, processes that have opened its events can go on using them, but nobody can open them
 * any more.
 */
typedef struct share_event share_event;

/** Which event share_event_create() is to lease. Set it to SHARE_EVENT_OPTIONS_INIT. */
typedef struct share_event_options {
	size_t size;
	const char *device; /**< UUID, "GPU-..."; NULL: the first device there is */
	const char *name;   /**< for share_event_open() by processes of this user; NULL: none */
} share_event_options;
#define SHARE_EVENT_OPTIONS_INIT                        \
	{                                               \
		sizeof(share_event_options), NULL, NULL \
	}

/**
 * Leases an event that nobody else has. The event goes back to the broker when the last handle on
 * it, of all processes, is given up or lost with its process.
 *
 * @param c        the connection
 * @param options  NULL: on the first device there is, without a name
 * @param out      the handle, to be given up with share_event_release()
 * @retval SHARE_ENODEV   there is no such device, or no driver
 * @retval SHARE_EEXIST   the name leads to another event
 * @retval SHARE_EQUOTA   this user, or the agent, has as many events as it may
 * @retval SHARE_EDEVICE  the driver failed
 * @retval SHARE_ENOTSUP  the device cannot make such events
 */
int share_event_create(share_client *c, const share_event_options *options, share_event **out);

/**
 * Gets the event of a name, which was made by a process of this user.
 *
 * @param c     the connection
 * @param name  as in share_event_options
 * @param out   one more handle, to be given up with share_event_release()
 * @retval SHARE_ENOENT  there is none of that name
 * @retval SHARE_ESTALE  it has ended with its agent
 * @retval SHARE_EQUOTA  as many references to events as this user may have
 */
int share_event_open(share_client *c, const char *name, share_event **out);

typedef struct share_token share_token;

/**
 * Gets the event of a token. Any user who has the token may use the event.
 *
 * @param c      the connection
 * @param token  of share_event_export()
 * @param out    one more handle, to be given up with share_event_release()
 * @retval SHARE_ENOENT  the event is gone
 * @retval SHARE_ESTALE  it has ended with its agent
 * @retval SHARE_EQUOTA  as many references to events as this user may have
 */
int share_event_import(share_client *c, const share_token *token, share_event **out);

/**
 * Gets the token of an event. It is valid as long as the event. It is a secret: send it over a
 * connection that nobody else can read.
 *
 * @param e    the event
 * @param out  its token
 * @see share_event_import()
 */
int share_event_export(const share_event *e, share_token *out);

/** What an event is. Set it to SHARE_EVENT_INFO_INIT. */
typedef struct share_event_info {
	size_t size;
	uint64_t id;        /**< what all processes call it, as in `sharectl events` */
	const char *device; /**< UUID, "GPU-..."; belongs to the handle */
	const void *handle; /**< 64 bytes, a CUipcEventHandle; they belong to the handle */
} share_event_info;
#define SHARE_EVENT_INFO_INIT                           \
	{                                               \
		sizeof(share_event_info), 0, NULL, NULL \
	}

/**
 * What an event is. No request.
 *
 * @param e    the event
 * @param out  what it is, which was set to SHARE_EVENT_INFO_INIT
 */
int share_event_get_info(const share_event *e, share_event_info *out);

/**
 * What opens an event without this library.
 *
 * @param e  the event
 * @return 64 bytes: a CUipcEventHandle for `cuIpcOpenEventHandle()`. They belong to the handle.
 */
static inline const void *share_event_handle(const share_event *e);

/**
 * Which device an event is of.
 *
 * @param e  the event
 * @return UUID, "GPU-...". It belongs to the handle.
 */
static inline const char *share_event_device(const share_event *e);

/**
 * What all processes call an event.
 *
 * @param e  the event
 * @return Its identifier, as `sharectl events` shows it.
 */
static inline uint64_t share_event_id(const share_event *e);

static inline const void *share_event_handle(const share_event *e)
{
	share_event_info info = SHARE_EVENT_INFO_INIT;

	share_event_get_info(e, &info);
	return info.handle;
}

static inline const char *share_event_device(const share_event *e)
{
	share_event_info info = SHARE_EVENT_INFO_INIT;

	share_event_get_info(e, &info);
	return info.device;
}

static inline uint64_t share_event_id(const share_event *e)
{
	share_event_info info = SHARE_EVENT_INFO_INIT;

	share_event_get_info(e, &info);
	return info.id;
}

/**
 * Records an event on a stream. Waits for the event that are enqueued from now on, in whatever
 * process, are for the work that was enqueued on that stream until now; earlier records are
 * forgotten. The caller has to see to it that the waiter waits after this call, for example by a
 * message.
 *
 * The library opens the event in this process when the handle is first used, in the context of that
 * stream. The context must live as long as the handle, and the handle can be used with streams of
 * that context only (another handle of the same event may be used in another context).
 *
 * @param e       the event
 * @param stream  a CUstream
 * @retval SHARE_EINVAL   the stream is of another context, or one of the library's
 * @retval SHARE_ENOTSUP  the stream is being captured into a graph, or is of another device than
 *                        the event
 * @retval SHARE_ENODEV   this process cannot see the event's device
 * @retval SHARE_EDEVICE  its driver failed, or the event has ended with its agent
 */
int share_event_record(share_event *e, void *stream);

/**
 * Makes a stream wait for an event: work that is enqueued on the stream from now on waits until the
 * work is done that the event stood for when this was called. If the event was never recorded, it
 * waits for nothing. The call does not block. As for recording, the stream has to be of the event's
 * device and of the handle's context: waiting for an interprocess event on a stream of another
 * device takes the process down inside the driver (measured: H200, driver 580), also by
 * `cuStreamWaitEvent()` itself.
 *
 * Read about the hazard in share_event: the stream may never go on. So streams that other code
 * shares are refused: NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD.
 *
 * @param e       the event
 * @param stream  a CUstream of its own
 * @retval SHARE_EINVAL   the stream is one of those that are refused; or as share_event_record()
 * @retval SHARE_ENOTSUP  as share_event_record()
 * @retval SHARE_ENODEV   as share_event_record()
 * @retval SHARE_EDEVICE  as share_event_record()
 */
int share_event_wait(share_event *e, void *stream);

/**
 * Gives the handle up. Work that was enqueued goes on, waits included. If the program has opened a
 * CUevent from share_event_handle() itself, it has to destroy that before.
 *
 * @param e  the handle; NULL is fine
 */
void share_event_release(share_event *e);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
