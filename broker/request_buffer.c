/* SPDX-License-Identifier: MIT */

/* Requests about buffers: allocate, release, metadata. */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <jansson.h>
#include <share/share.h>

#include "broker/broker.h"
#include "broker/buffer.h"
#include "broker/client.h"
#include "broker/grant.h"
#include "broker/pool.h"
#include "broker/request.h"
#include "broker/scrub.h"
#include "broker/trim.h"

#define METADATA_MAX_DEPTH 64
#define MORE_MAX           63 /* buffers that come along with a GRANT */

/* Clients may have what there is, without using it. They get a moment to give it back, but for one
 * that only wants more for itself to keep. */
static bool may_wait_for_others(struct request *r, const struct pool *p,
				const struct account *account, uint64_t waited)
{
	if (r->m->alloc.flags & WIRE_ALLOC_KEEPS || waited >= TRIM_WAIT_MS)
		return false;
	if (!r->parked_ms)
		r->parked_ms = broker_now_ms();
	return trim_ask(r->broker, r->client, p, account, r->parked_ms);
}

/* As many more as there is room for: nobody waits for them, and nothing is tried twice. */
static uint32_t alloc_more(struct request *r, struct buffer *first, uint64_t alignment,
			   struct wire_more *out)
{
	const struct wire_alloc *m = &r->m->alloc;
	struct pool *p = buffer_pool(first);
	uint32_t n = 0;

	while (n + 1 < m->count && n < MORE_MAX) {
		struct buffer *buffer;
		struct lease *lease;
		struct block *block;
		int e;

		if (!pool_alloc_beside(p, m->size, alignment, first->block, &block))
			break;
		if (buffer_new(r->broker, block, m->size, r->client->account, &buffer) != 0) {
			pool_free_block(r->broker, p, block, NULL, NULL);
			break;
		}
		e = scrub_is_needed(r, buffer) ||
		    lease_grant(r->broker, r->client, buffer, SHARE_RDWR, &lease) != 0;
		if (e == 0)
			out[n++] = (struct wire_more){buffer_id(buffer), block_offset(block)};
		buffer_unref(r->broker, buffer);
		if (e != 0)
			break;
	}
	return n;
}

static void take_back(struct request *r, const struct wire_more *more, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct fence none = {0};
		struct buffer *buffer = buffer_find(r->broker, more[i].buffer);

		lease_return(r->broker, lease_find(r->broker, r->client, buffer), 1, &none);
	}
}

static void give_with_more(struct request *r, struct buffer *buffer, uint64_t alignment)
{
	struct grant g = {.buffer = buffer, .mode = SHARE_RDWR, .gate = buffer->pending};
	struct wire_more more[MORE_MAX];
	struct fence none = {0};
	struct lease *lease;
	char detail[1024];
	bool held;
	int e;

	/* what comes along is not to take the last lease that the client may have */
	held = lease_grant(r->broker, r->client, buffer, SHARE_RDWR, &lease) == 0;
	g.more = more;
	g.n_more = held ? alloc_more(r, buffer, alignment, more) : 0;
	e = grant_send(r->broker, r->client, r->m->serial, &g, detail, sizeof(detail));
	if (held)
		lease_return(r->broker, lease, 1, &none);
	if (e == 0)
		return;
	take_back(r, more, g.n_more);
	request_fail(r, e, "%s", detail);
}

