/* SPDX-License-Identifier: MIT */

/* Buffers: everything a handle knows by itself. */

#include "libshare/buffer/inside.h"

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
