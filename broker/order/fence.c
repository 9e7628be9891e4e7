/* SPDX-License-Identifier: MIT */

/*
 * Timelines of clients, and how far they have got. A value that a CPU has written is believed as it
 * is in the page. A value that a GPU has written is not: when a process is killed, its GPU may
 * still write a value although the work before that value never finished. So the broker believes
 * such a value only if it saw the value while the process was known to run. It looks at these
 * timelines whenever somebody asks for a fence, and every 200 ms (order_watch_gpus()) as long as a
 * GPU may still write to one of them. After a death, only what was seen before counts. A client
 * that has said goodbye is the exception: it has waited for its streams first, so all its values
 * are true.
 *
 * This file knows pages and values. It does not know which client or buffer they are for. Sets of
 * fences are in fence_set.c.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutation.h"
#include "base/system/descriptor.h"
#include "base/system/process.h"
#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/journal/journal.h"
#include "broker/keeper/kept.h"
#include "broker/order/fence.h"
#include "broker/order/records.h"

static int get_record(struct timelines *t, struct journal *journal)
{
	t->in_place =
	    journal ? journal_place(journal, RECORD_TIMELINES, &t->record, sizeof(*t->in_place))
		    : NULL;
	if (t->in_place)
		t->journal = journal;
	else
		t->in_place = calloc(1, sizeof(*t->in_place));
	if (!t->in_place)
		return -ENOMEM;
	t->last = t->in_place->last;
	return 0;
}

static void free_record(struct timelines *t)
{
	if (t->journal)
		journal_drop(t->journal, &t->record);
	else
		free(t->in_place);
}

int timelines_new(struct journal *journal, uint64_t id, uint32_t client, int pidfd,
		  struct account *account, struct timelines **out)
{
	struct timelines *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	t->stat = -1;
	t->fd = timeline_create();
	t->pidfd = pidfd;
	r = t->fd < 0 ? t->fd : timeline_map(t->fd, true, &t->page);
	if (r == 0)
		r = get_record(t, journal);
	if (r < 0) {
		timeline_unmap(t->page);
		fd_close(t->fd);
		free(t);
		return r;
	}
	t->id = t->in_place->id = id;
	t->client = client;
	t->refs = 1;
	t->account = account ? account_ref(account) : NULL;
	if (account)
		account_must_add(account, PRICE_TIMELINES);
	t->in_place->uid = account ? (uint32_t)account_uid(account) : UINT32_MAX;
	*out = t;
	return 0;
}

int timelines_again(struct journal *journal, uint32_t record, struct accounts *accounts,
		    struct timelines **out)
{
	struct timelines *t = calloc(1, sizeof(*t));
	void *page;

	if (!t)
		return -ENOMEM;
	t->journal = journal;
	t->record = record;
	t->in_place = journal_in_place(journal, record);
	t->last = t->in_place->last;
	if (MUTATION(believed_is_lost))
		memset(t->in_place->last, 0, sizeof(t->in_place->last));
	t->id = t->in_place->id;
	t->dead = t->in_place->dead;
	t->refs = 1;
	t->pidfd = t->stat = -1;
	t->fd = kept_take_mapped(t->in_place->fd, sizeof(*t->page), &page);
	t->page = page;
	if (t->in_place->fd && t->fd < 0) {
		free(t);
		return -EBADMSG;
	}
	/* the earlier broker had been about to close the page of an owner that is dead */
	if (t->dead) {
		timeline_unmap(t->page);
		t->page = NULL;
		t->fd = kept_close(t->fd);
	}
	if (t->in_place->uid != UINT32_MAX) {
		t->account = account_get(accounts, t->in_place->uid);
		if (!t->account) {
			free(t);
			return -ENOMEM;
		}
		account_must_add(t->account, PRICE_TIMELINES);
	}
	*out = t;
	return 0;
}

struct timelines *timelines_ref(struct timelines *t)
{
	if (t)
		t->refs++;
	return t;
}

