/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "broker/config/config.h"

struct account;

/* These are in account.c, for charges. */
/* Takes a resource with its price, up to @beyond above the limit. False, and nothing has changed,
 * if there is not that much left. @own: see charge_take_with(). */
bool account_take(struct account *a, enum limit_kind resource, uint64_t amount, uint64_t own,
		  uint64_t beyond);
void account_must_take(struct account *a, enum limit_kind resource, uint64_t amount, uint64_t own);
void account_return(struct account *a, enum limit_kind resource, uint64_t amount, uint64_t own);
