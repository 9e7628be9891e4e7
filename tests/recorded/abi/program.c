/* SPDX-License-Identifier: MIT */

/*
 * A program as there is one outside: it is compiled with the headers beside it, and runs with each
 * later library (abi_test). It is not edited when the interface grows.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/admin.h>
#include <share/channel.h>
#include <share/service.h>

#define DO(condition)                                                                       \
	do {                                                                                \
		if (!(condition)) {                                                         \
			fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #condition, \
				share_error_detail());                                      \
			exit(1);                                                            \
		}                                                                           \
	} while (0)
#define BEHIND "what lies behind a struct is the program's"
/* One that the library may not write behind. */
#define STRUCT(type, name, ...)  \
	struct {                 \
		type s;          \
		char behind[64]; \
	} name = {__VA_ARGS__, BEHIND}
#define WHOLE(name) DO(strcmp((name).behind, BEHIND) == 0)

static int count(const char *json, void *data)
{
	DO(json[0] == '{');
	++*(int *)data;
	return 0;
}

static int is_named(const share_name_info *info, void *data)
{
	DO(strcmp(info->name, "old/tensor") == 0 && info->size == 4096 && !info->persistent);
	++*(int *)data;
	return 0;
}

static void use_buffers(share_client *c, share_pool *p)
{
	STRUCT(share_pool_info, about, SHARE_POOL_INFO_INIT);
	STRUCT(share_buffer_info, where, SHARE_BUFFER_INFO_INIT);
	STRUCT(share_tensor, tensor, SHARE_TENSOR_INIT);
	STRUCT(share_recipe, recipe, SHARE_RECIPE_INIT);
	share_alloc_options alloc = SHARE_ALLOC_OPTIONS_INIT;
	share_publish_options publish = SHARE_PUBLISH_OPTIONS_INIT;
	share_export_options export = SHARE_EXPORT_OPTIONS_INIT;
	const int64_t shape[] = {16, 64};
	share_buffer *b, *found;
	share_token token;
	uint64_t version;
	int n = 0;

	DO(share_pool_get_info(p, &about.s) == 0 && strcmp(about.s.kind, "host") == 0);
	alloc.alignment = 4096;
	DO(share_alloc_with(p, 4096, &alloc, NULL, &b) == 0);
	DO(share_size(b) == 4096 && share_mode(b) == SHARE_RDWR && share_buffer_status(b) == 0);
	DO(share_buffer_get_info(b, &where.s) == 0 && where.s.ordinal == -1);
	DO(share_tensor_init(&tensor.s, SHARE_FLOAT32, 2, shape) == 0);
	DO(share_get_recipe(b, &recipe.s) == 0 && recipe.s.fd >= 0);
	publish.tensor = export.tensor = &tensor.s;
	DO(share_publish_with(b, "old/tensor", &publish, NULL, &version) == 0);
	DO(share_lookup(c, "old/tensor", SHARE_RDONLY, -1, NULL, &found) == 0);
	DO(share_name_version(found) == version && share_id(found) == share_id(b));
	memset(&tensor.s.ndim, 0, sizeof(tensor.s.ndim));
	DO(share_tensor_get(found, &tensor.s) == 0 && tensor.s.ndim == 2 &&
	   tensor.s.shape[1] == 64);
	DO(share_list(c, "old/", is_named, &n) == 0 && n == 1);
	DO(share_release(found, NULL) == 0 && share_unpublish(c, "old/tensor") == 0);
	DO(share_lookup(c, "old/tensor", SHARE_RDONLY, 0, NULL, &found) == SHARE_ENOENT);
	DO(share_export_with(b, &export, NULL, &token) == 0);
	DO(share_import(c, &token, 0, NULL, &found) == 0 && share_mode(found) == SHARE_RDONLY);
	DO(share_release(found, NULL) == 0 && share_reclaim(b, -1, NULL) == 0);
	DO(share_release(b, NULL) == 0 && share_release(b, NULL) == SHARE_EINVAL);
	WHOLE(about);
	WHOLE(where);
	WHOLE(tensor);
	WHOLE(recipe);
}

