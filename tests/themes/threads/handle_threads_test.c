/* SPDX-License-Identifier: MIT */

/*
 * The same handle given up by several threads at once: one of them has done it, the others are told
 * so, and what it stood for is given up once.
 */

#include <share/service.h>

#include "tests/harness/fresh.h"
#include "tests/themes/threads/threads.h"

#define THREADS 3

static share_buffer *buffers[64];
#define BUFFERS (sizeof(buffers) / sizeof(*buffers))
static atomic_uint given_up[BUFFERS];

static void allocate_all(uint64_t size)
{
	for (size_t i = 0; i < BUFFERS; i++) {
		check_ok(share_alloc(pool, size, NULL, &buffers[i]));
		atomic_store(&given_up[i], 0);
	}
}

static void release_all(void *data, unsigned index)
{
	(void)data, (void)index;
	for (size_t i = 0; i < BUFFERS; i++)
		if (check_one_of(share_release(buffers[i], NULL), SHARE_EINVAL) == 0)
			atomic_fetch_add(&given_up[i], 1);
}

static void check_each_once(void)
{
	for (size_t i = 0; i < BUFFERS; i++)
		check_eq(atomic_load(&given_up[i]), 1);
}

static void a_buffer_is_released_by_one_of_those_who_try(void)
{
	start();
	for (unsigned i = 0; i < steps(40); i++) {
		allocate_all(i % 2 ? 4096 : 2 << 20);
		together(THREADS, release_all, NULL);
		check_each_once();
	}
	stop();
}

