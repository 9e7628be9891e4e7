/* SPDX-License-Identifier: MIT */

/*
 * What a program calls to send: its handle leads to a channel, and its messages, of whatever size
 * their structs are, to those that the library sends.
 */

#include <stdlib.h>

#include <share/private/core.h>

#include "libshare/program/error.h"
#include "libshare/program/range.h"
#include "libshare/sender/inside.h"

static bool any_has_list(const share_outgoing *messages, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (messages[i].n_buffers != 0)
			return true;
	return false;
}

/* A message that says what it is made of in another way, or has a larger struct than we know: @out
 * is zeros. */
static int make_plain(const share_channel *ch, const void *from, size_t size, share_outgoing *out)
{
	uint32_t most = channel_buffers(&ch->shape);
	int r = struct_copy_in_sized(out, from, size, STRUCT_TYPE(share_outgoing));

	if (r != 0)
		return r;
	if (out->n_buffers > most)
		return fail(SHARE_EINVAL,
			    "a message of this channel carries up to %u buffer%s, not %u; up to %d "
			    "if all who open it say so (buffers)",
			    most, plural(most), out->n_buffers, CHANNEL_BUFFERS_MAX);
	if (out->n_buffers > 0 && (!out->buffers || (out->buffer && out->buffer != *out->buffers)))
		return fail(SHARE_EINVAL, "buffers is NULL, or buffer is not the first of them");
	if (out->n_buffers > 1 && !*out->buffers)
		return fail(SHARE_EINVAL, "one of a message's buffers is NULL");
	if (out->n_buffers > 0)
		out->buffer = *out->buffers;
	return 0;
}

int channel_outgoing(const share_channel *ch, const share_outgoing *from, share_outgoing *out)
{
	int r = struct_check(share_outgoing, from);

	*out = (share_outgoing){0};
	return r == 0 ? make_plain(ch, from, from->size, out) : r;
}

static int send_plain(share_channel *ch, const share_outgoing *messages, size_t n, void *stream,
		      int timeout_ms)
{
	share_outgoing *plain = calloc(n, sizeof(*plain));
	size_t stride = messages->size;
	int r = plain ? 0 : fail_system(-ENOMEM, "sending messages");

	for (size_t i = 0; r == 0 && i < n; i++)
		r = make_plain(ch, (const char *)messages + i * stride, stride, &plain[i]);
	if (r == 0)
		r = channel_send(ch, NULL, plain, n, stream, timeout_ms, NULL);
	free(plain);
	return r;
}

/* @timeout_ms: of the call, unless that is the channel's. */
static int send_public(share_channel *ch, const share_outgoing *messages, size_t n,
		       const int *timeout_ms, void *stream)
{
	int r = channel_resolve_as(&ch, SHARE_PRODUCER), limit = 0;

	if (r == 0 && ch->shape.mode == CHANNEL_DIRECT)
		r = fail(SHARE_ENOTSUP, "this channel belongs to a service");
	if (r == 0 && ch->shape.when_full == SHARE_FULL_BLOCK)
		limit = timeout_ms ? *timeout_ms : ch->send_timeout_ms;
	if (r == 0 && (!messages || n == 0 || n > INT32_MAX))
		r = fail(SHARE_EINVAL, "there are no messages");
	if (r == 0 && messages->size != sizeof(*messages))
		r = struct_check(share_outgoing, messages);
	if (r != 0)
		return r;
	if (messages->size != sizeof(*messages) || any_has_list(messages, n))
		return send_plain(ch, messages, n, stream, limit);
	return channel_send(ch, NULL, messages, n, stream, limit, NULL);
}

int share_send_many(share_channel *ch, const share_outgoing *messages, size_t n, void *stream)
{
	RANGE("share_send", n);
	HAZARDS;
	return send_public(ch, messages, n, NULL, stream);
}

int share_send_within(share_channel *ch, const share_outgoing *messages, size_t n, int timeout_ms,
		      void *stream)
{
	RANGE("share_send", n);
	HAZARDS;
	return send_public(ch, messages, n, &timeout_ms, stream);
}
