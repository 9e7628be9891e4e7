/* SPDX-License-Identifier: MIT */

/*
 * A broker that is gone. Every call that needs it says so at once, in threads that were waiting
 * too; what is mapped stays, and giving everything up works as ever.
 */

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <share/admin.h>
#include <share/channel.h>
#include <share/service.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "wire/wire.h"

static share_client *client;
static share_pool *pool;
static share_buffer *buffer;
static share_watch *name_watch;
static share_host_stream *stream;
static share_token token;

static void on_change(const share_name_event *event, void *data)
{
	(void)event, (void)data;
}

static void start(void)
{
	fixture_start();
	client = connect_as("test");
	pool = open_pool(client);
	buffer = allocate(pool, 4096, NULL);
	strcpy(share_ptr(buffer), "still here");
	check_ok(share_watch_names(client, "", on_change, NULL, &name_watch));
	check_ok(share_host_stream_create(client, &stream));
	check_ok(share_export(buffer, NULL, &token));
}

static void stop(void)
{
	if (!check_has_failed()) {
		check_error(share_ping(client), SHARE_EDISCONNECTED);
		check(strcmp(share_ptr(buffer), "still here") == 0);
		check_error(share_release(buffer, NULL), SHARE_EDISCONNECTED);
		share_unwatch(name_watch);
		share_host_stream_destroy(stream);
		share_pool_close(pool);
		share_disconnect(client);
	}
	fixture_stop();
}

TestSuite(lost_broker, .init = start, .fini = stop, .timeout = 60);

static int each_json(const char *json, void *data)
{
	(void)json, (void)data;
	return 0;
}

static int each_name(const share_name_info *info, void *data)
{
	(void)info, (void)data;
	return 0;
}

static void on_lookup(share_buffer *b, int error, void *data)
{
	check(b == NULL);
	*(int *)data = error;
}

static void on_reclaim(int status, void *data)
{
	*(int *)data = status;
}

Test(lost_broker, every_call_that_needs_it_says_so)
{
	static const int64_t shape[1] = {1};
	share_client *c = client;
	share_token other;
	share_buffer *b = NULL;
	share_tensor t = SHARE_TENSOR_INIT;
	share_watch *w = NULL;
	share_pool *p = NULL;
	char *text = NULL;
	int error = 1;

	check_ok(share_tensor_init(&t, SHARE_FLOAT32, 1, shape));
	broker_kill();
	check_error(share_ping(c), SHARE_EDISCONNECTED);
	check_error(share_pool_open(c, "default", &p), SHARE_EDISCONNECTED);
	check_error(share_pool_create(c, "new", NULL, &p), SHARE_EDISCONNECTED);
	check_error(share_pool_destroy(c, "default"), SHARE_EDISCONNECTED);
	check_error(share_alloc(pool, 1, NULL, &b), SHARE_EDISCONNECTED);
	check_error(share_alloc(pool, 1, stream, &b), SHARE_EDISCONNECTED);
	check_error(share_reclaim(buffer, 0, NULL), SHARE_EDISCONNECTED);
	check_error(share_reclaim(buffer, -1, stream), SHARE_EDISCONNECTED);
	check_error(share_reclaim_async(buffer, NULL, on_reclaim, &error, NULL),
		    SHARE_EDISCONNECTED);
	check_error(share_metadata_set(buffer, "{}"), SHARE_EDISCONNECTED);
	check_error(share_metadata_get(buffer, &text), SHARE_EDISCONNECTED);
	check_error(share_tensor_set(buffer, &t), SHARE_EDISCONNECTED);
	check_error(share_tensor_get(buffer, &t), SHARE_EDISCONNECTED);
	check_error(share_publish(buffer, "name", NULL), SHARE_EDISCONNECTED);
	check_error(share_publish(buffer, "name", stream), SHARE_EDISCONNECTED);
	check_error(share_unpublish(c, "name"), SHARE_EDISCONNECTED);
	check_error(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &b), SHARE_EDISCONNECTED);
	check_error(share_lookup(c, "name", SHARE_RDONLY, -1, NULL, &b), SHARE_EDISCONNECTED);
	check_error(share_lookup_async(c, "name", SHARE_RDONLY, -1, NULL, on_lookup, &error, NULL),
		    SHARE_EDISCONNECTED);
	check_error(share_list(c, "", each_name, NULL), SHARE_EDISCONNECTED);
	check_error(share_watch_names(c, "", on_change, NULL, &w), SHARE_EDISCONNECTED);
	check_error(share_export(buffer, NULL, &other), SHARE_EDISCONNECTED);
	check_error(share_import(c, &token, 0, NULL, &b), SHARE_EDISCONNECTED);
	check_error(share_revoke(c, &token), SHARE_EDISCONNECTED);
	check_error(share_revoke_id(c, 1), SHARE_EDISCONNECTED);
	check_error(share_drop_client(c, 1), SHARE_EDISCONNECTED);
	check_error(share_inspect(c, "status", each_json, NULL), SHARE_EDISCONNECTED);
	check_error(share_dispatch(c), SHARE_EDISCONNECTED);
	check_detail("the broker is gone: give up");
	check_detail("and connect again");
	check_eq(error, 1); /* told by the call, not by a callback as well */
	check(b == NULL && w == NULL && p == NULL && text == NULL);
}

