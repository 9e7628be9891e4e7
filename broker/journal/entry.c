/* SPDX-License-Identifier: MIT */

/* One entry: how large it is, where, and what its checksum says. */

#include <string.h>

#include "broker/journal/inside.h"

/* Sizes of entries are steps of 8 bytes up to 64, and then four to each power of two. */
uint32_t class_of(size_t entry_size)
{
	uint32_t log;

	if (entry_size <= 64)
		return (uint32_t)((entry_size + 7) / 8);
	log = 63 - (uint32_t)__builtin_clzl(entry_size - 1);
	return 8 + (log - 6) * 4 + (uint32_t)((entry_size - 1) >> (log - 2) & 3) + 1;
}

uint32_t size_of_class(uint32_t class)
{
	uint32_t log;

	if (class <= 8)
		return class * 8;
	log = 6 + (class - 9) / 4;
	return (UINT32_C(1) << log) + ((class - 9) % 4 + 1) * (UINT32_C(1) << (log - 2));
}

unsigned char *entry_at(const struct journal *j, uint32_t place)
{
	return j->memory + (uint64_t)place * PLACE_UNIT;
}

uint32_t entry_place(const struct journal *j, const unsigned char *entry)
{
	return (uint32_t)((uint64_t)(entry - j->memory) / PLACE_UNIT);
}

uint32_t entry_sum_now(const unsigned char *entry)
{
	uint32_t sum;

	memcpy(&sum, entry, sizeof(sum));
	return sum;
}

static uint64_t entry_seed(enum record_type type, uint32_t place)
{
	return (uint64_t)type << 32 | place;
}

/* A record that was put has an odd checksum, one that is written in place an even one. */
uint32_t entry_sum(enum record_type type, uint32_t place, const void *bytes, size_t size)
{
	return sum_of(entry_seed(type, place), bytes, size) | 1;
}

uint32_t entry_sum_in_place(enum record_type type, uint32_t place)
{
	uint32_t sum = sum_of(entry_seed(type, place), NULL, 0) & ~UINT32_C(1);

	return sum ? sum : 2;
}
