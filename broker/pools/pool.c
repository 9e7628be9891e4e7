/* SPDX-License-Identifier: MIT */

/*
 * Pools are made, and blocks are taken of them. How segments come and go, and blocks come back, is
 * told in pool_grow.c and pool_shrink.c. A pool knows nothing of buffers and leases.
 */

#include <stdlib.h>
#include <string.h>

#include <share/share.h>

#include "base/mutation.h"
#include "base/size.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/config/machine.h"
#include "broker/device/device.h"
#include "broker/log/log.h"
#include "broker/memory/gated.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool_object.h"
#include "broker/memory/pool_user.h"
#include "broker/pools/inside.h"
#include "broker/pools/pool_records.h"
#include "broker/pools/pools.h"
#include "broker/pools/reuse.h"
#include "memory/host_pages.h"

/* Checks what was said of host memory. That means nothing on a device, which "auto" may lead to. */
static int check_pages(const struct choice *choice, const struct memory_host_pages *pages,
		       struct failure *failure)
{
	return choice->kind->id == MEMORY_HOST ? memory_host_check(pages, failure) : 0;
}

static void take_choice(struct pool *p, const struct choice *choice)
{
	const struct device *d = choice->device;
	size_t size = strlen(choice->reason);

	p->choice = *choice;
	p->sizes.granularity = choice->kind->granularity;
	if (d && d->granularity > p->sizes.granularity)
		p->sizes.granularity = d->granularity;
	if (choice->kind->id == MEMORY_HOST) {
		p->sizes.granularity = memory_host_granularity(&p->pages);
		memory_host_describe(&p->pages, p->choice.reason + size,
				     sizeof(p->choice.reason) - size);
	}
	p->sizes.segment_size = pool_chosen_segment_size(p, p->sizes.segment_size);
	p->sizes.limit = pool_chosen_limit(p, p->sizes.limit);
}

static void say_what_it_is(const struct pool *p)
{
	char limit[SIZE_TEXT_MAX], memory[SIZE_TEXT_MAX];

	log_info_of(p->owner, "pool '%s': %s; limit %s", p->name, p->choice.reason,
		    size_round(p->sizes.limit, limit));
	if (!p->choice.device && p->sizes.limit > machine_memory())
		log_warning_of(p->owner,
			       "pool '%s' may have %s, and this machine has %s of memory and swap: "
			       "when there is no more, the kernel ends processes",
			       p->name, limit, size_round(machine_memory(), memory));
}

int pool_new(struct broker *b, struct pool_config *config, const struct choice *choice, uid_t owner,
	     struct account *account, bool persistent, struct pool **out, struct failure *failure)
{
	const struct memory_host_pages pages = {config->huge_pages, config->numa};
	int r = choice ? check_pages(choice, &pages, failure) : 0;
	struct pool *p = r == 0 ? calloc(1, sizeof(*p)) : NULL;

	if (r != 0)
		return r;
	if (!p)
		return failure_no_memory(failure, "the broker");
	if (account && !charge_take(&p->charge, account, LIMIT_POOLS, 1)) {
		free(p);
		return account_refuse(account, LIMIT_POOLS, "", failure);
	}
	if (pool_init(b, p) < 0) {
		charge_return(&p->charge);
		free(p);
		return failure_no_memory(failure, "the broker");
	}
	p->id = ++b->memory->last_pool;
	p->wish.kind = config->kind;
	p->wish.device = config->device;
	config->device = NULL;
	p->flags = config->same_address ? SHARE_POOL_SAME_ADDRESS : 0;
	p->flags |= persistent ? SHARE_POOL_PERSISTENT : 0;
	p->reuse = config->reuse;
	p->sizes.limit = config->limit;
	p->sizes.segment_size = config->segment_size;
	p->sizes.alignment = config->alignment;
	p->sizes.release_threshold = config->release_threshold;
	p->sizes.prefault = config->prefault;
	p->pages = pages;
	p->owner = owner;
	p->persistent = persistent;
	p->name = config->name;
	config->name = NULL;
	p->access = config->access;
	config->access = (struct access_list){0};
	if (choice) {
		take_choice(p, choice);
		say_what_it_is(p);
	}
	pool_tell(p, "pool-create");
	*out = p;
	return 0;
}

int pool_resolve(struct broker *b, struct pool *p, struct failure *failure)
{
	struct choice choice;
	int r;

	if (p->choice.kind)
		return 0;
	r = choose(b, p->wish.kind, p->wish.device, p->flags, p->sizes.limit, &choice, failure);
	if (r == CHOICE_LATER)
		return POOL_LATER;
	if (r == 0)
		r = check_pages(&choice, &p->pages, failure);
	if (r != 0)
		return r;
	take_choice(p, &choice);
	pool_note(p);
	/* that a pool of host memory has host memory is no news */
	if (!pool_wants_host(p))
		say_what_it_is(p);
	pool_make_ahead(b, p);
	return 0;
}

#define MARK_STEPS 64

/* The mark is not written down whenever it rises, as the record of a pool costs as much as a few of
 * buffers. So the next broker knows it to a 64th. */
