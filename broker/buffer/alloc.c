/* SPDX-License-Identifier: MIT */

/*
 * Memory for a client: a block of a pool, within what its user may have, and as many more blocks as
 * the client wants to keep. Memory that is not there right now may be given back by others, or made
 * by an agent. The request waits for that: it is deferred, and handled again from the start.
 */

#include <inttypes.h>
#include <stdio.h>

#include <share/share.h>

#include "base/clock.h"
#include "base/size.h"
#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/grant.h"
#include "broker/buffer/lease.h"
#include "broker/buffer/scrub.h"
#include "broker/buffer/stake.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/log/log.h"
#include "broker/memory/gated.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/memory/pool_user.h"
#include "broker/monitor/monitor.h"
#include "broker/order/fence.h"
#include "broker/order/order.h"
#include "broker/pools/open_pools.h"
#include "broker/pools/pool_records.h"
#include "broker/pools/pools.h"
#include "broker/pools/trim.h"
#include "broker/reply/request.h"

#define MORE_MAX    63   /* buffers that come along with a GRANT */
#define PATIENCE_MS 1000 /* for a request that does not say how long it may wait for others */
#define SLICE_MS    20   /* how often a request looks for what it is not told of */

/* Whether others may give memory back. Clients may have some without using it, and get a moment to
 * give it back; but not for a request that only wants more for its client to keep. */
static bool others_may_give(const struct request *r, const struct pool *p,
			    const struct account *account)
{
	return !(r->m->alloc.flags & WIRE_ALLOC_KEEPS) &&
	       trim_ask(r->broker, r->client, p, account, r->deferred_ms);
}

/* Whether the account could have @wanted more of a resource if @back came back. */
static bool would_do(const struct account *a, enum limit_kind resource, uint64_t back,
		     uint64_t wanted)
{
	uint64_t limit = account_limit(a, resource);

	return wanted <= limit && account_used(a, resource) - back <= limit - wanted;
}

/* Whether it would do if the user's own work ended. What the user has given back while work runs on
 * it is paid for until that is done. Of the broker's memory only what the fences cost comes back
 * then. */
static bool own_work_would_do(const struct request *r)
{
	const struct account *a = r->client->account;
	uint64_t gated = account_gated(a), fences = account_used(a, LIMIT_FENCES);

	return gated > 0 && would_do(a, LIMIT_BYTES, gated, r->m->alloc.size) &&
	       (!account_lacks_memory(a, LIMIT_BYTES) ||
		would_do(a, LIMIT_MEMORY, price_of(LIMIT_FENCES, fences, 0),
			 price_of(LIMIT_BYTES, 0, PRICE_BUFFER_OWN) +
			     price_of(LIMIT_LEASES, 1, 0)));
}

/* How much longer the request may wait for others. Its time begins now if it has not waited until
 * now. */
static uint64_t left_ms(struct request *r)
{
	uint32_t said = r->m->alloc.patience;
	uint64_t may = said ? said - 1 : PATIENCE_MS, now = clock_ms(), waited;

	if (!r->deferred_ms)
		r->deferred_ms = now;
	waited = now - r->deferred_ms;
	return waited < may ? may - waited : 0;
}

static bool may_change(const struct request *r, const struct pool *p, enum pool_result why)
{
	const struct account *a = r->client->account;

	switch (why) {
	case POOL_LATER:
	case POOL_BUSY:
		return true;
	case POOL_FULL:
		return others_may_give(r, p, NULL);
	case POOL_SHARE:
		return account_gated(a) > 0 || others_may_give(r, p, NULL);
	case POOL_LIMIT:
		return own_work_would_do(r) || others_may_give(r, p, a);
	}
	return false;
}

/* Defers the request if what it lacks may yet come, in the time that it may wait for others. Agents
 * have time limits of their own. False: it is not deferred. */
