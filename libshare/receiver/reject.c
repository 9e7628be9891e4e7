/* SPDX-License-Identifier: MIT */

/*
 * Rejecting is acknowledging (ack.c) with another word, but the thread waits for the stream: there
 * is no fence that whoever gets the message next would wait for.
 */

#include <share/private/core.h>

#include "base/mutation.h"
#include "libshare/buffer/uses.h"
#include "libshare/order/order.h"
#include "libshare/program/error.h"
#include "libshare/program/range.h"
#include "libshare/receiver/inside.h"
#include "libshare/segment/segment.h"

static int check_reject(share_channel *ch, const share_message *m)
{
	struct receiver *receiver;
	uint32_t row = RECEIPT_ROW(m->receipt);
	bool can;

	if (ch->role != SHARE_CONSUMER)
		return fail_constant(SHARE_EACCES,
				     "a message that was taken back is its producer's own");
	if (ch->shape.mode != CHANNEL_QUEUE)
		return fail_constant(SHARE_ENOTSUP,
				     "only a message of a queue can go to somebody else: of a "
				     "broadcast, each consumer has its own");
	if (ch->client->version < WIRE_VERSION_ORPHANS)
		return fail_constant(
		    SHARE_ENOTSUP,
		    "this broker is too old to know rejections: once the producer is "
		    "gone it would take this one for an acknowledgement");
	if (channel_has_owner(ch))
		return fail_constant(SHARE_ENOTSUP,
				     "a request to a service is to be answered, or acknowledged");
	receiver = receiver_lock(ch);
	can = row >= ch->shape.rows || ring_consumer_can_reject(receiver->ring, row);
	channel_unlock(ch);
	return can ? 0
		   : fail_constant(SHARE_ENOTSUP,
				   "the producer of this message has an earlier version of the "
				   "library, which would take it for acknowledged");
}

/* Other threads may let go of what the program keeps, and note their work, meanwhile. */
static int order_uses(share_buffer *handle, void *work)
{
	struct loans_work *w = work;
	struct ordering o = {.timeout_ms = -1, .dead_is_done = true};
	struct fences users = {.n = 0};
	share_buffer *b = buffer_of(handle);
	int r;

	if (loan_is_plain(handle))
		return loan_order_uses(handle, work);
	w->first = w->first ? w->first : b;
	r = uses_hold(b, &users);
	o.fences = users.all;
	o.n = users.n;
	if (r == 0 && users.n > 0)
		r = stream_wait(b->client, b->mapping, w->stream, &o);
	fences_deinit(&users);
	return r;
}

/* Whoever gets the message next may use the memory at once. */
static int wait_for_work(share_channel *ch, share_message *m, void *stream)
{
	struct loans_work w = {stream, NULL};
	bool fatal = false;
	int r = messages_visit(ch, m, 1, order_uses, &w);

	if (!w.first || MUTATION(reject_at_once))
		return 0;
	if (r == 0)
		r = stream_synchronize(ch->client, w.first->mapping, stream, &fatal);
	if (r == 0 || fatal) /* nothing runs on that device any more */
		return 0;
	return r == SHARE_ENOTSUP ? r : SHARE_EINVAL;
}

static int reject_taken(share_channel *ch, share_message *m, void *stream)
{
	struct receiver *receiver;
	int r = 0, failed;

	if (m->buffer)
		r = stream_check(ch->client, buffer_of(m->buffer)->segment->kind, stream);
	if (r == 0)
		r = wait_for_work(ch, m, stream);
	if (r == 0)
		r = message_lease_kept(m);
	if (r != 0)
		return r;
	channel_hold(ch);
	failed = message_let_go_of_kept(m, stream, true);
	/* what another thread has let go of since is the message's alone, with work noted of it */
	if (failed == 0)
		failed = wait_for_work(ch, m, stream);
	if (failed != SHARE_EINVAL && failed != SHARE_ENOTSUP) {
		receiver = receiver_lock(ch);
		r = receiver_give_up(receiver, m, NULL);
		receiver_wake_producers(receiver);
		channel_unlock(ch);
	}
	channel_let_go(ch);
	return failed != 0 ? failed : r;
}

int share_reject(share_message *m, void *stream)
{
	RANGE("share_reject", 0);
	HAZARDS;
	share_channel *ch;
	int r = message_check(m);

	if (r == 0)
		r = messages_check(m, 1);
	if (r != 0)
		return r;
	ch = channel_of(m->channel);
	r = check_reject(ch, m);
	if (r == 0)
		r = messages_take_all(m, 1);
	if (r == 0) {
		r = reject_taken(ch, m, stream);
		messages_keep_all(m, 1);
	}
	return r;
}
