/* SPDX-License-Identifier: MIT */

/* Buffers that the program keeps when it gives up their message: they get leases. */

#include "libshare/receiver/data.h"

static int lease_if_kept(share_buffer *handle, void *unused)
{
	(void)unused;
	return loan_is_lent(handle) && !loan_is_plain(handle) ? channel_retain(buffer_of(handle))
							      : 0;
}

int message_lease_kept(share_message *m)
{
	return message_further(m)
		   ? messages_visit(channel_of(m->channel), m, 1, lease_if_kept, NULL)
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
	message_end(m);
}

/* Where nobody can give a lease, the loan goes on: the message is acknowledged (or rejected) when
 * the handle is released. Of several, which another thread has kept since message_lease_kept(),
 * none can go on. */
int message_let_go_of_kept(share_message *m, void *stream, bool rejected)
{
	struct channel_data *d = message_further(m);
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