void timelines_unref(struct timelines *t)
{
	if (!t || --t->refs > 0)
		return;
	kept_close(t->fd);
	fd_close(t->stat);
	timeline_unmap(t->page);
	if (t->account)
		account_give_back(t->account, PRICE_TIMELINES);
	account_unref(t->account);
	free_record(t);
	free(t);
}

/* Takes note of what GPUs have written, before anybody asks about the process. True when any of
 * it is new. */
static bool take_values(const struct timelines *t, uint64_t now[TIMELINE_SLOTS])
{
	bool news = false;

	for (uint32_t i = 1; i < TIMELINE_SLOTS; i++) {
		now[i] = timeline_is_by_gpu(t->page, i) ? timeline_value(t->page, i) : t->last[i];
		news |= now[i] != t->last[i];
	}
	return news;
}

bool timelines_look(struct timelines *t)
{
	uint64_t now[TIMELINE_SLOTS];
	enum process_state state = PROCESS_RUNS;
	bool again = false;

	if (t->dead)
		return false;
	if (take_values(t, now))
		state = process_state(t->pidfd, &t->stat);
	for (uint32_t i = 1; state != PROCESS_EXITS && i < TIMELINE_SLOTS; i++) {
		uint64_t far = state == PROCESS_RUNS ? now[i] : t->seen[i];

		/* what is believed stays believed, though this broker may have seen less than
		 * the one before */
		if ((int64_t)(far - t->last[i]) > 0)
			t->last[i] = far;
		t->seen[i] = now[i];
		/* a fence may have been passed on by means that the broker is not told of */
		again |= timeline_is_by_gpu(t->page, i);
	}
	return again;
}

void timelines_kill(struct timelines *t, bool finished)
{
	/* another broker may have begun with this, and died: what is poison already was seen
	 * then */
	for (uint32_t i = 1; (finished || MUTATION(trust_the_dying)) && i < TIMELINE_SLOTS; i++)
		if (timeline_value(t->page, i) < TIMELINE_POISON)
			t->last[i] = timeline_value(t->page, i);
	if (!MUTATION(no_poison))
		timeline_poison(t->page, t->last, t->in_place->known);
	t->dead = true;
	t->in_place->dead = true;
	/* written in place, so it counts before the keeper lets it go: that number is soon another
	 * descriptor's */
	t->in_place->fd = 0;
	/* it may be remembered for long, but is never sent again */
	timeline_unmap(t->page);
	t->page = NULL;
	t->fd = kept_close(t->fd);
	t->pidfd = -1;
	t->stat = fd_close(t->stat);
}

/* Returns whether a fence is reached of which a GPU says so. It is pending when its owner may be on
 * its way out. */
static enum timeline_state believe(struct timelines *t, uint32_t slot, uint64_t value)
{
	uint64_t now;

	if ((int64_t)(t->last[slot] - value) >= 0)
		return TIMELINE_REACHED;
	/* All is noted at once, as many fences may be behind what one look can tell of. The value
	 * is read before the process is looked at; it cannot be less than this one, which was
	 * reached already. */
	now = timeline_value(t->page, slot);
	if (process_state(t->pidfd, &t->stat) != PROCESS_RUNS)
		return TIMELINE_PENDING;
	t->last[slot] = (int64_t)(now - value) > 0 ? now : value;
	return TIMELINE_REACHED;
}

enum timeline_state fence_query(const struct fence *f)
{
	struct timelines *t = f->timelines;
	enum timeline_state state;

	if (!t)
		return TIMELINE_REACHED;
	if (t->dead)
		return (int64_t)(t->last[f->slot] - f->value) >= 0 ? TIMELINE_REACHED
								   : TIMELINE_DEAD;
	state = timeline_query(t->page, f->slot, f->value);
	if (state == TIMELINE_REACHED && timeline_is_by_gpu(t->page, f->slot))
		return believe(t, f->slot, f->value);
	return state;
}

void fence_deinit(struct fence *f)
{
	timelines_unref(f->timelines);
	*f = (struct fence){0};
}

uint64_t fence_timeline(const struct fence *f)
{
	return f->timelines ? f->timelines->id << 16 | f->slot : 0;
}
