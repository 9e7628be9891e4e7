/* SPDX-License-Identifier: MIT */

/*
 * What the descriptor of a producer tells. Calls may have to be made again: sending, for
 * which there was no room, taking back, for which there was nothing, and draining or flushing,
 * which was not over. Each that has answered so is armed; when it may answer otherwise it is told,
 * and the descriptor is readable as long as something is told. It is not told any more once it has
 * answered so again, or, to an event loop that asks whether it is over, that it is. So a program
 * hears of what it has asked for, and of nothing else.
 *
 * Consumers ring once a sleep. So the sleep is announced before each look at what is armed, by who
 * arms it and by the background thread, which they ring for.
 */

#include <sys/eventfd.h>

#include <share/private/core.h>

#include "libshare/sender/inside.h"

/* These calls are not told any more. */
static void untell(struct sender *sender, uint32_t calls)
{
	uint32_t told = sender->ready.told;
	eventfd_t ignored;

	sender->ready.told &= ~(calls | READY_UNKNOWN);
	if (told && !sender->ready.told)
		eventfd_read(sender->ready.room, &ignored);
}

void sender_tell(struct sender *sender, uint32_t calls)
{
	uint32_t now = sender->ready.armed & calls & READY_CALLS;

	if (!now)
		return;
	sender->ready.armed &= ~now;
	if (!sender->ready.told)
		eventfd_write(sender->ready.room, 1);
	sender->ready.told |= now;
}

bool sender_waits_to_tell(const struct sender *sender)
{
	return sender->ready.armed & (READY_SEND | READY_DRAIN | READY_FLUSH);
}

bool sender_wants_doorbell(const struct sender *sender)
{
	return sender_waits_to_tell(sender) || sender->background.idles || sender->backlog ||
	       sender->awaited || sender->drains > 0;
}

void sender_awake(struct sender *sender)
{
	if (!sender->members->asleep && !sender_wants_doorbell(sender))
		ring_producer_awake(sender->ring);
}

bool sender_arm(struct sender *sender, uint32_t call)
{
	struct ring_producer_stats s;
	struct ring_sleep sleep;

	if (!sender->members->wants_fd) {
		sender->ready.armed |= call == READY_SEND ? READY_REFUSED : 0;
		return false;
	}
	untell(sender, call);
	sender->ready.armed |= call;
	if (call & (READY_DRAIN | READY_FLUSH)) {
		ring_producer_get_stats(sender->ring, &s);
		if (call == READY_DRAIN)
			sender->ready.done = s.done;
		else
			sender->ready.waiting = s.waiting;
	}
	if (call != READY_TAKE_BACK)
		ring_producer_sleep(sender->ring, true, &sleep);
	return true;
}

void sender_disarm(struct sender *sender, uint32_t call)
{
	untell(sender, call);
	sender->ready.armed &= ~call;
	sender_awake(sender);
}

void sender_has_set_aside(struct sender *sender)
{
	sender_tell(sender, READY_TAKE_BACK);
	sender->ready.came_back = sender->ch->came_back != NULL;
	/* whose thread says so without the lock */
	if (sender->ready.came_back)
		eventfd_write(sender->ch->wakeup, 1);
}

/* A service says only to who was refused that there is room, and only until that has sent. */
void sender_found_room(struct sender *sender)
{
	sender->ready.armed &= ~(uint32_t)READY_REFUSED;
	if (sender->ready.of_service) {
		sender_disarm(sender, READY_SEND);
	} else {
		sender_tell(sender, READY_SEND);
		sender_awake(sender);
	}
}

/* Whoever has looked before, without us knowing what for, has to look again. */
int sender_get_fd(struct members *members)
{
	if (!members->wants_fd) {
		members->sender->ready.told = READY_UNKNOWN;
		eventfd_write(members->sender->ready.room, 1);
	}
	members->wants_fd = true;
	return members->sender->ready.room;
}

int channel_get_room_fd(share_channel *ch)
{
	struct sender *sender = sender_lock(ch);
	int room = sender->ready.room;

	sender->members->wants_fd = sender->ready.of_service = true;
	if (sender->ready.armed & READY_REFUSED) {
		sender->ready.told = READY_SEND;
		eventfd_write(sender->ready.room, 1);
	}
	channel_unlock(ch);
	return room;
}

void channel_untell(share_channel *ch)
{
	struct sender *sender = sender_lock(ch);

	sender_disarm(sender, READY_CALLS);
	channel_unlock(ch);
}

int share_untell(share_channel *ch)
{
	HAZARDS;
	int r = channel_resolve_as(&ch, SHARE_PRODUCER);

	if (r == 0)
		channel_untell(ch);
	return r;
}