void pool_count_block(struct pool *p, const struct block *block)
{
	uint64_t noted = p->extent.most_noted;

	pool_count_used(&p->extent, block);
	if (p->extent.most_used <= noted + noted / MARK_STEPS || MUTATION(most_not_noted))
		return;
	p->extent.most_noted = p->extent.most_used;
	pool_note(p);
}

int pool_fail_size(const struct pool *p, uint64_t size, struct failure *failure)
{
	char wanted[SIZE_EXACT_MAX], limit[SIZE_TEXT_MAX];

	return failure_set(
	    failure, SHARE_ENOMEM, "pool '%s' can never hold a buffer of %s: at most %s", p->name,
	    size_exact(size, wanted),
	    size_round(p->sizes.limit < POOL_BUFFER_MAX ? p->sizes.limit : POOL_BUFFER_MAX, limit));
}

/* Checks whether there can ever be so much. If not, it returns a SHARE_E... number with a
 * sentence. */
static int check_size(const struct pool *p, uint64_t size, struct failure *failure)
{
	const struct memory_kind *kind = p->choice.kind;
	char wanted[SIZE_EXACT_MAX], most[SIZE_TEXT_MAX];

	/* regions start aligned to MEMORY_ALIGNMENT, so a fresh one needs no room to align in */
	if (size > p->sizes.limit || size > POOL_BUFFER_MAX)
		return pool_fail_size(p, size, failure);
	if (!p->choice.device && size > machine_memory())
		return failure_set(failure, SHARE_ENOMEM,
				   "this machine has %s of memory and swap, and can never hold a "
				   "buffer of %s: whoever wrote to all of it would be ended by the "
				   "kernel",
				   size_round(machine_memory(), most), size_exact(size, wanted));
	if (kind->segment_max && pool_chosen_segment_size(p, size) > kind->segment_max)
		return failure_set(
		    failure, SHARE_ENOTSUP,
		    "a buffer of kind %s cannot have %s, but at most %s, above which the driver "
		    "crashes those who import it: use a pool of kind vmm",
		    kind->name, size_exact(size, wanted), size_round(kind->segment_max, most));
	return 0;
}

/* Takes what @a's user still pays for though it has given it back. Nobody pays for it then. */
static bool take_own(struct pool *p, struct allocation *a)
{
	return p->reuse == SHARE_REUSE_GATE &&
	       (gated_take_own(&p->gated, &p->suballocator, a) ||
		gated_take_run(&p->gated, &p->suballocator, a, false));
}

/* Charges the user. What a user has given back counts until the work on it is done, and is the
 * user's own to use again; if that is done here, @a has a block afterwards. */
static int pay(struct broker *b, struct pool *p, struct allocation *a, struct failure *failure)
{
	int why = pool_pay(p, a, true);

	if (why > 0) {
		reuse_collect(b, p, COLLECT_MANY);
		why = pool_pay(p, a, true);
	}
	if (why > 0 && take_own(p, a)) {
		pool_count_block(p, a->block);
		why = pool_pay(p, a, false);
		if (why != 0)
			pool_free_block(b, p, a->block, NULL, NULL);
	}
	if (why == POOL_SHARE)
		pool_user_explain(p, a->account, a->size, failure);
	return why < 0 ? failure_no_memory(failure, "the broker") : why;
}

/* Looks for gated memory when there is no other, and the pool can have no more now. If work of
 * others runs on it, the request can wait until that is done. */
static int find_gated(struct pool *p, struct allocation *a, int why, struct failure *failure)
{
	if (p->reuse == SHARE_REUSE_GATE && gated_take_run(&p->gated, &p->suballocator, a, true))
		return 0;
	if (failure->error == SHARE_ENOMEM && reuse_makes_room(p, a, failure))
		return POOL_BUSY;
	return why;
}

static int find_or_make_block(struct broker *b, struct pool *p, struct allocation *a,
			      struct failure *failure)
{
	int why;

	reuse_collect(b, p, COLLECT_FEW);
	why = pool_carve(p, a);
	if (why == POOL_FULL && take_own(p, a))
		return 0;
	if (why == POOL_FULL && reuse_collect(b, p, COLLECT_MANY))
		why = pool_carve(p, a);
	if (why == POOL_FULL) {
		why = pool_grow(b, p, a->size, failure);
		if (why == POOL_FULL || why == POOL_BUSY)
			return find_gated(p, a, why, failure);
		if (why != 0)
			return why;
		why = pool_carve(p, a);
	}
	return why == 0 ? 0 : failure_no_memory(failure, "the broker");
}

int pool_alloc(struct broker *b, struct pool *p, struct allocation *a, struct failure *failure)
{
	int why = check_size(p, a->size, failure);

	if (why == 0)
		why = pay(b, p, a, failure);
	if (why == 0 && !a->block) {
		why = find_or_make_block(b, p, a, failure);
		if (why == 0)
			pool_count_block(p, a->block);
	}
	if (why != 0)
		pool_charge_return(p, &a->charge);
	return why;
}

bool pool_alloc_beside(struct pool *p, struct allocation *a, const struct block *beside)
{
	if (pool_pay(p, a, true) != 0)
		return false;
	if (pool_carve(p, a) == 0) {
		if (a->block->region == beside->region) {
			pool_count_block(p, a->block);
			return true;
		}
		suballocator_free(&p->suballocator, a->block);
	}
	pool_charge_return(p, &a->charge);
	return false;
}
