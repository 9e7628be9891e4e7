/* SPDX-License-Identifier: MIT */

/* What an interruption meets on its way: a socket that takes no more, a connection whose requests
 * have a time limit, and that it is taken back at once. waits_threads_test has all else. */

#include <pthread.h>
#include <sched.h>

#include <share/admin.h>
#include <share/fence.h>

#include "libshare/client/inside.h"
#include "tests/harness/fixture.h"
#include "wire/packet.h"

static share_client *client;

static void start(void)
{
	fixture_start();
	client = connect_as("interrupted");
}

static void stop(void)
{
	share_disconnect(client);
	fixture_stop();
}

TestSuite(interrupt, .init = start, .fini = stop, .timeout = 60);

static void *find(void *c)
{
	share_buffer *b;

	return (void *)(intptr_t)share_lookup(c, "nobody-publishes-this", SHARE_RDONLY, -1, NULL,
					      &b);
}

static int on_event(const char *json, void *data)
{
	(void)json, (void)data;
	return 0;
}

static share_monitor_options nothing_happens(void)
{
	share_monitor_options o = SHARE_MONITOR_OPTIONS_INIT;

	o.prefix = "nothing of that name";
	return o;
}

static void *watch(void *c)
{
	share_monitor_options o = nothing_happens();

	return (void *)(intptr_t)share_monitor(c, &o, 20000, on_event, NULL);
}

static pthread_t begin(void *(*function)(void *), share_client *c)
{
	pthread_t thread;

	check_eq(pthread_create(&thread, NULL, function, c), 0);
	return thread;
}

static int result_of(pthread_t thread)
{
	void *result;

	check_eq(pthread_join(thread, &result), 0);
	return (int)(intptr_t)result;
}

/* The broker has its request, and it waits for what comes. */
static bool waits_in_broker(share_client *observer)
{
	return used_of(observer, "waits") == 1;
}

/* With what a broker ignores, so that it can go on. */
static void fill_socket(share_client *c)
{
	struct wire_message m = {.type = WIRE_CANCEL};
	unsigned char packet[64];
	size_t size = wire_encode(&m, packet, sizeof(packet));

	while (packet_send(client_of(c)->connection->socket, packet, size, NULL, 0, false) == 0)
		;
}

Test(interrupt, a_request_is_taken_back_though_the_socket_is_full)
{
	share_client *observer = connect_as("observer");
	pthread_t thread = begin(find, client);

	until(waits_in_broker(observer));
	broker_freeze();
	fill_socket(client);
	check_ok(share_interrupt(client));
	broker_thaw();
	check_error(result_of(thread), SHARE_EINTR);
	check_ok(share_interrupt_clear(client));
	check_ok(share_ping(client));
	until(!waits_in_broker(observer));
	share_disconnect(observer);
}

Test(interrupt, an_operator_who_watches_is_interrupted)
{
	share_connect_options o = SHARE_CONNECT_OPTIONS_INIT;
	share_monitor_options none = nothing_happens();
	share_client *admin, *observer = connect_as("observer");
	pthread_t thread;

	o.flags = SHARE_CONNECT_OPERATOR;
	o.timeout_ms = 10000;
	check_ok(share_connect_with(broker_socket(), &o, &admin));
	check_ok(share_monitor(admin, &none, 0, on_event, NULL));
	thread = begin(watch, admin);
	until(waits_in_broker(observer));
	check_ok(share_interrupt(admin));
	check_error(result_of(thread), SHARE_EINTR);
	check_ok(share_interrupt_clear(admin));
	check_ok(share_ping(admin));
	share_disconnect(admin);
	share_disconnect(observer);
}

static share_fence pending;
static atomic_bool goes_on;

static void work(void *data)
{
	(void)data;
	while (!atomic_load(&goes_on))
		sched_yield();
}

static void *synchronize(void *c)
{
	return (void *)(intptr_t)share_fence_synchronize(c, &pending, -1);
}

/* However short it was: a wait without a limit never says that its time is over. */
Test(interrupt, what_is_taken_back_at_once_is_no_time_limit)
{
	share_host_stream *stream;

	check_ok(share_host_stream_create(client, &stream));
	check_ok(share_host_stream_launch(stream, work, NULL));
	check_ok(share_fence_record(client, -1, stream, &pending));
	for (int i = 0; i < 300; i++) {
		pthread_t thread = begin(synchronize, client);
		void *result;

		while (pthread_tryjoin_np(thread, &result) != 0) {
			check_ok(share_interrupt(client));
			check_ok(share_interrupt_clear(client));
		}
		check_error((int)(intptr_t)result, SHARE_EINTR);
	}
	atomic_store(&goes_on, true);
	share_host_stream_destroy(stream);
}
