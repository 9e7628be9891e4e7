/* SPDX-License-Identifier: MIT */

/*
 * What a client keeps without using it: who gets it, in what order, what the broker and others see
 * of it, and that it goes back with the pool, the client and the process.
 */

#include <string.h>

#include <share/private/core.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"

#define KIB 1024u
#define MIB (1024u * KIB)

static const char config[] =
    "{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"256MiB\", "
    "\"segment_size\": \"1MiB\", \"release_threshold\": 0},"
    "{\"name\": \"clean\", \"kind\": \"host\", \"limit\": \"256MiB\", \"reuse\": \"clean\", "
    "\"segment_size\": \"1MiB\", \"release_threshold\": 0}]}";

static share_client *client;
static share_pool *pool;

static void start(void)
{
	fixture_start_with(config);
	client = connect_as("test");
	pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(magazine, .init = start, .fini = stop, .timeout = 60);

static int64_t requests(void)
{
	struct status s;

	status_read(client, &s);
	return s.requests;
}

static void release(share_buffer *b, void *stream)
{
	check_ok(share_release(b, stream));
}

Test(magazine, a_warm_pair_of_calls_asks_nobody)
{
	int64_t before, between;

	release(allocate(pool, 4096, NULL), NULL);
	before = requests();
	for (int i = 0; i < 1000; i++)
		release(allocate(pool, 4096 - (unsigned)i % 500, NULL), NULL);
	between = requests() - before;
	check(between < 10); /* the questions themselves */
}

Test(magazine, who_must_not_wait_gets_what_is_at_hand_or_nothing)
{
	int64_t before, between;
	share_buffer *a, *b;
	void *address;

	cr_assert_eq(share_try_alloc(pool, 4096, &a), SHARE_EAGAIN, "nothing was released yet");
	a = allocate(pool, 4096, NULL);
	address = share_ptr(a);
	before = requests();
	for (int i = 0; i < 1000; i++) {
		check_ok(share_try_release(a));
		check_ok(share_try_alloc(pool, 4096, &a));
	}
	between = requests() - before;
	cr_assert_eq(share_ptr(a), address);
	cr_assert_eq(between, 1, "the status alone is a request, not %lld", (long long)between);
	cr_assert_eq(share_try_alloc(pool, 4096, &b), SHARE_EAGAIN, "it is in use");
	cr_assert_eq(share_try_alloc(pool, 64 * MIB, &b), SHARE_EAGAIN);
	cr_assert_eq(share_try_alloc(pool, 0, &b), SHARE_EAGAIN);
	cr_assert_eq(share_try_alloc(pool, 4096, NULL), SHARE_EINVAL);

	check_ok(share_try_release(a));
	cr_assert_eq(share_try_release(a), SHARE_EINVAL, "it was released already");
	check_ok(share_try_alloc(pool, 4000, &b));
	cr_assert_eq(share_size(b), 4000);
	release(b, NULL);
}

Test(magazine, who_must_not_wait_keeps_what_others_have)
{
	share_buffer *a = allocate(pool, 4096, NULL), *other;

	share_retain(a);
	cr_assert_eq(share_try_release(a), SHARE_EAGAIN, "there are two references");
	release(a, NULL);
	check_ok(share_publish(a, "known", NULL));
	cr_assert_eq(share_try_release(a), SHARE_EAGAIN, "the broker knows it");
	check_ok(share_lookup(client, "known", SHARE_RDONLY, 0, NULL, &other));
	cr_assert_eq(share_try_release(other), SHARE_EAGAIN);
	release(other, NULL);
	release(a, NULL);
	check_ok(share_unpublish(client, "known"));
}

Test(magazine, what_was_released_last_is_used_first)
{
	share_buffer *a = allocate(pool, 100 * KIB, NULL), *b = allocate(pool, 100 * KIB, NULL);
	void *first = share_ptr(a), *second = share_ptr(b);

	release(a, NULL);
	release(b, NULL);
	a = allocate(pool, 100 * KIB, NULL);
	b = allocate(pool, 100 * KIB, NULL);
	check(share_ptr(a) == second);
	check(share_ptr(b) == first);
	release(a, NULL);
	release(b, NULL);
}

Test(magazine, sizes_are_what_was_asked_for)
{
	static const unsigned sizes[] = {1,    511,  512,  513,   640,   641,         4095,
					 4096, 4097, 5000, 65536, 65537, 3 * MIB / 2, MIB};

	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			share_buffer *b = allocate(pool, sizes[i], NULL);

			check_eq(share_size(b), sizes[i]);
			memset(share_ptr(b), 0x5a, sizes[i]);
			release(b, NULL);
		}
	}
}

