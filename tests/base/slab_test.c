/* SPDX-License-Identifier: MIT */
/*
 * The slab, seen through its header: objects stay where they are and what they are, indices lead
 * back to them, and memory that runs out costs nothing but the object that was asked for.
 */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/slab.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

TestSuite(slab, .timeout = 30);

/* What the allocator under the slab is told to do. In a test of its own process each. */
static size_t allocated_bytes;
static unsigned allocations_left = ~0u;

/* Hands out dirty memory: whoever relies on zeros has to write them. */
static void *scarce_and_dirty(size_t alignment, size_t size)
{
	void *memory = NULL;

	if (allocations_left == 0 || posix_memalign(&memory, alignment, size) != 0)
		return NULL;
	allocations_left--;
	allocated_bytes += size;
	return memset(memory, 0xa5, size);
}

static bool all_bytes_are(const void *memory, unsigned char byte, size_t size)
{
	const unsigned char *bytes = memory;

	for (size_t i = 0; i < size; i++)
		if (bytes[i] != byte)
			return false;
	return true;
}

Test(slab, objects_stay_where_and_what_they_are_while_the_slab_grows)
{
	enum { COUNT = 50000 };
	uint64_t **objects = calloc(COUNT, sizeof(*objects));
	struct slab slab;

	slab_init(&slab, 3 * sizeof(uint64_t));
	for (uint64_t i = 0; i < COUNT; i++) {
		objects[i] = slab_alloc(&slab);
		if (!objects[i] || (uintptr_t)objects[i] % 8 != 0)
			cr_assert_fail("object %lu is at %p", i, (void *)objects[i]);
		objects[i][0] = objects[i][1] = objects[i][2] = i;
	}
	cr_assert_eq(slab_live(&slab), COUNT);
	for (uint64_t i = 0; i < COUNT; i++)
		if (objects[i][0] != i || objects[i][1] != i || objects[i][2] != i)
			cr_assert_fail("object %lu was overwritten", i);
	slab_deinit(&slab);
	free(objects);
}

Test(slab, an_object_is_zeroed_even_in_dirty_memory_and_after_use)
{
	struct slab slab;
	void *a, *b;

	slab_init(&slab, 100);
	slab.allocate = scarce_and_dirty;
	a = slab_alloc(&slab);
	b = slab_alloc(&slab);
	cr_assert(all_bytes_are(a, 0, 100) && all_bytes_are(b, 0, 100));
	memset(a, 0xff, 100);
	slab_free(&slab, a);
	cr_assert_eq(slab_alloc(&slab), a, "the last one freed is the warmest");
	cr_assert(all_bytes_are(a, 0, 100));
	slab_deinit(&slab);
}

Test(slab, kept_bytes_are_zero_at_first_and_survive_free_and_alloc)
{
	enum { SIZE = 32, KEEP = 4, COUNT = 10000 };
	struct slab slab;

	slab_init_prefix(&slab, SIZE, KEEP);
	slab.allocate = scarce_and_dirty;
	for (unsigned round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < COUNT; i++) {
			uint32_t *generation = slab_alloc(&slab);

			if (!generation || *generation != round ||
			    !all_bytes_are(generation + 1, 0, SIZE - KEEP))
				cr_assert_fail("round %u: object %u has generation %u", round, i,
					       *generation);
			memset(generation + 1, 0xff, SIZE - KEEP);
			*generation = round + 1;
		}
		/* To the last one: even then a slab that keeps something forgets nothing. */
		for (uint32_t index = 0; index < COUNT; index++)
			slab_free(&slab, slab_at(&slab, index));
		cr_assert_eq(slab_live(&slab), 0);
		for (uint32_t index = 0; index < COUNT; index++) {
			uint32_t *kept = slab_at(&slab, index);

			if (kept && *kept != round + 1)
				cr_assert_fail("object %u forgot its generation", index);
		}
	}
	slab_deinit(&slab);
}

