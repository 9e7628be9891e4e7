/* SPDX-License-Identifier: MIT */
#ifndef BRIDGE_DATA_MEMORY_H
#define BRIDGE_DATA_MEMORY_H

#include <share/share.h>

struct bridge;

/* A buffer and where it is. Zeroed memory has none. */
struct reach {
	share_buffer *buffer; /* the reach has a reference */
	void *memory;         /* of the host, or of a device */
	int ordinal;          /* of the device; -1: the host */
	void *stream;         /* after whose work it is released */
};

/* Takes over the reference. */
void reach_of(share_buffer *buffer, struct reach *out);
/* Allocates in the bridge's pool. A device may use the memory when it has passed its gate
 * (staging.h). 0 or a negative error. */
int reach_allocate(struct bridge *b, uint64_t size, struct reach *out);

/* Gives the buffer to the caller, who releases it. What was received is in it. */
share_buffer *reach_take(struct reach *r);
void reach_end(struct reach *r);

#endif
