/* SPDX-License-Identifier: MIT */

/*
 * The application that the fuzzer of libshare plays, and whose traffic with a real broker the seeds
 * are recordings of. Looks at every result as an application would, and at no error.
 */

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/admin.h>
#include <share/private/core.h>

#include "tests/themes/fuzz/script.h"

#define N SCRIPT_N

static const char *const pool_names[N] = {"default", "a", "b", "c", "d", "e", "f", "g"};
static const char *const names[N] = {"one", "two", "three", "four", "a/b", "a/c", "a", "\xc3\xa4"};
static const char *const reports[N] = {"status",  "pools", "segments", "clients",
				       "buffers", "names", "names",    "nonsense"};

void script_keep(struct script *s, share_buffer *b)
{
	unsigned at = s->next_buffer++ % N;

	share_release(s->buffers[at], NULL);
	s->buffers[at] = b;
}

static void answered(share_buffer *b, int error, void *data)
{
	if (error == 0)
		script_keep(data, b);
}

static void changed(const share_name_event *event, void *data)
{
	size_t *read = data;

	*read += strlen(event->name) + event->change;
}

static size_t characters;

static int each_row(const char *json, void *data)
{
	(void)data;
	characters += strlen(json);
	return 0;
}

static int each_name(const share_name_info *info, void *data)
{
	(void)data;
	characters += strlen(info->name) + strlen(info->pool);
	return 0;
}

static void pools(struct script *s, enum script_call call, unsigned which)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool_info info = SHARE_POOL_INFO_INIT;

	if (call == SCRIPT_POOL_DESTROY) {
		share_pool_destroy(s->client, pool_names[which]);
		return;
	}
	share_pool_close(s->pools[which]);
	s->pools[which] = NULL;
	options.segment_size = 1 << 20;
	options.release_threshold = SHARE_KEEP_NONE;
	options.access = which % 2 ? "[{\"user\": \"*\", \"mode\": \"rw\"}]" : NULL;
	if (call == SCRIPT_POOL_OPEN)
		share_pool_open(s->client, pool_names[which], &s->pools[which]);
	else if (call == SCRIPT_POOL_CREATE)
		share_pool_create(s->client, pool_names[which], &options, &s->pools[which]);
	if (s->pools[which] && share_pool_get_info(s->pools[which], &info) == 0)
		characters += strlen(info.name) + strlen(info.kind);
}

static void reclaimed(int status, void *data)
{
	*(size_t *)data += status == 0;
}

static void handles(struct script *s, enum script_call call, unsigned which)
{
	share_alloc_options options = SHARE_ALLOC_OPTIONS_INIT;
	share_buffer *b;

	switch (call) {
	case SCRIPT_ALLOC:
		options.alignment = which % 2 ? 4096 : 0;
		if (s->pools[which] &&
		    share_alloc_with(s->pools[which], 100 + 5000 * which, &options,
				     which % 4 == 3 ? s->stream : NULL, &b) == 0)
			script_keep(s, b);
		break;
	case SCRIPT_RELEASE:
		share_release(s->buffers[which], which % 2 ? s->stream : NULL);
		s->buffers[which] = NULL;
		break;
	case SCRIPT_STATUS:
		share_buffer_status(s->buffers[which]);
		if (which % 2)
			share_reclaim(s->buffers[which], 0, NULL);
		else if (which % 4)
			share_reclaim_async(s->buffers[which], NULL, reclaimed, &characters, NULL);
		break;
	default: /* touch */
		if (share_size(s->buffers[which]) > 0 &&
		    share_mode(s->buffers[which]) == SHARE_RDWR)
			*(char *)share_ptr(s->buffers[which]) = 1;
		else if (share_size(s->buffers[which]) > 0)
			characters += *(const unsigned char *)share_ptr(s->buffers[which]);
	}
}

