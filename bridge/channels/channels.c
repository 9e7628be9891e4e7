/* SPDX-License-Identifier: MIT */

#include <stdlib.h>
#include <string.h>

#include "bridge/bridge.h"
#include "bridge/channels/inside.h"
#include "bridge/link.h"

int channels_open(struct bridge *b)
{
	b->channels = calloc(1, sizeof(*b->channels));
	if (!b->channels)
		return -1;
	TAILQ_INIT(&b->channels->sources);
	TAILQ_INIT(&b->channels->mirrors);
	return 0;
}

void channels_close(struct bridge *b)
{
	if (!b->channels)
		return;
	sources_close(b);
	mirrors_close(b);
	free(b->channels);
	b->channels = NULL;
}

void channels_down(struct link *l)
{
	sources_down(l);
	mirrors_down(l);
}

static bool read_which(json_t *o, uint32_t *which)
{
	json_int_t value = json_integer_value(json_object_get(o, "which"));

	*which = (uint32_t)value;
	return value > 0 && value <= UINT32_MAX;
}

const char *channels_hear_open(struct link *l, json_t *o)
{
	const char *name = json_string_value(json_object_get(o, "name"));
	uint32_t which;

	return name && read_which(o, &which) ? source_open(l, which, name)
					     : "it wants a channel that is none";
}

const char *channels_hear_begin(struct link *l, json_t *o)
{
	json_int_t next = json_integer_value(json_object_get(o, "next"));
	uint32_t which;

	return next > 0 && read_which(o, &which) ? source_begin(l, which, (uint64_t)next)
						 : "it begins what is no channel";
}

const char *channels_hear_opened(struct link *l, json_t *o)
{
	uint32_t which;

	return read_which(o, &which) ? mirror_opened(l, which, o) : "it opened what is no channel";
}

const char *channels_hear_closed(struct link *l, json_t *o)
{
	uint32_t which;

	return read_which(o, &which) ? mirror_closed(l, which) : "it closed what is no channel";
}

const char *channels_content(struct link *l, const struct data_header *h, struct parcel *p)
{
	return h->kind == DATA_TAKEN ? source_taken(l, h) : mirror_message(l, h, p);
}

json_t *channels_describe(struct bridge *b, const struct link *l)
{
	json_t *list = sources_describe(b, l), *mirrors = mirrors_describe(b, l);

	json_array_extend(list, mirrors);
	json_decref(mirrors);
	return list;
}
