/* SPDX-License-Identifier: MIT */

/*
 * A producer's thread, for what has to be done though the program sends nothing: admit those who
 * come, give up those who die, hand their messages to others, take back what was acknowledged. It
 * has nothing to do with a send that finds room. And it looks whether calls that were refused may
 * be made again, and tells an event loop (ready.c).
 *
 * It sleeps in the kernel, on the doorbell and the pidfds of consumers. That a message has been
 * acknowledged wakes nobody who is not waiting for it, so as long as messages come and go it looks
 * every now and then. When they do no more for a second or two, it waits for it as well, and does
 * not wake up again before anybody does anything. Who waits for it, as share_reclaim() does, has
 * the threads of all channels look at once, and from then on with each acknowledgement.
 */

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/mutation.h"
#include "base/system/thread.h"
#include "libshare/program/error.h"
#include "libshare/sender/inside.h"

#define LOOK_MS      100
#define LOOK_LAST_MS 1000 /* where nothing changes for longer */

static uint32_t in_flight(struct sender *sender, uint64_t *sent)
{
	struct ring_producer_stats stats;

	ring_producer_get_stats(sender->ring, &stats);
	*sent = stats.sent;
	return stats.in_flight;
}

/* Consumers ring once a sleep, so it is announced anew each time; before the look, so that what is
 * acknowledged after that rings. And before the broker is asked anything: that may take time. */
static void look_for_awaited_unlocking(struct sender *sender)
{
	share_client *c = sender->ch->client;
	uint64_t looks = atomic_load(&c->looks);
	struct ring_sleep sleep;

	sender->awaited = buffers_are_awaited(c);
	if (!sender->awaited) {
		sender_awake(sender);
		return;
	}
	ring_producer_sleep(sender->ring, true, &sleep);
	sender_reclaim_unlocking(sender);
	pthread_mutex_lock(&c->lock);
	if (sender->ch->in_client.looked != looks)
		bell_ring(&c->arrived);
	sender->ch->in_client.looked = looks;
	pthread_mutex_unlock(&c->lock);
}

static void work_unlocking(struct sender *sender)
{
	if (sender->awaited || buffers_are_awaited(sender->ch->client))
		look_for_awaited_unlocking(sender);
	members_look_for_deaths(sender->members);
	if (members_are_out_of_date(sender->members))
		members_sync_until_unlocking(sender->members,
					     -1); /* tried again with the next send, or look */
	/* of who has closed a direct channel before anybody lacks them, as answers do not wait */
	if (sender->ch->shape.mode == CHANNEL_DIRECT)
		sender_want_tickets(sender);
	if (sender->background.wants_tickets)
		sender_abandon_unlocking(sender);
	sender_tell_of_stall_unlocking(sender);
	sender_reclaim_unlocking(sender);
	/* messages of the dead, which others get now; and who was just admitted */
	sender_watch_backlog_unlocking(sender);
	members_wake_others(sender->members);
}

/* There is something that nobody rings for. */
static bool has_to_look(struct sender *sender)
{
	return members_are_out_of_date(sender->members) || !STAILQ_EMPTY(&sender->cooling) ||
	       sender->background.wants_tickets || buffers_are_awaited(sender->ch->client) ||
	       sender_clock_runs(sender);
}

/* Nothing has changed for long. From now on whoever sends says so, and whoever takes or
 * acknowledges anything rings. That is announced before the last look. True when there was nothing.
 */
static bool rest_unlocking(struct sender *sender, uint32_t before, uint64_t last_sent)
{
	struct ring_sleep sleep = {.unsure = false};
	uint64_t sent;

	if (has_to_look(sender))
		return false;
	sender->background.idles = before > 0;
	if (sender->background.idles && !MUTATION(rest_unannounced))
		ring_producer_sleep(sender->ring, true, &sleep);
	if (sender->background.idles)
		sender_reclaim_unlocking(sender);
	return in_flight(sender, &sent) == before && sent == last_sent && !sleep.unsure;
}

static bool may_send(struct sender *sender)
{
	return ring_producer_look_for_room(sender->ring, 0, 0) != -EAGAIN ||
	       ring_producer_has_made_way(sender->ring) ||
	       members_look_for_broker(sender->members) != 0;
}

/* READY_DRAIN, READY_FLUSH: whichever may have got on. */
static uint32_t got_on(struct sender *sender)
{
	struct ring_producer_stats s;

	if (members_look_for_broker(sender->members) != 0)
		return READY_DRAIN | READY_FLUSH;
	ring_producer_get_stats(sender->ring, &s);
	return (s.done != sender->ready.done ? READY_DRAIN : 0) |
	       (s.waiting != sender->ready.waiting ? READY_FLUSH : 0);
}

