/* SPDX-License-Identifier: MIT */

/*
 * What a consumer makes of producers: members.c and sync.c say who has come or gone, the ring is
 * told here. What those have sent that are gone can still be received.
 */

#include <sys/epoll.h>

#include "base/clock.h"
#include "libshare/client/rpc.h"
#include "libshare/program/error.h"
#include "libshare/receiver/inside.h"

/* One that was gone before we have seen it counts if it has admitted us. */
static bool has_admitted_us(const share_channel *ch, const struct channel_peer *p)
{
	const struct channel_admission *a = channel_admission_at(p->map, &ch->shape, ch->slot);

	return atomic_load_explicit(&a->consumer, memory_order_acquire) == ch->member;
}

int receiver_meet(struct members *members, struct channel_peer *p)
{
	struct receiver *receiver = members->receiver;

	if (!p->known) {
		ring_consumer_attach(receiver->ring, members_index_of(members, p), p->member,
				     p->map, !(p->flags & WIRE_MEMBER_FETCHED));
		p->known = true;
	}
	if (!p->end_told && (members_is_there(p) || has_admitted_us(receiver->ch, p)))
		receiver->had_producers = true;
	return 0;
}

void receiver_note_death(struct members *members, struct channel_peer *p)
{
	epoll_ctl(members->ch->epoll, EPOLL_CTL_DEL, p->pidfd, NULL);
	p->pidfd = fd_close(p->pidfd);
	p->state = WIRE_MEMBER_DEAD;
	members->some_gone = true;
}

/* A producer of which nothing more is to come, or to be acknowledged. */
void receiver_let_go(struct members *members, struct channel_peer *p)
{
	struct receiver *receiver = members->receiver;

	if (!p->ended && p->state != WIRE_MEMBER_CLOSED && members_is_dead(p))
		p->state = WIRE_MEMBER_DEAD;
	receiver->last_end = members_end_of(p);
	if (p->known)
		ring_consumer_detach(receiver->ring, members_index_of(members, p));
	p->known = false;
	members_close_peer(members, p);
}

bool receiver_forget_drained_unlocking(struct receiver *receiver, uint32_t keep)
{
	struct wire_message m = {.type = WIRE_CHANNEL_DRAINED};
	uint32_t kept = 0;

	for (uint32_t i = 0; i < receiver->ch->shape.rows; i++) {
		struct channel_peer *p = &receiver->members->peers[i];

		if (!p->member || p->over || members_is_there(p))
			continue;
		if (kept < keep || !p->known || !ring_consumer_is_empty(receiver->ring, i) ||
		    ring_consumer_held(receiver->ring, i) > 0) {
			kept++;
			continue;
		}
		m.channel_drained.member = receiver->ch->member;
		m.channel_drained.producer = p->member;
		receiver_let_go(receiver->members, p);
		if (receiver->members->alone)
			continue;
		channel_unlock(receiver->ch);
		rpc_send(receiver->ch->client, &m);
		channel_lock(receiver->ch);
	}
	return kept > 0;
}

/* What is left of those that are gone, once there is nothing else to receive. */
void receiver_ask(struct members *members, struct wire_channel_sync *question)
{
	const struct receiver *receiver = members->receiver;

	if (!receiver->orphans.wanted)
		return;
	question->flags = WIRE_CHANNEL_SYNC_FETCH;
	question->had = receiver->orphans.had;
}

bool receiver_may_get_more(struct members *members)
{
	for (uint32_t i = 0; i < members->ch->shape.rows; i++) {
		const struct channel_peer *p = &members->peers[i];

		if (p->member && !p->over && !p->ended && members_is_there(p))
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------------------------------- */
/* Of one message                                                                               */

/* The producer of a message; NULL when it is gone. */
static const struct channel_peer *producer_of(const struct receiver *receiver,
					      const share_message *m)
{
	uint32_t row = RECEIPT_ROW(m->receipt);
	const struct channel_peer *p = &receiver->members->peers[row & (CHANNEL_MEMBERS_MAX - 1)];

	return p->member == m->producer ? p : NULL;
}

uint64_t channel_sender_page(const share_message *m)
{
	share_channel *ch = channel_of(m->channel);
	const struct channel_peer *p = producer_of(receiver_lock(ch), m);
	uint64_t page = p ? p->page : 0;

	channel_unlock(ch);
	return page;
}

int channel_sender_call(const share_message *m, uint32_t index, uint32_t *out)
{
	struct receiver *receiver;
	share_channel *ch = channel_of(m->channel);
	const struct channel_peer *p;
	uint32_t call = 0;
	bool gone, held;

	if (index >= ch->shape.in_flight)
		return fail(SHARE_EINVAL, "a producer has no such call");
	receiver = receiver_lock(ch);
	if (members_are_out_of_date(receiver->members))
		members_sync_until_unlocking(receiver->members, deadline_from(0));
	/* else the broker says so in the control page: no system call here */
	if (receiver->members->alone || members_are_out_of_date(receiver->members))
		members_look_for_deaths(receiver->members);
	p = producer_of(receiver, m);
	gone = !p || p->over || (p->state != WIRE_MEMBER_HERE && p->state != WIRE_MEMBER_LEFT);
	held = p && ring_consumer_holds(receiver->ring, RECEIPT_ROW(m->receipt),
					RECEIPT_TICKET(m->receipt)) == RECEIPT_VERSION(m->receipt);
	if (!gone)
		call = atomic_load_explicit(&channel_ticket_at(p->map, &ch->shape, index)->call,
					    memory_order_acquire);
	channel_unlock(ch);
	if (p && !held)
		return fail(SHARE_EINVAL, "this message was given up already");
	if (gone)
		return fail(SHARE_EOWNERDEAD, "the caller has died or left");
	*out = call;
	return 0;
}
