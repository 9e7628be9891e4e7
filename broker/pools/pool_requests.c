/* SPDX-License-Identifier: MIT */

/* Requests about pools. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <share/share.h>

#include "base/size.h"
#include "base/text.h"
#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/config/lists.h"
#include "broker/device/device.h"
#include "broker/log/log.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/memory/pool_user.h"
#include "broker/pools/open_pools.h"
#include "broker/pools/pool_records.h"
#include "broker/pools/pools.h"
#include "broker/pools/trim.h"
#include "broker/reply/request.h"

#define FLAGS_KNOWN (SHARE_POOL_PERSISTENT | SHARE_POOL_SAME_ADDRESS | SHARE_POOL_OPEN_OR_CREATE)

static bool reply_pool(struct request *r, struct pool *p)
{
	struct wire_message m = {.type = WIRE_POOL};
	int e = client_open_pool(r->client, p);

	if (e < 0) {
		if (e == -EDQUOT)
			request_fail_quota(r, LIMIT_MEMORY, "");
		else
			request_fail_memory(r);
		pool_end_if_unused(r->broker, p);
		return false;
	}
	m.pool = (struct wire_pool){
	    .pool = p->id,
	    .limit = p->sizes.limit,
	    .segment_size = p->sizes.segment_size,
	    .alignment = p->sizes.alignment,
	    .mode = pool_may(p, r->client, RIGHT_WRITE) ? SHARE_RDWR : SHARE_RDONLY,
	    .manage = pool_may(p, r->client, RIGHT_MANAGE),
	    .flags = p->flags,
	    .reuse = p->reuse,
	    .kind = wire_text(p->choice.kind->name),
	    .device = wire_text(pool_device_name(p)),
	    .reason = wire_text(p->choice.reason),
	};
	return request_reply(r, &m, NULL, 0);
}

bool request_resolve_pool(struct request *r, struct pool *p)
{
	struct failure failure;
	int e = pool_resolve(r->broker, p, &failure);

	if (e == POOL_LATER)
		request_defer(r, &r->broker->devices->waits);
	else if (e != 0)
		request_fail(r, e, "pool '%s': %s", p->name, failure.text);
	return e == 0;
}

struct pool *request_pool(struct request *r, const struct wire_bytes *name)
{
	struct pool *p = pool_find(r->broker, name->data, name->size);
	struct failure failure;

	if (p && pool_may(p, r->client, RIGHT_READ))
		return p;
	if (p) {
		pool_refuse(p, r->client, RIGHT_READ, &failure);
		request_hide(r, "%s", failure.text);
	}
	request_fail_absent(r, "pool", name);
	return NULL;
}

bool handle_pool_open(struct request *r)
{
	const struct wire_bytes *name = &r->m->pool_open.name;
	struct pool *p;

	if (!request_name(r, name))
		return false;
	p = request_pool(r, name);
	return p && request_resolve_pool(r, p) && reply_pool(r, p);
}

/* ------------------------------------------------------------------------------------------- */
/* What is there has to be what is asked for, as far as anything is */

/* Answers that an option is not what there is. Returns false. */
static bool is_unlike(struct request *r, const struct pool *p, const char *option, const char *is,
		      const char *wanted)
{
	return request_fail_unlike(r, option, "pool", p->name, is, wanted);
}

static bool check_text(struct request *r, const struct pool *p, const char *option, const char *is,
		       const struct wire_bytes *wanted)
{
	char text[64], shown[256];

	if (!wanted->size ||
	    (strlen(is) == wanted->size && !memcmp(is, wanted->data, wanted->size)))
		return true;
	snprintf(text, sizeof(text), "%.*s", (int)wanted->size, (const char *)wanted->data);
	return is_unlike(r, p, option, *is ? is : "none",
			 text_printable(text, shown, sizeof(shown)));
}

static bool check_size_option(struct request *r, const struct pool *p, const char *option,
			      uint64_t is, uint64_t wanted, uint64_t chosen)
{
	char is_text[SIZE_EXACT_MAX], wanted_text[SIZE_EXACT_MAX];

	return chosen == is ||
	       is_unlike(r, p, option, size_tell(is, is_text), size_tell(wanted, wanted_text));
}

/* Answers with what a parser found wrong. True: nothing. */
static bool is_parsed(struct request *r, int e, const char *error)
{
	if (e == -ENOMEM)
		return request_fail_memory(r);
	return e == 0 || request_fail(r, SHARE_EINVAL, "%s", error);
}

static bool check_access(struct request *r, const struct pool *p)
{
	const struct wire_bytes *text = &r->m->pool_create.access;
	struct access_list wanted = {0};
	char one[300], other[300];
	bool same;

	if (!text->size)
		return true;
	if (!is_parsed(r, access_parse_text(text->data, text->size, &wanted, one, sizeof(one)),
		       one))
		return false;
	same = access_list_equal(&p->access, &wanted) ||
	       is_unlike(r, p, "access", access_format(&p->access, one, sizeof(one)),
			 access_format(&wanted, other, sizeof(other)));
	access_list_deinit(&wanted);
	return same;
}

