/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/channel/channel.h"

/*
 * The half of a channel that a producer has: what it sends, what comes back, and who keeps it
 * waiting.
 */

struct held_fence;
extern const struct channel_role sender_role;

/* Both are called with the client's lock held. The first has the threads of all channels of the
 * client look for what was acknowledged, at once and then with each acknowledgement, as long as
 * buffers_are_awaited() says so. The second says whether all of them have looked since; each that
 * has tells client->arrived. */
uint64_t senders_look_client_locked(share_client *c);
bool senders_have_looked_client_locked(const share_client *c, uint64_t look);

/* ------------------------------------------------------------------------------------------- */
/* For services                                                                                */

/* This is share_send_many(), in CHANNEL_DIRECT to @to, which is NULL in other modes: how many were
 * sent, or an error when there were none. If @timeout_ms is 0, that is SHARE_EAGAIN when there is
 * no room, whatever the channel's options say. It is SHARE_ENOENT when there is no such consumer.
 * @signalled, if not NULL, becomes the fence that was signalled on @stream. */
int channel_send(share_channel *ch, const struct channel_target *to, const share_outgoing *messages,
		 size_t n, void *stream, int timeout_ms, struct ring_fence *signalled);
/* This is share_channel_take_back(). */
int channel_take_back(share_channel *ch, share_message *out);
/* One that is sent, of whatever size its struct is, for channel_send(): 0, or SHARE_EINVAL. */
int channel_outgoing(const share_channel *ch, const share_outgoing *from, share_outgoing *out);
/* Checks whether it can be sent, by what is known here. 0 or an error. */
int channel_check_outgoing(const share_channel *ch, const share_outgoing *m, void *stream);
/* The descriptor is readable only when who was refused may send, and until it has. */
int channel_get_room_fd(share_channel *ch);
/* This is share_untell(). */
void channel_untell(share_channel *ch);

/* ------------------------------------------------------------------------------------------- */
/* For the receiver                                                                            */

/* Gives up one that was taken back: 0 or an error, as share_ack(). */
int sender_ack_taken_back(share_channel *ch, share_message *m, void *stream);
/* Makes a fence of what the giver of a reference still does with the memory. False if it does
 * nothing any more. */
bool channel_hold_given(share_channel *ch, struct ring_fence given, struct held_fence *out);
