/* SPDX-License-Identifier: MIT */

/*
 * The codec against its own table: whatever message is added to wire/messages.h is tested here
 * without a new line. Packets are decoded where memory ends (see wire_samples.h).
 */

#include <ctype.h>
#include <string.h>

#include <criterion/criterion.h>

#include <share/error.h>

#include "tests/wire/wire_samples.h"

TestSuite(codec, .timeout = 60);

Test(codec, every_message_arrives_as_it_was_sent)
{
	static const uint32_t caps[] = {16, 300, UINT32_MAX, 0};
	struct wire_message sent, got;

	FOR_EACH_MESSAGE(type, d)
	{
		for (int round = 0; round < 100; round++) {
			size_t size;

			fill(&sent, type, round < 97 ? caps[round % 2] : caps[round - 96]);
			size = encode(&sent, packet);
			cr_assert_eq(decode(&got, d, at_the_edge(packet, size), size), 0, "%s",
				     d->name);
			assert_same(&sent, &got);
			assert_inside(&got, edge(size), size);
		}
	}
}

Test(codec, a_packet_starts_with_type_size_and_serial_in_little_endian)
{
	struct wire_message m = {.type = WIRE_ALLOC, .serial = 0x04030201};

	m.alloc.pool = 0x1817161514131211;
	cr_assert_eq(encode(&m, packet), 8 + 4 * 8 + 4);
	cr_assert_eq(
	    memcmp(packet, "\x0d\x00\x24\x00\x01\x02\x03\x04\x11\x12\x13\x14\x15\x16\x17\x18", 16),
	    0);
}

Test(codec, bytes_of_variable_fields_follow_the_fixed_part_in_order)
{
	struct wire_message m = {.type = WIRE_QUERY, .serial = 1};

	m.query.what = (struct wire_bytes){"ab", 2};
	m.query.cursor = (struct wire_bytes){"c", 1};
	cr_assert_eq(encode(&m, packet), 8 + 3 * 4 + 3);
	cr_assert_eq(memcmp(packet + 8, "\2\0\0\0\0\0\0\0\1\0\0\0abc", 15), 0);
}

Test(codec, nothing_is_written_beyond_a_buffer_that_is_too_small)
{
	struct wire_message m;

	FOR_EACH_MESSAGE(type, d)
	{
		size_t size;

		fill(&m, type, 64);
		size = encode(&m, packet);
		for (size_t room = 0; room < size; room++)
			cr_assert_eq(wire_encode(&m, edge(room), room), 0, "%s into %zu bytes",
				     d->name, room);
		cr_assert_eq(wire_encode(&m, edge(size), size), size);
	}
}

Test(codec, a_field_beyond_its_maximum_is_not_sent)
{
	struct wire_message m;

	FOR_EACH_MESSAGE(type, d)
	{
		for (size_t i = 0; i < d->n_fields; i++) {
			const struct wire_field *f = &d->fields[i];

			if (!f->max)
				continue;
			fill(&m, type, 1);
			set_bytes(&m, f, packet, f->max + 1);
			cr_assert_eq(wire_encode(&m, edge(ROOM), ROOM), 0, "%s.%s", d->name,
				     f->name);
		}
	}
}

Test(codec, a_message_that_is_not_in_the_table_is_not_sent)
{
	struct wire_message m = {.type = WIRE_NOTHING};

	cr_assert_eq(wire_encode(&m, packet, sizeof(packet)), 0);
	m.type = (enum wire_type)WIRE_TYPE_COUNT;
	cr_assert_eq(wire_encode(&m, packet, sizeof(packet)), 0);
}

/* ------------------------------------------------------------------------------------------- */

Test(codec, every_truncation_of_every_message_is_refused)
{
	struct wire_message sent, got;

	FOR_EACH_MESSAGE(type, d)
	{
		size_t size;

		fill(&sent, type, 100);
		size = encode(&sent, packet);
		for (size_t cut = 0; cut < size; cut++)
			cr_assert_eq(decode(&got, d, at_the_edge(packet, cut), cut),
				     WIRE_E_TRUNCATED, "%s cut to %zu of %zu bytes", d->name, cut,
				     size);
	}
}

Test(codec, truncated_messages_say_which_request_they_were)
{
	struct wire_message sent, got;

	FOR_EACH_MESSAGE(type, d)
	{
		fill(&sent, type, 100);
		encode(&sent, packet);
		if (d->fixed_size == 0)
			continue;
		cr_assert_eq(decode(&got, d, packet, WIRE_HEADER_SIZE), WIRE_E_TRUNCATED);
		cr_assert_eq(got.serial, sent.serial);
		cr_assert_eq(got.type, sent.type);
	}
}

