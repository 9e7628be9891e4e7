/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The parts of share-protocol-doc. */

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

struct number {
	const char *name;
	int64_t value;
	const char *text;
};
#define NUMBER(name, text)        \
	{                         \
#name, name, text \
	}

void print_numbers(FILE *out, const char *heading, const struct number *numbers, size_t n);

/* What lies in arrays of bytes, and in shared memory. */
void print_layouts(FILE *out);
