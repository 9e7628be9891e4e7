/* SPDX-License-Identifier: MIT */
#pragma once

#include <criterion/criterion.h>

#include "tests/harness/broker_process.h"
#include "tests/harness/check.h"
#include "tests/harness/child.h"
#include "tests/harness/descriptors.h"
#include "tests/harness/status.h"

/*
 * What most integration tests start from: a broker, and the count of this process's descriptors,
 * which must be the same at the end.
 *
 *   TestSuite(names, .init = fixture_start, .fini = fixture_stop, .timeout = 60);
 */
void fixture_start(void);
void fixture_stop(void);
/* For .init functions with a configuration of their own. */
void fixture_start_with(const char *config);

/* Once something was made on a device, and nothing is left of it: descriptors that an agent costs
 * the broker, and a driver this process, do not count at the end. */
void fixture_uses_devices(void);

/* A connection to the fixture's broker. */
share_client *connect_as(const char *label);
share_pool *open_pool(share_client *c);
share_buffer *allocate(share_pool *p, uint64_t size, void *stream);

/* Ends the test as skipped, and says why, unless this is root, who can be anybody. */
void skip_unless_root(void);
