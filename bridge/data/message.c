/* SPDX-License-Identifier: MIT */

/*
 * Each frame is a content of its own, and takes the way that it would take alone (content.c). So
 * the two sides have nothing in common here but the numbers of the frames.
 */

#include <stdlib.h>
#include <string.h>

#include "bridge/bridge.h"
#include "bridge/data/memory.h"
#include "bridge/data/message.h"
#include "bridge/link.h"

/* ------------------------------------------------------------------------------------------- */
/* Sending                                                                                     */

struct sending {
	unsigned under_way;
	int error;
	data_done done;
	void *arg;
	unsigned char *rest; /* a copy, as the data are gone with the message */
	unsigned n;
	struct reach parts[];
};

static void on_part_sent(int error, void *arg)
{
	struct sending *s = arg;

	if (error)
		s->error = error;
	if (--s->under_way > 0)
		return;
	for (unsigned i = 0; i < s->n; i++)
		reach_end(&s->parts[i]);
	free(s->rest);
	s->done(s->error, s->arg);
	free(s);
}

static unsigned rest_of(const share_message *m)
{
	return m->data_size > DATA_MORE ? m->data_size - DATA_MORE : 0;
}

/* Refers to all that is sent. NULL: no memory. */
static struct sending *begin_sending(const share_message *m, data_done done, void *arg)
{
	unsigned rest = rest_of(m), n = (m->n_buffers > 0 ? m->n_buffers : 1) + (rest > 0);
	struct sending *s = calloc(1, sizeof(*s) + n * sizeof(s->parts[0]));

	if (!s || (rest > 0 && !(s->rest = malloc(rest)))) {
		free(s);
		return NULL;
	}
	s->n = n;
	s->done = done;
	s->arg = arg;
	for (unsigned i = 0; i < m->n_buffers; i++)
		reach_of(share_retain(m->buffers[i]), &s->parts[i]);
	if (rest > 0) {
		memcpy(s->rest, m->data + DATA_MORE, rest);
		s->parts[n - 1] = (struct reach){.memory = s->rest, .ordinal = -1};
	}
	return s;
}

void message_send(struct link *l, struct data_header *h, const share_message *m, data_done done,
		  void *arg)
{
	struct sending *s = begin_sending(m, done, arg);
	unsigned n = s ? s->n : 0;

	if (!s) {
		link_fail(l, "no memory");
		done(-1, arg);
		return;
	}
	h->n_more = m->data_size - rest_of(m);
	memcpy(h->more, m->data, h->n_more);
	h->parts = n > 1 ? n : 0;
	s->under_way = n + 1; /* it is still here when the last one was sent at once */
	for (h->part = 0; h->part < n; h->part++, h->n_more = 0) {
		const struct reach *from = &s->parts[h->part];

		h->flags = from->buffer ? DATA_HAS_BUFFER : 0;
		h->size = from->buffer ? share_size(from->buffer) : from->memory ? rest_of(m) : 0;
		data_send(l, h, from, on_part_sent, s);
	}
	on_part_sent(0, s);
}

/* ------------------------------------------------------------------------------------------- */
/* Receiving                                                                                   */

struct part {
	struct parcel *parcel; /* NULL: it has not come, or was received */
	struct parcel kept;
	struct reach reach;
	uint64_t size;
	bool come, has_buffer;
};

static bool is_sound(const struct data_header *h)
{
	return h->parts <= DATA_PARTS && h->part < (h->parts > 0 ? h->parts : 1) &&
	       (h->part == 0 || h->n_more == 0) &&
	       ((h->flags & DATA_HAS_BUFFER) || h->part > 0 || h->size == 0) &&
	       (!(h->flags & DATA_HAS_BUFFER) || (h->size > 0 && h->part < DATA_BUFFERS));
}

/* Only the last frame has none, and then it is the rest of the data. */
static bool is_rest(const struct message_in *m, const struct data_header *h)
{
	return !(h->flags & DATA_HAS_BUFFER) && h->part == m->n - 1 && h->size > 0 &&
	       h->size <= DATA_REST && m->header.n_more == DATA_MORE;
}

