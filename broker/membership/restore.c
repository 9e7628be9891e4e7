/* SPDX-License-Identifier: MIT */

/* In which order the records of channels are restored, and what the broker goes on with. */

#include <errno.h>

#include "broker/broker.h"
#include "broker/channel/records.h"
#include "broker/journal/object.h"
#include "broker/membership/membership.h"
#include "broker/orphan/orphan.h"

/* Whether a channel or a member was read that nothing would ever end. */
static bool any_is_unused(const struct broker *b)
{
	const struct channel *ch;
	const struct member *m;

	TAILQ_FOREACH (ch, &b->channels->list, link) {
		if (TAILQ_EMPTY(&ch->members))
			return true;
		TAILQ_FOREACH (m, &ch->members, of_channel)
			if (m->state == MEMBER_GONE && !claims_first(m) && !producer_has_orphans(m))
				return true;
	}
	return false;
}

int channels_restore(struct broker *b)
{
	struct channels_restored all = {.channels = {0}};
	int r;

	b->channels->restored = &all;
	r = members_restore(b);
	if (r == 0)
		r = objects_restore(b->journal, &taken_kind, b);
	if (r == 0)
		r = objects_restore(b->journal, &orphan_kind, b);
	if (r == 0)
		r = objects_restore(b->journal, &acknowledged_kind, b);
	if (r == 0 && any_is_unused(b))
		r = -EBADMSG;
	for (size_t i = 0; r == 0 && i < all.claims.n; i++)
		if (!orphans_have_entries(all.claims.all[i].object))
			r = -EBADMSG;
	for (size_t i = 0; r == 0 && i < all.claims.n; i++)
		claim_follow(all.claims.all[i].object);
	b->channels->restored = NULL;
	restored_deinit(&all.channels);
	restored_deinit(&all.members);
	restored_deinit(&all.claims);
	return r;
}
