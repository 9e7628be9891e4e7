/* SPDX-License-Identifier: MIT */

/*
 * Who else takes part in a channel, as the broker says when it is asked (sync.c). That a
 * process is dead is seen by its pidfd as well, so that a death is noticed when there is no broker
 * any more.
 */

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

#include "libshare/channel/inside.h"
#include "libshare/program/error.h"
#include "pages/page.h"

size_t channel_page_size(const share_channel *ch, int role)
{
	return role == SHARE_PRODUCER ? channel_ring_size(&ch->shape, ch->layout)
				      : channel_ledger_size(&ch->shape);
}

static size_t page_size_of_peers(const share_channel *ch)
{
	return channel_page_size(ch, ch->role == SHARE_PRODUCER ? SHARE_CONSUMER : SHARE_PRODUCER);
}

static uint32_t most_peers(const share_channel *ch)
{
	return ch->role == SHARE_PRODUCER ? ch->shape.consumers : ch->shape.rows;
}

/* ------------------------------------------------------------------------------------------- */
/* The end of a member                                                                         */

void members_close_peer(struct members *members, struct channel_peer *p)
{
	if (p->pidfd >= 0)
		epoll_ctl(members->ch->epoll, EPOLL_CTL_DEL, p->pidfd, NULL);
	p->pidfd = fd_close(p->pidfd);
	p->doorbell = fd_close(p->doorbell);
	page_unmap(p->map, page_size_of_peers(members->ch));
	p->map = NULL;
	fence_drop(&p->hold);
	p->over = true;
}

bool members_is_dead(const struct channel_peer *p)
{
	struct pollfd poll_fd = {.fd = p->pidfd, .events = POLLIN};

	return p->pidfd >= 0 && poll(&poll_fd, 1, 0) > 0;
}

static void peer_is_gone(struct members *members, struct channel_peer *p)
{
	if (!p->over)
		members->role->let_go(members, p);
	*p = (struct channel_peer){.pidfd = -1, .doorbell = -1};
	members->some_gone = true;
}

void members_look_for_deaths(struct members *members)
{
	for (uint32_t i = 0; i < most_peers(members->ch); i++) {
		struct channel_peer *p = &members->peers[i];

		if (p->member && !p->over && members_is_dead(p))
			members->role->note_death(members, p);
	}
}

/* ------------------------------------------------------------------------------------------- */
/* What the broker says                                                                        */

static int add_peer(struct members *members, struct channel_peer *p, const struct wire_member *m,
		    struct fd_list *fds, size_t *at)
{
	struct epoll_event in = {.events = EPOLLIN, .data.u32 = members_index(members->ch, m)};
	_cleanup_fd_ int page = fd_list_take(fds, (*at)++);
	void *map;
	int r;

	*p = (struct channel_peer){
	    .member = m->member, .page = m->page, .uid = m->uid, .row = m->row, .claim = m->claim};
	p->pidfd = fd_list_take(fds, (*at)++);
	p->doorbell = fd_list_take(fds, (*at)++);
	r = page_map(page, page_size_of_peers(members->ch), false, &map);
	if (r == 0)
		p->map = map;
	if (r == 0 && epoll_ctl(members->ch->epoll, EPOLL_CTL_ADD, p->pidfd, &in) < 0)
		r = -errno;
	if (r < 0) {
		members_close_peer(members, p);
		*p = (struct channel_peer){.pidfd = -1, .doorbell = -1};
		return fail_system(r, "getting to know a member of a channel");
	}
	return 0;
}

/* Where this member is to be found; NULL: nowhere. */
static struct channel_peer *peer_for(struct members *members, const struct wire_member *m)
{
	const share_channel *ch = members->ch;
	uint32_t index = members_index(ch, m);

	if (index < most_peers(ch) && m->row < ch->shape.rows)
		return &members->peers[index];
	fail(SHARE_EPROTO, "the broker sent a member out of range");
	return NULL;
}

