/* SPDX-License-Identifier: MIT */

/*
 * Facts about memory that is new: whether it is zero though the same process has just given it back
 * full of something else. The driver keeps processes apart; our agent is one process for all users.
 */

#include <stdlib.h>
#include <string.h>

#include "tests/themes/facts/gpu.h"

#define STEP   (2 * MIB)
#define SAMPLE 65536
#define SPARE  (UINT64_C(4) << 30)
#define BLOCK  (UINT64_C(2) << 30)
#define BLOCKS 256

/* How many of the samples, one every 2 MiB, are not all zero. */
static uint64_t samples_not_zero(CUdeviceptr p, uint64_t size)
{
	static unsigned char bytes[SAMPLE], zeros[SAMPLE];
	uint64_t found = 0;

	for (uint64_t at = 0; at < size; at += STEP) {
		MUST(MemcpyDtoH(bytes, p + at + at / STEP % 31 * SAMPLE, SAMPLE));
		found += memcmp(bytes, zeros, SAMPLE) != 0;
	}
	return found;
}

/* So many blocks that there is hardly other memory to be had. */
static unsigned how_many(void)
{
	uint64_t left = device_free();
	uint64_t n = left > SPARE + BLOCK ? (left - SPARE) / BLOCK : 1;

	return n < BLOCKS ? (unsigned)n : BLOCKS;
}

static void conclude(unsigned n, uint64_t first, uint64_t second)
{
	uint64_t samples = n * (BLOCK / STEP);

	if (second)
		failed("%llu of %llu samples of 64 KiB are not zero, after %llu at first",
		       (unsigned long long)second, (unsigned long long)samples,
		       (unsigned long long)first);
	ok("%u GiB; at first %llu of %llu samples were not zero", (unsigned)(n * (BLOCK >> 30)),
	   (unsigned long long)first, (unsigned long long)samples);
}

static void new_vmm(void)
{
	CUmemAllocationProp properties = vmm_properties();
	CUmemGenericAllocationHandle handles[BLOCKS];
	uint64_t found[2] = {0};
	unsigned n;

	use_context();
	n = how_many();
	for (int round = 0; round < 2; round++) {
		for (unsigned i = 0; i < n; i++) {
			CUdeviceptr p;

			MUST(MemCreate(&handles[i], BLOCK, &properties, 0));
			p = vmm_map(handles[i], BLOCK, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
			found[round] += samples_not_zero(p, BLOCK);
			must(fill(p, 0xa5, BLOCK), "fill");
			vmm_unmap(p, BLOCK);
		}
		for (unsigned i = 0; i < n; i++)
			MUST(MemRelease(handles[i]));
	}
	conclude(n, found[0], found[1]);
}

static void new_pools(void)
{
	CUmemPoolProps properties = pool_properties();
	CUmemoryPool pools[BLOCKS];
	CUdeviceptr blocks[BLOCKS];
	uint64_t found[2] = {0};
	unsigned n;

	use_context();
	n = how_many();
	for (int round = 0; round < 2; round++) {
		for (unsigned i = 0; i < n; i++) {
			MUST(MemPoolCreate(&pools[i], &properties));
			MUST(MemAllocFromPoolAsync(&blocks[i], BLOCK, pools[i], NULL));
			MUST(StreamSynchronize(NULL));
			found[round] += samples_not_zero(blocks[i], BLOCK);
			must(fill(blocks[i], 0xa5, BLOCK), "fill");
		}
		for (unsigned i = 0; i < n; i++) {
			MUST(MemFreeAsync(blocks[i], NULL));
			MUST(StreamSynchronize(NULL));
			MUST(MemPoolDestroy(pools[i]));
		}
	}
	conclude(n, found[0], found[1]);
}

const struct fact zero_facts[] = {
    {"new_vmm_memory_is_zero", new_vmm},
    {"memory_of_new_pools_is_zero", new_pools},
    {NULL, NULL},
};
