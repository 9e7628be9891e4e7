/* SPDX-License-Identifier: MIT */

/* A buffer's metadata: JSON text that the broker keeps and checks. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libshare/buffer/buffer.h"
#include "libshare/client/error.h"

int share_metadata_set(share_buffer *b, const char *json)
{
	struct wire_message m = {.type = WIRE_METADATA_SET};
	size_t size = json ? strnlen(json, SHARE_METADATA_MAX + 1) : 0;
	int r = buffer_resolve(&b);

	if (r != 0)
		return r;
	if (b->mode != SHARE_RDWR)
		return fail(SHARE_EACCES, "this handle is read-only");
	if (size > SHARE_METADATA_MAX)
		return fail(SHARE_EINVAL, "metadata has at most %d bytes", SHARE_METADATA_MAX);
	if (json && size == 0)
		return fail(SHARE_EINVAL, "metadata is a JSON object or array; NULL removes it");
	m.metadata_set.buffer = buffer_tell_id(b); /* which makes it known */
	m.metadata_set.json = (struct wire_bytes){json, (uint32_t)size};
	return rpc(b->client, &m, NULL);
}

int share_metadata_get(share_buffer *b, char **out)
{
	struct wire_message m = {.type = WIRE_METADATA_GET};
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	const struct wire_bytes *json = &reply.m.metadata.json;
	char *copy;
	int r = buffer_resolve(&b);

	if (r == 0 && !out)
		r = fail(SHARE_EINVAL, "out is NULL");
	if (r != 0)
		return r;
	m.metadata_get.buffer = b->id;
	r = rpc(b->client, &m, &reply);
	if (r != 0)
		return r;
	if (json->size == 0)
		return fail(SHARE_ENOENT, "the buffer has no metadata");
	copy = malloc(json->size + 1);
	if (!copy)
		return fail_system(-ENOMEM, "reading metadata");
	memcpy(copy, json->data, json->size);
	copy[json->size] = '\0';
	*out = copy;
	return 0;
}
