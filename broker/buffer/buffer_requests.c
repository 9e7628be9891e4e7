/* SPDX-License-Identifier: MIT */

/*
 * Requests about buffers that one has: release, metadata, recipe. Metadata that takes long to check
 * is checked a little in each of its connection's turns, and the connection is asked for nothing
 * else as long as that goes on.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <share/share.h>

#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/json_check.h"
#include "broker/buffer/lease.h"
#include "broker/client/client.h"
#include "broker/client/request.h"
#include "broker/config/text.h"
#include "broker/memory/client_memory.h"
#include "broker/memory/fence.h"
#include "broker/memory/pool.h"
#include "broker/memory/segment.h"

#define METADATA_MAX_DEPTH 64
#define CHECKED_AT_ONCE    4096 /* bytes: some 30 microseconds */

/* A METADATA_SET whose text is being checked. */
struct metadata_check {
	struct unfinished unfinished; /* the client's */
	struct charge charge;
	struct json_check *check;
	uint64_t buffer;
	uint32_t serial;
};

struct lease *request_lease(struct request *r, uint64_t id)
{
	struct buffer *buffer = buffer_find(r->broker, id);
	struct lease *lease = buffer ? lease_find(r->broker, r->client, buffer) : NULL;

	if (!lease)
		request_fail(r, SHARE_ESTALE, "this client does not hold a buffer %llx",
			     (unsigned long long)id);
	return lease;
}

void handle_release(struct request *r)
{
	const struct wire_release *m = &r->m->release;
	struct lease *lease = request_lease(r, m->buffer);
	struct fence fence;
	char also[96];

	if (!lease)
		return;
	if (m->count > lease->count || (m->count == 0 && m->timeline == 0)) {
		request_fail(r, SHARE_EINVAL, "this client holds %u reference%s on it, not %u",
			     lease->count, text_plural(lease->count), m->count);
		return;
	}
	if (!request_fence(r, m->timeline, m->value, &fence))
		return;
	lease->buffer->pending = fence_set_prune(lease->buffer->pending);
	/* it keeps what it holds, as its work goes on */
	if (!fence_set_may_add(lease->buffer->pending, &fence)) {
		fence_done(&fence);
		snprintf(also, sizeof(also),
			 " (%d on one buffer) for unfinished work on what it gives back",
			 FENCE_SET_OF_ONE_MAX);
		request_fail_quota(r, LIMIT_FENCES, also);
		return;
	}
	lease_return(r->broker, lease, m->count, &fence);
	request_done(r);
}

static void fail_check(struct request *r, const struct json_fault *fault)
{
	request_fail(r, SHARE_EINVAL,
		     "metadata is not a JSON object or array, nested no deeper than %d: "
		     "line %u, column %u: %s",
		     METADATA_MAX_DEPTH, fault->line, fault->column, fault->text);
}

/* To be written by this client; NULL when answered. */
static struct lease *find_writable(struct request *r, uint64_t buffer)
{
	struct lease *lease = request_lease(r, buffer);

	if (!lease || lease->mode == SHARE_RDWR)
		return lease;
	request_fail(r, SHARE_EACCES, "this client holds the buffer read-only");
	return NULL;
}

static void set_checked(struct request *r, uint64_t buffer, const char *text, size_t size)
{
	struct lease *lease = find_writable(r, buffer);
	struct metadata *metadata;
	struct failure failure;

	if (!lease)
		return;
	if (metadata_new(r->client->account, text, (uint32_t)size, lease->buffer->metadata,
			 &metadata, &failure) != 0) {
		request_fail_with(r, &failure);
		return;
	}
	buffer_set_metadata(lease->buffer, metadata);
	request_done(r);
}

static struct metadata_check *check_of(const struct client *client)
{
	return (struct metadata_check *)(void *)client->requests.unfinished;
}

static void abandon(struct client *client)
{
	struct metadata_check *u = check_of(client);

	client->requests.unfinished = NULL;
	json_check_free(u->check);
	charge_return(&u->charge);
	free(u);
}

static void go_on(struct client *client)
{
	struct metadata_check *u = check_of(client);
	struct wire_message m = {.type = WIRE_METADATA_SET, .serial = u->serial};
	struct request r = {.broker = client->broker, .client = client, .m = &m};
	struct json_fault fault;
	const char *text;
	size_t size;

	switch (json_check_some(u->check, CHECKED_AT_ONCE, &fault)) {
	case JSON_CHECK_MORE:
		return;
	case JSON_CHECK_FAULT:
		fail_check(&r, &fault);
		break;
	case JSON_CHECK_DONE:
		text = json_check_text(u->check, &size);
		set_checked(&r, u->buffer, text, size);
		break;
	}
	abandon(client);
}

static void start_check(struct request *r, const struct wire_metadata_set *m)
{
	struct metadata_check *u = calloc(1, sizeof(*u));
	size_t takes;

	if (u)
		u->check = json_check_new(m->json.data, m->json.size, METADATA_MAX_DEPTH, &takes);
	if (!u || !u->check) {
		free(u);
		request_fail_memory(r);
		return;
	}
	if (!charge_take(&u->charge, r->client->account, LIMIT_UNSENT, takes)) {
		json_check_free(u->check);
		free(u);
		request_fail_quota(r, LIMIT_UNSENT, ", requests that wait among them");
		return;
	}
	u->buffer = m->buffer;
	u->serial = r->m->serial;
	u->unfinished = (struct unfinished){go_on, abandon};
	r->client->requests.unfinished = &u->unfinished;
}

void handle_metadata_set(struct request *r)
{
	const struct wire_metadata_set *m = &r->m->metadata_set;
	struct json_fault fault;

	if (!find_writable(r, m->buffer))
		return;
	if (m->json.size > CHECKED_AT_ONCE && m->json.size <= JSON_CHECK_MAX)
		start_check(r, m);
	else if (m->json.size > 0 &&
		 !json_check(m->json.data, m->json.size, METADATA_MAX_DEPTH, &fault))
		fail_check(r, &fault);
	else
		set_checked(r, m->buffer, m->json.data, m->json.size);
}

void handle_metadata_get(struct request *r)
{
	struct lease *lease = request_lease(r, r->m->metadata_get.buffer);
	struct wire_message m = {.type = WIRE_METADATA};
	const struct metadata *metadata;

	if (!lease)
		return;
	metadata = lease->buffer->metadata;
	if (metadata)
		m.metadata.json = (struct wire_bytes){metadata->bytes, metadata->size};
	request_reply(r, &m, NULL, 0);
}

/* What the memory is and where, for who maps it by plain CUDA. */
void handle_recipe_get(struct request *r)
{
	struct lease *lease = request_lease(r, r->m->recipe_get.buffer);
	struct wire_message m = {.type = WIRE_RECIPE};
	struct segment *s;
	int fd;

	if (!lease)
		return;
	s = buffer_segment(lease->buffer);
	fd = segment_descriptor(s, lease->mode == SHARE_RDWR);
	m.recipe = (struct wire_recipe){
	    .offset = block_offset(lease->buffer->block),
	    .kind = s->pool->choice.kind->id,
	    .mode = lease->mode,
	    .recipe = {&s->memory.recipe, sizeof(s->memory.recipe)},
	};
	request_reply(r, &m, &fd, 1);
}
