/* SPDX-License-Identifier: MIT */
#pragma once

#include "tests/support/channel_work.h"

/* Messages of several buffers: one with @value has buffers of 4096 bytes that are filled with
 * @value,
 * @value + 1 and so on, and @value as its data. */
#define MOST 32

extern share_pool *several_pool; /* where they are allocated */

/* They are given away, if there is room. */
int try_give(share_channel *p, int value, uint32_t n);
void give(share_channel *p, int value, uint32_t n);
void check_several(const share_message *m, int value, uint32_t n);
void receive_several(share_channel *c, int value, uint32_t n, share_message *m);
void expect_several(share_channel *c, int value, uint32_t n); /* and acknowledges */
