/* SPDX-License-Identifier: MIT */

/*
 * The codec against any bytes. What it reads it has read within the packet, and says the same when
 * it is written and read again.
 *
 * An input is a byte (bit 0: who sends it; the rest: how many descriptors) and the packet.
 */

#include <string.h>

#include "tests/themes/fuzz/fuzz.h"
#include "wire/wire.h"

static unsigned char first[WIRE_PACKET_MAX], second[WIRE_PACKET_MAX];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	return 0;
}

/* The sanitizers see who reads outside of them. */
static unsigned touch(const struct wire_bytes *b)
{
	unsigned sum = 0;

	for (uint32_t i = 0; i < b->size; i++)
		sum += ((const unsigned char *)b->data)[i];
	return sum;
}

static void touch_all(const struct wire_message *m, const void *packet, size_t size)
{
	const struct wire_description *d = wire_describe(m->type);
	const unsigned char *start = packet;
	unsigned sum = 0;

	for (unsigned i = 0; i < d->n_fields; i++) {
		struct wire_bytes b;

		if (d->fields[i].max == 0)
			continue;
		memcpy(&b, (const char *)&m->hello + d->fields[i].offset, sizeof(b));
		expect(b.size <= d->fields[i].max);
		expect(b.size == 0 || ((const unsigned char *)b.data >= start &&
				       (const unsigned char *)b.data + b.size <= start + size));
		sum += touch(&b);
	}
	__asm__ volatile("" : : "r"(sum)); /* it is wanted */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};
	uint8_t head = input_u8(&in);
	enum wire_direction direction = head & 1 ? WIRE_TO_BROKER : WIRE_TO_CLIENT;
	struct wire_message m, again;
	size_t n, n_again;

	if (wire_decode(&m, direction, in.at, input_left(&in), head >> 1) != 0)
		return 0;
	touch_all(&m, in.at, input_left(&in));
	n = wire_encode(&m, first, sizeof(first));
	expect(n >= WIRE_HEADER_SIZE);
	expect(wire_decode(&again, direction, first, n, head >> 1) == 0);
	expect(again.type == m.type && again.serial == m.serial);
	n_again = wire_encode(&again, second, sizeof(second));
	expect(n_again == n && memcmp(first, second, n) == 0);
	return 0;
}
