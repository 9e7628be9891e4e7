/* SPDX-License-Identifier: MIT */

/*
 * Memory from many threads of one client: what one thread has is no other's, whatever segments and
 * pools come and go meanwhile.
 */

#include "tests/themes/threads/threads.h"

static share_pool *small; /* of small segments, none kept when empty */

static void open_small_pool(share_client *c, share_pool **out)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;

	options.limit = 16 << 20;
	options.segment_size = 64 << 10;
	options.release_threshold = SHARE_KEEP_NONE;
	options.flags = SHARE_POOL_OPEN_OR_CREATE;
	check_ok(share_pool_create(c, "small", &options, out));
}

static void in_the_default_pool(void *data, unsigned index)
{
	(void)data;
	take_and_give(pool, index, 64 << 10, steps(250));
}

static void what_a_thread_allocates_is_its_own(void)
{
	start();
	together(6, in_the_default_pool, NULL);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static void in_small_segments(void *data, unsigned index)
{
	share_pool *p = small;

	(void)data;
	if (index % 2)
		open_small_pool(second, &p);
	/* some of them larger than a segment */
	for (unsigned i = 0; i < steps(8); i++)
		take_and_give(p, index, 80 << 10, 24);
	if (index % 2)
		share_pool_close(p);
}

static void segments_are_retired_while_others_allocate(void)
{
	start();
	open_small_pool(client, &small);
	together(6, in_small_segments, NULL);
	/* whoever was asked to unmap does so with its next call */
	settle(client, (share_ping(second), s.buffers == 0 && s.segment_bytes == 0));
	share_pool_close(small);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

#define SHELF 4

static struct {
	pthread_mutex_t lock;
	share_buffer *buffers[SHELF];
} shelf = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void take_from_the_shelf(void *data, unsigned index)
{
	uint32_t state = index + 1;

	(void)data;
	for (unsigned i = 0; i < steps(250); i++) {
		unsigned at = dice(&state, SHELF);
		share_buffer *mine, *old = NULL;

		if (dice(&state, 4) == 0) {
			mine = marked_buffer(pool, 4096, (uint64_t)(index + 1) << 32 | i);
			pthread_mutex_lock(&shelf.lock);
			old = shelf.buffers[at];
			shelf.buffers[at] = share_retain(mine);
			pthread_mutex_unlock(&shelf.lock);
		} else {
			pthread_mutex_lock(&shelf.lock);
			mine = share_retain(shelf.buffers[at]);
			pthread_mutex_unlock(&shelf.lock);
		}
		if (mine) {
			mark_of(mine);
			check_ok(share_release(mine, NULL));
		}
		if (old) {
			mark_of(old);
			check_ok(share_release(old, NULL));
		}
	}
}

static void a_handle_serves_many_threads(void)
{
	start();
	together(6, take_from_the_shelf, NULL);
	for (unsigned at = 0; at < SHELF; at++)
		if (shelf.buffers[at])
			check_ok(share_release(shelf.buffers[at], NULL));
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static void make_and_destroy_pools(void *data, unsigned index)
{
	static const char *const names[] = {"a", "b", "c"};
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *c = index % 2 ? client : second;
	uint32_t state = index + 1;

	(void)data;
	options.limit = 1 << 20;
	options.segment_size = 64 << 10;
	options.flags = SHARE_POOL_OPEN_OR_CREATE;
	for (unsigned i = 0; i < steps(60); i++) {
		const char *name = names[dice(&state, 3)];
		uint64_t value = (uint64_t)(index + 1) << 32 | i;
		share_buffer *b = NULL;
		share_pool *p;

		check_ok(share_pool_create(c, name, &options, &p));
		/* somebody else may have destroyed it by now */
		if (check_one_of(share_alloc(p, 5000, NULL, &b), SHARE_ENOENT, SHARE_ESTALE) == 0)
			mark(share_ptr(b), 5000, value);
		if (dice(&state, 2))
			check_one_of(share_pool_destroy(c, name), SHARE_ENOENT);
		share_pool_close(p);
		if (b) {
			check_eq(mark_of(b), value);
			check_ok(share_release(b, NULL));
		}
	}
}

static void pools_are_created_and_destroyed_at_once(void)
{
	start();
	together(6, make_and_destroy_pools, NULL);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static void fill_the_pool(void *data, unsigned index)
{
	share_buffer *buffers[64];
	unsigned n = 0;

	(void)data, (void)index;
	for (unsigned i = 0; i < steps(3); i++) {
		while (n < 64 && check_one_of(share_alloc(small, 300 << 10, NULL, &buffers[n]),
					      SHARE_ENOMEM) == 0)
			n++;
		/* the words of the last error are this thread's */
		if (n < 64)
			check_detail("small");
		while (n > 0)
			check_ok(share_release(buffers[--n], NULL));
	}
}

static void a_full_pool_says_so_to_each(void)
{
	start();
	open_small_pool(client, &small);
	together(4, fill_the_pool, NULL);
	share_pool_close(small);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static share_buffer *described;

static void describe(void *data, unsigned index)
{
	uint32_t state = index + 1;
	share_tensor t = SHARE_TENSOR_INIT;

	(void)data;
	for (unsigned i = 0; i < steps(60); i++) {
		int64_t k = 1 + dice(&state, 16);

		if (index % 2) {
			check_ok(share_tensor_init(&t, SHARE_FLOAT32, 2, (int64_t[]){k, k}));
			check_ok(share_tensor_set(described, &t));
		} else if (check_one_of(share_tensor_get(described, &t), SHARE_ENOENT) == 0) {
			check_eq(t.ndim, 2);
			check_eq(t.dtype, SHARE_FLOAT32);
			check_eq(t.shape[0], t.shape[1]);
			check_eq(t.strides[0], t.shape[1]);
		}
	}
}

static void a_tensor_is_read_as_it_was_written(void)
{
	start();
	described = marked_buffer(pool, 4096, 1);
	together(4, describe, NULL);
	check_ok(share_release(described, NULL));
	stop();
}

int main(int argc, char **argv)
{
	static const struct thread_test tests[] = {
	    TEST(what_a_thread_allocates_is_its_own),
	    TEST(segments_are_retired_while_others_allocate),
	    TEST(a_handle_serves_many_threads),
	    TEST(pools_are_created_and_destroyed_at_once),
	    TEST(a_full_pool_says_so_to_each),
	    TEST(a_tensor_is_read_as_it_was_written),
	};

	return threads_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
