/* SPDX-License-Identifier: MIT */

/*
 * Waiting for the other side, once the ring knows that we do. What wakes us is a count in a page
 * of the other side's, or the count of the broker's that says that somebody has come or gone: the
 * kernel waits for either, if the former does not come very soon. A kernel that cannot has us look
 * at both every now and then.
 */

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "libshare/channel/inside.h"

#define SLICE_WITHOUT_WAITV_MS 20
#define LOOK_AGAIN_MS          1  /* a GPU wakes nobody up */
#define SHORT_MS               50 /* beyond the next tick: an earlier one is set in the hardware */

#ifdef SYS_futex_waitv
/* False when the kernel has no such thing. */
static bool wait_for_either(const struct ring_sleep *s, const _Atomic uint32_t *epoch_word,
			    uint32_t epoch, int timeout_ms, bool *timed_out)
{
	static atomic_bool missing;
	struct futex_waitv w[2] = {
	    {.val = s->value, .uaddr = (uintptr_t)s->word, .flags = FUTEX_32},
	    {.val = epoch, .uaddr = (uintptr_t)epoch_word, .flags = FUTEX_32},
	};
	struct timespec until = clock_after_ms(timeout_ms);

	if (atomic_load_explicit(&missing, memory_order_relaxed))
		return false;
	if (syscall(SYS_futex_waitv, w, 2, 0, &until, CLOCK_MONOTONIC) >= 0)
		return true;
	*timed_out = errno == ETIMEDOUT;
	if (errno == ENOSYS || errno == EPERM)
		atomic_store(&missing, true);
	return !atomic_load(&missing);
}
#else
static bool wait_for_either(const struct ring_sleep *s, const _Atomic uint32_t *epoch_word,
			    uint32_t epoch, int timeout_ms, bool *timed_out)
{
	(void)s, (void)epoch_word, (void)epoch, (void)timeout_ms, (void)timed_out;
	return false;
}
#endif

/* True when it was not woken, and its word is what it was. */
static bool wait_for_one(const struct ring_sleep *s, int timeout_ms)
{
	struct timespec t = {0, (long)timeout_ms * 1000000};

	return syscall(SYS_futex, s->word, FUTEX_WAIT, s->value, &t, NULL, 0) < 0 &&
	       errno == ETIMEDOUT;
}

/* To wait for two words costs more, and is not worth it where the answer is under way. */
bool channel_sleep_on(share_channel *ch, const struct ring_sleep *s, uint32_t epoch, int timeout_ms)
{
	bool timed_out = false;

	if (!wait_for_one(s, timeout_ms < SHORT_MS ? timeout_ms : SHORT_MS))
		return false;
	timeout_ms -= SHORT_MS;
	if (timeout_ms <= 0)
		return true;
	if (wait_for_either(s, &ch->control->epoch, epoch, timeout_ms, &timed_out))
		return timed_out;
	return wait_for_one(s, timeout_ms < SLICE_WITHOUT_WAITV_MS ? timeout_ms
								   : SLICE_WITHOUT_WAITV_MS);
}

void receiver_look_again(struct receiver *receiver, int ms)
{
	struct itimerspec soon = {.it_value.tv_nsec = (long)ms * 1000000};

	if (receiver->ch->timer >= 0)
		timerfd_settime(receiver->ch->timer, 0, &soon, NULL);
}

void channel_look_again_soon(share_channel *ch)
{
	struct receiver *receiver;
	receiver = receiver_lock(ch);
	receiver_look_again(receiver, LOOK_AGAIN_MS);
	channel_unlock(ch);
}

void sender_wake_others(struct sender *sender)
{
	/* the count does not change by this: who is about to sleep does so for a slice */
	if (sender->sleeps_on)
		syscall(SYS_futex, sender->sleeps_on, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	pthread_cond_broadcast(&sender->ch->changed);
}

void members_wait_unlocking(struct members *members, int timeout_ms)
{
	struct timespec until;

	if (timeout_ms < 0) {
		pthread_cond_wait(&members->ch->changed, &members->ch->lock);
		return;
	}
	until = clock_after_ms(timeout_ms);
	pthread_cond_timedwait(&members->ch->changed, &members->ch->lock, &until);
}

/* ------------------------------------------------------------------------------------------- */
/* Doorbells                                                                                   */

void members_ring_doorbells(struct members *members, uint64_t slots)
{
	eventfd_t one;

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
	const struct itimerspec never = {0};
	struct epoll_event change;
	bool rang = epoll_wait(ch->doorbell, &change, 1, 0) > 0;

	/* whether it is over or not: whoever drains looks now */
	if (ch->timer >= 0)
		timerfd_settime(ch->timer, 0, &never, NULL);
	return rang;
}