Test(lost_broker, what_needs_no_broker_goes_on)
{
	struct gate *gate = gate_new();
	char memory[8];
	share_fence f;

	broker_kill();
	check_error(share_ping(client), SHARE_EDISCONNECTED);
	check_ok(share_buffer_status(buffer));
	check(strcmp(share_ptr(buffer), "still here") == 0);
	((char *)share_ptr(buffer))[100] = 'x';
	check(share_retain(buffer) == buffer);
	check_ok(share_release(buffer, NULL));
	gate_fill(gate, stream, memory, 7, sizeof(memory));
	check_ok(share_fence_record(client, -1, stream, &f));
	check_ok(share_fence_synchronize(client, &f, -1));
	expect_filled(memory, 7, sizeof(memory));
	check_ok(share_host_stream_synchronize(stream));
	gate_free(gate);
}

Test(lost_broker, a_broker_that_was_told_to_end_is_lost_as_well)
{
	check_eq(broker_let_go(), 0);
	check_error(share_ping(client), SHARE_EDISCONNECTED);
}

Test(lost_broker, nobody_answers_where_it_was)
{
	share_client *none = NULL;

	broker_kill();
	check_error(share_connect(broker_socket(), &none), SHARE_ENOBROKER);
	check_detail(broker_socket());
	check(none == NULL);
}

