/* SPDX-License-Identifier: MIT */
#ifndef SHARE_ADMIN_H
#define SHARE_ADMIN_H
#include <share/share.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
int share_inspect(share_client *c, const char *what, int (*each)(const char *json, void *data),
		  void *data);
enum share_monitor_flags {
	SHARE_MONITOR_USER = 1,
};
typedef struct share_monitor_options {
	size_t size;
	const char *pool;
	const char *prefix;
	uint32_t flags;
	uint32_t uid;
} share_monitor_options;
#define SHARE_MONITOR_OPTIONS_INIT                              \
	{                                                       \
		sizeof(share_monitor_options), NULL, NULL, 0, 0 \
	}
int share_monitor(share_client *c, const share_monitor_options *options, int timeout_ms,
		  int (*each)(const char *json, void *data), void *data);
int share_revoke_id(share_client *c, uint64_t token);
int share_drop_client(share_client *c, uint64_t client);
int share_reload(share_client *c, int (*each)(const char *json, void *data), void *data);
int share_upgrade(share_client *c, int (*each)(const char *json, void *data), void *data);
int share_end_channel(share_client *c, const char *name);
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
