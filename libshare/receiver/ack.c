/* SPDX-License-Identifier: MIT */

/*
 * Acknowledging: one signal on the stream that used the messages, then a word for each into our
 * ledger. A message whose handle is kept is given a lease first; where there is no broker to give
 * one, the acknowledgement waits until the handle is released.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <share/private/core.h>

#include "base/mutation.h"
#include "libshare/buffer/uses.h"
#include "libshare/order/order.h"
#include "libshare/program/error.h"
#include "libshare/program/range.h"
#include "libshare/receiver/data.h"
#include "libshare/segment/segment.h"
#include "libshare/sender/sender.h"

/* ------------------------------------------------------------------------------------------- */
/* Before that                                                                                 */

/* The references that messages have to their buffers are theirs still, where they were not given
 * up. */
static void keep_all(share_message *messages, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (messages[i].channel && messages[i].buffer)
			handle_keep_lent(buffer_of(messages[i].buffer));
}

/* Those references are taken from them, so that of two who give the same message up one does. */
static int take_all(share_message *messages, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!messages[i].buffer || handle_take_lent(messages[i].buffer, HANDLE_BUFFER))
			continue;
		keep_all(messages, i);
		return fail(SHARE_EINVAL, GIVEN_UP);
	}
	return 0;
}

static int check(const share_message *messages, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!messages[i].channel)
			return fail(SHARE_EINVAL,
				    "there is no message (its channel is NULL): none was received, "
				    "or it was given up");
		if (!handle_exists(messages[i].channel, HANDLE_CHANNEL))
			return fail(SHARE_EINVAL, GIVEN_UP);
		if (messages[i].channel != messages[0].channel)
			return fail(SHARE_EINVAL, "these messages are of different channels");
	}
	return client_is_forked(channel_of(messages[0].channel)->client) ? fail_fork() : 0;
}

static int is_kept(share_buffer *handle, void *unused)
{
	(void)unused;
	return !loan_is_plain(handle);
}

/* What was told of loans by share_release() comes before what is done on the stream next. */
struct loans_work {
	void *stream;
	share_buffer *first; /* NULL: there are none; all have memory of the same pool */
};

static int order_uses(share_buffer *handle, void *work)
{
	struct loans_work *w = work;

	w->first = w->first ? w->first : buffer_of(handle);
	return uses_are_over(buffer_of(handle)) ? 0 : uses_order(buffer_of(handle), w->stream);
}

/* 0; SHARE_EINVAL or SHARE_ENOTSUP when nothing is to be given up; or an error of a device. */
static int signal_all(share_channel *ch, const share_message *messages, size_t n, void *stream,
		      struct ring_fence *out)
{
	struct loans_work w = {stream, NULL};
	share_fence fence = {0, 0};
	bool fatal;
	int r = messages_visit(ch, messages, n, order_uses, &w);

	*out = (struct ring_fence){0, 0};
	if (!w.first)
		return 0;
	if (r == 0)
		r = stream_signal(ch->client, w.first->mapping, stream, &fence);
	if (r == SHARE_EINVAL || r == SHARE_ENOTSUP)
		return r;
	if (r != 0) { /* as in share_release() */
		r = stream_synchronize(ch->client, w.first->mapping, stream, &fatal);
		return r != 0 && !fatal ? SHARE_EINVAL : r;
	}
	*out = (struct ring_fence){WIRE_TIMELINE_SLOT(fence.timeline), fence.value};
	return 0;
}

/* 0, or SHARE_EINVAL and the like when nothing more can be done on this stream; else an error of
 * some of them, which are given up. */
static int ack_loans(share_channel *ch, share_message *messages, size_t n, void *stream)
{
	struct receiver *receiver;
	const share_channel *handle = messages[0].channel;
	struct ring_fence fence;
	uint32_t held;
	int r, failed = signal_all(ch, messages, n, stream, &fence);

	if (failed == SHARE_EINVAL || failed == SHARE_ENOTSUP)
		return failed;
	receiver = receiver_lock(ch);
	/* a message without memory is nothing that would keep the channel for who has a copy */
	if (handle && !handle_exists(handle, HANDLE_CHANNEL)) {
		channel_unlock(ch);
		return fail(SHARE_EINVAL, GIVEN_UP);
	}
	held = receiver->members->held;
	for (size_t i = 0; i < n; i++) {
		r = receiver_give_up(receiver, &messages[i], &fence);
		failed = failed ? failed : r;
	}
	receiver_acked_behind(receiver, fence, held - receiver->members->held);
	receiver_wake_producers(receiver);
	channel_unlock_and_end(ch);
	return failed;
}

/* Each is let go of, whatever a broken device says of those before: what the program keeps of a
 * message must not end with it. */