Test(magazine, an_impossible_alignment_is_refused_whatever_is_kept)
{
	static const uint64_t impossible[] = {3,       511,     513,        1000,
					      3 * MIB, 4 * MIB, UINT64_MAX, UINT64_C(1) << 63};
	share_alloc_options options = SHARE_ALLOC_OPTIONS_INIT;
	share_buffer *b = NULL;

	release(allocate(pool, 4096, NULL), NULL);
	for (size_t i = 0; i < sizeof(impossible) / sizeof(*impossible); i++) {
		options.alignment = impossible[i];
		check_error(share_alloc_with(pool, 4096, &options, NULL, &b), SHARE_EINVAL);
		check(b == NULL);
	}
}

Test(magazine, blocks_in_use_never_overlap)
{
	share_buffer *b[200] = {NULL};
	uint32_t random = 1;

	for (int i = 0; i < 20000; i++) {
		random = random * 1664525 + 1013904223;
		unsigned at = random >> 8 & 127;
		uint64_t size = 1 + (random >> 16 & 0x1fff);

		if (b[at]) {
			unsigned char *p = share_ptr(b[at]);

			check(p[0] == (unsigned char)at &&
			      p[share_size(b[at]) - 1] == (unsigned char)at);
			release(b[at], NULL);
			b[at] = NULL;
		} else {
			b[at] = allocate(pool, size, NULL);
			memset(share_ptr(b[at]), (int)at, size);
		}
	}
	for (int i = 0; i < 200; i++)
		if (b[i])
			release(b[i], NULL);
}

Test(magazine, what_is_kept_is_the_clients_and_goes_with_the_pool)
{
	share_buffer *b = allocate(pool, 100 * KIB, NULL);
	share_client *other = connect_as("other");

	release(b, NULL);
	settle(other, s.buffers == 1);
	share_pool_close(pool);
	settle(other, s.buffers == 0);
	pool = open_pool(client);
	share_disconnect(other);
}

Test(magazine, what_is_kept_goes_with_the_client)
{
	share_client *short_lived = connect_as("short");
	share_pool *p = open_pool(short_lived);
	share_buffer *b[20];

	for (int i = 0; i < 20; i++)
		b[i] = allocate(p, 4096, NULL);
	for (int i = 1; i < 20; i++)
		release(b[i], NULL);
	share_disconnect(short_lived);
	/* what is still held works on, and is not kept any more */
	settle(client, s.buffers == 1);
	memset(share_ptr(b[0]), 1, 4096);
	release(b[0], NULL);
	settle(client, s.buffers == 0);
	share_pool_close(p);
}

static void keep_and_wait(struct child *self, void *data)
{
	share_client *c = child_connect("keeper");
	share_pool *p = open_pool(c);
	share_buffer *b[10];

	(void)data;
	for (int i = 0; i < 10; i++)
		b[i] = allocate(p, 50 * KIB, NULL);
	for (int i = 0; i < 10; i++)
		release(b[i], NULL);
	child_point(self, "kept");
	child_point(self, "never reached");
}

Test(magazine, what_is_kept_goes_with_the_process)
{
	struct child *child = child_start(keep_and_wait, NULL);

	child_wait(child, "kept");
	settle(client, s.buffers >= 10);
	child_kill(child);
	settle(client, s.buffers == 0);
}

Test(magazine, a_buffer_that_others_know_is_never_recycled)
{
	share_buffer *b = allocate(pool, 4096, NULL), *v, *n;
	uint64_t id = share_id(b);
	void *address = share_ptr(b);

	strcpy(share_ptr(b), "published");
	check_ok(share_publish(b, "name", NULL));
	release(b, NULL);
	n = allocate(pool, 4096, NULL);
	check(share_ptr(n) != address);
	check_ok(share_lookup(client, "name", SHARE_RDONLY, 0, NULL, &v));
	check_eq(share_id(v), id);
	check(strcmp(share_ptr(v), "published") == 0);
	release(v, NULL);
	release(n, NULL);
	check_ok(share_unpublish(client, "name"));
}

Test(magazine, an_identifier_that_was_told_never_names_another_buffer)
{
	uint64_t ids[50];

	for (int i = 0; i < 50; i++) {
		share_buffer *b = allocate(pool, 4096, NULL);

		ids[i] = share_id(b);
		for (int k = 0; k < i; k++)
			check(ids[k] != ids[i]);
		release(b, NULL);
	}
}

Test(magazine, others_see_the_size_that_was_asked_for)
{
	share_client *other = connect_as("other");
	share_buffer *b, *v;
	share_token token;

	release(allocate(pool, 4097, NULL), NULL);
	b = allocate(pool, 4100, NULL); /* the same block, for less than it has */
	check_ok(share_publish(b, "name", NULL));
	check_ok(share_lookup(other, "name", SHARE_RDONLY, 0, NULL, &v));
	check_eq(share_size(v), 4100);
	release(v, NULL);
	release(b, NULL);
	check_ok(share_unpublish(client, "name"));
	b = allocate(pool, 4200, NULL);
	check_ok(share_export(b, NULL, &token));
	check_ok(share_import(other, &token, 0, NULL, &v));
	check_eq(share_size(v), 4200);
	release(v, NULL);
	release(b, NULL);
	share_disconnect(other);
}

