/* SPDX-License-Identifier: MIT */

/* What is to be seen here of a name of a peer: the buffer, its metadata, and that it may be out of
 * date. */

#include <stdlib.h>
#include <string.h>

#include "bridge/bridge.h"
#include "bridge/hex.h"
#include "bridge/link.h"
#include "bridge/names/inside.h"

/* Metadata as it was over there, with where it came from. */
static int set_metadata(json_t *about, share_buffer *b, bool stale)
{
	json_t *bridge = json_object_get(about, "bridge");
	char *text;
	int r;

	json_object_set_new(bridge, "stale", json_boolean(stale));
	text = json_dumps(about, JSON_COMPACT);
	r = text ? share_metadata_set(b, text) : SHARE_ENOMEM;
	free(text);
	return r;
}

void name_in_mark(struct name_in *n, bool stale)
{
	json_t *about;
	char *text;

	if (!n->held || n->stale == stale)
		return;
	if (share_metadata_get(n->held, &text) != 0)
		return;
	about = json_loads(text, 0, NULL);
	free(text);
	if (about && set_metadata(about, n->held, stale) == 0)
		n->stale = stale;
	json_decref(about);
}

static int publish(const struct name_in *n, share_buffer *b, uint64_t *version)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_tensor tensor = SHARE_TENSOR_INIT;
	unsigned char bytes[SHARE_TENSOR_ENCODED_MAX];
	size_t size = n->tensor ? hex_read(n->tensor, bytes, sizeof(bytes)) : 0;
	int r;

	if (size > 0 && share_tensor_decode(bytes, size, &tensor) > 0)
		options.tensor = &tensor;
	options.mode = SHARE_RDONLY;
	options.expected_version = n->published;
	options.flags = n->published ? 0 : SHARE_PUBLISH_EXCLUSIVE;
	r = share_publish_with(b, n->local, &options, NULL, version);
	if (r == SHARE_EBUSY || r == SHARE_ENOENT) { /* somebody took it away meanwhile */
		options.expected_version = 0;
		options.flags = SHARE_PUBLISH_EXCLUSIVE;
		r = share_publish_with(b, n->local, &options, NULL, version);
	}
	return r;
}

void name_in_enter(const struct name_in *n, share_buffer *b, struct outcome *out)
{
	int r = set_metadata(n->about, b, false);

	out->described = r == 0;
	if (r == 0)
		r = publish(n, b, &out->version);
	if (r != 0)
		out->why = strdup(share_error_detail());
}

int name_in_entered(struct name_in *n)
{
	struct outcome e = n->outcome;

	n->outcome = (struct outcome){0};
	if (e.described && !e.version && !n->told)
		say("'%s' of %s is not published here: %s", n->local, n->of->link->site,
		    e.why ? e.why : "no memory");
	free(e.why);
	if (e.described)
		n->told = !e.version;
	if (!e.version)
		return -1;
	if (n->held)
		share_release(n->held, NULL);
	n->held = reach_take(&n->arrival->reach);
	n->published = e.version;
	n->have = n->coming;
	n->stale = false;
	return 0;
}

/* Only what this side has published: somebody else may have the name by now. */
void name_in_withdraw(struct name_in *n)
{
	struct bridge *b = name_in_bridge(n);
	share_buffer *now;

	if (n->published && share_lookup(b->client, n->local, SHARE_RDONLY, 0, NULL, &now) == 0) {
		if (share_name_version(now) == n->published)
			share_unpublish(b->client, n->local);
		share_release(now, NULL);
	}
	n->published = 0;
	if (n->held)
		share_release(n->held, NULL);
	n->held = NULL;
}
