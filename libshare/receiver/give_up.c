/* SPDX-License-Identifier: MIT */

/*
 * What acknowledging and rejecting (ack.c) have in common: the buffers of a message, whose loans
 * end with it, and those that the program keeps, which get leases.
 */

#include "libshare/program/error.h"
#include "libshare/receiver/data.h"

/* ------------------------------------------------------------------------------------------- */
/* Buffers behind the first one of a message                                                   */

/* Where they are. It stays as long as the message is not given up, and others keep off it: who
 * gives the message up has taken it. NULL: there are none. */
static struct channel_data *find_further(const share_message *m)
{
	share_channel *ch = m->channel ? channel_of(m->channel) : NULL;
	struct channel_data *d;

	if (!ch || !channel_has_further(ch))
		return NULL;
	d = data_find(receiver_lock(ch), m);
	channel_unlock(ch);
	return d && d->n_further > 0 ? d : NULL;
}

int message_visit_further(const share_message *m, loan_visit *visit, void *data)
{
	const struct channel_data *d = find_further(m);
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

/* Gives one message up: it is acknowledged behind @fence, or rejected if that is NULL. 0, or
 * SHARE_EINVAL if the program has given up a copy of it before. */
int receiver_give_up(struct receiver *receiver, share_message *m, const struct ring_fence *fence)
{
	bool held;

	if (!m->channel)
		return 0;
	if (channel_has_further(receiver->ch))
		held = give_up_several(receiver, m, fence);
	else
		held = receiver_return(receiver, m->producer, m->receipt, fence,
				       m->receipt & RECEIPT_RETAINED);
	held |= m->buffer != NULL;
	receiver_free_loans(receiver, m);
	data_drop(receiver, m);
	message_clear(m);
	receiver->members->held -= held;
	return held ? 0 : fail(SHARE_EINVAL, GIVEN_UP);
}

int message_give_up(share_channel *ch, share_message *m, const struct ring_fence *fence)
{
	struct receiver *receiver = receiver_lock(ch);
	int r = receiver_give_up(receiver, m, fence);

	receiver_wake_producers(receiver);
	channel_unlock_and_end(ch);
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* Buffers that the program keeps when it gives up their message: they get leases              */

static int lease_if_kept(share_buffer *handle, void *unused)
{
	(void)unused;
	return loan_is_lent(handle) && !loan_is_plain(handle) ? channel_retain(buffer_of(handle))
							      : 0;
}

int message_lease_kept(share_message *m)
{
	return find_further(m) ? messages_visit(channel_of(m->channel), m, 1, lease_if_kept, NULL)
			       : 0;
}

/* It is the program's own from here on; or (@loan) has the message's place until it is released. */
static void make_own(share_message *m, struct channel_data *d, uint32_t i, bool loan)
{
	if (i > 0) {
		d->handles[i] = NULL;
		d->retained |= 1u << (i - 1);
		return;
	}
	m->buffer = NULL;
	m->receipt |= RECEIPT_RETAINED;
	if (!loan)
		return;
	data_drop(receiver_lock(channel_of(m->channel)), m);
	channel_unlock(channel_of(m->channel));
	message_clear(m);
}

/* Where nobody can give a lease, the loan goes on: the message is acknowledged (or rejected) when
 * the handle is released. Of several, which another thread has kept since message_lease_kept(),
 * none can go on. */
int message_let_go_of_kept(share_message *m, void *stream, bool rejected)
{
	struct channel_data *d = find_further(m);
	int r, failed = 0; /* of a device that is broken, and whose work is over */

	for (uint32_t i = d ? d->n_further + 1 : 1; i-- > 0;) {
		share_buffer *handle = i == 0 ? m->buffer : d->handles[i];
		bool loan, kept;

		if (!handle || loan_is_plain(handle))
			continue;
		loan = loan_is_lent(handle) && channel_retain(buffer_of(handle)) != 0;
		if (loan && d)
			return SHARE_EINVAL;
		if (loan)
			lent_of(buffer_of(handle))->lent.rejected = rejected;
		r = buffer_release(buffer_of(handle), stream, &kept);
		if (kept)
			return r == SHARE_ENOTSUP ? r : SHARE_EINVAL;
		make_own(m, d, i, loan);
		failed = failed ? failed : r;
	}
	return failed;
}
