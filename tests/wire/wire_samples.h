/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/wire.h"

/* What the tests of the codec have in common: messages made from the table alone. */

#define FOR_EACH_MESSAGE(type, d)                               \
	for (unsigned type = 0; type < WIRE_TYPE_COUNT; type++) \
		for (const struct wire_description *d = wire_describe(type); d; d = NULL)

/* The same numbers in every run: a failure can be looked at again. */
size_t random_below(size_t n);
void random_bytes(void *out, size_t size);

/* Room for a packet and what is wrong with it. Each test is a process of its own. */
#define ROOM ((size_t)2 * WIRE_PACKET_MAX)
extern unsigned char packet[ROOM];

/* The last @size bytes before memory that cannot be touched, and a copy there: one byte read or
 * written too far is a crash, with sanitizers and without. */
unsigned char *edge(size_t size);
unsigned char *at_the_edge(const void *data, size_t size);

/* Random content; variable fields have up to @cap bytes, or exactly their maximum if it is 0. */
void fill(struct wire_message *m, unsigned type, uint32_t cap);

struct wire_bytes bytes_of(struct wire_message *m, const struct wire_field *f);
void set_bytes(struct wire_message *m, const struct wire_field *f, const void *data, uint32_t size);

bool field_is_zero(struct wire_message *m, const struct wire_field *f);
bool field_is_same(struct wire_message *a, struct wire_message *b, const struct wire_field *f);
void assert_same(struct wire_message *sent, struct wire_message *got);

/* Fields that a receiver can be led to read have to lie in the packet. */
void assert_inside(struct wire_message *m, const unsigned char *in, size_t size);

/* As wire_encode(), which must succeed, and wire_decode(), with the direction and descriptors of
 * the table. */
size_t encode(const struct wire_message *m, void *out);
int decode(struct wire_message *m, const struct wire_description *d, const void *in, size_t size);

/* Parts of a packet: its 16-bit words, and where the @i-th field lies. */
uint16_t word(const unsigned char *p);
void set_word(unsigned char *p, size_t value);
size_t position(const struct wire_description *d, size_t i);
