/* SPDX-License-Identifier: MIT */

/*
 * The layout of what members of a channel share: nothing overlaps, nothing lies outside, for every
 * shape there may be, and what is no shape is known as such.
 */

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "pages/channel_page.h"

TestSuite(channel_page, .timeout = 30);

static const struct channel_shape plain = {CHANNEL_BROADCAST, 1, 64, 128, 256, 16, 64, 3, 0, 0};

/* The plain one, but for one field. */
static bool is_shape(size_t field, uint32_t value)
{
	struct channel_shape s = plain;

	memcpy((unsigned char *)&s + field, &value, sizeof(value));
	return channel_shape_is_valid(&s);
}
#define WITH(field, value) is_shape(offsetof(struct channel_shape, field), (value))

Test(channel_page, what_is_within_the_limits_is_a_shape)
{
	cr_assert(channel_shape_is_valid(&plain));
	cr_assert(WITH(mode, CHANNEL_QUEUE) && WITH(mode, CHANNEL_DIRECT));
	cr_assert(WITH(when_full, 3));
	cr_assert(WITH(depth, 1) && WITH(depth, CHANNEL_DEPTH_MAX));
	cr_assert(WITH(in_flight, 1) && WITH(in_flight, CHANNEL_IN_FLIGHT_MAX));
	cr_assert(WITH(data_max, 0) && WITH(data_max, 1) && WITH(data_max, CHANNEL_DATA_MAX));
	cr_assert(WITH(rows, 1) && WITH(rows, CHANNEL_MEMBERS_MAX));
	cr_assert(WITH(consumers, 1));
	cr_assert(WITH(history, 1) && WITH(history, 64));
	cr_assert(WITH(deliveries, 1) && WITH(deliveries, CHANNEL_DELIVERIES_MAX));
}

Test(channel_page, what_is_beyond_them_is_none)
{
	cr_assert(!WITH(mode, 0) && !WITH(mode, CHANNEL_DIRECT + 1));
	cr_assert(!WITH(when_full, 0) && !WITH(when_full, 4));
	cr_assert(!WITH(depth, 0) && !WITH(depth, 63) && !WITH(depth, 2 * CHANNEL_DEPTH_MAX));
	cr_assert(!WITH(in_flight, 0) && !WITH(in_flight, CHANNEL_IN_FLIGHT_MAX + 1));
	cr_assert(!WITH(data_max, CHANNEL_DATA_MAX + 1) && !WITH(data_max, UINT32_MAX));
	cr_assert(!WITH(rows, 0) && !WITH(rows, CHANNEL_MEMBERS_MAX + 1));
	cr_assert(!WITH(consumers, 0) && !WITH(consumers, CHANNEL_MEMBERS_MAX + 1));
	cr_assert(!WITH(deliveries, 0) && !WITH(deliveries, CHANNEL_DELIVERIES_MAX + 1));
	cr_assert(!WITH(history, 65) && !WITH(history, UINT32_MAX));
}

/* Each message of it has an entry and a ticket, and there is one ticket more. */
Test(channel_page, a_history_is_of_a_broadcast_and_leaves_room)
{
	cr_assert(channel_shape_is_valid(
	    &(struct channel_shape){CHANNEL_BROADCAST, 1, 64, 65, 256, 16, 64, 3, 64, 0}));
	cr_assert(!channel_shape_is_valid(
	    &(struct channel_shape){CHANNEL_BROADCAST, 1, 64, 64, 256, 16, 64, 3, 64, 0}));
	cr_assert(!channel_shape_is_valid(
	    &(struct channel_shape){CHANNEL_QUEUE, 1, 64, 128, 256, 16, 64, 3, 1, 0}));
}

/* What lies far takes as much as there may be in flight, which is bounded. */
Test(channel_page, what_lies_far_is_bounded)
{
	struct channel_shape s = plain;

	s.in_flight = 1024;
	s.data_max = CHANNEL_DATA_MAX;
	cr_assert(channel_shape_is_valid(&s));
	s.in_flight++;
	cr_assert_not(channel_shape_is_valid(&s));
	s.data_max = CHANNEL_DATA_NEAR;
	cr_assert(channel_shape_is_valid(&s));
}

