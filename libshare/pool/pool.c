/* SPDX-License-Identifier: MIT */

/* Pools, as far as a client knows them: an identifier and what it was told. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <share/private/core.h>

#include "base/system/id.h"
#include "libshare/pool/inside.h"
#include "libshare/program/range.h"
#include "memory/stream.h"

static char *text_of(const struct wire_bytes *bytes)
{
	return strndup(bytes->size ? bytes->data : "", bytes->size);
}

static void pool_free(share_pool *p)
{
	if (!p)
		return;
	free(p->name);
	free(p->device);
	free(p->reason);
	handle_free(p);
}

static int pool_from_reply(share_client *c, const char *name, const struct wire_pool *m,
			   share_pool **out)
{
	struct wire_message close = {.type = WIRE_POOL_CLOSE};
	share_pool *p = handle_new(HANDLE_POOL, sizeof(*p));

	if (p) {
		p->name = strdup(name);
		p->device = text_of(&m->device);
		p->reason = text_of(&m->reason);
	}
	if (!p || !p->name || !p->device || !p->reason) {
		pool_free(p);
		close.pool_close.pool = m->pool;
		rpc(c, &close, NULL);
		return fail_system(-ENOMEM, "opening a pool");
	}
	p->client = client_ref(c);
	p->id = m->pool;
	p->kind = memory_kind_by_name(m->kind.data, m->kind.size);
	p->info = (share_pool_info){
	    .size = sizeof(p->info),
	    .name = p->name,
	    .kind = p->kind ? p->kind->name : "unknown", /* a newer broker's */
	    .limit = m->limit,
	    .segment_size = m->segment_size,
	    .alignment = m->alignment,
	    .mode = m->mode,
	    .manage = m->manage,
	    .flags = m->flags,
	    .device = *p->device ? p->device : NULL,
	    .reason = p->reason,
	    .reuse = m->reuse,
	};
	p->magazine = magazine_open(c, p->id, p->kind, &p->info);
	*out = handle_give(p);
	return 0;
}

int share_pool_open(share_client *c, const char *name, share_pool **out)
{
	RANGE("share_pool_open", 0);
	HAZARDS;
	struct wire_message m = {.type = WIRE_POOL_OPEN};
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	int r = client_resolve_for(&c, out);

	if (r == 0)
		r = name_check(name);
	if (r != 0)
		return r;
	m.pool_open.name = wire_text(name);
	r = rpc(c, &m, &reply);
	return r != 0 ? r : pool_from_reply(c, name, &reply.m.pool, out);
}

int share_pool_map_ahead(share_pool *p, int mode)
{
	RANGE("share_pool_map_ahead", 0);
	HAZARDS;
	uint64_t arrived, before;
	int r = pool_resolve(&p);

	if (r == 0)
		r = mode_check(mode);
	if (r == 0 && p->client->version < WIRE_VERSION_POOL_SEGMENTS)
		r = fail(SHARE_ENOTSUP, "the broker is too old to send segments ahead");
	if (r != 0)
		return r;
	arrived = segments_want_ahead(p->client);
	do { /* the broker sends so many at a time, and then none */
		struct wire_message m = {.type = WIRE_POOL_SEGMENTS};

		m.pool_segments.pool = p->id;
		m.pool_segments.mode = (uint32_t)mode;
		before = arrived;
		r = rpc(p->client, &m, NULL);
		if (r == 0)
			r = segments_map(p->client, p->id, mode == SHARE_RDWR);
		arrived = segments_want_ahead(p->client);
	} while (r == 0 && arrived != before);
	return r;
}

/* ------------------------------------------------------------------------------------------- */

/* A name, or else a number in quotes, as in the configuration. */
static int find_id(bool user, const char *name, id_t *out)
{
	unsigned long number;
	char *end;
	int r = user ? id_of_user(name, out) : id_of_group(name, out);

	if (r != ENOENT)
		return r;
	number = strtoul(name, &end, 10);
	if (*name < '0' || *name > '9' || *end || number > UINT32_MAX)
		return ENOENT;
	*out = (id_t)number;
	return 0;
}

/* The broker looks no names up, as that could take it any time: clients send numbers. Whatever
 * else may be wrong with the list is for the broker to say. */
static int resolve_names(json_t *list)
{
	static const char *const keys[] = {"user", "group"};
	json_t *entry, *value;
	char what[128];
	id_t id;
	size_t i;
	int r;

	json_array_foreach (list, i, entry) {
		for (size_t k = 0; k < 2; k++) {
			value = json_object_get(entry, keys[k]);
			if (!json_is_string(value) || strcmp(json_string_value(value), "*") == 0)
				continue;
			r = find_id(k == 0, json_string_value(value), &id);
			if (r == ENOENT)
				return fail(SHARE_EINVAL, "access[%zu].%s: there is no %s \"%s\"",
					    i, keys[k], keys[k], json_string_value(value));
			if (r != 0) {
				snprintf(what, sizeof(what), "looking up the %s \"%.64s\"", keys[k],
					 json_string_value(value));
				return fail_system(-r, what);
			}
			json_object_set_new(entry, keys[k], json_integer(id));
		}
	}
	return 0;
}

