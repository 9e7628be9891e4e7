/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/failure.h"
#include "broker/accounts/charge.h"
#include "broker/accounts/turns.h"
#include "broker/config/config.h"

/*
 * What each user holds, against what it may, beside the sum of all users. An account lives as long
 * as a charge or a client refers to it, and must be at zero then. It is remembered for longer when
 * its user has had more of the broker's time than is due: who goes and comes again owes it still.
 *
 * What a user has of one pool is counted in the pool (memory/pool_user.h), for the same charges.
 * Both share by one rule (fair_share.h). account.c says of all other counts what they are for.
 */

struct accounts;

int accounts_new(const struct config *config, struct accounts **out);
void accounts_free(struct accounts *a); /* all accounts must have ended */

/* Takes over limits from a configuration that has changed. A user who has more than the limit is
 * now keeps it, and gets no more. */
void accounts_reconfigure(struct accounts *a);
/* Switches limits off while the broker takes over what another one had: nobody loses what they
 * hold. */
void accounts_without_limits(struct accounts *a, bool without);

/* Returns a reference to the user's account, or NULL without memory. */
struct account *account_get(struct accounts *accounts, uid_t uid);
struct account *account_ref(struct account *a);
void account_unref(struct account *a);
/* For leases and other objects whose account and amount are known without a struct charge. */
bool account_may_add(struct account *a, enum limit_kind resource, uint64_t amount);
bool account_add(struct account *a, enum limit_kind resource, uint64_t amount);
/* Whether the user's limit alone leaves room for that, whatever there is of the broker's memory. */
bool account_has_room(const struct account *a, enum limit_kind resource, uint64_t amount);
/* Asked about something that ends a connection when it is refused, which nobody deserves for what
 * others have. True if there is memory of the broker left, or if the user has no more of this alone
 * than everybody may have. */
bool account_bears(const struct account *a, enum limit_kind resource, uint64_t amount);
/* Whether the last refusal of this resource was for want of the broker's memory. */
bool account_lacks_memory(const struct account *a, enum limit_kind resource);
/* Adds bytes of LIMIT_MEMORY, for what cannot be refused, and gives them back. They leave less for
 * the rest. */
void account_must_add(struct account *a, uint64_t bytes);
void account_give_back(struct account *a, uint64_t bytes);
void account_subtract(struct account *a, enum limit_kind resource, uint64_t amount);

/* Says that the user gets no more: SHARE_EQUOTA, with the words that every refused charge has, and
 * @also behind them. They go to the log as well, for each user and resource once a minute at most.
 * @failure NULL: nobody is told, and nothing is in the log. */
int account_refuse(struct account *a, enum limit_kind resource, const char *also,
		   struct failure *failure);

/* Counts bytes in use that nobody holds any more, but work still runs on. */
void account_add_gated(struct account *a, uint64_t bytes);
void account_subtract_gated(struct account *a, uint64_t bytes);
uint64_t account_gated(const struct account *a);

/*
 * Descriptors that were sent and perhaps not received yet. The kernel counts those of all receivers
 * together, and refuses (ETOOMANYREFS) beyond RLIMIT_NOFILE: so there are at most so many for each
 * user, and in all, though everybody can always be sent a message.
 */
void accounts_limit_fds(struct accounts *a, size_t descriptors);
/* Whether so many more may be sent, of the @part-th part (1 or more) of what the user may have. */
bool account_may_send_fds(const struct account *a, size_t n, size_t part);
void account_fds_sent(struct account *a, size_t n);
void account_fds_received(struct account *a, size_t n);
uint64_t account_fds_in_flight(const struct account *a);

/* Says how much there is for all users together, who share it (fair_share.h). */
void accounts_share(struct accounts *a, enum limit_kind resource, uint64_t total);
/* The three are for what is nobody's; the caller bounds that. */
uint64_t accounts_nobodys(const struct accounts *a, enum limit_kind resource);
void accounts_add(struct accounts *a, enum limit_kind resource, uint64_t amount);
void accounts_subtract(struct accounts *a, enum limit_kind resource, uint64_t amount);
uint64_t accounts_used(const struct accounts *a, enum limit_kind resource); /* with nobody's */
uint64_t accounts_total(const struct accounts *a, enum limit_kind resource);

uint64_t account_used(const struct account *a, enum limit_kind resource);
/* Returns the user's limit; where users share, what it is now, as others' use counts as well. */
uint64_t account_limit(const struct account *a, enum limit_kind resource);
/* Returns the user's part of the broker's time. */
struct user_turns *account_turns(struct account *a);
uid_t account_uid(const struct account *a);
/* Returns the account of the lowest uid from @uid on; NULL: there is none. */
const struct account *account_from(const struct accounts *accounts, uint64_t uid);
