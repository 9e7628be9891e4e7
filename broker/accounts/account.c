/* SPDX-License-Identifier: MIT */

/*
 * Accounts by user. Knows numbers, limits and what they are called; never what the resources are,
 * and never decides what happens to whoever exceeds them.
 *
 * What is charged is charged here, once. What else the broker counts says what this cannot:
 *
 * - Of which pool a user's bytes are (memory/pool_user.h), as each pool is shared by itself, and
 *   how many users want some of it, which their shares depend on. From the same charges.
 * - How much memory a pool has (its extent, memory/pool.h), whoever uses it.
 * - Who holds a pool's memory (buffer/stake.h), to be named to who finds it full. A buffer is paid
 *   for once, and held by many.
 * - What a process holds (client/client.h), for reports and the log. Of a user there may be many.
 * - For how many of the messages that it keeps a consumer's user pays (n_paid, channel/inside.h):
 *   no more than this consumer says that it has, whatever else the user pays for.
 * - Of the bytes in use, those that work alone still runs on (gated); and of the sum of all users
 *   what is no user's (nobodys). These are parts, and nothing beside.
 * - Descriptors on their way (fds_in_flight). The kernel counts these itself, of all receivers
 *   together, and who has too many waits until some have arrived: nobody is refused for them.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/queue.h>

#include <share/error.h>

#include "base/mutation.h"
#include "base/size.h"
#include "broker/accounts/account.h"
#include "broker/accounts/fair_share.h"
#include "broker/accounts/inside.h"
#include "broker/accounts/price.h"
#include "broker/log/log.h"
#include "wire/wire.h"

struct account {
	LIST_ENTRY(account) link;
	unsigned refs;
	uid_t uid;
	const struct limits *limits;
	uint64_t used[LIMIT_KINDS];
	uint64_t gated; /* bytes of those in LIMIT_BYTES */
	struct accounts *all;
	size_t fds_in_flight;
	struct user_turns turns;
	uint32_t lacks_memory; /* bits: what was refused last for want of memory */
	struct log_rate refusals[LIMIT_KINDS];
};

struct accounts {
	LIST_HEAD(, account) list; /* one for each user who has something, or is in debt: few */
	const struct config *config;
	size_t fds_in_flight, max_fds, max_fds_of_one;
	uint64_t used[LIMIT_KINDS]; /* by all users, and what is nobody's: */
	uint64_t nobodys[LIMIT_KINDS];
	uint64_t total[LIMIT_KINDS]; /* of what users share; 0: they do not */
	bool without_limits;
};

int accounts_new(const struct config *config, struct accounts **out)
{
	struct accounts *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	LIST_INIT(&a->list);
	a->config = config;
	accounts_limit_fds(a, 1024);
	*out = a;
	return 0;
}

static void forget(struct account *a)
{
	LIST_REMOVE(a, link);
	free(a);
}

/* Forgets users who hold nothing, and owe others no time any more: such a user is like one who was
 * never here. */
static void forget_some(struct accounts *accounts)
{
	struct account *a, *next;

	for (a = LIST_FIRST(&accounts->list); a; a = next) {
		next = LIST_NEXT(a, link);
		if (a->refs == 0 && !user_turns_in_debt(&a->turns))
			forget(a);
	}
}

void accounts_free(struct accounts *accounts)
{
	struct account *a;

	if (!accounts)
		return;
	while ((a = LIST_FIRST(&accounts->list)) && a->refs == 0)
		forget(a);
	if (a || accounts->used[LIMIT_DESCRIPTORS])
		log_bug("an account outlives the broker");
	free(accounts);
}

void accounts_without_limits(struct accounts *accounts, bool without)
{
	accounts->without_limits = without;
}

void accounts_reconfigure(struct accounts *accounts)
{
	struct account *a;

	LIST_FOREACH (a, &accounts->list, link)
		a->limits = config_limits_for(accounts->config, a->uid);
}

struct account *account_get(struct accounts *accounts, uid_t uid)
{
	struct account *a;

	LIST_FOREACH (a, &accounts->list, link)
		if (a->uid == uid)
			return account_ref(a);
	forget_some(accounts);
	a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	a->refs = 1;
	a->uid = uid;
	a->all = accounts;
	a->limits = config_limits_for(accounts->config, uid);
	LIST_INSERT_HEAD(&accounts->list, a, link);
	return a;
}

struct account *account_ref(struct account *a)
{
	a->refs++;
	return a;
}

void account_unref(struct account *a)
{
	if (!a || --a->refs > 0)
		return;
	for (int i = 0; i < LIMIT_KINDS; i++)
		if (a->used[i])
			log_bug("the account of uid %u ends with %llu %s", (unsigned)a->uid,
				(unsigned long long)a->used[i], limit_name((enum limit_kind)i));
	if (a->fds_in_flight)
		log_bug("the account of uid %u ends with %zu descriptors in flight",
			(unsigned)a->uid, a->fds_in_flight);
	if (a->gated)
		log_bug("the account of uid %u ends with %llu gated bytes", (unsigned)a->uid,
			(unsigned long long)a->gated);
	user_turns_deinit(&a->turns);
	if (!user_turns_in_debt(&a->turns))
		forget(a);
}