static bool check_same_pages(struct request *r, const struct pool *p)
{
	const struct wire_pool_create *m = &r->m->pool_create;
	char is[POOL_NUMA_MAX], wanted[POOL_NUMA_MAX];

	if (m->huge_pages > SHARE_HUGE_PAGES_REQUIRE)
		return request_fail(r, SHARE_EINVAL,
				    "huge_pages: %u is not an enum share_huge_pages",
				    m->huge_pages);
	if (m->huge_pages != SHARE_HUGE_PAGES_SYSTEM && m->huge_pages != p->pages.huge_pages)
		return is_unlike(r, p, "huge_pages", pool_huge_pages_name(p->pages.huge_pages),
				 pool_huge_pages_name(m->huge_pages));
	return m->numa == SHARE_NUMA_ANY || m->numa == p->pages.numa ||
	       is_unlike(r, p, "numa", pool_numa_name(p->pages.numa, is),
			 pool_numa_name(m->numa, wanted));
}

static bool check_same(struct request *r, struct pool *p)
{
	const struct wire_pool_create *m = &r->m->pool_create;
	bool any = m->kind.size == 4 && memcmp(m->kind.data, "auto", 4) == 0;
	uint32_t lacks = m->flags & ~p->flags & ~(uint32_t)SHARE_POOL_OPEN_OR_CREATE;
	const char *device = pool_device_name(p);
	uint64_t keep = m->release_threshold == SHARE_KEEP_NONE ? 0 : m->release_threshold;

	if (lacks)
		return is_unlike(r, p,
				 lacks & SHARE_POOL_PERSISTENT ? "persistent" : "same_address",
				 "false", "true");
	if (m->reuse > SHARE_REUSE_SCRUB)
		return request_fail(r, SHARE_EINVAL, "reuse: %u is not an enum share_reuse",
				    m->reuse);
	if (m->reuse != SHARE_REUSE_GATE && m->reuse != p->reuse)
		return is_unlike(r, p, "reuse", pool_reuse_name(p->reuse),
				 pool_reuse_name(m->reuse));
	return (any || check_text(r, p, "kind", p->choice.kind->name, &m->kind)) &&
	       check_text(r, p, "device", device ? device : "", &m->device) &&
	       (!m->limit || check_size_option(r, p, "limit", p->sizes.limit, m->limit,
					       pool_chosen_limit(p, m->limit))) &&
	       (!m->segment_size ||
		check_size_option(r, p, "segment_size", p->sizes.segment_size, m->segment_size,
				  pool_chosen_segment_size(p, m->segment_size))) &&
	       (!m->alignment || check_size_option(r, p, "alignment", p->sizes.alignment,
						   m->alignment, m->alignment)) &&
	       (!m->prefault ||
		check_size_option(r, p, "prefault", p->sizes.prefault, m->prefault, m->prefault)) &&
	       check_same_pages(r, p) &&
	       (!m->release_threshold ||
		check_size_option(r, p, "release_threshold", p->sizes.release_threshold, keep,
				  keep)) &&
	       check_access(r, p);
}

/* ------------------------------------------------------------------------------------------- */

/* Copies all of the request that needs a copy, and checks it. False: it was answered. */
static bool parse_options(struct request *r, struct pool_config *config, char *kind)
{
	const struct wire_pool_create *m = &r->m->pool_create;
	char error[512];
	int e;

	if (m->kind.size && memchr(m->kind.data, '\0', m->kind.size))
		return request_fail(r, SHARE_EINVAL, "the kind is not a text");
	if (m->kind.size)
		memcpy(kind, m->kind.data, m->kind.size);
	kind[m->kind.size] = '\0';
	config->kind = m->kind.size ? kind : NULL;
	config->limit = m->limit;
	config->segment_size = m->segment_size;
	config->alignment = m->alignment;
	if (m->release_threshold == SHARE_KEEP_NONE)
		config->release_threshold = 0;
	else if (m->release_threshold > 0)
		config->release_threshold = m->release_threshold;
	config->same_address = m->flags & SHARE_POOL_SAME_ADDRESS;
	config->reuse = m->reuse;
	config->prefault = m->prefault;
	config->huge_pages = m->huge_pages;
	config->numa = m->numa;
	config->name = strndup(m->name.data, m->name.size);
	if (m->device.size)
		config->device = strndup(m->device.data, m->device.size);
	if (!config->name || (m->device.size && !config->device))
		return request_fail_memory(r);
	e = pool_config_validate(config, r->broker->config->default_pool_limit, error,
				 sizeof(error));
	if (e == 0 && m->access.size)
		e = access_parse_text(m->access.data, m->access.size, &config->access, error,
				      sizeof(error));
	return is_parsed(r, e, error);
}