void handle_alloc(struct request *r)
{
	const struct wire_alloc *m = &r->m->alloc;
	struct open_pool *open = client_find_pool(r->client, m->pool);
	uint64_t alignment = m->alignment, waited;
	struct buffer *buffer;
	struct block *block;
	struct pool *p;
	char detail[1024];
	int e;

	if (!open) {
		request_fail(r, SHARE_ESTALE, "this client does not have that pool open");
		return;
	}
	p = open->pool;
	if (p->destroyed) {
		request_fail(r, SHARE_ENOENT, "pool '%s' was destroyed", p->name);
		return;
	}
	if (!(pool_access(p, r->client) & ACCESS_WRITE)) {
		request_fail(r, SHARE_EACCES, "you may only read in pool '%s'", p->name);
		return;
	}
	if (m->size == 0) {
		request_fail(r, SHARE_EINVAL, "a buffer has at least one byte");
		return;
	}
	if (m->flags & ~(uint32_t)WIRE_ALLOC_KEEPS) {
		request_fail(r, SHARE_EINVAL, "unknown flags 0x%x", m->flags);
		return;
	}
	if (m->flags & WIRE_ALLOC_KEEPS)
		open->keeps = true;
	if (alignment & (alignment - 1) || alignment > MEMORY_ALIGNMENT) {
		request_fail(r, SHARE_EINVAL,
			     "alignment %" PRIu64 " is not a power of two up to %" PRIu64,
			     alignment, (uint64_t)MEMORY_ALIGNMENT);
		return;
	}
	if (alignment < p->alignment)
		alignment = p->alignment;
	waited = r->parked_ms ? broker_now_ms() - r->parked_ms : 0;
	e = pool_alloc(r->broker, p, m->size, alignment, waited, &block, detail, sizeof(detail));
	if (e == SHARE_ENOMEM && may_wait_for_others(r, p, NULL, waited))
		e = pool_wait(p, TRIM_SLICE_MS);
	if (e == POOL_LATER)
		request_park(r, &p->waits);
	else if (e != 0)
		request_fail(r, e, "%s", detail);
	if (e != 0)
		return;
	e = buffer_new(r->broker, block, m->size, r->client->account, &buffer);
	/* what it has given back is paid for until the work on it is done: by now, perhaps */
	if (e == LEASE_BUFFER_QUOTA && pool_collect(r->broker, p))
		e = buffer_new(r->broker, block, m->size, r->client->account, &buffer);
	if (e != 0) {
		pool_free_block(r->broker, p, block, block_take_gate(block), NULL);
		if (e == LEASE_BUFFER_QUOTA &&
		    may_wait_for_others(r, p, r->client->account, waited)) {
			pool_wait(p, TRIM_SLICE_MS);
			request_park(r, &p->waits);
		} else if (e == LEASE_BUFFER_QUOTA)
			request_fail(r, SHARE_EQUOTA,
				     "uid %u has reached its limit of %" PRIu64 " bytes",
				     (unsigned)r->client->peer.uid,
				     account_limit(r->client->account, LIMIT_BYTES));
		else
			request_fail_memory(r);
		return;
	}
	/* Stays with the buffer: its new holder waits for these, but may die, or let go, before. */
	buffer->pending = fence_set_prune(block_take_gate(block));
	e = scrub_is_needed(r, buffer) ? scrub_start(r, buffer, detail, sizeof(detail)) : 0;
	if (e == SCRUB_LATER)
		return;
	if (e == 0 && m->count > 1)
		give_with_more(r, buffer, alignment);
	else if (e == 0)
		request_give_allocated(r->client, r->m->serial, buffer);
	else
		request_fail(r, e, "%s", detail);
	buffer_unref(r->broker, buffer);
}

void request_give_allocated(struct client *client, uint32_t serial, struct buffer *buffer)
{
	struct grant g = {.buffer = buffer, .mode = SHARE_RDWR, .gate = buffer->pending};
	char detail[1024];
	int e;

	e = grant_send(client->broker, client, serial, &g, detail, sizeof(detail));
	if (e != 0)
		request_reply_error(client, serial, e, detail);
}

