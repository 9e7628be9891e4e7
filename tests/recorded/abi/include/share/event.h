/* SPDX-License-Identifier: MIT */
#ifndef SHARE_EVENT_H
#define SHARE_EVENT_H
#include <share/fence.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
typedef struct share_event share_event;
typedef struct share_event_options {
	size_t size;
	const char *device;
	const char *name;
} share_event_options;
#define SHARE_EVENT_OPTIONS_INIT                        \
	{                                               \
		sizeof(share_event_options), NULL, NULL \
	}
int share_event_create(share_client *c, const share_event_options *options, share_event **out);
int share_event_open(share_client *c, const char *name, share_event **out);
typedef struct share_token share_token;
int share_event_import(share_client *c, const share_token *token, share_event **out);
int share_event_export(const share_event *e, share_token *out);
typedef struct share_event_info {
	size_t size;
	uint64_t id;
	const char *device;
	const void *handle;
} share_event_info;
#define SHARE_EVENT_INFO_INIT                           \
	{                                               \
		sizeof(share_event_info), 0, NULL, NULL \
	}
int share_event_get_info(const share_event *e, share_event_info *out);
static inline const void *share_event_handle(const share_event *e);
static inline const char *share_event_device(const share_event *e);
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
int share_event_record(share_event *e, void *stream);
int share_event_wait(share_event *e, void *stream);
void share_event_release(share_event *e);
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
