/* SPDX-License-Identifier: MIT */

/* Publishing, looking up, listing. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/probe.h"
#include "libshare/client/inspect.h"
#include "libshare/handover/inside.h"
#include "libshare/program/range.h"

int share_publish_with(share_buffer *b, const char *name, const share_publish_options *options,
		       void *stream, uint64_t *version)
{
	RANGE("share_publish", 0);
	HAZARDS;
	share_publish_options o;
	struct wire_message m = {.type = WIRE_PUBLISH};
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	unsigned char room[SHARE_TENSOR_ENCODED_MAX];
	struct wire_bytes tensor;
	share_fence fence;
	int r = buffer_resolve(&b);

	if (r == 0)
		r = struct_in(share_publish_options, &o, options);
	if (r == 0 && o.mode)
		r = mode_check((int)o.mode);
	if (r == 0)
		r = name_check(name);
	if (r == 0)
		r = tensor_for_request(b, o.tensor, room, &tensor);
	if (r == 0)
		r = buffer_make_known(b, stream, &fence);
	if (r != 0)
		return r;
	m.publish = (struct wire_publish){
	    .buffer = b->id,
	    .timeline = fence.timeline,
	    .value = fence.value,
	    .expected = o.expected_version,
	    .flags = o.flags,
	    .mode = (o.mode ? o.mode : SHARE_RDWR) & b->mode,
	    .size = b->home ? b->size : 0,
	    .name = wire_text(name),
	    .tensor = tensor,
	};
	r = rpc(b->client, &m, &reply);
	if (r != 0)
		return r;
	PROBE(publish, b->id, name, reply.m.published.version);
	if (version)
		*version = reply.m.published.version;
	return 0;
}

int share_unpublish(share_client *c, const char *name)
{
	HAZARDS;
	struct wire_message m = {.type = WIRE_UNPUBLISH};
	int r = client_resolve(&c);

	if (r == 0)
		r = name_check(name);
	if (r != 0)
		return r;
	m.unpublish.name = wire_text(name);
	return rpc(c, &m, NULL);
}

void lookup_message(struct wire_message *m, const char *name, int mode, int timeout_ms)
{
	*m = (struct wire_message){.type = WIRE_LOOKUP};
	m->lookup.mode = (uint32_t)mode;
	m->lookup.timeout = timeout_ms;
	m->lookup.name = wire_text(name);
}

int lookup_check(share_client **c, const char *name, int mode, int timeout_ms, void *stream)
{
	int r = client_resolve(c);

	if (r == 0 && timeout_ms < -1)
		r = fail(SHARE_EINVAL, "a time limit is -1, 0, or milliseconds");
	if (r == 0)
		r = name_check(name);
	if (r == 0)
		r = mode_check(mode);
	return r != 0 ? r : stream_check(*c, NULL, stream);
}

int share_lookup(share_client *c, const char *name, int mode, int timeout_ms, void *stream,
		 share_buffer **out)
{
	RANGE("share_lookup", 0);
	HAZARDS;
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	int64_t deadline = deadline_from(timeout_ms);
	struct wire_message m;
	share_buffer *b;
	int r;

	if (!out)
		return fail(SHARE_EINVAL, "out is NULL");
	r = lookup_check(&c, name, mode, timeout_ms, stream);
	if (r != 0)
		return r;
	client_ref(c);
	lookup_message(&m, name, mode, timeout_ms);
	r = rpc(c, &m, &reply);
	if (r == 0)
		r = buffer_from_grant(c, &reply.m.grant, stream, deadline_left(deadline), &b);
	if (r == 0)
		*out = handle_give(b);
	client_unref(c);
	return r;
}

/* ------------------------------------------------------------------------------------------- */

struct listing {
	int (*each)(const share_name_info *info, void *data);
	void *data;
};

static int report_name(const char *json, void *data)
{
	struct listing *l = data;
	json_t *row = json_loads(json, 0, NULL);
	const char *name, *pool, *buffer;
	json_int_t version, size, uid;
	int persistent, r;

	if (!row) /* the broker sends JSON: what it takes to read it is memory */
		return fail_system(-ENOMEM, "reading a name");
	if (json_unpack(row, "{s:s, s:s, s:I, s:s, s:I, s:I, s:b}", "name", &name, "pool", &pool,
			"version", &version, "buffer", &buffer, "size", &size, "uid", &uid,
			"persistent", &persistent) < 0) {
		json_decref(row);
		return fail(SHARE_EPROTO, "the broker sent a name this library cannot read");
	}
	r = l->each(&(share_name_info){.name = name,
				       .version = (uint64_t)version,
				       .buffer = strtoull(buffer, NULL, 16),
				       .size = (uint64_t)size,
				       .pool = pool,
				       .uid = (uint32_t)uid,
				       .persistent = (uint32_t)persistent},
		    l->data);
	json_decref(row);
	return r;
}

int share_list(share_client *c, const char *prefix,
	       int (*each)(const share_name_info *info, void *data), void *data)
{
	HAZARDS;
	struct listing l = {each, data};

	int r = client_resolve(&c);

	if (r == 0 && !each)
		r = fail(SHARE_EINVAL, "the callback is NULL");
	return r != 0 ? r : inspect(c, "names", prefix ? prefix : "", report_name, &l);
}
