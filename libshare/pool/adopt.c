/* SPDX-License-Identifier: MIT */

/*
 * Memory that this process has already becomes a buffer. The broker gets descriptors of its file,
 * or a descriptor or the handle of the allocation of a device in which it lies, and this process
 * goes on using it where it is: the segment is never mapped here a second time.
 */

#include "memory/adopt.h"
#include "libshare/pool/inside.h"

/* How often brokers may die over one call, before it is an error. */
#define TRIES_MAX 16

static struct wire_message message_of(share_pool *p, const struct memory_found *found,
				      uint64_t size)
{
	struct wire_message m = {.type = WIRE_ADOPT};

	m.adopt = (struct wire_adopt){.pool = p->id, .size = size, .offset = found->offset};
	if (found->kind->on_device) {
		m.adopt.kind = found->kind->id;
		m.adopt.recipe =
		    (struct wire_bytes){&found->segment.recipe, sizeof(found->segment.recipe)};
	}
	return m;
}

/* The first answer of a broker is that it lets in descriptors from now on; and one that goes on for
 * another one may have lost those that were on their way. */
static int ask(share_pool *p, const struct memory_found *found, uint64_t size, struct reply *reply)
{
	const struct memory_segment *s = &found->segment;
	const struct fd_list fds = {.fds = {s->fd, s->fd_readonly},
				    .n = (s->fd >= 0) + (s->fd_readonly >= 0)};
	share_client *c = p->client;
	bool with = atomic_load(&c->brings);
	int r = SHARE_EAGAIN;

	for (int i = 0; i < TRIES_MAX && r == SHARE_EAGAIN; i++) {
		struct wire_message m = message_of(p, found, size);

		if (i > 0)
			reply_done(reply);
		r = rpc_with_fds(c, &m, with && fds.n > 0 ? &fds : NULL, reply);
		with = !with;
	}
	if (r == 0 && fds.n > 0)
		atomic_store(&c->brings, true);
	return r;
}

/* What was released a moment ago may be a buffer only until the broker's word of its end is read.
 */
static int begin(share_pool *p, void *memory, uint64_t size, const struct memory_found *found,
		 struct adopted **out)
{
	struct wire_message ping = {.type = WIRE_PING};
	struct failure failure;
	int r = memory_adopted_new(memory, size, found, out, &failure);

	if (r == SHARE_EEXIST) {
		r = rpc(p->client, &ping, NULL);
		if (r != 0)
			return r;
		rpc_do_chores(p->client);
		r = memory_adopted_new(memory, size, found, out, &failure);
	}
	return r != 0 ? fail(r, "%s", failure.text) : 0;
}

static int adopt(share_pool *p, const struct memory_found *found, uint64_t size,
		 struct adopted *own, void *stream, share_buffer **out)
{
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	struct memory_recipe recipe;
	int r = ask(p, found, size, &reply);

	if (r != 0)
		return r;
	if (segment_get_recipe(p->client, reply.m.grant.segment, &recipe))
		memory_adopted_identify(own, &recipe);
	r = buffer_from_grant(p->client, &reply.m.grant, stream, -1, out);
	if (r == 0)
		buffer_is_ours(*out);
	return r;
}

/* The descriptors are the caller's. */
static int give(share_pool *p, const struct memory_found *found, uint64_t size,
		const share_alloc_options *o, void *stream, share_buffer **out)
{
	struct adopted *own = NULL;
	int r = stream_check(p->client, found->kind, stream);

	if (r == 0)
		r = begin(p, o->memory, size, found, &own);
	if (r == 0)
		r = adopt(p, found, size, own, stream, out);
	if (r == 0)
		memory_adopted_tell(own, o->done, o->data);
	memory_adopted_unref(own); /* the mapping of the segment has its own */
	return r;
}

int buffer_adopt(share_pool *p, uint64_t size, const share_alloc_options *o, void *stream,
		 share_buffer **out)
{
	struct memory_found found;
	struct failure failure;
	int r;

	if (o->alignment != 0 || o->timeout_ms != -1)
		return fail(SHARE_EINVAL,
			    "memory that is there already has an alignment, and is "
			    "not waited for");
	if (p->client->version < WIRE_VERSION_ADOPT)
		return fail(SHARE_ENOTSUP, "the broker is too old to adopt memory");
	/* The broker says so, too, but only of memory that could be adopted. */
	if (p->kind && p->kind->id != MEMORY_ADOPTED)
		return fail(SHARE_ENOTSUP,
			    "pool '%s' is of kind %s, and memory that is there already goes only "
			    "into pools of kind adopted",
			    p->name, p->info.kind);
	r = memory_adopted_find(o->memory, size, &found, &failure);
	if (r != 0)
		return fail(r, "%s", failure.text);
	r = give(p, &found, size, o, stream, out);
	fd_close(found.segment.fd);
	fd_close(found.segment.fd_readonly);
	return r;
}
