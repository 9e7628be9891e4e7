/* SPDX-License-Identifier: MIT */
#ifndef SHARE_CHANNEL_H
#define SHARE_CHANNEL_H
#include <share/share.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
typedef struct share_channel share_channel;
enum share_role {
	SHARE_PRODUCER = 1,
	SHARE_CONSUMER = 2,
};
enum share_channel_mode {
	SHARE_BROADCAST = 1,
	SHARE_QUEUE = 2,
};
enum share_when_full {
	SHARE_FULL_BLOCK = 1,
	SHARE_FULL_FAIL = 2,
	SHARE_FULL_DROP = 3,
};
enum share_from {
	SHARE_FROM_NEWEST = 0,
	SHARE_FROM_OLDEST = 1,
};
enum share_channel_flags {
	SHARE_CHANNEL_WRITABLE = 1 << 0,
	SHARE_CHANNEL_EXISTING = 1 << 1,
	SHARE_CHANNEL_TRANSIENT = 1 << 2,
};
#define SHARE_MESSAGE_DATA_MAX 256
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
	uint32_t wait_for;
	uint32_t buffers;
	uint32_t reserved;
} share_channel_options;
#define SHARE_CHANNEL_OPTIONS_INIT                                                                 \
	{                                                                                          \
		sizeof(share_channel_options), NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0, \
		    0                                                                              \
	}
int share_channel_open(share_client *c, const char *name, int role,
		       const share_channel_options *options, share_channel **out);
int share_channel_flush(share_channel *ch, int timeout_ms);
int share_channel_drain(share_channel *ch, int timeout_ms);
void share_channel_close(share_channel *ch);
static inline int share_send(share_channel *ch, share_buffer *b, const void *data, size_t data_size,
			     void *stream);
static inline int share_give(share_channel *ch, share_buffer *b, const void *data, size_t data_size,
			     void *stream);
enum share_outgoing_flags {
	SHARE_OUTGOING_GIVE = 1 << 0,
};
typedef struct share_outgoing {
	size_t size;
	share_buffer *buffer;
	share_buffer *const *buffers;
	uint32_t n_buffers;
	uint32_t flags;
	const void *data;
	size_t data_size;
	uint32_t deliveries;
	uint32_t reserved;
} share_outgoing;
#define SHARE_OUTGOING_INIT                                             \
	{                                                               \
		sizeof(share_outgoing), NULL, NULL, 0, 0, NULL, 0, 0, 0 \
	}
int share_send_many(share_channel *ch, const share_outgoing *messages, size_t n, void *stream);
static inline int share_send(share_channel *ch, share_buffer *b, const void *data, size_t data_size,
			     void *stream)
{
	share_outgoing m = SHARE_OUTGOING_INIT;
	int r;
	m.buffer = b;
	m.data = data;
	m.data_size = data_size;
	r = share_send_many(ch, &m, 1, stream);
	return r > 0 ? 0 : r;
}
static inline int share_give(share_channel *ch, share_buffer *b, const void *data, size_t data_size,
			     void *stream)
{
	share_outgoing m = SHARE_OUTGOING_INIT;
	int r;
	m.buffer = b;
	m.flags = SHARE_OUTGOING_GIVE;
	m.data = data;
	m.data_size = data_size;
	r = share_send_many(ch, &m, 1, stream);
	return r > 0 ? 0 : r;
}
typedef struct share_message {
	size_t size;
	share_buffer *buffer;
	share_buffer *const *buffers;
	uint32_t n_buffers;
	uint32_t data_size;
	const unsigned char *data;
	uint64_t number;
	uint64_t lost;
	uint64_t producer;
	uint32_t deliveries;
	int32_t error;
	uint32_t place;
	uint32_t reserved;
	share_channel *channel;
	uint64_t receipt;
	uint64_t after;
} share_message;
#define SHARE_MESSAGE_INIT                                                                     \
	{                                                                                      \
		sizeof(share_message), NULL, NULL, 0, 0, NULL, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0 \
	}
static inline int share_recv(share_channel *ch, int timeout_ms, void *stream, share_message *out);
int share_recv_many(share_channel *ch, int timeout_ms, void *stream, share_message *out, size_t n);
static inline int share_recv(share_channel *ch, int timeout_ms, void *stream, share_message *out)
{
	int r = share_recv_many(ch, timeout_ms, stream, out, 1);
	return r > 0 ? 0 : r;
}
static inline int share_ack(share_message *m, void *stream);
int share_ack_many(share_message *messages, size_t n, void *stream);
static inline int share_ack(share_message *m, void *stream)
{
	return share_ack_many(m, 1, stream);
}
int share_reject(share_message *m, void *stream);
int share_channel_take_back(share_channel *ch, share_message *out);
int share_channel_get_fd(share_channel *ch);
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
	uint64_t rejected;
} share_channel_stats;
#define SHARE_CHANNEL_STATS_INIT                                                      \
	{                                                                             \
		sizeof(share_channel_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
	}
int share_channel_get_stats(const share_channel *ch, share_channel_stats *out);
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
