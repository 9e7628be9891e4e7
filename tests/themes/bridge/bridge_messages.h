/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include <share/channel.h>

/*
 * Messages of several buffers. What one has goes by its number, which is in its data: none to all
 * buffers that there may be, small and large ones, and as many bytes as its number needs up to all
 * that there may be.
 */

#define MESSAGE_BUFFERS 32
#define MESSAGE_DATA    SHARE_CHANNEL_DATA_MAX

uint32_t message_buffers(unsigned n);
uint32_t message_data_size(unsigned n);
/* The content of a buffer, for content_is(). */
unsigned message_seed(unsigned n, uint32_t i);

/* What is to be sent. The buffers, which are to be given, are in @buffers, and there is room for
 * MESSAGE_DATA bytes in @data. */
share_outgoing message_make(share_pool *pool, unsigned n, share_buffer **buffers,
			    unsigned char *data);

unsigned message_number(const share_message *m);
/* It is what its number says. */
void message_expect(const share_message *m);