static void hand_overs(struct script *s, enum script_call call, unsigned which)
{
	share_publish_options publish = SHARE_PUBLISH_OPTIONS_INIT;
	share_export_options export = SHARE_EXPORT_OPTIONS_INIT;
	share_tensor t = SHARE_TENSOR_INIT;
	share_buffer *b = s->buffers[which];
	void *stream = which % 3 == 2 ? s->stream : NULL;
	int mode = which % 2 ? SHARE_RDONLY : SHARE_RDWR;

	switch (call) {
	case SCRIPT_PUBLISH:
		share_publish(b, names[which], stream);
		break;
	case SCRIPT_PUBLISH_IF:
		publish.flags = which % 4;
		publish.expected_version = share_name_version(b);
		if (which > 2 && share_tensor_get(b, &t) == 0)
			publish.tensor = &t;
		share_publish_with(b, names[which], &publish, stream, NULL);
		break;
	case SCRIPT_UNPUBLISH:
		share_unpublish(s->client, names[which]);
		break;
	case SCRIPT_LOOKUP:
	case SCRIPT_LOOKUP_WAIT:
		if (share_lookup(s->client, names[which], mode, call == SCRIPT_LOOKUP ? 0 : 20,
				 stream, &b) == 0)
			script_keep(s, b);
		break;
	case SCRIPT_EXPORT:
		export.mode = SHARE_RDWR;
		export.uses = which == 7 ? SHARE_USES_UNLIMITED : which;
		export.timeout_ms = which > 3 ? 10 : 0;
		share_export_with(b, &export, stream, &s->token);
		break;
	case SCRIPT_IMPORT:
		if (share_import(s->client, &s->token, which % 3 ? 0 : mode, stream, &b) == 0)
			script_keep(s, b);
		break;
	default:
		share_revoke(s->client, &s->token);
	}
}

static void asynchronous(struct script *s, enum script_call call, unsigned which)
{
	share_operation **operation = call == SCRIPT_LOOKUP_ASYNC ? &s->operations[which] : NULL;
	int limit = which % 4 ? (int)which * 10 - 11 : 0;

	switch (call) {
	case SCRIPT_LOOKUP_ASYNC:
	case SCRIPT_LOOKUP_ABANDON:
		if (!operation || !*operation)
			share_lookup_async(s->client, names[which], SHARE_RDONLY,
					   limit < -1 ? -1 : limit, which % 2 ? s->stream : NULL,
					   answered, s, operation);
		break;
	case SCRIPT_CANCEL:
		share_cancel(s->operations[which]);
		s->operations[which] = NULL;
		break;
	case SCRIPT_WATCH:
		if (!s->watches[which])
			share_watch_names(s->client, which % 2 ? names[which] : "", changed,
					  &characters, &s->watches[which]);
		break;
	case SCRIPT_UNWATCH:
		share_unwatch(s->watches[which]);
		s->watches[which] = NULL;
		break;
	default:
		share_dispatch(s->client);
	}
}

/* Of a message's buffer, if there is no other. */
static void descriptions(struct script *s, enum script_call call, unsigned which)
{
	const share_message *m = &s->messages[which];
	share_buffer *b = s->buffers[which];
	share_tensor t = SHARE_TENSOR_INIT;
	char *json;

	if (!b && m->channel)
		b = m->buffer;
	switch (call) {
	case SCRIPT_METADATA_SET:
		share_metadata_set(b, which ? "{\"made\": [\"by\", \"a\", \"script\"]}" : NULL);
		break;
	case SCRIPT_METADATA_GET:
		if (share_metadata_get(b, &json) == 0) {
			characters += strlen(json);
			free(json);
		}
		break;
	case SCRIPT_TENSOR_SET:
		if (share_tensor_init(&t, SHARE_INT16, 2, (int64_t[]){which, 3}) == 0)
			share_tensor_set(b, &t);
		break;
	default:
		if (share_tensor_get(b, &t) == 0)
			characters += t.ndim;
	}
}

static void fences(struct script *s, unsigned which)
{
	switch (which) {
	case 0:
	case 1:
		share_fence_record(s->client, -1, which ? s->stream : NULL, &s->fence);
		break;
	case 2:
		share_fence_query(s->client, &s->fence);
		break;
	case 3:
		share_fence_wait(s->client, &s->fence, -1, s->stream);
		break;
	case 4:
		share_fence_synchronize(s->client, &s->fence, 10);
		break;
	case 5:
		s->fence.value++;
		break;
	default: /* of whoever there may be */
		s->fence = (share_fence){(uint64_t)(which - 5) << 16 | which, 1};
	}
}

static void streams(struct script *s, unsigned which)
{
	if (!s->stream)
		share_host_stream_create(s->client, &s->stream);
	else if (which % 2)
		share_host_stream_synchronize(s->stream);
}

static void events(struct script *s, unsigned which)
{
	share_event *old = s->event;

	switch (which) {
	case 0:
		if (share_event_create(s->client, NULL, &s->event) == 0)
			share_event_release(old);
		break;
	case 1:
		if (share_event_open(s->client, names[which], &s->event) == 0)
			share_event_release(old);
		break;
	case 2:
		if (share_event_import(s->client, &s->token, &s->event) == 0)
			share_event_release(old);
		break;
	case 3:
		share_event_export(old, &s->token);
		break;
	case 4:
		share_event_record(old, s->stream);
		break;
	case 5:
		share_event_wait(old, s->stream);
		break;
	default:
		share_event_release(old);
		s->event = NULL;
	}
}