Test(codec, a_field_larger_than_allowed_is_refused)
{
	static const uint32_t beyond[] = {1, 2, 4096};
	struct wire_message sent, got;

	FOR_EACH_MESSAGE(type, d)
	{
		for (size_t i = 0; i < d->n_fields; i++) {
			const struct wire_field *f = &d->fields[i];

			if (!f->max)
				continue;
			fill(&sent, type, 1);
			encode(&sent, packet);
			/* all the bytes it talks of are there */
			for (size_t j = 0; j < 3; j++) {
				memcpy(packet + position(d, i), &(uint32_t){f->max + beyond[j]}, 4);
				cr_assert_eq(decode(&got, d, packet, ROOM), WIRE_E_TOO_LARGE,
					     "%s.%s", d->name, f->name);
			}
			memset(packet + position(d, i), 0xff, 4);
			cr_assert_eq(decode(&got, d, packet, ROOM), WIRE_E_TOO_LARGE, "%s.%s",
				     d->name, f->name);
		}
	}
}

Test(codec, a_field_that_ends_behind_the_packet_is_refused)
{
	struct wire_message sent, got;

	FOR_EACH_MESSAGE(type, d)
	{
		for (size_t i = 0; i < d->n_fields; i++) {
			const struct wire_field *f = &d->fields[i];
			size_t size;

			if (!f->max)
				continue;
			fill(&sent, type, 1);
			for (size_t j = 0; j < d->n_fields; j++)
				if (d->fields[j].max)
					set_bytes(&sent, &d->fields[j], NULL, 0);
			size = encode(&sent, packet);
			for (uint32_t lie = 1; lie <= f->max; lie = lie * 3 + 1) {
				memcpy(packet + position(d, i), &lie, 4);
				cr_assert_eq(decode(&got, d, at_the_edge(packet, size), size),
					     WIRE_E_TRUNCATED, "%s.%s", d->name, f->name);
			}
		}
	}
}

Test(codec, unknown_types_are_refused_in_every_direction)
{
	struct wire_message m;
	unsigned char header[WIRE_HEADER_SIZE] = {0, 0, 0, 0, 7};

	for (unsigned type = 0; type <= 0xffff; type++) {
		if (wire_describe(type))
			continue;
		set_word(header, type);
		for (int direction = WIRE_TO_BROKER; direction <= WIRE_FROM_AGENT; direction++) {
			cr_assert_eq(wire_decode(&m, (enum wire_direction)direction,
						 at_the_edge(header, 8), 8, 0),
				     WIRE_E_UNKNOWN, "%u", type);
			cr_assert_eq(m.serial, 7);
		}
	}
}

Test(codec, messages_in_the_wrong_direction_are_refused)
{
	struct wire_message sent, got;

	FOR_EACH_MESSAGE(type, d)
	{
		size_t size;

		fill(&sent, type, 100);
		size = encode(&sent, packet);
		for (int wrong = WIRE_TO_BROKER; wrong <= WIRE_FROM_AGENT; wrong++) {
			if (wrong == (int)d->direction)
				continue;
			cr_assert_eq(
			    wire_decode(&got, (enum wire_direction)wrong, packet, size, d->fds_min),
			    WIRE_E_UNKNOWN, "%s", d->name);
		}
	}
}

Test(codec, messages_with_the_wrong_number_of_descriptors_are_refused)
{
	struct wire_message sent, got;

	FOR_EACH_MESSAGE(type, d)
	{
		size_t size;

		fill(&sent, type, 100);
		size = encode(&sent, packet);
		for (size_t n = 0; n <= WIRE_FDS_MAX + 2; n++)
			cr_assert_eq(
			    wire_decode(&got, (enum wire_direction)d->direction, packet, size, n),
			    n >= d->fds_min && n <= d->fds_max ? 0 : WIRE_E_FDS,
			    "%s with %zu descriptors", d->name, n);
	}
}

Test(codec, a_number_at_the_end_is_taken_off_and_is_no_part_of_the_message)
{
	struct wire_message sent, got;
	uint64_t number;

	FOR_EACH_MESSAGE(type, d)
	{
		size_t size, with_number;

		fill(&sent, type, 100);
		sent.serial |= 1;
		size = encode(&sent, packet);
		with_number = wire_put_number(packet, size, 0x0102030405060708);
		cr_assert_eq(with_number, size + 8);
		cr_assert_eq(memcmp(packet + size, "\10\7\6\5\4\3\2\1", 8), 0);
		cr_assert_eq(
		    wire_take_number(at_the_edge(packet, with_number), &with_number, &number), 0);
		cr_assert_eq(with_number, size);
		cr_assert_eq(number, 0x0102030405060708);
		cr_assert_eq(decode(&got, d, packet, size), 0);
		assert_same(&sent, &got);
	}
}

Test(codec, a_packet_without_room_for_a_number_has_none)
{
	uint64_t number;

	memset(packet, 0xff, 64);
	for (size_t n = 0; n < 64; n++) {
		size_t size = n;
		int r = wire_take_number(at_the_edge(packet, n), &size, &number);

		cr_assert_eq(r, n < WIRE_HEADER_SIZE + 8 ? WIRE_E_TRUNCATED : 0);
		cr_assert_eq(size, r ? n : n - 8);
	}
}

Test(codec, a_farewell_has_no_number_and_is_beyond_all)
{
	struct wire_message m = {.type = WIRE_ERROR};
	uint64_t number;
	size_t size, before;

	m.error.detail = (struct wire_bytes){"the end is near", 15};
	before = size = encode(&m, packet);
	cr_assert_eq(wire_take_number(packet, &size, &number), 0);
	cr_assert_eq(size, before);
	cr_assert_eq(number, UINT64_MAX);
}