/* How much each user may have in any case. A user who needs little is served all the same, as there
 * may be less than there was, and many who have the rest. */
static uint64_t least_of(enum limit_kind resource, uint64_t total)
{
	return resource == LIMIT_MEMORY ? total / 64 : 0;
}

uint64_t account_limit(const struct account *a, enum limit_kind resource)
{
	const struct fair_share all = {.total = a->all->total[resource],
				       .used = a->all->used[resource],
				       .least = least_of(resource, a->all->total[resource])};
	uint64_t limit = a->limits->max[resource], most;

	if (all.total == 0)
		return limit;
	most = fair_share_most(&all, a->used[resource]);
	return limit < most ? limit : most;
}

static void add(struct account *a, enum limit_kind resource, uint64_t amount)
{
	a->used[resource] += amount;
	a->all->used[resource] += amount;
}

static bool has_room(const struct account *a, enum limit_kind resource, uint64_t amount,
		     uint64_t beyond)
{
	uint64_t limit;

	if (a->all->without_limits)
		return true;
	limit = account_limit(a, resource);
	if (limit <= UINT64_MAX - beyond)
		limit += beyond;
	return amount <= limit && a->used[resource] <= limit - amount;
}

static bool may_add(struct account *a, enum limit_kind resource, uint64_t amount, uint64_t price,
		    uint64_t beyond)
{
	bool may = has_room(a, resource, amount, beyond);
	bool is_paid = beyond > 0 || price == 0 || has_room(a, LIMIT_MEMORY, price, 0);

	if (may && is_paid)
		return true;
	a->lacks_memory &= ~(UINT32_C(1) << resource);
	a->lacks_memory |= (uint32_t)may << resource;
	return false;
}

bool account_may_add(struct account *a, enum limit_kind resource, uint64_t amount)
{
	return may_add(a, resource, amount, price_of(resource, amount, 0), 0);
}

bool account_take(struct account *a, enum limit_kind resource, uint64_t amount, uint64_t own,
		  uint64_t beyond)
{
	uint64_t price = price_of(resource, amount, own);

	if (!may_add(a, resource, amount, price, beyond))
		return false;
	account_must_take(a, resource, amount, own);
	return true;
}

bool account_has_room(const struct account *a, enum limit_kind resource, uint64_t amount)
{
	return has_room(a, resource, amount, 0);
}

bool account_bears(const struct account *a, enum limit_kind resource, uint64_t amount)
{
	uint64_t all = a->used[resource] + amount;
	/* the price of all, with what is beside its bytes */
	uint64_t price = limit_is_size(resource) ? 2 * all : price_of(resource, all, 0);

	return has_room(a, resource, amount, 0) &&
	       (has_room(a, LIMIT_MEMORY, price_of(resource, amount, amount), 0) ||
		price <= least_of(LIMIT_MEMORY, a->all->total[LIMIT_MEMORY]) || MUTATION(bear_all));
}

bool account_lacks_memory(const struct account *a, enum limit_kind resource)
{
	return a->lacks_memory & UINT32_C(1) << resource;
}

bool account_add(struct account *a, enum limit_kind resource, uint64_t amount)
{
	return account_take(a, resource, amount, 0, 0);
}

void account_must_take(struct account *a, enum limit_kind resource, uint64_t amount, uint64_t own)
{
	add(a, resource, amount);
	add(a, LIMIT_MEMORY, price_of(resource, amount, own));
}

void account_must_add(struct account *a, uint64_t bytes)
{
	add(a, LIMIT_MEMORY, bytes);
}

static void subtract(struct account *a, enum limit_kind resource, uint64_t amount)
{
	if (amount > a->used[resource]) {
		log_bug("uid %u returns more %s than it has", (unsigned)a->uid,
			limit_name(resource));
		amount = a->used[resource];
	}
	a->used[resource] -= amount;
	a->all->used[resource] -= amount;
}

void account_give_back(struct account *a, uint64_t bytes)
{
	subtract(a, LIMIT_MEMORY, bytes);
}

void account_return(struct account *a, enum limit_kind resource, uint64_t amount, uint64_t own)
{
	subtract(a, resource, amount);
	subtract(a, LIMIT_MEMORY, price_of(resource, amount, own));
}

void account_subtract(struct account *a, enum limit_kind resource, uint64_t amount)
{
	account_return(a, resource, amount, 0);
}

/* Who is refused looks next for what holds so much. */
#define WHERE " (sharectl users shows what it has, sharectl clients in which processes)"

