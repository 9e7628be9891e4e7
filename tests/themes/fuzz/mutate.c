/* SPDX-License-Identifier: MIT */

/*
 * Mutations that know what a packet is. What the fuzzer does by itself to bytes seldom makes a
 * message that gets beyond the codec, and next to never the request that has to come third. So half
 * of the mutations are of records: one more message with plausible fields, made from the table
 * of all messages, a record again, elsewhere or no more, or a change within one record alone, whose
 * size stays right.
 *
 * Records are those of fuzz_broker: a byte that says what and who, two of size, and so many bytes.
 */

#include <string.h>

#include "tests/themes/fuzz/fuzz.h"
#include "wire/wire.h"

#define HEAD         3 /* bytes of a record before its own */
#define MESSAGE_MAX  512
#define PLACES       64
#define TOKEN        32
#define PLACEHOLDER  0xee
#define HIGHEST_TYPE 63

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* xorshift: the same seed is the same mutation */
static uint32_t state;

static uint32_t any(uint32_t n)
{
	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state % n;
}

/* Identifiers that a new broker gives, sizes, timelines of its clients; and what is none of it. */
static uint64_t plausible(void)
{
	static const uint64_t sizes[] = {
	    0, 1, 64, 100, 4096, 1 << 20, (1 << 20) + 1, UINT32_MAX, UINT64_MAX};

	switch (any(8)) {
	case 0:
	case 1:
	case 2:
		return any(5);
	case 3:
		return (uint64_t)(1 + any(2)) << 32 | any(4);
	case 4:
		return WIRE_TIMELINE(1 + any(3), any(4));
	case 5:
		return sizes[any(sizeof(sizes) / sizeof(sizes[0]))];
	case 6:
		return 1u << any(16);
	default:
		return (uint64_t)any(UINT32_MAX) << 32 | any(UINT32_MAX);
	}
}

static const char *const texts[] = {
    "default",    "gate",     "a",     "one",  "mine/x",
    "c",          "channels", "users", "host", "[{\"user\": \"*\", \"mode\": \"rw\"}]",
    "{\"a\": 1}",
};

static struct wire_bytes plausible_bytes(const struct wire_field *f)
{
	static unsigned char token[TOKEN];
	const char *text = texts[any(sizeof(texts) / sizeof(texts[0]))];
	size_t size = strlen(text);

	memset(token, PLACEHOLDER, sizeof(token));
	if (f->max == TOKEN)
		return (struct wire_bytes){token, any(4) ? TOKEN : 0};
	if (any(4) == 0)
		size = 0;
	return (struct wire_bytes){text, (uint32_t)(size < f->max ? size : f->max)};
}

/* A message to the broker, as a record. Returns its size. */
static size_t make_record(uint8_t *out)
{
	const struct wire_description *d;
	struct wire_message m = {.serial = any(3)};
	uint8_t *body = (uint8_t *)&m.hello;
	size_t size;

	do {
		m.type = (enum wire_type)any(HIGHEST_TYPE + 1);
		d = wire_describe(m.type);
	} while (!d || d->direction != WIRE_TO_BROKER);
	for (size_t i = 0; i < d->n_fields; i++) {
		const struct wire_field *f = &d->fields[i];

		if (f->max > 0) {
			struct wire_bytes bytes = plausible_bytes(f);

			memcpy(body + f->offset, &bytes, sizeof(bytes));
		} else {
			uint64_t value = plausible();

			memcpy(body + f->offset, &value, f->size);
		}
	}
	size = wire_encode(&m, out + HEAD, MESSAGE_MAX);
	out[0] = (uint8_t)(any(3) << 4);
	memcpy(out + 1, &(uint16_t){(uint16_t)size}, 2);
	return HEAD + size;
}

/* Whether a record of this kind has bytes of its own is fuzz_broker's to say: see obey(). */
static bool has_bytes(uint8_t head)
{
	uint8_t what = head & 0xf;

	return (what < 10 && what != 6) || what == 15;
}

/* Where up to PLACES records begin. */
static size_t find_records(const uint8_t *data, size_t size, size_t *places)
{
	size_t n = 0, at = 1;

	while (n < PLACES && at + HEAD <= size) {
		uint16_t own;

		places[n++] = at;
		memcpy(&own, data + at + 1, sizeof(own));
		at += HEAD + (has_bytes(data[at]) ? own : 0);
	}
	return n;
}

/* @what takes the place of so many bytes. */
static size_t splice(uint8_t *data, size_t size, size_t max_size, size_t at, size_t removed,
		     const uint8_t *what, size_t what_size)
{
	if (at + removed > size || size - removed + what_size > max_size)
		return size;
	memmove(data + at + what_size, data + at + removed, size - at - removed);
	if (what_size > 0)
		memcpy(data + at, what, what_size);
	return size - removed + what_size;
}

static size_t change_within(uint8_t *data, size_t size, size_t max_size, size_t at, size_t end)
{
	static uint8_t copy[1 << 16];
	size_t own = end - at - HEAD, room = own + 16 < sizeof(copy) ? own + 16 : sizeof(copy);

	if (own == 0 || own > room || !has_bytes(data[at]))
		return size;
	memcpy(copy, data + at + HEAD, own);
	room = LLVMFuzzerMutate(copy, own, room);
	memcpy(data + at + 1, &(uint16_t){(uint16_t)room}, 2);
	if (size - own + room > max_size) {
		memcpy(data + at + 1, &(uint16_t){(uint16_t)own}, 2);
		return size;
	}
	return splice(data, size, max_size, at + HEAD, own, copy, room);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	size_t places[PLACES], n, i, end, to;
	uint8_t record[HEAD + MESSAGE_MAX], copy[HEAD + MESSAGE_MAX];

	state = seed | 1;
	n = find_records(data, size, places);
	if (n == 0 || any(2))
		return LLVMFuzzerMutate(data, size, max_size);
	i = any((uint32_t)n);
	end = i + 1 < n ? places[i + 1] : size;
	if (end > size)
		end = size;
	to = places[any((uint32_t)n)];
	switch (any(4)) {
	case 0: /* once more, or somewhere else, said by somebody */
		if (end - places[i] > sizeof(copy))
			return size;
		memcpy(copy, data + places[i], end - places[i]);
		if (any(3) == 0)
			copy[0] = (uint8_t)((copy[0] & 0xf) | any(3) << 4);
		return splice(data, size, max_size, to, 0, copy, end - places[i]);
	case 1:
		if (n == 1 || any(2))
			return change_within(data, size, max_size, places[i], end);
		return splice(data, size, max_size, places[i], end - places[i], NULL, 0);
	default:
		return splice(data, size, max_size, any(2) ? to : size, 0, record,
			      make_record(record));
	}
}
