/* SPDX-License-Identifier: MIT */
#ifndef SHARE_SERVICE_H
#define SHARE_SERVICE_H
#include <share/channel.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
#define SHARE_REQUEST_DATA_MAX 240
#define SHARE_CALLS_MAX        128
typedef struct share_service share_service;
typedef struct share_pending share_pending;
enum share_service_role {
	SHARE_CALLER = 1,
	SHARE_WORKER = 2,
};
typedef struct share_service_options {
	size_t size;
	const char *pool;
	uint32_t depth;
	uint32_t callers;
	uint32_t workers;
	uint32_t deliveries;
} share_service_options;
#define SHARE_SERVICE_OPTIONS_INIT                              \
	{                                                       \
		sizeof(share_service_options), NULL, 0, 0, 0, 0 \
	}
int share_service_open(share_client *c, const char *name, int role,
		       const share_service_options *options, share_service **out);
void share_service_close(share_service *s);
int share_call(share_service *s, share_buffer *b, const void *data, size_t data_size,
	       int timeout_ms, void *stream, share_message *out);
int share_call_start(share_service *s, share_buffer *b, const void *data, size_t data_size,
		     int timeout_ms, void *stream, share_pending **out);
int share_call_finish(share_pending *p, int timeout_ms, void *stream, share_message *out);
void share_call_cancel(share_pending *p);
int share_next_request(share_service *s, int timeout_ms, void *stream, share_message *out);
int share_request_status(const share_message *request);
int share_reply(share_message *request, share_buffer *b, const void *data, size_t data_size,
		void *stream);
int share_service_get_fd(share_service *s);
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