static void copies(const struct script *s, unsigned which)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	share_recipe recipe = SHARE_RECIPE_INIT;
	share_buffer *b = s->buffers[which];
	unsigned char bytes[16] = {0};

	if (share_buffer_get_info(b, &info) == 0)
		characters += strlen(info.kind);
	if (which % 2)
		share_copy_to_host(b, which, bytes, sizeof(bytes), which > 4 ? s->stream : NULL);
	else
		share_copy_from_host(b, 100, bytes, sizeof(bytes), which > 4 ? s->stream : NULL);
	if (which > 4 && share_get_recipe(b, &recipe) == 0) {
		characters += strlen(recipe.kind);
		close(recipe.fd);
	}
}

static void administer(struct script *s, unsigned which)
{
	switch (which) {
	case 0:
		share_reload(s->client, each_row, NULL);
		break;
	case 3:
		share_monitor(s->client, NULL, 0, each_row, NULL);
		break;
	case 1:
	case 2:
		share_revoke_id(s->client, which);
		break;
	default:
		share_drop_client(s->client, which);
	}
}

static void call_more(struct script *s, enum script_more call, unsigned which)
{
	share_buffer *b;

	if (call == MORE_GET_FD) {
		share_get_fd(s->client);
	} else if (call <= MORE_RETAIN) {
		script_channel(s, call, which);
	} else if (call <= MORE_REPLY) {
		script_service(s, call, which);
	} else if (call == MORE_EVENT) {
		events(s, which);
	} else if (call == MORE_COPY) {
		copies(s, which);
	} else if (call == MORE_BUFFER_WATCH) {
		share_buffer_watch(s->buffers[which], reclaimed, &characters, NULL);
	} else if (call == MORE_ADMIN) {
		administer(s, which);
	} else if (call == MORE_CACHE) {
		share_pool_set_cache(s->pools[which], 1 << 20);
	} else if (which % 2) {
		if (share_try_release(s->buffers[which]) == 0)
			s->buffers[which] = NULL;
	} else if (share_try_alloc(s->pools[which], 100, &b) == 0) {
		script_keep(s, b);
	}
}

static void call_one(struct script *s, enum script_call call, unsigned which)
{
	if (call <= SCRIPT_POOL_DESTROY)
		pools(s, call, which);
	else if (call == SCRIPT_ALLOC || call == SCRIPT_RELEASE || call == SCRIPT_STATUS ||
		 call == SCRIPT_TOUCH)
		handles(s, call, which);
	else if (call >= SCRIPT_METADATA_SET && call <= SCRIPT_TENSOR_GET)
		descriptions(s, call, which);
	else if (call == SCRIPT_LIST)
		share_list(s->client, which % 2 ? "a/" : NULL, each_name, NULL);
	else if (call == SCRIPT_INSPECT)
		share_inspect(s->client, reports[which], each_row, NULL);
	else if (call == SCRIPT_PING)
		share_ping(s->client);
	else if (call == SCRIPT_FENCE)
		fences(s, which);
	else if (call == SCRIPT_STREAM)
		streams(s, which);
	else if (call >= SCRIPT_LOOKUP_ASYNC && call <= SCRIPT_DISPATCH)
		asynchronous(s, call, which);
	else
		hand_overs(s, call, which);
}

void script_run(share_client *c, const uint8_t *calls, size_t n)
{
	struct script s = {.client = c};

	for (size_t i = 0; i < n; i++)
		if ((calls[i] & 0x1f) != SCRIPT_MORE)
			call_one(&s, calls[i] & 0x1f, calls[i] >> 5);
		else if (++i < n)
			call_more(&s, calls[i] & 0x1f, calls[i] >> 5);
	script_channel_end(&s);
	/* callbacks keep what they get in `s`: none may be left without a handle */
	for (unsigned i = 0; i < N; i++)
		share_cancel(s.operations[i]);
	while (share_dispatch(c) > 0)
		;
	for (unsigned i = 0; i < N; i++) {
		share_release(s.buffers[i], NULL);
		share_unwatch(s.watches[i]);
		share_pool_close(s.pools[i]);
	}
	share_event_release(s.event);
	share_host_stream_destroy(s.stream);
}