static bool defer(struct request *r, struct pool *p, enum pool_result why)
{
	uint64_t left = left_ms(r);

	if (why != POOL_LATER && (left == 0 || !may_change(r, p, why)))
		return false;
	if (why != POOL_LATER)
		pool_wait(p, why == POOL_BUSY || left < SLICE_MS ? left : SLICE_MS);
	else if (p->growth.wanted_by.client == 0)
		p->growth.wanted_by = (struct deferred_id){r->client->id, r->m->serial};
	r->waits_for_agent = why == POOL_LATER;
	request_defer(r, &p->waiting.requests);
	return true;
}

/* Whether a refusal is worth a line in the log. Blocks to keep are for later: a client that is
 * refused those asks for what it needs now, and nobody has to hear of it. */
static bool is_worth_a_line(const struct request *r)
{
	return !(r->m->alloc.flags & WIRE_ALLOC_KEEPS);
}

/* Names a client in the way in which @viewer may know it; NULL stands for the operator. */
static const char *name_for(const struct client *viewer, const struct client *c, char *out,
			    size_t size)
{
	if (c == viewer)
		return "this process";
	if (viewer && !client_answers_for(viewer, c->peer.uid))
		return "a process of another user";
	snprintf(out, size, "'%s'", c->label);
	return out;
}

/* Says what keeps memory of a full pool though perhaps no process holds it: how much that is, where
 * to look, and what ends it. */
static void say_what_keeps(const struct pool *p, char *out, size_t size)
{
	static const struct {
		const char *what, *where;
	} kinds[] = {
	    [REFERRER_NAME] = {"names", "names shows which, unpublish ends one"},
	    [REFERRER_TOKEN] = {"tokens", "tokens shows which, revoke ends one"},
	    [REFERRER_LEFT] = {"tokens whose makers are gone",
			       "tokens shows which, revoke ends one"},
	    [REFERRER_MESSAGE] = {"messages whose producers are gone",
				  "channels shows who has them, end-channel ends those that wait"},
	};
	char bytes[SIZE_TEXT_MAX];
	size_t n = 0;

	_Static_assert(sizeof(p->use.referred) / sizeof(p->use.referred[0]) == REFERRERS,
		       "one of each");
	for (int i = 0; i < REFERRERS && n < size; i++)
		if (p->use.referred[i] > 0)
			n += (size_t)snprintf(out + n, size - n, "; %s keep %s (sharectl %s)",
					      kinds[i].what, size_round(p->use.referred[i], bytes),
					      kinds[i].where);
	if (p->gated.bytes > 0 && n < size)
		snprintf(out + n, size - n,
			 "; work still runs on %s that was given back, and is free once it is done",
			 size_round(p->gated.bytes, bytes));
}

/* Says who holds most of a full pool, what else keeps memory of it, and where to look. */
static void say_who_holds(const struct pool *p, const struct client *viewer, char *out, size_t size)
{
	const struct stake *s = stake_largest(p);
	char label[80], bytes[SIZE_TEXT_MAX];
	size_t n = 0;

	out[0] = '\0';
	if (s)
		n = (size_t)snprintf(out, size,
				     "; %s (pid %d) holds most, %s (sharectl clients shows who "
				     "else)",
				     name_for(viewer, s->client, label, sizeof(label)),
				     (int)s->client->peer.pid, size_round(s->bytes, bytes));
	else if (p->extent.n_buffers > 0)
		n = (size_t)snprintf(out, size, "; no process holds any of it");
	if (n < size)
		say_what_keeps(p, out + n, size - n);
}

/* Says whose work on memory that was given back is waited for in vain. */
static void say_who_works(const struct pool *p, const struct client *viewer, char *out, size_t size)
{
	const struct timelines *t = gated_first_holder(&p->gated, viewer->account);
	const struct client *c = t ? p->broker->clients->by_slot[t->client] : NULL;
	char label[80];

	out[0] = '\0';
	if (c && c->order->timelines == t)
		snprintf(out, size, "; %s (pid %d) is the first of those that it waits for",
			 name_for(viewer, c, label, sizeof(label)), (int)c->peer.pid);
}

