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

#define NO_MESSAGE \
	"there is no message (its channel is NULL): none was received, or it was given up"

/* ------------------------------------------------------------------------------------------- */
/* Buffers behind the first one of a message                                                   */

/* Where they are. It stays as long as the message is not given up, and others keep off it: who
 * gives the message up has taken it. NULL: there are none. */
struct channel_data *message_find_further(const share_message *m)
{
	share_channel *ch = channel_of(m->channel);
	struct channel_data *d = data_find(receiver_lock(ch), m);

	channel_unlock(ch);
	return d && d->n_further > 0 ? d : NULL;
}

int message_visit_further(const share_message *m, loan_visit *visit, void *data)
{
	const struct channel_data *d = message_further(m);
	int r = 0;

	for (uint32_t i = 1; d && r == 0 && i <= d->n_further; i++)
		r = d->handles[i] ? visit(d->handles[i], data) : 0;
	return r;
}

void receiver_free_loans(struct receiver *receiver, const share_message *m)
{
	struct channel_data *d = channel_has_further(receiver->ch) ? data_find(receiver, m) : NULL;

	if (m->buffer)
		lent_free(receiver, lent_of(buffer_of(m->buffer)));
	for (uint32_t i = 1; d && i <= d->n_further; i++) {
		if (d->handles[i])
			lent_free(receiver, lent_of(buffer_of(d->handles[i])));
		d->handles[i] = NULL;
	}
}

/* receiver_give_up() with all its buffers. False if it was given up before. */
static __attribute__((noinline)) bool give_up_several(struct receiver *receiver,
						      const share_message *m,
						      const struct ring_fence *fence)
{
	const struct channel_data *d = data_find(receiver, m);

	if (!d || !receipt_is_valid(receiver, m->receipt))
		return false;
	return ring_consumer_give_up(receiver->ring, RECEIPT_ROW(m->receipt), m->producer,
				     RECEIPT_TICKET(m->receipt), RECEIPT_VERSION(m->receipt), fence,
				     m->receipt & RECEIPT_RETAINED, d->further, d->n_further,
				     d->retained);
}

/* ------------------------------------------------------------------------------------------- */

/* Gives one message up: it is acknowledged behind @fence, or rejected if that is NULL. 0, or
 * SHARE_EINVAL if the program has given up a copy of it before. */
int receiver_give_up(struct receiver *receiver, share_message *m, const struct ring_fence *fence)
{
	bool retained = m->receipt & RECEIPT_RETAINED, held;

	if (!m->channel)
		return 0;
	if (channel_has_further(receiver->ch))
		held = give_up_several(receiver, m, fence);
	else
		held = fence ? receiver_ack(receiver, m->producer, m->receipt, *fence, retained)
			     : receiver_reject(receiver, m->producer, m->receipt, retained);
	held |= m->buffer != NULL;
	receiver_free_loans(receiver, m);
	data_drop(receiver, m);
	message_end(m);
	receiver->members->held -= held;
	return held ? 0 : fail(SHARE_EINVAL, GIVEN_UP);
}

/* ------------------------------------------------------------------------------------------- */
/* Before that                                                                                 */

/* The references that messages have to their buffers are theirs still, where they were not given
 * up. */
void messages_keep_all(share_message *messages, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (messages[i].channel && messages[i].buffer)
			handle_keep_lent(buffer_of(messages[i].buffer));
}

/* Those references are taken from them, so that of two who give the same message up one does. */
int messages_take_all(share_message *messages, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!messages[i].buffer || handle_take_lent(messages[i].buffer, HANDLE_BUFFER))
			continue;
		messages_keep_all(messages, i);
		return fail(SHARE_EINVAL, GIVEN_UP);
	}
	return 0;
}

int messages_check(const share_message *messages, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!messages[i].channel)
			return fail(SHARE_EINVAL, NO_MESSAGE);
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

int loan_order_uses(share_buffer *handle, void *work)
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
	int r = messages_visit(ch, messages, n, loan_order_uses, &w);

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

