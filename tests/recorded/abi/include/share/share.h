/* SPDX-License-Identifier: MIT */
#ifndef SHARE_SHARE_H
#define SHARE_SHARE_H
#include <share/error.h>
#include <share/event.h>
#include <share/fence.h>
#include <share/tensor.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
#define SHARE_NULL nullptr
extern "C" {
#else
#define SHARE_NULL NULL
#endif
#pragma GCC visibility push(default)
#define SHARE_VERSION_MAJOR 0
#define SHARE_VERSION_MINOR 1
#define SHARE_VERSION_PATCH 0
#define SHARE_VERSION       "0.1.0"
const char *share_version(void);
typedef struct share_pool share_pool;
typedef struct share_watch share_watch;
typedef struct share_operation share_operation;
#define SHARE_WAIT_FOREVER (-1)
#define SHARE_NAME_MAX     255
#define SHARE_LABEL_MAX    63
#define SHARE_METADATA_MAX 65536
enum share_access {
	SHARE_RDONLY = 1,
	SHARE_RDWR = 3,
};
enum share_connect_flags {
	SHARE_CONNECT_HOST_FENCES = 1 << 0,
	SHARE_CONNECT_NEVER_BLOCK = 1 << 1,
	SHARE_CONNECT_OPERATOR = 1 << 2,
};
typedef struct share_connect_options {
	size_t size;
	const char *label;
	const char *config;
	uint32_t flags;
	int64_t timeout_ms;
} share_connect_options;
#define SHARE_CONNECT_OPTIONS_INIT                               \
	{                                                        \
		sizeof(share_connect_options), NULL, NULL, 0, -1 \
	}
static inline int share_connect(const char *address, share_client **out);
int share_connect_with(const char *address, const share_connect_options *options,
		       share_client **out);
static inline int share_connect(const char *address, share_client **out)
{
	return share_connect_with(address, SHARE_NULL, out);
}
void share_disconnect(share_client *c);
const char *share_address(const share_client *c);
static inline int share_interrupt(share_client *c);
static inline int share_interrupt_clear(share_client *c);
int share_set_interrupted(share_client *c, int interrupted);
static inline int share_interrupt(share_client *c)
{
	return share_set_interrupted(c, 1);
}
static inline int share_interrupt_clear(share_client *c)
{
	return share_set_interrupted(c, 0);
}
int share_ping(share_client *c);
int share_get_fd(share_client *c);
int share_dispatch(share_client *c);
int share_ending(share_client *c);
int share_pool_open(share_client *c, const char *name, share_pool **out);
enum share_pool_flags {
	SHARE_POOL_PERSISTENT = 1 << 0,
	SHARE_POOL_SAME_ADDRESS = 1 << 1,
	SHARE_POOL_OPEN_OR_CREATE = 1 << 2,
};
enum share_reuse {
	SHARE_REUSE_GATE = 0,
	SHARE_REUSE_CLEAN = 1,
	SHARE_REUSE_SCRUB = 2,
};
#define SHARE_KEEP_NONE UINT64_MAX
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
#define SHARE_POOL_OPTIONS_INIT                                                \
	{                                                                      \
		sizeof(share_pool_options), NULL, NULL, 0, 0, 0, 0, NULL, 0, 0 \
	}
int share_pool_create(share_client *c, const char *name, const share_pool_options *options,
		      share_pool **out);
int share_pool_destroy(share_client *c, const char *name);
void share_pool_close(share_pool *p);
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
#define SHARE_POOL_INFO_INIT                                                         \
	{                                                                            \
		sizeof(share_pool_info), NULL, NULL, 0, 0, 0, 0, 0, 0, NULL, NULL, 0 \
	}
int share_pool_get_info(const share_pool *p, share_pool_info *out);
int share_pool_set_cache(share_pool *p, uint64_t bytes);
static inline int share_alloc(share_pool *p, uint64_t size, void *stream, share_buffer **out);
typedef struct share_alloc_options {
	size_t size;
	uint64_t alignment;
	int32_t timeout_ms;
	uint32_t reserved;
} share_alloc_options;
#define SHARE_ALLOC_OPTIONS_INIT                      \
	{                                             \
		sizeof(share_alloc_options), 0, -1, 0 \
	}
int share_alloc_with(share_pool *p, uint64_t size, const share_alloc_options *options, void *stream,
		     share_buffer **out);
static inline int share_alloc(share_pool *p, uint64_t size, void *stream, share_buffer **out)
{
	return share_alloc_with(p, size, SHARE_NULL, stream, out);
}
int share_release(share_buffer *b, void *stream);
share_buffer *share_retain(share_buffer *b);
void *share_ptr(const share_buffer *b);
uint64_t share_size(const share_buffer *b);
uint64_t share_id(const share_buffer *b);
int share_mode(const share_buffer *b);
int share_buffer_status(const share_buffer *b);
typedef void (*share_status_callback)(int status, void *data);
int share_buffer_watch(share_buffer *b, share_status_callback callback, void *data,
		       share_operation **out);
int share_reclaim(share_buffer *b, int timeout_ms, void *stream);
int share_reclaim_async(share_buffer *b, void *stream, share_status_callback callback, void *data,
			share_operation **out);
enum share_ordered {
	SHARE_ORDERED_NOTHING = 0,
	SHARE_ORDERED_ON_STREAM = 1,
	SHARE_ORDERED_BY_HOST = 2,
};
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
#define SHARE_BUFFER_INFO_INIT                                        \
	{                                                             \
		sizeof(share_buffer_info), NULL, NULL, -1, 0, 0, 0, 0 \
	}
int share_buffer_get_info(const share_buffer *b, share_buffer_info *out);
int share_copy_to_host(share_buffer *b, uint64_t offset, void *to, uint64_t size, void *stream);
int share_copy_from_host(share_buffer *b, uint64_t offset, const void *from, uint64_t size,
			 void *stream);
typedef struct share_recipe {
	size_t size;
	const char *kind;
	int fd;
	uint32_t mode;
	uint64_t segment_size;
	uint64_t offset;
	char device[64];
	unsigned char pointer[64];
} share_recipe;
#define SHARE_RECIPE_INIT                                     \
	{                                                     \
		sizeof(share_recipe), NULL, -1, 0, 0, 0, {0}, \
		{                                             \
			0                                     \
		}                                             \
	}
int share_get_recipe(const share_buffer *b, share_recipe *out);
int share_metadata_set(share_buffer *b, const char *json);
int share_metadata_get(const share_buffer *b, char **out);
int share_metadata_get_raw(const share_buffer *b, void **out, size_t *size);
enum share_publish_flags {
	SHARE_PUBLISH_PERSISTENT = 1 << 0,
	SHARE_PUBLISH_EXCLUSIVE = 1 << 1,
};
typedef struct share_publish_options {
	size_t size;
	uint32_t flags;
	uint32_t mode;
	uint64_t expected_version;
	const share_tensor *tensor;
} share_publish_options;
#define SHARE_PUBLISH_OPTIONS_INIT                           \
	{                                                    \
		sizeof(share_publish_options), 0, 0, 0, NULL \
	}
static inline int share_publish(share_buffer *b, const char *name, void *stream);
int share_publish_with(share_buffer *b, const char *name, const share_publish_options *options,
		       void *stream, uint64_t *version);
static inline int share_publish(share_buffer *b, const char *name, void *stream)
{
	return share_publish_with(b, name, SHARE_NULL, stream, SHARE_NULL);
}
int share_unpublish(share_client *c, const char *name);
int share_lookup(share_client *c, const char *name, int mode, int timeout_ms, void *stream,
		 share_buffer **out);
uint64_t share_name_version(const share_buffer *b);
typedef void (*share_lookup_callback)(share_buffer *b, int error, void *data);
int share_lookup_async(share_client *c, const char *name, int mode, int timeout_ms, void *stream,
		       share_lookup_callback callback, void *data, share_operation **out);
void share_cancel(share_operation *o);
typedef struct share_name_info {
	const char *name;
	uint64_t version;
	uint64_t buffer;
	uint64_t size;
	const char *pool;
	uint32_t uid;
	uint32_t persistent;
} share_name_info;
int share_list(share_client *c, const char *prefix,
	       int (*each)(const share_name_info *info, void *data), void *data);
enum share_change {
	SHARE_PUBLISHED = 1,
	SHARE_REPLACED = 2,
	SHARE_UNPUBLISHED = 3,
	SHARE_OVERFLOW = 4,
};
typedef struct share_name_event {
	uint32_t change;
	const char *name;
	uint64_t version;
	uint64_t buffer;
} share_name_event;
typedef void (*share_watch_callback)(const share_name_event *event, void *data);
int share_watch_names(share_client *c, const char *prefix, share_watch_callback callback,
		      void *data, share_watch **out);
void share_unwatch(share_watch *w);
struct share_token {
	unsigned char bytes[32];
};
#define SHARE_USES_UNLIMITED UINT32_MAX
typedef struct share_export_options {
	size_t size;
	uint32_t mode;
	uint32_t uses;
	uint32_t timeout_ms;
	const share_tensor *tensor;
} share_export_options;
#define SHARE_EXPORT_OPTIONS_INIT                           \
	{                                                   \
		sizeof(share_export_options), 0, 0, 0, NULL \
	}
static inline int share_export(share_buffer *b, void *stream, share_token *out);
int share_export_with(share_buffer *b, const share_export_options *options, void *stream,
		      share_token *out);
static inline int share_export(share_buffer *b, void *stream, share_token *out)
{
	return share_export_with(b, SHARE_NULL, stream, out);
}
int share_import(share_client *c, const share_token *token, int mode, void *stream,
		 share_buffer **out);
int share_revoke(share_client *c, const share_token *token);
#undef SHARE_NULL
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
