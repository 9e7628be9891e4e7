/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/channel/channel.h"

/* The half of a channel that a consumer has: what it is lent, and gives back. */

extern const struct channel_role receiver_role;

/* For a loan: buffer_release(). */
int channel_release(share_buffer *b, void *stream, bool *kept);

/* ------------------------------------------------------------------------------------------- */
/* For services                                                                                */

/* These two are the steps of share_recv(): the first receives without ordering anything, the second
 * orders @stream behind the message, which an error leaves as it is. What lasts is its own. */
int channel_receive(share_channel *ch, int timeout_ms, share_message *out);
int channel_order(share_message *m, void *stream, int timeout_ms);
/* Puts a message back that could not be ordered yet, so that it is received again. */
void channel_put_back(share_message *m);

/* This is share_ack() right after channel_send() of @sent (NULL: it is gone) on the same stream,
 * whose fence serves both where their memory is on the same device. */
int channel_ack_behind(share_message *m, void *stream, const share_buffer *sent,
		       struct ring_fence signalled);
void channel_ack_unused(share_message *m);            /* nothing was done with it; calls no hook */
uint64_t channel_sender_page(const share_message *m); /* of its timelines; 0: it is gone */
/* Reads the word `call` of a ticket in the ring of the message's producer, without blocking. The
 * answer is SHARE_EOWNERDEAD when the producer is gone. */
int channel_sender_call(const share_message *m, uint32_t index, uint32_t *out);
/* channel_held() with those that we have acknowledged in CHANNEL_DIRECT behind work that is not
 * done, or was not when there were not so @many yet; and the oldest of that work (slot 0: there is
 * none). With @tell, if there are so many, channel_tell_of_less()'s timer runs out when there may
 * be fewer, until this is asked again. */
uint32_t channel_owes(share_channel *ch, uint32_t many, bool tell, struct ring_fence *oldest);

/* A few bytes that the channel's owner keeps with a message that was received. False: it was given
 * up. */
#define CHANNEL_NOTE_SIZE 16
bool channel_get_note(const share_message *m, void *out);
void channel_set_note(const share_message *m, const void *note);
/* Calls @visit, with no lock held, for each message that was received and not given up, as those
 * two know it. */
void channel_visit_received(share_channel *ch, void (*visit)(void *owner, share_message *m),
			    void *owner);
/* Whoever receives, or will, comes back as if the time were over; an event loop looks. */
void channel_look_again(share_channel *ch);
