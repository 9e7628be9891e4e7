/* SPDX-License-Identifier: MIT */

/*
 * Where things are in the pages of a channel: the one place that adds up sizes, so that the broker,
 * which makes the pages, and both halves of the library agree. Reads and writes nothing in them.
 */

#include "pages/channel_page.h"

#define PAGE 4096 /* what is mapped is whole pages */

static size_t round_up(size_t size, size_t to)
{
	return (size + to - 1) / to * to;
}

/* One message has to find room beside those that are kept. */
static bool has_tickets_for_buffers(const struct channel_shape *s)
{
	return s->buffers <= 1 ||
	       (s->buffers <= CHANNEL_BUFFERS_MAX && (s->history + 1) * s->buffers <= s->in_flight);
}

bool channel_shape_is_valid(const struct channel_shape *s)
{
	return s->mode >= CHANNEL_BROADCAST && s->mode <= CHANNEL_DIRECT && s->when_full >= 1 &&
	       s->when_full <= 3 && s->depth >= 1 && s->depth <= CHANNEL_DEPTH_MAX &&
	       (s->depth & (s->depth - 1)) == 0 && s->in_flight >= 1 &&
	       s->in_flight <= CHANNEL_IN_FLIGHT_MAX && s->data_max <= CHANNEL_DATA_MAX &&
	       has_tickets_for_buffers(s) &&
	       s->in_flight * channel_far_size(s) <= CHANNEL_FAR_MAX && s->rows >= 1 &&
	       s->rows <= CHANNEL_MEMBERS_MAX && s->consumers >= 1 &&
	       s->consumers <= CHANNEL_MEMBERS_MAX && s->deliveries >= 1 &&
	       s->deliveries <= CHANNEL_DELIVERIES_MAX && s->history <= s->depth &&
	       s->history < s->in_flight && (s->history == 0 || s->mode == CHANNEL_BROADCAST);
}

uint32_t channel_lanes(const struct channel_shape *s)
{
	return s->mode == CHANNEL_BROADCAST ? 1 : s->consumers;
}

uint32_t channel_lane_of(const struct channel_shape *s, uint32_t consumer)
{
	return s->mode == CHANNEL_BROADCAST ? 0 : consumer;
}

/* ------------------------------------------------------------------------------------------- */
/* A ring: header, admissions, lanes, tickets, entries, copies, far data                        */

size_t channel_entry_size(const struct channel_shape *s)
{
	uint32_t near = s->data_max < CHANNEL_DATA_NEAR ? s->data_max : CHANNEL_DATA_NEAR;

	return sizeof(struct channel_entry) + round_up(near, 64);
}

size_t channel_far_data(const struct channel_shape *s)
{
	return round_up((channel_buffers(s) - 1) * sizeof(struct channel_further), 64);
}

size_t channel_far_size(const struct channel_shape *s)
{
	return channel_far_data(s) +
	       (s->data_max > CHANNEL_DATA_NEAR ? round_up(s->data_max, 64) : 0);
}

static size_t lanes_at(const struct channel_shape *s)
{
	return sizeof(struct channel_ring) + s->consumers * sizeof(struct channel_admission);
}

static size_t tickets_at(const struct channel_shape *s)
{
	return lanes_at(s) + channel_lanes(s) * sizeof(struct channel_lane);
}

static size_t entries_at(const struct channel_shape *s)
{
	return tickets_at(s) + round_up(s->in_flight * sizeof(struct channel_ticket), 64);
}

static size_t copies_at(const struct channel_shape *s)
{
	return entries_at(s) + (size_t)channel_lanes(s) * s->depth * channel_entry_size(s);
}

bool channel_has_copies(const struct channel_shape *s, enum channel_layout layout)
{
	return layout >= CHANNEL_WITH_COPIES && s->mode == CHANNEL_QUEUE;
}

static size_t far_at(const struct channel_shape *s, enum channel_layout layout)
{
	size_t copies = channel_has_copies(s, layout) ? s->in_flight : 0;

	return copies_at(s) + copies * channel_entry_size(s);
}

size_t channel_ring_size(const struct channel_shape *s, enum channel_layout layout)
{
	return round_up(far_at(s, layout) + s->in_flight * channel_far_size(s), PAGE);
}

/* Pages are aligned to more than anything in them is. */
static void *at(void *page, size_t offset)
{
	return (unsigned char *)page + offset;
}

struct channel_admission *channel_admission_at(void *ring, const struct channel_shape *s,
					       uint32_t consumer)
{
	(void)s;
	return at(ring, sizeof(struct channel_ring) + consumer * sizeof(struct channel_admission));
}

struct channel_lane *channel_lane_at(void *ring, const struct channel_shape *s, uint32_t lane)
{
	return at(ring, lanes_at(s) + lane * sizeof(struct channel_lane));
}

struct channel_ticket *channel_ticket_at(void *ring, const struct channel_shape *s, uint32_t ticket)
{
	return at(ring, tickets_at(s) + ticket * sizeof(struct channel_ticket));
}

struct channel_entry *channel_entry_at(void *ring, const struct channel_shape *s, uint32_t lane,
				       uint64_t sequence)
{
	size_t index = (size_t)lane * s->depth + (sequence & (s->depth - 1));

	return at(ring, entries_at(s) + index * channel_entry_size(s));
}

struct channel_entry *channel_copy_at(void *ring, const struct channel_shape *s, uint32_t ticket)
{
	return at(ring, copies_at(s) + ticket * channel_entry_size(s));
}

unsigned char *channel_far_at(void *ring, const struct channel_shape *s, enum channel_layout layout,
			      uint32_t ticket)
{
	return at(ring, far_at(s, layout) + ticket * channel_far_size(s));
}

/* ------------------------------------------------------------------------------------------- */
/* A ledger: header, rows                                                                      */

static size_t row_size(const struct channel_shape *s)
{
	return sizeof(struct channel_row) + round_up(s->in_flight * sizeof(struct channel_ack), 64);
}

size_t channel_ledger_size(const struct channel_shape *s)
{
	return round_up(sizeof(struct channel_ledger) + s->rows * row_size(s), PAGE);
}

struct channel_row *channel_row_at(void *ledger, const struct channel_shape *s, uint32_t row)
{
	return at(ledger, sizeof(struct channel_ledger) + row * row_size(s));
}