/* Tells what there is to tell by now. @rang: consumers have done something. */
static void look_for_ready_unlocking(struct sender *sender, bool rang)
{
	struct ring_sleep sleep;
	DETAIL_STAYS;

	if (!sender_waits_to_tell(sender))
		return;
	ring_producer_sleep(sender->ring, true, &sleep);
	sender_reclaim_unlocking(sender);
	if (sender->ready.armed & (READY_DRAIN | READY_FLUSH))
		sender_tell(sender, got_on(sender));
	/* one that drops others finds room by dropping, which is not for us to do */
	if (sender->ready.armed & READY_SEND &&
	    (sender->ch->shape.when_full == SHARE_FULL_DROP
		 ? rang
		 : may_send(sender) || sender_leave_stalled_unlocking(sender)))
		sender_tell(sender, READY_SEND);
	sender_awake(sender);
}

static void say_what_came_back_unlocking(struct sender *sender)
{
	share_channel *ch = sender->ch;

	sender->ready.came_back = false;
	channel_unlock(ch);
	ch->came_back(atomic_load_explicit(&ch->owner, memory_order_relaxed));
	channel_lock(ch);
}

static void *keep(void *data)
{
	share_channel *ch = data;
	struct sender *sender = sender_lock(ch);
	struct pollfd p = {.fd = ch->epoll, .events = POLLIN};
	int look = LOOK_MS;
	uint64_t last_sent = 0;
	bool changed = false;
	eventfd_t ignored;

	while (!sender->background.ends) {
		uint32_t before, after;
		uint64_t sent;
		bool rests, rang;

		before = in_flight(sender, &sent);
		changed |= sent != last_sent || buffers_are_awaited(ch->client) ||
			   sender_clock_runs(sender);
		look = changed ? LOOK_MS : 2 * look;
		if (look > LOOK_LAST_MS)
			look = LOOK_LAST_MS;
		last_sent = sent;
		rests = look == LOOK_LAST_MS && rest_unlocking(sender, before, sent);
		sender->background.rests = rests;
		p.revents = 0;
		channel_unlock(ch);
		buffers_look_again(ch->client);
		poll(&p, 1, rests ? -1 : look);
		eventfd_read(ch->wakeup, &ignored);
		rang = channel_drain_doorbell(ch);
		sender = sender_lock(ch);
		sender->background.rests = sender->background.idles = false;
		sender_awake(sender);
		if (sender->background.ends)
			break;
		work_unlocking(sender);
		after = in_flight(sender, &sent);
		changed = after < before;
		look_for_ready_unlocking(sender, rang || changed);
		if (sender->ready.came_back)
			say_what_came_back_unlocking(sender);
	}
	channel_unlock(ch);
	return NULL;
}

void background_rouse(struct sender *sender)
{
	if (!sender->background.rests)
		return;
	sender->background.rests = false;
	eventfd_write(sender->ch->wakeup, 1);
}

/* Nothing that came before is in flight in a channel that has just begun. */
static void set_has_background(share_channel *ch, bool has)
{
	share_client *c = ch->client;

	pthread_mutex_lock(&c->lock);
	ch->in_client.has_background = has;
	ch->in_client.looked = atomic_load(&c->looks);
	bell_ring(&c->arrived);
	pthread_mutex_unlock(&c->lock);
}

int background_start(share_channel *ch)
{
	struct epoll_event in = {.events = EPOLLIN, .data.u32 = UINT32_MAX};
	int r;

	if (epoll_ctl(ch->epoll, EPOLL_CTL_ADD, ch->wakeup, &in) < 0)
		return fail_system(-errno, "starting the thread of a channel");
	r = thread_start(&channel_unshared(ch)->sender->background.thread, keep, ch);
	if (r < 0)
		return fail_system(r, "starting the thread of a channel");
	set_has_background(ch, true);
	return 0;
}

void background_stop(share_channel *ch)
{
	struct sender *sender;

	if (!ch->in_client.has_background)
		return;
	sender = sender_lock(ch);
	sender->background.ends = true; /* `closed` is for who gives the last message up */
	bell_ring(&ch->changed);
	channel_unlock(ch);
	eventfd_write(ch->wakeup, 1);
	pthread_join(sender->background.thread, NULL);
	set_has_background(ch, false);
}

uint64_t senders_look_client_locked(share_client *c)
{
	uint64_t look = atomic_fetch_add(&c->looks, 1) + 1;
	const share_channel *ch;

	LIST_FOREACH (ch, &c->channels, in_client.link)
		if (ch->in_client.has_background)
			eventfd_write(ch->wakeup, 1);
	return look;
}

bool senders_have_looked_client_locked(const share_client *c, uint64_t look)
{
	const share_channel *ch;

	LIST_FOREACH (ch, &c->channels, in_client.link)
		if (ch->in_client.has_background && ch->in_client.looked < look)
			return false;
	return true;
}