/* ------------------------------------------------------------------------------------------- */
/* Streams                                                                                     */

Test(magazine, a_thread_does_not_get_what_a_stream_still_uses)
{
	struct gate *g = gate_new();
	share_host_stream *stream;
	share_buffer *b, *n;
	void *address;

	check_ok(share_host_stream_create(client, &stream));
	b = allocate(pool, 100 * KIB, stream);
	address = share_ptr(b);
	gate_hold(g, stream);
	release(b, stream);
	n = allocate(pool, 100 * KIB, NULL);
	check(share_ptr(n) != address);
	gate_open(g);
	check_ok(share_host_stream_synchronize(stream));
	b = allocate(pool, 100 * KIB, NULL);
	check(share_ptr(b) == address);
	release(n, NULL);
	release(b, NULL);
	share_host_stream_destroy(stream);
	gate_free(g);
}

Test(magazine, another_stream_waits_for_what_a_stream_still_uses)
{
	struct gate *g = gate_new();
	share_host_stream *first, *second;
	share_buffer *b;
	void *address;

	check_ok(share_host_stream_create(client, &first));
	check_ok(share_host_stream_create(client, &second));
	b = allocate(pool, 4096, first);
	address = share_ptr(b);
	gate_hold(g, first);
	gate_fill(g, first, address, 1, 4096);
	release(b, first);
	b = allocate(pool, 4096, second);
	check(share_ptr(b) == address);
	gate_expect(g, second, address, 1, 4096, 1);
	release(b, second);
	gate_open(g);
	check_ok(share_host_stream_synchronize(second));
	share_host_stream_destroy(first);
	share_host_stream_destroy(second);
	gate_free(g);
}

static uint32_t ordered(share_buffer *b)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;

	check_ok(share_buffer_get_info(b, &info));
	return info.ordered;
}

Test(magazine, another_stream_waits_for_the_last_of_what_a_stream_did)
{
	struct gate *former = gate_new(), *latter = gate_new();
	share_host_stream *first, *second;
	share_buffer *b;
	void *address;

	check_ok(share_host_stream_create(client, &first));
	check_ok(share_host_stream_create(client, &second));
	b = allocate(pool, 4096, first);
	address = share_ptr(b);
	gate_hold(former, first);
	release(b, first);
	b = allocate(pool, 4096, first);
	check(share_ptr(b) == address);
	gate_hold(latter, first);
	gate_fill(latter, first, address, 2, 4096);
	release(b, first);
	gate_open(former);
	until(latter->started == 1);
	b = allocate(pool, 4096, second);
	check(share_ptr(b) == address);
	check_eq(ordered(b), SHARE_ORDERED_ON_STREAM);
	gate_expect(latter, second, address, 2, 4096, 1);
	release(b, second);
	gate_open(latter);
	check_ok(share_host_stream_synchronize(second));
	share_host_stream_destroy(first);
	share_host_stream_destroy(second);
	gate_free(former);
	gate_free(latter);
}

Test(magazine, work_is_not_forgotten_when_the_next_user_does_nothing)
{
	struct gate *g = gate_new();
	share_host_stream *stream;
	share_buffer *b, *n;
	void *address;

	check_ok(share_host_stream_create(client, &stream));
	b = allocate(pool, 4096, stream);
	address = share_ptr(b);
	gate_hold(g, stream);
	release(b, stream);
	b = allocate(pool, 4096, stream);
	check(share_ptr(b) == address);
	release(b, NULL); /* of a thread that knows nothing of the stream */
	n = allocate(pool, 4096, NULL);
	check(share_ptr(n) != address);
	release(n, NULL);
	gate_open(g);
	share_host_stream_destroy(stream);
	gate_free(g);
}

Test(magazine, a_clean_pool_hands_out_only_what_is_done_with)
{
	struct gate *g = gate_new();
	share_host_stream *first, *second;
	share_pool *clean;
	share_buffer *b;
	void *address;

	check_ok(share_pool_open(client, "clean", &clean));
	check_ok(share_host_stream_create(client, &first));
	check_ok(share_host_stream_create(client, &second));
	b = allocate(clean, 4096, first);
	address = share_ptr(b);
	gate_hold(g, first);
	release(b, first);
	b = allocate(clean, 4096, second);
	check(share_ptr(b) != address);
	release(b, second);
	gate_open(g);
	share_host_stream_destroy(first);
	share_host_stream_destroy(second);
	share_pool_close(clean);
	gate_free(g);
}

Test(magazine, a_handle_that_is_held_twice_is_kept_after_the_second_release)
{
	share_buffer *b = allocate(pool, 4096, NULL), *n;
	void *address = share_ptr(b);

	share_retain(b);
	release(b, NULL);
	n = allocate(pool, 4096, NULL);
	check(share_ptr(n) != address);
	release(b, NULL);
	b = allocate(pool, 4096, NULL);
	check(share_ptr(b) == address);
	release(b, NULL);
	release(n, NULL);
}