Test(slab, kept_bytes_need_not_be_a_multiple_of_eight)
{
	struct slab slab;
	unsigned char *object;

	slab_init_prefix(&slab, 24, 11);
	object = slab_alloc(&slab);
	memset(object, 0x77, 24);
	slab_free(&slab, object);
	cr_assert_eq(slab_alloc(&slab), object);
	cr_assert(all_bytes_are(object, 0x77, 11));
	cr_assert(all_bytes_are(object + 11, 0, 24 - 11));
	slab_deinit(&slab);
}

Test(slab, indices_are_dense_and_lead_to_their_objects)
{
	static const size_t sizes[] = {8, 9, 56, 64, 1000, 40000, SLAB_OBJECT_MAX};

	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
		uint32_t count = sizes[s] > 1000 ? 20 : 20000;
		struct slab slab;

		slab_init(&slab, sizes[s]);
		cr_assert_null(slab_at(&slab, 0));
		for (uint32_t i = 0; i < count; i++) {
			void *object = slab_alloc(&slab);

			if (slab_at(&slab, i) != object || slab_index(object) != i)
				cr_assert_fail("size %zu: object %u has index %u", sizes[s], i,
					       slab_index(object));
		}
		cr_assert_null(slab_at(&slab, count), "an index that was never given out");
		cr_assert_null(slab_at(&slab, UINT32_MAX));
		slab_deinit(&slab);
	}
}

Test(slab, allocations_and_frees_may_be_mixed)
{
	enum { SLOTS = 4000 };
	uint64_t *objects[SLOTS] = {0};
	uint32_t indices[SLOTS] = {0};
	struct slab slab;
	size_t live = 0;

	slab_init(&slab, 16);
	srand(7);
	for (unsigned step = 0; step < 200000; step++) {
		unsigned i = (unsigned)rand() % SLOTS;

		if (!objects[i]) {
			objects[i] = slab_alloc(&slab);
			indices[i] = slab_index(objects[i]);
			if (objects[i][0] != 0 || objects[i][1] != 0)
				cr_assert_fail("step %u: not zeroed, or in use already", step);
			objects[i][0] = objects[i][1] = i + 1;
			live++;
		} else {
			if (slab_at(&slab, indices[i]) != objects[i] || objects[i][0] != i + 1 ||
			    objects[i][1] != i + 1)
				cr_assert_fail("step %u: object %u is not what it was", step, i);
			slab_free(&slab, objects[i]);
			objects[i] = NULL;
			live--;
		}
		if (slab_live(&slab) != live)
			cr_assert_fail("step %u: live %zu, not %zu", step, slab_live(&slab), live);
	}
	slab_free(&slab, NULL);
	cr_assert_eq(slab_live(&slab), live);
	slab_deinit(&slab);
}

Test(slab, nothing_is_spent_beside_the_objects)
{
	enum { COUNT = 100000, SIZE = 48 };
	struct slab slab;

	slab_init(&slab, SIZE);
	slab.allocate = scarce_and_dirty;
	for (unsigned i = 0; i < COUNT; i++)
		cr_assert_not_null(slab_alloc(&slab));
	/* The last chunk may be nearly unused; the others waste less than one part in 500. */
	cr_assert_leq(allocated_bytes, (size_t)COUNT * SIZE * 501 / 500 + 65536,
		      "%zu bytes for %d objects", allocated_bytes, COUNT);
	slab_deinit(&slab);
}

Test(slab, an_empty_slab_gives_its_chunks_back)
{
	enum { COUNT = 20000 };
	void *objects[COUNT];
	struct slab slab;

	slab_init(&slab, 64);
	for (unsigned i = 0; i < COUNT; i++)
		objects[i] = slab_alloc(&slab);
	cr_assert_gt(slab.chunk_count, 10);
	for (unsigned i = 0; i < COUNT; i++)
		slab_free(&slab, objects[i]);
	cr_assert_leq(slab.chunk_count, 4);
	cr_assert_null(slab_at(&slab, 0));
	objects[0] = slab_alloc(&slab);
	cr_assert_not_null(objects[0], "and works as before");
	cr_assert_eq(slab_index(objects[0]), 0);
	slab_deinit(&slab);
	cr_assert_eq(slab_live(&slab), 0);
	cr_assert_not_null(slab_alloc(&slab), "even after slab_deinit");
	slab_deinit(&slab);
}

