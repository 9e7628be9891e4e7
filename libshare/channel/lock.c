/* SPDX-License-Identifier: MIT */

/*
 * The doors to what a channel's lock guards. This file alone knows where the guarded parts of a
 * channel lie, so that nobody has a pointer to one of them who has not come through a door; what
 * such a pointer says of the lock is at the top of lock.h.
 */

#include "base/system/descriptor.h"
#include "libshare/channel/inside.h"
#include "libshare/program/error.h"

struct whole {
	share_channel ch; /* first: a handle leads to it */
	struct members members;
};

static struct whole *whole_of(share_channel *ch)
{
	_Static_assert(offsetof(struct whole, ch) == 0, "a channel's handle is its address");
	return (struct whole *)(void *)ch;
}

share_channel *channel_alloc(int role)
{
	struct whole *w = handle_new(HANDLE_CHANNEL, sizeof(*w));

	if (!w)
		return NULL;
	w->members.ch = &w->ch;
	w->members.role = channel_roles[role];
	if (!w->members.role->begin(&w->members)) {
		handle_free(w);
		return NULL;
	}
	pthread_mutex_init(&w->ch.lock, NULL);
	w->ch.role = role;
	return &w->ch;
}

void channel_free(share_channel *ch)
{
	pthread_mutex_destroy(&ch->lock);
	handle_free(ch);
}

int channel_given_up(void)
{
	return fail_constant(SHARE_EINVAL, "this channel handle was given up already");
}

int channel_resolve_as(share_channel **ch, int role)
{
	int r = channel_resolve(ch);

	if (r == 0 && role != (*ch)->role)
		r = fail(SHARE_EACCES, role == SHARE_PRODUCER
					   ? "this is a consumer of the channel"
					   : "this is a producer of the channel");
	return r;
}

struct members *channel_lock(share_channel *ch)
{
	pthread_mutex_lock(&ch->lock);
	return &whole_of(ch)->members;
}

struct sender *sender_lock(share_channel *ch)
{
	pthread_mutex_lock(&ch->lock);
	return whole_of(ch)->members.sender;
}

struct receiver *receiver_lock(share_channel *ch)
{
	pthread_mutex_lock(&ch->lock);
	return whole_of(ch)->members.receiver;
}

struct receiver *receiver_trylock(share_channel *ch)
{
	return pthread_mutex_trylock(&ch->lock) == 0 ? whole_of(ch)->members.receiver : NULL;
}

void channel_unlock(share_channel *ch)
{
	pthread_mutex_unlock(&ch->lock);
}

/* Not within what unlocks: each share_ack() would pay for its frame. */
__attribute__((noinline)) void channel_tell_less(const share_channel *ch, int ms)
{
	fd_readable_in(ch->less, ms);
}

void channel_tell_if_less(share_channel *ch)
{
	if (__builtin_expect(whole_of(ch)->members.too_much, false))
		channel_tell_less(ch, 0);
}

void channel_ask_again(share_channel *ch, int more)
{
	struct members *members = &whole_of(ch)->members;

	members->late += (uint32_t)more;
	if (more > 0)
		channel_tell_less(ch, MEMBERS_LOOK_SOON_MS);
	else if (members->late == 0 && !members->too_much)
		channel_tell_less(ch, -1);
}

void channel_unlock_and_end(share_channel *ch)
{
	struct members *members = &whole_of(ch)->members;
	bool last =
	    members->held == 0 && members->waiting == 0 && members->closed && !members->ended;

	members->ended |= last;
	channel_tell_if_less(ch);
	pthread_mutex_unlock(&ch->lock);
	if (last)
		hazard_end(ch, ch->end);
}

struct members *channel_unshared(share_channel *ch)
{
	return &whole_of(ch)->members;
}

void channel_hold(share_channel *ch)
{
	channel_lock(ch)->held++;
	channel_unlock(ch);
}

void channel_let_go(share_channel *ch)
{
	channel_lock(ch)->held--;
	channel_unlock_and_end(ch);
}

uint32_t channel_held(share_channel *ch)
{
	uint32_t held = channel_lock(ch)->held;

	channel_unlock(ch);
	return held;
}
