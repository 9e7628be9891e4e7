/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <share/channel.h>

/* What tests of channels do over and over. The channel is called "channel". */

share_channel_options options(uint32_t mode, uint32_t when_full);
share_channel *open_channel(share_client *c, int role, const share_channel_options *o);

/* Messages of a number and nothing else. */
void send_number(share_channel *p, uint32_t number);
uint32_t receive_number(share_channel *c); /* and acknowledges */
void expect_number(share_channel *c, uint32_t number);
void expect_nothing(share_channel *c);

/* Messages of 4096 bytes of this value. */
share_buffer *filled_buffer(share_pool *p, int value);
void send_filled(share_channel *ch, share_pool *p, int value);
void expect_message(share_channel *c, int value); /* and acknowledges */

share_channel_stats channel_stats(share_channel *ch);
uint32_t in_flight(share_channel *p);