/* Beside those that are kept one message has its tickets. */
Test(channel_page, several_buffers_have_their_tickets)
{
	cr_assert(WITH(buffers, 0) && WITH(buffers, 1) && WITH(buffers, CHANNEL_BUFFERS_MAX));
	cr_assert(!WITH(buffers, CHANNEL_BUFFERS_MAX + 1) && !WITH(buffers, UINT32_MAX));
	cr_assert(channel_shape_is_valid(
	    &(struct channel_shape){CHANNEL_BROADCAST, 1, 64, 96, 256, 16, 64, 3, 2, 32}));
	cr_assert(!channel_shape_is_valid(
	    &(struct channel_shape){CHANNEL_BROADCAST, 1, 64, 95, 256, 16, 64, 3, 2, 32}));
	cr_assert(channel_shape_is_valid(
	    &(struct channel_shape){CHANNEL_QUEUE, 1, 64, 32, 256, 16, 64, 3, 0, 32}));
	cr_assert(!channel_shape_is_valid(
	    &(struct channel_shape){CHANNEL_QUEUE, 1, 64, 31, 256, 16, 64, 3, 0, 32}));
	cr_assert(channel_shape_is_valid(
	    &(struct channel_shape){CHANNEL_DIRECT, 1, 64, 32, 256, 16, 64, 3, 0, 32}));
	cr_assert(!channel_shape_is_valid(
	    &(struct channel_shape){CHANNEL_DIRECT, 1, 64, 31, 256, 16, 64, 3, 0, 32}));
}

/* Every byte of a page belongs to at most one thing. */
static unsigned char *claimed;
static size_t claimed_size, align;

static void claim(void *page, const void *thing, size_t size)
{
	size_t at = (size_t)((const unsigned char *)thing - (unsigned char *)page);

	cr_assert_eq(at % align, 0);
	cr_assert_leq(at, claimed_size);
	cr_assert_leq(size, claimed_size - at);
	for (size_t i = 0; i < size; i++)
		cr_assert_eq(claimed[at + i]++, 0, "byte %zu", at + i);
}

static void *start(size_t size)
{
	cr_assert_eq(size % 4096, 0);
	claimed = calloc(1, size);
	claimed_size = size;
	return aligned_alloc(4096, size);
}

static size_t near(const struct channel_shape *s)
{
	return s->data_max < CHANNEL_DATA_NEAR ? s->data_max : CHANNEL_DATA_NEAR;
}

static void lay_out_ring(const struct channel_shape *s, enum channel_layout layout)
{
	void *ring = start(channel_ring_size(s, layout));

	align = 64;
	claim(ring, ring, sizeof(struct channel_ring));
	for (uint32_t i = 0; i < s->consumers; i++)
		claim(ring, channel_admission_at(ring, s, i), sizeof(struct channel_admission));
	for (uint32_t i = 0; channel_far_size(s) > 0 && i < s->in_flight; i++) {
		claim(ring, channel_far_at(ring, s, layout, i),
		      (channel_buffers(s) - 1) * sizeof(struct channel_further));
		claim(ring, channel_far_at(ring, s, layout, i) + channel_far_data(s),
		      s->data_max > CHANNEL_DATA_NEAR ? s->data_max : 0);
	}
	for (uint32_t i = 0; i < channel_lanes(s); i++) {
		claim(ring, channel_lane_at(ring, s, i), sizeof(struct channel_lane));
		for (uint64_t j = 0; j < s->depth; j++)
			claim(ring, channel_entry_at(ring, s, i, j + 5 * (uint64_t)s->depth),
			      sizeof(struct channel_entry) + near(s));
	}
	for (uint32_t i = 0; channel_has_copies(s, layout) && i < s->in_flight; i++)
		claim(ring, channel_copy_at(ring, s, i), sizeof(struct channel_entry) + near(s));
	align = 16;
	for (uint32_t i = 0; i < s->in_flight; i++)
		claim(ring, channel_ticket_at(ring, s, i), sizeof(struct channel_ticket));
	free(ring);
	free(claimed);
}

static void lay_out_ledger(const struct channel_shape *s)
{
	void *ledger = start(channel_ledger_size(s));

	align = 64;
	claim(ledger, ledger, sizeof(struct channel_ledger));
	for (uint32_t i = 0; i < s->rows; i++)
		claim(ledger, channel_row_at(ledger, s, i),
		      sizeof(struct channel_row) + s->in_flight * sizeof(struct channel_ack));
	free(ledger);
	free(claimed);
}

