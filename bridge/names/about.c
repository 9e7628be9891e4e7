/* SPDX-License-Identifier: MIT */

#include "bridge/names/about.h"

#include <stdlib.h>
#include <string.h>

#include "bridge/settings.h"

json_t *about_read(share_buffer *b)
{
	json_t *metadata;
	char *text;

	if (share_metadata_get(b, &text) != 0)
		return json_null();
	metadata = json_loads(text, 0, NULL);
	free(text);
	return metadata ? metadata : json_null();
}

json_t *about_path(const json_t *metadata, const char *own, const char *peer)
{
	const json_t *before = json_object_get(json_object_get(metadata, "bridge"), "path");
	json_t *path = json_array(), *site;
	bool loop = false;
	size_t i;

	json_array_foreach (before, i, site) {
		if (!json_is_string(site) || !settings_is_site(json_string_value(site)))
			continue;
		loop = loop || strcmp(json_string_value(site), peer) == 0;
		json_array_append(path, site);
	}
	json_array_append_new(path, json_string(own));
	if (!loop && json_array_size(path) <= ABOUT_SITES_MAX)
		return path;
	json_decref(path);
	return NULL;
}

json_t *about_bare(const json_t *metadata)
{
	json_t *bare = json_copy((json_t *)(uintptr_t)metadata);

	json_object_del(bare, "bridge");
	if (json_dumpb(bare, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) <= SHARE_METADATA_MAX)
		return bare;
	json_decref(bare);
	return NULL;
}

json_t *about_describe(const json_t *content, const char *own, json_int_t version, bool *loop)
{
	json_t *metadata = json_object_get(content, "metadata"),
	       *path = json_object_get(content, "path"), *about, *site;
	size_t i;

	*loop = false;
	if (!json_is_array(path) || json_array_size(path) == 0 ||
	    json_array_size(path) > ABOUT_SITES_MAX)
		return NULL;
	json_array_foreach (path, i, site) {
		if (!json_is_string(site))
			return NULL;
		if (strcmp(json_string_value(site), own) == 0)
			*loop = true;
	}
	if (*loop)
		return NULL;
	about = json_is_object(metadata) ? json_copy(metadata) : json_object();
	if (json_is_array(metadata))
		json_object_set(about, "value", metadata);
	json_object_set_new(about, "bridge",
			    json_pack("{s:O, s:I}", "path", path, "version", version));
	return about;
}
