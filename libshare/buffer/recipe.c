/* SPDX-License-Identifier: MIT */

/* Recipes: how to reach a buffer without this library. */

#include <stdio.h>
#include <string.h>

#include "libshare/buffer/buffer.h"
#include "libshare/client/error.h"

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