static const struct channel_shape shapes[] = {
    {CHANNEL_BROADCAST, 1, 64, 128, 256, 16, 64, 3, 0, 0},
    {CHANNEL_BROADCAST, 3, 1, 1, 0, 1, 1, 1, 0, 0},
    {CHANNEL_QUEUE, 2, 64, 128, 1, 16, 64, 3, 0, 0},
    {CHANNEL_QUEUE, 1, 2, 3, 64, 3, 5, 2, 0, 0},
    {CHANNEL_DIRECT, 1, 16, 33, 65, 64, 64, 1, 0, 0},
    {CHANNEL_BROADCAST, 1, 4096, 8192, 255, 2, 2, 1, 0, 0},
    {CHANNEL_BROADCAST, 1, 4, 8, 257, 2, 2, 1, 0, 0},
    {CHANNEL_BROADCAST, 1, 4, 64, 300, 2, 2, 1, 1, 32},
    {CHANNEL_BROADCAST, 1, 4, 8, 10, 2, 2, 1, 0, 2},
    {CHANNEL_QUEUE, 1, 64, 128, 65535, 2, 3, 1, 0, 0},
    {CHANNEL_DIRECT, 1, 2, 5, 1000, 2, 3, 1, 0, 0},
    {CHANNEL_DIRECT, 1, 2, 64, 1000, 2, 3, 1, 0, 32},
};

Test(channel_page, nothing_in_a_ring_overlaps_or_lies_outside)
{
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		for (enum channel_layout layout = 0; layout < CHANNEL_LAYOUTS; layout++)
			lay_out_ring(&shapes[i], layout);
}

Test(channel_page, nothing_in_a_ledger_overlaps_or_lies_outside)
{
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		lay_out_ledger(&shapes[i]);
}

/* A library that knows no copies finds everything else where it was. */
Test(channel_page, copies_are_behind_all_that_rings_had_without_them)
{
	static _Alignas(64) unsigned char ring[1 << 20];

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		const struct channel_shape *s = &shapes[i];
		size_t without = channel_ring_size(s, CHANNEL_WITHOUT_COPIES);

		cr_assert(!channel_has_copies(s, CHANNEL_WITHOUT_COPIES));
		if (s->mode != CHANNEL_QUEUE) {
			cr_assert_eq(channel_ring_size(s, CHANNEL_WITH_COPIES), without);
			continue;
		}
		cr_assert_gt(channel_ring_size(s, CHANNEL_WITH_COPIES) + 4096,
			     without + s->in_flight * channel_entry_size(s));
		cr_assert_geq(
		    (unsigned char *)channel_copy_at(ring, s, 0),
		    (unsigned char *)channel_entry_at(ring, s, channel_lanes(s) - 1, s->depth - 1) +
			channel_entry_size(s));
	}
}

Test(channel_page, the_largest_pages_are_of_bounded_size)
{
	const struct channel_shape s = {CHANNEL_QUEUE, 1, 4096, 8192, 256, 64, 64, 1, 0, 0};

	cr_assert_lt(channel_ring_size(&s, CHANNEL_WITH_COPIES), 96 << 20);
	cr_assert_lt(channel_ledger_size(&s), 16 << 20);
}

Test(channel_page, a_broadcast_has_one_lane_and_others_one_for_each_consumer)
{
	struct channel_shape s = plain;

	cr_assert_eq(channel_lanes(&s), 1);
	cr_assert_eq(channel_lane_of(&s, 63), 0);
	s.mode = CHANNEL_QUEUE;
	cr_assert_eq(channel_lanes(&s), 64);
	cr_assert_eq(channel_lane_of(&s, 63), 63);
	s.mode = CHANNEL_DIRECT;
	cr_assert_eq(channel_lane_of(&s, 7), 7);
}

Test(channel_page, sequence_numbers_go_round_a_lane)
{
	static _Alignas(64) unsigned char page[1 << 20];
	const struct channel_shape *s = &plain;

	cr_assert_eq(channel_entry_at(page, s, 0, 0), channel_entry_at(page, s, 0, s->depth));
	cr_assert_eq(channel_entry_at(page, s, 0, 3),
		     channel_entry_at(page, s, 0, ((uint64_t)s->depth << 40) + 3));
	cr_assert_neq(channel_entry_at(page, s, 0, 0), channel_entry_at(page, s, 0, 1));
}

Test(channel_page, packed_words_come_apart_again)
{
	const uint64_t packed = CHANNEL_PACK(UINT64_C(0xffffffffffff), 0xabcd);

	cr_assert_eq(CHANNEL_LARGE(packed), UINT64_C(0xffffffffffff));
	cr_assert_eq(CHANNEL_SMALL(packed), 0xabcd);
	cr_assert_eq(CHANNEL_SMALL(CHANNEL_PACK(7, CHANNEL_DELIVERIES_MAX)),
		     CHANNEL_DELIVERIES_MAX);
}
