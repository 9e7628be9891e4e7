/* SPDX-License-Identifier: MIT */

/*
 * Old and new talk to each other: what happens to fields that one side does not know.
 *
 * wire_describe() is wrapped by the linker (see CMakeLists.txt): the table has few fields younger
 * than the oldest version, and the rules for those have to hold for any that may come.
 */

#include <string.h>

#include <criterion/criterion.h>

#include "tests/wire/wire_samples.h"

TestSuite(codec_versions, .timeout = 60);

static const struct wire_description *pretended;
static unsigned pretended_type;

const struct wire_description *__real_wire_describe(unsigned type);
const struct wire_description *__wrap_wire_describe(unsigned type);

const struct wire_description *__wrap_wire_describe(unsigned type)
{
	return pretended && type == pretended_type ? pretended : __real_wire_describe(type);
}

/* What a sender writes whose fixed part has only @fixed bytes of ours. */
static size_t encode_older(struct wire_message *m, const struct wire_description *d, size_t fixed)
{
	unsigned char whole[WIRE_PACKET_MAX];
	size_t end = WIRE_HEADER_SIZE + fixed;

	encode(m, whole);
	memcpy(packet, whole, end);
	set_word(packet + 2, fixed);
	for (size_t i = 0; i < d->n_fields; i++) {
		const struct wire_field *f = &d->fields[i];

		if (f->max && position(d, i) + f->size <= WIRE_HEADER_SIZE + fixed) {
			struct wire_bytes bytes = bytes_of(m, f);

			if (bytes.size)
				memcpy(packet + end, bytes.data, bytes.size);
			end += bytes.size;
		}
	}
	return end;
}

/* As if every field from the @first-th on were of a later version. */
static struct wire_description younger(const struct wire_description *d, size_t first)
{
	struct wire_description y = *d;

	y.fixed_size_min = (uint16_t)(position(d, first) - WIRE_HEADER_SIZE);
	return y;
}

Test(codec_versions, what_an_older_sender_left_out_reads_as_zero)
{
	struct wire_message sent, got;

	FOR_EACH_MESSAGE(type, d)
	{
		for (size_t first = 0; first <= d->n_fields; first++) {
			struct wire_description y = younger(d, first);

			pretended = &y;
			pretended_type = type;
			for (size_t fixed = y.fixed_size_min; fixed <= d->fixed_size; fixed++) {
				size_t size;

				fill(&sent, type, 20);
				size = encode_older(&sent, d, fixed);
				cr_assert_eq(decode(&got, d, at_the_edge(packet, size), size), 0,
					     "%s with %zu fixed bytes", d->name, fixed);
				for (size_t i = 0; i < d->n_fields; i++) {
					const struct wire_field *f = &d->fields[i];
					bool there =
					    position(d, i) + f->size <= WIRE_HEADER_SIZE + fixed;

					cr_assert(there ? field_is_same(&sent, &got, f)
							: field_is_zero(&got, f),
						  "%s.%s with %zu fixed bytes", d->name, f->name,
						  fixed);
				}
			}
			pretended = NULL;
		}
	}
}

Test(codec_versions, what_was_there_from_the_start_must_not_be_left_out)
{
	struct wire_message sent, got;

	FOR_EACH_MESSAGE(type, d)
	{
		for (size_t first = 0; first <= d->n_fields; first++) {
			struct wire_description y = younger(d, first);

			pretended = &y;
			pretended_type = type;
			fill(&sent, type, 20);
			for (size_t fixed = 0; fixed < y.fixed_size_min; fixed++) {
				size_t size = encode_older(&sent, d, fixed);

				cr_assert_eq(decode(&got, d, at_the_edge(packet, size), size),
					     WIRE_E_TRUNCATED, "%s with %zu fixed bytes", d->name,
					     fixed);
			}
			pretended = NULL;
		}
	}
}

Test(codec_versions, what_a_newer_sender_added_is_ignored)
{
	static unsigned char newer[ROOM];
	struct wire_message sent, got;

	FOR_EACH_MESSAGE(type, d)
	{
		for (int round = 0; round < 50; round++) {
			size_t more = random_below(64), trailing = random_below(64), size, fixed;

			fill(&sent, type, 200);
			size = encode(&sent, packet);
			fixed = WIRE_HEADER_SIZE + word(packet + 2);
			memcpy(newer, packet, fixed);
			set_word(newer + 2, fixed - WIRE_HEADER_SIZE + more);
			random_bytes(newer + fixed, more);
			memcpy(newer + fixed + more, packet + fixed, size - fixed);
			random_bytes(newer + size + more, trailing);
			size += more + trailing;
			cr_assert_eq(decode(&got, d, at_the_edge(newer, size), size), 0, "%s",
				     d->name);
			assert_same(&sent, &got);
		}
	}
}
