/* SPDX-License-Identifier: MIT */
#pragma once

#include <string.h>

#include <share/channel.h>

#include "libshare/program/struct.h"

/* Messages in the program's memory. */

/* A message that was received: 0, or SHARE_EINVAL. */
static inline int message_check(const share_message *m)
{
	return m && m->size == sizeof(*m) ? 0 : struct_check_in(share_message, m);
}
/* Before a message is received into @out, where there is none yet then, whatever comes of it: so
 * who finds none does not take what is there for one. 0, or SHARE_EINVAL. */
static inline int message_begin(share_message *out)
{
	int r = out && out->size == sizeof(*out) ? 0 : struct_check(share_message, out);

	if (r != 0)
		return r;
	out->channel = NULL;
	out->error = 0;
	if (out->size > sizeof(*out)) /* a program that knows more */
		memset(out + 1, 0, out->size - sizeof(*out));
	return 0;
}

/* It has no buffer, or none any more. */
static inline void message_without_buffer(share_message *m)
{
	m->buffer = NULL;
	m->buffers = NULL;
	m->n_buffers = 0;
}

/* It is none any more. */
static inline void message_clear(share_message *m)
{
	m->channel = NULL;
	message_without_buffer(m);
	m->data = NULL;
	m->data_size = 0;
}

/* Of an array whose elements may be larger than ours. */
static inline share_message *message_at(share_message *out, size_t i, size_t stride)
{
	return (share_message *)(void *)((char *)out + i * stride);
}

/* It is one of these from here on. */
static inline void message_prepare(share_message *m, size_t stride)
{
	m->size = stride;
	if (stride > sizeof(*m)) /* a program that knows more */
		memset(m + 1, 0, stride - sizeof(*m));
}

/* To a program that gives up the copy of a message. */
#define GIVEN_UP "this message was given up before"
