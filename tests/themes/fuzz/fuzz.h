/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* A fuzz target, as libFuzzer (or driver.c) calls it. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is left of an input. Reading past its end gives zeros. */
struct input {
	const uint8_t *at, *end;
};

static inline size_t input_left(const struct input *in)
{
	return (size_t)(in->end - in->at);
}

static inline uint8_t input_u8(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

static inline uint16_t input_u16(struct input *in)
{
	uint16_t low = input_u8(in);

	return (uint16_t)(low | input_u8(in) << 8);
}

/* At most @size bytes; how many there were is the result. */
static inline size_t input_bytes(struct input *in, size_t size, const uint8_t **out)
{
	size_t n = size < input_left(in) ? size : input_left(in);

	*out = in->at;
	in->at += n;
	return n;
}

/* What must hold whatever the input is. */
#define expect(condition) ((condition) ? (void)0 : expect_failed(__FILE__, __LINE__, #condition))
static inline void expect_failed(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: BUG: not so: %s\n", file, line, what);
	abort();
}

/* The lowest descriptor that is free: it grows when something was not closed. */
int lowest_free_descriptor(void);

/* The monotonic clock of this program runs on by so much. Back to the real one with 0. */
void clock_advance(int64_t ms);
void clock_reset(void);