void handle_release(struct request *r)
{
	const struct wire_release *m = &r->m->release;
	struct lease *lease = request_lease(r, m->buffer);
	struct fence fence;

	if (!lease)
		return;
	if (m->count > lease->count || (m->count == 0 && m->timeline == 0)) {
		request_fail(r, SHARE_EINVAL, "this client holds %u references on it, not %u",
			     lease->count, m->count);
		return;
	}
	if (!request_fence(r, m->timeline, m->value, &fence))
		return;
	lease->buffer->pending = fence_set_prune(lease->buffer->pending);
	/* it keeps what it holds, as its work goes on */
	if (!fence_set_may_add(lease->buffer->pending, &fence)) {
		fence_done(&fence);
		request_fail(r, SHARE_EQUOTA,
			     "uid %u has too much unfinished work on what it gives back: the limit "
			     "is %" PRIu64 " fences, and %d on one buffer",
			     (unsigned)r->client->peer.uid,
			     account_limit(r->client->account, LIMIT_FENCES), FENCE_SET_OF_ONE_MAX);
		return;
	}
	lease_return(r->broker, lease, m->count, &fence);
	request_done(r);
}

static bool is_deeper_than(const char *json, size_t size, int limit)
{
	bool in_string = false;
	int depth = 0;

	for (size_t i = 0; i < size; i++) {
		if (in_string) {
			if (json[i] == '\\')
				i++;
			else if (json[i] == '"')
				in_string = false;
		} else if (json[i] == '"') {
			in_string = true;
		} else if (json[i] == '[' || json[i] == '{') {
			if (++depth > limit)
				return true;
		} else if (json[i] == ']' || json[i] == '}') {
			depth--;
		}
	}
	return false;
}

/* Charges the new in the place of the old, whose charge is returned only if that works. */
static bool swap_charge(struct charge *new, struct metadata *old, struct account *account,
			uint64_t size)
{
	struct account *payer = old ? account_ref(old->charge.account) : NULL;
	uint64_t old_size = old ? old->charge.amount : 0;
	bool taken;

	if (old)
		charge_return(&old->charge);
	taken = charge_take(new, account, LIMIT_METADATA, size);
	if (old && !taken) /* cannot fail: it was just given back */
		charge_take(&old->charge, payer, LIMIT_METADATA, old_size);
	account_unref(payer);
	return taken;
}

/* What the client sent, checked and copied; NULL when answered. */
static struct metadata *parse_metadata(struct request *r, const struct wire_bytes *json,
				       struct metadata *old)
{
	struct metadata *metadata;
	json_error_t error;
	json_t *root;

	if (is_deeper_than(json->data, json->size, METADATA_MAX_DEPTH)) {
		request_fail(r, SHARE_EINVAL, "metadata is nested deeper than %d",
			     METADATA_MAX_DEPTH);
		return NULL;
	}
	root = json_loadb(json->data, json->size, JSON_REJECT_DUPLICATES, &error);
	if (!root) {
		request_fail(r, SHARE_EINVAL,
			     "metadata is not a JSON object or array: line %d, column %d: %s",
			     error.line, error.column, error.text);
		return NULL;
	}
	json_decref(root);
	metadata = malloc(sizeof(*metadata) + json->size);
	if (!metadata) {
		request_fail_memory(r);
		return NULL;
	}
	metadata->charge = (struct charge){0};
	if (!swap_charge(&metadata->charge, old, r->client->account, json->size)) {
		free(metadata);
		request_fail(r, SHARE_EQUOTA,
			     "uid %u has reached its limit of %" PRIu64 " bytes of metadata",
			     (unsigned)r->client->peer.uid,
			     account_limit(r->client->account, LIMIT_METADATA));
		return NULL;
	}
	metadata->size = json->size;
	memcpy(metadata->json, json->data, json->size);
	return metadata;
}

void handle_metadata_set(struct request *r)
{
	const struct wire_bytes *json = &r->m->metadata_set.json;
	struct lease *lease = request_lease(r, r->m->metadata_set.buffer);
	struct metadata *metadata = NULL;

	if (!lease)
		return;
	if (lease->mode != SHARE_RDWR) {
		request_fail(r, SHARE_EACCES, "this client holds the buffer read-only");
		return;
	}
	if (json->size) {
		metadata = parse_metadata(r, json, lease->buffer->metadata);
		if (!metadata)
			return;
	}
	buffer_set_metadata(lease->buffer, metadata);
	request_done(r);
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
		m.metadata.json = (struct wire_bytes){metadata->json, metadata->size};
	request_reply(r, &m, NULL, 0);
}
