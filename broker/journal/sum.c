/* SPDX-License-Identifier: MIT */

/* The checksum of all that is in the journal. It finds what goes wrong by itself, but not what
 * somebody has forged. Two inputs of one size that differ in one word never have the same sum of 64
 * bits. */

#include <string.h>

#include "broker/journal/inside.h"

static uint64_t mix(uint64_t sum, uint64_t word)
{
	sum = (sum ^ word) * UINT64_C(0xd6e8feb86659fd93);
	return sum ^ sum >> 32;
}

uint32_t sum_of(uint64_t seed, const void *bytes, size_t size)
{
	const unsigned char *p = bytes;
	uint64_t sum = mix(mix(0, seed), size), word = 0;

	for (; size >= 8; p += 8, size -= 8) {
		memcpy(&word, p, 8);
		sum = mix(sum, word);
	}
	word = 0;
	if (size > 0)
		memcpy(&word, p, size);
	sum = mix(mix(sum, word), seed);
	return (uint32_t)sum ? (uint32_t)sum : 1;
}
