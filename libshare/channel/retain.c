/* SPDX-License-Identifier: MIT */

/* Buffers that the program keeps when it gives up their message: they get leases. */

#include "libshare/channel/data.h"

/* Of several, each that is kept gets a lease before anything is given up: the message is
 * acknowledged as a whole, so that none of its loans can go on alone. 0 or an error. */
int message_lease_kept(share_message *m)
{
	struct channel_data *d = message_further(m);
	int r = 0;

	for (uint32_t i = 0; d && r == 0 && i <= d->n_further; i++) {
		share_buffer *handle = i == 0 ? m->buffer : d->handles[i];

		if (handle && loan_is_lent(handle) && !loan_is_plain(handle))
			r = channel_retain(buffer_of(handle));
	}
	return r;
}

/* The handles of those that have a lease are the program's. */
int message_let_go_of_further(share_message *m, void *stream)
{
	struct channel_data *d = message_further(m);

	for (uint32_t i = 1; d && i <= d->n_further; i++) {
		bool kept;
		int r;

		if (!d->handles[i] || loan_is_plain(d->handles[i]))
			continue;
		/* another thread has kept it since it was looked which are */
		r = loan_is_lent(d->handles[i]) ? channel_retain(buffer_of(d->handles[i])) : 0;
		if (r != 0)
			return SHARE_EINVAL;
		r = buffer_release(buffer_of(d->handles[i]), stream, &kept);
		if (kept)
			return r == SHARE_ENOTSUP ? r : SHARE_EINVAL;
		d->handles[i] = NULL;
		d->retained |= 1u << (i - 1);
		if (r != 0)
			return r;
	}
	return 0;
}

/*
 * A handle that the program keeps gets a lease, and is released as one. Where nobody can give it
 * one, the loan goes on: the message is acknowledged (or rejected) when the handle is released.
 */
int message_let_go_of_kept(share_message *m, void *stream, bool rejected)
{
	share_buffer *b = buffer_of(m->buffer);
	bool loan = message_is_loan(m), kept;
	int r;

	if (!b || (loan && !message_is_kept(m)))
		return 0;
	if (loan && channel_retain(b) == 0)
		loan = false;
	if (loan && message_further(m))
		return SHARE_EINVAL; /* as message_lease_kept() */
	if (loan)
		lent_of(b)->lent.rejected = rejected;
	r = buffer_release(b, stream, &kept);
	if (kept)
		return r == SHARE_ENOTSUP ? r : SHARE_EINVAL;
	m->buffer = NULL;
	m->receipt |= RECEIPT_RETAINED;
	if (loan) {
		data_drop(receiver_lock(channel_of(m->channel)), m);
		channel_unlock(channel_of(m->channel));
		message_end(m);
	}
	return r;
}