static void a_buffer_that_others_know_is_released_by_one_of_those_who_try(void)
{
	start();
	for (unsigned i = 0; i < steps(20); i++) {
		allocate_all(4096);
		for (size_t k = 0; k < BUFFERS; k++)
			check(share_id(buffers[k]) != 0);
		together(THREADS, release_all, NULL);
		check_each_once();
	}
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static share_client *common_client;
static share_pool *common_pool;

static void disconnect(void *data, unsigned index)
{
	(void)data, (void)index;
	share_disconnect(common_client);
}

static void close_pool(void *data, unsigned index)
{
	(void)data, (void)index;
	share_pool_close(common_pool);
}

/* Twice given up, neither would be there for who has another handle. */
static void a_client_and_a_pool_are_given_up_by_one_of_those_who_try(void)
{
	start();
	for (unsigned i = 0; i < steps(20); i++) {
		share_pool *again;
		share_buffer *b;

		check_ok(share_connect(share_address(client), &common_client));
		check_ok(share_pool_open(common_client, "default", &common_pool));
		check_ok(share_pool_open(common_client, "default", &again));
		together(THREADS, disconnect, NULL);
		together(THREADS, close_pool, NULL);
		check_ok(share_alloc(again, 4096, NULL, &b));
		check_ok(share_release(b, NULL));
		share_pool_close(again);
	}
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static share_watch *watch;
static share_operation *operation;
static share_host_stream *stream;

static void on_change(const share_name_event *event, void *data)
{
	(void)event, (void)data;
}

static void on_lookup(share_buffer *b, int error, void *data)
{
	(void)b, (void)error, (void)data;
}

static void give_up_what_calls_back(void *data, unsigned index)
{
	(void)data, (void)index;
	share_unwatch(watch);
	share_cancel(operation);
	share_host_stream_destroy(stream);
}

static void what_calls_back_is_given_up_by_one_of_those_who_try(void)
{
	start();
	for (unsigned i = 0; i < steps(20); i++) {
		check_ok(share_watch_names(client, "", on_change, NULL, &watch));
		check_ok(share_lookup_async(client, "nothing", SHARE_RDONLY, -1, NULL, on_lookup,
					    NULL, &operation));
		check_ok(share_host_stream_create(client, &stream));
		together(THREADS, give_up_what_calls_back, NULL);
		check_ok(share_ping(client));
	}
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static share_channel *channel;
static share_message messages[32] = {SHARE_MESSAGE_INIT};
#define MESSAGES (sizeof(messages) / sizeof(*messages))

static void acknowledge_all(void *data, unsigned index)
{
	(void)data, (void)index;
	for (size_t i = 0; i < MESSAGES; i++) {
		share_message copy = messages[i];

		if (check_one_of(share_ack(&copy, NULL), SHARE_EINVAL) == 0)
			atomic_fetch_add(&given_up[i], 1);
	}
}

static void close_channel(void *data, unsigned index)
{
	(void)data, (void)index;
	share_channel_close(channel);
}

static void send_and_receive(share_channel *producer, bool memory)
{
	for (size_t i = 0; i < MESSAGES; i++) {
		share_buffer *b = NULL;

		if (memory)
			check_ok(share_alloc(pool, 4096, NULL, &b));
		check_ok(share_give(producer, b, NULL, 0, NULL));
		check_ok(share_recv(channel, -1, NULL, fresh(&messages[i])));
		atomic_store(&given_up[i], 0);
	}
}

static void a_message_and_a_channel_are_given_up_by_one_of_those_who_try(void)
{
	share_channel *producer;

	start();
	check_ok(share_channel_open(client, "channel", SHARE_PRODUCER, NULL, &producer));
	for (unsigned i = 0; i < steps(20); i++) {
		share_channel_stats stats = SHARE_CHANNEL_STATS_INIT;

		check_ok(share_channel_open(client, "channel", SHARE_CONSUMER, NULL, &channel));
		send_and_receive(producer, i % 2);
		together(THREADS, acknowledge_all, NULL);
		for (size_t k = 0; k < MESSAGES; k++)
			check_eq(atomic_load(&given_up[k]), 1);
		check_ok(share_channel_get_stats(producer, &stats));
		check_eq(stats.in_flight, 0);
		together(THREADS, close_channel, NULL);
	}
	share_channel_close(producer);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static share_service *caller, *worker;
static share_pending *call;
static atomic_uint answers;

static void finish_call(void *data, unsigned index)
{
	share_message m = SHARE_MESSAGE_INIT;

	(void)data, (void)index;
	if (check_one_of(share_call_finish(call, -1, NULL, &m), SHARE_EINVAL) != 0)
		return;
	atomic_fetch_add(&answers, 1);
	check_ok(share_ack(&m, NULL));
}

static void close_service(void *data, unsigned index)
{
	(void)data, (void)index;
	share_service_close(caller);
	share_service_close(worker);
}

static void a_call_and_a_service_are_given_up_by_one_of_those_who_try(void)
{
	share_message request = SHARE_MESSAGE_INIT;

	start();
	for (unsigned i = 0; i < steps(10); i++) {
		check_ok(share_service_open(client, "service", SHARE_CALLER, NULL, &caller));
		check_ok(share_service_open(client, "service", SHARE_WORKER, NULL, &worker));
		for (unsigned k = 0; k < 8; k++) {
			atomic_store(&answers, 0);
			check_ok(share_call_start(caller, NULL, NULL, 0, -1, NULL, &call));
			check_ok(share_next_request(worker, -1, NULL, &request));
			check_ok(share_reply(&request, NULL, NULL, 0, NULL));
			together(THREADS, finish_call, NULL);
			check_eq(atomic_load(&answers), 1);
		}
		together(THREADS, close_service, NULL);
	}
	stop();
}

/* ------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
	static const struct thread_test tests[] = {
	    TEST(a_buffer_is_released_by_one_of_those_who_try),
	    TEST(a_buffer_that_others_know_is_released_by_one_of_those_who_try),
	    TEST(a_client_and_a_pool_are_given_up_by_one_of_those_who_try),
	    TEST(what_calls_back_is_given_up_by_one_of_those_who_try),
	    TEST(a_message_and_a_channel_are_given_up_by_one_of_those_who_try),
	    TEST(a_call_and_a_service_are_given_up_by_one_of_those_who_try),
	};

	return threads_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
