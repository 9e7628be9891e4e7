/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define TIB (UINT64_C(1) << 40)

enum size_error {
	SIZE_EINVALID = 1, /* not a number, or not a unit */
	SIZE_EOVERFLOW,    /* 2^64 bytes or more */
	SIZE_EINEXACT,     /* not a whole number of bytes */
};

/**
 * Reads a number of bytes: decimal digits with an optional fraction, then an optional space and
 * KiB, MiB, GiB or TiB. "512", "64KiB", "1.5 GiB". Returns 0 or enum size_error; @out is written
 * on success only.
 */
int size_parse(const char *text, uint64_t *out);

#define SIZE_TEXT_MAX 24

/** Writes @bytes the way size_parse() reads it, in the largest unit that leaves no fraction.
 * Returns @out. */
char *size_format(uint64_t bytes, char out[static SIZE_TEXT_MAX]);

/** The same for people who want to know how much it is, not exactly: "1.9GiB", "1000B". */
char *size_round(uint64_t bytes, char out[static SIZE_TEXT_MAX]);

#define SIZE_EXACT_MAX 56

/** Exactly, for people: "64KiB", "65537 bytes", "5000000000 bytes (4.7GiB)". Returns
 * @out. */
char *size_exact(uint64_t bytes, char out[static SIZE_EXACT_MAX]);

/** As size_format(), and how much that is where it takes many digits: "1536MiB",
 * "11.8GiB (12342048KiB)". Returns @out. */
char *size_tell(uint64_t bytes, char out[static SIZE_EXACT_MAX]);