static int let_go_of_all_kept(share_message *messages, size_t n, void *stream)
{
	int r, failed = 0;

	for (size_t i = 0; i < n; i++) {
		r = message_let_go_of_kept(&messages[i], stream, false);
		if (r == SHARE_EINVAL || r == SHARE_ENOTSUP)
			return r;
		failed = failed ? failed : r;
	}
	return failed;
}

static int ack_taken(share_channel *ch, share_message *messages, size_t n, void *stream)
{
	int r = 0, failed;
	void *owner;

	for (size_t i = 0; r == 0 && i < n; i++)
		if (messages[i].buffer)
			r = stream_check(ch->client, buffer_of(messages[i].buffer)->segment->kind,
					 stream);
	if (r != 0)
		return r;
	owner = channel_owner(ch);
	for (size_t i = 0; owner && i < n; i++)
		ch->before_ack(owner, &messages[i]);
	if (!messages_visit(ch, messages, n, is_kept, NULL))
		return ack_loans(ch, messages, n, stream);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = message_lease_kept(&messages[i]);
	if (r != 0)
		return r;
	channel_hold(ch);
	failed = let_go_of_all_kept(messages, n, stream);
	if (failed != SHARE_EINVAL && failed != SHARE_ENOTSUP) {
		r = ack_loans(ch, messages, n, stream);
		failed = failed != 0 ? failed : r;
	}
	channel_let_go(ch);
	return failed;
}

static int ack_many(share_message *messages, size_t n, void *stream)
{
	HAZARDS;
	share_channel *ch;
	int r = check(messages, n);

	if (r != 0)
		return r;
	ch = channel_of(messages[0].channel);
	if (ch->role == SHARE_PRODUCER) {
		for (size_t i = 0; i < n; i++) {
			int failed = sender_ack_taken_back(ch, &messages[i], stream);

			r = r != 0 ? r : failed;
		}
		return r;
	}
	r = take_all(messages, n);
	if (r == 0) {
		r = ack_taken(ch, messages, n, stream);
		keep_all(messages, n);
	}
	return r;
}

static bool has_owner(const share_channel *ch)
{
	return atomic_load_explicit(&ch->owner, memory_order_relaxed);
}

/* As receiver_give_up(), of a message without memory. */
static bool give_up_data(struct receiver *receiver, share_message *m)
{
	static const struct ring_fence none = {0, 0};
	bool held = receiver_return(receiver, m->producer, m->receipt, &none,
				    m->receipt & RECEIPT_RETAINED);

	data_drop(receiver, m);
	message_clear(m);
	return held;
}

static bool are_data(const share_message *messages, size_t n, const share_channel *handle)
{
	for (size_t i = 0; i < n; i++)
		if (messages[i].buffer || messages[i].channel != handle)
			return false;
	return true;
}

/* Messages without memory: there is no work on it that anything would come after. False if they are
 * not such, or not in order. */
static bool ack_data(share_message *messages, size_t n, int *r)
{
	share_channel *handle = messages[0].channel, *ch = channel_of(handle);
	struct receiver *receiver;
	uint32_t held = 0;

	if (!handle || !are_data(messages, n, handle) || !handle_exists(handle, HANDLE_CHANNEL) ||
	    ch->role != SHARE_CONSUMER || has_owner(ch) || channel_has_further(ch) ||
	    client_is_forked(ch->client))
		return false;
	receiver = receiver_lock(ch);
	/* nothing of these keeps the channel for who has a copy */
	if (!handle_exists(handle, HANDLE_CHANNEL)) {
		channel_unlock(ch);
		return false;
	}
	for (size_t i = 0; i < n; i++)
		held += give_up_data(receiver, &messages[i]);
	receiver->members->held -= held;
	receiver_wake_producers(receiver);
	channel_unlock_and_end(ch);
	*r = held == n ? 0 : fail(SHARE_EINVAL, GIVEN_UP);
	return true;
}

/* Of a program that has larger messages than we know. */
static int ack_larger(share_message *messages, size_t n, void *stream)
{
	const struct struct_type *type = STRUCT_TYPE(share_message);
	size_t stride = messages->size;
	share_message *own = calloc(n, sizeof(*own));
	int r = own ? 0 : fail_system(-ENOMEM, "acknowledging messages");

	for (size_t i = 0; r == 0 && i < n; i++)
		r = struct_copy_in_sized(&own[i], (char *)messages + i * stride, stride, type);
	if (r == 0) {
		r = ack_many(own, n, stream);
		for (size_t i = 0; i < n; i++) {
			own[i].size = stride;
			memcpy((char *)messages + i * stride, &own[i], sizeof(own[i]));
		}
	}
	free(own);
	return r;
}

