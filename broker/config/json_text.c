/* SPDX-License-Identifier: MIT */

/*
 * JSON that others have written. Without memory jansson (2.14) mostly complains about the text, at
 * some place where nothing is wrong with it, or ignores it. Whoever wrote the text would look for
 * the mistake.
 */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/config/json_text.h"

static _Thread_local bool was_short; /* the configuration is read in a thread */

static void *allocate(size_t size)
{
	void *memory = malloc(size);

	was_short |= !memory;
	return memory;
}

void json_text_init(void)
{
	json_set_alloc_funcs(allocate, free);
}

json_t *json_text_read(const char *text, size_t size, json_error_t *error)
{
	json_t *read;

	*error = (json_error_t){.line = -1};
	was_short = false;
	read = json_loadb(text, size, JSON_REJECT_DUPLICATES, error);
	/* what was read may lack what there was no memory for; an empty complaint is of memory, too
	 */
	if (was_short || (!read && error->text[0] == '\0')) {
		json_decref(read);
		read = NULL;
		snprintf(error->text, sizeof(error->text), "out of memory");
		error->text[sizeof(error->text) - 1] = json_error_out_of_memory;
	}
	return read;
}