/* Those of the API are others, and may not be what programs, brokers and journals of other versions
 * go by. */
Test(codec, errors_keep_their_numbers_on_the_wire)
{
	static const int pinned[] = {
	    SHARE_EINVAL, SHARE_ENOMEM,  SHARE_ENOENT,        SHARE_EEXIST,    SHARE_EACCES,
	    SHARE_EQUOTA, SHARE_EAGAIN,  SHARE_ETIMEDOUT,     SHARE_ECANCELED, SHARE_EBUSY,
	    SHARE_ESTALE, SHARE_ENOTSUP, SHARE_EDISCONNECTED, SHARE_EFORK,     SHARE_EOWNERDEAD,
	    SHARE_EPROTO, SHARE_ESYSTEM, SHARE_ENOBROKER,     SHARE_ENODEV,    SHARE_EDEVICE,
	    SHARE_EPIPE,  SHARE_EINTR,
	};
	struct wire_message m = {.type = WIRE_ERROR}, got;
	size_t size = 0;
	int32_t number;

	for (int i = 0; i < (int)(sizeof(pinned) / sizeof(pinned[0])); i++) {
		m.error.error = pinned[i];
		size = encode(&m, packet);
		memcpy(&number, packet + WIRE_HEADER_SIZE, sizeof(number));
		cr_assert_eq(number, -1 - i);
	}
	/* one that was added later is an error, but none that we could tell */
	number = -1000;
	memcpy(packet + WIRE_HEADER_SIZE, &number, sizeof(number));
	cr_assert_eq(wire_decode(&got, WIRE_TO_CLIENT, packet, size, 0), 0);
	cr_assert_eq(got.error.error, 0);
}

Test(codec, noise_is_refused_or_stays_inside_its_packet)
{
	struct wire_message m;

	for (int round = 0; round < 200000; round++) {
		unsigned type = (unsigned)random_below(WIRE_TYPE_COUNT);
		const struct wire_description *d = wire_describe(type);
		unsigned char *at;
		size_t size;

		if (!d)
			continue;
		fill(&m, type, 30);
		size = encode(&m, packet);
		for (size_t flips = 1 + random_below(4); flips > 0; flips--)
			packet[random_below(size)] ^= (unsigned char)(1 << random_below(8));
		if (round % 3 == 0)
			random_bytes(packet + 2, size - 2);
		size = random_below(8) ? size : random_below(size);
		at = at_the_edge(packet, size);
		if (decode(&m, d, at, size) == 0)
			assert_inside(&m, at, size);
	}
}

/* ------------------------------------------------------------------------------------------- */

Test(codec, replies_go_back_to_who_asked_and_are_in_the_table)
{
	FOR_EACH_MESSAGE(type, d)
	{
		if (d->direction == WIRE_TO_CLIENT || d->direction == WIRE_FROM_AGENT) {
			cr_assert_eq(d->reply, WIRE_NOTHING, "%s", d->name);
		} else if (d->reply != WIRE_NOTHING) {
			cr_assert(wire_describe(d->reply), "%s", d->name);
			cr_assert_eq(wire_describe(d->reply)->direction,
				     d->direction == WIRE_TO_BROKER ? WIRE_TO_CLIENT
								    : WIRE_FROM_AGENT,
				     "%s", d->name);
		}
	}
}

Test(codec, the_table_is_sound)
{
	FOR_EACH_MESSAGE(type, d)
	{
		size_t fixed = 0, oldest = 0;

		for (const char *c = d->name; *c; c++)
			cr_assert(isupper((unsigned char)*c) || *c == '_', "%s", d->name);
		cr_assert_leq(d->fds_min, d->fds_max, "%s", d->name);
		cr_assert_leq(d->fds_max, WIRE_FDS_MAX, "%s", d->name);
		cr_assert(d->since >= WIRE_VERSION_OLDEST && d->since <= WIRE_VERSION, "%s",
			  d->name);
		for (size_t i = 0; i < d->n_fields; i++) {
			const struct wire_field *f = &d->fields[i];

			/* new fields go last */
			cr_assert(f->since >= (i ? d->fields[i - 1].since : WIRE_VERSION_OLDEST) &&
				      f->since <= WIRE_VERSION,
				  "%s.%s", d->name, f->name);
			fixed += f->size;
			oldest += f->since == WIRE_VERSION_OLDEST ? f->size : 0;
		}
		cr_assert_eq(d->fixed_size, fixed, "%s", d->name);
		cr_assert_eq(d->fixed_size_min, oldest, "%s", d->name);
		cr_assert_null(d->fields[d->n_fields].name, "%s", d->name);
	}
}

Test(codec, every_fault_has_a_sentence_of_its_own)
{
	for (int a = 0; a <= WIRE_E_FDS; a++)
		for (int b = 0; b < a; b++)
			cr_assert_str_neq(wire_error_text(a), wire_error_text(b));
}
