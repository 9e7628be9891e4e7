/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_LOOKUP_H
#define LIBSHARE_LOOKUP_H

#include "libshare/buffer.h"

/* Shared by the two ways to look up. */
void lookup_message(struct wire_message *m, const char *name, int mode, int timeout_ms);
/* From a handle to the client, if what is asked of it makes sense. */
int lookup_check(share_client **c, const char *name, int mode, int timeout_ms, void *stream);

#endif
