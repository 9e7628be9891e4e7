/* SPDX-License-Identifier: MIT */

/*
 * The table of messages as data. This file knows the lists of messages.h and fields.h and nothing
 * else; it must not decide who sends or handles a message.
 */

#include "wire/wire.h"

#define SIZE_u32   4
#define SIZE_i32   4
#define SIZE_u64   8
#define SIZE_error 4

#define IS_ERROR_u32   false
#define IS_ERROR_i32   false
#define IS_ERROR_u64   false
#define IS_ERROR_error true

#define FIELD_F(M, type, name, since, text)                                          \
	{#name, #type, text,           SIZE_##type, offsetof(struct wire_##M, name), \
	 0,     since, IS_ERROR_##type},
#define FIELD_V(M, name, max, since, text) \
	{#name, "bytes", text, 4, offsetof(struct wire_##M, name), max, since, false},

#define ADD_F(M, type, name, since, text) +SIZE_##type
#define ADD_V(M, name, max, since, text)  +4
#define MIN_F(M, type, name, since, text) +((since) <= WIRE_VERSION_OLDEST ? SIZE_##type : 0)
#define MIN_V(M, name, max, since, text)  +((since) <= WIRE_VERSION_OLDEST ? 4 : 0)
#define ONE_F(M, type, name, since, text) +1
#define ONE_V(M, name, max, since, text)  +1
#define MAX_F(M, type, name, since, text) +0
#define MAX_V(M, name, max, since, text)  +max

/* The last entry ends the array; without it, the array of a message without fields would be empty,
 * which C does not allow. */
#define FIELDS(NAME, name, ...)                                                                 \
	static const struct wire_field name##_fields[] = {                                      \
	    WIRE_FIELDS_##name(FIELD_F, FIELD_V, name){NULL, NULL, NULL, 0, 0, 0, 0, false}};   \
	_Static_assert(WIRE_HEADER_SIZE + (0 WIRE_FIELDS_##name(ADD_F, ADD_V, name)) +          \
			       (0 WIRE_FIELDS_##name(MAX_F, MAX_V, name)) + WIRE_NUMBER_SIZE <= \
			   WIRE_PACKET_MAX,                                                     \
		       #NAME " fits into a packet");
WIRE_MESSAGES(FIELDS)

#define DESCRIPTION(NAME, name_, number, direction_, min, max, since_, reply_, flags_, text_) \
	[number] = {                                                                          \
	    .name = #NAME,                                                                    \
	    .text = text_,                                                                    \
	    .fields = name_##_fields,                                                         \
	    .n_fields = 0 WIRE_FIELDS_##name_(ONE_F, ONE_V, name_),                           \
	    .fixed_size = 0 WIRE_FIELDS_##name_(ADD_F, ADD_V, name_),                         \
	    .fixed_size_min = 0 WIRE_FIELDS_##name_(MIN_F, MIN_V, name_),                     \
	    .direction = WIRE_##direction_,                                                   \
	    .fds_min = min,                                                                   \
	    .fds_max = max,                                                                   \
	    .since = since_,                                                                  \
	    .flags = (flags_),                                                                \
	    .reply = WIRE_##reply_,                                                           \
	},

static const struct wire_description descriptions[WIRE_TYPE_COUNT] = {WIRE_MESSAGES(DESCRIPTION)};

const struct wire_description *wire_describe(unsigned type)
{
	if (type >= WIRE_TYPE_COUNT || !descriptions[type].name)
		return NULL;
	return &descriptions[type];
}
