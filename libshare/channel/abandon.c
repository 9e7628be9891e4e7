/* SPDX-License-Identifier: MIT */

/*
 * A consumer that was left behind keeps what it has taken, and so the tokens of that: if it never
 * acknowledges, or behind work that never ends, they would be gone for its producer. When tokens
 * are what is missing, the broker is asked to look after what such a consumer has. The tokens are
 * free again then; the memory is not: the broker has it until the consumer is done with it or dead.
 *
 * The keeper asks, so that no sender waits for the broker. Without a broker nothing can be done
 * until the consumer is dead.
 */

#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "libshare/channel/channel.h"
#include "libshare/client/error.h"

#define ASK_AGAIN_MS 100

static struct channel_peer *find_peer_locked(share_channel *ch, uint64_t member)
{
	for (uint32_t i = 0; i < ch->shape.consumers; i++)
		if (ch->peers[i].member == member && ch->peers[i].known)
			return &ch->peers[i];
	return NULL;
}

static bool is_left_behind(const struct channel_peer *p)
{
	return p->member && p->known && p->left && !p->over;
}

static const struct channel_ghost *find_ghost_locked(const share_channel *ch, uint64_t member)
{
	for (size_t i = 0; i < ch->n_ghosts; i++)
		if (ch->ghosts[i].member == member)
			return &ch->ghosts[i];
	return NULL;
}

/* As long as it may keep us waiting, the consumer has kept this behind its work. */
static bool is_too_long(share_channel *ch, const struct channel_cooling *c, size_t i, int64_t now)
{
	const struct channel_peer *p = find_peer_locked(ch, c->members[i]);
	const struct channel_ghost *g = p ? NULL : find_ghost_locked(ch, c->members[i]);
	uint32_t patience_ms = p ? p->patience_ms : g ? g->patience_ms : ch->stall_ms;

	return ch->stall_ms != UINT32_MAX && now - c->since_ms >= patience_ms;
}

bool channel_leave_cooling_locked(share_channel *ch, int64_t now)
{
	struct channel_cooling *c;
	bool any = false;

	if (!ring_producer_lacks_tokens(ch->producer))
		return false;
	STAILQ_FOREACH (c, &ch->cooling, link) {
		for (size_t i = 0; i < c->fences.n; i++) {
			struct channel_peer *p = find_peer_locked(ch, c->members[i]);

			if (!p || p->left || !is_too_long(ch, c, i, now))
				continue;
			channel_leave_locked(ch, p);
			any = true;
		}
	}
	return any;
}

/* The next one to be left to the broker; 0: there is none. One that has closed the channel may have
 * fences that are never reached, too. */
static uint64_t next_locked(share_channel *ch, int64_t now)
{
	struct channel_cooling *c;

	for (uint32_t i = 0; i < ch->shape.consumers; i++)
		if (is_left_behind(&ch->peers[i]))
			return ch->peers[i].member;
	STAILQ_FOREACH (c, &ch->cooling, link)
		for (size_t i = 0; i < c->fences.n; i++)
			if (!find_peer_locked(ch, c->members[i]) && is_too_long(ch, c, i, now))
				return c->members[i];
	return 0;
}

void channel_want_tokens_locked(share_channel *ch)
{
	int64_t now;

	if (ch->wants_tokens || ch->alone || !ring_producer_lacks_tokens(ch->producer))
		return;
	now = clock_coarse_ms();
	if (now < ch->abandon_at || !next_locked(ch, now))
		return;
	ch->wants_tokens = true;
	ch->keeper_rests = false;
	eventfd_write(ch->wakeup, 1);
}

/* The broker has these fences, where they still gate anything. */
static void forget_fences_locked(share_channel *ch, uint64_t member)
{
	struct channel_cooling *c;

	STAILQ_FOREACH (c, &ch->cooling, link) {
		for (size_t i = 0; i < c->fences.n;) {
			if (c->members[i] != member) {
				i++;
				continue;
			}
			fence_drop(ch->client, &c->fences.all[i]);
			c->fences.n--;
			c->fences.all[i] = c->fences.all[c->fences.n];
			c->members[i] = c->members[c->fences.n];
		}
	}
}

/* 0 or an error. Gives the lock up. */
static int ask_locked(share_channel *ch, uint64_t member)
{
	const struct channel_peer *p = find_peer_locked(ch, member);
	struct wire_message m = {.type = WIRE_CHANNEL_ABANDON};
	unsigned char tokens[CHANNEL_IN_FLIGHT_MAX / 8] = {0};
	int r;

	ring_producer_find_held(ch->producer, p ? (uint32_t)(p - ch->peers) : CHANNEL_MEMBERS_MAX,
				member, tokens);
	m.channel_abandon.member = ch->member;
	m.channel_abandon.consumer = member;
	m.channel_abandon.tokens.data = tokens;
	m.channel_abandon.tokens.size = (ch->shape.in_flight + 7) / 8;
	pthread_mutex_unlock(&ch->lock);
	r = rpc(ch->client, &m, NULL);
	pthread_mutex_lock(&ch->lock);
	return r;
}

void channel_abandon_locked(share_channel *ch)
{
	uint64_t member;
	int r = 0;

	while (r == 0 && !ch->alone && (member = next_locked(ch, clock_coarse_ms()))) {
		const struct channel_ghost *ghost;
		struct channel_peer *p;

		r = ask_locked(ch, member);
		ch->alone |= r == SHARE_EDISCONNECTED;
		if (r != 0)
			break;
		forget_fences_locked(ch, member);
		p = find_peer_locked(ch, member);
		ghost = find_ghost_locked(ch, member);
		if (!p && ghost)
			channel_charge_ghost_locked(ch, ghost->uid);
		if (!p || !is_left_behind(p))
			continue;
		ring_producer_abandon(ch->producer, (uint32_t)(p - ch->peers));
		channel_dismiss_locked(ch, p);
	}
	ch->wants_tokens = false;
	if (r != 0)
		ch->abandon_at = clock_coarse_ms() + ASK_AGAIN_MS;
}
