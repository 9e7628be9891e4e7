/* SPDX-License-Identifier: MIT */

/*
 * What a program can ask about a buffer: where it lies, whether the giver's work is done, its
 * metadata, which is JSON text that the broker keeps and checks, and its recipe, which says how to
 * reach it without this library.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libshare/buffer/inside.h"

int share_buffer_get_info(share_buffer *b, share_buffer_info *out)
{
	const struct segment *s;
	int r = buffer_resolve(&b);

	if (r == 0)
		r = struct_check(out, share_buffer_info);
	if (r != 0)
		return r;
	s = b->segment;
	*out = (share_buffer_info){
	    .size = sizeof(*out),
	    .kind = s->kind->name,
	    .device = s->kind->on_device ? s->device : NULL,
	    .ordinal = s->kind->on_device ? b->mapping->ordinal : -1,
	    .segment = s->id,
	    .segment_size = s->size,
	    .offset = b->offset,
	    .ordered = b->ordered,
	};
	return 0;
}

int share_buffer_status(share_buffer *b)
{
	int r = buffer_resolve(&b);

	if (r != 0)
		return r;
	switch (fence_state(b->client, &b->giver)) {
	case TIMELINE_REACHED:
		return 0;
	case TIMELINE_PENDING:
		return fail(SHARE_EAGAIN, "the giver's work on this buffer is still running");
	case TIMELINE_DEAD:
		break;
	}
	return fail(SHARE_EOWNERDEAD, "the giver died before its work on this buffer was done");
}

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

int share_get_recipe(share_buffer *b, share_recipe *out)
{
	struct wire_message m = {.type = WIRE_RECIPE_GET};
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	const struct wire_recipe *got = &reply.m.recipe;
	const struct memory_kind *kind;
	struct memory_recipe recipe;
	int r = buffer_resolve(&b);

	if (r == 0)
		r = struct_check(out, share_recipe);
	if (r != 0)
		return r;
	m.recipe_get.buffer = buffer_tell_id(b); /* which makes it known */
	r = rpc(b->client, &m, &reply);
	if (r != 0)
		return r;
	kind = memory_kind_by_id(got->kind);
	if (!kind || got->recipe.size != sizeof(recipe) || reply.fds.n != 1)
		return fail(SHARE_EPROTO, "the broker sent a recipe this library cannot read");
	memcpy(&recipe, got->recipe.data, sizeof(recipe));
	*out = (share_recipe){
	    .size = sizeof(*out),
	    .kind = kind->name,
	    .fd = fd_list_take(&reply.fds, 0),
	    .mode = b->mode,
	    .segment_size = recipe.size,
	    .offset = got->offset,
	};
	if (kind->on_device)
		snprintf(out->device, sizeof(out->device), "%s", b->segment->device);
	_Static_assert(sizeof(out->pointer) == sizeof(recipe.pointer), "the same 64 bytes");
	memcpy(out->pointer, recipe.pointer, sizeof(out->pointer));
	return 0;
}
