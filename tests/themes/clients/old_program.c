/* SPDX-License-Identifier: MIT */

/*
 * A program as it was compiled with the headers of commit 9e429ec: it has none of today's, but the
 * structs and functions as they were declared then. What lies behind each struct is the program's
 * own, and stays as it is.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tests/themes/clients/old_program.h"

typedef struct share_client share_client;
typedef struct share_pool share_pool;
typedef struct share_buffer share_buffer;
typedef struct share_channel share_channel;
typedef struct share_service share_service;
typedef struct share_token {
	unsigned char bytes[32];
} share_token;

typedef struct share_fence_stats {
	size_t size;
	uint64_t signals;
	uint64_t waits;
	uint64_t waits_saved;
	uint64_t host_signals;
	uint64_t host_waits;
	uint64_t parked;
} share_fence_stats;
typedef struct share_tensor {
	size_t size;
	uint32_t dtype;
	uint32_t ndim;
	uint64_t offset;
	int64_t shape[16];
	int64_t strides[16];
} share_tensor;
typedef struct share_connect_options {
	size_t size;
	const char *label;
	const char *config;
	uint32_t flags;
} share_connect_options;
typedef struct share_pool_options {
	size_t size;
	const char *kind;
	const char *device;
	uint64_t limit;
	uint64_t segment_size;
	uint64_t alignment;
	uint64_t release_threshold;
	const char *access;
	uint32_t flags;
	uint32_t reuse;
} share_pool_options;
typedef struct share_pool_info {
	size_t size;
	const char *name;
	const char *kind;
	uint64_t limit;
	uint64_t segment_size;
	uint64_t alignment;
	uint32_t mode;
	uint32_t manage;
	uint32_t flags;
	const char *device;
	const char *reason;
	uint32_t reuse;
} share_pool_info;
typedef struct share_alloc_options {
	size_t size;
	uint64_t alignment;
} share_alloc_options;
typedef struct share_buffer_info {
	size_t size;
	const char *kind;
	const char *device;
	int ordinal;
	uint64_t segment;
	uint64_t segment_size;
	uint64_t offset;
	uint32_t ordered;
} share_buffer_info;
typedef struct share_publish_options {
	size_t size;
	uint32_t flags;
	uint32_t mode;
	uint64_t expected_version;
	const share_tensor *tensor;
} share_publish_options;
typedef struct share_export_options {
	size_t size;
	uint32_t mode;
	uint32_t uses;
	uint32_t timeout_ms;
	const share_tensor *tensor;
} share_export_options;
typedef struct share_monitor_options {
	size_t size;
	const char *pool;
	const char *prefix;
	uint32_t flags;
	uint32_t uid;
} share_monitor_options;
typedef struct share_channel_options {
	size_t size;
	const char *pool;
	uint32_t mode;
	uint32_t when_full;
	uint32_t depth;
	uint32_t in_flight;
	uint32_t data_max;
	uint32_t producers;
	uint32_t consumers;
	uint32_t deliveries;
	uint32_t history;
	uint32_t stall_ms;
	int32_t send_timeout_ms;
	uint32_t from;
	uint32_t flags;
} share_channel_options;
typedef struct share_channel_stats {
	size_t size;
	uint64_t sent;
	uint64_t received;
	uint64_t acknowledged;
	uint64_t dropped;
	uint64_t redelivered;
	uint64_t set_aside;
	uint64_t left_behind;
	uint64_t sleeps;
	uint32_t in_flight;
	uint32_t producers;
	uint32_t consumers;
	uint32_t waiting;
	uint64_t done;
} share_channel_stats;
typedef struct share_service_options {
	size_t size;
	const char *pool;
	uint32_t depth;
	uint32_t callers;
	uint32_t workers;
	uint32_t deliveries;
} share_service_options;

int share_connect_with(const char *address, const share_connect_options *options,
		       share_client **out);
void share_disconnect(share_client *c);
int share_pool_create(share_client *c, const char *name, const share_pool_options *options,
		      share_pool **out);
void share_pool_close(share_pool *p);
int share_pool_get_info(share_pool *p, share_pool_info *out);
int share_alloc_with(share_pool *p, uint64_t size, const share_alloc_options *options, void *stream,
		     share_buffer **out);
int share_release(share_buffer *b, void *stream);
int share_buffer_get_info(share_buffer *b, share_buffer_info *out);
int share_tensor_init(share_tensor *out, uint32_t dtype, uint32_t ndim, const int64_t *shape);
int share_tensor_set(share_buffer *b, const share_tensor *t);
int share_tensor_get(share_buffer *b, share_tensor *out);
int share_publish_with(share_buffer *b, const char *name, const share_publish_options *options,
		       void *stream, uint64_t *version);
int share_export_with(share_buffer *b, const share_export_options *options, void *stream,
		      share_token *out);
int share_monitor(share_client *c, const share_monitor_options *options, int timeout_ms,
		  int (*each)(const char *json, void *data), void *data);
int share_fence_get_stats(share_client *c, share_fence_stats *out);
int share_channel_open(share_client *c, const char *name, int role,
		       const share_channel_options *options, share_channel **out);
void share_channel_close(share_channel *ch);
int share_channel_get_stats(share_channel *ch, share_channel_stats *out);
int share_service_open(share_client *c, const char *name, int role,
		       const share_service_options *options, share_service **out);
void share_service_close(share_service *s);

/* ------------------------------------------------------------------------------------------- */

