/* SPDX-License-Identifier: MIT */

/*
 * The end of a membership: the program closes the channel, and it ends when nobody has a message of
 * it any more. What a role does with its half by then is in sender/sender.c and
 * receiver/receiver.c.
 */

#include "libshare/channel/inside.h"
#include "libshare/program/error.h"
#include "libshare/program/range.h"
#include "pages/page.h"

void channel_leave(share_channel *ch)
{
	DETAIL_STAYS;
	struct wire_message m = {.type = WIRE_CHANNEL_CLOSE};

	m.channel_close.member = ch->member;
	if (ch->member)
		rpc(ch->client, &m, NULL);
}

void channel_end(void *channel)
{
	DETAIL_STAYS;
	share_channel *ch = channel;
	struct members *members = channel_unshared(ch);
	share_client *c = ch->client;

	if (ch->role == SHARE_CONSUMER)
		channel_leave(ch);
	members_sync_deinit(members);
	channel_delist(ch);
	members_deinit(members);
	members->role->end(members);
	if (ch->own)
		page_unmap(ch->own, channel_page_size(ch, ch->role));
	page_unmap(ch->control, CHANNEL_CONTROL_SIZE);
	fd_close(ch->epoll);
	fd_close(ch->doorbell);
	fd_close(ch->wakeup);
	fd_close(ch->timer);
	fd_close(ch->less);
	channel_free(ch);
	client_unref(c);
}

void channel_close(share_channel *ch)
{
	DETAIL_STAYS;
	channel_end_waits(ch);
	channel_unshared(ch)->role->close(ch);
	channel_lock(ch)->closed = true;
	channel_unlock_and_end(ch);
}

void share_channel_close(share_channel *ch)
{
	RANGE("share_channel_close", 0);
	HAZARDS;

	ch = channel_take(ch);
	if (ch)
		channel_close(ch);
}
