/* SPDX-License-Identifier: MIT */
#ifndef SHARE_FENCE_H
#define SHARE_FENCE_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
typedef struct share_client share_client;
typedef struct share_fence {
	uint64_t timeline;
	uint64_t value;
} share_fence;
int share_fence_record(share_client *c, int ordinal, void *stream, share_fence *out);
int share_fence_wait(share_client *c, const share_fence *fence, int ordinal, void *stream);
int share_fence_query(const share_client *c, const share_fence *fence);
int share_fence_synchronize(share_client *c, const share_fence *fence, int timeout_ms);
typedef struct share_fence_stats {
	size_t size;
	uint64_t signals;
	uint64_t waits;
	uint64_t waits_saved;
	uint64_t host_signals;
	uint64_t host_waits;
	uint64_t parked;
} share_fence_stats;
#define SHARE_FENCE_STATS_INIT                              \
	{                                                   \
		sizeof(share_fence_stats), 0, 0, 0, 0, 0, 0 \
	}
int share_fence_get_stats(const share_client *c, share_fence_stats *out);
typedef struct share_host_stream share_host_stream;
int share_host_stream_create(share_client *c, share_host_stream **out);
int share_host_stream_launch(share_host_stream *s, void (*function)(void *data), void *data);
int share_host_stream_synchronize(share_host_stream *s);
void share_host_stream_destroy(share_host_stream *s);
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