/* 0, or SHARE_EINVAL and the like when nothing more can be done on this stream. */
static int ack_loans(share_channel *ch, share_message *messages, size_t n, void *stream,
		     int *failed)
{
	struct receiver *receiver;
	const share_channel *handle = messages[0].channel;
	struct ring_fence fence;
	uint32_t held;
	int r = signal_all(ch, messages, n, stream, &fence);

	if (r == SHARE_EINVAL || r == SHARE_ENOTSUP)
		return r;
	*failed = r;
	receiver = receiver_lock(ch);
	/* a message without memory is nothing that would keep the channel for who has a copy */
	if (handle && !handle_exists(handle, HANDLE_CHANNEL)) {
		channel_unlock(ch);
		return fail(SHARE_EINVAL, GIVEN_UP);
	}
	held = receiver->members->held;
	for (size_t i = 0; i < n; i++) {
		r = receiver_give_up(receiver, &messages[i], &fence);
		*failed = *failed ? *failed : r;
	}
	receiver_acked_behind(receiver, fence, held - receiver->members->held);
	receiver_wake_producers(receiver);
	channel_unlock_and_end(ch);
	return 0;
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
	int r = 0, failed = 0;
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
	if (!messages_visit(ch, messages, n, is_kept, NULL)) {
		r = ack_loans(ch, messages, n, stream, &failed);
		return r != 0 ? r : failed;
	}
	for (size_t i = 0; r == 0 && i < n; i++)
		r = message_lease_kept(&messages[i]);
	if (r != 0)
		return r;
	channel_hold(ch);
	r = let_go_of_all_kept(messages, n, stream);
	if (r != SHARE_EINVAL && r != SHARE_ENOTSUP) {
		int later = ack_loans(ch, messages, n, stream, &failed);

		r = r != 0 ? r : later;
	}
	channel_let_go(ch);
	return r != 0 ? r : failed;
}

static int ack_many(share_message *messages, size_t n, void *stream)
{
	HAZARDS;
	share_channel *ch;
	int r = messages_check(messages, n);

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
	r = messages_take_all(messages, n);
	if (r == 0) {
		r = ack_taken(ch, messages, n, stream);
		messages_keep_all(messages, n);
	}
	return r;
}

/* As receiver_give_up(), of a message without memory. */
static bool give_up_data(struct receiver *receiver, share_message *m)
{
	bool held = receiver_ack(receiver, m->producer, m->receipt, (struct ring_fence){0, 0},
				 m->receipt & RECEIPT_RETAINED);

	data_drop(receiver, m);
	message_end(m);
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
	    ch->role != SHARE_CONSUMER || channel_has_owner(ch) || channel_has_further(ch) ||
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

/* The memory is used by nobody any more, whatever streams there are. */
static bool is_unused(const share_message *m)
{
	const share_buffer *b = buffer_of(m->buffer);

	return !b || (loan_is_plain(m->buffer) && !b->segment->kind->on_device &&
		      uses_are_over(buffer_of(m->buffer)));
}

/* 1: it takes more. A channel that is closed may end with the message. */
static int try_ack(share_channel *ch, share_message *m)
{
	static const struct ring_fence none = {0, 0};
	struct receiver *receiver;
	int r = 1;

	if (channel_has_owner(ch) || channel_has_further(ch) || !is_unused(m))
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
		r = messages_check(m, 1);
	if (r != 0)
		return r;
	ch = channel_of(m->channel);
	if (ch->role != SHARE_CONSUMER)
		r = 1;
	else
		r = messages_take_all(m, 1);
	if (r == 0) {
		r = try_ack(ch, m);
		messages_keep_all(m, 1);
	}
	return r == 1 ? fail_constant(SHARE_EAGAIN, "to acknowledge this may take a while") : r;
}

static int ack_behind(share_message *m, struct ring_fence fence)
{
	share_channel *ch = channel_of(m->channel);
	struct receiver *receiver = receiver_lock(ch);
	int r = receiver_give_up(receiver, m, &fence);

	receiver_wake_producers(receiver);
	channel_unlock_and_end(ch);
	return r;
}

/* So that a stream is the same one for both: NULL depends on it. */
static bool are_on_same_device(const share_buffer *a, const share_buffer *b)
{
	return a && b && a->mapping && b->mapping &&
	       a->mapping->kind->on_device == b->mapping->kind->on_device &&
	       a->mapping->ordinal == b->mapping->ordinal;
}

static int is_others(share_buffer *handle, void *unused)
{
	return is_kept(handle, unused) || !uses_are_over(buffer_of(handle));
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
		return ack_behind(m, signalled);
	r = ack_taken(ch, m, 1, stream);
	messages_keep_all(m, 1);
	return r;
}

void channel_ack_unused(share_message *m)
{
	DETAIL_STAYS;
	share_channel *ch = channel_of(m->channel);

	if (ch->role == SHARE_PRODUCER)
		sender_ack_taken_back(ch, m, NULL);
	else
		ack_behind(m, (struct ring_fence){0, 0});
}