static bool has_place(const struct message_in *m, const struct data_header *h)
{
	return h->parts == m->header.parts && !m->parts[h->part].come &&
	       (h->part == 0 || is_rest(m, h) ||
		((h->flags & DATA_HAS_BUFFER) && (m->header.flags & DATA_HAS_BUFFER)));
}

const char *message_hear(struct message_in *m, const struct data_header *h, struct parcel *p)
{
	struct part *part;

	if (!is_sound(h) || (h->part > 0) != (m->parts != NULL))
		return "a frame that it sends makes no sense";
	if (h->part == 0) {
		*m = (struct message_in){.header = *h, .n = h->parts > 0 ? h->parts : 1};
		m->parts = calloc(m->n, sizeof(m->parts[0]));
		if (!m->parts)
			return "no memory";
		m->missing = m->n;
		m->size = h->n_more;
	}
	if (!has_place(m, h))
		return "a frame that it sends has no place in its message";
	part = &m->parts[h->part];
	part->come = true;
	part->has_buffer = h->flags & DATA_HAS_BUFFER;
	part->size = h->size;
	part->parcel = h->size > 0 ? p : NULL;
	if (part->has_buffer)
		m->n_buffers++;
	else
		m->size += (unsigned)h->size;
	m->missing--;
	return NULL;
}

bool message_is_whole(const struct message_in *m)
{
	return m->parts && m->missing == 0 && !m->begun;
}

static void release(struct message_in *m)
{
	for (unsigned i = 0; m->parts && i < m->n; i++)
		reach_end(&m->parts[i].reach);
	free(m->data);
	m->data = NULL;
}

static int allocate(struct bridge *b, struct message_in *m)
{
	int r = 0;

	for (unsigned i = 0; i < m->n && r == 0; i++)
		if (m->parts[i].has_buffer)
			r = reach_allocate(b, m->parts[i].size, &m->parts[i].reach);
	if (r == 0 && m->size > DATA_MORE) {
		m->data = malloc(m->size);
		r = m->data ? 0 : SHARE_ENOMEM;
	}
	if (r != 0) {
		release(m);
		return r;
	}
	if (m->data) {
		memcpy(m->data, m->header.more, DATA_MORE);
		m->parts[m->n - 1].reach =
		    (struct reach){.memory = m->data + DATA_MORE, .ordinal = -1};
	}
	return 0;
}

static void on_part_received(int error, void *arg)
{
	struct message_in *m = arg;

	if (error)
		m->error = error;
	if (--m->under_way == 0)
		m->done(m->error, m->arg);
}

int message_receive(struct bridge *b, struct message_in *m, data_done done, void *arg)
{
	int r = allocate(b, m);

	if (r != 0)
		return r;
	m->begun = true;
	m->done = done;
	m->arg = arg;
	m->under_way = m->n + 1; /* it is still here when the last one was received at once */
	for (unsigned i = 0; i < m->n; i++) {
		struct parcel *p = m->parts[i].parcel;

		m->parts[i].parcel = NULL;
		if (p)
			data_receive(p, &m->parts[i].reach, on_part_received, m);
		else
			on_part_received(0, m);
	}
	on_part_received(0, m);
	return 0;
}

void message_keep(struct message_in *m)
{
	for (unsigned i = 0; m->parts && i < m->n; i++) {
		struct part *part = &m->parts[i];

		if (!part->parcel || part->parcel == &part->kept)
			continue;
		data_keep(part->parcel, &part->kept);
		part->parcel = &part->kept;
	}
}

void message_pass(const struct message_in *m, share_outgoing *out, share_buffer **buffers)
{
	for (unsigned i = 0; i < m->n_buffers; i++)
		buffers[i] = m->parts[i].reach.buffer;
	out->buffers = buffers;
	out->n_buffers = m->n_buffers;
	out->data = m->data ? m->data : m->header.more;
	out->data_size = m->size;
}

void message_given(struct message_in *m)
{
	for (unsigned i = 0; i < m->n_buffers; i++)
		reach_take(&m->parts[i].reach);
}

void message_end(struct message_in *m)
{
	for (unsigned i = 0; m->parts && i < m->n; i++)
		data_drop(&m->parts[i].kept);
	release(m);
	free(m->parts);
	m->parts = NULL;
}