/* Says that the user may have less than its limit, as others have the rest. */
static void refuse_share(const struct account *a, enum limit_kind resource, const char *also,
			 struct failure *failure)
{
	uint64_t total = a->all->total[resource], used = a->all->used[resource];
	uint64_t left = total > used ? total - used : 0;
	char has[SIZE_TEXT_MAX], all[SIZE_TEXT_MAX], rest[SIZE_TEXT_MAX];

	if (resource == LIMIT_DESCRIPTORS)
		failure_set(failure, SHARE_EQUOTA,
			    "uid %u has %" PRIu64 " of the broker's %" PRIu64
			    " descriptors, and may not have more than it leaves to others, %" PRIu64
			    " now: raise the broker's RLIMIT_NOFILE%s" WHERE,
			    (unsigned)a->uid, a->used[resource], total, left, also);
	else
		failure_set(failure, SHARE_EQUOTA,
			    "uid %u has the broker remember %s of the %s that there are for all "
			    "users, and may not have more than it leaves to others, %s now: raise "
			    "broker_memory in the configuration, or its cgroup's limit" WHERE,
			    (unsigned)a->uid, size_round(a->used[resource], has),
			    size_round(total, all), size_round(left, rest));
}

int account_refuse(struct account *a, enum limit_kind resource, const char *also,
		   struct failure *failure)
{
	char bytes[SIZE_TEXT_MAX];
	uint64_t limit;

	if (!failure)
		return SHARE_EQUOTA;
	if (account_lacks_memory(a, resource))
		resource = LIMIT_MEMORY;
	limit = account_limit(a, resource);
	if (limit < a->limits->max[resource])
		refuse_share(a, resource, also, failure);
	else if (limit_is_size(resource))
		failure_set(failure, SHARE_EQUOTA,
			    "uid %u has reached its limit of %s of %s%s" WHERE, (unsigned)a->uid,
			    size_round(limit, bytes), limit_noun(resource, limit), also);
	else
		failure_set(failure, SHARE_EQUOTA,
			    "uid %u has reached its limit of %" PRIu64 " %s%s" WHERE,
			    (unsigned)a->uid, limit, limit_noun(resource, limit), also);
	log_refusal(&a->refusals[resource], a->uid, failure->text);
	return SHARE_EQUOTA;
}

void account_add_gated(struct account *a, uint64_t bytes)
{
	a->gated += bytes;
}

void account_subtract_gated(struct account *a, uint64_t bytes)
{
	if (bytes > a->gated) {
		log_bug("uid %u returns more gated bytes than it has", (unsigned)a->uid);
		bytes = a->gated;
	}
	a->gated -= bytes;
}

uint64_t account_gated(const struct account *a)
{
	return a->gated;
}

void accounts_limit_fds(struct accounts *a, size_t descriptors)
{
	a->max_fds = descriptors / 2;
	a->max_fds_of_one = descriptors / 8 > WIRE_FDS_MAX ? descriptors / 8 : WIRE_FDS_MAX;
}

bool account_may_send_fds(const struct account *a, size_t n, size_t part)
{
	size_t mine = a->fds_in_flight + n;

	/* a user who has few under way does not wait for those who have many */
	return mine <= a->all->max_fds_of_one / part &&
	       (mine <= WIRE_FDS_MAX || a->all->fds_in_flight + n <= a->all->max_fds);
}

void account_fds_sent(struct account *a, size_t n)
{
	a->fds_in_flight += n;
	a->all->fds_in_flight += n;
}

void account_fds_received(struct account *a, size_t n)
{
	a->fds_in_flight -= n;
	a->all->fds_in_flight -= n;
}

uint64_t account_fds_in_flight(const struct account *a)
{
	return a->fds_in_flight;
}

uint64_t account_used(const struct account *a, enum limit_kind resource)
{
	return a->used[resource];
}

void accounts_share(struct accounts *a, enum limit_kind resource, uint64_t total)
{
	a->total[resource] = total;
}

uint64_t accounts_used(const struct accounts *a, enum limit_kind resource)
{
	return a->used[resource];
}

uint64_t accounts_total(const struct accounts *a, enum limit_kind resource)
{
	return a->total[resource];
}

uint64_t accounts_nobodys(const struct accounts *a, enum limit_kind resource)
{
	return a->nobodys[resource];
}

void accounts_add(struct accounts *a, enum limit_kind resource, uint64_t amount)
{
	a->used[resource] += amount;
	a->nobodys[resource] += amount;
}

void accounts_subtract(struct accounts *a, enum limit_kind resource, uint64_t amount)
{
	a->used[resource] -= amount;
	a->nobodys[resource] -= amount;
}

struct user_turns *account_turns(struct account *a)
{
	return &a->turns;
}

uid_t account_uid(const struct account *a)
{
	return a->uid;
}

const struct account *account_from(const struct accounts *accounts, uint64_t uid)
{
	const struct account *a, *found = NULL;

	LIST_FOREACH (a, &accounts->list, link)
		if (a->uid >= uid && (!found || a->uid < found->uid))
			found = a;
	return found;
}