#define MINE "0123456789abcdef"

/* A struct with something of the program's behind it, and garbage in its padding. */
#define STRUCT(type, name)                       \
	struct {                                 \
		type s;                          \
		char behind[sizeof(MINE)];       \
	} name;                                  \
	memset(&name, 0x5a, sizeof(name));       \
	memcpy(name.behind, MINE, sizeof(MINE)); \
	name.s = (type){.size = sizeof(type)};   \
	spoil(&name.s, PADDED_##type, sizeof(type))
#define PADDED_share_connect_options 28
#define PADDED_share_pool_options    72
#define PADDED_share_pool_info       84
#define PADDED_share_alloc_options   16
#define PADDED_share_buffer_info     60
#define PADDED_share_tensor          280
#define PADDED_share_publish_options 32
#define PADDED_share_export_options  32
#define PADDED_share_monitor_options 32
#define PADDED_share_fence_stats     56
#define PADDED_share_channel_options 68
#define PADDED_share_channel_stats   96
#define PADDED_share_service_options 32

static void spoil(void *p, size_t from, size_t size)
{
	memset((char *)p + from, 0x5a, size - from);
}

#define DO(call)                      \
	do {                          \
		if ((call) != 0)      \
			return #call; \
	} while (0)
#define WHOLE(name) DO(memcmp((name).behind, MINE, sizeof(MINE)))

static int on_object(const char *json, void *data)
{
	(void)json, (void)data;
	return 0;
}

static const char *use_buffer(share_buffer *b)
{
	STRUCT(share_buffer_info, info);
	STRUCT(share_tensor, tensor);
	STRUCT(share_tensor, found);
	STRUCT(share_publish_options, publish);
	STRUCT(share_export_options, export);
	int64_t shape[] = {4, 2};
	share_token token;

	DO(share_buffer_get_info(b, &info.s));
	WHOLE(info);
	DO(info.s.ordinal != -1 || strcmp(info.s.kind, "host") != 0);
	DO(share_tensor_init(&tensor.s, 0x0220, 2, shape));
	WHOLE(tensor);
	DO(share_tensor_set(b, &tensor.s));
	DO(share_tensor_get(b, &found.s));
	WHOLE(found);
	DO(found.s.ndim != 2 || found.s.shape[1] != 2 || found.s.strides[0] != 2);
	publish.s.tensor = export.s.tensor = &tensor.s;
	DO(share_publish_with(b, "old", &publish.s, NULL, NULL));
	DO(share_export_with(b, &export.s, NULL, &token));
	return NULL;
}

static const char *use_pool(share_pool *p)
{
	STRUCT(share_pool_info, info);
	STRUCT(share_alloc_options, alloc);
	const char *failed;
	share_buffer *b;

	DO(share_pool_get_info(p, &info.s));
	WHOLE(info);
	DO(strcmp(info.s.name, "old") != 0 || info.s.reuse != 1);
	alloc.s.alignment = 4096;
	DO(share_alloc_with(p, 8192, &alloc.s, NULL, &b));
	failed = use_buffer(b);
	DO(share_release(b, NULL));
	return failed;
}

static const char *use_channels(share_client *c)
{
	STRUCT(share_channel_options, channel);
	STRUCT(share_channel_stats, stats);
	STRUCT(share_service_options, service);
	share_channel *ch;
	share_service *s;

	channel.s.pool = service.s.pool = "old";
	channel.s.depth = 8;
	DO(share_channel_open(c, "old", 1, &channel.s, &ch));
	DO(share_channel_get_stats(ch, &stats.s));
	WHOLE(stats);
	DO(stats.s.producers != 1 || stats.s.waiting != 0);
	share_channel_close(ch);
	service.s.depth = 4;
	DO(share_service_open(c, "old-service", 1, &service.s, &s));
	share_service_close(s);
	return NULL;
}

static const char *use_client(share_client *c)
{
	STRUCT(share_pool_options, pool);
	STRUCT(share_fence_stats, stats);
	STRUCT(share_monitor_options, monitor);
	const char *failed;
	share_pool *p;

	pool.s.kind = "host";
	pool.s.reuse = 1;
	DO(share_pool_create(c, "old", &pool.s, &p));
	failed = use_pool(p);
	if (!failed)
		failed = use_channels(c);
	share_pool_close(p);
	if (failed)
		return failed;
	DO(share_fence_get_stats(c, &stats.s));
	WHOLE(stats);
	monitor.s.prefix = "old";
	DO(share_monitor(c, &monitor.s, 0, on_object, NULL));
	return NULL;
}

const char *old_program(const char *socket)
{
	STRUCT(share_connect_options, options);
	const char *failed;
	share_client *c;

	options.s.label = "old";
	DO(share_connect_with(socket, &options.s, &c));
	failed = use_client(c);
	share_disconnect(c);
	return failed;
}
