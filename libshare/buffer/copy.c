/* SPDX-License-Identifier: MIT */

/*
 * Copies between buffers, and between these and the memory of this process, for programs without
 * CUDA of their own. Those of host memory end when everything is done, so the order on a host
 * stream is kept by waiting for it. From device to device the copy is enqueued, if the stream that
 * it is on is that of both buffers; else it is waited for as well, as nothing that the program does
 * with them later would come after it.
 */

#include <string.h>

#include "libshare/buffer/inside.h"
#include "libshare/program/range.h"

static int check_range(const share_buffer *b, uint64_t offset, uint64_t size)
{
	if (offset <= b->size && size <= b->size - offset)
		return 0;
	return fail(SHARE_EINVAL,
		    "%llu byte%s at %llu: that is outside of the buffer, which has %llu",
		    (unsigned long long)size, plural(size), (unsigned long long)offset,
		    (unsigned long long)b->size);
}

/* From a handle to the buffer, if the copy can be made. */
static int check(share_buffer **handle, uint64_t offset, const void *memory, uint64_t size,
		 void *stream)
{
	int r = buffer_resolve(handle);
	const share_buffer *b = *handle;

	if (r == 0)
		r = stream_check(b->client, b->segment->kind, stream);
	if (r == 0)
		r = check_range(b, offset, size);
	if (r == 0 && !memory && size)
		r = fail(SHARE_EINVAL, "the memory is NULL");
	return r;
}

static int check_overlap(const share_buffer *to, uint64_t to_offset, const share_buffer *from,
			 uint64_t from_offset, uint64_t size)
{
	uint64_t a = to->offset + to_offset, b = from->offset + from_offset;

	/* of whatever connection and mapping */
	if (memcmp(to->segment->recipe.identity, from->segment->recipe.identity,
		   sizeof(to->segment->recipe.identity)) != 0 ||
	    a >= b + size || b >= a + size)
		return 0;
	return fail(SHARE_EINVAL,
		    "the two parts overlap: a copy within a buffer is from one part "
		    "to another one");
}

/* Waits for what the device cannot order its copy after. What is left for it: its own stream. */
static int wait_for_host(share_buffer *b, void **stream)
{
	bool fatal;
	int r;

	if (!host_stream_is(b->client, *stream))
		return 0;
	r = host_stream_may_wait(*stream);
	if (r == 0)
		r = stream_synchronize(b->client, b->mapping, *stream, &fatal);
	*stream = NULL;
	return r;
}

static char *address_of(const share_buffer *b, uint64_t offset)
{
	return (char *)b->mapping->address + b->offset + offset;
}

int share_copy_to_host(share_buffer *b, uint64_t offset, void *to, uint64_t size, void *stream)
{
	RANGE("share_copy_to_host", size);
	HAZARDS;
	struct failure failure;
	int r = check(&b, offset, to, size, stream);

	if (r == 0)
		r = wait_for_host(b, &stream);
	if (r != 0)
		return r;
	if (!b->segment->kind->on_device) {
		if (size)
			memcpy(to, address_of(b, offset), size);
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
	if (r == 0)
		r = wait_for_host(b, &stream);
	if (r != 0)
		return r;
	if (!b->segment->kind->on_device) {
		if (size)
			memcpy(address_of(b, offset), from, size);
		return 0;
	}
	r = memory_copy_from_host(b->mapping, b->offset + offset, from, size, stream, &failure);
	return r != 0 ? fail(r, "%s", failure.text) : 0;
}

/* Each context has its own stream for each of these. */
static bool is_of_any_device(const void *stream)
{
	return (uintptr_t)stream <= 2;
}

/* Whether the program's later work on both buffers, and their release, come after what is enqueued
 * on @stream. */
static bool covers(const share_buffer *to, const share_buffer *from, const void *stream)
{
	return !is_of_any_device(stream) || to->mapping->ordinal == from->mapping->ordinal;
}

static int synchronize(const share_buffer *to, const share_buffer *from, void *stream,
		       struct failure *failure)
{
	int r = memory_stream_synchronize(from->mapping, stream, failure);

	return r == 0 && is_of_any_device(stream)
		   ? memory_stream_synchronize(to->mapping, stream, failure)
		   : r;
}

static int copy_between(share_buffer *to, uint64_t to_offset, share_buffer *from,
			uint64_t from_offset, uint64_t size, void *stream, bool waits,
			struct failure *failure)
{
	uint64_t at = to->offset + to_offset, from_at = from->offset + from_offset;
	int r = 0;

	waits = waits || !covers(to, from, stream);
	if (waits)
		r = synchronize(to, from, stream, failure);
	if (r == 0)
		r = memory_copy_between(to->mapping, at, from->mapping, from_at, size, stream,
					failure);
	if (r == SHARE_ENOTSUP) {
		r = synchronize(to, from, stream, failure);
		return r != 0 ? r
			      : memory_copy_staged(to->mapping, at, from->mapping, from_at, size,
						   failure);
	}
	return r == 0 && waits ? synchronize(to, from, stream, failure) : r;
}

int share_copy(share_buffer *to, uint64_t to_offset, share_buffer *from, uint64_t from_offset,
	       uint64_t size, void *stream)
{
	RANGE("share_copy", size);
	HAZARDS;
	struct failure failure;
	share_buffer *side;
	void *given = stream;
	int r = buffer_resolve(&to);

	if (r == 0)
		r = buffer_resolve(&from);
	if (r == 0)
		r = check_range(to, to_offset, size);
	if (r == 0)
		r = check_range(from, from_offset, size);
	if (r == 0 && to->mode != SHARE_RDWR)
		r = fail(SHARE_EACCES, "the handle of the buffer to copy to is read-only");
	if (r == 0)
		r = check_overlap(to, to_offset, from, from_offset, size);
	if (r != 0)
		return r;
	/* a stream is of the device's kind, if one of the two is on a device */
	side = from->segment->kind->on_device ? from : to;
	r = stream_check(side->client, side->segment->kind, stream);
	if (r == 0)
		r = wait_for_host(side, &stream);
	if (r != 0)
		return r;
	if (to->segment->kind->on_device && from->segment->kind->on_device)
		r = copy_between(to, to_offset, from, from_offset, size, stream, stream != given,
				 &failure);
	else if (to->segment->kind->on_device)
		r = memory_copy_from_host(to->mapping, to->offset + to_offset,
					  address_of(from, from_offset), size, stream, &failure);
	else if (from->segment->kind->on_device)
		r = memory_copy_to_host(from->mapping, from->offset + from_offset,
					address_of(to, to_offset), size, stream, &failure);
	else if (size > 0)
		memcpy(address_of(to, to_offset), address_of(from, from_offset), size);
	return r != 0 ? fail(r, "%s", failure.text) : 0;
}
