/* SPDX-License-Identifier: MIT */

/*
 * The one file that knows all rooms of the library. Rooms include what is below them, and are
 * reached from there by the tables here.
 */

#include "libshare/buffer/buffer.h"
#include "libshare/channel/channel.h"
#include "libshare/channel/role.h"
#include "libshare/client/room.h"
#include "libshare/handover/handover.h"
#include "libshare/order/order.h"
#include "libshare/receiver/receiver.h"
#include "libshare/segment/segment.h"
#include "libshare/sender/sender.h"

const struct client_room *const client_rooms[] = {
    &order_room, &segment_room, &buffer_room, &handover_room, &channel_room, NULL,
};

/* Which half of a channel a member has. */
const struct channel_role *const channel_roles[] = {
    [SHARE_PRODUCER] = &sender_role,
    [SHARE_CONSUMER] = &receiver_role,
};

/* A message in flight has a reference on its buffer, and its consumer a loan of it. */
const struct buffer_carrier buffer_carrier = {
    .release_loan = channel_release,
    .name_loan = channel_name_loan,
    .look = senders_look_client_locked,
    .have_looked = senders_have_looked_client_locked,
};