static int access_to_wire(const char *access, char **out)
{
	json_error_t error;
	json_t *list;
	int r;

	list = json_loads(access, JSON_REJECT_DUPLICATES, &error);
	if (!list && error.line < 0)
		return fail_system(-ENOMEM, "creating a pool");
	if (!list)
		return fail(SHARE_EINVAL, "access is not JSON: line %d: %s", error.line,
			    error.text);
	r = resolve_names(list);
	if (r == 0) {
		*out = json_dumps(list, JSON_COMPACT);
		if (!*out)
			r = fail_system(-ENOMEM, "creating a pool");
	}
	json_decref(list);
	return r;
}

int share_pool_create(share_client *c, const char *name, const share_pool_options *options,
		      share_pool **out)
{
	RANGE("share_pool_create", 0);
	HAZARDS;
	share_pool_options o;
	struct wire_message m = {.type = WIRE_POOL_CREATE};
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	char *access = NULL;
	int r = client_resolve_for(&c, out);

	if (r == 0)
		r = struct_in(share_pool_options, &o, options);
	if (r == 0)
		r = name_check(name);
	if (r == 0 && c->version < WIRE_VERSION_HOST_PAGES &&
	    (o.prefault > 0 || o.huge_pages != SHARE_HUGE_PAGES_SYSTEM || o.numa != SHARE_NUMA_ANY))
		r = fail(SHARE_ENOTSUP, "the broker is too old for prefault, huge_pages and numa");
	if (r == 0 && o.access)
		r = access_to_wire(o.access, &access);
	if (r != 0)
		return r;
	m.pool_create = (struct wire_pool_create){
	    .limit = o.limit,
	    .segment_size = o.segment_size,
	    .alignment = o.alignment,
	    .release_threshold = o.release_threshold,
	    .flags = o.flags,
	    .reuse = o.reuse,
	    .prefault = o.prefault,
	    .huge_pages = o.huge_pages,
	    .numa = o.numa,
	    .name = wire_text(name),
	    .kind = wire_text(o.kind),
	    .device = wire_text(o.device),
	    .access = wire_text(access),
	};
	r = rpc(c, &m, &reply);
	free(access);
	return r != 0 ? r : pool_from_reply(c, name, &reply.m.pool, out);
}

int share_pool_destroy(share_client *c, const char *name)
{
	HAZARDS;
	struct wire_message m = {.type = WIRE_POOL_DESTROY};
	int r = client_resolve(&c);

	if (r == 0)
		r = name_check(name);
	if (r != 0)
		return r;
	m.pool_destroy.name = wire_text(name);
	r = rpc(c, &m, NULL);
	if (r == 0)
		magazines_pool_destroyed(c);
	return r;
}

/* Nobody is in a call about it. */
static void end(void *pool)
{
	share_pool *p = pool;
	share_client *c = p->client;

	if (p->magazine)
		magazine_unref(p->magazine);
	pool_free(p);
	client_unref(c);
}

void share_pool_close(share_pool *p)
{
	RANGE("share_pool_close", 0);
	HAZARDS;
	DETAIL_STAYS;
	struct wire_message m = {.type = WIRE_POOL_CLOSE};

	p = pool_take(p);
	if (!p)
		return;
	if (p->magazine)
		magazine_close(p->magazine);
	m.pool_close.pool = p->id;
	rpc(p->client, &m, NULL);
	hazard_end(p, end);
}

int share_pool_set_cache(share_pool *p, uint64_t bytes)
{
	HAZARDS;
	int r = pool_resolve(&p);

	if (r == 0 && p->magazine)
		magazine_limit(p->magazine, bytes);
	return r;
}

/* What is kept is allocated as well. Of two moments, as other threads go on meanwhile. */
static void count(share_pool *p, share_pool_info *out)
{
	uint64_t bytes, blocks;

	if (p->magazine)
		magazine_count(p->magazine, out);
	segments_count(p->client, p->id, &bytes, &blocks);
	out->used = bytes > out->kept ? bytes - out->kept : 0;
	out->used_buffers = blocks > out->kept_buffers ? (uint32_t)blocks - out->kept_buffers : 0;
}

int share_pool_get_info(const share_pool *handle, share_pool_info *out)
{
	HAZARDS;
	share_pool_info info;
	share_pool *p = NULL;
	int r = pool_look(handle, &p);

	if (r == 0)
		r = struct_check(share_pool_info, out);
	if (r != 0)
		return r;
	info = p->info;
	if (!client_is_forked(p->client))
		count(p, &info);
	struct_out(share_pool_info, out, &info);
	return 0;
}

int share_pool_ordinal(const share_pool *handle)
{
	HAZARDS;
	struct failure failure;
	share_pool *p = NULL;
	int ordinal;

	if (pool_look(handle, &p) != 0 || !p->info.device || client_is_forked(p->client) ||
	    memory_device_ordinal(p->info.device, &ordinal, &failure) != 0)
		return -1;
	return ordinal;
}

int share_pool_has(const share_pool *handle, const share_buffer *b)
{
	HAZARDS;
	share_pool *p = NULL;
	share_buffer *in = NULL;
	int r = pool_look(handle, &p);

	if (r == 0)
		r = buffer_find(b, &in);
	return r != 0 ? r : in->client == p->client && in->segment->pool == p->id;
}
