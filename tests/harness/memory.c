/* SPDX-License-Identifier: MIT */

/* Looking into buffers and writing to them, whatever they are made of. */

#include <stdlib.h>
#include <string.h>

#include "tests/harness/check.h"
#include "tests/harness/gate.h"
#include "tests/harness/memory.h"

void buffer_fill(share_buffer *b, int value)
{
	void *bytes = malloc(share_size(b));

	check(bytes);
	memset(bytes, value, share_size(b));
	check_ok(share_copy_from_host(b, 0, bytes, share_size(b), NULL));
	free(bytes);
}

void buffer_expect(share_buffer *b, int value)
{
	void *bytes = malloc(share_size(b));

	check(bytes);
	memset(bytes, ~value, share_size(b));
	check_ok(share_copy_to_host(b, 0, bytes, share_size(b), NULL));
	expect_filled(bytes, value, share_size(b));
	free(bytes);
}

void buffer_write(share_buffer *b, const char *text)
{
	check_ok(share_copy_from_host(b, 0, text, strlen(text) + 1, NULL));
}

bool buffer_reads(share_buffer *b, const char *text)
{
	char got[256] = "";

	check(strlen(text) < sizeof(got));
	check_ok(share_copy_to_host(b, 0, got, strlen(text) + 1, NULL));
	return strcmp(got, text) == 0;
}
