/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include <share/share.h>

/*
 * The content of buffers of every kind, by copying: host code cannot touch memory of a GPU. Through
 * the calling thread, and on the default stream.
 */

/* All of it. */
void buffer_fill(share_buffer *b, int value);
void buffer_expect(share_buffer *b, int value);
/* At its start, with the NUL. */
void buffer_write(share_buffer *b, const char *text);
bool buffer_reads(share_buffer *b, const char *text);