static void count_failure(const struct request *r, struct pool *p, enum alloc_failure why)
{
	static const char *const reasons[] = {
	    [ALLOC_FULL] = "full", [ALLOC_SHARE] = "share",   [ALLOC_LIMIT] = "limit",
	    [ALLOC_BUSY] = "busy", [ALLOC_SYSTEM] = "system",
	};
	const struct access_object what = pool_object(p);

	if (!is_worth_a_line(r))
		return;
	p->failed[why]++;
	pool_note(p);
	if (monitors_any(r->broker))
		monitors_tell(r->broker, &(struct notice){.action = "refuse",
							  .what = &what,
							  .is_private = true,
							  .client = r->client,
							  .size = r->m->alloc.size,
							  .detail = reasons[why]});
}

static enum alloc_failure why_refused(int error)
{
	switch (error) {
	case SHARE_ENOMEM:
		return ALLOC_FULL;
	case SHARE_EQUOTA:
		return ALLOC_LIMIT;
	case SHARE_EAGAIN:
		return ALLOC_BUSY;
	default:
		return ALLOC_SYSTEM;
	}
}

static bool fail_quota(struct request *r, struct pool *p)
{
	const struct account *a = r->client->account;
	uint64_t gated = account_gated(a);
	char also[96] = "", bytes[SIZE_TEXT_MAX];

	count_failure(r, p, ALLOC_LIMIT);
	if (!is_worth_a_line(r))
		return request_fail(r, SHARE_EQUOTA, "there is nothing left to keep");
	if (gated > 0)
		snprintf(also, sizeof(also), "; work still runs on %s that it has given back",
			 size_round(gated, bytes));
	return request_fail_quota(r, LIMIT_BYTES, also);
}

static bool refuse(struct request *r, struct pool *p, int why, const struct failure *failure)
{
	struct log_client who = client_in_log(r->client);
	char holds[768] = "", text[sizeof(failure->text) + sizeof(holds)];

	if (why == POOL_LIMIT)
		return fail_quota(r, p);
	count_failure(r, p, why == POOL_SHARE ? ALLOC_SHARE : why_refused(failure->error));
	if (failure->error == SHARE_ENOMEM && is_worth_a_line(r)) {
		say_who_holds(p, NULL, holds, sizeof(holds));
		snprintf(text, sizeof(text), "%s%s", failure->text, holds);
		log_full(&p->refusals, &who, text);
		say_who_holds(p, r->client, holds, sizeof(holds));
	}
	if (failure->error == SHARE_EAGAIN)
		say_who_works(p, r->client, holds, sizeof(holds));
	if (why == POOL_SHARE && is_worth_a_line(r))
		log_refusal(&p->refusals, r->client->peer.uid, failure->text);
	return request_fail(r, failure->error, "%s%s", failure->text, holds);
}

/* Allocates as many more buffers as there is room for. Nobody waits for them, so nothing is tried
 * twice. */
static uint32_t alloc_more(struct request *r, struct buffer *first, uint64_t alignment,
			   struct wire_more *out)
{
	const struct wire_alloc *m = &r->m->alloc;
	const struct allocation wanted = {r->client->account, m->size, alignment, {0}, NULL};
	uint32_t n = 0;

