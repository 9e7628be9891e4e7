/* SPDX-License-Identifier: MIT */

/* Recipes: the identity of a segment, and the name of the device that it is on. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "memory/export.h"

void memory_identify(struct memory_recipe *recipe)
{
	/* The kernel never returns less than what was asked for up to 256 bytes, so this fails only
	 * if it has no such call. */
	if (getrandom(recipe->identity, sizeof(recipe->identity), 0) !=
	    (ssize_t)sizeof(recipe->identity))
		abort();
}

void memory_uuid_text(const unsigned char uuid[16], char out[MEMORY_UUID_TEXT])
{
	const unsigned char *u = uuid;

	snprintf(out, MEMORY_UUID_TEXT,
		 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
		 u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
		 u[14], u[15]);
}

void memory_recipe_device(const struct memory_recipe *recipe, char out[MEMORY_UUID_TEXT])
{
	memory_uuid_text(recipe->device, out);
	if (recipe->flags & MEMORY_ON_MIG)
		memcpy(out, "MIG-", 4);
}

/* After "GPU-" or "MIG-" come 8-4-4-4-12 hexadecimal digits. */
bool memory_uuid_parse(const char *text, unsigned char out[16])
{
	const char *p = text + 4;

	if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0)
		return false;
	for (size_t i = 0; i < 16; i++) {
		unsigned byte;
		int used = 0;

		if ((i == 4 || i == 6 || i == 8 || i == 10) && *p++ != '-')
			return false;
		if (strspn(p, "0123456789abcdefABCDEF") < 2 ||
		    sscanf(p, "%2x%n", &byte, &used) != 1 || used != 2)
			return false;
		out[i] = (unsigned char)byte;
		p += 2;
	}
	return *p == '\0';
}
