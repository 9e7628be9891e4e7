/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

/* How much memory there is for pools, in bytes. */

/* Returns how much the machine had, with its swap, when it was asked first; UINT64_MAX: the system
 * does not say. Only the broker's own thread calls this. */
uint64_t machine_memory(void);
/* Returns what the cgroup of this process may have, or one that it is in, whichever is least:
 * memory.max, or the limit of version 1. UINT64_MAX: there is no limit. @root: "", or a folder in
 * whose place of / to look. */
uint64_t machine_cgroup_limit(const char *root);

/* Returns how much of that nobody uses: of the machine, or of the cgroup of this process or one
 * that it is in, whichever has least. What the system would give up for others (files that it has
 * read) counts as unused. Any thread may call this. @root as above. */
uint64_t machine_memory_left(const char *root);

/* Returns what a broker may take for its own to share out: the memory of the machine without swap;
 * from machine_follow_cgroup() on, no more than the cgroup of this process may have, as those who
 * use this broker are in the same one. */
uint64_t machine_share(void);
void machine_follow_cgroup(const char *root);

/* Returns what a broker, its keeper and the journal may need for users, where @wanted is what the
 * configuration says. Of the cgroup's memory MACHINE_RESERVE is for the programs themselves, and
 * half of the rest for the broker that comes next, as an upgrade has two of them at a time. */
#define MACHINE_RESERVE (UINT64_C(48) << 20)
uint64_t machine_broker_memory(uint64_t wanted, const char *root);
