/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include <share/share.h>

/* What the fixture's broker has allocated, in its own memory and in its journal, and what all users
 * are charged for it. */
struct spending {
	int64_t allocated, charged;
};

struct spending spending_now(share_client *client);
struct spending spending_since(const struct spending *before, share_client *client);
