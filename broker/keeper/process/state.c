/* SPDX-License-Identifier: MIT */

/* The two states of a keeper, of which one counts, and which descriptors are open in it. */

#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/system/descriptor.h"
#include "broker/keeper/process/state.h"
#include "broker/keeper/process/table.h"

static struct {
	struct state states[2];
	atomic_uint now; /* the state that counts */
} keeping;

const struct state *state_now(void)
{
	return &keeping.states[keeping.now];
}

void state_begin(const struct state *s)
{
	keeping.states[keeping.now] = *s;
}

static bool is_own(const struct state *s, int fd)
{
	for (int i = 0; i < N_OWN; i++)
		if (s->own[i] == fd)
			return true;
	return false;
}

void state_commit(const struct state *s)
{
	unsigned before = keeping.now;

	keeping.states[!before] = *s;
	keeping.now = !before;
	for (int i = 0; i < N_OWN; i++)
		if (keeping.states[before].own[i] >= 0 && !is_own(s, keeping.states[before].own[i]))
			fd_close(keeping.states[before].own[i]);
	atomic_store(&s->keeper.table->brokers_died, s->brokers_died);
	atomic_store(&s->keeper.table->brokers_upgraded, s->brokers_upgraded);
	atomic_store(&s->keeper.table->keepers_died, s->keepers_died);
}

/* For each number of a descriptor, whether it is one of the keeper's. So many are never open. To
 * look each number up in the table would take seconds where there are many clients. */
static uint64_t stays[TABLE_ROOM_MAX / 64 + 1];
static atomic_bool in_use; /* whether @stays is; it still says so if a keeper died over that */

static void let_stay(int fd, int *last)
{
	if (fd >= 0 && fd < TABLE_ROOM_MAX)
		stays[fd / 64] |= UINT64_C(1) << fd % 64;
	if (fd > *last)
		*last = fd;
}

static void close_between(int first, int last)
{
	if (first <= last)
		syscall(SYS_close_range, (unsigned)first, (unsigned)last, 0);
}

void state_close_strays(const struct state *s)
{
	const struct kept_table *t = s->keeper.table;
	int last = STDERR_FILENO, first = STDERR_FILENO + 1;

	if (in_use)
		memset(stays, 0, sizeof(stays));
	in_use = true;
	for (int i = 0; i < N_OWN; i++)
		let_stay(s->own[i], &last);
	for (uint32_t i = 0; i < atomic_load(&t->n); i++)
		let_stay(atomic_load(&t->slots[i].fd), &last);
	for (int fd = first; fd <= last && fd < TABLE_ROOM_MAX; fd++) {
		if (!(stays[fd / 64] >> fd % 64 & 1))
			continue;
		close_between(first, fd - 1);
		first = fd + 1;
	}
	close_between(last + 1, INT_MAX);
	for (int fd = 0; fd <= last && fd < TABLE_ROOM_MAX; fd += 64)
		stays[fd / 64] = 0;
	in_use = false;
}
