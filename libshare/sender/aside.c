/* SPDX-License-Identifier: MIT */

/* Messages that were delivered too often: their producer takes them back and has them then. */

#include <stdlib.h>

#include "libshare/buffer/uses.h"
#include "libshare/program/error.h"
#include "libshare/sender/inside.h"

/* Takes it from the program; NULL when that has given it up before. */
static struct channel_aside *find_taken(share_channel *ch, const share_message *m)
{
	struct sender *sender = sender_lock(ch);
	struct channel_aside *a;

	STAILQ_FOREACH (a, &sender->taken, link)
		if (a->receipt == m->receipt)
			break;
	if (a)
		STAILQ_REMOVE(&sender->taken, a, channel_aside, link);
	channel_unlock(ch);
	return a;
}

/* What the program has released before is none any more. *kept: it is the message's still. */
static int release(share_buffer *handle, void *stream, bool *kept)
{
	int r;

	if (!handle || !handle_take(handle, HANDLE_BUFFER))
		return 0;
	r = buffer_release(buffer_of(handle), stream, kept);
	if (*kept)
		handle_keep(buffer_of(handle));
	return r;
}

/* What was taken back by its producer is its own. */
int sender_ack_taken_back(share_channel *ch, share_message *m, void *stream)
{
	struct sender *sender;
	struct channel_aside *a = find_taken(ch, m);
	bool kept = false;
	int r = 0;

	if (!a)
		return fail(SHARE_EINVAL, GIVEN_UP);
	for (uint32_t i = 0; !kept && i < a->n_buffers; i++) {
		int failed = release(i == 0 ? m->buffer : a->handles[i], stream, &kept);

		r = r != 0 ? r : failed;
	}
	sender = sender_lock(ch);
	if (kept) {
		STAILQ_INSERT_TAIL(&sender->taken, a, link);
		channel_unlock(ch);
		return r;
	}
	sender->members->held--;
	channel_unlock_and_end(ch);
	free(a);
	message_clear(m);
	return r;
}

int channel_take_back(share_channel *ch, share_message *out)
{
	struct sender *sender = sender_lock(ch);
	struct channel_aside *a;
	struct held_fence given;
	share_message m;

	if (!sender->members->given_up)
		sender_reclaim_unlocking(sender);
	/* what there was is the closing thread's */
	if (sender->members->given_up) {
		channel_unlock(ch);
		return channel_given_up();
	}
	a = STAILQ_FIRST(&sender->aside);
	if (a) {
		STAILQ_REMOVE_HEAD(&sender->aside, link);
		sender->n_aside--;
		sender->members->held++;
		a->receipt = ++sender->n_taken;
		ring_producer_took_back(sender->ring);
		STAILQ_INSERT_TAIL(&sender->taken, a, link);
	} else {
		sender_arm(sender, READY_TAKE_BACK);
	}
	channel_unlock(ch);
	if (!a)
		return fail(SHARE_EAGAIN, "no message was delivered too often");
	for (uint32_t i = 0; i < a->n_buffers; i++)
		a->handles[i] = handle_give_again(a->buffers[i]);
	m = (share_message){
	    .size = sizeof(m),
	    .buffer = a->n_buffers > 0 ? a->handles[0] : NULL,
	    .buffers = a->n_buffers > 0 ? a->handles : NULL,
	    .n_buffers = a->n_buffers,
	    .data = a->message.data,
	    .number = a->message.number,
	    .producer = ch->member,
	    .deliveries = a->message.deliveries,
	    .data_size = a->message.data_size,
	    .channel = handle_of(ch),
	    .receipt = a->receipt,
	};
	struct_out(share_message, out, &m);
	for (uint32_t i = 0; i < a->n_buffers; i++) {
		if (channel_hold_given(ch, a->given, &given)) {
			buffers_lock_uses(ch->client);
			uses_add(a->buffers[i], &given);
			buffers_unlock_uses(ch->client);
		}
		buffer_message_over(a->buffers[i]);
	}
	return 0;
}

int share_channel_take_back(share_channel *ch, share_message *out)
{
	HAZARDS;
	int r = message_begin(out);

	if (r == 0)
		r = channel_resolve_as(&ch, SHARE_PRODUCER);
	return r != 0 ? r : channel_take_back(ch, out);
}