	while (n + 1 < m->count && n < MORE_MAX) {
		struct allocation a = wanted;
		struct buffer *buffer;
		struct lease *lease;
		int e;

		if (!pool_alloc_beside(buffer_pool(first), &a, first->block) ||
		    buffer_new(r->broker, &a, &buffer) != 0)
			break;
		e = scrub_is_needed(r, buffer) ||
		    lease_grant(r->broker, r->client, buffer, SHARE_RDWR, &lease, NULL) != 0;
		if (e == 0)
			out[n++] = (struct wire_more){buffer_id(buffer), block_offset(a.block)};
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
	struct grant g = {.buffer = buffer, .mode = SHARE_RDWR, .is_new = true};
	struct wire_more more[MORE_MAX];
	struct fence none = {0};
	struct lease *lease;
	struct failure failure;
	bool held;
	int e;

	/* what comes along must not take the last lease that the client may have */
	held = lease_grant(r->broker, r->client, buffer, SHARE_RDWR, &lease, NULL) == 0;
	g.more = more;
	g.n_more = held ? alloc_more(r, buffer, alignment, more) : 0;
	e = grant_send(r->broker, r->client, r->m->serial, &g, &failure);
	if (held)
		lease_return(r->broker, lease, 1, &none);
	if (e == 0)
		return;
	take_back(r, more, g.n_more);
	request_fail_with(r, &failure);
}

/* Checks the request. If this is false, what is wrong with it was answered. */
static bool is_acceptable(struct request *r, struct pool *p)
{
	const struct wire_alloc *m = &r->m->alloc;

	if (p->destroyed)
		return request_fail(r, SHARE_ENOENT, "pool '%s' was destroyed", p->name);
	if (!request_pool_right(r, p, RIGHT_WRITE))
		return false;
	/* share_adopt() of NULL asks for none */
	if (m->size == 0)
		return request_fail(r, SHARE_EINVAL, "%s",
				    pool_is_adopted(p)
					? "the memory to adopt is NULL, or has no bytes"
					: "a buffer has at least one byte");
	if (pool_is_adopted(p))
		return request_fail(
		    r, SHARE_ENOTSUP,
		    "pool '%s' is of kind adopted: it has no memory of its own, and takes "
		    "what programs have already (share_adopt())",
		    p->name);
	if (m->flags & ~(uint32_t)WIRE_ALLOC_KEEPS)
		return request_fail(r, SHARE_EINVAL, "unknown flags 0x%x", m->flags);
	if (m->alignment & (m->alignment - 1) || m->alignment > MEMORY_ALIGNMENT)
		return request_fail(r, SHARE_EINVAL,
				    "alignment %" PRIu64 " is not a power of two up to %" PRIu64,
				    m->alignment, (uint64_t)MEMORY_ALIGNMENT);
	return true;
}

/* Gives the buffer to the client, now that there is memory for it. Its bytes may have to be cleared
 * before. */
static void give_allocated(struct request *r, struct pool *p, struct buffer *buffer,
			   uint64_t alignment)
{
	struct failure failure;
	int e = scrub_is_needed(r, buffer) ? scrub_start(r, buffer, &failure) : 0;

	if (e == SCRUB_LATER)
		return;
	if (e != 0) {
		count_failure(r, p, ALLOC_SYSTEM);
		request_fail_with(r, &failure);
	} else if (r->m->alloc.count > 1) {
		give_with_more(r, buffer, alignment);
	} else {
		request_give_allocated(r->client, r->m->serial, buffer);
	}
	buffer_unref(r->broker, buffer);
}

bool handle_alloc(struct request *r)
{
	const struct wire_alloc *m = &r->m->alloc;
	struct open_pool *open = request_open_pool(r, m->pool);
	struct failure failure;
	struct allocation a = {.account = r->client->account, .size = m->size};
	struct buffer *buffer;
	struct pool *p;
	int why;

	if (!open)
		return false;
	p = open->pool;
	if (!is_acceptable(r, p))
		return false;
	if (client_asks_pool(open, m->flags & WIRE_ALLOC_KEEPS) < 0)
		return request_fail_memory(r);
	a.alignment = m->alignment > p->sizes.alignment ? m->alignment : p->sizes.alignment;
	why = pool_alloc(r->broker, p, &a, &failure);
	if (why > 0 && defer(r, p, (enum pool_result)why))
		return true;
	if (why != 0)
		return refuse(r, p, why, &failure);
	if (buffer_new(r->broker, &a, &buffer) != 0)
		return refuse(r, p, failure_no_memory(&failure, "the broker"), &failure);
	give_allocated(r, p, buffer, a.alignment);
	return true;
}

void request_give_allocated(struct client *client, uint32_t serial, struct buffer *buffer)
{
	struct grant g = {.buffer = buffer, .mode = SHARE_RDWR, .is_new = true};
	struct failure failure;
	int e;

	e = grant_send(client->broker, client, serial, &g, &failure);
	if (e != 0)
		request_reply_error(client, WIRE_ALLOC, serial, e, failure.text);
}
