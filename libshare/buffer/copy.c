/* SPDX-License-Identifier: MIT */

/*
 * Copies between buffers and the memory of this process, for programs without CUDA of their own.
 * They end when everything is done, so the order on a host stream is kept by waiting for it.
 */

#include <string.h>

#include "libshare/buffer/inside.h"
#include "libshare/client/range.h"

/* From a handle to the buffer, if the copy can be made. */
static int check(share_buffer **handle, uint64_t offset, const void *memory, uint64_t size,
		 void *stream)
{
	int r = buffer_resolve(handle);
	share_buffer *b = *handle;

	if (r == 0)
		r = stream_check(b->client, b->segment->kind, stream);
	if (r == 0 && (offset > b->size || size > b->size - offset))
		r = fail(SHARE_EINVAL,
			 "%llu byte%s at %llu: that is outside of the buffer, which has %llu",
			 (unsigned long long)size, plural(size), (unsigned long long)offset,
			 (unsigned long long)b->size);
	if (r == 0 && !memory && size)
		r = fail(SHARE_EINVAL, "the memory is NULL");
	return r;
}

/* Waits for what the device cannot order its copy after. What is left for it: its own stream. */
static void wait_for_host(share_buffer *b, void **stream)
{
	bool fatal;

	if (*stream && host_stream_is(b->client, *stream)) {
		stream_synchronize(b->client, b->mapping, *stream, &fatal);
		*stream = NULL;
	}
}

int share_copy_to_host(share_buffer *b, uint64_t offset, void *to, uint64_t size, void *stream)
{
	RANGE("share_copy_to_host", size);
	HAZARDS;
	struct failure failure;
	int r = check(&b, offset, to, size, stream);

	if (r != 0)
		return r;
	wait_for_host(b, &stream);
	if (!b->segment->kind->on_device) {
		if (size)
			memcpy(to, (const char *)b->mapping->address + b->offset + offset, size);
		return 0;
	}
	r = memory_copy_to_host(b->mapping, b->offset + offset, to, size, stream, &failure);
	return r != 0 ? fail(r, "%s", failure.text) : 0;
}

int share_copy_from_host(share_buffer *b, uint64_t offset, const void *from, uint64_t size,
			 void *stream)
{
	RANGE("share_copy_from_host", size);
	HAZARDS;
	struct failure failure;
	int r = check(&b, offset, from, size, stream);

	if (r == 0 && b->mode != SHARE_RDWR)
		r = fail(SHARE_EACCES, "this handle is read-only");
	if (r != 0)
		return r;
	wait_for_host(b, &stream);
	if (!b->segment->kind->on_device) {
		if (size)
			memcpy((char *)b->mapping->address + b->offset + offset, from, size);
		return 0;
	}
	r = memory_copy_from_host(b->mapping, b->offset + offset, from, size, stream, &failure);
	return r != 0 ? fail(r, "%s", failure.text) : 0;
}
