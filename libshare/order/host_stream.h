/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_ORDER_HOST_STREAM_H
#define LIBSHARE_ORDER_HOST_STREAM_H

#include "libshare/client/client.h"
#include "libshare/order/timeline.h"

/* Host streams, as libshare/order/stream.h needs them. */

bool host_stream_is_listed(share_client *c, const void *stream);

/* Whether @stream is one of @c's. Does not look into it. Whoever has one knows that it was made, so
 * that when none is seen it is none. */
static inline bool host_stream_is(share_client *c, const void *stream)
{
	return atomic_load_explicit(&c->n_streams, memory_order_relaxed) > 0 &&
	       host_stream_is_listed(c, stream);
}

/* What is no stream of this client may be a CUstream, which cannot be looked into: 0; or it is one
 * of another client, or was one: SHARE_EINVAL. */
int host_stream_refuse(const void *stream);

/* Of one that is. A fence behind everything enqueued so far: 0 or SHARE_ENOMEM. */
int host_stream_signal(void *stream, share_fence *out);

/* Enqueues a wait; @f stays the caller's. 0 or SHARE_ENOMEM. */
int host_stream_wait(void *stream, const struct held_fence *f);

/* Waits for what was enqueued so far. */
void host_stream_synchronize(void *stream);

#endif
