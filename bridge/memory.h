/* SPDX-License-Identifier: MIT */
#ifndef BRIDGE_MEMORY_H
#define BRIDGE_MEMORY_H

#include <share/share.h>

/*
 * The memory of a buffer, for UCX: where it is, or that of a GPU as a copy in the memory of this
 * process.
 */
struct reach {
	share_buffer *buffer; /* the reach has a reference */
	void *memory;
	void *copy; /* NULL: none is needed */
};

/* Each takes over the reference, also when it fails. 0 or a negative error. */
int reach_to_read(share_buffer *buffer, struct reach *out);
int reach_to_write(share_buffer *buffer, struct reach *out);

/* What was received is in the buffer afterwards. 0 or a negative error. */
int reach_written(struct reach *r);
/* Gives the buffer to the caller, who releases it. */
share_buffer *reach_take(struct reach *r);
void reach_end(struct reach *r);

#endif
