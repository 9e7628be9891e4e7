/* SPDX-License-Identifier: MIT */

/*
 * Waiting for the other side, once the ring knows that we do. What wakes us is a count in a page
 * of the other side's, or the count of the broker's that says that somebody has come or gone: the
 * kernel waits for either, if the former does not come very soon. A kernel that cannot has us look
 * at both every now and then.
 */

#include <errno.h>
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include "base/system/descriptor.h"
#include "libshare/channel/inside.h"

/* At most @timeout_ms, in place of whoever else may be there to sleep. With the time over it is 1.
 */
int members_sleep_unlocking(struct members *members, const struct ring_sleep *s, int timeout_ms)
{
	share_channel *ch = members->ch;
	struct waiter *w = members->sleeper;
	struct word_sleep words = {s->word, &ch->control->epoch, s->value, members->epoch};
	uint32_t woken;
	int r;

	if (members->given_up)
		return wait_given_up();
	/* before the lock is given up, so that whoever gives the channel up finds it */
	woken = s->word ? waiter_at_word(w, s->word) : 0;
	r = s->word ? wait_interrupted(ch->client) : 0;
	if (r != 0)
		return r;
	members->sleeps++;
	if (!s->word)
		waiter_at_poll(w);
	channel_unlock(ch);
	if (s->word) {
		r = waiter_sleep(w, &words, woken, timeout_ms);
	} else {
		r = waiter_poll(w, ch->epoll, timeout_ms);
		if (r == 0)
			r = 1;
		channel_drain_doorbell(ch);
	}
	channel_lock(ch);
	return r;
}

void channel_look_later(const share_channel *ch, int ms)
{
	fd_readable_in(ch->timer, ms);
}

void members_wake_others(struct members *members)
{
	if (members->sleeper)
		waiter_wake(members->sleeper);
	bell_ring(&members->ch->changed);
}

void channel_end_waits(share_channel *ch)
{
	struct members *members = channel_lock(ch);

	members->given_up = true;
	members_wake_others(members);
	channel_unlock(ch);
}

int members_wait_unlocking(struct members *members, int timeout_ms)
{
	share_channel *ch = members->ch;
	int r;

	if (members->given_up)
		return wait_given_up();
	r = wait_at_bell(ch->client, &ch->changed, &ch->lock, timeout_ms);
	return r == 0 && members->given_up ? wait_given_up() : r;
}

/* ------------------------------------------------------------------------------------------- */
/* Doorbells                                                                                   */

void members_ring_doorbells(struct members *members, uint64_t slots)
{
	eventfd_t one;

	if (__builtin_expect(!slots, true))
		return;
	for (; slots; slots &= slots - 1) {
		const struct channel_peer *p = &members->peers[__builtin_ctzll(slots)];

		/* there is always one to take: this does not wait */
		if (p->doorbell >= 0)
			eventfd_read(p->doorbell, &one);
	}
}

int channel_open_doorbell(share_channel *ch, int bell)
{
	struct epoll_event change = {.events = EPOLLIN | EPOLLOUT | EPOLLET};

	int r;

	if (bell < 0)
		return -EBADF;
	ch->doorbell = epoll_create1(EPOLL_CLOEXEC);
	if (ch->doorbell < 0 || epoll_ctl(ch->doorbell, EPOLL_CTL_ADD, bell, &change) < 0)
		return -errno;
	r = rpc_tell_loss(ch->client, ch->doorbell);
	if (r < 0)
		return r;
	/* to begin with it is like one that has rung */
	epoll_wait(ch->doorbell, &change, 1, 0);
	return 0;
}

bool channel_drain_doorbell(share_channel *ch)
{
	struct epoll_event change;
	bool rang = epoll_wait(ch->doorbell, &change, 1, 0) > 0;

	/* whether it is over or not: whoever drains looks now */
	fd_readable_in(ch->timer, -1);
	return rang;
}
