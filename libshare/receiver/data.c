/* SPDX-License-Identifier: MIT */

/*
 * The data of messages that the program has: it points there until it acknowledges the message. The
 * place that was free last is used next, so that it is in the cache. Places stay until the channel
 * ends, and a message names the one it has; as it is the program's, that is not believed unless the
 * place says the same.
 */

#include <stdlib.h>

#include "libshare/receiver/data.h"

static bool make_room_for_buffers(const struct receiver *receiver, struct channel_data *d)
{
	uint32_t most = channel_buffers(&receiver->ch->shape);

	if (most == 1)
		return true;
	d->further = calloc(most - 1, sizeof(*d->further));
	d->handles = calloc(most, sizeof(share_buffer *));
	if (d->further && d->handles)
		return true;
	free(d->further);
	free(d->handles);
	return false;
}

bool data_grow(struct receiver *receiver, struct channel_data **at)
{
	uint32_t n = receiver->n_data;
	struct channel_data *d, **all;

	if ((n & (n - 1)) == 0) { /* at powers of two: the table is full */
		all = realloc(receiver->data,
			      (n ? 2 * (size_t)n : 1) * sizeof(struct channel_data *));
		if (!all)
			return false;
		receiver->data = all;
	}
	d = malloc(sizeof(*d) + data_room(receiver));
	if (!d)
		return false;
	*d = (struct channel_data){.place = n};
	if (!make_room_for_buffers(receiver, d)) {
		free(d);
		return false;
	}
	ASAN_POISON_MEMORY_REGION(d->bytes, data_room(receiver));
	receiver->data[n] = *at = d;
	receiver->n_data++;
	return true;
}

void data_free(struct receiver *receiver)
{
	for (uint32_t i = 0; i < receiver->n_data; i++) {
		ASAN_UNPOISON_MEMORY_REGION(receiver->data[i]->bytes, data_room(receiver));
		free(receiver->data[i]->further);
		free(receiver->data[i]->handles);
		free(receiver->data[i]);
	}
	free(receiver->data);
}

/* ------------------------------------------------------------------------------------------- */

bool channel_get_note(const share_message *m, void *out)
{
	share_channel *ch = channel_of(m->channel);
	const struct channel_data *d;

	d = data_find(receiver_lock(ch), m);
	if (d)
		memcpy(out, d->note, sizeof(d->note));
	channel_unlock(ch);
	return d;
}

void channel_set_note(const share_message *m, const void *note)
{
	share_channel *ch = channel_of(m->channel);
	struct channel_data *d = data_find(receiver_lock(ch), m);

	if (d)
		memcpy(d->note, note, sizeof(d->note));
	channel_unlock(ch);
}

static bool find_next(share_channel *ch, uint32_t *at, share_message *out)
{
	const struct receiver *receiver = receiver_lock(ch);
	const struct channel_data *d = NULL;

	while (!d && *at < receiver->n_data) {
		d = receiver->data[(*at)++];
		d = d->producer ? d : NULL;
	}
	if (d) {
		out->channel = handle_of(ch);
		out->producer = d->producer;
		out->receipt = d->receipt;
		out->place = d->place;
	}
	channel_unlock(ch);
	return d;
}

void channel_visit_received(share_channel *ch, void (*visit)(void *owner, share_message *m),
			    void *owner)
{
	share_message m = SHARE_MESSAGE_INIT;

	for (uint32_t at = 0; find_next(ch, &at, &m);)
		visit(owner, &m);
}
