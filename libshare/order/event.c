/* SPDX-License-Identifier: MIT */

/*
 * Interprocess events: what the broker leases, handed on. A handle is one lease, and the event is
 * opened in this process when that is first used to record or to wait; programs that do so by
 * themselves need no driver here.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libshare/client/rpc.h"
#include "libshare/order/inside.h"
#include "libshare/program/struct.h"

#define LAST_SHARED_STREAM 2 /* NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are numbers */

struct share_event {
	struct handle handle;
	share_client *client;
	uint64_t id;
	char device[64];
	unsigned char ipc[64]; /* a CUipcEventHandle */
	share_token token;

	pthread_mutex_t opening;
	struct memory_ipc_event *opened; /* NULL until it is used */
};
HANDLES_OF(share_event, event, HANDLE_EVENT);

static void give_back(share_client *c, uint64_t id)
{
	DETAIL_STAYS;
	struct wire_message m = {.type = WIRE_EVENT_RELEASE, .event_release = {.event = id}};

	rpc_send(c, &m);
}

/* Asks for a lease and makes a handle of it. */
static int lease(share_client *c, struct wire_message *request, share_event **out)
{
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	const struct wire_event *got = &reply.m.event;
	share_event *e;
	int r = rpc(c, request, &reply);

	if (r != 0)
		return r;
	if (got->handle.size != sizeof(e->ipc) || got->token.size != sizeof(e->token.bytes)) {
		give_back(c, got->event);
		return fail(SHARE_EPROTO, "the broker sent an event this library cannot read");
	}
	e = handle_new(HANDLE_EVENT, sizeof(*e));
	if (!e) {
		give_back(c, got->event);
		return fail_system(-ENOMEM, "making an event handle");
	}
	pthread_mutex_init(&e->opening, NULL);
	e->client = client_ref(c);
	e->id = got->event;
	snprintf(e->device, sizeof(e->device), "%.*s", (int)got->device.size,
		 (const char *)got->device.data);
	memcpy(e->ipc, got->handle.data, sizeof(e->ipc));
	memcpy(e->token.bytes, got->token.data, sizeof(e->token.bytes));
	*out = handle_give(e);
	return 0;
}

int share_event_create(share_client *c, const share_event_options *options, share_event **out)
{
	HAZARDS;
	struct wire_message m = {.type = WIRE_EVENT_CREATE};
	share_event_options o;
	int r = client_resolve_for(&c, out);

	if (r == 0)
		r = struct_in(share_event_options, &o, options);
	if (r == 0 && o.name)
		r = name_check(o.name);
	if (r != 0)
		return r;
	m.event_create.device = wire_text(o.device);
	m.event_create.name = wire_text(o.name);
	return lease(c, &m, out);
}

int share_event_open(share_client *c, const char *name, share_event **out)
{
	HAZARDS;
	struct wire_message m = {.type = WIRE_EVENT_OPEN};
	int r = client_resolve_for(&c, out);

	if (r == 0)
		r = name_check(name);
	if (r != 0)
		return r;
	m.event_open.name = wire_text(name);
	return lease(c, &m, out);
}

int share_event_import(share_client *c, const share_token *token, share_event **out)
{
	HAZARDS;
	struct wire_message m = {.type = WIRE_EVENT_OPEN};
	int r = client_resolve_for(&c, out);

	if (r == 0 && !token)
		r = fail(SHARE_EINVAL, "the token is NULL");
	if (r != 0)
		return r;
	m.event_open.token = (struct wire_bytes){token->bytes, sizeof(token->bytes)};
	return lease(c, &m, out);
}

int share_event_export(const share_event *handle, share_token *out)
{
	HAZARDS;
	share_event *e = NULL;
	int r = event_find(handle, &e);

	if (r == 0 && !out)
		r = fail(SHARE_EINVAL, "out is NULL");
	if (r == 0)
		*out = e->token;
	return r;
}

int share_event_get_info(const share_event *handle, share_event_info *out)
{
	HAZARDS;
	share_event_info info = {.size = sizeof(info)};
	share_event *e = NULL;
	int r = event_look(handle, &e);

	if (r == 0)
		r = struct_check(share_event_info, out);
	if (r != 0)
		return r;
	info.id = e->id;
	info.device = e->device;
	info.handle = e->ipc;
	struct_out(share_event_info, out, &info);
	return 0;
}

/* ------------------------------------------------------------------------------------------- */

/* From a handle to the event, if it can be used on that stream. */
static int check_use(share_event **handle, void *stream)
{
	int r = event_resolve(handle);
	share_event *e = *handle;

	if (r != 0)
		return r;
	if (host_stream_is(e->client, stream) || !gpu_stream_is_possible(stream))
		return fail(SHARE_EINVAL, "events are for CUstreams, and this is none");
	return host_stream_refuse(stream);
}

/* Opens it, once, and records it or waits for it. */
static int use(share_event *e, void *stream,
	       int (*how)(struct memory_ipc_event *e, void *stream, struct failure *failure))
{
	struct failure failure;
	int ordinal, r = 0;

	pthread_mutex_lock(&e->opening);
	if (!e->opened) {
		r = memory_device_ordinal(e->device, &ordinal, &failure);
		if (r == 0)
			r = memory_ipc_event_open(ordinal, stream, e->ipc, &e->opened, &failure);
	}
	pthread_mutex_unlock(&e->opening);
	if (r == 0)
		r = how(e->opened, stream, &failure);
	return r != 0 ? fail(r, "%s", failure.text) : 0;
}

int share_event_record(share_event *e, void *stream)
{
	HAZARDS;
	int r = check_use(&e, stream);

	return r != 0 ? r : use(e, stream, memory_ipc_event_record);
}

int share_event_wait(share_event *e, void *stream)
{
	HAZARDS;
	int r = check_use(&e, stream);

	if (r == 0 && (uintptr_t)stream <= LAST_SHARED_STREAM)
		r = fail(SHARE_EINVAL,
			 "a default stream must not wait for an event: if the process that "
			 "recorded it is killed, the wait never ends, and all that is ordered "
			 "with that stream stands still; wait on a stream of its own, made with "
			 "CU_STREAM_NON_BLOCKING");
	return r != 0 ? r : use(e, stream, memory_ipc_event_wait);
}

/* Nobody is in a call about it. */
static void end_event(void *event)
{
	share_event *e = event;
	share_client *c = e->client;

	memory_ipc_event_close(e->opened);
	give_back(c, e->id);
	pthread_mutex_destroy(&e->opening);
	handle_free(e);
	client_unref(c);
}

void share_event_release(share_event *e)
{
	HAZARDS;

	e = event_take(e);
	if (e)
		hazard_end(e, end_event);
}
