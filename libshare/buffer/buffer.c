/* SPDX-License-Identifier: MIT */

/*
 * What a program can ask about a buffer: what its handle knows by itself, where it lies, whether
 * the giver's work is done, and its recipe, which says how to reach it without this library.
 */

#include <stdio.h>
#include <string.h>

#include "libshare/buffer/inside.h"
#include "libshare/program/struct.h"

int mode_check(int mode)
{
	if (mode != SHARE_RDONLY && mode != SHARE_RDWR)
		return fail(SHARE_EINVAL, "mode %d is neither SHARE_RDONLY nor SHARE_RDWR", mode);
	return 0;
}

share_buffer *share_retain(share_buffer *b)
{
	share_buffer *found = handle_find(b, HANDLE_BUFFER);

	if (!found)
		return NULL;
	buffer_ref(found);
	handle_keep(found);
	return b;
}

void *share_ptr(const share_buffer *b)
{
	const share_buffer *found = handle_find(b, HANDLE_BUFFER);

	if (!found || client_is_forked(found->client))
		return NULL;
	return (char *)found->mapping->address + found->offset;
}

uint64_t share_size(const share_buffer *b)
{
	const share_buffer *found = handle_find(b, HANDLE_BUFFER);

	return found ? found->size : 0;
}

uint64_t buffer_tell_id(share_buffer *b)
{
	if (b->home)
		atomic_store_explicit(&b->known, true, memory_order_relaxed);
	return b->id;
}

uint64_t share_id(const share_buffer *b)
{
	share_buffer *found = handle_find(b, HANDLE_BUFFER);

	return found ? buffer_tell_id(found) : 0;
}

int share_mode(const share_buffer *b)
{
	const share_buffer *found = handle_find(b, HANDLE_BUFFER);

	return found ? (int)found->mode : 0;
}

uint64_t share_name_version(const share_buffer *b)
{
	const share_buffer *found = handle_find(b, HANDLE_BUFFER);

	return found ? found->version : 0;
}

int share_buffer_get_info(const share_buffer *handle, share_buffer_info *out)
{
	share_buffer *b = NULL;
	share_buffer_info info;
	const struct segment *s;
	int r = buffer_find(handle, &b);

	if (r == 0)
		r = struct_check(share_buffer_info, out);
	if (r != 0)
		return r;
	s = b->segment;
	info = (share_buffer_info){
	    .size = sizeof(info),
	    .kind = s->kind->name,
	    .device = s->kind->on_device ? s->device : NULL,
	    .ordinal = s->kind->on_device ? b->mapping->ordinal : -1,
	    .segment = s->id,
	    .segment_size = s->size,
	    .offset = b->offset,
	    .ordered = b->ordered,
	};
	struct_out(share_buffer_info, out, &info);
	return 0;
}

int share_buffer_status(const share_buffer *handle)
{
	share_buffer *b = NULL;
	int r = buffer_find(handle, &b);

	if (r == 0)
		r = segment_check_memory(b->mapping);
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

int share_get_recipe(const share_buffer *handle, share_recipe *out)
{
	struct wire_message m = {.type = WIRE_RECIPE_GET};
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	const struct wire_recipe *got = &reply.m.recipe;
	const struct memory_kind *kind;
	struct memory_recipe recipe;
	share_recipe found;
	share_buffer *b = NULL;
	int r = buffer_find(handle, &b);

	if (r == 0)
		r = struct_check(share_recipe, out);
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
	found = (share_recipe){
	    .size = sizeof(found),
	    .kind = kind->name,
	    .fd = fd_list_take(&reply.fds, 0),
	    .mode = b->mode,
	    .segment_size = recipe.size,
	    .offset = got->offset,
	};
	/* of the file, and not of the part of it that the library maps */
	if (kind->id == MEMORY_ADOPTED) {
		found.offset += memory_recipe_offset(&recipe);
		found.segment_size += memory_recipe_offset(&recipe);
		memset(recipe.pointer, 0, sizeof(recipe.pointer));
	}
	if (kind->on_device)
		snprintf(found.device, sizeof(found.device), "%s", b->segment->device);
	_Static_assert(sizeof(found.pointer) == sizeof(recipe.pointer), "the same 64 bytes");
	memcpy(found.pointer, recipe.pointer, sizeof(found.pointer));
	struct_out(share_recipe, out, &found);
	return 0;
}
