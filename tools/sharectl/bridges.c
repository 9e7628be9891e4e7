/* SPDX-License-Identifier: MIT */

/*
 * What bridges say of themselves: each has a name below "bridge/", and its state is the metadata of
 * that name. The broker knows nothing of bridges.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "tools/sharectl/bridges.h"

#define PREFIX "bridge/"

struct names {
	char **all;
	size_t n;
};

static int remember(const share_name_info *info, void *data)
{
	struct names *names = data;
	char **longer = realloc(names->all, (names->n + 1) * sizeof(*longer));

	if (!longer)
		return ENOMEM;
	names->all = longer;
	names->all[names->n] = strdup(info->name);
	return names->all[names->n++] ? 0 : ENOMEM;
}

/* NULL: it is gone, or says nothing that makes sense. */
static json_t *read_state(share_client *client, const char *name)
{
	share_buffer *b;
	json_t *state = NULL;
	char *text;

	if (share_lookup(client, name, SHARE_RDONLY, 0, NULL, &b) != 0)
		return NULL;
	if (share_metadata_get(b, &text) == 0) {
		state = json_loads(text, 0, NULL);
		free(text);
	}
	share_release(b, NULL);
	return state;
}

/* @link NULL: the bridge has none at this time. */
static int tell_row(json_t *state, json_t *link, int (*each)(const char *json, void *data),
		    void *data)
{
	json_t *row = json_pack("{s:O?, s:O?}", "site", json_object_get(state, "site"), "pid",
				json_object_get(state, "pid"));
	char *text = NULL;
	int r;

	if (row && (!link || json_object_update(row, link) == 0))
		text = json_dumps(row, JSON_COMPACT);
	json_decref(row);
	r = text ? each(text, data) : ENOMEM;
	free(text);
	return r;
}

static int tell(json_t *state, int (*each)(const char *json, void *data), void *data)
{
	json_t *link, *links = json_object_get(state, "links");
	size_t i;
	int r = 0;

	if (json_array_size(links) == 0)
		return tell_row(state, NULL, each, data);
	json_array_foreach (links, i, link) {
		if (json_is_object(link)) /* else no bridge has said it */
			r = tell_row(state, link, each, data);
		if (r != 0)
			return r;
	}
	return 0;
}

int bridges_each(share_client *client, int (*each)(const char *json, void *data), void *data)
{
	struct names names = {0};
	int r = share_list(client, PREFIX, remember, &names);

	for (size_t i = 0; i < names.n; i++) {
		json_t *state = r == 0 ? read_state(client, names.all[i]) : NULL;

		if (state)
			r = tell(state, each, data);
		json_decref(state);
		free(names.all[i]);
	}
	free(names.all);
	return r;
}
