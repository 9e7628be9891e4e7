/* SPDX-License-Identifier: MIT */

/* Tokens. */

#include <string.h>

#include "libshare/handover/inside.h"
#include "libshare/program/range.h"

int share_export_with(share_buffer *b, const share_export_options *options, void *stream,
		      share_token *out)
{
	RANGE("share_export", 0);
	HAZARDS;
	share_export_options o;
	struct wire_message m = {.type = WIRE_EXPORT};
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	unsigned char room[SHARE_TENSOR_ENCODED_MAX];
	struct wire_bytes tensor;
	share_fence fence;
	int r = buffer_resolve(&b);

	if (r == 0 && !out)
		r = fail(SHARE_EINVAL, "out is NULL");
	if (r == 0)
		r = struct_in(share_export_options, &o, options);
	if (r == 0 && o.mode)
		r = mode_check((int)o.mode);
	/* the broker knows what the process may, by whichever of its handles */
	if (r == 0 && o.mode & ~b->mode)
		r = fail(SHARE_EACCES, "the handle is read-only, so a token of it can be no more");
	if (r == 0)
		r = tensor_for_request(b, o.tensor, room, &tensor);
	if (r == 0)
		r = buffer_make_known(b, stream, &fence);
	if (r != 0)
		return r;
	m.export = (struct wire_export){
	    .buffer = b->id,
	    .timeline = fence.timeline,
	    .value = fence.value,
	    .mode = o.mode ? o.mode : SHARE_RDONLY,
	    .uses = o.uses,
	    .timeout = o.timeout_ms,
	    .size = b->home ? b->size : 0,
	    .tensor = tensor,
	};
	r = rpc(b->client, &m, &reply);
	if (r != 0)
		return r;
	if (reply.m.token.token.size != sizeof(out->bytes))
		return fail(SHARE_EPROTO, "the broker sent a token of the wrong size");
	memcpy(out->bytes, reply.m.token.token.data, sizeof(out->bytes));
	return 0;
}

int share_import(share_client *c, const share_token *token, int mode, void *stream,
		 share_buffer **out)
{
	RANGE("share_import", 0);
	HAZARDS;
	struct wire_message m = {.type = WIRE_IMPORT};
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	share_buffer *b;
	int r = client_resolve(&c);

	if (r == 0 && (!token || !out))
		r = fail(SHARE_EINVAL, "token or out is NULL");
	if (r == 0 && mode != 0)
		r = mode_check(mode);
	if (r == 0)
		r = stream_check(c, NULL, stream);
	if (r != 0)
		return r;
	m.import.mode = (uint32_t)mode;
	m.import.token = (struct wire_bytes){token->bytes, sizeof(token->bytes)};
	r = rpc(c, &m, &reply);
	if (r == 0)
		r = buffer_from_grant(c, &reply.m.grant, stream, -1, &b);
	if (r == 0)
		*out = handle_give(b);
	return r;
}

int share_revoke(share_client *c, const share_token *token)
{
	HAZARDS;
	struct wire_message m = {.type = WIRE_REVOKE};
	int r = client_resolve(&c);

	if (r == 0 && !token)
		r = fail(SHARE_EINVAL, "the token is NULL");
	if (r != 0)
		return r;
	m.revoke.token = (struct wire_bytes){token->bytes, sizeof(token->bytes)};
	return rpc(c, &m, NULL);
}