static void has_no_room_for_descriptors(struct child *self, void *data)
{
	share_client *c = child_connect("full");
	share_pool *p = open_pool(c);
	struct rlimit before, none;
	share_buffer *b = NULL;

	(void)self, (void)data;
	check(getrlimit(RLIMIT_NOFILE, &before) == 0);
	none = (struct rlimit){0, before.rlim_max};
	check(setrlimit(RLIMIT_NOFILE, &none) == 0);
	check_error(share_alloc(p, 1, NULL, &b), SHARE_EDISCONNECTED);
	check_detail("ulimit -n");
	check(setrlimit(RLIMIT_NOFILE, &before) == 0);
	check_error(share_ping(c), SHARE_EDISCONNECTED);
	check_detail("ulimit -n");
	share_pool_close(p);
	share_disconnect(c);
	c = child_connect("again");
	p = open_pool(c);
	check_ok(share_alloc(p, 1, NULL, &b));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

Test(lost_broker, who_has_no_room_for_descriptors_loses_it_and_is_told_why)
{
	child_finish(child_start(has_no_room_for_descriptors, NULL));
	broker_kill();
}

/* Answers whatever it is told with an error that is none. */
static void *refuses_with_a_success(void *data)
{
	struct wire_message m = {.type = WIRE_ERROR, .error.error = 5};
	int listener = *(int *)data, fd = accept(listener, NULL, NULL);
	char packet[512];
	size_t size = wire_encode(&m, packet, sizeof(packet));

	check(fd >= 0 && size > 0);
	check(recv(fd, packet + size, sizeof(packet) - size, 0) > 0);
	check(send(fd, packet, size, MSG_NOSIGNAL) == (ssize_t)size);
	close(fd);
	return NULL;
}

Test(lost_broker, one_that_makes_no_sense_is_never_taken_for_a_success)
{
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	share_client *none = NULL;
	pthread_t thread;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s.nonsense", broker_socket());
	check(bind(listener, (const struct sockaddr *)&address, sizeof(address)) == 0);
	check(listen(listener, 1) == 0);
	check(pthread_create(&thread, NULL, refuses_with_a_success, &listener) == 0);
	check_error(share_connect(address.sun_path, &none), SHARE_EPROTO);
	check(none == NULL);
	check(pthread_join(thread, NULL) == 0);
	close(listener);
	unlink(address.sun_path);
	broker_kill();
}

/* ------------------------------------------------------------------------------------------- */
/* Threads that wait                                                                           */

static atomic_int waiting;

static void *looks_up(void *data)
{
	share_buffer *b = NULL;

	(void)data;
	waiting++;
	check_error(share_lookup(client, "never", SHARE_RDONLY, -1, NULL, &b), SHARE_EDISCONNECTED);
	check(b == NULL);
	return NULL;
}

static void *pings(void *data)
{
	(void)data;
	waiting++;
	while (share_ping(client) == 0)
		;
	return NULL;
}

static void *allocates(void *data)
{
	share_buffer *b;

	(void)data;
	waiting++;
	while (share_alloc(pool, 1000, stream, &b) == 0)
		share_release(b, stream);
	return NULL;
}

Test(lost_broker, threads_that_wait_are_told)
{
	static void *(*const functions[])(void *) = {looks_up, looks_up, pings,    allocates,
						     looks_up, pings,    looks_up, allocates};
	pthread_t threads[8];

	for (int i = 0; i < 8; i++)
		check(pthread_create(&threads[i], NULL, functions[i], NULL) == 0);
	until(waiting == 8);
	for (int i = 0; i < 100; i++)
		check_ok(share_ping(client));
	broker_kill();
	for (int i = 0; i < 8; i++)
		check(pthread_join(threads[i], NULL) == 0);
}

/* A frozen broker reads nothing: the socket fills, and senders wait. */
Test(lost_broker, threads_that_wait_to_send_are_told)
{
	pthread_t threads[8];

	broker_freeze();
	for (int i = 0; i < 8; i++)
		check(pthread_create(&threads[i], NULL, i % 2 ? pings : looks_up, NULL) == 0);
	until(waiting == 8);
	broker_kill();
	for (int i = 0; i < 8; i++)
		check(pthread_join(threads[i], NULL) == 0);
}

/* ------------------------------------------------------------------------------------------- */
/* Event loops                                                                                 */

static bool polls_readable(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, timeout_ms) > 0 && p.revents & POLLIN;
}

Test(lost_broker, the_descriptor_polls_readable_and_dispatch_tells)
{
	int fd = share_get_fd(client);

	check(fd >= 0 && !polls_readable(fd, 0));
	broker_kill();
	check(polls_readable(fd, HARNESS_LIMIT_MS));
	check_error(share_dispatch(client), SHARE_EDISCONNECTED);
	check(polls_readable(fd, 0));
	check_error(share_dispatch(client), SHARE_EDISCONNECTED);
	check_eq(share_get_fd(client), fd);
}

Test(lost_broker, a_descriptor_asked_for_afterwards_polls_readable_too)
{
	broker_kill();
	check_error(share_ping(client), SHARE_EDISCONNECTED);
	check(polls_readable(share_get_fd(client), 0));
}

Test(lost_broker, look_ups_that_are_pending_are_called_back)
{
	int errors[3] = {1, 1, 1};
	share_operation *o[3];

	for (int i = 0; i < 3; i++)
		check_ok(share_lookup_async(client, "never", SHARE_RDONLY, -1, NULL, on_lookup,
					    &errors[i], &o[i]));
	broker_kill();
	check(polls_readable(share_get_fd(client), HARNESS_LIMIT_MS));
	share_cancel(o[1]);
	until(share_dispatch(client) == SHARE_EDISCONNECTED);
	check_error(errors[0], SHARE_EDISCONNECTED);
	check_eq(errors[1], 1);
	check_error(errors[2], SHARE_EDISCONNECTED);
	share_cancel(o[0]);
	share_cancel(o[2]);
}

