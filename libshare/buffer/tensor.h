/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_BUFFER_TENSOR_H
#define LIBSHARE_BUFFER_TENSOR_H

#include <share/tensor.h>

#include "wire/wire.h"

/* Fails with SHARE_EINVAL: @t is NULL, or its size was not set, or what else is wrong with it. */
int tensor_check(const share_tensor *t);

/* A valid tensor that fits into @size bytes; SHARE_EINVAL otherwise. */
int tensor_check_fits(const share_tensor *t, uint64_t size);

/*
 * What goes with a name or a token of a buffer: writes @t into @room, of SHARE_TENSOR_ENCODED_MAX
 * bytes, and has @out say where; NULL: nothing does. SHARE_ENOTSUP: the broker is too old.
 */
int tensor_for_request(share_buffer *b, const share_tensor *t, unsigned char *room,
		       struct wire_bytes *out);

#endif
