/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include <share/share.h>

struct bridge;

/* A buffer and where it is. Zeroed memory has none. */
struct reach {
	share_buffer *buffer; /* the reach has a reference */
	void *memory;         /* of the host, or of a device */
	int ordinal;          /* of the device; -1: the host */
	bool is_cuda;         /* UCX may be told that it is a device's */
	void *stream;         /* after whose work it is released */
};

/* Whether UCX may be told that memory of this kind is a device's. What is pinned is the host's;
 * links of mempool memory did not come back, on H100s with UCX 1.22 (docs/gpu-results.md); and
 * legacy memory was not tried. */
bool memory_is_cuda(const char *kind);
/* Takes over the reference. */
void reach_of(share_buffer *buffer, struct reach *out);
/* Allocates in the bridge's pool. A device may use the memory when it has passed its gate
 * (staging.h). 0 or a negative error. */
int reach_allocate(struct bridge *b, uint64_t size, struct reach *out);

/* Gives the buffer to the caller, who releases it. What was received is in it. */
share_buffer *reach_take(struct reach *r);
void reach_end(struct reach *r);
