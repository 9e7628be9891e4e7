/* SPDX-License-Identifier: MIT */

#include "broker/keeper/blame.h"

#include "broker/log/log.h"
#include "wire/wire.h"

static struct blames *blames;

void blame_at(struct blames *b)
{
	blames = b;
}

void blame_begin(uid_t uid, unsigned type)
{
	if (!blames)
		return;
	atomic_store_explicit(&blames->uid, (unsigned)uid, memory_order_relaxed);
	atomic_store_explicit(&blames->type, type, memory_order_relaxed);
}

void blame_end(void)
{
	if (blames)
		atomic_store_explicit(&blames->type, 0, memory_order_relaxed);
}

static bool is_over(const struct blame *one, uint64_t now_ms)
{
	return one->crashes == 0 || now_ms >= one->last_ms + BLAME_MS;
}

bool blame_is_known(void)
{
	return blames && blames->all[0].crashes > 0;
}

bool blame_refuses(uid_t uid, unsigned type, uint64_t now_ms)
{
	for (int i = 0; blames && i < BLAMES && blames->all[i].crashes > 0; i++) {
		const struct blame *one = &blames->all[i];

		if (one->uid == uid && one->type == type && !is_over(one, now_ms))
			return one->crashes >= BLAME_CRASHES;
	}
	return false;
}

/* Finds the entry of this user and type; else one that is free or over, or the oldest one. Entries
 * are taken from the first one on, and never given back, so the first free one ends the list. */
static struct blame *find_blame(struct blames *b, uint32_t uid, uint32_t type, uint64_t now_ms)
{
	struct blame *found = &b->all[0];

	for (int i = 0; i < BLAMES; i++) {
		struct blame *one = &b->all[i];

		if (one->crashes > 0 && one->uid == uid && one->type == type)
			return one;
		if (is_over(found, now_ms))
			continue;
		if (is_over(one, now_ms) || one->last_ms < found->last_ms)
			found = one;
	}
	return found;
}

void blame_death(struct blames *b, bool crashed, uint64_t now_ms)
{
	uint32_t uid = atomic_load(&b->uid), type = atomic_load(&b->type);
	const struct wire_description *d;
	struct blame *one;

	atomic_store(&b->type, 0);
	if (!crashed || type == 0)
		return;
	one = find_blame(b, uid, type, now_ms);
	if (is_over(one, now_ms) || one->uid != uid || one->type != type)
		*one = (struct blame){.uid = uid, .type = type};
	one->last_ms = now_ms;
	one->crashes++;
	d = wire_describe(type);
	log_error("it was handling a request %s of user %u%s", d ? d->name : "of no known type",
		  uid,
		  one->crashes >= BLAME_CRASHES ? ": no such request of this user is tried for 5 "
						  "minutes"
						: "");
}
