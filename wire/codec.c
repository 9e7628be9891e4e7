/* SPDX-License-Identifier: MIT */

/*
 * Turns messages into packets and back. This file knows the table of messages. It trusts nothing
 * that it reads, allocates nothing and does no I/O; it must not know what a message means.
 *
 * A packet is: u16 type, u16 size of the fixed part, u32 serial, the fixed part, and then the bytes
 * of the variable fields one after the other. The packet says how large the fixed part of its
 * sender is, so each side may know fields that the other does not know. So bytes behind the last
 * field that is known are nobody's fault: what has to be read there, the number of a packet, is
 * taken off first.
 */

#include <stdbool.h>
#include <string.h>

#include <share/error.h>

#include "wire/wire.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "fixed fields are copied as they are: they are little-endian on the wire");

static bool is_variable(const struct wire_field *f)
{
	return f->max > 0;
}

static uint16_t get_u16(const unsigned char *p)
{
	uint16_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}

static uint32_t get_u32(const unsigned char *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}

/* What the wire does not know, or we do not, is 0: an error nevertheless, of a kind that cannot be
 * said. */
static int32_t error_to_wire(int32_t error)
{
	switch (error) {
#define TO(name, number) \
	case name:       \
		return number;
		WIRE_ERRORS(TO)
#undef TO
	default:
		return 0;
	}
}

static int32_t error_from_wire(int32_t number_)
{
	switch (number_) {
#define FROM(name, number) \
	case number:       \
		return name;
		WIRE_ERRORS(FROM)
#undef FROM
	default:
		return 0;
	}
}

static const unsigned char *body_of(const struct wire_message *m)
{
	/* All members of the union start at the address of the first one. */
	return (const unsigned char *)&m->hello;
}

size_t wire_encode(const struct wire_message *m, void *buffer, size_t size)
{
	const struct wire_description *d = wire_describe(m->type);
	unsigned char *out = buffer, *fixed = out + WIRE_HEADER_SIZE, *variable;

	if (!d || size < (size_t)WIRE_HEADER_SIZE + d->fixed_size)
		return 0;
	variable = fixed + d->fixed_size;
	memcpy(out, &(uint16_t){(uint16_t)m->type}, 2);
	memcpy(out + 2, &d->fixed_size, 2);
	memcpy(out + 4, &m->serial, 4);

	for (size_t i = 0; i < d->n_fields; i++) {
		const struct wire_field *f = &d->fields[i];
		const unsigned char *member = body_of(m) + f->offset;

		if (is_variable(f)) {
			struct wire_bytes bytes;

			memcpy(&bytes, member, sizeof(bytes));
			if (bytes.size > f->max || bytes.size > size - (size_t)(variable - out))
				return 0;
			memcpy(fixed, &bytes.size, 4);
			if (bytes.size)
				memcpy(variable, bytes.data, bytes.size);
			variable += bytes.size;
		} else if (f->is_error) {
			int32_t error;

			memcpy(&error, member, sizeof(error));
			error = error_to_wire(error);
			memcpy(fixed, &error, sizeof(error));
		} else {
			memcpy(fixed, member, f->size);
		}
		fixed += f->size;
	}
	return (size_t)(variable - out);
}

void wire_peek(const void *data, size_t size, unsigned *type, uint32_t *serial)
{
	const unsigned char *in = data;

	*type = size < WIRE_HEADER_SIZE ? 0 : get_u16(in);
	*serial = size < WIRE_HEADER_SIZE ? 0 : get_u32(in + 4);
}

int wire_decode(struct wire_message *m, enum wire_direction direction, const void *data,
		size_t size, size_t n_fds)
{
	const unsigned char *in = data, *fixed, *fixed_end, *variable, *end = in + size;
	const struct wire_description *d;
	unsigned char *body;

	memset(m, 0, sizeof(*m));
	if (size < WIRE_HEADER_SIZE)
		return WIRE_E_TRUNCATED;
	m->serial = get_u32(in + 4);
	d = wire_describe(get_u16(in));
	if (!d || d->direction != direction)
		return WIRE_E_UNKNOWN;
	m->type = (enum wire_type)get_u16(in);

	fixed = in + WIRE_HEADER_SIZE;
	if (get_u16(in + 2) < d->fixed_size_min || get_u16(in + 2) > (size_t)(end - fixed))
		return WIRE_E_TRUNCATED;
	fixed_end = variable = fixed + get_u16(in + 2);

	body = (unsigned char *)&m->hello;
	for (size_t i = 0; i < d->n_fields && fixed + d->fields[i].size <= fixed_end; i++) {
		const struct wire_field *f = &d->fields[i];

		if (is_variable(f)) {
			struct wire_bytes bytes = {variable, get_u32(fixed)};

			if (bytes.size > f->max)
				return WIRE_E_TOO_LARGE;
			if (bytes.size > (size_t)(end - variable))
				return WIRE_E_TRUNCATED;
			memcpy(body + f->offset, &bytes, sizeof(bytes));
			variable += bytes.size;
		} else if (f->is_error) {
			int32_t error = error_from_wire((int32_t)get_u32(fixed));

			memcpy(body + f->offset, &error, sizeof(error));
		} else {
			memcpy(body + f->offset, fixed, f->size);
		}
		fixed += f->size;
	}
	return n_fds < d->fds_min || n_fds > d->fds_max ? WIRE_E_FDS : 0;
}

size_t wire_put_number(void *packet, size_t size, uint64_t number)
{
	memcpy((unsigned char *)packet + size, &number, WIRE_NUMBER_SIZE);
	return size + WIRE_NUMBER_SIZE;
}

int wire_take_number(const void *packet, size_t *size, uint64_t *number)
{
	const unsigned char *in = packet;

	*number = UINT64_MAX;
	if (*size < WIRE_HEADER_SIZE)
		return WIRE_E_TRUNCATED;
	if (get_u16(in) == WIRE_ERROR && get_u32(in + 4) == 0)
		return 0;
	if (*size < WIRE_HEADER_SIZE + WIRE_NUMBER_SIZE)
		return WIRE_E_TRUNCATED;
	*size -= WIRE_NUMBER_SIZE;
	memcpy(number, in + *size, WIRE_NUMBER_SIZE);
	return 0;
}

const char *wire_error_text(int error)
{
	switch (error) {
	case WIRE_E_TRUNCATED:
		return "the message is shorter than its own sizes say";
	case WIRE_E_UNKNOWN:
		return "the message is unknown";
	case WIRE_E_TOO_LARGE:
		return "a field of the message is larger than allowed";
	case WIRE_E_FDS:
		return "the message came with the wrong number of descriptors";
	default:
		return "no error";
	}
}
