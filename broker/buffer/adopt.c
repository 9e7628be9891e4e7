/* SPDX-License-Identifier: MIT */

/*
 * Memory that a client has already becomes a buffer. The descriptors come from a stranger. So it is
 * looked at what they are of before anything is done with them, and whatever is not taken is closed
 * by others (broker/socket/closer.h). Memory of kind legacy comes without: it is there as long as
 * the client's process is, whose pidfd the broker has from the kernel.
 */

#include <string.h>

#include <share/share.h>

#include "base/system/descriptor.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/grant.h"
#include "broker/client/client.h"
#include "broker/client/conversation.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/segment.h"
#include "broker/pools/adopted.h"
#include "broker/pools/open_pools.h"
#include "broker/reply/request.h"
#include "memory/adopt.h"

/* Finds the pool, if memory may come into it in this way; NULL when answered. */
static struct pool *find_pool(struct request *r)
{
	struct open_pool *open = request_open_pool(r, r->m->adopt.pool);
	struct pool *p = open ? open->pool : NULL;

	if (!p)
		return NULL;
	if (p->destroyed) {
		request_fail(r, SHARE_ENOENT, "pool '%s' was destroyed", p->name);
	} else if (!pool_is_adopted(p)) {
		request_fail(r, SHARE_ENOTSUP,
			     "pool '%s' is of kind %s, and memory that is there already goes only "
			     "into pools of kind adopted",
			     p->name, pool_kind_name(p));
	} else if (request_pool_right(r, p, RIGHT_WRITE)) {
		if (client_asks_pool(open, false) == 0)
			return p;
		request_fail_memory(r);
	}
	return NULL;
}

/* Reads what came of a file in memory: the file, and where the segment begins in it. */
static int read_file(const struct wire_adopt *m, const struct fd_list *fds,
		     struct memory_segment *out, struct failure *failure)
{
	if (fds->n != 2)
		return failure_set(failure, SHARE_EINVAL, "memory has two descriptors");
	*out = (struct memory_segment){
	    .recipe = {.size = m->size}, .fd = fds->fds[0], .fd_readonly = fds->fds[1]};
	memcpy(out->recipe.pointer, &m->offset, sizeof(m->offset));
	return memory_adopted_check(out->fd, out->fd_readonly, &out->recipe, failure);
}

static bool has_handle(const struct wire_adopt *m)
{
	return m->kind == MEMORY_LEGACY;
}

/* Reads what came of a device's memory: the allocation, and where the buffer begins in it. */
static int read_allocation(const struct wire_adopt *m, const struct fd_list *fds,
			   struct memory_segment *out, struct failure *failure)
{
	const struct memory_recipe *recipe = &out->recipe;

	*out = (struct memory_segment){.fd = has_handle(m) ? -1 : fds->fds[0], .fd_readonly = -1};
	if (m->recipe.size != sizeof(out->recipe) || (!has_handle(m) && fds->n != 1))
		return failure_set(failure, SHARE_EINVAL,
				   "memory of a device has one descriptor and a recipe");
	memcpy(&out->recipe, m->recipe.data, sizeof(out->recipe));
	if (!has_handle(m))
		memset(out->recipe.pointer, 0, sizeof(out->recipe.pointer));
	out->recipe.reserved = 0;
	if (m->size == 0 || m->offset > recipe->size || m->size > recipe->size - m->offset)
		return failure_set(failure, SHARE_EINVAL,
				   "%llu bytes from byte %llu on are not in the allocation, which "
				   "has %llu",
				   (unsigned long long)m->size, (unsigned long long)m->offset,
				   (unsigned long long)recipe->size);
	if (m->offset % SUBALLOCATOR_UNIT)
		return failure_set(failure, SHARE_EINVAL,
				   "the memory begins at byte %llu of its allocation, and a buffer "
				   "of a device's memory begins at a multiple of %u",
				   (unsigned long long)m->offset, SUBALLOCATOR_UNIT);
	return memory_adopted_check_device(memory_kind_by_id(m->kind), out->fd, recipe, failure);
}

/* Looks at what came with the request, which may be anything, and leaves it in the request's list.
 * False when answered. */
static bool look_at_memory(struct request *r, struct memory_segment *out)
{
	const struct wire_adopt *m = &r->m->adopt;
	struct failure failure;
	int e;

	if (!has_handle(m) && !r->client->brings && client_let_bring(r->client) < 0)
		return request_fail_memory(r);
	if (!has_handle(m) && (!r->fds || r->fds->n == 0))
		return request_fail(r, SHARE_EAGAIN,
				    "the descriptors of the memory are still to come");
	e = m->kind == 0 ? read_file(m, r->fds, out, &failure)
			 : read_allocation(m, r->fds, out, &failure);
	if (e != 0)
		return request_fail_with(r, &failure);
	memory_identify(&out->recipe);
	return true;
}

static bool give(struct request *r, struct segment *s, uint64_t offset)
{
	struct grant g = {.mode = SHARE_RDWR, .is_new = true};
	struct allocation a = {.account = r->client->account, .size = r->m->adopt.size};
	struct failure failure;
	int e;

	e = pool_adopt_block(r->broker, s, offset, &a);
	if (e == 0)
		e = buffer_new(r->broker, &a, &g.buffer);
	if (e == POOL_LIMIT)
		return request_fail_quota(r, LIMIT_BYTES, "");
	if (e != 0)
		return request_fail_memory(r);
	e = grant_send(r->broker, r->client, r->m->serial, &g, &failure);
	if (e != 0)
		request_fail_with(r, &failure);
	buffer_unref(r->broker, g.buffer);
	return e == 0;
}

/* Makes a segment of what came with the request, which has its descriptors from then on. */
static int take_brought(struct request *r, struct pool *p, const struct memory_segment *memory,
			struct segment **out, struct failure *failure)
{
	int e = pool_adopt(r->broker, p, r->client->account, memory, out, failure);

	for (size_t i = 0; e == 0 && i < r->fds->n; i++)
		fd_list_take(r->fds, i);
	return e;
}

/* The same of what its process keeps. */
static int take_kept(struct request *r, struct pool *p, struct memory_segment *memory,
		     struct segment **out, struct failure *failure)
{
	int e;

	memory->fd = fd_dup(r->client->peer.pidfd);
	if (memory->fd < 0)
		return failure_system(failure, "a pidfd", -memory->fd);
	e = pool_adopt(r->broker, p, r->client->account, memory, out, failure);
	if (e != 0)
		fd_close(memory->fd);
	return e;
}

bool handle_adopt(struct request *r)
{
	const struct wire_adopt *m = &r->m->adopt;
	struct pool *p = find_pool(r);
	struct memory_segment memory;
	struct failure failure;
	struct segment *s;
	int e;

	if (!p || !look_at_memory(r, &memory))
		return false;
	e = has_handle(m) ? take_kept(r, p, &memory, &s, &failure)
			  : take_brought(r, p, &memory, &s, &failure);
	if (e != 0)
		return request_fail_with(r, &failure);
	return give(r, s, m->kind == 0 ? 0 : m->offset);
}
