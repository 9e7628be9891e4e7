/* SPDX-License-Identifier: MIT */

#include <string.h>

#include <share/admin.h>
#include <share/channel.h>

#include "bridge/bridge.h"
#include "bridge/shape.h"

struct search {
	const char *name;
	json_t *found;
};

static int look_at(const char *json, void *arg)
{
	struct search *search = arg;
	json_t *o = json_loads(json, 0, NULL);
	const char *name = json_string_value(json_object_get(o, "channel"));

	if (name && strcmp(name, search->name) == 0) {
		search->found = o;
		return 1;
	}
	json_decref(o);
	return 0;
}

json_t *shape_of(struct bridge *b, const char *channel)
{
	struct search search = {.name = channel};

	share_inspect(b->client, "channels", look_at, &search);
	return search.found;
}

uint32_t shape_number(const json_t *shape, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(shape, key));

	return value > 0 && value <= UINT32_MAX ? (uint32_t)value : 0;
}

bool shape_has_parts(const json_t *shape)
{
	return shape_number(shape, "buffers") > 1 ||
	       shape_number(shape, "data_max") > SHARE_MESSAGE_DATA_MAX;
}
