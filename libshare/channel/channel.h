/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_CHANNEL_CHANNEL_H
#define LIBSHARE_CHANNEL_CHANNEL_H

#include <stdbool.h>

#include <share/channel.h>

#include "ring/ring.h"

/*
 * Channels: what ring/ring.h does in memory, with clients, descriptors, streams and threads around
 * it. This is what the other rooms of the library may call; the room's own files share inside.h.
 */

struct client_room;
extern const struct client_room channel_room;
struct channel_role;
extern const struct channel_role sender_role, receiver_role;

/* ------------------------------------------------------------------------------------------- */
/* For buffers (struct buffer_carrier)                                                         */

/* For a loan: buffer_release(); and between which members it is (false: it is no loan by now). */
int channel_release(share_buffer *b, void *stream, bool *kept);
bool channel_name_loan(share_buffer *b, uint64_t *member, uint64_t *producer);

/* Both are called with the client's lock held. The first has the threads of all channels of the
 * client look for what was acknowledged, at once and then with each acknowledgement, as long as
 * buffers_are_awaited() says so. The second says whether all of them have looked since; each that
 * has tells client->arrived. */
uint64_t senders_look_client_locked(share_client *c);
bool senders_have_looked_client_locked(const share_client *c, uint64_t look);

/* ------------------------------------------------------------------------------------------- */
/* For services                                                                                */

/* One consumer of a channel in the mode CHANNEL_DIRECT, to which a message can be sent. */
struct channel_target {
	uint64_t member;
	uint64_t page; /* the page of its client's timelines */
	uint32_t slot;
};

/* These are the functions share_channel_...() for an object instead of a handle. */
void channel_close(share_channel *ch);
int channel_get_fd(share_channel *ch);
int channel_get_stats(share_channel *ch, share_channel_stats *out);
int channel_take_back(share_channel *ch, share_message *out);
void channel_end_waits(share_channel *ch); /* SHARE_ECANCELED, from now on */

/* A channel that is held stays, as with a message that was received and not given up, until it is
 * let go of. The third says how many messages and holds there are. */
void channel_hold(share_channel *ch);
void channel_let_go(share_channel *ch);
uint32_t channel_held(share_channel *ch);
/* The same with those that we have acknowledged in CHANNEL_DIRECT behind work that is not done, or
 * was not when there were not so @many yet; and the oldest of that work (slot 0: there is none). */
uint32_t channel_owes(share_channel *ch, uint32_t many, struct ring_fence *oldest);

/* This is share_channel_open() with a @mode of enum channel_mode; with 0 the options say it. */
int channel_open(share_client *c, const char *name, int role, uint32_t mode,
		 const share_channel_options *options, share_channel **out);
const struct channel_shape *channel_shape(const share_channel *ch); /* it stays what it is */

/* This is share_send(), in CHANNEL_DIRECT to @to, which is NULL in other modes. If @timeout_ms is
 * 0, the answer is SHARE_EAGAIN when there is no room, whatever the channel's options say. It is
 * SHARE_ENOENT when there is no such consumer. @signalled, if not NULL, becomes the fence that was
 * signalled on @stream. */
int channel_send(share_channel *ch, const struct channel_target *to, const share_outgoing *m,
		 void *stream, int timeout_ms, struct ring_fence *signalled);

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
void channel_ack_unused(share_message *m); /* nothing was done with it; calls no hook */

/* Says under what our own membership is to be answered. */
void channel_self(share_channel *ch, struct channel_target *out);
uint64_t channel_sender_page(const share_message *m); /* of its timelines; 0: it is gone */

/* Reads the word `call` of a ticket in the ring of the message's producer, without blocking. The
 * answer is SHARE_EOWNERDEAD when the producer is gone. */
int channel_sender_call(const share_message *m, uint32_t index, uint32_t *out);
void channel_set_call(share_channel *ch, uint32_t index, uint32_t value); /* in our own ring */

/* Gives the channel an owner, until it is dropped, before its hazard_end(). share_ack() calls
 * @before_ack for each message, with no lock held. */
void channel_set_owner(share_channel *ch, void *owner,
		       void (*before_ack)(void *owner, share_message *m));
void channel_drop_owner(share_channel *ch);
void *channel_owner(const share_channel *ch); /* as hazard_set(); or NULL */

#endif
