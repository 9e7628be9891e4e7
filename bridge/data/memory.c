/* SPDX-License-Identifier: MIT */

#include <string.h>

#include "bridge/bridge.h"
#include "bridge/data/inside.h"

bool memory_is_cuda(const char *kind)
{
	return strcmp(kind, "vmm") == 0;
}

void reach_of(share_buffer *buffer, struct reach *out)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;

	share_buffer_get_info(buffer, &info);
	*out = (struct reach){.buffer = buffer,
			      .memory = share_ptr(buffer),
			      .ordinal = info.ordinal,
			      .is_cuda = info.ordinal >= 0 && memory_is_cuda(info.kind)};
}

int reach_allocate(struct bridge *b, uint64_t size, struct reach *out)
{
	void *stream = b->ordinal < 0 ? NULL : staging_gate(b->data->staging, b->ordinal);
	share_buffer *buffer;
	int r = share_alloc(b->pool, size, stream, &buffer);

	if (r == 0) {
		reach_of(buffer, out);
		out->stream = stream;
	}
	return r;
}

share_buffer *reach_take(struct reach *r)
{
	share_buffer *b = r->buffer;

	*r = (struct reach){0};
	return b;
}

void reach_end(struct reach *r)
{
	void *stream = r->stream;
	share_buffer *b = reach_take(r);

	if (b)
		share_release(b, stream);
}
