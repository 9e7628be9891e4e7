/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

/* Bytes as text, for JSON. */

/* For free(); NULL: no memory. */
char *hex_make(const void *bytes, size_t n);
/* Returns how many bytes, at most @room; 0: that is no such text. */
size_t hex_read(const char *text, void *out, size_t room);