int members_apply(struct members *members, struct reply *reply)
{
	const struct wire_channel_members *m = &reply->m.channel_members;
	size_t n = m->members.size / sizeof(struct wire_member), at = 0;
	int r = 0;

	members->answers++;
	for (size_t i = 0; r == 0 && i < n; i++) {
		struct wire_member member;
		struct channel_peer *p;

		memcpy(&member, (const char *)m->members.data + i * sizeof(member), sizeof(member));
		p = peer_for(members, &member);
		if (!p)
			return SHARE_EPROTO;
		/* or it is the same one, of which more is to be fetched */
		if (p->member &&
		    (p->member != member.member || (p->over && p->claim != member.claim)))
			peer_is_gone(members, p);
		if (!p->member && member.flags & WIRE_MEMBER_NEW)
			r = add_peer(members, p, &member, &reply->fds, &at);
		else if (member.flags & WIRE_MEMBER_NEW)
			at += 3;
		if (p->member != member.member)
			continue;
		p->seen = members->answers;
		p->flags = member.flags;
		if (p->state != WIRE_MEMBER_DEAD)
			p->state = member.state;
		members->some_gone |= !members_is_there(p);
	}
	return r;
}

/* The answer that comes next names it, unless it has gone by then. What was told first may be of
 * who had this place before; its identifier says nothing of that, as it is given when a channel is
 * opened, and a place when the member is ready. */
int members_apply_told(struct members *members, struct channel_told *t)
{
	const struct wire_member *m = &t->member;
	struct channel_peer *p;
	size_t at = 0;
	int r;

	p = peer_for(members, m);
	if (!p)
		return SHARE_EPROTO;
	if (p->member && (int32_t)(p->claim - m->claim) >= 0)
		return 0;
	if (p->member)
		peer_is_gone(members, p);
	r = add_peer(members, p, m, &t->fds, &at);
	if (r != 0)
		return r;
	p->seen = members->first - 1;
	p->flags = m->flags;
	p->state = m->state;
	return 0;
}

/* The broker names a producer until we have said that we have drained it, or owe it nothing. */
void members_forget_missing(struct members *members)
{
	for (uint32_t i = 0; i < most_peers(members->ch); i++)
		if (members->peers[i].member &&
		    (int32_t)(members->peers[i].seen - members->first) < 0)
			peer_is_gone(members, &members->peers[i]);
}

/* ------------------------------------------------------------------------------------------- */
/* Taking note of it                                                                           */

/* Its timelines, while there is time for a request. Who said goodbye has reached all that is waited
 * for; of who is dead (@lost) nobody knows any more what it has reached. */
static int hold_timelines(share_channel *ch, uint64_t page, struct held_fence *out, bool *lost)
{
	int r = fence_hold(ch->client, WIRE_TIMELINE(page, 1), 0, out);

	*lost = r == SHARE_EOWNERDEAD || r == SHARE_ESTALE;
	return *lost ? 0 : r;
}

/* The first from @at on that is not known yet, though it should be. */
static struct channel_peer *next_unknown(struct members *members, uint32_t at)
{
	for (uint32_t i = at; i < most_peers(members->ch); i++) {
		struct channel_peer *p = &members->peers[i];

		if (p->member && !p->over && !p->known)
			return p;
	}
	return NULL;
}

int members_meet_all_unlocking(struct members *members)
{
	struct channel_peer *p;
	uint32_t at = 0;
	int r = 0;

	while (r == 0 && (p = next_unknown(members, at))) {
		uint64_t member = p->member, page = p->page;
		struct held_fence hold = {0};
		bool lost;

		at = members_index_of(members, p) + 1;
		channel_unlock(members->ch);
		r = hold_timelines(members->ch, page, &hold, &lost);
		channel_lock(members->ch);
		if (r != 0 || p->member != member || p->over) {
			fence_drop(&hold);
			continue;
		}
		fence_drop(&p->hold); /* of one that was asked for in vain */
		p->hold = hold;
		p->lost = lost;
		r = members->role->meet(members, p);
	}
	for (uint32_t i = 0; i < most_peers(members->ch); i++)
		if (members->peers[i].member && !members->peers[i].over && members->peers[i].known)
			members->role->meet(members, &members->peers[i]);
	return r;
}

/* ------------------------------------------------------------------------------------------- */

uint32_t members_count(const struct members *members)
{
	uint32_t n = 0;

	for (size_t i = 0; i < CHANNEL_MEMBERS_MAX; i++) {
		const struct channel_peer *p = &members->peers[i];

		n += p->member && p->known && !p->left && !p->over && !p->ended &&
		     members_is_there(p);
	}
	return n;
}

void members_deinit(struct members *members)
{
	for (uint32_t i = 0; i < CHANNEL_MEMBERS_MAX; i++)
		if (members->peers[i].member && !members->peers[i].over)
			members_close_peer(members, &members->peers[i]);
}
