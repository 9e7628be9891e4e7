/* SPDX-License-Identifier: MIT */

/* How much a pool may have at most, on a machine of 4 GiB with as much swap. */

#include <sys/sysinfo.h>

#include <criterion/criterion.h>

#include "broker/device/device.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"

#define GIB (UINT64_C(1) << 30)

int __wrap_sysinfo(struct sysinfo *info);
int __wrap_sysinfo(struct sysinfo *info)
{
	*info = (struct sysinfo){.totalram = 4 * GIB, .totalswap = 4 * GIB, .mem_unit = 1};
	return 0;
}

static uint64_t limit_of(enum memory_kind_id kind, uint64_t wanted)
{
	struct device device = {.total = GIB};
	struct pool p = {.choice = {.kind = memory_kind_by_id(kind), .device = &device}};

	p.sizes.segment_size = 2 << 20;
	return pool_chosen_limit(&p, wanted);
}

Test(pool_limit, of_pinned_memory_is_that_of_the_machine_as_it_is_never_swapped)
{
	cr_expect_eq(limit_of(MEMORY_PINNED, 3 * GIB), 3 * GIB);
	cr_expect_eq(limit_of(MEMORY_PINNED, 6 * GIB), 4 * GIB);
	cr_expect_eq(limit_of(MEMORY_PINNED, UINT64_MAX), 4 * GIB);
	cr_expect_eq(limit_of(MEMORY_VMM, 3 * GIB), GIB);
}