/* One object that stays is not to keep what all the others had. And whatever has come back from the
 * system, an index never has a generation that it has had. */
Test(slab, a_slab_that_keeps_generations_gives_its_chunks_back_too)
{
	enum { COUNT = 200000, ROOM = COUNT + 10000 };
	uint32_t *first, *one, index = 0, *seen = calloc(ROOM, sizeof(*seen));
	struct slab slab;

	slab_init_prefix(&slab, 80, 8);
	first = slab_alloc(&slab);
	first[0] = first[1] = 1;
	for (uint32_t round = 0; round < 4; round++) {
		for (uint32_t i = 1; i < COUNT; i++) {
			one = slab_alloc(&slab);
			index = one ? slab_index(one) : ROOM;
			if (index >= ROOM || one[0] < seen[index])
				cr_assert_fail("round %u: object %u has an old generation", round,
					       index);
			one[0] += 1 + index % 7;
			seen[index] = one[0];
			one[1] = 1; /* in use */
		}
		cr_assert_geq(slab.chunk_count, (size_t)COUNT * 80 / 65536);
		for (uint32_t i = 0; i < slab_end(&slab); i++) {
			one = slab_at(&slab, i);
			if (one && one != first && one[1]) {
				one[1] = 0;
				slab_free(&slab, one);
			}
		}
		cr_assert_eq(slab_live(&slab), 1);
		cr_assert_leq(slab.chunk_count, 5);
		cr_assert_eq(first[0], 1);
	}
	slab_deinit(&slab);
	free(seen);
}

Test(slab, any_allocation_may_fail_and_nothing_is_lost)
{
	enum { COUNT = 60 };

	/* Two objects to a chunk: chunks and the directory, which doubles, fail in turn. */
	for (unsigned fail = 0; fail < COUNT; fail++) {
		unsigned made = 0;
		struct slab slab;
		void *object;

		slab_init(&slab, 30000);
		slab.allocate = scarce_and_dirty;
		allocations_left = fail;
		while (made < COUNT && (object = slab_alloc(&slab))) {
			cr_assert_eq(slab_index(object), made);
			made++;
		}
		cr_assert_eq(slab_live(&slab), made);
		cr_assert_null(slab_at(&slab, made));
		if (made < COUNT)
			cr_assert_null(slab_alloc(&slab), "as often as one asks");
		allocations_left = ~0u;
		for (; made < COUNT; made++) {
			object = slab_alloc(&slab);
			cr_assert_not_null(object);
			cr_assert_eq(slab_index(object), made);
		}
		slab_deinit(&slab);
	}
}

Test(slab, indices_do_not_wrap_around)
{
	struct slab slab;

	slab_init(&slab, 8);
	/* As if there were that many: nothing of it is looked at before the test for room. */
	slab.n_places = UINT32_MAX / slab.per_chunk;
	cr_assert_null(slab_alloc(&slab));
	slab.n_places = 0;
	slab_deinit(&slab);
}

Test(slab, a_freed_object_is_out_of_bounds_for_address_sanitizer_but_for_the_kept_bytes)
{
#if defined(__SANITIZE_ADDRESS__)
	struct slab slab;
	char *object, *other;

	slab_init_prefix(&slab, 32, 8);
	object = slab_alloc(&slab);
	other = slab_alloc(&slab);
	slab_free(&slab, object);
	cr_assert(!__asan_address_is_poisoned(object) && !__asan_address_is_poisoned(object + 7));
	cr_assert(__asan_address_is_poisoned(object + 8));
	cr_assert(__asan_address_is_poisoned(object + 31));
	cr_assert_null(__asan_region_is_poisoned(other, 32));
	cr_assert_eq(slab_alloc(&slab), object);
	cr_assert_null(__asan_region_is_poisoned(object, 32));
	slab_deinit(&slab);
#else
	cr_skip_test("built without AddressSanitizer");
#endif
}
