/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Which kinds of memory there are, and which of them can be used on this machine. */
struct kind {
	char name[16];
};

/* Those that $SHARE_TEST_KINDS names ("vmm,mempool"); all when it is not set. Static storage. */
struct kind *kinds_to_test(size_t *n);
/* The same without "legacy", which is gone with its agent, and which a driver may keep from others
 * than the agent's user. */
struct kind *kinds_without_legacy(size_t *n);
/* The same with "adopted", "adopted-vmm" and "adopted-legacy", all of pools into which memory comes
 * by share_adopt() alone: of the host, and of a device, by cuMemCreate() and cuMemAlloc(). */
struct kind *kinds_with_adopted(size_t *n);

/* fixture_start(), and fixture_start_with(); a stand-in driver is a machine of the test's own. */
void kinds_start(void);
void kinds_start_on(const char *machine, const char *config);

/* Ends the test as skipped unless it is the stand-in driver that it would run on. */
void skip_unless_standin(void);

static inline bool is_host(const char *kind)
{
	return strcmp(kind, "host") == 0 || strcmp(kind, "adopted") == 0;
}

/*
 * Ends the test as skipped, and says why, unless buffers of this kind can be had from the fixture's
 * broker and used here. Whatever a kind keeps once it was used (the broker an agent, a process its
 * driver) does not count as left behind afterwards.
 *
 * This process does not use the driver for it: it can still have children that do.
 */
void skip_unless_possible(const char *kind);