/* Whether a user may have so much more made ahead. Memory that is made ahead is nobody's, and the
 * broker pays for it. So of all pools that a user has created it is no more than that user may
 * allocate. */
static bool may_make_ahead(struct request *r, uint64_t bytes)
{
	const struct account *account = r->client->account;
	const struct pool *p;

	if (bytes == 0)
		return true;
	LIST_FOREACH (p, &r->broker->memory->pools, link)
		if (p->charge.account == account)
			bytes += p->sizes.prefault;
	if (bytes <= account_limit(account, LIMIT_BYTES))
		return true;
	return request_fail_quota(
	    r, LIMIT_BYTES, ", which its pools may not have more than made ahead (\"prefault\")");
}

static bool create(struct request *r, struct pool_config *config)
{
	struct broker *b = r->broker;
	struct account *account = r->client->account;
	struct choice choice;
	struct failure failure;
	struct pool *p;
	int e;

	/* a persistent pool would be there then, but not open */
	if (!account_may_add(account, LIMIT_MEMORY, price_of(LIMIT_POOLS, 1, 0) + PRICE_OPEN_POOL))
		return request_fail_quota(r, LIMIT_MEMORY, "");
	if (!may_make_ahead(r, config->prefault))
		return false;
	e = choose(b, config->kind, config->device,
		   config->same_address ? SHARE_POOL_SAME_ADDRESS : 0, config->limit, &choice,
		   &failure);
	/* what was checked had yet to be rounded to what the kind takes */
	if (r->m->pool_create.limit == UINT64_MAX)
		config->limit = UINT64_MAX;
	if (e == 0)
		e = pool_new(b, config, &choice, r->client->peer.uid, account,
			     r->m->pool_create.flags & SHARE_POOL_PERSISTENT, &p, &failure);
	if (e == CHOICE_LATER)
		return request_defer(r, &b->devices->waits);
	if (e != 0)
		return request_fail_with(r, &failure);
	pool_note(p);
	pool_make_ahead(b, p);
	return reply_pool(r, p);
}

bool handle_pool_create(struct request *r)
{
	const struct wire_pool_create *m = &r->m->pool_create;
	struct pool_config config = POOL_CONFIG_INIT;
	struct pool *p;
	char kind[32];
	bool seen, made;

	if (!request_name(r, &m->name))
		return false;
	if (m->flags & ~(uint32_t)FLAGS_KNOWN)
		return request_fail(r, SHARE_EINVAL, "unknown flags 0x%x", m->flags);
	p = pool_find(r->broker, m->name.data, m->name.size);
	seen = p && pool_may(p, r->client, RIGHT_READ);
	if (seen && m->flags & SHARE_POOL_OPEN_OR_CREATE)
		return request_resolve_pool(r, p) && check_same(r, p) && reply_pool(r, p);
	/* a user who may not create pools is not told whether there is one that is not for this
	 * user */
	if (!client_may(r->client, RIGHT_CREATE, &(struct access_object){.kind = OBJECT_POOL})) {
		return request_fail(r, SHARE_EACCES,
				    "%s%.*s%suser %u may not create pools: \"create_pools\" in the "
				    "broker's configuration says who may",
				    seen ? "" : "there is no pool '", seen ? 0 : (int)m->name.size,
				    (const char *)m->name.data,
				    seen ? "" : "' that this user may use, and ",
				    (unsigned)r->client->peer.uid);
	}
	if (!request_may_name(r, RIGHT_CREATE, &m->name))
		return request_fail_foreign_name(r, SHARE_EACCES, "create a pool", &m->name);
	if (p)
		return request_fail(
		    r, SHARE_EEXIST,
		    seen ? "there is a pool '%s' already (share_pool_open() opens it, "
			   "SHARE_POOL_OPEN_OR_CREATE does either)"
			 : "'%s' is taken, by a pool that this user may not use",
		    p->name);
	made = parse_options(r, &config, kind) && create(r, &config);
	pool_config_deinit(&config);
	return made;
}

bool handle_pool_close(struct request *r)
{
	struct open_pool *open = request_open_pool(r, r->m->pool_close.pool);

	if (!open)
		return false;
	client_close_pool(open);
	return request_done(r);
}

bool handle_pool_destroy(struct request *r)
{
	const struct wire_bytes *name = &r->m->pool_destroy.name;
	struct pool *p;

	if (!request_name(r, name))
		return false;
	p = pool_find(r->broker, name->data, name->size);
	/* who may not even read in it is not told that it is there */
	if (!p || !pool_may(p, r->client, RIGHT_MANAGE)) {
		p = request_pool(r, name);
		if (!p || !request_pool_right(r, p, RIGHT_MANAGE))
			return false;
	}
	log_info_of(r->client->peer.uid, "pool '%s' is destroyed, as uid %u asked for it", p->name,
		    (unsigned)r->client->peer.uid);
	trim_end(r->broker, p);
	pool_destroy(r->broker, p);
	return request_done(r);
}
