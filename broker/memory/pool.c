/* SPDX-License-Identifier: MIT */

/*
 * Pools: a suballocator, what memory it carves, and who may use it. How segments come and go is
 * told in pool_grow.c. A pool knows nothing of buffers and leases, but has blocks taken and given
 * back.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/share.h>

#include "base/mutation.h"
#include "base/size.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/config/machine.h"
#include "broker/device/device.h"
#include "broker/journal/journal.h"
#include "broker/log/log.h"
#include "broker/memory/adopted.h"
#include "broker/memory/inside.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/pools.h"
#include "broker/memory/prefault.h"
#include "broker/memory/records.h"
#include "broker/memory/reuse.h"
#include "broker/monitor/monitor.h"
#include "memory/host_pages.h"

uint64_t pool_chosen_limit(const struct pool *p, uint64_t limit)
{
	uint64_t most;

	if (limit == UINT64_MAX)
		limit = pool_config_highest_limit(p->sizes.segment_size);
	if (!p->device)
		return limit;
	/* a limit that was left to the default was made with memory in mind that can be swapped */
	most = p->choice.kind->of_host ? machine_memory() : p->device->total;
	return limit > most ? most : limit;
}

uint64_t pool_chosen_segment_size(const struct pool *p, uint64_t size)
{
	return (size + p->sizes.granularity - 1) / p->sizes.granularity * p->sizes.granularity;
}

/* Checks what was said of host memory. That means nothing on a device, which "auto" may lead to. */
static int check_pages(const struct choice *choice, const struct memory_host_pages *pages,
		       struct failure *failure)
{
	return choice->kind->id == MEMORY_HOST ? memory_host_check(pages, failure) : 0;
}

static void take_pages(struct pool *p)
{
	size_t size = strlen(p->choice.reason);

	if (p->choice.kind->id != MEMORY_HOST)
		return;
	p->sizes.granularity = memory_host_granularity(&p->pages);
	memory_host_describe(&p->pages, p->choice.reason + size, sizeof(p->choice.reason) - size);
}

static void take_choice(struct pool *p, const struct choice *choice)
{
	const struct device *d = choice->device;

	p->choice = *choice;
	p->device = choice->device;
	p->sizes.granularity = choice->kind->granularity;
	if (d && d->granularity > p->sizes.granularity)
		p->sizes.granularity = d->granularity;
	take_pages(p);
	p->sizes.segment_size = pool_chosen_segment_size(p, p->sizes.segment_size);
	p->sizes.limit = pool_chosen_limit(p, p->sizes.limit);
}

static void say_what_it_is(const struct pool *p)
{
	char limit[SIZE_TEXT_MAX], memory[SIZE_TEXT_MAX];

	log_info_of(p->owner, "pool '%s': %s; limit %s", p->name, p->choice.reason,
		    size_round(p->sizes.limit, limit));
	if (!p->device && p->sizes.limit > machine_memory())
		log_warning_of(p->owner,
			       "pool '%s' may have %s, and this machine has %s of memory and swap: "
			       "when there is no more, the kernel ends processes",
			       p->name, limit, size_round(machine_memory(), memory));
}

static void tell(const struct pool *p, const char *action)
{
	const struct access_object what = pool_object(p);

	if (monitors_any(p->broker))
		monitors_tell(p->broker, &(struct notice){.action = action,
							  .what = &what,
							  .uid = p->owner,
							  .size = p->sizes.limit,
							  .detail = pool_kind_name(p)});
}

