/* SPDX-License-Identifier: MIT */

/*
 * Importing a segment of any kind: this file checks the recipe, which comes from another process,
 * and calls the importer of the kind. It must not know any driver.
 */

#include <share/error.h>

#include "base/failure.h"
#include "memory/adopt.h"
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
	int r = memory_recipe_check(kind, recipe, failure);

	if (r == 0 && !memory_adopted_here(recipe, &m))
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

	/* which devices reach what this process has made itself is its own business */
	return importer->reach && !m->own ? importer->reach(m, failure) : 0;
}

bool memory_is_lost(const struct memory_mapping *m)
{
	const struct memory_importer *importer;

	if (!m->address || m->own || !m->kind->of_maker)
		return false;
	importer = importer_of(m->kind);
	return importer->is_lost && importer->is_lost(m);
}

int memory_fail_lost(struct failure *failure)
{
	return failure_set(
	    failure, SHARE_EOWNERDEAD,
	    "the process that made this memory has ended, and memory of kind legacy is "
	    "gone with its maker");
}

void memory_unmap(struct memory_mapping *m)
{
	if (m->own)
		memory_adopted_unref(m->own);
	else if (m->address)
		importer_of(m->kind)->unmap(m);
	*m = (struct memory_mapping){.ordinal = -1};
}