int share_ack_many(share_message *messages, size_t n, void *stream)
{
	RANGE("share_ack", n);
	int r;

	if (!messages || n == 0)
		return fail(SHARE_EINVAL, "there are no messages");
	if (messages->size == sizeof(*messages))
		return ack_data(messages, n, &r) ? r : ack_many(messages, n, stream);
	r = struct_check(share_message, messages);
	return r != 0 ? r : ack_larger(messages, n, stream);
}

static int is_others(share_buffer *handle, void *unused)
{
	return is_kept(handle, unused) || !uses_are_over(buffer_of(handle));
}

/* The memory is used by nobody any more, whatever streams there are. */
static bool is_unused(const share_message *m)
{
	return !m->buffer ||
	       (!is_others(m->buffer, NULL) && !buffer_of(m->buffer)->segment->kind->on_device);
}

/* 1: it takes more. A channel that is closed may end with the message. */
static int try_ack(share_channel *ch, share_message *m)
{
	static const struct ring_fence none = {0, 0};
	struct receiver *receiver;
	int r = 1;

	if (has_owner(ch) || channel_has_further(ch) || !is_unused(m))
		return 1;
	receiver = receiver_trylock(ch);
	if (!receiver)
		return 1;
	if (!receiver->members->closed) {
		r = receiver_give_up(receiver, m, &none);
		receiver_wake_producers(receiver);
	}
	channel_unlock_and_end(ch);
	return r;
}

int share_try_ack(share_message *m)
{
	HAZARDS;
	int r = message_check(m);
	share_channel *ch;

	if (r == 0)
		r = check(m, 1);
	if (r != 0)
		return r;
	ch = channel_of(m->channel);
	r = ch->role == SHARE_CONSUMER ? take_all(m, 1) : 1;
	if (r == 0) {
		r = try_ack(ch, m);
		keep_all(m, 1);
	}
	return r == 1 ? fail_constant(SHARE_EAGAIN, "to acknowledge this may take a while") : r;
}

/* So that a stream is the same one for both: NULL depends on it. */
static bool are_on_same_device(const share_buffer *a, const share_buffer *b)
{
	return a && b && a->mapping && b->mapping &&
	       a->mapping->kind->on_device == b->mapping->kind->on_device &&
	       a->mapping->ordinal == b->mapping->ordinal;
}

/* Nothing else refers to its memory, and no other stream works on it. */
static bool is_the_messages(const share_message *m)
{
	return !is_others(m->buffer, NULL) &&
	       (MUTATION(ack_behind_work) || !message_visit_further(m, is_others, NULL));
}

int channel_ack_behind(share_message *m, void *stream, const share_buffer *sent,
		       struct ring_fence signalled)
{
	share_channel *ch = channel_of(m->channel);
	int r;

	if (!m->buffer || !sent)
		return share_ack(m, stream);
	if (!handle_take_lent(m->buffer, HANDLE_BUFFER))
		return fail(SHARE_EINVAL, GIVEN_UP);
	if (are_on_same_device(buffer_of(m->buffer), buffer_of(sent)) && is_the_messages(m))
		return message_give_up(ch, m, &signalled);
	r = ack_taken(ch, m, 1, stream);
	keep_all(m, 1);
	return r;
}

void channel_ack_unused(share_message *m)
{
	DETAIL_STAYS;
	share_channel *ch = channel_of(m->channel);

	if (ch->role == SHARE_PRODUCER)
		sender_ack_taken_back(ch, m, NULL);
	else
		message_give_up(ch, m, &(struct ring_fence){0, 0});
}

/* ------------------------------------------------------------------------------------------- */
/* Rejecting is acknowledging with another word, but the thread waits for the stream: there is */
/* no fence that whoever gets the message next would wait for                                  */

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
	if (has_owner(ch))
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
static int order_all_uses(share_buffer *handle, void *work)
{
	struct loans_work *w = work;
	struct fences users = {.n = 0};
	share_buffer *b = buffer_of(handle);
	int r;

	if (loan_is_plain(handle))
		return order_uses(handle, work);
	w->first = w->first ? w->first : b;
	r = uses_hold(b, &users);
	if (r == 0)
		r = stream_wait_for_users(b->client, b->mapping, w->stream, &users, -1, NULL);
	fences_deinit(&users);
	return r;
}

/* Whoever gets the message next may use the memory at once. */
static int wait_for_work(share_channel *ch, share_message *m, void *stream)
{
	struct loans_work w = {stream, NULL};
	bool fatal = false;
	int r = messages_visit(ch, m, 1, order_all_uses, &w);

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
	if (failed != SHARE_EINVAL && failed != SHARE_ENOTSUP)
		r = message_give_up(ch, m, NULL);
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
		r = check(m, 1);
	if (r != 0)
		return r;
	ch = channel_of(m->channel);
	r = check_reject(ch, m);
	if (r == 0)
		r = take_all(m, 1);
	if (r == 0) {
		r = reject_taken(ch, m, stream);
		keep_all(m, 1);
	}
	return r;
}
