/* SPDX-License-Identifier: MIT */

/*
 * Importing a segment of any kind: this file checks the recipe, which comes from another process,
 * and calls the importer of the kind. It must not know any driver.
 */

#include <share/error.h>

#include "base/failure.h"
#include "memory/importer.h"

#define IMPORTER(NAME, name, ...) &memory_##name##_importer,
static const struct memory_importer *const importers[] = {MEMORY_KINDS(IMPORTER)};

/* Every kind has an importer, so the loop ends. */
static const struct memory_importer *importer_of(const struct memory_kind *kind)
{
	size_t i = 0;

	while (importers[i]->kind != kind->id)
		i++;
	return importers[i];
}

static bool names_device(const struct memory_recipe *recipe)
{
	unsigned char any = 0;

	for (size_t i = 0; i < sizeof(recipe->device); i++)
		any |= recipe->device[i];
	return any;
}

static uint32_t flags_of(const struct memory_kind *kind)
{
	if (kind->on_device)
		return MEMORY_ON_MIG;
	if (kind->id == MEMORY_HOST)
		return MEMORY_HUGE_PAGES | MEMORY_HUGETLB | MEMORY_IS_THERE;
	return kind->id == MEMORY_ADOPTED ? MEMORY_MAY_SHRINK : 0;
}

static int check(const struct memory_kind *kind, const struct memory_recipe *recipe,
		 struct failure *failure)
{
	if (recipe->size == 0 || recipe->size > INT64_MAX - MEMORY_ALIGNMENT ||
	    recipe->size % kind->granularity ||
	    (kind->segment_max && recipe->size > kind->segment_max))
		return failure_set(failure, SHARE_EPROTO, "no segment of kind %s has %llu bytes",
				   kind->name, (unsigned long long)recipe->size);
	if (recipe->address % MEMORY_ALIGNMENT || recipe->address > INT64_MAX - recipe->size ||
	    (recipe->address && !kind->placeable))
		return failure_set(failure, SHARE_EPROTO, "no segment of kind %s lies at 0x%llx",
				   kind->name, (unsigned long long)recipe->address);
	if (recipe->flags & ~flags_of(kind))
		return failure_set(failure, SHARE_EPROTO, "no segment of kind %s has flags 0x%x",
				   kind->name, recipe->flags);
	if (names_device(recipe) != kind->on_device)
		return failure_set(failure, SHARE_EPROTO, "a segment of kind %s %s", kind->name,
				   kind->on_device ? "without a device" : "on a device");
	return 0;
}

int memory_import(const struct memory_kind *kind, const struct memory_recipe *recipe, int fd,
		  bool writable, struct memory_mapping *out, struct failure *failure)
{
	const struct memory_importer *importer = importer_of(kind);
	/* A kind that cannot be mapped read-only is always writable, whatever the caller asked
	 * for. */
	struct memory_mapping m = {
	    .size = recipe->size,
	    .kind = kind,
	    .writable = writable || !kind->readonly,
	    .ordinal = -1,
	};
	int r;

	r = check(kind, recipe, failure);
	if (r == 0)
		r = importer->import(recipe, fd, &m, failure);
	if (r == 0)
		*out = m;
	return r;
}

int memory_make_writable(struct memory_mapping *m, int fd, struct failure *failure)
{
	int r;

	if (m->writable)
		return 0;
	r = importer_of(m->kind)->make_writable(m, fd, failure);
	if (r == 0)
		m->writable = true;
	return r;
}

int memory_reach(struct memory_mapping *m, struct failure *failure)
{
	const struct memory_importer *importer = importer_of(m->kind);

	return importer->reach ? importer->reach(m, failure) : 0;
}

void memory_unmap(struct memory_mapping *m)
{
	if (m->address)
		importer_of(m->kind)->unmap(m);
	*m = (struct memory_mapping){.ordinal = -1};
}