int pool_init(struct broker *b, struct pool *p)
{
	int r = pool_grow_init(b, p);

	if (r < 0)
		return r;
	p->broker = b;
	suballocator_init(&p->suballocator, &b->memory->blocks);
	LIST_INIT(&p->extent.segments);
	LIST_INIT(&p->use.stakes);
	LIST_INIT(&p->use.users);
	TAILQ_INIT(&p->use.left);
	LIST_INSERT_HEAD(&b->memory->pools, p, link);
	return 0;
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
	tell(p, "pool-create");
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

bool pool_wants_host(const struct pool *p)
{
	const struct memory_kind *kind = memory_kind_by_name(p->wish.kind, strlen(p->wish.kind));

	return kind && !kind->on_device;
}

const char *pool_kind_name(const struct pool *p)
{
	return p->choice.kind ? p->choice.kind->name : p->wish.kind;
}

const char *pool_device_name(const struct pool *p)
{
	return p->device ? p->device->uuid : NULL;
}

struct pool *pool_find(struct broker *b, const void *name, size_t size)
{
	struct pool *p;

	LIST_FOREACH (p, &b->memory->pools, link)
		if (!p->destroyed && strlen(p->name) == size && memcmp(p->name, name, size) == 0)
			return p;
	return NULL;
}

struct access_object pool_object(const struct pool *p)
{
	return (struct access_object){
	    .kind = OBJECT_POOL,
	    .name = p->name,
	    .size = strlen(p->name),
	    .is_owned = true,
	    .owner = p->owner,
	    .access = &p->access,
	};
}

bool pool_may(const struct pool *p, const struct client *client, enum access_right right)
{
	const struct access_object object = pool_object(p);

	return client_may(client, right, &object);
}

/* The library puts the user's name to the number at the beginning of the sentence. */
int pool_refuse(const struct pool *p, const struct client *client, enum access_right right,
		struct failure *failure)
{
	const struct peer *peer = &client->peer;
	unsigned uid = peer->uid;
	bool reads = pool_may(p, client, RIGHT_READ);
	const char *mode = right == RIGHT_MANAGE  ? "\"manage\""
			   : right == RIGHT_WRITE ? "\"rw\""
						  : "\"ro\" or \"rw\"";
	const char *what = !reads ? "use" : right == RIGHT_WRITE ? "only read in" : "not destroy";
	char who[96] = "in the broker's configuration";

	if (!reads && access_check(&p->access, peer->uid, peer->groups, peer->n_groups)) {
		return failure_set(
		    failure, SHARE_EACCES,
		    "user %u may not use pool '%s', as its name is not among those that this "
		    "user may use (\"names\" in the broker's configuration)",
		    uid, p->name);
	}
	/* a pool that the configuration has made is charged to nobody */
	if (p->charge.account)
		snprintf(who, sizeof(who),
			 "which user %u gives in share_pool_options.access when creating it",
			 (unsigned)p->owner);
	return failure_set(
	    failure, SHARE_EACCES,
	    "user %u may %s%s pool '%s': that takes an entry {\"user\": %u, \"mode\": %s} in the "
	    "pool's \"access\", %s",
	    uid, reads ? "" : "not ", what, p->name, uid, mode, who);
}

/* So many gated blocks are looked at before a block is carved, and so many if there is none. */
#define COLLECT_FEW  64
#define COLLECT_MANY 4096

#define MARK_STEPS 64

void pool_count_used(struct pool *p, uint64_t bytes)
{
	p->extent.used += bytes;
	if (p->extent.used > p->extent.most_used)
		p->extent.most_used = p->extent.used;
}

/* The mark is not written down whenever it rises, as the record of a pool costs as much as a few of
 * buffers. So the next broker knows it to a 64th. */
void pool_count_block(struct pool *p, const struct block *block)
{
	uint64_t noted = p->extent.most_noted;

	pool_count_used(p, block_size(block));
	p->n_buffers++;
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
	if (!p->device && size > machine_memory())
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
	if (p->reuse != SHARE_REUSE_GATE ||
	    (!gated_take_own(&p->gated, &p->suballocator, a) &&
	     !gated_take_run(&p->gated, &p->suballocator, a, false)))
		return false;
	pool_count_block(p, a->block);
	return true;
}

/* Charges the user. What a user has given back counts until the work on it is done, and is the
 * user's own to use again; if that is done here, @a has a block afterwards. */
static int pay(struct broker *b, struct pool *p, struct allocation *a, struct failure *failure)
{
	int why = pool_pay_of_share(p, a);

	if (why > 0) {
		reuse_collect(b, p, COLLECT_MANY);
		why = pool_pay_of_share(p, a);
	}
	if (why > 0 && take_own(p, a)) {
		why = pool_pay(p, a);
		if (why != 0)
			pool_free_block(b, p, a->block, NULL, NULL);
	}
	if (why == POOL_SHARE)
		pool_user_explain(p, a->account, a->size, failure);
	return why < 0 ? failure_no_memory(failure, "the broker") : why;
}

static int carve(struct pool *p, struct allocation *a, struct failure *failure)
{
	int e = pool_carve(p, a);

	if (e == 0)
		pool_count_block(p, a->block);
	else
		e = e == SUBALLOCATOR_FULL ? POOL_FULL : failure_no_memory(failure, "the broker");
	return e;
}

static int find_block(struct broker *b, struct pool *p, struct allocation *a,
		      struct failure *failure)
{
	int why;

	reuse_collect(b, p, COLLECT_FEW);
	why = carve(p, a, failure);
	if (why == POOL_FULL && take_own(p, a))
		return 0;
	if (why == POOL_FULL && reuse_collect(b, p, COLLECT_MANY))
		why = carve(p, a, failure);
	return why;
}

/* Looks for gated memory when there is no other, and the pool can have no more now. If work of
 * others runs on it, the request can wait until that is done. */
static int find_gated(struct pool *p, struct allocation *a, int why, struct failure *failure)
{
	if (p->reuse == SHARE_REUSE_GATE && gated_take_run(&p->gated, &p->suballocator, a, true)) {
		pool_count_block(p, a->block);
		return 0;
	}
	if (failure->error == SHARE_ENOMEM && reuse_makes_room(p, a, failure))
		return POOL_BUSY;
	return why;
}

static int find_or_make_block(struct broker *b, struct pool *p, struct allocation *a,
			      struct failure *failure)
{
	int why = find_block(b, p, a, failure);

	if (why != POOL_FULL)
		return why;
	why = pool_grow(b, p, a->size, failure);
	if (why == POOL_FULL || why == POOL_BUSY)
		return find_gated(p, a, why, failure);
	if (why == 0)
		why = carve(p, a, failure);
	return why == POOL_FULL ? failure_no_memory(failure, "the broker") : why;
}

int pool_alloc(struct broker *b, struct pool *p, struct allocation *a, struct failure *failure)
{
	int why = check_size(p, a->size, failure);

	if (why == 0)
		why = pay(b, p, a, failure);
	if (why == 0 && !a->block)
		why = find_or_make_block(b, p, a, failure);
	if (why != 0)
		pool_charge_return(p, &a->charge);
	return why;
}

bool pool_alloc_beside(struct pool *p, struct allocation *a, const struct block *beside)
{
	if (pool_pay_of_share(p, a) != 0)
		return false;
	if (pool_carve(p, a) != 0)
		goto none;
	if (a->block->region != beside->region) {
		suballocator_free(&p->suballocator, a->block);
		goto none;
	}
	pool_count_block(p, a->block);
	return true;

none:
	pool_charge_return(p, &a->charge);
	return false;
}

static void return_segments(struct broker *b, struct pool *p)
{
	uint64_t keep = p->sizes.release_threshold;

	if (keep < p->sizes.prefault)
		keep = p->sizes.prefault;
	/* a pool above its limit, which was lowered, keeps nothing; nor does it keep what is its
	 * owner's */
	if (p->extent.reserved > p->sizes.limit || pool_is_adopted(p))
		keep = 0;
	pool_shrink(b, p, keep);
	pool_end_if_unused(b, p);
}

static bool is_there(const struct segment *s)
{
	return s->memory.recipe.flags & MEMORY_IS_THERE;
}

/* Has the pages made of the prefault that were not all there when the broker before ended. It does
 * not matter of which segments they are, and pages that are there take no time. */
static void fill_again(struct broker *b, struct pool *p)
{
	uint64_t left = p->sizes.prefault, size;
	struct segment *s;

	LIST_FOREACH (s, &p->extent.segments, link) {
		size = s->state == SEGMENT_ACTIVE && is_there(s) ? s->memory.recipe.size : 0;
		left -= size < left ? size : left;
	}
	LIST_FOREACH (s, &p->extent.segments, link) {
		if (left == 0 || s->state != SEGMENT_ACTIVE || is_there(s))
			continue;
		prefault_start(b, s, left);
		size = s->memory.recipe.size;
		left -= size < left ? size : left;
	}
}

void pools_restored(struct broker *b)
{
	struct pool *p, *next;

	restored_deinit(&b->memory->restored.pools);
	for (p = LIST_FIRST(&b->memory->pools); p; p = next) {
		next = LIST_NEXT(p, link); /* only @p can end */
		if (p->gated.n > 0)
			memory_look_soon(b);
		fill_again(b, p);
		return_segments(b, p);
	}
}

void pool_free_block(struct broker *b, struct pool *p, struct block *block, struct fence_set *gate,
		     struct charge *charge)
{
	struct region *region = block->region;

	p->extent.used -= block_size(block);
	p->n_buffers--;
	reuse_release(b, p, block, gate, charge);
	if (region_is_empty(region))
		return_segments(b, p);
}

uint64_t pool_largest_free(const struct pool *p)
{
	uint64_t largest = 0, left;

	if (!p->choice.kind)
		return p->sizes.limit;
	if (!pool_is_adopted(p)) /* what lies beside a buffer there nobody may have */
		largest = suballocator_largest_free(&p->suballocator);
	if (p->reuse == SHARE_REUSE_GATE && gated_largest(&p->gated) > largest)
		largest = gated_largest(&p->gated);
	left = pool_room(p);
	left -= left % p->sizes.granularity;
	if (p->choice.kind->segment_max && left > p->choice.kind->segment_max)
		left = p->choice.kind->segment_max;
	return largest > left ? largest : left;
}

static void stay(struct pool *p, bool persistent)
{
	p->persistent = persistent;
	p->flags &= ~(uint32_t)SHARE_POOL_PERSISTENT;
	p->flags |= persistent ? SHARE_POOL_PERSISTENT : 0;
}

void pool_change(struct broker *b, struct pool *p, const struct pool_config *config,
		 struct access_list *access)
{
	access_list_deinit(&p->access);
	p->access = *access;
	*access = (struct access_list){0};
	p->sizes.limit = pool_chosen_limit(p, config->limit);
	p->sizes.release_threshold = config->release_threshold;
	stay(p, true);
	pool_note(p);
	return_segments(b, p);
	pool_wake(p);
}

void pool_leave(struct broker *b, struct pool *p)
{
	stay(p, false);
	pool_note(p);
	pool_end_if_unused(b, p);
}

void pool_destroy(struct broker *b, struct pool *p)
{
	p->destroyed = true;
	p->persistent = false;
	pool_note(p);
	tell(p, "pool-destroy");
	pool_end_if_unused(b, p);
}

void pool_end_if_unused(struct broker *b, struct pool *p)
{
	/* whoever waits in the pool has it open; a segment that is being made for it comes back to
	 * it */
	if (p->persistent || p->n_buffers > 0 || p->growth.is_under_way ||
	    (p->use.opens > 0 && !p->destroyed))
		return;
	if (!p->destroyed) {
		p->destroyed = true;
		pool_note(p);
	}
	/* the rest follows when the pool is looked at again */
	reuse_collect(b, p, COLLECT_FEW);
	pool_shrink(b, p, 0);
	if (p->extent.n_segments > 0 || p->use.opens > 0)
		return;
	deferred_fail(&p->waiting.requests, SHARE_ENOENT, "the pool was closed meanwhile");
	if (!b->has_ended)
		log_info_of(p->owner, "pool '%s' has ended", p->name);
	tell(p, "pool-end");
	pool_users_deinit(p);
	journal_drop(b->journal, &p->record);
	LIST_REMOVE(p, link);
	pool_grow_deinit(p);
	suballocator_deinit(&p->suballocator);
	access_list_deinit(&p->access);
	charge_return(&p->charge);
	free(p->wish.device);
	free(p->name);
	free(p);
}

bool pool_look_again(struct broker *b, struct pool *p, uint32_t limit)
{
	bool any = reuse_collect(b, p, limit);

	if (any)
		pool_wake(p);
	if (p->gated.n > 0)
		memory_look_again(b);
	return_segments(b, p);
	return any;
}
