/* SPDX-License-Identifier: MIT */
#ifndef BRIDGE_HEX_H
#define BRIDGE_HEX_H

#include <stddef.h>

/* Bytes as text, for JSON. */

/* For free(); NULL: no memory. */
char *hex_make(const void *bytes, size_t n);
/* Returns how many bytes, at most @room; 0: that is no such text. */
size_t hex_read(const char *text, void *out, size_t room);

#endif
