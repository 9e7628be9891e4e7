/* SPDX-License-Identifier: MIT */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/hex.h"

char *hex_make(const void *bytes, size_t n)
{
	char *text = malloc(2 * n + 1);

	for (size_t i = 0; text && i < n; i++)
		snprintf(text + 2 * i, 3, "%02x", ((const unsigned char *)bytes)[i]);
	return text;
}

size_t hex_read(const char *text, void *out, size_t room)
{
	size_t n = strlen(text) / 2;

	if (n > room || strlen(text) % 2 != 0)
		return 0;
	for (size_t i = 0; i < n; i++) {
		unsigned value;

		if (sscanf(text + 2 * i, "%2x", &value) != 1)
			return 0;
		((unsigned char *)out)[i] = (unsigned char)value;
	}
	return n;
}