static void use_channels(share_client *c, share_pool *p)
{
	STRUCT(share_message, m, SHARE_MESSAGE_INIT);
	STRUCT(share_channel_stats, stats, SHARE_CHANNEL_STATS_INIT);
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_outgoing out[2] = {SHARE_OUTGOING_INIT, SHARE_OUTGOING_INIT};
	share_channel *tx, *rx;
	share_buffer *b;

	options.pool = "old";
	options.mode = SHARE_QUEUE;
	options.depth = 4;
	DO(share_channel_open(c, "old", SHARE_PRODUCER, &options, &tx) == 0);
	DO(share_channel_open(c, "old", SHARE_CONSUMER, &options, &rx) == 0);
	DO(share_alloc(p, 64, NULL, &b) == 0);
	memcpy(share_ptr(b), "by the buffer", 14);
	out[0].data = "two";
	out[0].data_size = 4;
	out[1].buffer = b;
	out[1].flags = SHARE_OUTGOING_GIVE;
	DO(share_send(tx, NULL, "one", 4, NULL) == 0);
	DO(share_send_many(tx, out, 2, NULL) == 2);
	DO(share_recv(rx, -1, NULL, &m.s) == 0 && m.s.number == 0 && m.s.deliveries == 1);
	DO(strcmp((const char *)m.s.data, "one") == 0 && share_reject(&m.s, NULL) == 0);
	for (int i = 0; i < 3; i++) {
		DO(share_recv(rx, -1, NULL, &m.s) == 0 && m.s.error == 0);
		DO(!m.s.buffer || strcmp(share_ptr(m.s.buffer), "by the buffer") == 0);
		DO(share_ack(&m.s, NULL) == 0);
	}
	DO(share_channel_drain(tx, -1) == 0 && share_channel_get_stats(tx, &stats.s) == 0);
	DO(stats.s.sent == 3 && stats.s.rejected == 1);
	share_channel_close(tx);
	DO(share_recv(rx, -1, NULL, &m.s) == SHARE_EPIPE);
	share_channel_close(rx);
	WHOLE(m);
	WHOLE(stats);
}

static void use_services(share_client *c)
{
	STRUCT(share_message, request, SHARE_MESSAGE_INIT);
	STRUCT(share_message, reply, SHARE_MESSAGE_INIT);
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	share_service *asks, *answers;
	share_pending *call;

	options.pool = "old";
	DO(share_service_open(c, "old-service", SHARE_WORKER, &options, &answers) == 0);
	DO(share_service_open(c, "old-service", SHARE_CALLER, NULL, &asks) == 0);
	DO(share_call_start(asks, NULL, "what", 5, -1, NULL, &call) == 0);
	DO(share_next_request(answers, -1, NULL, &request.s) == 0);
	DO(share_request_status(&request.s) == 0);
	DO(share_reply(&request.s, NULL, "that", 5, NULL) == 0);
	DO(share_call_finish(call, -1, NULL, &reply.s) == 0);
	DO(strcmp((const char *)reply.s.data, "that") == 0 && share_ack(&reply.s, NULL) == 0);
	share_service_close(asks);
	share_service_close(answers);
	WHOLE(request);
	WHOLE(reply);
}

static void use_fences(share_client *c)
{
	STRUCT(share_fence_stats, stats, SHARE_FENCE_STATS_INIT);
	share_host_stream *s;
	share_fence fence;

	DO(share_host_stream_create(c, &s) == 0);
	DO(share_fence_record(c, -1, s, &fence) == 0);
	DO(share_fence_synchronize(c, &fence, -1) == 0 && share_fence_query(c, &fence) == 0);
	DO(share_fence_get_stats(c, &stats.s) == 0);
	share_host_stream_destroy(s);
	WHOLE(stats);
}

int main(void)
{
	share_connect_options connect = SHARE_CONNECT_OPTIONS_INIT;
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_monitor_options monitor = SHARE_MONITOR_OPTIONS_INIT;
	share_client *c;
	share_pool *p;
	int n = 0;

	connect.label = "old";
	DO(share_connect_with(NULL, &connect, &c) == 0 && share_ping(c) == 0);
	DO(share_ending(c) == 0 && share_dispatch(c) == 0 && share_get_fd(c) >= 0);
	options.kind = "host";
	options.reuse = SHARE_REUSE_CLEAN;
	DO(share_pool_create(c, "old", &options, &p) == 0);
	DO(share_monitor(c, &monitor, 0, count, &n) == 0 && n == 1);
	use_buffers(c, p);
	use_channels(c, p);
	use_services(c);
	use_fences(c);
	DO(share_interrupt(c) == 0 && share_interrupt_clear(c) == 0);
	DO(share_inspect(c, "pools", count, &n) == 0 && n > 1);
	DO(strcmp(share_error_name(SHARE_EQUOTA), "SHARE_EQUOTA") == 0);
	share_pool_close(p);
	share_disconnect(c);
	printf("the old program has run with libshare %s, and its headers were %s\n",
	       share_version(), SHARE_VERSION);
	return 0;
}
