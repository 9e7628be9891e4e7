/* SPDX-License-Identifier: MIT */

/*
 * What a client keeps of a GPU's memory, from many threads. Each works on the default stream of its
 * own, so that a block which another has released last is not ready for it, and passes from what is
 * at hand to the list while others take and give.
 */

#include "tests/themes/threads/threads.h"

#define PER_THREAD ((void *)2) /* CU_STREAM_PER_THREAD */
#define SMALLEST   512u
#define SEGMENT    (2u << 20)
#define HELD       4

static share_pool *gpu;
static atomic_uint holders[SEGMENT / SMALLEST];

static atomic_uint *holder_of(share_buffer *b)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;

	check_ok(share_buffer_get_info(b, &info));
	check(info.offset < SEGMENT);
	return &holders[info.offset / SMALLEST];
}

static void let_go(share_buffer **b)
{
	if (!*b)
		return;
	check_eq(atomic_fetch_sub(holder_of(*b), 1), 1);
	check_ok(share_release(*b, PER_THREAD));
	*b = NULL;
}

static void use_and_release(void *data, unsigned index)
{
	share_buffer *held[HELD] = {NULL};
	uint32_t state = index + 1;

	(void)data;
	for (unsigned i = 0; i < steps(400); i++) {
		share_buffer **b = &held[dice(&state, HELD)];

		if (*b) {
			let_go(b);
		} else if (check_one_of(
			       share_alloc(gpu, 1 + dice(&state, 3 * SMALLEST), PER_THREAD, b),
			       SHARE_ENOMEM) == 0) {
			check_eq(atomic_fetch_add(holder_of(*b), 1), 0);
		}
		if (index == 0 && i % 50 == 0)
			check_ok(share_pool_set_cache(gpu, i % 100 ? 0 : 128u << 20));
	}
	for (unsigned i = 0; i < HELD; i++)
		let_go(&held[i]);
}

static void a_block_of_a_gpu_is_one_threads_at_a_time(void)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;

	start();
	options.kind = "vmm";
	options.limit = options.segment_size = SEGMENT;
	check_ok(share_pool_create(client, "gpu", &options, &gpu));
	together(6, use_and_release, NULL);
	share_pool_close(gpu);
	stop();
}

int main(int argc, char **argv)
{
	static const struct thread_test tests[] = {
	    TEST(a_block_of_a_gpu_is_one_threads_at_a_time),
	};

	return threads_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