Test(lost_broker, giving_a_client_up_with_look_ups_pending_does_not_hang)
{
	share_client *c = connect_as("second");
	int error = 1;

	check_ok(share_lookup_async(c, "never", SHARE_RDONLY, -1, NULL, on_lookup, &error, NULL));
	check_ok(share_lookup_async(c, "never", SHARE_RDONLY, 9999, NULL, on_lookup, &error, NULL));
	broker_kill();
	share_disconnect(c);
	check_eq(error, 1);
}

/* Whether they wait for the broker, or for a message to come back. */
Test(lost_broker, who_waits_to_be_the_last_holder_is_told)
{
	share_buffer *sent = allocate(pool, 4096, NULL);
	share_channel *producer, *consumer;
	int errors[2] = {1, 1};
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_channel_open(client, "channel", SHARE_CONSUMER, NULL, &consumer));
	check_ok(share_channel_open(client, "channel", SHARE_PRODUCER, NULL, &producer));
	check_ok(share_send(producer, sent, NULL, 0, NULL));
	check_ok(share_recv(consumer, HARNESS_LIMIT_MS, NULL, &m));
	check_ok(share_reclaim_async(buffer, NULL, on_reclaim, &errors[0], NULL));
	check_ok(share_reclaim_async(sent, NULL, on_reclaim, &errors[1], NULL));
	check_ok(share_ping(client));
	broker_kill();
	until((share_dispatch(client), errors[0] != 1 && errors[1] != 1));
	check_error(errors[0], SHARE_EDISCONNECTED);
	check_error(errors[1], SHARE_EDISCONNECTED);
	check_ok(share_ack(&m, NULL));
	share_channel_close(consumer);
	share_channel_close(producer);
	check_error(share_release(sent, NULL), SHARE_EDISCONNECTED);
}

/* What a call says that has failed is what the program reads after it has given up what it had. */
Test(lost_broker, giving_up_leaves_the_detail_of_the_call_that_failed)
{
	static const char said[] = "a name is 1 to";
	share_client *c = connect_as("other");
	share_pool *p = open_pool(c);
	share_buffer *sent = allocate(p, 4096, NULL);
	share_channel *producer, *consumer;
	share_service *caller, *worker;
	share_operation *lookup;
	share_host_stream *s;
	share_pending *call;
	share_watch *w;
	share_message m = SHARE_MESSAGE_INIT;
	int error = 1;

	check_ok(share_watch_names(c, "", on_change, NULL, &w));
	check_ok(share_host_stream_create(c, &s));
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, NULL, &consumer));
	check_ok(share_channel_open(c, "channel", SHARE_PRODUCER, NULL, &producer));
	check_ok(share_service_open(c, "service", SHARE_WORKER, NULL, &worker));
	check_ok(share_service_open(c, "service", SHARE_CALLER, NULL, &caller));
	check_ok(share_call_start(caller, NULL, "?", 1, 0, NULL, &call));
	check_ok(share_send(producer, sent, NULL, 0, NULL));
	check_ok(share_send(producer, sent, NULL, 0, NULL));
	check_ok(share_recv(consumer, HARNESS_LIMIT_MS, NULL, &m));
	check_ok(share_release(sent, NULL));
	check_ok(
	    share_lookup_async(c, "never", SHARE_RDONLY, -1, NULL, on_lookup, &error, &lookup));
	broker_kill();

	check_error(share_unpublish(c, ""), SHARE_EINVAL);
	check_detail(said);
	check_ok(share_ack(&m, NULL));
	check_detail(said);
	share_call_cancel(call);
	check_detail(said);
	share_cancel(lookup);
	check_detail(said);
	share_service_close(caller);
	check_detail(said);
	share_service_close(worker);
	check_detail(said);
	share_channel_close(consumer);
	check_detail(said);
	share_channel_close(producer);
	check_detail(said);
	share_unwatch(w);
	check_detail(said);
	share_host_stream_destroy(s);
	check_detail(said);
	share_pool_close(p);
	check_detail(said);
	share_disconnect(c);
	check_detail(said);
	check_error(share_ping(client), SHARE_EDISCONNECTED);
}
