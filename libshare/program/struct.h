/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

#include <share/channel.h>
#include <share/event.h>
#include <share/service.h>
#include <share/share.h>

/*
 * Structs of the caller's begin with `size`, which says how much of it the program knows. The
 * program may be older than the library, and know less; or newer, and know more. A member that the
 * program does not know is what the struct's initialiser says: that means what was so before. One
 * that the library does not know has to be 0, as with openat2().
 */

/* Where the last member of the first version ends. What follows up to the next multiple of 8 was
 * padding, with anything in it. A struct that is smaller is a mistake, and no old program. */
enum struct_first {
	FIRST_share_connect_options = 28,
	FIRST_share_pool_options = 72,
	FIRST_share_pool_info = 84,
	FIRST_share_alloc_options = 16,
	FIRST_share_buffer_info = 60,
	FIRST_share_recipe = 168,
	FIRST_share_publish_options = 32,
	FIRST_share_export_options = 32,
	FIRST_share_monitor_options = 32,
	FIRST_share_event_options = 24,
	FIRST_share_event_info = 32,
	FIRST_share_fence_stats = 56,
	FIRST_share_tensor = 280,
	FIRST_share_channel_options = 68,
	FIRST_share_channel_stats = 96,
	FIRST_share_service_options = 32,
	/* without a size in 9e429ec */
	FIRST_share_message = 104,
	FIRST_share_outgoing = 56,
};

/* No struct of a program is larger: a size above this is garbage, as is one that is no multiple of
 * the alignment. */
#define STRUCT_MAX 4096

struct struct_type {
	const char *name;
	size_t size, first;
};
#define STRUCT_TYPE(type) (&(struct struct_type){#type, sizeof(type), FIRST_##type})

/* Of those that come from programs. */
#define INIT_share_connect_options SHARE_CONNECT_OPTIONS_INIT
#define INIT_share_pool_options    SHARE_POOL_OPTIONS_INIT
#define INIT_share_alloc_options   SHARE_ALLOC_OPTIONS_INIT
#define INIT_share_publish_options SHARE_PUBLISH_OPTIONS_INIT
#define INIT_share_export_options  SHARE_EXPORT_OPTIONS_INIT
#define INIT_share_monitor_options SHARE_MONITOR_OPTIONS_INIT
#define INIT_share_event_options   SHARE_EVENT_OPTIONS_INIT
#define INIT_share_tensor          SHARE_TENSOR_INIT
#define INIT_share_channel_options SHARE_CHANNEL_OPTIONS_INIT
#define INIT_share_service_options SHARE_SERVICE_OPTIONS_INIT

/* Copies the caller's struct @from to @to, a struct of this library's. NULL is as one that the
 * initialiser made. 0, or SHARE_EINVAL: the size cannot be, or a member that we do not know is not
 * 0. */
#define struct_in(type, to, from)   \
	(*(to) = (type)INIT_##type, \
	 struct_copy_in((type *){to}, (const type *){from}, STRUCT_TYPE(type)))
int struct_copy_in(void *to, const void *from, const struct struct_type *type);
/* The same of a struct that has @size bytes, whatever it says: an element of an array. What @from
 * does not have stays as it is in @to. */
int struct_copy_in_sized(void *to, const void *from, size_t size, const struct struct_type *type);

/* A struct that is filled in for the caller, before anything is done: 0, or SHARE_EINVAL. */
#define struct_check(type, p) struct_check_size((const type *){p}, STRUCT_TYPE(type))
int struct_check_size(const void *p, const struct struct_type *type);

/* The same of a struct that is read where it is. */
#define struct_check_in(type, p) struct_check_known((const type *){p}, STRUCT_TYPE(type))
int struct_check_known(const void *p, const struct struct_type *type);

/* Fills it in, as far as the caller has room. What we do not know becomes 0. */
#define struct_out(type, to, from) struct_copy_out((type *){to}, (const type *){from}, sizeof(type))
void struct_copy_out(void *to, const void *from, size_t size);
