/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_CHANNEL_READY_H
#define LIBSHARE_CHANNEL_READY_H

#include <share/channel.h>

/* What a service has its channels tell, besides what share_channel_get_fd() does. */

/* For a producer: the descriptor is readable only when who was refused may send, and until it has.
 */
int channel_get_room_fd(share_channel *ch);
/* Gives a producer's channel an owner. Its thread calls @came_back, with no lock held, when there
 * may be something for channel_take_back(). Before anything is sent. */
void channel_set_came_back(share_channel *ch, void *owner, void (*came_back)(void *owner));
/* Whoever receives, or will, comes back as if the time were over; an event loop looks. */
void channel_look_again(share_channel *ch);

#endif
