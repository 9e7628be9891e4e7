/* SPDX-License-Identifier: MIT */

/* Recipes: the identity of a segment, the name of the device that it is on, and what of a recipe
 * can be right. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <share/error.h>

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

/* ------------------------------------------------------------------------------------------- */

static bool is_any_set(const unsigned char *bytes, size_t n)
{
	unsigned char any = 0;

	for (size_t i = 0; i < n; i++)
		any |= bytes[i];
	return any;
}

bool memory_recipe_on_device(const struct memory_recipe *recipe)
{
	return is_any_set(recipe->device, sizeof(recipe->device));
}

bool memory_recipe_has_handle(const struct memory_recipe *recipe)
{
	return is_any_set(recipe->pointer, sizeof(recipe->pointer));
}

static uint32_t flags_of(const struct memory_kind *kind)
{
	if (kind->on_device)
		return MEMORY_ON_MIG;
	if (kind->id == MEMORY_HOST)
		return MEMORY_HUGE_PAGES | MEMORY_HUGETLB | MEMORY_IS_THERE;
	return kind->id == MEMORY_ADOPTED ? MEMORY_MAY_SHRINK : 0;
}

/* A program makes allocations of any size, which are then of the kind of an agent's. */
static uint64_t unit_of(const struct memory_kind *kind)
{
	return kind->of_maker ? 1 : kind->granularity;
}

int memory_recipe_check(const struct memory_kind *kind, const struct memory_recipe *recipe,
			struct failure *failure)
{
	if (recipe->size == 0 || recipe->size > INT64_MAX - MEMORY_ALIGNMENT ||
	    recipe->size % unit_of(kind) || (kind->segment_max && recipe->size > kind->segment_max))
		return failure_set(failure, SHARE_EPROTO, "no segment of kind %s has %llu bytes",
				   kind->name, (unsigned long long)recipe->size);
	if (recipe->address % MEMORY_ALIGNMENT || recipe->address > INT64_MAX - recipe->size ||
	    (recipe->address && !kind->placeable))
		return failure_set(failure, SHARE_EPROTO, "no segment of kind %s lies at 0x%llx",
				   kind->name, (unsigned long long)recipe->address);
	if (recipe->flags & ~flags_of(kind))
		return failure_set(failure, SHARE_EPROTO, "no segment of kind %s has flags 0x%x",
				   kind->name, recipe->flags);
	if (memory_recipe_on_device(recipe) != kind->on_device)
		return failure_set(failure, SHARE_EPROTO, "a segment of kind %s %s", kind->name,
				   kind->on_device ? "without a device" : "on a device");
	return 0;
}
