/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <share/event.h>
#include <share/service.h>
#include <share/share.h>

/*
 * A program against libshare, a byte a call: what is called in the low five bits, which of its
 * objects in the high three. Calls that need what is not there (a buffer, say) are left out.
 */
enum script_call {
	SCRIPT_POOL_OPEN,
	SCRIPT_POOL_CREATE,
	SCRIPT_POOL_CLOSE,
	SCRIPT_POOL_DESTROY,
	SCRIPT_ALLOC,
	SCRIPT_RELEASE,
	SCRIPT_PUBLISH,
	SCRIPT_PUBLISH_IF,
	SCRIPT_UNPUBLISH,
	SCRIPT_LOOKUP,
	SCRIPT_LOOKUP_ASYNC,
	SCRIPT_LOOKUP_ABANDON, /* asynchronously, without a handle */
	SCRIPT_CANCEL,
	SCRIPT_WATCH,
	SCRIPT_UNWATCH,
	SCRIPT_DISPATCH,
	SCRIPT_EXPORT,
	SCRIPT_IMPORT,
	SCRIPT_REVOKE,
	SCRIPT_METADATA_SET,
	SCRIPT_METADATA_GET,
	SCRIPT_TENSOR_SET,
	SCRIPT_TENSOR_GET,
	SCRIPT_LIST,
	SCRIPT_INSPECT,
	SCRIPT_PING,
	SCRIPT_FENCE,
	SCRIPT_STATUS,
	SCRIPT_TOUCH,
	SCRIPT_STREAM,
	SCRIPT_MORE,        /* the next byte is one of those below */
	SCRIPT_LOOKUP_WAIT, /* with a time limit */
};

/* Of channels what is said to one goes to that which was opened, or used, last in its role. */
enum script_more {
	MORE_GET_FD,
	MORE_CHANNEL_OPEN, /* bit 0: as a consumer; 1: a queue; 2: what finds no room is dropped */
	MORE_CHANNEL_CLOSE,
	MORE_CHANNEL_USE,
	MORE_CHANNEL_LOOK,
	MORE_SEND,
	MORE_GIVE,
	MORE_SEND_MANY,
	MORE_FLUSH,
	MORE_TAKE_BACK,
	MORE_RECV,
	MORE_TRY_RECV,
	MORE_RECV_MANY,
	MORE_ACK,
	MORE_TRY_ACK,
	MORE_ACK_MANY,
	MORE_RETAIN,
	MORE_SERVICE_OPEN, /* bit 0: as a worker */
	MORE_SERVICE_CLOSE,
	MORE_SERVICE_LOOK,
	MORE_CALL,
	MORE_CALL_START,
	MORE_CALL_FINISH,
	MORE_CALL_CANCEL,
	MORE_NEXT_REQUEST,
	MORE_REPLY,
	MORE_EVENT,
	MORE_COPY,
	MORE_BUFFER_WATCH,
	MORE_ADMIN,
	MORE_CACHE,
	MORE_TRY, /* bit 0: to release; else to allocate */
};
#define SCRIPT(call, which) ((uint8_t)((call) | (which) << 5))

#define SCRIPT_N 8

struct script {
	share_client *client;
	share_pool *pools[SCRIPT_N];
	share_buffer *buffers[SCRIPT_N];
	share_operation *operations[SCRIPT_N];
	share_watch *watches[SCRIPT_N];
	share_host_stream *stream;
	share_event *event;
	share_token token;
	share_fence fence;
	unsigned next_buffer;
	/* script_channel.c */
	share_channel *channels[SCRIPT_N];
	share_channel *producer, *consumer;
	share_service *services[2]; /* a caller, a worker */
	share_message messages[SCRIPT_N];
	share_pending *pending[SCRIPT_N];
	size_t seen; /* of what came, so that it is looked at */
};

/* Gives back all that it got, but for the client. */
void script_run(share_client *c, const uint8_t *calls, size_t n);

/* The parts of it. */
void script_keep(struct script *s, share_buffer *b);
void script_channel(struct script *s, enum script_more call, unsigned which);
void script_service(struct script *s, enum script_more call, unsigned which);
void script_channel_end(struct script *s);
