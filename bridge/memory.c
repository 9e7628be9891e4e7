/* SPDX-License-Identifier: MIT */

#include <stdlib.h>
#include <string.h>

#include "bridge/memory.h"

static int reach(share_buffer *buffer, struct reach *out)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	int r = share_buffer_get_info(buffer, &info);

	*out = (struct reach){.buffer = buffer, .memory = share_ptr(buffer)};
	if (r == 0 && info.ordinal >= 0) {
		out->memory = out->copy = malloc(share_size(buffer));
		r = out->copy ? 0 : SHARE_ENOMEM;
	}
	if (r != 0)
		reach_end(out);
	return r;
}

int reach_to_read(share_buffer *buffer, struct reach *out)
{
	int r = reach(buffer, out);

	if (r == 0 && out->copy) {
		r = share_copy_to_host(buffer, 0, out->copy, share_size(buffer), NULL);
		if (r != 0)
			reach_end(out);
	}
	return r;
}

int reach_to_write(share_buffer *buffer, struct reach *out)
{
	return reach(buffer, out);
}

int reach_written(struct reach *r)
{
	int result = 0;

	if (r->copy)
		result = share_copy_from_host(r->buffer, 0, r->copy, share_size(r->buffer), NULL);
	free(r->copy);
	r->copy = NULL;
	return result;
}

share_buffer *reach_take(struct reach *r)
{
	share_buffer *b = r->buffer;

	free(r->copy);
	*r = (struct reach){0};
	return b;
}

void reach_end(struct reach *r)
{
	share_buffer *b = reach_take(r);

	if (b)
		share_release(b, NULL);
}
